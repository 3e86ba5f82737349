"""Plays several games in step, so that a policy decides all positions in which it is to move in one batch.

A *group* of games is played from first ply to last by policies that are seeded for the group. A game therefore depends
on the tournament's seed and its group alone, and not on the process or on earlier games, provided that ``Policy.seed``
makes a policy forget and that its moves do not depend on the clock.
"""

from __future__ import annotations

import hashlib
import math
import operator
import random
import re
import reprlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from genpolicy.chance import settled
from genpolicy.data.oracle import Oracle, analysed
from genpolicy.errors import EngineError
from genpolicy.game import Game
from genpolicy.policies.base import Policy
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.openings import Opening

ENDINGS = {
    "rules": ("the rules", "normal"),
    "adjudication": ("adjudication", "adjudication"),
    "limit": ("the ply limit", "adjudication"),
    "forfeit": ("forfeit", "rules infraction"),
}
"""Ways in which a game ends, in words and as PGN's Termination tag, which other formats may keep as a comment."""


@dataclass(frozen=True)
class GameTask:
    """A game to play."""

    number: int
    """Unique in its tournament, from 0."""
    round: int
    """Number of the opening, from 0."""
    pair: str
    """Name that the two games of this opening and these players share."""
    first: str
    """Name of player 0."""
    second: str
    opening: Opening


@dataclass(frozen=True)
class GameResult:
    """A finished game: plain data, a line of ``games.jsonl``."""

    number: int
    round: int
    pair: str
    first: str
    second: str
    start: str
    """Text of the first position."""
    opening: str
    """Source of the opening."""
    opening_plies: int
    moves: tuple[str, ...]
    """Protocol moves, the opening's included."""
    result: float
    """1 if player 0 won, 0 for a draw, -1 if player 1 won."""
    ended: str
    """One of ``ENDINGS``."""
    reason: str
    """Why it ended so, for people."""
    forfeit_by: str | None
    """Name of the player that lost by a crash, a hang or an illegal move, if any."""
    seconds: tuple[float, float]
    """Time of each side's decisions; a batch counts as an equal share for each of its games."""
    finished: str
    """Local time of its end, ``YYYY-MM-DDTHH:MM:SS``."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> GameResult:
        """The game that ``to_dict`` gave.

        Raises:
            ValueError: an entry is missing, unknown, of another type or out of range, or contradicts another.
        """
        if unlike := sorted(row.keys() ^ _ENTRIES.keys()):
            raise ValueError(f"entries missing or unknown: {reprlib.repr(unlike)}")
        for key, (allowed, fits) in _ENTRIES.items():
            if not fits(row[key]):
                raise ValueError(f"{key} must be {allowed}, got {reprlib.repr(row[key])}")
        first, second = row["seconds"]
        numbers = {"result": float(row["result"]), "seconds": (float(first), float(second))}
        game = cls(**{**row, **numbers, "moves": tuple(row["moves"])})
        if game.first == game.second:
            raise ValueError(f"first and second are both {reprlib.repr(game.first)}")
        if game.opening_plies > len(game.moves):
            raise ValueError(f"opening_plies is {game.opening_plies}, and the game has {len(game.moves)} moves")
        forfeited, loser = game.ended == "forfeit", {-1.0: game.first, 1.0: game.second}.get(game.result)
        if (forfeited and loser is None) or game.forfeit_by != (loser if forfeited else None):
            raise ValueError(
                f"ended {game.ended!r}, result {game.result:g} and forfeit_by {reprlib.repr(game.forfeit_by)} "
                "contradict each other"
            )
        return game


def is_text(value: object) -> bool:
    """Whether it is a string that a file can hold: without half a surrogate pair, which JSON may spell."""
    return isinstance(value, str) and not re.search(r"[\ud800-\udfff]", value)


def is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number, not a bool, of at least so much."""
    return type(value) is int and value >= least


def _are_seconds(value: Any) -> bool:
    # So written, NaN fails, and numbers too large for a float do not overflow.
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and all(type(each) in (int, float) and 0 <= each < 1e12 for each in value)


