"""Windows whose future belongs to another position: what a model learns of a future that says nothing.

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray

from genpolicy.data.counter_rng import draw
from genpolicy.data.window_source import CachedWindows
from genpolicy.data.windows import TokenBatch, WindowSource

_STREAM = 1 << 40  # apart from the streams of tied labels and symmetries


class UnrelatedFutures(WindowSource):
    """Windows with some tokens taken from other windows, drawn anew each time.

    Args:
        source: The windows.
        taken: [N] bool, the tokens that come from another window.
        seed: Of what is drawn; a draw depends on seed, epoch and index alone.
    """

    def __init__(self, source: CachedWindows, taken: NDArray[np.bool_], seed: int) -> None:
        self.source, self.seed = source, seed
        self._taken = torch.from_numpy(taken.copy())

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, indices: NDArray[np.int64], epoch: int) -> TokenBatch:
        """The windows of some indices."""
        own = self.source.batch(indices, epoch)
        count = np.full(len(indices), len(self.source))
        others = self.source.batch(draw(self.seed, epoch, indices, _STREAM, count), epoch)
        return dataclasses.replace(
            own,
            tokens=torch.where(self._taken, others.tokens, own.tokens),
            target=torch.where(self._taken, others.target, own.target),
        )
