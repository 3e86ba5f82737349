"""ChanceModel: a learned model of a game with chance, as what a tree search expands.

After a move the model says whether chance comes next. Where it does the node is one of chance, whose outcomes are codes
with the model's probabilities; else a player moves again. Whose turn it is the model says, too. Rewards are those of
who moved last, values those of the player to move, and at a chance node of who moved.

Axes: B batch, M moves of the vocabulary, G codebooks, K codes of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from genpolicy.search.model import Choices, LazyChoices, Nodes
from genpolicy_policy_model.code_model import AfterMove, CodeModel
from genpolicy_policy_model.latent import Floats, Latent, Predictions, numbers


class Judged(NamedTuple):
    """What a model says of positions in which a player is to move, or of the end."""

    rewards: Floats
    """[B] of who moved last."""
    ends: Floats
    """[B] probabilities that the game is over."""
    others: Floats
    """[B] probabilities that the player to move is not the one at the root."""


class Thrown(NamedTuple):
    """What a model says of positions after moves."""

    latents: Sequence[Any]
    chances: Floats
    """[B] probabilities that chance comes next."""
    codes: Floats
    """[B, G, K] probabilities of the codes, if it does."""
    worths: Floats
    """[B] values before a code, for who moved."""
    judged: Judged
    """If it does not."""


class ChanceDynamics(Predictions, Protocol):
    """A learned model's functions over latents. Moves are as the root's player sees them."""

    def throw(self, latents: Sequence[Any], moves: NDArray[np.int64]) -> Thrown:
        """What follows moves."""
        ...

    def thrown(self, latents: Sequence[Any], codes: NDArray[np.int64]) -> tuple[Sequence[Any], Judged]:
        """[B] latents after codes [B, G]."""
        ...


class ChanceModel(CodeModel):
    """What a search asks of a model whose codes stand for chance; arguments are those of ``CodeModel``."""

    def _after_moves(self, embeddings: Sequence[Latent], choices: NDArray[np.int64]) -> Nodes:
        viewers = np.array([embedding.viewer for embedding in embeddings], np.int64)
        seen = self.game.moves.seen_by(choices, viewers)
        acted = self._chance.throw([embedding.latent for embedding in embeddings], seen)
        decided = self._decided(embeddings, acted.latents, acted.judged)
        natural, (_, *shape) = acted.chances > 0.5, acted.codes.shape
        never = np.zeros(len(viewers), np.bool_)
        choose, answers = decided.choices, partial(self._answers, acted.codes, never)

        def choices_of(row: int) -> Choices:
            return answers(row) if natural[row] else choose[row]

        waiting = [
            AfterMove(latent, embedding.viewer, (shape[0], shape[1]), embedding.other)
            for latent, embedding in zip(acted.latents, embeddings, strict=True)
        ]
        either = [*zip(natural.tolist(), waiting, decided.embeddings, strict=True)]
        return Nodes(
            embeddings=[after if chance else latent for chance, after, latent in either],
            choices=LazyChoices(len(viewers), choices_of),
            values=np.where(natural, np.clip(acted.worths, -1.0, 1.0), decided.values).tolist(),
            rewards=np.where(natural, 0.0, decided.rewards).tolist(),
            discounts=np.where(natural, 1.0, decided.discounts).tolist(),
            chance=natural.tolist(),
        )

    def _after_codes(self, embeddings: Sequence[AfterMove], choices: NDArray[np.int64]) -> Nodes:
        codes = self._parted(embeddings, choices)
        after, judged = self._chance.thrown([embedding.latent for embedding in embeddings], codes)
        return self._decided(embeddings, after, judged)

    def _decided(self, before: Sequence[Latent | AfterMove], latents: Sequence[Any], judged: Judged) -> Nodes:
        """The nodes of latents in which a player moves, or the game is over."""
        policy, values = self._chance.predict(latents)
        self.network_calls += 1
        viewers = np.array([each.viewer for each in before], np.int64)
        ended, others = (judged.ends > 0.5) & self.terminal, judged.others > 0.5
        passed = others != np.array([each.other for each in before], np.bool_)
        parts = zip(latents, viewers.tolist(), others.tolist(), strict=True)
        return Nodes(
            embeddings=[Latent(*each) for each in parts],
            choices=LazyChoices(len(viewers), partial(self._likeliest, policy, viewers, ended)),
            chance=[False] * len(viewers),
            **numbers(ended, values, judged.rewards, np.where(passed, -1.0, 1.0)),
        )

    @property
    def _chance(self) -> ChanceDynamics:
        return cast("ChanceDynamics", self.coded)
