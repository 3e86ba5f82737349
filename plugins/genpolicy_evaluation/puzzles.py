"""Puzzles: which ones a policy solves, played out move by move, many at a time.

Two rules (``genpolicy.game.Puzzle.rule``).

- ``line``: the policy must give every move of the solution that is its own. At its first difference the puzzle is
  solved if that move wins at once, else not (Ruoss et al. 2024, arXiv:2402.04494, and Lichess).
- ``mate``: every move must keep a forced win. Two counts: *shortest*, each move keeps the shortest one; *any*, each
  move keeps some forced win that is at most ``longer`` plies longer in all, and the win is delivered. The opponent
  follows the solution while the policy does, and otherwise holds out as long as it can. A solution that nobody has
  verified (``genpolicy.game.Puzzle.verified``) is not believed: then every move is judged by the search.

A policy that fails to answer (an engine that dies) or answers an illegal move has not solved the puzzle; the reason is
kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genpolicy.errors import EngineError, IllegalMoveError, SourceError
from genpolicy.facets import reader
from genpolicy.game import Game, Puzzle
from genpolicy.policies.base import Decision, Policy
from genpolicy_common.arguments import MAX_SHOWN
from genpolicy_evaluation.positions import chunks, progress_bar

CHUNK = 1024
"""Puzzles of which a policy is asked at once; it cuts them to its own batches."""
LONGER_PLIES = 4
"""Default of ``longer``."""
_GIVE_UP = 8  # answers that fail one after the other before a policy is given up


@dataclass(frozen=True)
class Attempt:
    """What a policy made of one puzzle."""

    puzzle: Puzzle
    moves: tuple[int, ...]
    """The policy's moves, absolute ids, the last one perhaps wrong."""
    first: bool
    """Its first move was right by the puzzle's rule (for ``mate``: it keeps the shortest win)."""
    solved: bool
    """By the puzzle's rule (for ``mate``: every move kept the shortest win)."""
    solved_any: bool
    """For ``mate``: every move kept some forced win; else ``solved``."""
    problem: str | None = None
    """Why there was no legal answer, where there was none."""


@dataclass(frozen=True)
class Attempts:
    """What a policy made of a list of puzzles."""

    attempts: tuple[Attempt, ...]
    """In the order of the puzzles."""
    num_moves: int
    """Decisions asked for."""
    ms: float
    """Wall time of a decision in milliseconds, as it was batched."""

    @property
    def problems(self) -> list[str]:
        """Which puzzles had no legal answer and why."""
        return [f"{a.puzzle.where}: {a.problem}" for a in self.attempts if a.problem is not None]


@dataclass
class PuzzleFile:
    """The puzzles of a file, and what was left out of it."""

    puzzles: list[Puzzle]
    num_read: int
    """Good puzzles in the file, before the limit."""
    num_bad: int = 0
    shown: list[str] = field(default_factory=list)
    """The first bad rows, with file and line."""


def read_puzzle_file(
    game: Game[Any], path: Path, *, skip_bad: bool = False, limit: int | None = None, seed: int = 0
) -> PuzzleFile:
    """The puzzles of a file.

    Args:
        game: Whose they are.
        path: What ``Files.open_puzzles`` takes.
        skip_bad: Leave bad rows out and count them; otherwise the first one is an error.
        limit: At most so many, drawn without replacement from the whole file and kept in its order; None takes all.
        seed: Seed of that draw.

    Raises:
        SourceError: a bad row (without ``skip_bad``), an unreadable file, or no puzzle left.
        ValueError: ``limit`` below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 puzzle, got {limit}")
    found = PuzzleFile([], 0)

    def on_bad(error: SourceError) -> None:
        if not skip_bad:
            raise SourceError(f"{error} (--skip-bad skips such rows)") from error
        found.num_bad += 1
        if len(found.shown) < MAX_SHOWN:
            found.shown.append(str(error))

    drawn = random.Random(seed)
    kept: list[tuple[int, Puzzle]] = []
    for index, puzzle in enumerate(reader(game, path, "puzzles").open_puzzles(path, on_bad)):
        found.num_read += 1
        if limit is None or len(kept) < limit:
            kept.append((index, puzzle))
        elif (slot := drawn.randrange(index + 1)) < limit:  # reservoir sampling: one pass over any length
            kept[slot] = (index, puzzle)
    if not kept:
        raise SourceError(f"{path}: no puzzle left; all {found.num_bad} rows are bad, the first: {found.shown[0]}")
    found.puzzles = [puzzle for _, puzzle in sorted(kept, key=lambda entry: entry[0])]
    return found


def attempt_puzzles(
    policy: Policy, puzzles: Sequence[Puzzle], *, longer: int = LONGER_PLIES, name: str = "", show: bool = False
) -> Attempts:
    """Let a policy play puzzles out.

    Every round asks it for all puzzles that are still being played, in calls of up to ``CHUNK`` positions.

    Args:
        policy: A policy for the puzzles' game.
        puzzles: At least one.
        longer: Plies by which a ``mate`` puzzle may take longer than its shortest win and still count as *any*.
        name: For the progress bar; the policy's label by default.
        show: Show a progress bar.

    Raises:
        ValueError: no puzzles, or ``longer`` below 0.
        EngineError: the policy fails to answer at all.
    """
    if not puzzles:
        raise ValueError("no puzzles to solve")
    if longer < 0:
        raise ValueError(f"longer must be at least 0 plies, got {longer}")
    played = [_Play(policy.game, puzzle, longer) for puzzle in puzzles]
    asker = _Asker(policy)
    with progress_bar(show) as progress:
        task = progress.add_task(name or policy.label, total=len(played))
        while running := [play for play in played if not play.over]:
            for chunk in chunks(running, CHUNK):
                for play, answer in zip(chunk, asker.ask([play.state for play in chunk]), strict=True):
                    play.take(answer)
                progress.update(task, completed=sum(play.over for play in played))
    num_moves = max(1, asker.num_asked)
    return Attempts(
        tuple(play.attempt() for play in played),
        asker.num_asked,
        1e3 * asker.seconds / num_moves,
    )


class _Asker:
    """Asks a policy, and where a whole batch fails for an engine, one position at a time."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.num_asked = 0
        self.seconds = 0.0
        self._failures = 0

    def ask(self, states: Sequence[Any]) -> list[Decision | EngineError]:
        """A decision for each position, or why there is none."""
        began = time.perf_counter()
        answers: list[Decision | EngineError] = []
        try:
            answers += self._policy.decide(states)
            self._failures = 0
        except EngineError:
            answers = [self._ask_one(state) for state in states]
        self.seconds += time.perf_counter() - began
        self.num_asked += len(states)
        return answers

    def _ask_one(self, state: Any) -> Decision | EngineError:
        try:
            (decision,) = self._policy.decide([state])
        except EngineError as error:
            self._failures += 1
            if self._failures >= _GIVE_UP:
                raise
            return error
        self._failures = 0
        return decision


