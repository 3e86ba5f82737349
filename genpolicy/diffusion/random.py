"""Random draws: uniforms from one generator or from one for each row, categories, admitted symbols, times.

All uniforms are float64: float32 cuts the tail of small probabilities and so sharpens samples (Zheng et al. 2024,
arXiv:2409.02908). A generator may live on another device than the tensors; what it draws is moved.

Axes: B batch, N tokens, K symbols, R draws for each token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Generators = torch.Generator | Sequence[torch.Generator] | None
"""One stream for the whole batch, or one for each row, whose draws then do not depend on the other rows, or torch's."""


def uniforms(num_draws: int, shape: tuple[int, ...], generator: Generators, device: torch.device) -> Tensor:
    """[R, B, ...] float64 in [0, 1).

    Args:
        num_draws: R, independent draws for each element.
        shape: (B, ...).
        generator: One stream, or B of them, one for each row.
        device: Where the result lies.

    Raises:
        ValueError: a list of generators that is not as long as the batch.
    """
    if isinstance(generator, Sequence):
        if len(generator) != shape[0]:
            raise ValueError(f"got {len(generator)} generators for {shape[0]} rows; give one, or one for each row")
        rows = [
            torch.rand((num_draws, *shape[1:]), generator=g, dtype=torch.float64, device=g.device) for g in generator
        ]
        return torch.stack([row.to(device) for row in rows], dim=1)
    source = device if generator is None else generator.device
    return torch.rand((num_draws, *shape), generator=generator, dtype=torch.float64, device=source).to(device)


def categorical(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Index drawn from unnormalised float64 ``probabilities`` [..., K] by inversion of ``uniform`` [...] in [0, 1).

    A category of probability 0 is never drawn.
    """
    cumulative = probabilities.cumsum(-1)
    level = (uniform * cumulative[..., -1])[..., None]
    index = torch.searchsorted(cumulative, level, right=True)[..., 0]
    # Rounding can lift the level to the total; then the last category of positive probability is the right one.
    last = (cumulative < cumulative[..., -1:]).sum(-1)
    return torch.minimum(index, last)


def admitted_uniform(admitted: Tensor | None, num_symbols: int, uniform: Tensor) -> Tensor:
    """A symbol for each ``uniform`` [B, N], each admitted one equally likely.

    Args:
        admitted: [N, K] or [B, N, K] bool; None admits every symbol.
        num_symbols: K.
        uniform: [B, N] float64 in [0, 1).
    """
    if admitted is None:
        return (uniform * num_symbols).long().clamp(max=num_symbols - 1)
    count = admitted.cumsum(-1)
    size = count[..., -1]
    # The (r+1)-th admitted symbol is the first whose running count exceeds r.
    rank = torch.minimum((uniform * size).long(), (size - 1).clamp(min=0))
    if admitted.ndim == uniform.ndim:
        drawn = torch.searchsorted(count, rank.T.contiguous(), right=True).T
    else:
        drawn = torch.searchsorted(count, rank[..., None], right=True)[..., 0]
    return drawn.clamp(max=num_symbols - 1)


def low_discrepancy(offset: Tensor, num: int) -> Tensor:
    """[num] times (u + i/n) mod 1 of one uniform ``offset`` u (Kingma et al. 2021, arXiv:2107.00630).

    Each is uniform on [0, 1) by itself; together they cover it evenly.
    """
    return (offset + torch.arange(num, dtype=torch.float64, device=offset.device) / num) % 1


def beta_quantile(uniform: Tensor) -> Tensor:
    """The Beta(2, 2) variable below which a share ``uniform`` of the distribution lies.

    Its distribution function is 3x^2 - 2x^3; the root of that cubic in [0, 1] by trisection of an angle.
    """
    return 0.5 - torch.sin(torch.asin((1 - 2 * uniform).clamp(-1, 1)) / 3)


def stratified(uniform: Tensor) -> Tensor:
    """[n] times, one uniform draw in each n-th of [0, 1); MDLM's code (arXiv:2406.07524) maps them to [0.001, 1]."""
    num = len(uniform)
    place = torch.arange(num, dtype=torch.float64, device=uniform.device) / num
    return (uniform / num + place) % 1
