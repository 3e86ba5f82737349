"""Encoder of a position and comparator of two codes.

Axes: B batch, L tokens, F bits, C code width.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional

from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.networks.transformer import Trunk, draw_weights
from genpolicy.sequence import Layout
from genpolicy_policy_deepchess.config import ComparatorConfig
from genpolicy_policy_deepchess.features import bit_table, bits_of


class BitsEncoder(nn.Module):
    """Pos2Vec: layers with ReLU over bits, and tied decoders for the first stage."""

    def __init__(self, game: Game[Any], config: ComparatorConfig) -> None:
        super().__init__()
        table, self.num_bits = bit_table(game, config.drop)
        self.table = nn.Buffer(torch.from_numpy(table), persistent=False)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise([self.num_bits, *config.widths])])
        self.offsets = nn.ParameterList([nn.Parameter(torch.zeros(w)) for w in [self.num_bits, *config.widths[:-1]]])
        self.dropout = nn.Dropout(config.dropout)

    def bits(self, tokens: Tensor) -> Tensor:
        """[B, F] of state tokens [B, L]."""
        return bits_of(tokens, self.table, self.num_bits)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, C] codes of state tokens [B, L]."""
        x = self.bits(tokens)
        for layer in self.layers:
            x = self.dropout(functional.relu(layer(x)))
        return x

    def reconstruction(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of all layers' losses, and the first's: binary cross-entropy a bit, in nats.

        Each layer restores what comes into it, and learns from that alone, so that all are trained at once as the paper
        trains one after the other. Weights are tied: the decoder of W is its transpose.
        """
        x = self.bits(tokens)
        losses: list[Tensor] = []
        for layer, offset in zip(self.layers, self.offsets, strict=True):
            assert isinstance(layer, nn.Linear)
            hidden = functional.relu(layer(x))
            restored = functional.linear(hidden, layer.weight.t(), offset)
            loss = functional.mse_loss if losses else functional.binary_cross_entropy_with_logits
            losses.append(loss(restored, x))
            x = hidden.detach()
        return torch.stack(losses).sum(), losses[0]


class TrunkEncoder(nn.Module):
    """The library's transformer over state tokens; a code is a projection of the mean of its tokens.

    Raises:
        ConfigError: a network that is conditioned on the time of a noise, of which positions have none.
    """

    def __init__(self, game: Game[Any], config: ComparatorConfig) -> None:
        super().__init__()
        if timed := config.network.time_conditioning:
            raise ConfigError(
                f"learner.network.time_conditioning={str(timed).lower()}: a comparator reads positions without noise, "
                "which have no time; set it to false"
            )
        layout = Layout(game, "s-a", 1)
        self.trunk = Trunk(layout, config.network, layout.num_symbols + 1)
        self.out = nn.Linear(config.network.width, config.widths[-1])
        with torch.no_grad():
            draw_weights(self.trunk, config.network.init_std, None)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, C] codes of state tokens [B, L]."""
        code: Tensor = self.out(self.trunk(tokens, None).mean(1))
        return code


class ComparatorNetwork(nn.Module):
    """Says how much better one position is than another for player 0, in log-odds."""

    def __init__(self, game: Game[Any], config: ComparatorConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = BitsEncoder(game, config) if config.encoder == "mlp" else TrunkEncoder(game, config)
        layers: list[nn.Module] = []
        for a, b in pairwise([2 * config.widths[-1], *config.head]):
            layers += [nn.Linear(a, b), nn.ReLU(), nn.Dropout(config.dropout)]
        self.head = nn.Sequential(*layers, nn.Linear([2 * config.widths[-1], *config.head][-1], 1))

    def codes(self, positions: Tensor) -> Tensor:
        """[B, V, C] codes of positions [B, 2, L] as player 0 and, with ``mirror``, as player 1 sees them."""
        views = positions if self.config.mirror else positions[:, :1]
        codes: Tensor = self.encoder(rearrange(views, "b v l -> (b v) l"))
        return rearrange(codes, "(b v) c -> b v c", v=views.shape[1])

    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        """[B] log-odds that the first is better for player 0, of codes [B, V, C]."""
        answers: Tensor = self.head(torch.cat([first, second], -1))[..., 0]  # [B, V]
        if self.config.antisymmetric:
            answers = (answers - self.head(torch.cat([second, first], -1))[..., 0]) / 2
        # What player 1 sees is the position with the colours exchanged: there the worse one is better.
        return (answers[:, 0] - answers[:, 1]) / 2 if self.config.mirror else answers[:, 0]

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """[B] log-odds of positions [B, 2, L]."""
        return self.compare(self.codes(first), self.codes(second))
