"""``genpolicy ratings``: Elo ratings from files of games."""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy_common.arguments import MAX_SHOWN, say

if TYPE_CHECKING:
    from genpolicy.game import Game
    from genpolicy_arena.ratings import RatedGame

_PAIR = re.compile(r"(\d+)\.[12]")


def add_parser(subparsers: Any) -> None:
    """Add ``ratings`` to the command line."""
    from genpolicy_arena.commands import add_output_arguments, add_rating_arguments

    parser = subparsers.add_parser(
        "ratings",
        help="rate players from files of games",
        description="Rate players by maximum likelihood: Elo, 95 % intervals and likelihood of superiority (LOS).",
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="GAMES", help="files of games (.pgn, ...) or folders of tournaments"
    )
    parser.add_argument("--game", default="chess", metavar="SPEC", help="game of the files; default chess")
    parser.add_argument("--min-games", type=int, default=1, metavar="N", help="leave out players with fewer games")
    parser.add_argument("--los", action="store_true", help="also show the matrix of likelihoods of superiority")
    parser.add_argument("--crosstable", action="store_true", help="also show who scored what against whom")
    add_rating_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """``genpolicy ratings``: read the games, rate the players, show the tables."""
    from genpolicy.registry import load_game
    from genpolicy_arena.commands import rating_options
    from genpolicy_arena.crosstable import (
        crosstable,
        crosstable_figures,
        rating_report,
        superiority_report,
    )
    from genpolicy_arena.ratings import fit
    from genpolicy_common.tables import publish

    options = rating_options(arguments)
    if arguments.min_games < 1:
        raise ValueError(f"--min-games must be at least 1, got {arguments.min_games}")
    skipped: Counter[str] = Counter()
    games = read_games(load_game(arguments.game), arguments.files, skipped)
    games = with_enough_games(games, arguments.min_games, skipped)
    ratings = fit(games, options)
    table = rating_report(ratings, f"Ratings from {len(games)} games")
    table.notes += [f"left out: {number} {what}" for what, number in skipped.items()]
    names = [row.name for row in ratings.players]
    reports = [table]
    reports += [crosstable(games, names)] if arguments.crosstable else []
    reports += [superiority_report(ratings)] if arguments.los else []
    figures = {
        "game": load_game(arguments.game).spec,
        "files": [str(path) for path in arguments.files],
        "games": len(games),
        "left_out": dict(skipped),
        "crosstable": crosstable_figures(games),
        "ratings": ratings.figures(),
    }
    publish(reports, figures, arguments)
    return 0


def read_games(game: Game[Any], paths: Sequence[Path], skipped: Counter[str]) -> list[RatedGame]:
    """The finished games of some files; games that cannot be rated are counted, unreadable ones are named on stderr.

    Args:
        game: Game of the files; the headers ``game.players`` of a game name its players.
        paths: Files that the game reads, or folders of tournaments.
        skipped: Counts what was left out, by reason.

    Raises:
        SourceError: a file cannot be read at all or its games are given twice, or a tournament is of another game.
    """
    from genpolicy.errors import SourceError, printable
    from genpolicy.facets import reader
    from genpolicy_arena.ratings import RatedGame
    from genpolicy_arena.results import GAMES, MANIFEST
    from genpolicy_evaluation.positions import progress_bar

    seen: dict[Path, Path] = {}
    for path in paths:
        whole = Path(os.path.realpath(path))  # which Path.resolve refuses to say of a link to itself
        if whole.stem == GAMES and (whole.parent / MANIFEST).is_file():  # the games that the folder stands for
            whole = whole.parent
        if whole in seen:
            other = f" (the same games as {seen[whole]})" if seen[whole] != path else ""
            raise SourceError(f"{path}: given twice{other}, and its games count once; leave one of them out")
        seen[whole] = path
    games: list[RatedGame] = []

    def bad(error: Exception) -> None:
        skipped["unreadable games"] += 1
        if skipped["unreadable games"] <= MAX_SHOWN:
            say(f"left out: {error}")

    with progress_bar() as bar:
        task = bar.add_task("reading games", total=None)
        for path in paths:
            if (path / MANIFEST).is_file():
                games += _of_tournament(path, game)
                continue
            for played in reader(game, path, "games").open_games(path, bad):
                first, second = (printable(played.headers.get(side, "")).strip() for side in game.players)
                if played.result is None:
                    skipped["games without a result"] += 1
                elif not first.strip("?") or not second.strip("?") or first == second:
                    skipped["games whose headers do not name two players"] += 1
                else:
                    pair = _PAIR.fullmatch(played.headers.get("Round", ""))
                    games.append(RatedGame(first, second, played.result, f"{path}|{pair.group(1)}" if pair else None))
                bar.advance(task)
    return games


def _of_tournament(folder: Path, game: Game[Any]) -> list[RatedGame]:
    from genpolicy.errors import SourceError
    from genpolicy_arena.ratings import RatedGame
    from genpolicy_arena.results import LINES, MANIFEST, read_lines, read_manifest, whole_lines

    path = folder / LINES
    try:
        manifest = read_manifest(folder / MANIFEST)
        if manifest.get("game") != game.spec:
            raise SourceError(f"{folder}: a tournament of {manifest.get('game')!r}, not {game.spec!r}; give --game")
        results = [result for _, result, _ in read_lines(path, whole_lines(path), manifest.get("players", {}))]
    except ValueError as error:
        raise SourceError(str(error)) from error
    if not results:
        raise SourceError(f"{folder}: no game of this tournament is finished yet; go on with it first")
    return [RatedGame(each.first, each.second, each.result, f"{path}|{each.pair}") for each in results]


def with_enough_games(games: Iterable[RatedGame], least: int, skipped: Counter[str]) -> list[RatedGame]:
    """Remove the games of players with fewer than ``least``, until every player left has as many."""
    kept = list(games)
    while True:
        counts = Counter(name for game in kept for name in (game.first, game.second))
        few = {name for name, number in counts.items() if number < least}
        if not few:
            return kept
        left = [game for game in kept if game.first not in few and game.second not in few]
        skipped[f"games of players with fewer than {least}"] += len(kept) - len(left)
        kept = left
