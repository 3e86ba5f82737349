"""An oracle plays itself, with errors, from varied openings; one search of a position gives its move and its label.

Every draw depends on the seed, the game's number and the ply alone. With an oracle whose labels are reproducible, a
game therefore comes out the same whatever runs beside it, and goes on after a kill as if nothing had happened.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from genpolicy.data.oracle import Line, Oracle
from genpolicy.data.records import Record, make_record
from genpolicy.data.splits import SplitFractions
from genpolicy.data.writer import DatasetWriter
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy.values import score_to_value

DECIDED_VALUE = 0.98
"""A game cut by ``max_plies`` counts as won from this value on, and as a draw below."""
MAX_OPENING_TRIES = 100


@dataclass(frozen=True)
class SelfplayConfig:
    """How games are played. All of it is part of the data set's identity."""

    horizon: int = 8
    """Moves of a label's line."""
    error_rate: tuple[float, float] = (0.05, 0.3)
    """Each game draws its rate of errors, a random legal move instead of the best one, between these."""
    random_plies: tuple[int, int] = (4, 12)
    """Each game begins with so many random moves, which are neither searched nor recorded."""
    max_plies: int = 200
    """A game ends after so many recorded plies: won at a decided value (0.98), else a draw."""
    adjudicate: tuple[float, int] | None = None
    """(value in (0, 1], plies): a game ends when the value stays beyond this for so many plies. None: never."""
    seed: int = 0
    move_values: bool = False
    """Also label every legal move."""

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

    def options(self) -> dict[str, Any]:
        """For the identity of a data set."""
        adjudicate = None if self.adjudicate is None else f"{self.adjudicate[0]:g}:{self.adjudicate[1]}"
        return {
            "horizon": self.horizon,
            "error_rate": f"{self.error_rate[0]:g}:{self.error_rate[1]:g}",
            "random_plies": f"{self.random_plies[0]}:{self.random_plies[1]}",
            "max_plies": self.max_plies,
            "adjudicate": adjudicate,
            "seed": self.seed,
            "move_values": self.move_values,
        }


@dataclass(frozen=True)
class FinishedGame:
    """One game of self-play."""

    number: int
    records: tuple[Record, ...]
    tallies: dict[str, int]
    errors: tuple[str, ...]
    """What the oracle said of positions that it could not label."""


class Selfplay:
    """Plays games into a data set.

    Args:
        game: The game.
        oracle: Chooses moves and labels.
        config: How games are played.
        splits: Of the games.
        openings: Texts of the positions that games begin from (then come the random plies); () for the initial one.
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

    def run(
        self,
        writer: DatasetWriter,
        num_games: int | None,
        num_positions: int | None,
        progress: Callable[[FinishedGame], None] = lambda game: None,
    ) -> None:
        """Play what is missing of so many games, or of so many positions (whole games, the last one over the mark).

        Args:
            writer: Where the games go; made with ``max_rows=num_positions``.
            num_games: Games in all; None plays until ``num_positions``.
            num_positions: Positions in all; None plays ``num_games``.
            progress: Called with every game that ends.
        """
        in_work: dict[int, int] = {}

        def numbers() -> Iterator[int]:
            number = 0
            while num_games is None or number < num_games:
                if num_positions is not None and writer.num_rows + sum(in_work.values()) >= num_positions:
                    return
                if not writer.is_done(number):
                    in_work[number] = 0
                    yield number
                number += 1

        tasks = (self._game(number, writer, in_work) for number in numbers())
        for played in self.oracle.run(tasks, self.config.horizon, move_values=self.config.move_values):
            writer.add(played.number, played.records, played.tallies)
            del in_work[played.number]
            progress(played)

    def _game(self, number: int, writer: DatasetWriter, in_work: dict[int, int]) -> Generator[Any, Line, FinishedGame]:
        """Play one game from where it stands; yields positions, is sent their lines."""
        config, game = self.config, self.game
        draw = random.Random(f"selfplay|{config.seed}|{number}")
        state = self._opening(draw)
        error_rate = draw.uniform(*config.error_rate)
        game_id = f"selfplay-{config.seed}-{number:07d}"
        records: list[Record] = []
        errors: list[str] = []
        values: list[float] = []  # for player 0
        for record in writer.parts(number):
            values.append(self._value(record, state))
            records.append(record)
            state = game.play(state, game.moves.index(record.played or ""))
            in_work[number] = len(records)
        while (result := self._result(state, values)) is None:
            line = yield state
            ply = len(records)
            if line.error is not None:
                errors.append(line.error)
            move = self._choose(state, line, error_rate, random.Random(f"move|{config.seed}|{number}|{ply}"))
            record = make_record(game, state, line, game_id=game_id, ply=ply, played=move)
            writer.add_part(number, record)
            records.append(record)
            values.append(self._value(record, state))
            in_work[number] = len(records)
            state = game.play(state, move)
        split = self.splits.of(game_id)
        whole = tuple(replace(record, result=result, split=split) for record in records)
        unlabelled = sum(record.line is None for record in records)
        return FinishedGame(number, whole, {"unlabelled": unlabelled} if unlabelled else {}, tuple(errors))

    def _opening(self, draw: random.Random) -> Any:
        game = self.game
        for _ in range(MAX_OPENING_TRIES):
            state = game.parse(draw.choice(self.openings) if self.openings else None)
            for _ in range(draw.randint(*self.config.random_plies)):
                if game.outcome(state) is not None:
                    break
                state = game.play(state, draw.choice(game.legal(state).tolist()))
            if game.outcome(state) is None:
                return state
        raise DatasetError(
            f"{MAX_OPENING_TRIES} openings in a row ended the game within --random-plies "
            f"{self.config.random_plies[0]}:{self.config.random_plies[1]}; take fewer, or other openings"
        )

    def _choose(self, state: Any, line: Line, error_rate: float, draw: random.Random) -> int:
        if line.error is None and line.moves and draw.random() >= error_rate:
            return line.moves[0]
        return int(draw.choice(self.game.legal(state).tolist()))

    def _value(self, record: Record, state: Any) -> float:
        """Value for player 0; 0 where the position was not labelled."""
        score = record.scores[0] if record.scores else None
        value = 0.0 if score is None else score_to_value(score)
        return value if self.game.player(state) == 0 else -value

    def _result(self, state: Any, values: list[float]) -> float | None:
        """Result for player 0 when the game is over, by the rules or by adjudication."""
        outcome = self.game.outcome(state)
        if outcome is not None:
            return float(outcome if self.game.player(state) == 0 else -outcome) + 0.0
        if self.config.adjudicate is not None:
            beyond, plies = self.config.adjudicate
            last = values[-plies:]
            for side in (1.0, -1.0):
                if len(last) == plies and all(side * value >= beyond for value in last):
                    return side
        if len(values) < self.config.max_plies:
            return None
        return 0.0 if abs(values[-1]) < DECIDED_VALUE else (1.0 if values[-1] > 0 else -1.0)
