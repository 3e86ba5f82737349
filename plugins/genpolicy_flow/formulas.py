"""The formulas of discrete flow matching: mixture paths, exact kernels, rates (Gat et al. 2024, arXiv:2407.15595).

Time tau runs from noise, 0, to data, 1. kappa = tau^n is the probability that a token is already clean, and the path is
p = kappa d(x_1) + (1 - kappa) p_0, with d a point mass and p_0 the source, a mask or uniform.

Axes: S states of a token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genpolicy.diffusion.multinomial import observed_gain


def kappa(tau: Tensor, power: float = 1.0) -> tuple[Tensor, Tensor]:
    """tau^n and its derivative, for times in [0, 1]; at 0 the derivative is infinite for powers below 1."""
    return tau**power, power * tau ** (power - 1)


def point_mass(x: Tensor, like: Tensor) -> Tensor:
    """d(x), [..., S] of the dtype of ``like`` [..., S], for ``x`` [...]."""
    return torch.nn.functional.one_hot(x, like.shape[-1]).to(like.dtype)


def path(x1: Tensor, source: Tensor, kappa_t: Tensor) -> Tensor:
    """p_t [..., S] of tokens with clean ids ``x1`` [...] and a source [..., S]; kappa_t broadcasts with x1."""
    return kappa_t[..., None] * point_mass(x1, source) + (1 - kappa_t)[..., None] * source


def decide_probability(kappa_t: Tensor, kappa_s: Tensor) -> Tensor:
    """(kappa_s - kappa_t) / (1 - kappa_t): that a token undecided at t is decided by s, exact for every step size."""
    return (kappa_s - kappa_t) / (1 - kappa_t)


def forget_probability(kappa_s: Tensor, kappa_ahead: Tensor) -> Tensor:
    """1 - kappa_s / kappa_ahead: the share of source that turns the path at a later time into the path at s."""
    return 1 - kappa_s / kappa_ahead


def mix(before: Tensor, after: Tensor, probability: Tensor) -> Tensor:
    """(1 - r) before + r after, [..., S] for a probability r [...]."""
    return (1 - probability)[..., None] * before + probability[..., None] * after


def jump_rate(kappa_t: Tensor, slope: Tensor) -> Tensor:
    """kappa' / (1 - kappa): how fast an undecided token is decided."""
    return slope / (1 - kappa_t)


def jump_probability(rate: Tensor, step_size: Tensor | float) -> Tensor:
    """1 - exp(-h rate): the probability that something of this rate happens in an Euler step of size h."""
    return -torch.expm1(-step_size * rate)


def step_bound(log_at_x1: Tensor, at_xt: Tensor, is_clean: Tensor, decide: Tensor) -> Tensor:
    """KL( (1 - r) d(x_t) + r d(x_1) || (1 - r) d(x_t) + r f ), [...] nats: what one step adds to the bound.

    Differentiable also where r is 1 or f is 0. T times its mean tends to the integral of the generalised KL.

    Args:
        log_at_x1: log f(x_1).
        at_xt: f(x_t).
        is_clean: Whether x_t = x_1.
        decide: r.
    """
    stays = 1 - decide + decide * at_xt
    # Logarithms of 0 are kept out of the graph: their gradient is not a number even where nothing reads it.
    same = torch.where(is_clean & (stays > 0), stays, 1.0)
    other = torch.where(is_clean | (decide >= 1), 1.0, stays)
    moved = torch.xlogy(1 - decide, 1 - decide) - (1 - decide) * other.log() - decide * log_at_x1
    return torch.where(is_clean, torch.where(stays > 0, -same.log(), torch.inf), moved)


def to_denoiser(log_f: Tensor, xt: Tensor, alpha_t: Tensor, num_admitted: Tensor) -> Tensor:
    """Denoiser logits [..., K] from leave-one-out ones [..., K] at observed tokens ``xt`` [...] (uniform source)."""
    gain = observed_gain(alpha_t, num_admitted).expand(xt.shape).to(log_f.dtype)
    return log_f.expand(*xt.shape, log_f.shape[-1]).scatter_add(-1, xt[..., None], gain[..., None])
