"""Windows: a view of the records as token tensors.

A learner that needs more of a window (an image of the position) hands out a subclass of ``Batch`` with more tensors.

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Some windows, as the network's vocabulary sees them."""

    tokens: Tensor
    """[B, N] int64 clean token ids; the layout's mask id where a token is unlabelled (the line was cut before it)."""
    frozen: Tensor
    """[B, N] bool, given tokens: shown clean, never noised, no loss."""
    target: Tensor
    """[B, N] bool, tokens that are trained on: labelled, not given, and not PAD unless PAD is trained."""
    indices: Tensor
    """[B] int64, index of each window in its source."""

    def to(self, device: torch.device | str) -> Batch:
        """The batch on another device."""
        return type(self)(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})


class WindowSource(ABC):
    """Random access to windows; stateless, so that a resumed run sees what an uninterrupted one would."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of windows."""

    @abstractmethod
    def batch(self, indices: NDArray[np.int64], epoch: int) -> Batch:
        """The windows of some indices; what is redrawn (tied labels) depends on seed, epoch and index alone."""
