"""The network of a model with codes: MuZero's, and what codes do to a latent.

Axes: B batch, N tokens of a latent (1 for a vector), W width of a latent, G codebooks, K codes of each.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from genpolicy.networks.cpu import Linear
from genpolicy.networks.value_heads import CategoricalHead, EndHead, Readout
from genpolicy.sequence import Layout
from genpolicy_policy_model.move_codes import MoveAutoencoder
from genpolicy_policy_model.networks import ModelNetwork, OnSquares, VectorDynamics
from genpolicy_policy_model.vq_config import VQConfig
from genpolicy_policy_model.vq_squares import make_autoencoder, places_of


class AnswerDynamics(VectorDynamics):
    """The vectors of a code of each book added to the latent, then residual layers."""

    def __init__(self, num_books: int, num_codes: int, width: int, num_layers: int) -> None:
        super().__init__(num_books * num_codes, width, num_layers)
        self.num_books, self.num_codes = num_books, num_codes

    def forward(self, latent: Tensor, codes: Tensor) -> Tensor:
        """[B, 1, W] from latents [B, 1, W] and codes [B, G]."""
        first = self.num_codes * torch.arange(self.num_books, device=codes.device)
        return self.changed(latent + self.moves(codes + first).sum(1)[:, None])


class AnswerOnSquares(OnSquares):
    """A code of each book marked on the squares of a latent, then attention.

    A code stands for different squares in different positions, so where it leaves from and where it goes to are
    distributions over the places, as in ``SquaresAutoencoder``:

        p_from, p_to = softmax(A v + Q v . K x_l)      of the codes' vectors v and the features x_l of place l
        x_l += v + p_from_l leave + p_to_l (arrive + C sum_i p_from_i x_i)
    """

    def __init__(self, num_books: int, num_codes: int, layout: Layout, config: VQConfig) -> None:
        super().__init__()
        width, self.num_codes = config.network.width, num_codes
        self.codes = nn.Embedding(num_books * num_codes, width)
        self.marks = nn.Parameter(torch.empty(2, width))
        self.by_place = nn.ModuleList(Linear(width, layout.length) for _ in range(2))
        self.queries = nn.ModuleList(Linear(width, width) for _ in range(2))
        self.keys = nn.ModuleList(Linear(width, width, bias=False) for _ in range(2))
        self.carried = Linear(width, width)
        self._attend(layout, config)

    def forward(self, latent: Tensor, codes: Tensor) -> Tensor:
        """[B, N, W] from latents [B, N, W] and codes [B, G]."""
        v = self.codes(codes + self.num_codes * torch.arange(codes.shape[1], device=codes.device)).sum(1)
        leaves, reaches = places_of(v, latent, self.by_place, self.queries, self.keys)
        arrive = self.marks[1] + self.carried(torch.einsum("bn,bnw->bw", leaves, latent))
        marked = v[:, None] + leaves[..., None] * self.marks[0] + reaches[..., None] * arrive[:, None]
        return self.changed(latent + marked)


class VQNetwork(ModelNetwork):
    """All weights of a model with codes, its autoencoder among them.

    Args:
        layout: As in ``ModelNetwork``.
        config: Shapes and heads.
    """

    def __init__(self, layout: Layout, config: VQConfig) -> None:
        super().__init__(layout, config)
        latent, self.shape = self.latent_shape, (config.num_books, config.num_codes)
        self.answered = self._by_codes(*self.shape)
        self.code = Readout(*latent, config.readout, num_out=config.num_books * config.num_codes)
        self.worth = CategoricalHead(*latent, config.readout, self.value.support.tolist())
        self.autoencoder = make_autoencoder(layout, config)
        both = config.side == "both"
        self.chance = EndHead(*latent, config.readout) if both else None
        """After a move, the log-odds that chance comes next; None where a code follows every move."""
        self.turn = EndHead(*latent, config.readout) if both else None
        """The log-odds that the player to move is not the one at the root."""
        pure = config.plan == "pure"
        self.move_codes = MoveAutoencoder(layout, config) if pure else None
        self.planned = self._by_codes(1, config.agent_codes) if pure else None
        """A code of an own move added to the latent; None where a search chooses among moves everywhere."""
        self.plan = Readout(*latent, config.readout, num_out=config.agent_codes) if pure else None
        """[B, A] logits of the codes of own moves."""
        self._draw(self.answered, self.planned)

    def _by_codes(self, num_books: int, num_codes: int) -> AnswerDynamics | AnswerOnSquares:
        """How codes change a latent."""
        config = cast("VQConfig", self.config)
        if config.latent == "squares":
            return AnswerOnSquares(num_books, num_codes, self.layout, config)
        return AnswerDynamics(num_books, num_codes, config.latent_width, config.dynamics_layers)

    def codes(self, latent: Tensor) -> Tensor:
        """[B, G, K] logits of the codes after a move."""
        logits: Tensor = self.code(latent)
        return logits.view(-1, *self.shape)
