"""Discrete flow matching: mixture paths, their velocities, and the generalised KL (Gat et al. 2024, arXiv:2407.15595).

Time runs the other way here: 0 is noise, 1 is data. kappa_t = t^n is the probability that a token is already clean,
p_t = kappa_t d(x_1) + (1 - kappa_t) p_0 with d a point mass and p_0 the source, a mask or uniform.

Axes: S states of a token.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kappa(t: Tensor, power: float = 1.0) -> tuple[Tensor, Tensor]:
    """t^n and its derivative, for times in (0, 1]."""
    return t**power, power * t ** (power - 1)


def path(x1: Tensor, source: Tensor, kappa_t: Tensor) -> Tensor:
    """p_t [..., S] of tokens with clean ids ``x1`` [...] and a source [..., S]; kappa_t broadcasts with x1."""
    point = torch.nn.functional.one_hot(x1, source.shape[-1]).to(source.dtype)
    return kappa_t[..., None] * point + (1 - kappa_t)[..., None] * source


def jump_rate(kappa_t: Tensor, slope: Tensor) -> Tensor:
    """kappa' / (1 - kappa): how fast an undecided token is decided."""
    return slope / (1 - kappa_t)


def jump_probability(kappa_t: Tensor, slope: Tensor, step_size: Tensor | float) -> Tensor:
    """1 - exp(-h rate): the probability that an Euler step of size h takes the drawn x_1."""
    return -torch.expm1(-step_size * jump_rate(kappa_t, slope))


def velocity(posterior: Tensor, xt: Tensor, kappa_t: Tensor, slope: Tensor) -> Tensor:
    """rate * (p(x_1 | x_t) - d(x_t)), [..., S]: the probability flow towards data.

    Args:
        posterior: p(x_1 | x_t), a denoiser's [..., S].
        xt: [...].
        kappa_t: [...], below 1.
        slope: d kappa / dt, [...].
    """
    point = torch.nn.functional.one_hot(xt, posterior.shape[-1]).to(posterior.dtype)
    return jump_rate(kappa_t, slope)[..., None] * (posterior - point)


def backward_velocity(source: Tensor, xt: Tensor, kappa_t: Tensor, slope: Tensor) -> Tensor:
    """kappa' / kappa * (d(x_t) - p_0), [..., S]: the same path's flow read towards noise."""
    point = torch.nn.functional.one_hot(xt, source.shape[-1]).to(source.dtype)
    return (slope / kappa_t)[..., None] * (point - source)


def corrector_velocity(forward: Tensor, backward: Tensor, strength: float) -> Tensor:
    """(1 + c) u - c u_back: keeps the path's marginals for every c."""
    return (1 + strength) * forward - strength * backward


def generalised_kl(log_posterior: Tensor, xt: Tensor, x1: Tensor, kappa_t: Tensor, slope: Tensor) -> Tensor:
    """The bound's integrand for a denoiser, [...] nats per unit of time.

    -rate * [ p(x_t | x_t) - 1(x_t = x_1) + 1(x_t != x_1) log p(x_1 | x_t) ], where p(. | x_t) is the denoiser.

    Args:
        log_posterior: [..., S] log p(x_1 | x_t).
        xt: [...].
        x1: [...].
        kappa_t: Broadcasts with xt, below 1.
        slope: As ``kappa_t``.
    """
    at_xt = log_posterior.gather(-1, xt[..., None])[..., 0].exp()
    at_x1 = log_posterior.gather(-1, x1[..., None])[..., 0]
    bracket = torch.where(xt == x1, at_xt - 1, at_xt + at_x1)
    return -jump_rate(kappa_t, slope) * bracket
