"""Learned attention bias by how two tokens lie to each other: relative row, column and ply, or their classes.

    bias[h, i, j] = space[h, relation(i, j)] + time[h, ply_j - ply_i, whether i and j are the same place]

without the difference of plies where rotary positions tell it.

Two squares relate by (row_j - row_i, column_j - column_i), every difference with its own entry. Where one of the two is
no square, they relate by their classes: all squares are one class, every other place of a state (side to move, a hand
slot, ...) is one, actions and values are one each.

Axes: N tokens, H heads, R relations of places, U relations of tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.embedding import index_buffer
from genpolicy.sequence import KINDS, Layout


def token_classes(layout: Layout) -> NDArray[np.int64]:
    """[N] 0 for squares, 1 for actions, 2 for values, 3 + place for the other places of a state."""
    classes = np.where(layout.kinds == KINDS.index("action"), 1, 2)
    is_state = layout.places >= 0
    classes = np.where(is_state, 3 + layout.places, classes)
    return np.where(is_state & (layout.rows >= 0) & (layout.cols >= 0), 0, classes).astype(np.int64)


def place_relations(layout: Layout) -> tuple[NDArray[np.int64], int]:
    """[N, N] index of the relation between two tokens' places, and the number R of relations that occur."""
    classes = token_classes(layout)
    square = classes == 0
    rows, cols = layout.rows, layout.cols
    num_rows, num_cols = int(rows.max()) + 1, int(cols.max()) + 1
    row_step = rows[None, :] - rows[:, None] + num_rows - 1
    col_step = cols[None, :] - cols[:, None] + num_cols - 1
    num_classes = int(classes.max()) + 1
    by_square = row_step * max(1, 2 * num_cols - 1) + col_step
    by_class = max(1, 2 * num_rows - 1) * max(1, 2 * num_cols - 1) + classes[:, None] * num_classes + classes[None, :]
    raw = np.where(square[:, None] & square[None, :], by_square, by_class)
    found, index = np.unique(raw, return_inverse=True)
    return index.reshape(raw.shape), len(found)


def ply_relations(layout: Layout, differences: bool = True) -> tuple[NDArray[np.int64], int]:
    """[N, N] index of (ply_j - ply_i, or 0 without differences; same place or not), and how many there can be."""
    plies = layout.plies if differences else np.zeros_like(layout.plies)
    num_steps = 2 * int(plies.max()) + 1
    step = plies[None, :] - plies[:, None] + int(plies.max())
    same = (layout.places[:, None] == layout.places[None, :]) & (layout.places >= 0)[:, None]
    return step + num_steps * same.astype(np.int64), 2 * num_steps


class RelativeBias(nn.Module):
    """The bias of every layer and head, from tables that start at zero."""

    index: Tensor
    space_of: Tensor
    time_of: Tensor

    def __init__(self, layout: Layout, num_layers: int, num_heads: int, differences: bool = True) -> None:
        super().__init__()
        self.num_layers, self.num_heads, self.num_tokens = num_layers, num_heads, layout.length
        space, num_space = place_relations(layout)
        time, num_time = ply_relations(layout, differences)
        pairs, index = np.unique(np.stack([space.reshape(-1), time.reshape(-1)]), axis=1, return_inverse=True)
        self.register_buffer("index", index_buffer(index.reshape(-1)), persistent=False)
        self.register_buffer("space_of", index_buffer(pairs[0]), persistent=False)
        self.register_buffer("time_of", index_buffer(pairs[1]), persistent=False)
        self.space = nn.Parameter(torch.zeros(num_space, num_layers * num_heads))
        self.time = nn.Parameter(torch.zeros(num_time, num_layers * num_heads))
        self._cache: tuple[tuple[object, ...], Tensor] | None = None

    def forward(self) -> Tensor:
        """[layers, H, N, N]; built again only when the tables have changed where no gradient is needed."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._build()
        key = tuple((p.data_ptr(), p._version, p.dtype, p.device) for p in (self.space, self.time))
        if self._cache is None or self._cache[0] != key:
            self._cache = (key, self._build())
        return self._cache[1]

    def _build(self) -> Tensor:
        of_pair = F.embedding(self.space_of, self.space) + F.embedding(self.time_of, self.time)
        flat = F.embedding(self.index, of_pair)
        n = self.num_tokens
        return flat.t().contiguous().view(self.num_layers, self.num_heads, n, n)
