"""Codes of own moves, for VQPure (Ozair et al. 2021, arXiv:2106.04615): below the root a search chooses among them.

The encoder reads a position and a move and gives a code; the decoder tells the move from the position and the code, so
moves that do alike may share one.

Axes: B batch, L tokens of a position, M moves of the vocabulary, D width of a code.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.cpu import Linear
from genpolicy.sequence import Layout
from genpolicy_policy_model.networks import VectorDynamics
from genpolicy_policy_model.quantise import Codebooks
from genpolicy_policy_model.vq_config import VQConfig


class ToldMoves(NamedTuple):
    """What an autoencoder makes of moves."""

    codes: Tensor
    """[B, 1]."""
    losses: Tensor
    """[B] cross-entropy of the moves in nats, with the codes' losses."""
    vectors: Tensor
    """[B, 1, D] what was quantised, without gradient."""


class MoveAutoencoder(nn.Module):
    """Encoder, codebook and decoder.

    Args:
        layout: Its state tokens are read, its moves told.
        config: Shapes.
    """

    def __init__(self, layout: Layout, config: VQConfig) -> None:
        super().__init__()
        num_moves, width = len(layout.moves), config.autoencoder_width
        self.commitment = config.commitment
        self.token = nn.Embedding(layout.num_symbols + 1, config.token_width)
        self.given = Linear(layout.state_length * config.token_width, width)
        self.encoder = VectorDynamics(num_moves, width, config.autoencoder_layers)
        self.to_code = Linear(width, config.code_width)
        self.codebooks = Codebooks(
            1,
            config.agent_codes,
            config.code_width,
            by=config.codebook,
            decay=config.decay,
            revive_below=config.revive_below,
        )
        self.decoder = VectorDynamics(config.agent_codes, width, config.autoencoder_layers)
        self.from_code = Linear(config.code_width, width)
        self.to_move = Linear(width, num_moves)

    def encode(self, states: Tensor, moves: Tensor) -> Tensor:
        """[B, 1, D] what moves [B] in positions [B, L] are before quantising."""
        encoded: Tensor = self.to_code(self.encoder(self._read(states)[:, None], moves))
        return encoded

    def codes(self, states: Tensor, moves: Tensor) -> Tensor:
        """[B] codes of moves [B] in positions [B, L]."""
        return self.codebooks.nearest(self.encode(states, moves))[:, 0]

    def forward(self, states: Tensor, moves: Tensor) -> ToldMoves:
        """Encode, quantise and tell moves."""
        vectors = self.encode(states, moves)
        quantised = self.codebooks(vectors)
        x = self._read(states) + self.from_code(quantised.vectors[:, 0])
        logits = self.to_move(self.decoder.changed(x[:, None])[:, 0]).float()
        losses = F.cross_entropy(logits, moves, reduction="none") + self.commitment * quantised.commitment
        if self.codebooks.by == "gradient":
            losses = losses + quantised.codebook
        return ToldMoves(quantised.codes, losses, vectors.detach())

    def _read(self, states: Tensor) -> Tensor:
        out: Tensor = self.given(self.token(states).flatten(1))
        return out


class OwnCodes(NamedTuple):
    """Own moves of windows as codes; K moves each."""

    codes: Tensor
    """[B, K] of the moves that were played, at random where none was."""
    policy: Tensor
    """[B, K+1, number of codes] target probabilities; all 0 where there are none."""
    losses: Tensor
    """[moves that are known] of the autoencoder."""


def own_codes(
    autoencoder: MoveAutoencoder,
    states: Tensor,
    moves: Tensor,
    policy: Tensor,
    known: Tensor,
    generator: torch.Generator,
    *,
    learns: bool,
) -> OwnCodes:
    """The codes of moves [B, K] in positions [B, K+1, L], and of target probabilities [B, K+1, M] of all moves.

    Args:
        autoencoder: Its codebook is moved if it ``learns``.
        states: Positions.
        moves: Moves in all but the last of them.
        policy: Target probabilities.
        known: [B, K] which moves were played.
        generator: Draws.
        learns: Whether this is a step of training.
    """
    num, told = autoencoder.codebooks.num_codes, autoencoder(states[:, :-1][known], moves[known])
    if learns:
        autoencoder.codebooks.update(told.vectors, told.codes, generator)
    codes = torch.randint(num, moves.shape, generator=generator, device=moves.device)
    codes[known] = told.codes[:, 0]
    at = policy.nonzero(as_tuple=True)
    with torch.no_grad():
        of = autoencoder.codes(states[at[0], at[1]], at[2])
    shares = policy.new_zeros((*policy.shape[:2], num))
    shares.index_put_((at[0], at[1], of), policy[at], accumulate=True)
    return OwnCodes(codes, shares, told.losses)
