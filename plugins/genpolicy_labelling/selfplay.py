"""Lets an oracle play itself, with errors, from varied openings; one search of a position gives its move and its label.

Games are played in groups of ``GROUP_GAMES`` (of ``Oracle.num_together``, if that is more), and a group in blocks of
``BLOCK_PLIES`` plies of each of its games: an engine plays a block, beginning with an empty hash table. Every draw
depends on the seed, the game's number and the ply alone. With an oracle whose labels are reproducible, a game is
therefore the same whatever runs beside it.

Each answer is kept at once (``genpolicy_labelling.answers``). After a kill, unfinished games are replayed from the kept
answers and continue from there; only positions whose search had not ended, at most 2 per process, are searched again.
The rest of their block begins with an empty hash table.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from genpolicy.chance import drawn
from genpolicy.data.oracle import Line, Oracle
from genpolicy.data.records import Record
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy.values import score_to_value
from genpolicy_labelling.answers import Answers
from genpolicy_labelling.label import make_record
from genpolicy_labelling.splits import SplitFractions
from genpolicy_labelling.writer import DatasetWriter

DECIDED_VALUE = 0.98
"""A game that ``max_plies`` ends is won if its value is at least this, and a draw otherwise."""
MAX_OPENING_TRIES = 100
USUAL_PLIES = 80
"""Expected length of a game before any has ended, so that not too many games are begun."""
GROUP_GAMES = 4
BLOCK_PLIES = 8


@dataclass(frozen=True)
class SelfplayConfig:
    """How games are played; part of the data set's identity."""

    horizon: int = 8
    """Moves in a label's line."""
    error_rate: tuple[float, float] = (0.05, 0.3)
    """Range from which each game draws its rate of errors (a random legal move instead of the best one)."""
    random_plies: tuple[int, int] = (4, 12)
    """Range of the number of random moves that begin a game; they are neither searched nor recorded."""
    max_plies: int = 200
    """A game ends after this many recorded plies, or with its next label where chance decides the last of them: won at
    a decided value (0.98), else a draw."""
    adjudicate: tuple[float, int] | None = None
    """(value in (0, 1], plies): a game ends when so many labels in a row have a value beyond this, with the best move
    of the last one. None disables it."""
    seed: int = 0
    move_values: bool = False
    """Also label every legal move."""
    temperature: tuple[float, int] | None = None
    """(temperature above 0, plies): in a game's first plies after the random ones the move is drawn from the oracle's
    policy to the power 1 / temperature, instead of taking its move. None disables it."""

    def __post_init__(self) -> None:
        low, high = self.error_rate
        if not 0 <= low <= high <= 1:
            raise ValueError(f"error rate must be LOW:HIGH with 0 <= LOW <= HIGH <= 1, got {low:g}:{high:g}")
        if not 0 <= self.random_plies[0] <= self.random_plies[1]:
            raise ValueError(f"random plies must be LOW:HIGH with 0 <= LOW <= HIGH, got {self.random_plies}")
        if self.horizon < 1 or self.max_plies < 1:
            raise ValueError(f"horizon and max plies must be at least 1, got {self.horizon} and {self.max_plies}")
        if self.adjudicate is not None and not (0 < self.adjudicate[0] <= 1 and self.adjudicate[1] >= 1):
            raise ValueError(f"adjudicate must be VALUE:PLIES, 0 < VALUE <= 1 and PLIES >= 1, got {self.adjudicate}")

        if self.temperature is not None and not (0 < self.temperature[0] < math.inf and self.temperature[1] >= 1):
            raise ValueError(f"temperature must be T:PLIES, T above 0 and PLIES at least 1, got {self.temperature}")

    def options(self) -> dict[str, Any]:
        """The configuration as options of a data set's identity."""
        drawn = {} if self.temperature is None else {"temperature": f"{self.temperature[0]:g}:{self.temperature[1]}"}
        adjudicate = None if self.adjudicate is None else f"{self.adjudicate[0]:g}:{self.adjudicate[1]}"
        return {
            "horizon": self.horizon,
            "error_rate": f"{self.error_rate[0]:g}:{self.error_rate[1]:g}",
            "random_plies": f"{self.random_plies[0]}:{self.random_plies[1]}",
            "max_plies": self.max_plies,
            "adjudicate": adjudicate,
            "seed": self.seed,
            "move_values": self.move_values,
            **drawn,
        }


