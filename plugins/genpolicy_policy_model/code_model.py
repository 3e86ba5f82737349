"""CodeModel: a learned model in which the other side's answer is a code, as what a tree search expands.

Moves and codes alternate (VQHybrid of Ozair et al. 2021, arXiv:2106.04615). After a move of the player at the root the
node is one of chance, whose outcomes are codes with the model's probabilities; after a code the same player moves
again. All values are that player's. ``MctsConfig.chance`` says whether codes are visited by their probabilities
(``neutral``), chosen against that player (``adversarial``) or for that player (``cooperative``).

Axes: B batch, M moves of the vocabulary, G codebooks, K codes of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from genpolicy.game import Game
from genpolicy.options import Option
from genpolicy.search.model import Choices, LazyChoices, Nodes
from genpolicy_policy_model.declared import CODE_MODEL
from genpolicy_policy_model.latent import Floats, Latent, LatentModel, Predictions, numbers


class Acted(NamedTuple):
    """What a model says of positions in which the other side is to answer; everything for the player at the root."""

    latents: Sequence[Any]
    rewards: Floats
    """[B] of the moves that led there."""
    ends: Floats
    """[B] probabilities that those moves ended the game."""
    codes: Floats
    """[B, G, K] probabilities of the codes."""
    values: Floats
    """[B] values before the answer."""


class CodedDynamics(Predictions, Protocol):
    """A learned model's functions over latents. Moves are as the root's player sees them."""

    def act(self, latents: Sequence[Any], moves: NDArray[np.int64]) -> Acted:
        """What follows moves."""
        ...

    def answer(self, latents: Sequence[Any], codes: NDArray[np.int64]) -> tuple[Sequence[Any], Floats, Floats]:
        """[B] latents after codes [B, G], rewards, and probabilities that the game is over."""
        ...


class AfterMove(NamedTuple):
    """An embedding of the search in which a code comes next."""

    latent: Any
    viewer: int
    shape: tuple[int, int]
    """G and K."""
    other: bool = False
    """Whether the player at the root did not make the move."""


class CodeModel(LatentModel):
    """What a search asks of a model with codes.

    Args:
        game: Its legal moves are asked for at the root alone.
        dynamics: The model.
        terminal: As in ``LatentModel``.
        top: As in ``LatentModel``.
        answers: Most codes of a node; of several codebooks the likeliest combinations.
        least: Codes below this probability are left out, all but the likeliest. An adversarial search chooses among
            all codes that it is given, those that no transition in training had among them.
        on_check: As in ``LatentModel``.
    """

    def __init__(
        self,
        game: Game[Any],
        dynamics: CodedDynamics,
        *,
        terminal: bool = True,
        top: int = 64,
        answers: int = 32,
        least: float = 0.01,
        on_check: Callable[[Callable[[], None]], CodedDynamics] | None = None,
    ) -> None:
        super().__init__(
            game, cast("Any", dynamics), alternates=False, terminal=terminal, top=top, on_check=cast("Any", on_check)
        )
        self.coded, self.answers, self.least = dynamics, answers, least
        self._mass, self._nodes = 0.0, 0

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        """The nodes after some moves and codes; at most two calls of the network."""
        parts: list[Nodes] = []
        part, place = np.zeros(len(embeddings), np.int64), np.zeros(len(embeddings), np.int64)
        for kind, expanded in self._expansions().items():
            rows = np.flatnonzero([isinstance(embedding, kind) for embedding in embeddings])
            if len(rows):
                part[rows], place[rows] = len(parts), np.arange(len(rows))
                given = [embeddings[row] for row in rows.tolist()]
                parts.append(expanded(given, np.array([choices[row] for row in rows.tolist()], np.int64)))
        if len(parts) == 1:
            return parts[0]
        at = [(parts[which], where) for which, where in zip(part.tolist(), place.tolist(), strict=True)]
        return Nodes(
            embeddings=[nodes.embeddings[row] for nodes, row in at],
            choices=LazyChoices(len(at), lambda row: at[row][0].choices[at[row][1]]),
            values=[nodes.values[row] for nodes, row in at],
            rewards=[nodes.rewards[row] for nodes, row in at],
            discounts=[nodes.discounts[row] for nodes, row in at],
            chance=[nodes.chance[row] for nodes, row in at],
        )

    def _expansions(self) -> dict[type[Any], Callable[..., Nodes]]:
        """What makes the nodes after a choice in an embedding of each kind."""
        return {Latent: self._after_moves, AfterMove: self._after_codes}

    def _after_moves(self, embeddings: Sequence[Latent], choices: NDArray[np.int64]) -> Nodes:
        viewers = np.array([embedding.viewer for embedding in embeddings], np.int64)
        seen = self.game.moves.seen_by(choices, viewers)
        return self._acted(self.coded.act([embedding.latent for embedding in embeddings], seen), embeddings)

    def _acted(self, acted: Acted, before: Sequence[Any]) -> Nodes:
        """The nodes in which a code comes next."""
        self.network_calls += 1
        viewers = np.array([each.viewer for each in before], np.int64)
        ended, (_, *shape) = (acted.ends > 0.5) & self.terminal, acted.codes.shape
        return Nodes(
            embeddings=[
                AfterMove(*pair, (shape[0], shape[1])) for pair in zip(acted.latents, viewers.tolist(), strict=True)
            ],
            choices=LazyChoices(len(viewers), partial(self._answers, acted.codes, ended)),
            chance=(~ended).tolist(),
            **numbers(ended, acted.values, acted.rewards),
        )

    def _after_codes(self, embeddings: Sequence[AfterMove], choices: NDArray[np.int64]) -> Nodes:
        latents = [embedding.latent for embedding in embeddings]
        after, rewards, ends = self.coded.answer(latents, self._parted(embeddings, choices))
        self.network_calls += 1
        viewers = np.array([embedding.viewer for embedding in embeddings], np.int64)
        ended = (ends > 0.5) & self.terminal
        made, chosen, values = self._to_choose(after, viewers, ended)
        return Nodes(embeddings=made, choices=chosen, chance=[False] * len(viewers), **numbers(ended, values, rewards))

    def _to_choose(
        self, latents: Sequence[Any], viewers: NDArray[np.int64], ended: NDArray[np.bool_]
    ) -> tuple[list[Any], LazyChoices, Floats]:
        """Embeddings of latents in which the player moves, the choices there and their values."""
        policy, values = self.coded.predict(latents)
        made = [Latent(*pair) for pair in zip(latents, viewers.tolist(), strict=True)]
        return made, LazyChoices(len(viewers), partial(self._likeliest, policy, viewers, ended)), values

    def _parted(self, embeddings: Sequence[AfterMove], choices: NDArray[np.int64]) -> NDArray[np.int64]:
        """[B, G] the codes of joint ones; all embeddings are of one model, so of one shape."""
        num_books, num_codes = embeddings[0].shape
        places = num_codes ** np.arange(num_books - 1, -1, -1, dtype=np.int64)
        return choices[:, None] // places % num_codes

    def _answers(self, codes: Floats, ended: NDArray[np.bool_], row: int) -> Choices:
        if ended[row]:
            return Choices(np.empty(0, np.int64), None)
        ids, shares = joint(codes[row], self.answers, self.least)
        mass = float(shares.sum())
        self._mass, self._nodes = self._mass + mass, self._nodes + 1
        return Choices(ids, shares / mass)

    def stats(self) -> dict[str, float]:
        """``code_mass``: the probability of the codes that are kept (``answers``, ``least``), mean over the nodes."""
        mass, nodes = self._mass, self._nodes
        self._mass, self._nodes = 0.0, 0
        return {"code_mass": mass / nodes} if nodes else {}

    def options(self) -> tuple[Option, ...]:
        """Those of ``LatentModel``, ``answers`` and ``least``."""
        return CODE_MODEL

    def _own(self) -> dict[str, Any]:
        return {"terminal": self.terminal, "top": self.top, "answers": self.answers, "least": self.least}


def joint(codes: Floats, most: int, least: float) -> tuple[NDArray[np.int64], Floats]:
    """The likeliest combinations of codes, in the order of their ids, and their probabilities.

    The id of codes k_1 .. k_G is ((k_1 K + k_2) K + ...) + k_G.

    Args:
        codes: [G, K] probabilities of each book's.
        most: How many are kept.
        least: Those below it are left out, and those of probability 0; the likeliest stays.
    """
    ids, shares = np.zeros(1, np.int64), np.ones(1)
    for book in codes:
        # A combination among the likeliest begins with one that is among the likeliest of the books before.
        ids = (ids[:, None] * len(book) + np.arange(len(book))).ravel()
        shares = (shares[:, None] * book).ravel()
        kept = np.argsort(-shares, kind="stable")[:most]
        ids, shares = ids[kept], shares[kept]
    stays = (shares >= least) & (shares > 0)
    stays[0] = True
    ids, shares = ids[stays], shares[stays]
    order = np.argsort(ids)
    return ids[order], shares[order]
