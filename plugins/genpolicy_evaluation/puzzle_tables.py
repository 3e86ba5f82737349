"""Solved puzzles counted: in all, by rating band, theme and mate length, with intervals, as tables and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from genpolicy.game import Game
from genpolicy_common.tables import Report, percent_with_interval
from genpolicy_evaluation.intervals import wilson
from genpolicy_evaluation.puzzle_rating import PuzzleRating, fit_puzzle_rating
from genpolicy_evaluation.puzzles import Attempt, Attempts, moves_text

BAND = 200
"""Default width of a rating band."""
FEW = 10
"""Themes with fewer puzzles are left out of the printed table."""


@dataclass(frozen=True)
class Rate:
    """A fraction of puzzles with its 95 % Wilson interval."""

    hits: int
    trials: int

    @property
    def value(self) -> float:
        """NaN without trials."""
        return self.hits / self.trials if self.trials else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end; NaN without trials."""
        return wilson(self.hits, self.trials)

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {"rate": self.value, "interval": list(self.interval), "hits": self.hits, "puzzles": self.trials}

    def __str__(self) -> str:
        return percent_with_interval(self.value, self.interval)


@dataclass(frozen=True)
class Solved:
    """The counts of some puzzles."""

    solved: Rate
    solved_any: Rate
    first: Rate

    @staticmethod
    def of(attempts: Sequence[Attempt]) -> Solved:
        """The counts of these attempts."""
        return Solved(
            Rate(sum(a.solved for a in attempts), len(attempts)),
            Rate(sum(a.solved_any for a in attempts), len(attempts)),
            Rate(sum(a.first for a in attempts), len(attempts)),
        )

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "solved": self.solved.figures(),
            "solved_any": self.solved_any.figures(),
            "first_move": self.first.figures(),
        }


@dataclass(frozen=True)
class PuzzleResult:
    """A policy's attempts under its name."""

    policy: str
    attempts: Attempts

    @property
    def total(self) -> Solved:
        """Over all puzzles."""
        return Solved.of(self.attempts.attempts)

    @property
    def rating(self) -> PuzzleRating:
        """Fitted to the puzzles that have a rating."""
        rated = [(a.puzzle.rating, a.solved) for a in self.attempts.attempts if a.puzzle.rating is not None]
        return fit_puzzle_rating([rating for rating, _ in rated], [solved for _, solved in rated])

    def figures(self, game: Game[Any], band: int = BAND) -> dict[str, Any]:
        """For JSON: everything counted, and each puzzle with what was played."""
        attempts = self.attempts.attempts
        return {
            "policy": self.policy,
            **self.total.figures(),
            "rating": self.rating.figures(),
            "by_rating": _figures(by_rating(attempts, band)),
            "by_theme": _figures(by_theme(attempts)),
            "by_mate_length": _figures(by_mate_length(attempts)),
            "moves_asked": self.attempts.num_moves,
            "ms_per_move": self.attempts.ms,
            "without_answer": self.attempts.problems,
            "attempts": [_attempt_figures(game, attempt) for attempt in attempts],
        }


Groups = dict[str, list[Attempt]]


