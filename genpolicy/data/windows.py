"""Windows: a view of the records as token tensors.

``TokenBatch`` is what learners over tokens see. A learner that needs other tensors (an image of the position, a pair of
positions) declares a dataclass of its own over ``Batch`` or ``TokenBatch``, and a ``WindowSource`` that makes it.

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BatchT = TypeVar("BatchT", bound="Batch")


@dataclass(frozen=True)
class Batch:
    """Some windows: a frozen dataclass whose fields are tensors with B rows each."""

    def __len__(self) -> int:
        rows: Tensor = getattr(self, fields(self)[0].name)
        return len(rows)

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The batch with each of its tensors changed."""
        return type(self)(**{f.name: change(getattr(self, f.name)) for f in fields(self)})

    def to(self, device: torch.device | str) -> Self:
        """The batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


def concatenate(batches: Sequence[BatchT]) -> BatchT:
    """Several batches of one kind as one."""
    kind = type(batches[0])
    return kind(**{f.name: torch.cat([getattr(batch, f.name) for batch in batches]) for f in fields(kind)})


@dataclass(frozen=True)
class TokenBatch(Batch):
    """Some windows, as the network's vocabulary sees them."""

    tokens: Tensor
    """[B, N] int64 clean token ids; the layout's mask id where a token is unlabelled (the line was cut before it)."""
    frozen: Tensor
    """[B, N] bool, given tokens: shown clean, never noised, no loss."""
    target: Tensor
    """[B, N] bool, tokens that are trained on: labelled, not given, and not PAD unless PAD is trained."""
    indices: Tensor
    """[B] int64, index of each window in its source."""


class WindowSource(ABC):
    """Random access to windows; stateless, so that a resumed run sees what an uninterrupted one would."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of windows."""

    @abstractmethod
    def batch(self, indices: NDArray[np.int64], epoch: int) -> Batch:
        """The windows of some indices; what is redrawn (tied labels) depends on seed, epoch and index alone."""
