"""Oracle: what labels positions, an engine over a protocol or an exact solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from genpolicy.game import Game


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

    def close(self) -> None:
        """End processes and free memory; safe to call twice."""

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
