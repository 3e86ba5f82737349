"""Absorbing chains with other steps: remasking (Wang et al. 2025, arXiv:2503.00307) and first hitting times.

The remasking posterior lets a decided token return to the mask and keeps every marginal q(x_s | x_0). The first-hitting
sampler (Zheng et al. 2024, arXiv:2409.02908) jumps to the time at which the next token is revealed.

Axes: K symbols; the mask is id K.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genpolicy.diffusion.schedules import Schedule


def largest_sigma(alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    """min(1, (1 - alpha_s) / alpha_t): the most that a step can re-mask and still keep the marginals."""
    return torch.where(alpha_t > 0, (1 - alpha_s) / alpha_t.clamp(min=1e-300), 1.0).clamp(max=1.0)


def sigma_cap(eta: float, alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    """min(eta, largest)."""
    return largest_sigma(alpha_t, alpha_s).clamp(max=eta)


def sigma_rescale(eta: float, alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    """eta * largest, for eta in [0, 1]."""
    return eta * largest_sigma(alpha_t, alpha_s)


def remasking_posterior(
    xt: Tensor, x0: Tensor, alpha_t: Tensor, alpha_s: Tensor, sigma: Tensor, num_symbols: int
) -> Tensor:
    """q_sigma(x_s | x_t, x_0), [..., K+1].

    A decided token returns to the mask with probability sigma; a masked one becomes x_0 with probability
    (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t).

    Args:
        xt: [...] ids 0..K.
        x0: [...] ids 0..K-1.
        alpha_t: Broadcasts with xt.
        alpha_s: As ``alpha_t``, above it.
        sigma: As ``alpha_t``, 0 to ``largest_sigma``; 0 is the usual posterior.
        num_symbols: K.
    """
    masked = xt == num_symbols
    clean = torch.where(masked, (alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t), 1 - sigma)
    held = torch.where(masked, x0, xt)
    out = torch.zeros((*clean.shape, num_symbols + 1), dtype=clean.dtype, device=xt.device)
    out.scatter_(-1, held.expand(clean.shape)[..., None], clean[..., None])
    out[..., num_symbols] += 1 - clean
    return out


def next_reveal_time(schedule: Schedule, t: Tensor, num_masked: Tensor, uniform: Tensor) -> Tensor:
    """Time in [0, t] at which the first of ``num_masked`` tokens is revealed, float64.

    alpha^-1( 1 - (1 - alpha(t)) u^(1/n) ); t u^(1/n) for the linear schedule.

    Args:
        schedule: Supplies alpha.
        t: Present time in (0, 1].
        num_masked: At least 1.
        uniform: In (0, 1].
    """
    goal = 1 - (1 - schedule.alpha(t)) * uniform ** (1 / num_masked)
    low, high = torch.zeros_like(goal), t.expand_as(goal).clone()
    for _ in range(60):  # bisection: alpha falls, and 2^-60 is below float64's steps near 1
        middle = (low + high) / 2
        later = schedule.alpha(middle) > goal
        low, high = torch.where(later, middle, low), torch.where(later, high, middle)
    return (low + high) / 2
