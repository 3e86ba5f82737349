"""SearchModel: what a tree search knows of a game; RulesModel: the game's own rules with an evaluator at the leaves.

A search never sees a state. It holds *embeddings*, which only the model reads: positions where there are rules, hidden
vectors in a learned model. All methods take batches, so that leaves of many trees share one call of a network.

Views: a node's value is for the player to move there. The worth of a choice is for the player who makes it: with
reward r, discount d and value v of the node that it leads to, it is r + d v.
d is -1 where the other side moves next, 1 where the same side moves again, 0 where the game has ended; a delivered mate
is r = 1, d = 0. (Rewards, discounts and opaque embeddings as in Schrittwieser et al. 2020, arXiv:1911.08265.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from genpolicy.chance import probabilities
from genpolicy.game import Game
from genpolicy.options import Option

PRIOR_TOLERANCE = 1e-3
"""How far a prior's sum may be from 1 (float32 and float16 softmaxes of many moves); it is divided by its sum."""


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


class RulesModel(SearchModel):
    """A game's own rules; an evaluator judges the positions in which the game continues.

    Embeddings are states, so a repetition inside the tree, or one that began before the root, is seen by the rules. The
    end of the game is never evaluated: its reward is the outcome for the player who made the last move. A root that is
    drawn by rule but has legal moves is searched as any other. Where chance decides the priors are its probabilities,
    and the value is the mean over its outcomes, which the evaluator judges.
    """

    reusable: ClassVar[bool] = True

    def __init__(self, game: Game[Any], evaluator: Evaluator) -> None:
        self.game, self.evaluator = game, evaluator

    def root(self, states: Sequence[Any]) -> Nodes:
        """The states as roots.

        Raises:
            ValueError: a state without legal moves, or an invalid prior or value from the evaluator.
        """
        for state in states:
            if len(self.game.legal(state)) == 0:
                raise ValueError(f"the game is over in {self.game.format(state)!r}: the player to move has no move")
        priors, values, chance = self._evaluated(states)
        count = len(states)
        choices = LazyChoices(count, lambda row: Choices(self.game.legal(states[row]), priors[row]))
        return Nodes(list(states), choices, values, [0.0] * count, [1.0] * count, chance)

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        """The positions after some moves.

        Raises:
            IllegalMoveError: a move is not legal.
            ValueError: an invalid prior or value from the evaluator.
        """
        game = self.game
        states = [game.play(state, move) for state, move in zip(embeddings, choices, strict=True)]
        outcomes = [game.outcome(state) for state in states]
        signs = [
            1.0 if game.player(after) == game.player(before) else -1.0
            for before, after in zip(embeddings, states, strict=True)
        ]
        running = [row for row, outcome in enumerate(outcomes) if outcome is None]
        evaluated = self._evaluated([states[row] for row in running])
        priors: list[NDArray[np.float64] | None] = [None] * len(states)
        values, chance = [0.0] * len(states), [False] * len(states)
        for row, prior, value, is_chance in zip(running, *evaluated, strict=True):
            priors[row], values[row], chance[row] = prior, value, is_chance

        def choices_of(row: int) -> Choices:
            over = outcomes[row] is not None
            return Choices(np.empty(0, np.int64), None) if over else Choices(game.legal(states[row]), priors[row])

        return Nodes(
            embeddings=states,
            choices=LazyChoices(len(states), choices_of),
            values=values,
            rewards=[0.0 if o is None else sign * o for sign, o in zip(signs, outcomes, strict=True)],
            discounts=[sign if o is None else 0.0 for sign, o in zip(signs, outcomes, strict=True)],
            chance=chance,
        )

    def position(self, embedding: Any) -> Any:
        """The embedding, which is a state."""
        return embedding

    def _evaluated(self, states: Sequence[Any]) -> tuple[list[NDArray[np.float64] | None], list[float], list[bool]]:
        """Checked priors (of the legal moves in order) and values, and where chance decides."""
        if not self.game.has_chance:
            priors, values = self._asked(states)
            return priors, values, [False] * len(states)
        priors, values = [probabilities(self.game, state) for state in states], [0.0] * len(states)
        chance = [shares is not None for shares in priors]
        rows = [row for row, is_chance in enumerate(chance) if not is_chance]
        for row, prior, value in zip(rows, *self._asked([states[row] for row in rows]), strict=True):
            priors[row], values[row] = prior, value
        thrown = [
            (row, move, share)
            for row, shares in enumerate(priors)
            if chance[row] and shares is not None
            for move, share in zip(self.game.legal(states[row]).tolist(), shares.tolist(), strict=True)
        ]
        if thrown:
            after = self.expand([states[row] for row, _, _ in thrown], [move for _, move, _ in thrown])
            for (row, _, share), reward, discount, value in zip(
                thrown, after.rewards, after.discounts, after.values, strict=True
            ):
                values[row] += share * (reward + discount * value)
        return priors, [min(1.0, max(-1.0, value)) for value in values], chance

    def _asked(self, states: Sequence[Any]) -> tuple[list[NDArray[np.float64] | None], list[float]]:
        """The evaluator's priors and values, checked."""
        if not states:
            return [], []
        priors, values = self.evaluator(states)
        if len(priors) != len(states) or len(values) != len(states):
            raise ValueError(
                f"evaluator gave {len(priors)} priors and {len(values)} values for {len(states)} positions"
            )
        return (
            [self._prior(state, prior) for state, prior in zip(states, priors, strict=True)],
            [self._value(state, value) for state, value in zip(states, values, strict=True)],
        )

    def _value(self, state: Any, value: float) -> float:
        value = float(value)
        if not abs(value) <= 1.0 + PRIOR_TOLERANCE:  # so written, NaN fails too
            raise ValueError(
                f"evaluator gave the value {value} in {self.game.format(state)!r}; a value lies in [-1, 1], for the "
                "player to move (a win probability p is the value 2 p - 1)"
            )
        return min(1.0, max(-1.0, value))

    def _prior(self, state: Any, prior: Prior) -> NDArray[np.float64] | None:
        if prior is None:
            return None
        legal = self.game.legal(state)
        if isinstance(prior, Mapping):
            extra = set(prior) - set(legal.tolist())
            if extra:
                names = ", ".join(
                    self.game.moves[i] if 0 <= i < len(self.game.moves) else str(i) for i in sorted(extra)
                )
                raise ValueError(f"evaluator gave a prior for illegal moves in {self.game.format(state)!r}: {names}")
            prior = np.array([prior.get(move, 0.0) for move in legal.tolist()], np.float64)
        array = np.asarray(prior, np.float64)
        if array.shape != legal.shape:
            raise ValueError(
                f"evaluator gave a prior of shape {array.shape} in {self.game.format(state)!r}, which has {len(legal)} "
                "legal moves"
            )
        total = float(array.sum())
        if not (math.isfinite(total) and abs(total - 1.0) <= PRIOR_TOLERANCE and float(array.min()) >= 0.0):
            raise ValueError(
                f"evaluator gave a prior that is not a distribution in {self.game.format(state)!r}: sum {total}, least "
                f"{array.min()}"
            )
        return array / total


def even(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
    """Uniform prior, value 0: all knowledge comes from the ends of the game that the search meets."""
    return [None] * len(states), [0.0] * len(states)
