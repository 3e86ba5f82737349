"""An attention bias that depends on the row of the batch and on the layer."""

import torch
from einops import rearrange
from torch import Tensor, nn

from genpolicy.networks import AttentionBias, NetworkConfig
from genpolicy.sequence import Layout


class PooledBias(AttentionBias):
    """Every layer and head favours some tokens, by the mean of the root's features that enter the layer."""

    def __init__(self, layout: Layout, config: NetworkConfig, *, inner: int = 8) -> None:
        super().__init__(layout, config)
        self.code = nn.Linear(config.width, inner)
        self.maps = nn.Parameter(torch.empty(config.num_layers, inner, config.num_heads * layout.length))
        self.num_heads, self.num_given = config.num_heads, int(layout.given.sum())

    def of_layer(self, i: int, x: Tensor) -> Tensor:
        n = x.shape[1]
        favours = torch.relu(self.code(x[:, : self.num_given].mean(1))) @ self.maps[i]
        return rearrange(favours, "b (h n) -> b h 1 n", h=self.num_heads)[..., :n].expand(-1, -1, n, -1)
