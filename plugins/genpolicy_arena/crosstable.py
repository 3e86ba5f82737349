"""Tables of ratings and of who scored what against whom, for the terminal, Markdown and JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from genpolicy_arena.ratings import RatedGame, Ratings
from genpolicy_common.tables import Report


def crosstable(games: Sequence[RatedGame], names: Sequence[str]) -> Report:
    """Points and games of each player against each other player, in the order of ``names``."""
    counts = _counts(games)
    report = Report("Crosstable: points / games, row against column", ["player", *_numbers(names), "total"])
    for number, name in enumerate(names, 1):
        cells, total = [], [0.0, 0]
        for other in names:
            points, played = counts.get((name, other), (0.0, 0))
            total = [total[0] + points, total[1] + played]
            cells.append(f"{points:g}/{played}" if played else ("" if other != name else "-"))
        report.add(f"{number} {name}", *cells, f"{total[0]:g}/{total[1]}")
    return report


def crosstable_figures(games: Sequence[RatedGame]) -> list[dict[str, Any]]:
    """Wins, draws and losses of each ordered pair (who moved first, who second)."""
    counts: Counter[tuple[str, str, float]] = Counter((game.first, game.second, game.result) for game in games)
    pairs = sorted({(first, second) for first, second, _ in counts})
    return [
        {
            "first": first,
            "second": second,
            "wins": counts[first, second, 1.0],
            "draws": counts[first, second, 0.0],
            "losses": counts[first, second, -1.0],
        }
        for first, second in pairs
    ]


def rating_report(ratings: Ratings, title: str = "Ratings") -> Report:
    """The table of ratings, with the fitted parameters below it."""
    columns = ["player", "Elo", "95 % interval", "games", "score %", "won", "drawn", "lost", "LOS over next %"]
    report = Report(title, columns)
    for index, row in enumerate(ratings.players):
        after = ratings.los[index, index + 1] if index + 1 < len(ratings.players) else math.nan
        report.add(
            row.name,
            f"{row.elo:.1f}",
            f"[{end_text(row.low)}, {end_text(row.high)}]",
            str(row.games),
            f"{100 * row.score:.1f}",
            str(row.wins),
            str(row.draws),
            str(row.losses),
            "" if math.isnan(after) else f"{100 * after:.1f}",
        )
    advantage = f"first move worth {ratings.advantage:.1f} Elo"
    if ratings.advantage_interval is not None:
        advantage += f" [{ratings.advantage_interval[0]:.1f}, {ratings.advantage_interval[1]:.1f}]"
    words = {"bt": "Bradley-Terry with draws (Davidson)", "bayeselo": "BayesElo's model", "ordo": "Ordo's model"}
    draw = {"bt": "nu", "bayeselo": "eloDraw"}.get(ratings.model)
    line = f"{words[ratings.model]}; {advantage}"
    if draw is not None and ratings.draw is not None:
        line += f"; draws {draw} = {ratings.draw:.3g}"
    if ratings.prior:
        line += f"; virtual games per player: {ratings.prior:g}"
    report.notes += [line, *ratings.notes]
    return report


def superiority_report(ratings: Ratings) -> Report:
    """The matrix of likelihoods of superiority in percent."""
    names = [row.name for row in ratings.players]
    report = Report("Likelihood of superiority in %, row over column", ["player", *_numbers(names)])
    for index, name in enumerate(names):
        cells = [
            "" if i == index or math.isnan(los) else f"{100 * los:.1f}" for i, los in enumerate(ratings.los[index])
        ]
        report.add(f"{index + 1} {name}", *cells)
    return report


def _counts(games: Sequence[RatedGame]) -> dict[tuple[str, str], tuple[float, int]]:
    counts: dict[tuple[str, str], tuple[float, int]] = {}
    for game in games:
        points = (1 + game.result) / 2
        for one, other, gained in ((game.first, game.second, points), (game.second, game.first, 1 - points)):
            old = counts.get((one, other), (0.0, 0))
            counts[one, other] = (old[0] + gained, old[1] + 1)
    return counts


def end_text(value: float, digits: int = 1) -> str:
    """An end of a rating's interval."""
    return f"{value:+}" if math.isinf(value) else f"{value:.{digits}f}"


def _numbers(names: Sequence[str]) -> list[str]:
    """Heads of the columns; names would be too long in a table of many players."""
    return [str(number) for number in range(1, len(names) + 1)]
