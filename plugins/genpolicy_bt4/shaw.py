"""Shaw: vectors of the relative place take part in attention (Shaw et al. 2018, arXiv:1803.02155).

In each layer and head, for tokens i and j whose places relate by r (``genpolicy.networks.biases.place_relations``):

    score[i, j] = (q_i . k_j + q_i . a^Q_r + k_j . a^K_r) / sqrt(D)
    out_i = sum_j softmax(score)[i, j] (v_j + a^V_r)

Shaw et al. have the first and the last vector; Chessformer (Monroe & Chalmers 2024, arXiv:2409.12272) has all three.
The vectors know places alone: what lies in which ply is told by the embedding.

Axes: B batch, N tokens, H heads, D features of a head, R relations.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks import AttentionBias, NetworkConfig
from genpolicy.networks.biases import place_relations
from genpolicy.networks.embedding import StartsAtZero, index_buffer
from genpolicy.sequence import Layout


class ShawBias(StartsAtZero, AttentionBias):
    """Vectors a^Q, a^K and a^V of each relation, layer and head; zeros at the start.

    Args:
        layout: The tokens of a sequence.
        config: The network's shape.
        values: Whether values get a^V, too.
    """

    def __init__(self, layout: Layout, config: NetworkConfig, *, values: bool = True) -> None:
        super().__init__(layout, config)
        relations, num_relations = place_relations(layout)
        self.index = index_buffer(relations)
        shape = (config.num_layers, num_relations, config.width)
        self.of_query = nn.Parameter(torch.empty(shape))
        self.of_key = nn.Parameter(torch.empty(shape))
        self.of_value = nn.Parameter(torch.empty(shape)) if values else None
        terms = 3 if values else 2
        self._flops = 2.0 * terms * config.num_layers * config.width * layout.length**2

    def attend(self, i: int, qkv: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        """[B, N, H, D]; see ``AttentionBias.attend``."""
        query, key, value = qkv.unbind(2)
        scores = torch.einsum("bihd,bjhd->bhij", query, key)
        scores = scores + torch.einsum("bihd,ijhd->bhij", query, self._vectors(self.of_query, i, qkv))
        scores = scores + torch.einsum("bjhd,ijhd->bhij", key, self._vectors(self.of_key, i, qkv))
        scores = scores * qkv.shape[-1] ** -0.5
        if bias is not None:
            scores = scores + bias
        probabilities = F.dropout(scores.softmax(-1), dropout)
        out = torch.einsum("bhij,bjhd->bihd", probabilities, value)
        if self.of_value is not None:
            out = out + torch.einsum("bhij,ijhd->bihd", probabilities, self._vectors(self.of_value, i, qkv))
        return out

    def _vectors(self, table: nn.Parameter, i: int, qkv: Tensor) -> Tensor:
        """[n, n, H, D] the vectors of layer ``i`` for each pair of the n tokens of ``qkv``."""
        n, heads = qkv.shape[1], qkv.shape[3]
        return F.embedding(self.index[:n, :n], table[i]).view(n, n, heads, -1)

    def flops(self) -> float:
        """Each kind of vector costs as much as the product of queries and keys."""
        return self._flops
