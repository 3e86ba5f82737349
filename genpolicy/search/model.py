"""SearchModel: what a tree search knows of a game.

A search never sees a state. It holds *embeddings*, which only the model reads: positions where there are rules, hidden
vectors in a learned model. All methods take batches, so that leaves of many trees share one call of a network.

Views: a node's value is for the player to move there. The worth of a choice is for the player who makes it: with
reward r, discount d and value v of the node that it leads to, it is r + d v.
d is -1 where the other side moves next, 1 where the same side moves again, 0 where the game has ended; a delivered mate
is r = 1, d = 0. (Rewards, discounts and opaque embeddings as in Schrittwieser et al. 2020, arXiv:1911.08265.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from genpolicy.options import Option


class Choices(NamedTuple):
    """What can be chosen at a node; empty where the game has ended."""

    ids: NDArray[np.int64]
    """[n] ids of the choices (moves; outcomes at a chance node), all different."""
    priors: NDArray[np.float64] | None
    """[n] probabilities, sum 1; None: all the same."""


class LazyChoices(Sequence[Choices]):
    """Choices of ``num`` nodes, each found by ``of(row)`` when it is read: most leaves are visited once, and never need
    theirs."""

    def __init__(self, num: int, of: Callable[[int], Choices]) -> None:
        self._num, self._of = num, of

    def __len__(self) -> int:
        return self._num

    def __getitem__(self, row: Any) -> Any:
        rows = range(self._num)[row]
        return self._of(rows) if isinstance(rows, int) else [self._of(each) for each in rows]


@dataclass(frozen=True)
class Nodes:
    """A batch of nodes; every field has one entry a node."""

    embeddings: Sequence[Any]
    """Opaque; the model gets them back in ``expand``."""
    choices: Sequence[Choices]
    """Read at most once for each node, when the search first goes beyond it; a model may compute them then."""
    values: Sequence[float]
    """For the player to move at the node, in [-1, 1] if the model is ``bounded``; ignored where the discount is 0."""
    rewards: Sequence[float]
    """For the player who made the choice that led here, in the range of values; 0 for roots."""
    discounts: Sequence[float]
    """-1 the other side moves next, 1 the same side, 0 the game has ended; 1 for roots."""
    chance: Sequence[bool]
    """Whether the next choice is drawn by chance, with the priors as its probabilities."""


class SearchModel(ABC):
    """What a search asks of a game, or of a learned model of one."""

    bounded: ClassVar[bool] = True
    """Whether values and rewards lie in [-1, 1], as the search then checks; else they are any finite numbers."""
    reusable: ClassVar[bool] = False
    """Whether a node can be the root of a later search: ``position`` knows its state, and it has all legal moves."""
    network_calls: int = 0
    """Network calls so far."""

    @abstractmethod
    def root(self, states: Sequence[Any]) -> Nodes:
        """The roots of some states of the game.

        Raises:
            ValueError: a state without choices; there is nothing to search.
        """

    @abstractmethod
    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        """The nodes that choices lead to, one for each pair; no row depends on the others."""

    def position(self, embedding: Any) -> Any | None:
        """The state of the game that an embedding stands for; None where the model has none.

        Lines are shown only where the model gives states. A model that gives none for a root has no positions at all.
        """
        return None

    def for_search(self, seed: int, check: Callable[[], None]) -> SearchModel:
        """The model as one search works with it; the default is the model itself.

        Args:
            seed: Seed of all its draws.
            check: To be called during long work (``genpolicy.control.Control``); the search itself calls it before
                each call of the model.
        """
        return self

    def stats(self) -> dict[str, float]:
        """What the model adds to ``Decision.stats``: numbers since the last call of this method."""
        return {}

    def options(self) -> tuple[Option, ...]:
        """The model's options, besides those of the search."""
        return ()

    def with_options(self, **changed: Any) -> SearchModel:
        """The same model (weights shared) with other values of ``options``, as ``Option.read`` returns them."""
        return self

    def close(self) -> None:
        """End processes and free memory; safe to call twice."""


Prior: TypeAlias = "NDArray[np.floating[Any]] | Mapping[int, float] | None"
"""Probabilities of a state's legal moves: in their order, or by move id (a legal move that is left out has none); None:
all the same."""
Comparator: TypeAlias = "Callable[[Sequence[tuple[Any, Any]], int], Sequence[float]]"
"""Pairs of positions and a player (0 or 1) -> a number for each pair: above 0 where the first position is better for
that player, below 0 where the second is, 0 where neither is. The two may have different players to move."""


@runtime_checkable
class PreparesPositions(Protocol):
    """A comparator that reads many positions in one network call, once it is told which it will be asked about."""

    def prepare(self, states: Sequence[Any]) -> None:
        """Read positions; comparing them later answers the same as without."""


Evaluator: TypeAlias = "Callable[[Sequence[Any]], tuple[Sequence[Prior], Sequence[float]]]"
"""States -> a prior and a value in [-1, 1] for the player to move, for each. No row may depend on the others."""
