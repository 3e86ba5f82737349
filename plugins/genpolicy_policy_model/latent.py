"""LatentModel: a learned model of a game as what a tree search expands.

A learned model says nothing of legality below the root: there every move is a choice, or the ``top`` likeliest ones,
with the model's own probabilities. Whether the game is over is for the model to say, too; with ``terminal=False`` a
line goes on beyond it, as in the MuZero papers (Schrittwieser et al. 2020, arXiv:1911.08265).

Axes: B batch, M moves of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from genpolicy.game import Game
from genpolicy.options import Option
from genpolicy.search.model import Choices, LazyChoices, Nodes, SearchModel
from genpolicy_policy_model.declared import MODEL

Floats = NDArray[np.float64]
NO_END = (
    "terminal=true: this model was trained without an end-of-game head (learner.end_head=false), so it cannot tell "
    "where a game ends; leave the option out"
)


class Predictions(Protocol):
    """What every learned model says of positions, by latents, which are opaque."""

    def represent(self, states: Sequence[Any]) -> Sequence[Any]:
        """[B] latents of positions."""
        ...

    def predict(self, latents: Sequence[Any]) -> tuple[Floats, Floats]:
        """[B, M] probabilities of moves, and [B] values for the player to move."""
        ...


class Dynamics(Predictions, Protocol):
    """A learned model's functions over latents. Moves are as the root's player sees them."""

    def step(self, latents: Sequence[Any], moves: NDArray[np.int64]) -> tuple[Sequence[Any], Floats, Floats]:
        """[B] latents after some moves, rewards for who moved, and probabilities that the game is over."""
        ...


class Latent(NamedTuple):
    """An embedding of the search."""

    latent: Any
    viewer: int
    """Who sees the moves: the player to move at the root."""
    other: bool = False
    """Whether the other player is to move, where the model says whose turn it is."""


class LatentModel(SearchModel):
    """What a search asks of a learned model.

    Args:
        game: Its legal moves are asked for at the root alone.
        dynamics: The model.
        alternates: Whether the sides take turns; False where a step holds the opponent's answer.
        terminal: Whether a node that the model takes for the game's end is one.
        top: Most choices of a node below the root.
        on_check: Called by ``for_search`` with the search's check: the model that the search then works with.
    """

    def __init__(
        self,
        game: Game[Any],
        dynamics: Dynamics,
        *,
        alternates: bool = True,
        terminal: bool = True,
        top: int = 64,
        on_check: Callable[[Callable[[], None]], Dynamics] | None = None,
    ) -> None:
        self.game, self.dynamics, self.alternates = game, dynamics, alternates
        self.terminal, self.top, self._on_check = terminal, top, on_check

    def root(self, states: Sequence[Any]) -> Nodes:
        """The states as roots, with their legal moves.

        Raises:
            ValueError: a state without legal moves.
        """
        legal = [self.game.legal(state) for state in states]
        for state, moves in zip(states, legal, strict=True):
            if len(moves) == 0:
                raise ValueError(f"the game is over in {self.game.format(state)!r}: the player to move has no move")
        latents = self.dynamics.represent(states)
        policy, values = self.dynamics.predict(latents)
        self.network_calls += 1
        viewers = [self.game.player(state) for state in states]
        choices = []
        for row, (moves, viewer) in enumerate(zip(legal, viewers, strict=True)):
            priors = policy[row, self.game.moves.seen_by(moves, viewer)]
            total = priors.sum()
            choices.append(Choices(moves.astype(np.int64), priors / total if total > 0 else None))
        count = len(states)
        return Nodes(
            embeddings=[Latent(*pair) for pair in zip(latents, viewers, strict=True)],
            choices=choices,
            values=np.clip(values, -1.0, 1.0).tolist(),
            rewards=[0.0] * count,
            discounts=[1.0] * count,
            chance=[False] * count,
        )

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        """The nodes after some choices."""
        viewers = np.array([embedding.viewer for embedding in embeddings], np.int64)
        seen = self.game.moves.seen_by(np.array(choices, np.int64), viewers)
        latents, rewards, ends = self.dynamics.step([embedding.latent for embedding in embeddings], seen)
        policy, values = self.dynamics.predict(latents)
        self.network_calls += 1
        ended = (ends > 0.5) & self.terminal
        return Nodes(
            embeddings=[Latent(latent, int(viewer)) for latent, viewer in zip(latents, viewers, strict=True)],
            choices=LazyChoices(len(viewers), partial(self._likeliest, policy, viewers, ended)),
            chance=[False] * len(viewers),
            **numbers(ended, values, rewards, -1.0 if self.alternates else 1.0),
        )

    def _likeliest(self, policy: Floats, viewers: NDArray[np.int64], ended: NDArray[np.bool_], row: int) -> Choices:
        """The ``top`` likeliest moves of a node, in the order of their ids; none after the end."""
        if ended[row]:
            return Choices(np.empty(0, np.int64), None)
        shares = policy[row]
        seen = np.argsort(-shares, kind="stable")[: self.top]
        seen = np.sort(seen[shares[seen] > 0])  # a move without any probability is not a choice
        priors = shares[seen]
        ids = self.game.moves.seen_by(seen, int(viewers[row])).astype(np.int64)
        order = np.argsort(ids)
        return Choices(ids[order], priors[order] / priors.sum())

    def for_search(self, seed: int, check: Callable[[], None]) -> LatentModel:
        """The same model, interrupted by ``check``; network calls are counted from 0."""
        del seed
        dynamics = self.dynamics if self._on_check is None else self._on_check(check)
        return type(self)(self.game, dynamics, **self._own())

    def options(self) -> tuple[Option, ...]:
        """``terminal`` and ``top``."""
        return MODEL

    def with_options(self, **changed: Any) -> LatentModel:
        """The same model with other options.

        Raises:
            ValueError: ``terminal`` of a model that cannot tell where a game ends.
        """
        if changed.get("terminal") and not getattr(self.dynamics, "has_end", True):
            raise ValueError(NO_END)
        return type(self)(self.game, self.dynamics, on_check=self._on_check, **{**self._own(), **changed})

    def _own(self) -> dict[str, Any]:
        return {"alternates": self.alternates, "terminal": self.terminal, "top": self.top}


def numbers(
    ended: NDArray[np.bool_], values: Floats, rewards: Floats, discounts: Floats | float = 1.0
) -> dict[str, Any]:
    """Those of nodes; where the game has ended nothing is to come."""
    return {
        "values": np.where(ended, 0.0, np.clip(values, -1.0, 1.0)).tolist(),
        "rewards": np.clip(rewards, -1.0, 1.0).tolist(),
        "discounts": np.where(ended, 0.0, discounts).tolist(),
    }
