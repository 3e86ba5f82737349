"""Oracle: labels positions. An engine over a protocol is one, an exact solver another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from genpolicy import registry
from genpolicy.errors import EngineError, RegistryError
from genpolicy.game import Game
from genpolicy.registry import spelled_pairs
from genpolicy.values import CENTIPAWN_SCALE

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """An oracle's answer for one position: the best moves of both sides from here on."""

    moves: tuple[int, ...]
    """Absolute move ids, at most ``horizon`` of them; fewer where the game ended or the line was cut."""
    scores: tuple[str | None, ...] = ()
    """Score text (``genpolicy.values``) of each position of the line that was searched, for the player to move there:
    ``scores[i]`` belongs to the position in which ``moves[i]`` is played; None where it was not searched."""
    ended: bool = False
    """The game ends after the last move. False with fewer moves than the horizon: the line was merely cut."""
    move_values: dict[int, str] = field(default_factory=dict)
    """Optional: score text of every legal move, or of an engine's best few, for the player who makes it."""
    error: str | None = None
    """Why this position could not be labelled (then ``moves`` is empty); None when it could."""
    num_nodes: int = field(default=0, compare=False)
    """Nodes of the search for the first move; 0 where it is not known."""
    variation: tuple[str, ...] = field(default=(), compare=False)
    """The whole principal variation of that search, as the engine wrote it; it is not checked."""
    policy: dict[int, float] = field(default_factory=dict)
    """Optional: probability of each legal move by a search or a policy (sum 1); a move may be left out for 0."""
    value: float | None = None
    """Optional: its value in [-1, 1] for the player to move."""


class Oracle(ABC):
    """Labels positions. Closing it ends its processes; it is a context manager.

    An entry point of group ``genpolicy.oracles`` is called as ``factory(game, **options)``.
    """

    game: Game[Any]
    entry: str = ""  # the name by which make_oracle found it
    scale: float = CENTIPAWN_SCALE
    """Scale of its centipawns as win probability (``genpolicy.values``); ``describe`` has it as ``centipawn_scale``."""
    num_together: int = 1
    """Positions that it answers best in one call. Above 1, blocks of tasks are as large, and the answers of a call are
    kept together, so that a block resumed after a kill makes the same calls; ``run`` is then the one below."""

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
            EngineError: the program cannot be started or is not an engine. A single position that it cannot label is a
                Line with ``error`` set.
        """

    def run(
        self, blocks: Iterable[Sequence[Generator[Any, Line, T]] | None], horizon: int, *, move_values: bool = False
    ) -> Iterator[list[T]]:
        """Drive blocks of tasks; a task yields states, is sent their lines, and returns a value in the end.

        A self-play game is such a task; so is one position. An oracle carries nothing over from block to block, so a
        block's answers depend on the block alone.

        Args:
            blocks: The next block is drawn when the oracle has room for it. None means that no block is ready until
                another has ended; an oracle that works on one block at a time never draws it.
            horizon: As in ``analyse``.
            move_values: As in ``analyse``.

        Yields:
            The values of a block's tasks; blocks come in the order in which they end.

        Raises:
            EngineError: as ``analyse``.
        """
        for block in blocks:
            if block is None:
                raise RuntimeError("no block is ready, and no block is at work that could make one ready")
            values: list[Any] = [None] * len(block)
            waiting: list[tuple[int, Any]] = []
            for index, task in enumerate(block):
                try:
                    waiting.append((index, next(task)))
                except StopIteration as stop:
                    values[index] = stop.value
            while waiting:
                lines = analysed(self, [state for _, state in waiting], horizon, move_values=move_values)
                answered, waiting = waiting, []
                for (index, _), line in zip(answered, lines, strict=True):
                    try:
                        waiting.append((index, block[index].send(line)))
                    except StopIteration as stop:
                        values[index] = stop.value
            yield values

    def close(self) -> None:
        """End processes and free memory; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def analysed(oracle: Oracle, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
    """``oracle.analyse``, checked.

    Raises:
        EngineError: as ``analyse``.
        RegistryError: not one Line for each state; the message names the oracle and its package.
    """
    lines: object = oracle.analyse(states, horizon, move_values=move_values)
    if isinstance(lines, list) and len(lines) == len(states) and all(isinstance(line, Line) for line in lines):
        return lines
    who = registry.named("oracles", oracle.entry, oracle)
    raise RegistryError(f"{who}: analyse gave {lines!r:.80}, not a list of {len(states)} Line")


def analysed_by_run(oracle: Oracle, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
    """``analyse`` of an oracle that has a ``run`` of its own: each state is a task, in blocks of ``num_together``."""
    lines: dict[int, Line] = {}

    def task(index: int, state: Any) -> Generator[Any, Line, None]:
        lines[index] = yield state

    tasks, size = [task(*pair) for pair in enumerate(states)], oracle.num_together
    blocks = (tasks[start : start + size] for start in range(0, len(tasks), size))
    for _ in oracle.run(blocks, horizon, move_values=move_values):
        continue
    return [lines[index] for index in range(len(states))]


def make_oracle(spelling: str, game: Game[Any], **options: Any) -> Oracle:
    """The oracle of a spelling ``name[?key=value&...]``: ``"stockfish?nodes=2000"``, ``"solver"``.

    A name that is not an installed oracle's is offered to the fallbacks of group ``genpolicy.oracle_fallbacks``; one of
    them takes it for an engine's program, by path or by name: ``"/opt/engine?nodes=2000"``.

    Args:
        spelling: Name and options; values reach the oracle as text.
        game: What it plays.
        options: More options; they win over the spelling's. None leaves one out.

    Raises:
        RegistryError: neither an oracle nor an engine of this name, or it cannot be made; the message says why.
        ValueError: an option that it does not take, or out of range.
        EngineError: the program is missing or is not an engine.
    """
    name, _, query = spelling.partition("?")
    given: dict[str, Any] = {}
    for key, value in spelled_pairs(query):
        if key in given:
            raise ValueError(f"oracle {spelling!r}: {key} is given twice ({given[key]!r} and {value!r}); give it once")
        given[key] = value
    given.update({key: value for key, value in options.items() if value is not None})
    if name not in registry.available("oracles"):
        for fallback in registry.available("oracle_fallbacks"):
            take = registry.load("oracle_fallbacks", fallback)
            with registry.making("oracle_fallbacks", fallback, ValueError, OSError, EngineError):
                other = take(name, query, game)
            if other is not None:
                if not (isinstance(other, tuple) and [*map(type, other)] == [str, dict]):
                    raise registry.wrong_thing("oracle_fallbacks", fallback, other, "a name with options, or None")
                name, given = other[0], {**other[1], **given}
                break
    factory = registry.load("oracles", name)
    for key, hint in registry.unknown_arguments(factory, given, 1):
        if key == "processes":
            raise ValueError(f"oracle {spelling!r} works in one process: omit processes (--parallel)")
        raise ValueError(f"oracle {spelling!r} takes no option {key!r}.{hint}")
    with registry.making("oracles", name, ValueError, OSError, EngineError):
        oracle = factory(game, **given)
    if not isinstance(oracle, Oracle):
        raise registry.wrong_thing("oracles", name, oracle, "a genpolicy.data.oracle.Oracle")
    oracle.entry = name
    return oracle