_TEXT: tuple[str, Callable[[Any], bool]] = ("text", is_text)
_NUMBER: tuple[str, Callable[[Any], bool]] = ("a whole number of at least 0", lambda value: is_whole(value, 0))
_ENTRIES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "number": _NUMBER,
    "round": _NUMBER,
    "pair": _TEXT,
    "first": _TEXT,
    "second": _TEXT,
    "start": _TEXT,
    "opening": _TEXT,
    "opening_plies": _NUMBER,
    "moves": ("a list of texts", lambda value: isinstance(value, list | tuple) and all(map(is_text, value))),
    "result": ("1, 0 or -1", lambda value: type(value) in (int, float) and value in (1, 0, -1)),
    "ended": (f"one of {', '.join(ENDINGS)}", lambda value: is_text(value) and value in ENDINGS),
    "reason": _TEXT,
    "forfeit_by": ("text or null", lambda value: value is None or is_text(value)),
    "seconds": ("two numbers of at least 0", _are_seconds),
    "finished": (
        "a time, YYYY-MM-DDTHH:MM:SS",
        lambda value: is_text(value) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", value, re.ASCII) is not None,
    ),
}
"""Entries of ``GameResult.to_dict``: what each may be, and a test of it."""


@dataclass(eq=False)
class _Running:
    """A game that is being played."""

    task: GameTask
    state: Any
    moves: list[int]
    values: list[tuple[int, float | None]] = field(default_factory=list)
    """Movers since the opening or the last chance move, and the values that they gave, for player 0; None if a mover
    gave none."""
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    judged: float | None = None
    """Result for player 0 by which the judge decides the present position; None if it does not."""


_PAST_ONE = 1e-6  # a value that was rounded may exceed 1 by this
Finished = Callable[[GameResult], None]
Warn = Callable[[str], None]


