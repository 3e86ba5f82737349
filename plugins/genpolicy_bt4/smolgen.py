"""Smolgen: the position itself says which squares look at which, as in Leela Chess Zero's BT3 and BT4.

In each layer, from the features x [L, W] of the root state's tokens:

    y = flatten(x C)                      C [W, c], no bias
    y = LN(swish(y U + u))                U [L c, h]
    y = LN(swish(y V + v))                V [h, H g], one code of width g for each head
    map[head] = reshape(y[head] G)        G [g, L L], no bias, shared by all heads and layers

with swish(z) = z / (1 + exp(-z)); c = 32, h = g = 256 in BT4 (lczero-training). The map is added to the scores of every
pair of tokens by their places in the state, imagined states included; ``relative`` is added for plies, moves and
values. G begins at zero, so attention begins as with ``relative``.

Axes: B batch, N tokens, L tokens of a state, W width, H heads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.errors import ConfigError
from genpolicy.networks import NetworkConfig
from genpolicy.networks.biases import RelativeBias
from genpolicy.networks.cpu import Linear
from genpolicy.networks.embedding import index_buffer
from genpolicy.sequence import Layout
from genpolicy_bt4.linears import draw_linears, linear_weights

MAX_STATE_TOKENS = 256
"""G has a row for each pair of a state's tokens: 65,536 at this limit."""


class SmolgenBias(RelativeBias):
    """A map of each head from the root state, and ``relative``.

    Args:
        layout: The tokens of a sequence; at most 256 for a state.
        config: The network's shape, in ``board`` geometry.
        compressed: c, the width of a token's part of the code.
        hidden: h.
        code: g, the width of a head's code.

    Raises:
        ConfigError: ``sequence`` geometry, or a state of more than 256 tokens.
    """

    def __init__(
        self, layout: Layout, config: NetworkConfig, *, compressed: int = 32, hidden: int = 256, code: int = 256
    ) -> None:
        length = layout.state_length
        if config.geometry != "board":
            raise ConfigError(
                f"bias smolgen needs network.geometry=board, got {config.geometry!r}; without it take relative or none"
            )
        if length > MAX_STATE_TOKENS:
            raise ConfigError(
                f"bias smolgen takes states of at most {MAX_STATE_TOKENS} tokens, got {length}; "
                f"network.bias=templates has no such limit"
            )
        for key, size in (("compressed", compressed), ("hidden", hidden), ("code", code)):
            if size < 1:
                raise ConfigError(f"network.bias_options.{key} must be at least 1, got {size}")
        super().__init__(layout, config)
        layers, heads = range(config.num_layers), config.num_heads
        self.num_heads, self.length = heads, length
        places = np.where(layout.places >= 0, layout.places, length)  # place ``length`` has no map
        self.places = index_buffer(places)
        self.compress = nn.ModuleList(Linear(config.width, compressed, bias=False) for _ in layers)
        self.hidden = nn.ModuleList(Linear(length * compressed, hidden) for _ in layers)
        self.norm_hidden = nn.ModuleList(nn.LayerNorm(hidden) for _ in layers)
        self.code = nn.ModuleList(Linear(hidden, heads * code) for _ in layers)
        self.norm_code = nn.ModuleList(nn.LayerNorm(heads * code) for _ in layers)
        self.generator = Linear(code, length * length, bias=False)

    def draw_weights(self, std: float, generator: torch.Generator | None) -> None:
        """Zeros in the tables of ``relative`` and in G; the codes keep the size of what they are computed from."""
        super().draw_weights(std, generator)
        draw_linears(self, generator)
        self.generator.weight.zero_()

    def of_layer(self, i: int, x: Tensor) -> Tensor:
        """[B, H, n, n] of features x [B, n, W]."""
        b, n, _ = x.shape
        root = x[:, : self.length]
        y = F.silu(self.hidden[i](self.compress[i](root).flatten(1)))
        y = F.silu(self.code[i](self.norm_hidden[i](y)))
        codes = self.norm_code[i](y).view(b, self.num_heads, -1)
        maps = self.generator(codes).view(b, self.num_heads, self.length, self.length)
        places = self.places[:n]
        return F.pad(maps, (0, 1, 0, 1)).index_select(2, places).index_select(3, places)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """All of smolgen's matrices; the tables of ``relative`` are none."""
        return linear_weights(self)

    def flops(self) -> float:
        """Two operations a weight, G's for each head."""
        compress, hidden, code = (
            sum(p.numel() for p in linear_weights(part)) for part in (self.compress, self.hidden, self.code)
        )
        maps = len(self.code) * self.num_heads * self.generator.weight.numel()
        return 2.0 * (self.length * compress + hidden + code + maps)
