"""UniZero's network: an encoder of positions, a causal transformer over latents and moves, and heads on it.

Pu et al. 2024 (arXiv:2406.10667), two tokens a ply: what follows from a latent's token is the policy and the value,
what follows from a move's token is the reward and the next latent; here also whether the game is over.

Axes: B batch, L tokens of a position, T tokens of a sequence, W width, M moves.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.cpu import Linear
from genpolicy.networks.transformer import Trunk, draw_weights
from genpolicy.networks.value_heads import Readout
from genpolicy.sequence import Layout
from genpolicy_policy_model.networks import JudgingNetwork
from genpolicy_policy_model.unizero_config import GROUP, UniZeroConfig
from genpolicy_policy_model.unizero_transformer import CausalTransformer


class UniZeroNetwork(JudgingNetwork):
    """All weights of a UniZero model.

    Args:
        layout: That of ``s-a``: a position and a place for the move.
        config: Shapes and heads.
    """

    config: UniZeroConfig

    def __init__(self, layout: Layout, config: UniZeroConfig) -> None:
        super().__init__()
        self.config, width = config, config.width
        self.encoder = Encoder(layout, config)
        self.moves = nn.Embedding(len(layout.moves), width)
        self.turn = nn.Embedding(2, width)
        """Whether the player who sees the board is to move (0) or the other (1)."""
        self.transformer = CausalTransformer(width, config.layers, config.heads, config.context)
        self.to_latent = nn.Sequential(Linear(width, width), nn.GELU(), Linear(width, width))
        self.policy_head = Readout(1, width, config.readout, num_out=len(layout.moves))
        self._make_heads(1, width)
        nn.init.normal_(self.moves.weight, std=0.02)
        nn.init.zeros_(self.turn.weight)

    def latent_tokens(self, latents: Tensor, plies: Tensor) -> Tensor:
        """[B, T, W] tokens of latents [B, T, W] at some plies [B, T] since the first of the sequence."""
        turns = torch.zeros_like(plies) if self.config.side == "own" else plies % 2
        out: Tensor = latents + self.turn(turns)
        return out

    def interleaved(self, latents: Tensor, moves: Tensor, plies: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens z_0 a_0 z_1 a_1 ... of latents [B, K+1, W] and moves [B, K], [B, 2K+1, W], and their plies."""
        z, a = self.latent_tokens(latents, plies), self.moves(moves)
        pairs = torch.stack([z[:, :-1], a], 2).flatten(1, 2)
        return torch.cat([pairs, z[:, -1:]], 1), plies.repeat_interleave(2, 1)[:, :-1]

    def next_latent(self, features: Tensor) -> Tensor:
        """Latents [..., W] after the moves of some tokens' features [..., W]."""
        out: Tensor = self.to_latent(features)
        return normalised(out, self.config.norm)

    def policy(self, features: Tensor) -> Tensor:
        """[B, M] logits of the moves by features [B, W] of latents' tokens."""
        logits: Tensor = self.policy_head(features[:, None])
        return logits


class Encoder(nn.Module):
    """A latent of a position: the trunk of every other learner here, then one layer over all of its tokens."""

    def __init__(self, layout: Layout, config: UniZeroConfig) -> None:
        super().__init__()
        self.length, self.mask, self.norm = layout.length, layout.mask, config.norm
        self.trunk = Trunk(layout, config.network, layout.num_symbols + 1)
        with torch.no_grad():
            draw_weights(self.trunk, config.network.init_std, None)
        self.to_latent = Linear(layout.length * config.network.width, config.width)

    def forward(self, states: Tensor) -> Tensor:
        """Latents [B, W] of positions [B, L] as a player sees them, to move or not."""
        features = self.trunk(F.pad(states, (0, self.length - states.shape[1]), value=self.mask), None)
        return normalised(self.to_latent(features.flatten(1)), self.norm)


def normalised(latents: Tensor, norm: str) -> Tensor:
    """Latents [..., W] as ``UniZeroConfig.norm`` says."""
    if norm == "layer":
        return F.layer_norm(latents, latents.shape[-1:])
    return _grouped(latents).softmax(-1).flatten(-2)


def latent_losses(predicted: Tensor, true: Tensor, norm: str) -> Tensor:
    """[...] what latents [..., W] miss of the true ones: the mean KL of SimNorm's groups, or the mean squared error."""
    if norm == "layer":
        return (predicted - true).square().mean(-1)
    tiny = torch.finfo(predicted.dtype).tiny
    surplus = true.clamp(min=tiny).log() - predicted.clamp(min=tiny).log()
    return _grouped(true * surplus).sum(-1).mean(-1)


def _grouped(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:-1], -1, GROUP)


def faded(states: Tensor, fade: int, unknown: int) -> Tensor:
    """Positions [B, K+1, L] of which only what changed in the last plies can be seen; the rest is ``unknown``.

    The first position is the first of a game: nothing has changed there.
    """
    back = torch.arange(states.shape[1], device=states.device) - fade
    return states.where(states != states[:, back.clamp(min=0)], unknown)