class Match:
    """Plays groups of games.

    Args:
        game: The game.
        policies: The players by name.
        rules: When games are ended before the rules do.
        judge: The oracle of ``rules.judge``.
        seed: Seed of the tournament.
        warn: Called with texts on problems that cost no game, e.g. that the judge failed.
    """

    def __init__(
        self,
        game: Game[Any],
        policies: Mapping[str, Policy],
        rules: Adjudication,
        judge: Oracle | None,
        seed: int,
        warn: Warn = lambda text: None,
    ) -> None:
        self.game, self.policies, self.rules, self.judge, self.seed, self.warn = (
            game,
            policies,
            rules,
            judge,
            seed,
            warn,
        )

    def play(self, tasks: Sequence[GameTask], finished: Finished) -> None:
        """Play a group of games to their ends; ``finished`` is called with each game as it ends."""
        for name in sorted({name for task in tasks for name in (task.first, task.second)}):
            # Each player has a seed of its own; otherwise two copies of one policy would draw the same numbers.
            mixed = hashlib.blake2b(f"{self.seed}|{tasks[0].number}|{name}".encode(), digest_size=8).digest()
            self.policies[name].seed(int.from_bytes(mixed, "big") >> 1)
        running = [_Running(task, task.opening.play(self.game), list(task.opening.moves)) for task in tasks]
        while running:
            for each in running:
                self._let_chance_move(each)
            self._judge(running)
            unfinished = []
            for each in running:
                ending = self._ending(each)
                if ending is None:
                    unfinished.append(each)
                else:
                    finished(self._result(each, *ending))
            running = self._move_all(unfinished, finished)

    def _let_chance_move(self, each: _Running) -> None:
        """Draw what chance decides; it depends on the tournament's seed, the game and the ply alone."""
        if self.game.has_chance:
            draw = random.Random(f"chance|{self.seed}|{each.task.number}|{len(each.moves)}")
            each.state, moves = settled(self.game, each.state, draw)
            each.moves += moves
            if moves:  # the values were of other positions
                each.values.clear()

    def _ending(self, each: _Running) -> tuple[float, str, str] | None:
        """Result for player 0, kind and reason if the game is over, else None."""
        game, rules = self.game, self.rules
        outcome = game.outcome(each.state)
        if outcome is None and len(game.legal(each.state)) == 0:
            outcome = 0.0
        if outcome is not None:
            result = float(outcome if game.player(each.state) == 0 else -outcome) + 0.0
            word = "draw by the rules" if result == 0 else f"{game.players[0 if result > 0 else 1]} wins by the rules"
            return result, "rules", word
        if each.judged is not None:
            return each.judged, "adjudication", f"decided by {rules.judge}"
        agreed = rules.agreed(each.values, len(each.moves))
        if agreed is not None:
            return agreed[0], "adjudication", agreed[1]
        if len(each.moves) >= rules.max_plies:
            return 0.0, "limit", f"draw after {rules.max_plies} plies"
        return None

    def _judge(self, running: Sequence[_Running]) -> None:
        """Let the judge evaluate the games that are due."""
        if self.judge is None:
            return
        due = []
        for each in running:
            each.judged = None
            plies = len(each.moves) - len(each.task.opening.moves)
            at_limit = self.rules.at_limit == "judge" and len(each.moves) >= self.rules.max_plies
            # Openings are not judged: those of a book may be sharp.
            if (plies > 0 and plies % self.rules.judge_every == 0) or at_limit:
                due += [] if self.game.is_over(each.state) else [each]
        if not due:
            return
        try:
            lines = analysed(self.judge, [each.state for each in due], 1)
        except EngineError as error:
            self.warn(f"the judge failed, so games continued without it: {error}")
            return
        for each, line in zip(due, lines, strict=True):
            if line.error is not None:
                self.warn(f"the judge failed, so games continued without it: {line.error}")
                continue
            result = self.rules.judged(line.scores[0] if line.scores else None)
            if result is not None:
                each.judged = result if self.game.player(each.state) == 0 else -result

    def _move_all(self, running: Sequence[_Running], finished: Finished) -> list[_Running]:
        """Play one ply of each game; returns the games that were not forfeited."""
        by_player: dict[str, list[_Running]] = {}
        for each in running:
            by_player.setdefault(self._mover(each), []).append(each)
        lost: set[int] = set()
        for name in sorted(by_player):
            for each, answer in zip(by_player[name], self._decide(name, by_player[name]), strict=True):
                problem = answer if isinstance(answer, str) else self._play(each, *answer)
                if problem is not None:
                    lost.add(each.task.number)
                    side = self.game.player(each.state)
                    result = -1.0 if side == 0 else 1.0
                    finished(self._result(each, result, "forfeit", f"{name} {problem}", forfeit_by=name))
        return [each for each in running if each.task.number not in lost]

    def _mover(self, each: _Running) -> str:
        return each.task.first if self.game.player(each.state) == 0 else each.task.second

    def _decide(self, name: str, games: Sequence[_Running]) -> list[tuple[int, float | None, float] | str]:
        """Move, value for the mover and seconds of each game, or a text on what went wrong.

        A batch that fails is decided again game by game, so that one position does not lose the others' games.
        """
        policy = self.policies[name]
        began = time.perf_counter()
        try:
            decisions = policy.decide([each.state for each in games])
            if len(decisions) != len(games):
                raise RuntimeError(f"gave {len(decisions)} decisions for {len(games)} positions")
        except Exception as error:  # whatever a player raises, it loses its game and the tournament continues
            if len(games) > 1:
                return [answer for each in games for answer in self._decide(name, [each])]
            return [f"failed: {type(error).__name__}: {error}"]
        seconds = (time.perf_counter() - began) / len(games)
        return [_read(decision, seconds) for decision in decisions]

    def _play(self, each: _Running, move: int, value: float | None, seconds: float) -> str | None:
        """Play a decision; returns what is wrong with it, or None."""
        legal = self.game.legal(each.state)
        if move not in legal:
            text = repr(self.game.moves[move]) if 0 <= move < len(self.game.moves) else f"of id {move}"
            return f"answered the illegal move {text} in {self.game.format(each.state)!r}"
        side = self.game.player(each.state)
        each.seconds[side] += seconds
        each.values.append((side, None if value is None else (value if side == 0 else -value)))
        each.state = self.game.play(each.state, move)
        each.moves.append(move)
        return None

    def _result(
        self, each: _Running, result: float, ended: str, reason: str, *, forfeit_by: str | None = None
    ) -> GameResult:
        task = each.task
        return GameResult(
            number=task.number,
            round=task.round,
            pair=task.pair,
            first=task.first,
            second=task.second,
            start=task.opening.start,
            opening=task.opening.source,
            opening_plies=len(task.opening.moves),
            moves=tuple(self.game.moves[move] for move in each.moves),
            result=result,
            ended=ended,
            reason=reason,
            forfeit_by=forfeit_by,
            seconds=(round(each.seconds[0], 4), round(each.seconds[1], 4)),
            finished=time.strftime("%Y-%m-%dT%H:%M:%S"),
        )


def _read(decision: Any, seconds: float) -> tuple[int, float | None, float] | str:
    """Move, value for the mover and seconds of a decision, or a text on what is wrong with it.

    Third parties write policies, so everything is checked.
    """
    try:
        move = operator.index(decision.move)  # accepts any library's whole numbers, and no fractions
    except (AttributeError, TypeError):
        return f"answered no move: {_short(getattr(decision, 'move', decision))}"
    value = getattr(decision, "value", None)
    if value is None:
        return move, None, seconds
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= 1 + _PAST_ONE:  # also false for NaN
        return f"gave a value that is not a number in [-1, 1]: {_short(value)}"
    return move, max(-1.0, min(1.0, number)), seconds


def _short(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 80 else text[:77] + "..."
