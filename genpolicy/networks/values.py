"""Value logits read from the whole board.

A value token alone has to gather by attention what a position is worth. Here every square of the state that it values
also has a say, as in the value heads of Leela Chess Zero's networks, and neighbouring bins share what they learn:

    logits = <w_bin, h> + b_bin + sum_k hat_k(bin) f_k(h_0 .. h_{L-1})

with the token's features h, those of the state h_0 .. h_{L-1}, a layer for each of these and two over all of them side
by side (f, a ``Readout``), and hats that interpolate linearly between ``NUM_KNOTS`` points of the win probability. The
first and the last bin, a certain loss and a certain win, also have one of their own. It stays a softmax over the bins.

Axes: B batch, N tokens, W width, L places of a state, n value tokens, K points, V bins.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from genpolicy.networks.embedding import index_buffer
from genpolicy.networks.value_heads import Readout, ReadoutConfig
from genpolicy.sequence import KINDS, Layout

NUM_KNOTS = 8
"""Points, evenly spaced over the bins: of 8 and 16 the lower validation loss after 20,032 records of the chess sample
(S-V, one seed)."""


def hats(num_bins: int) -> NDArray[np.float32]:
    """[K, V] how much of each point each bin gets: interpolation, and two rows for the first and the last bin alone."""
    inner = np.linspace(0, num_bins - 1, min(NUM_KNOTS, num_bins))
    places = np.arange(num_bins)
    table = np.stack([np.interp(places, inner, row) for row in np.eye(len(inner))])
    ends = np.zeros((2, num_bins))
    ends[0, 0] = ends[1, -1] = 1.0
    return np.concatenate([table, ends]).astype(np.float32)


class BoardValues(Readout):
    """What the squares of a state add to the logits of its value.

    Args:
        layout: The tokens of a sequence, with values.
        width: W.
        inner: Width of the hidden layer; of each square a quarter as many features are kept.
    """

    def __init__(self, layout: Layout, width: int, inner: int) -> None:
        table, config = hats(layout.num_value_bins), ReadoutConfig(per_token=max(1, inner // 4), inner=inner)
        # Plain layers, as in all heads of tokens (``genpolicy.networks.heads``): the number of rows changes.
        super().__init__(layout.state_length, width, config, num_out=len(table), linear=nn.Linear)
        self.squares = index_buffer(layout.squares_of("value"))
        self.value_of = index_buffer(np.cumsum(layout.kinds == KINDS.index("value")) - 1)
        self.hats = nn.Buffer(torch.from_numpy(table), persistent=False)

    def of_tokens(self, hidden: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        """[n, V].

        Args:
            hidden: Features [B, N, W].
            rows: [n] row of the batch of each value token.
            tokens: [n] place of each value token in the sequence.
        """
        at = rows[:, None] * hidden.shape[1] + self.squares[self.value_of[tokens]]
        features = hidden.reshape(-1, hidden.shape[-1]).index_select(0, at.flatten())
        points = self(features.view(*at.shape, hidden.shape[-1]))
        return points @ self.hats.to(points.dtype)  # type: ignore[no-any-return]
