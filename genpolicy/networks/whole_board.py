"""What the embedding learns of the whole board, as in Leela Chess Zero's BT4: a code of it, and gates for each place.

Axes: B batch, n tokens, W width, C numbers of a code, P squares and hands of a state.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.cpu import Linear
from genpolicy.networks.embedding import StartsAtZero, index_buffer
from genpolicy.sequence import Layout


class BoardCode(nn.Module):
    """Tells every square and hand what the root state holds everywhere: x_i + D code_i, then the activation.

    The codes are one linear layer of what stands on all squares and in all hands: code [P C] = A one_hot(root) + a. An
    imagined square has the code of the same place; other tokens have none. ``size`` is C.
    """

    def __init__(self, layout: Layout, width: int, size: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        tokenizer = layout.tokenizer
        coded = np.flatnonzero((tokenizer.rows >= 0) | (tokenizer.hands >= 0))
        admitted = tokenizer.admitted[coded]
        columns = np.full((len(coded), layout.num_symbols + 1), admitted.sum())  # the last column is cut off
        columns[:, : admitted.shape[1]][admitted] = np.arange(admitted.sum())
        place_of = np.full(layout.state_length + 1, len(coded))  # the last place has no code
        place_of[coded] = np.arange(len(coded))
        self.columns, self.coded = index_buffer(columns), index_buffer(coded)
        self.place_of = index_buffer(place_of[layout.places])
        self.activation = activation
        self.encode = Linear(int(admitted.sum()), len(coded) * size)
        self.decode = Linear(size, width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """[B, n, W] of features x [B, n, W] and ids [B, n]."""
        b, n = tokens.shape
        symbols = tokens[:, self.coded].clamp(max=self.columns.shape[1] - 1)
        columns = self.columns.gather(1, symbols.mT).mT
        hot = x.new_zeros(b, self.encode.in_features + 1).scatter(1, columns, 1.0)[:, :-1]
        codes = self.decode(self.encode(hot).view(b, len(self.coded), -1))
        return self.activation(x + F.pad(codes, (0, 0, 0, 1)).index_select(1, self.place_of[:n]))


class Gates(StartsAtZero):
    """x_i relu(1 + g_p) + h_p, with vectors of each place p of a state; other tokens stay as they are."""

    def __init__(self, layout: Layout, width: int) -> None:
        super().__init__()
        self.places = index_buffer(np.where(layout.places >= 0, layout.places, layout.state_length))
        self.scale = nn.Parameter(torch.empty(layout.state_length, width))
        self.shift = nn.Parameter(torch.empty(layout.state_length, width))

    def forward(self, x: Tensor) -> Tensor:
        """[B, n, W] in and out."""
        places = self.places[: x.shape[1]]
        scale, shift = (F.embedding(places, F.pad(table, (0, 0, 0, 1))) for table in (self.scale, self.shift))
        return x * F.relu(1 + scale) + shift
