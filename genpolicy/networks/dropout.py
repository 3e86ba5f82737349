"""Dropout that is cheap on a CPU.

On a CPU torch draws one Bernoulli number at a time, which costs more than the attention it is applied to. Here four
keep-or-drop choices come from one 64-bit draw of torch's default generator, so that restoring its state repeats them.
On other devices, and under ``torch.compile``, torch's own dropout is used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 1 << 16
"""A choice compares 16 random bits with a threshold, so the keep probability is a multiple of 1/65536."""


def keep_threshold(p: float) -> tuple[int, float]:
    """The int16 threshold below which an element is kept, and the exact probability that it is.

    Args:
        p: Probability of dropping, in [0, 1).
    """
    kept = max(1, round((1.0 - p) * _LEVELS))
    return kept - _LEVELS // 2, kept / _LEVELS


def random_int16(num: int) -> Tensor:
    """``num`` uniform int16 numbers from torch's default CPU generator, shape [num]."""
    words = torch.empty((num + 3) // 4, dtype=torch.int64)
    words.random_(-(2**63), None)  # without bounds random_ leaves the sign bit 0
    return words.view(torch.int16)[:num]


def keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """A bool mask that is True where an element is kept, and 1 / (exact probability of keeping)."""
    threshold, keep = keep_threshold(p)
    return (random_int16(shape.numel()) < threshold).view(shape), 1.0 / keep


def uses_own_dropout(x: Tensor) -> bool:
    """Whether the cheap CPU form applies to this tensor."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


class _Dropout(torch.autograd.Function):
    """x * mask / keep, the mask stored as bool."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, p: float) -> Tensor:
        mask, scale = keep_mask(x.shape, p)
        ctx.save_for_backward(mask)
        ctx.scale = scale  # type: ignore[attr-defined]
        return (x * mask).mul_(scale)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return (grads[0] * mask).mul_(ctx.scale), None  # type: ignore[attr-defined]


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each element with probability ``p`` and divide the others by the probability of keeping."""
    if not training or p == 0.0:
        return x
    if uses_own_dropout(x):
        out: Tensor = _Dropout.apply(x, p)  # type: ignore[no-untyped-call]
        return out
    return F.dropout(x, p, training=True)


class Dropout(nn.Module):
    """``dropout`` as a module."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same out."""
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        """Shown by ``print``."""
        return f"p={self.p}"
