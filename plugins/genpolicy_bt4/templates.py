"""Templates: a few maps of the offset between two tokens, mixed for each head by what the position is.

    template_t(i, j) = MLP_t(features of the offset from i to j)            T templates, shared by layers
    code = swish(LN(mean over the root state's tokens of x P))              of each layer
    bias[head, i, j] = sum_t (code M + m)[head, t] template_t(i, j)

Features of an offset are sines and cosines of its rows, columns and plies, as in Fourier features (Tancik et al. 2020,
arXiv:2006.10739), what kinds of token i and j are, and whether they have the same place. No weight depends on the size
of the board or on the horizon. That maps are mixed from a pooled code follows KataGo's transformers in idea; sizes and
features are our own. M and m begin at zero, so attention begins without a bias.

Axes: B batch, N tokens, W width, H heads, T templates, U different offsets, E features of an offset.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.errors import ConfigError
from genpolicy.networks import AttentionBias, NetworkConfig
from genpolicy.networks.biases import RelativeBias, token_classes
from genpolicy.networks.cpu import Linear
from genpolicy.networks.embedding import index_buffer
from genpolicy.sequence import Layout
from genpolicy_bt4.linears import draw_linears, linear_weights

WAVELENGTHS = (2.5, 5.0, 10.0, 20.0, 40.0)
"""In squares or plies. The longest pair of waves tells all offsets below 20 apart, the shortest sees a single one."""
_CLASSES = 4  # square, action, value, another place of a state


class TemplateBias(AttentionBias):
    """Templates of offsets, mixed by a pooled code of the root state.

    Args:
        layout: The tokens of a sequence.
        config: The network's shape.
        num_templates: T.
        hidden: Inner width of the templates' MLP.
        code: Width of the pooled code.

    Raises:
        ConfigError: an option below 1.
    """

    def __init__(
        self, layout: Layout, config: NetworkConfig, *, num_templates: int = 16, hidden: int = 64, code: int = 32
    ) -> None:
        for key, size in (("num_templates", num_templates), ("hidden", hidden), ("code", code)):
            if size < 1:
                raise ConfigError(f"network.bias_options.{key} must be at least 1, got {size}")
        super().__init__(layout, config)
        features, offset_of = offset_features(layout)
        self.features = nn.Buffer(torch.from_numpy(features).float(), persistent=False)
        self.offset_of = index_buffer(offset_of)
        layers, self.num_heads = range(config.num_layers), config.num_heads
        self.root, self.num_tokens = slice(0, layout.state_length), layout.length
        self.inner = Linear(features.shape[1], hidden)
        self.out = Linear(hidden, num_templates)
        self.pool = nn.ModuleList(Linear(config.width, code) for _ in layers)
        self.norm = nn.ModuleList(nn.LayerNorm(code) for _ in layers)
        self.mix = nn.ModuleList(Linear(code, config.num_heads * num_templates) for _ in layers)

    def draw_weights(self, std: float, generator: torch.Generator | None) -> None:
        """The mixture begins at zero."""
        del std
        draw_linears(self, generator)
        for weight in linear_weights(self.mix):
            weight.zero_()

    def of_layer(self, i: int, x: Tensor) -> Tensor:
        """[B, H, n, n] of features x [B, n, W]."""
        b, n, _ = x.shape
        templates = self.out(F.gelu(self.inner(self.features.to(x.dtype))))
        offset_of = self.offset_of.view(self.num_tokens, self.num_tokens)[:n, :n].reshape(-1)
        of_pair = F.embedding(offset_of, templates)
        code = F.silu(self.norm[i](self.pool[i](x[:, self.root]).mean(1)))
        weights = self.mix[i](code).view(b * self.num_heads, -1)
        bias: Tensor = weights @ of_pair.mT
        return bias.view(b, self.num_heads, n, n)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """All of its matrices."""
        return linear_weights(self)

    def flops(self) -> float:
        """Two operations a weight and use of it. The templates are computed once for all rows and count as none."""
        pooled = (self.root.stop - self.root.start) * sum(p.numel() for p in linear_weights(self.pool))
        mixed = sum(p.numel() for p in linear_weights(self.mix))
        maps = len(self.mix) * self.num_heads * self.out.out_features * self.num_tokens**2
        return 2.0 * (pooled + mixed + maps)


class RelativeTemplateBias(TemplateBias, RelativeBias):
    """The sum of ``TemplateBias`` and ``RelativeBias``: a network that has the latter can learn on with templates.

    It takes the options of ``TemplateBias``.
    """

    def draw_weights(self, std: float, generator: torch.Generator | None) -> None:
        """Both parts begin at zero."""
        TemplateBias.draw_weights(self, std, generator)
        RelativeBias.draw_weights(self, std, generator)


def offset_features(layout: Layout) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The features [U, E] of the different offsets, and which of them each pair of tokens has, [N N] row by row.

    The offset is that of j as seen from i; rows and columns count between two squares only.
    """
    classes = np.minimum(token_classes(layout), _CLASSES - 1)
    square = classes == 0
    both = square[:, None] & square[None, :]
    offsets = [np.where(both, of[None, :] - of[:, None], 0) for of in (layout.rows, layout.cols)]
    offsets.append(layout.plies[None, :] - layout.plies[:, None])
    same = (layout.places[:, None] == layout.places[None, :]) & (layout.places >= 0)[:, None]
    pair_class = classes[:, None] * _CLASSES + classes[None, :]
    raw = np.stack([offset.reshape(-1) for offset in (*offsets, pair_class, same)], axis=1)
    different, index = np.unique(raw, axis=0, return_inverse=True)
    angles = 2 * np.pi * different[:, :3, None] / np.array(WAVELENGTHS)
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=2)
    waves[:, :2] *= (different[:, 3] == 0)[:, None, None]  # no rows and columns but between squares
    kinds = np.eye(_CLASSES**2)[different[:, 3]]
    return np.concatenate([waves.reshape(len(different), -1), kinds, different[:, 4:]], axis=1), index.reshape(-1)
