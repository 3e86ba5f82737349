"""Oracle: what labels positions, an engine over a protocol or an exact solver."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from genpolicy.game import Game

T = TypeVar("T")
RUN_WIDTH = 32  # tasks side by side where an oracle has no parallelism of its own


@dataclass(frozen=True)
class Line:
    """What an oracle says of one position: the best moves of both sides from here on."""

    moves: tuple[int, ...]
    """Absolute move ids, at most ``horizon`` of them; fewer where the game ended or the line was cut."""
    scores: tuple[str | None, ...] = ()
    """Score text (``genpolicy.values``) of each position of the line that was searched, for the player to move there:
    ``scores[i]`` belongs to the position in which ``moves[i]`` is played; None where it was not searched."""
    ended: bool = False
    """The game ends after the last move. False with fewer moves than the horizon: the line was merely cut."""
    move_values: dict[int, str] = field(default_factory=dict)
    """Optional: score text of every legal move, for the player who makes it."""
    error: str | None = None
    """Why this position could not be labelled (then ``moves`` is empty); None when it could."""


class Oracle(ABC):
    """Labels positions. Closing it ends its processes; it is a context manager.

    An entry point of group ``genpolicy.oracles`` is called as ``factory(game, **options)``.
    """

    game: Game[Any]

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Name, version, limits, score scale: what ``dataset.yaml`` records and what decides whether labels agree."""

    @abstractmethod
    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        """One line for each state, in order.

        Args:
            states: Positions in which the game is not over by the piece rules.
            horizon: Most moves in a line, at least 1.
            move_values: Also score every legal move.

        Raises:
            EngineError: the engine cannot be started or is none. A single position that it cannot label is a Line with
                ``error`` set.
        """

    def run(self, tasks: Iterable[Generator[Any, Line, T]], horizon: int, *, move_values: bool = False) -> Iterator[T]:
        """Drive tasks that each yield a state, are sent its line, and return a value in the end.

        A game that plays itself is such a task; so is one position. Values come in the order in which tasks end.
        Tasks are taken from the iterable as the oracle gets free, a few ahead.

        Raises:
            EngineError: as ``analyse``.
        """
        source = iter(tasks)
        active: list[tuple[Generator[Any, Line, T], Any]] = []
        while True:
            num_taken = 0
            for task in itertools.islice(source, max(0, RUN_WIDTH - len(active))):
                num_taken += 1
                try:
                    active.append((task, next(task)))
                except StopIteration as stop:
                    yield stop.value
            if not active and not num_taken:
                return
            if not active:
                continue
            lines = self.analyse([state for _, state in active], horizon, move_values=move_values)
            asked, active = active, []
            for (task, _), line in zip(asked, lines, strict=True):
                try:
                    active.append((task, task.send(line)))
                except StopIteration as stop:
                    yield stop.value

    def close(self) -> None:
        """End processes and free memory; safe to call twice."""

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def make_oracle(spelling: str, game: Game[Any], **options: Any) -> Oracle:
    """The oracle of a spelling ``name[?key=value&...]``: ``"stockfish?nodes=2000"``, ``"solver"``.

    A path or a program that is no installed oracle's name is an engine: ``"/opt/engine?nodes=2000"``.

    Args:
        spelling: Name and options; values reach the oracle as text.
        game: What it plays.
        options: More options; they win over the spelling's. None leaves one out.

    Raises:
        RegistryError: no such oracle.
        ValueError: an option that it does not take, or out of range.
        EngineError: the engine is missing or is none.
    """
    from genpolicy import registry

    name, _, query = spelling.partition("?")
    given: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    given.update({key: value for key, value in options.items() if value is not None})
    if name not in registry.available("oracles") and ("/" in name or "." in name):
        name, given = "uci", {"engine": name, **given}
    factory = registry.load("oracles", name)
    try:
        oracle: Oracle = factory(game, **given)
    except TypeError as error:
        raise ValueError(f"oracle {spelling!r}: {error}") from error
    return oracle