def by_rating(attempts: Sequence[Attempt], band: int = BAND) -> Groups:
    """Attempts by rating band, easiest first; those without a rating last.

    Raises:
        ValueError: ``band`` below 1.
    """
    if band < 1:
        raise ValueError(f"a rating band must be at least 1 wide, got {band}")

    def start(attempt: Attempt) -> int | None:
        return None if attempt.puzzle.rating is None else int(attempt.puzzle.rating // band) * band

    return _grouped(attempts, start, lambda low: f"{low}-{low + band - 1}", "no rating")


def by_mate_length(attempts: Sequence[Attempt]) -> Groups:
    """Attempts at puzzles that end in mate, by its length in plies, shortest first; {} where there is none."""
    mates = [attempt for attempt in attempts if attempt.puzzle.mate_in is not None]
    return _grouped(
        mates, lambda attempt: attempt.puzzle.mate_in, lambda plies: f"{plies} pl{'y' if plies == 1 else 'ies'}", ""
    )


def by_theme(attempts: Sequence[Attempt]) -> Groups:
    """Attempts by theme, the most frequent first; a puzzle counts under each of its themes."""
    groups: Groups = {}
    for attempt in attempts:
        for theme in dict.fromkeys(attempt.puzzle.themes):
            groups.setdefault(theme, []).append(attempt)
    return dict(sorted(groups.items(), key=lambda entry: (-len(entry[1]), entry[0])))


def _grouped(
    attempts: Sequence[Attempt], key: Callable[[Attempt], int | None], title: Callable[[int], str], rest: str
) -> Groups:
    keys = [key(attempt) for attempt in attempts]
    known = sorted({each for each in keys if each is not None})
    groups = {title(each): [a for a, own in zip(attempts, keys, strict=True) if own == each] for each in known}
    if None in keys:
        groups[rest] = [a for a, own in zip(attempts, keys, strict=True) if own is None]
    return groups


def _figures(groups: Groups) -> dict[str, Any]:
    return {name: Solved.of(attempts).figures() for name, attempts in groups.items()}


def _attempt_figures(game: Game[Any], attempt: Attempt) -> dict[str, Any]:
    return {
        "puzzle": attempt.puzzle.name,
        "where": attempt.puzzle.where,
        "moves": moves_text(game, attempt.moves),
        "first": attempt.first,
        "solved": attempt.solved,
        "solved_any": attempt.solved_any,
    }


def puzzle_reports(results: Sequence[PuzzleResult], source: str, *, longer: int, band: int = BAND) -> list[Report]:
    """The tables of some policies on the same puzzles: in all, by rating, by mate length, by theme."""
    attempts = results[0].attempts.attempts
    mates = any(attempt.puzzle.rule == "mate" for attempt in attempts)
    columns = ["policy", "solved %", *(["any mate %"] if mates else []), "first move %", "puzzle rating", "ms"]
    report = Report(f"Puzzles of {source}", columns)
    for result in results:
        total = result.total
        report.add(
            result.policy,
            str(total.solved),
            *([str(total.solved_any)] if mates else []),
            str(total.first),
            str(result.rating),
            f"{result.attempts.ms:.1f}",
        )
    report.notes = [f"{len(attempts)} puzzles; intervals: 95 %, Wilson; of ratings: 95 %, likelihood."]
    if mates:
        report.notes.append(
            f"solved: each move keeps the shortest mate; any mate: each keeps one at most {longer} plies longer in all."
        )
    if any(attempt.puzzle.rule == "line" for attempt in attempts):
        report.notes.append("solved: each move is the solution's, or the first deviation wins at once.")
    report.notes += [
        f"{result.policy}: no legal answer in {len(problems)} puzzles, which are not solved; the first: {problems[0]}"
        for result in results
        if (problems := result.attempts.problems)
    ]
    groupings = [
        ("by rating", lambda found: by_rating(found, band), 0),
        ("by length of the mate", by_mate_length, 0),
        ("by theme", by_theme, FEW),
    ]
    reports = [report]
    for title, group, few in groupings:
        table = _group_report(f"Solved, {title} %", results, group, few, mates)
        if table is not None:
            reports.append(table)
    return reports


def _group_report(
    title: str, results: Sequence[PuzzleResult], group: Callable[[Sequence[Attempt]], Groups], few: int, mates: bool
) -> Report | None:
    """One row a group, one column a policy (two where mates are counted twice); None where no group is large enough."""
    groups = [group(result.attempts.attempts) for result in results]
    names = [name for name, attempts in groups[0].items() if len(attempts) >= few]
    if not names or names == ["no rating"]:
        return None
    columns = [column for result in results for column in [result.policy, *(["any mate"] if mates else [])]]
    report = Report(title, ["", "puzzles", *columns])
    for name in names:
        counts = [Solved.of(each[name]) for each in groups]
        cells = [str(rate) for c in counts for rate in [c.solved, *([c.solved_any] if mates else [])]]
        report.add(name, str(counts[0].solved.trials), *cells)
    if len(names) < len(groups[0]):
        report.notes = [f"Left out: {len(groups[0]) - len(names)} with fewer than {few} puzzles (--json has them)."]
    return report
