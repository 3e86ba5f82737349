"""Windows: the records as tensors, one row a position.

``TokenBatch`` is what learners over tokens see. A learner that needs other tensors (an image of the position, a pair of
positions) declares its own dataclass over ``Batch`` or ``TokenBatch``, and a ``WindowSource`` that makes it.

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.errors import ConfigError, require_one_of

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

    def rows(self, index: Tensor) -> Self:
        """Some of the windows."""
        return self.map(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> Self:
        """The batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


def concatenate(batches: Sequence[BatchT]) -> BatchT:
    """Several batches of one kind as one; where only some have columns in a field, the others get zeros."""
    kind = type(batches[0])
    return kind(**{f.name: _stacked([getattr(batch, f.name) for batch in batches]) for f in fields(kind)})


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    widest = max(parts, key=lambda part: part.numel() // max(len(part), 1))
    return torch.cat(
        [
            part if part.shape[1:] == widest.shape[1:] or part.numel() else part.new_zeros(len(part), *widest.shape[1:])
            for part in parts
        ]
    )


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

    def first(self, length: int) -> Self:
        """The windows up to a token."""
        tokens, frozen, target = (x[:, :length] for x in (self.tokens, self.frozen, self.target))
        return replace(self, tokens=tokens, frozen=frozen, target=target)


VIEWERS = ("mover", "absolute")
COLUMNS = ("played", "policy", "result", "value")


@dataclass(frozen=True)
class WindowOptions:
    """How token windows show the records of a split.

    Raises:
        ConfigError: an unknown viewer or column.
    """

    viewer: str = "mover"
    """Whose side tokens are seen from: ``mover``, the player to move at the root of a window, or ``absolute``."""
    redraw: bool = False
    """Where the records hold the value of every move, draw the label among the tied best ones each time a window is
    made, and walk on from record to record of the same split. A position that only another split holds is never
    labelled with a move; one that no split holds is labelled by the record's own line, if that line agrees with what
    was drawn so far. A record without move values begins with its line's move, one with a value alone keeps that; where
    no record of the split has move values, all keep their lines."""
    train_pad: bool = False
    """Whether PAD, after a game's end, is a target."""
    augment: bool = False
    """See each window through a symmetry of the game, drawn each time (the identity among them)."""
    seed: int = 0
    """Seed of everything drawn."""
    columns: tuple[str, ...] = ()
    """What else of its record a window keeps, of ``COLUMNS``; ``CachedWindows.column`` reads it."""
    cache_dir: Path | None = None
    """Folder for the cache; None puts it beside the data set, or in the user's cache where that is read-only or
    shipped."""

    def __post_init__(self) -> None:
        require_one_of("viewer", self.viewer, VIEWERS)
        for name in self.columns:
            if name not in COLUMNS:
                raise ConfigError(f"windows have no column {name!r}; there are: {', '.join(COLUMNS)}")


class WindowSource(ABC):
    """Random access to windows; stateless, so that a resumed run sees what an uninterrupted one would."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of windows."""

    @abstractmethod
    def batch(self, indices: NDArray[np.int64], epoch: int) -> Batch:
        """The windows of some indices; whatever is drawn (tied labels) depends on seed, epoch and index alone."""