class _Play:
    """One puzzle while it is being played."""

    def __init__(self, game: Game[Any], puzzle: Puzzle, longer: int) -> None:
        self._game, self._puzzle = game, puzzle
        self.state = game.parse(puzzle.start)
        for move in puzzle.setup:
            self.state = game.play(self.state, move)
        self.over = False
        self._player = game.player(self.state)
        self._moves: list[int] = []
        self._index = 0  # of the policy's next move in the solution
        self._first = False
        self._problem: str | None = None
        # What still holds: the policy is on the solution's line; by the rule; by the weaker count of mate puzzles.
        self._on_line = self._right = self._right_any = True
        shortest = len(puzzle.solution) if puzzle.mate_in is None else puzzle.mate_in
        self._shortest, self._longest = shortest, shortest + longer  # plies left, the policy's next move counted

    def attempt(self) -> Attempt:
        """The result, once it is over."""
        return Attempt(
            self._puzzle, tuple(self._moves), self._first, self._right, self._right or self._right_any, self._problem
        )

    def take(self, answer: Decision | EngineError) -> None:
        """Judge an answer and play the opponent's, or end the puzzle."""
        if isinstance(answer, EngineError):
            self._fail(f"no answer: {answer}")
            return
        try:
            after = self._game.play(self.state, answer.move)
        except IllegalMoveError as error:
            self._fail(str(error))
            return
        self._moves.append(answer.move)
        index = self._index
        expected = index < len(self._puzzle.solution) and answer.move == self._puzzle.solution[index]
        self._on_line = self._on_line and expected
        end = self._game.outcome(after)
        if end == (1 if self._game.player(after) == self._player else -1):
            self.over = True
        elif self._on_line and (self._puzzle.rule == "line" or self._puzzle.verified):
            self._follow(after, index + 1)
        elif self._puzzle.rule == "line" or end is not None:
            self._fail()
        else:
            self._hold_out(after)
        if len(self._moves) == 1:
            self._first = self._right

    def _follow(self, after: Any, index: int) -> None:
        """Play the solution from ``index`` up to the policy's next move; without one the puzzle is solved."""
        game, solution = self._game, self._puzzle.solution
        while index < len(solution) and game.player(after) != self._player:
            after = game.play(after, solution[index])
            index += 1
        self._shortest, self._longest = self._shortest - 2, self._longest - 2
        self.state, self._index, self.over = after, index, index == len(solution)

    def _hold_out(self, after: Any) -> None:
        """Play the answer that loses slowest, if all of them still lose in time."""
        game, budget = self._game, self._longest - 2
        slowest, reply = 0, None
        for move in game.legal(after):
            state = game.play(after, int(move))
            end = game.outcome(state)
            if end == 1:  # the answer itself loses, by the game's rules
                continue
            plies = game.mate_distance(state, budget) if end is None and budget > 0 else None
            if plies is None:
                self._fail()
                return
            if plies > slowest:
                slowest, reply = plies, state
        self._right = self._right and slowest <= self._shortest - 2
        self._shortest, self._longest = self._shortest - 2, budget
        self.state, self.over = reply, reply is None

    def _fail(self, problem: str | None = None) -> None:
        self.over, self._right, self._right_any, self._problem = True, False, False, problem


def moves_text(game: Game[Any], moves: Iterable[int]) -> str:
    """Moves in protocol notation with blanks between them."""
    return " ".join(game.moves[move] for move in moves)
