"""Dropout that is cheap on a CPU.

On a CPU torch draws one Bernoulli number at a time, which costs more than the attention it is applied to. Here a 64-bit
draw makes four keep-or-drop choices. The seeds come from torch's default generator, so that restoring its state repeats
the choices. On other devices, and under ``torch.compile``, this is torch's own dropout.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.cpu.threads import in_parallel

_LEVELS = 1 << 16
"""A choice compares 16 random bits with a threshold, so the keep probability is a multiple of 1/65536."""

SWITCHED_OFF = os.environ.get("GENPOLICY_OWN_KERNELS") == "0"
"""Whether this process computes with torch's own functions alone."""
_FULL = (torch.float32, torch.float64)


def keep_threshold(p: float) -> tuple[int, float]:
    """The int16 threshold below which an element is kept, and the exact probability that it is; ``p`` in [0, 1)."""
    kept = max(1, round((1.0 - p) * _LEVELS))
    return kept - _LEVELS // 2, kept / _LEVELS


def keep_probability(p: float) -> float:
    """The exact probability of keeping at a nominal probability ``p`` of dropping."""
    return keep_threshold(p)[1]


def draw_seeds(num: int) -> list[int]:
    """Seeds for ``draw_keep`` from torch's default CPU generator."""
    seeds: list[int] = torch.empty(num, dtype=torch.int64).random_().tolist()
    return seeds


def draw_keep(kept: Tensor, p: float, seed: int) -> Tensor:
    """Draw keep-or-drop choices.

    Args:
        kept: uint8 of any shape, contiguous; filled with 1 where an element is kept and 0 where it is dropped.
        p: Probability of dropping, in [0, 1).
        seed: Same seed, same choices.

    Returns:
        The choices as int16, in the shape of ``kept``.
    """
    num = kept.numel()
    words = torch.empty((num + 3) // 4, dtype=torch.int64)
    # Without bounds random_ leaves the sign bit 0.
    words.random_(-(2**63), None, generator=torch.Generator().manual_seed(seed))
    bits = words.view(torch.int16)[:num].view(kept.shape)
    bits.lt_(keep_threshold(p)[0])  # in place and to the same type, which is several times as fast as to bool
    kept.copy_(bits)
    return bits


def uses_own_kernels(x: Tensor) -> bool:
    """Whether the CPU forms apply: in full precision, not switched off, and not while ``torch.compile`` traces them."""
    return not SWITCHED_OFF and x.device.type == "cpu" and x.dtype in _FULL and not torch.compiler.is_compiling()


class _Dropout(torch.autograd.Function):
    """x * mask / keep; the mask is kept as bytes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        kept = torch.empty(x.shape, dtype=torch.uint8)
        out = torch.empty(x.shape, dtype=x.dtype)
        ctx.scale = scale = 1.0 / keep_probability(p)
        seeds = draw_seeds(len(x))

        def work(rows: range) -> None:
            for row in rows:
                draw_keep(kept[row], p, seeds[row])
            own = slice(rows.start, rows.stop)  # few large operations: threads wait for each other to start one
            out[own].copy_(kept[own]).mul_(scale).mul_(x[own])

        in_parallel(work, len(x))
        ctx.save_for_backward(kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return kept.to(grads[0].dtype).mul_(ctx.scale).mul_(grads[0]), None


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each element with probability ``p`` and divide the others by the probability of keeping."""
    if not training or p == 0.0:
        return x
    if uses_own_kernels(x):
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
