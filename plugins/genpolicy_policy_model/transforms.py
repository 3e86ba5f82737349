"""MuZero's scaling of values that may be large (Pohlen et al. 2018, arXiv:1805.11593): h and its inverse.

h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x. The inverse solves y = sqrt(x + 1) - 1 + eps x for x >= 0: with
s = sqrt(x + 1) it is the quadratic eps s^2 + s - (1 + eps + y) = 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 0.001


def scaled(x: Tensor) -> Tensor:
    """h(x)."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + EPSILON * x


def unscaled(y: Tensor) -> Tensor:
    """The x with h(x) = y."""
    total = 1 + EPSILON + y.abs()
    # The usual root of the quadratic subtracts two nearly equal numbers; this form of it does not.
    root = 2 * total / (1 + torch.sqrt(1 + 4 * EPSILON * total))
    return y.sign() * (root - 1) * (root + 1)