@dataclass(eq=False)
class UnfinishedGame:
    """One game as far as it has been played."""

    number: int
    game_id: str
    state: Any
    error_rate: float
    records: list[Record] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    """Value of each position in which a player moves, for player 0; 0 if it could not be labelled."""
    result: float | None = None
    """Result for player 0; None until the game ends."""
    num_chance: int = 0
    """Records of what chance decided."""


@dataclass(eq=False)
class _Group:
    number: int
    games: list[UnfinishedGame]

    @property
    def num_records(self) -> int:
        return sum(len(game.records) for game in self.games)


@dataclass(frozen=True)
class _BlockResult:
    """What one game added in a block."""

    group: _Group
    records: list[Record]
    errors: list[str]
    """The oracle's reasons for positions without a label."""


class Selfplay:
    """Plays games and writes them to a data set.

    Args:
        game: The game.
        oracle: Chooses moves and labels positions.
        config: How games are played.
        splits: Fractions of the splits.
        openings: Texts of the positions in which games begin, before the random plies; () means the initial position.
    """

    def __init__(
        self,
        game: Game[Any],
        oracle: Oracle,
        config: SelfplayConfig,
        splits: SplitFractions,
        openings: tuple[str, ...] = (),
    ) -> None:
        self.game = game
        self.oracle = oracle
        self.config = config
        self.splits = splits
        self.openings = openings
        self.group_games = group_games(oracle)

    def run(
        self,
        writer: DatasetWriter,
        num_games: int | None,
        num_positions: int | None,
        progress: Callable[[int, int, Sequence[str]], None] = lambda games, positions, errors: None,
    ) -> None:
        """Play the games that are missing of a number of games, or of positions (the last game is kept whole).

        Args:
            writer: Writes the games; made with ``max_rows=num_positions``. Unit i is group i of the games.
            num_games: Games in all; None plays until ``num_positions``.
            num_positions: Positions in all; None plays ``num_games``.
            progress: Called after each block with the numbers of games and positions that it finished, and with the
                oracle's reasons for positions that it could not label.
        """
        answers = Answers(writer, self.game, together=self.oracle.num_together > 1)
        waiting: deque[_Group] = deque()
        in_work: dict[int, _Group] = {}
        numbers = iter(range(-(-num_games // self.group_games)) if num_games is not None else itertools.count())

        def blocks() -> Iterator[list[Generator[Any, Line, _BlockResult]] | None]:
            while not writer.is_full:
                if not waiting and (group := self._next_group(writer, numbers, in_work, num_games, num_positions)):
                    waiting.append(group)
                if waiting:
                    group = waiting.popleft()
                    yield [
                        answers.task(group.number, index, self._play(group, index), len(game.records))
                        for index, game in enumerate(group.games)
                    ]
                elif in_work:
                    yield None
                else:
                    return

        for played in self.oracle.run(blocks(), self.config.horizon, move_values=self.config.move_values):
            group = played[0].group
            records = [record for part in played for record in part.records]
            if all(game.result is not None for game in group.games):
                self._finish(writer, group)
                del in_work[group.number]
                num_finished = len(group.games)
            else:
                waiting.append(group)
                num_finished = 0
            progress(num_finished, len(records), [error for part in played for error in part.errors])

    def _next_group(
        self,
        writer: DatasetWriter,
        numbers: Iterator[int],
        in_work: dict[int, _Group],
        num_games: int | None,
        num_positions: int | None,
    ) -> _Group | None:
        """The next group that is not finished, before its first move; None if no more are needed."""
        num_games_done = num_finished_games(writer, self.oracle)
        plies = min(self.config.max_plies, writer.num_rows / num_games_done if num_games_done else USUAL_PLIES)
        expected = sum(max(group.num_records, plies * len(group.games)) for group in in_work.values())
        if num_positions is not None and writer.num_rows + expected >= num_positions:
            return None
        number = next((number for number in numbers if not writer.is_done(number)), None)
        if number is None:
            return None
        first, last = number * self.group_games, (number + 1) * self.group_games
        last = last if num_games is None else min(num_games, last)
        group = _Group(number, [self._begin(each) for each in range(first, last)])
        in_work[number] = group
        return group

    def _begin(self, number: int) -> UnfinishedGame:
        draw = random.Random(f"selfplay|{self.config.seed}|{number}")
        state = self._opening(draw)
        error_rate = draw.uniform(*self.config.error_rate)
        return UnfinishedGame(number, f"selfplay-{self.config.seed}-{number:07d}", state, error_rate)

    def _add(self, game: UnfinishedGame, line: Line, move: int, verdict: float | None = None) -> None:
        """Add a record to its game and play its move; the game then ends by the rules, or with the verdict."""
        ply = len(game.records)
        game.records.append(make_record(self.game, game.state, line, game_id=game.game_id, ply=ply, played=move))
        game.state = self.game.play(game.state, move)
        outcome, player = self.game.outcome(game.state), self.game.player(game.state)
        game.result = verdict if outcome is None else float(outcome if player == 0 else -outcome) + 0.0

    def _play(self, group: _Group, index: int) -> Generator[Any, Line, _BlockResult]:
        """Play one block of a game: yields positions and is sent their lines."""
        game = group.games[index]
        num_before = len(game.records)
        errors: list[str] = []
        while game.result is None and len(game.records) < num_before + BLOCK_PLIES:
            if self.game.chance(game.state) is not None:
                self._let_chance_move(game)
                continue
            line = yield game.state
            if line.error is not None:
                errors.append(line.error)
            ply = len(game.records)
            draw = random.Random(f"move|{self.config.seed}|{game.number}|{ply}")
            verdict = self._verdict(game, line)
            # A random move could give away what the verdict says.
            judged = verdict is not None and line.moves
            move = line.moves[0] if judged else self._choose(game.state, line, game.error_rate, ply, draw)
            self._add(game, line, move, verdict)
        return _BlockResult(group, game.records[num_before:], errors)

    def _let_chance_move(self, game: UnfinishedGame) -> None:
        """Add a record of what chance decides; it has no label."""
        draw = random.Random(f"chance|{self.config.seed}|{game.number}|{len(game.records)}")
        game.num_chance += 1
        self._add(game, Line((), error="chance decides"), drawn(self.game, game.state, draw))

    def _finish(self, writer: DatasetWriter, group: _Group) -> None:
        records = [
            replace(record, result=game.result, split=self.splits.of(game.game_id))
            for game in group.games
            for record in game.records
        ]
        unlabelled = sum(record.line is None for record in records) - sum(game.num_chance for game in group.games)
        writer.add(group.number, records, {"unlabelled": unlabelled} if unlabelled else {})

    def _opening(self, draw: random.Random) -> Any:
        game = self.game
        for _ in range(MAX_OPENING_TRIES):
            state = game.parse(draw.choice(self.openings) if self.openings else None)
            for _ in range(draw.randint(*self.config.random_plies)):
                if game.outcome(state) is not None:
                    break
                state = game.play(state, drawn(game, state, draw))
            if game.outcome(state) is None:
                return state
        raise DatasetError(
            f"{MAX_OPENING_TRIES} openings in a row ended the game within --random-plies "
            f"{self.config.random_plies[0]}:{self.config.random_plies[1]}; use fewer, or other openings"
        )

    def _choose(self, state: Any, line: Line, error_rate: float, ply: int, draw: random.Random) -> int:
        if line.error is None and line.moves and draw.random() >= error_rate:
            temperature, plies = self.config.temperature or (1.0, 0)
            if ply >= plies:
                return line.moves[0]
            if not line.policy:
                raise DatasetError(
                    "--temperature draws moves from the oracle's policy, and this oracle has none: use "
                    "policy:SPELLING of a policy with probabilities, or omit --temperature"
                )
            best = max(line.policy.values())
            weights = [(share / best) ** (1 / temperature) for share in line.policy.values()]
            return draw.choices(list(line.policy), weights)[0]
        return int(draw.choice(self.game.legal(state).tolist()))

    def _verdict(self, game: UnfinishedGame, line: Line) -> float | None:
        """Add a label's value to its game; the result for player 0 by adjudication or by length, None if it goes on."""
        score = line.scores[0] if line.scores else None
        if score is None and line.error is None and self.config.adjudicate is not None:
            raise DatasetError("--adjudicate goes by values, and the oracle gives none; leave it out")
        value = 0.0 if score is None else score_to_value(score, self.oracle.scale)
        value = value if self.game.player(game.state) == 0 else -value
        game.values.append(value)
        if self.config.adjudicate is not None:
            beyond, plies = self.config.adjudicate
            last = game.values[-plies:]
            for side in (1.0, -1.0):
                if len(last) == plies and all(side * value >= beyond for value in last):
                    return side
        if len(game.records) + 1 < self.config.max_plies:
            return None
        return 0.0 if abs(value) < DECIDED_VALUE else math.copysign(1.0, value)


def group_games(oracle: Oracle) -> int:
    """Number of games in a group."""
    return max(GROUP_GAMES, oracle.num_together)


def num_finished_games(writer: DatasetWriter, oracle: Oracle) -> int:
    """Number of games in finished groups; a few too many if the last group is smaller than the others."""
    return group_games(oracle) * writer.num_units
