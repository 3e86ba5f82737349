"""The state VQ-VAE: what a move leads to, as a few codes (Ozair et al. 2021, arXiv:2106.04615).

The encoder reads a position, a move of the player to move and the position in which that player moves next, and gives
codes; the decoder rebuilds that next position from the first one, the move and the codes. What the decoder can tell
from position and move alone needs no codes, so codes come to stand for the other side's answer. ``VectorAutoencoder``
reads all tokens side by side, which is enough for small boards; ``SquaresAutoencoder`` (``vq_squares``) one by one.

Axes: B batch, L tokens of a position, S symbols of a position, G codebooks, K codes of each, D width of a code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.cpu import Linear
from genpolicy.networks.value_heads import finite
from genpolicy.sequence import Layout
from genpolicy_policy_model.networks import VectorDynamics
from genpolicy_policy_model.quantise import Codebooks
from genpolicy_policy_model.vq_config import VQConfig

STAYS = 4.0
"""Initial log-odds of a square to stay as it is, since few squares change."""


class Rebuilt(NamedTuple):
    """What an autoencoder makes of transitions."""

    codes: Tensor
    """[B, G]."""
    losses: Tensor
    """[B] cross-entropy of all tokens of the next position in nats, with the codes' losses."""
    whole: Tensor
    """[B] bool, whether every token of the next position is the decoder's likeliest."""
    vectors: Tensor
    """[B, G, D] what was quantised, without gradient."""


class TransitionAutoencoder(nn.Module, ABC):
    """Encoder, codebooks and decoder; a subclass has the first and the last.

    Args:
        layout: Its state tokens are read and rebuilt.
        config: Shapes.
    """

    def __init__(self, layout: Layout, config: VQConfig) -> None:
        super().__init__()
        self.num_symbols, self.commitment = layout.move_offset, config.commitment
        self.length, self.shape = layout.state_length, (config.num_books, config.code_width)
        self.codebooks = Codebooks(
            config.num_books,
            config.num_codes,
            config.code_width,
            by=config.codebook,
            decay=config.decay,
            revive_below=config.revive_below,
        )
        self.stays = nn.Parameter(torch.tensor(STAYS))

    @abstractmethod
    def encode(self, states: Tensor, moves: Tensor, after: Tensor) -> Tensor:
        """[B, G, D] what transitions from states [B, L] by moves [B] to states [B, L] are before quantising."""

    @abstractmethod
    def decode(self, states: Tensor, moves: Tensor, vectors: Tensor) -> Tensor:
        """[B, L, S] logits of the next position's tokens from states [B, L], moves [B] and code vectors [B, G, D]."""

    @abstractmethod
    def flops_per_code(self) -> float:
        """Floating-point operations of encoding one transition: 2 for each use of a weight."""

    def codes(self, states: Tensor, moves: Tensor, after: Tensor) -> Tensor:
        """[B, G] codes of transitions from states [B, L] by moves [B] to states [B, L]."""
        return self.codebooks.nearest(finite(self.encode(states, moves, after), "code"))

    def likeliest(self, states: Tensor, moves: Tensor, codes: Tensor, admitted: Tensor) -> Tensor:
        """[B, L] the likeliest next position after states [B, L], moves [B] and codes [B, G].

        Args:
            states: Positions.
            moves: Moves in them.
            codes: What followed.
            admitted: [L, S] bool, the symbols that each token can hold.
        """
        logits = finite(self.decode(states, moves, self.codebooks.vectors_of(codes)), "position")
        return logits.masked_fill(~admitted, -torch.inf).argmax(-1)

    def forward(self, states: Tensor, moves: Tensor, after: Tensor) -> Rebuilt:
        """Encode, quantise and rebuild transitions."""
        vectors = self.encode(states, moves, after)
        quantised = self.codebooks(vectors)
        logits = self.decode(states, moves, quantised.vectors).float()
        losses = F.cross_entropy(logits.transpose(1, 2), after, reduction="none").sum(-1)
        losses = losses + self.commitment * quantised.commitment
        if self.codebooks.by == "gradient":
            losses = losses + quantised.codebook
        return Rebuilt(quantised.codes, losses, (logits.argmax(-1) == after).all(-1), vectors.detach())


class VectorAutoencoder(TransitionAutoencoder):
    """Reads the tokens side by side as one vector, changed by residual layers."""

    def __init__(self, layout: Layout, config: VQConfig) -> None:
        super().__init__(layout, config)
        num_moves, width = len(layout.moves), config.autoencoder_width
        read, code = self.length * config.token_width, config.num_books * config.code_width
        self.token = nn.Embedding(layout.num_symbols + 1, config.token_width)
        self.pair = Linear(2 * read, width)
        self.encoder = VectorDynamics(num_moves, width, config.autoencoder_layers)
        self.to_code = Linear(width, code)
        self.given = Linear(read, width)
        self.from_code = Linear(code, width)
        self.decoder = VectorDynamics(num_moves, width, config.autoencoder_layers)
        self.to_tokens = Linear(width, self.length * self.num_symbols)

    def encode(self, states: Tensor, moves: Tensor, after: Tensor) -> Tensor:
        """As in ``TransitionAutoencoder``."""
        read = torch.cat([self.token(states), self.token(after)], dim=1).flatten(1)
        encoded: Tensor = self.to_code(self.encoder(self.pair(read)[:, None], moves)[:, 0])
        return encoded.view(-1, *self.shape)

    def decode(self, states: Tensor, moves: Tensor, vectors: Tensor) -> Tensor:
        """As in ``TransitionAutoencoder``."""
        x = self.given(self.token(states).flatten(1)) + self.from_code(vectors.flatten(1))
        logits = self.to_tokens(self.decoder(x[:, None], moves)[:, 0]).view(-1, self.length, self.num_symbols)
        out: Tensor = logits + self.stays * F.one_hot(states, self.num_symbols)
        return out

    def flops_per_code(self) -> float:
        """As in ``TransitionAutoencoder``."""
        parts = (self.pair, self.encoder, self.to_code)
        return 2.0 * sum(p.numel() for part in parts for p in part.parameters())
