"""Continuous-time bounds: what the terms of the T-step bound become as T grows.

Each function is the integrand over t in (0, 1) for given noised tokens; the bound is its integral, and its expectation
over noise. alpha and its derivative come from a ``Schedule``.

Axes: B batch, N tokens, K symbols.
"""

from __future__ import annotations

import torch
from torch import Tensor


def masked_integrand(log_f: Tensor, xt: Tensor, x0: Tensor, alpha: Tensor, derivative: Tensor) -> Tensor:
    """[-alpha' / (1 - alpha)] times -log f(x_0) at masked tokens, 0 elsewhere, [B, N] nats per unit of time.

    Sahoo et al. 2024 (arXiv:2406.07524). The integral is the same for every schedule, and equals the mean over all
    orders of the autoregressive negative log-likelihood.

    Args:
        log_f: [B, N, K] log-probabilities of x_0.
        xt: [B, N], the mask being id K.
        x0: [B, N].
        alpha: Scalar, or broadcasts with [B, N]; below 1.
        derivative: As ``alpha``.
    """
    nll = -log_f.gather(-1, x0[..., None])[..., 0]
    return torch.where(xt == log_f.shape[-1], -derivative / (1 - alpha) * nll, 0.0)


def uniform_integrand(f: Tensor, xt: Tensor, x0: Tensor, alpha: Tensor, derivative: Tensor) -> Tensor:
    """The term of uniform noise for a leave-one-out prediction, [B, N] nats per unit of time.

    [alpha' / (K alpha)] { K/y_i - K/z_i - sum_j (y_j/y_i) log[(z_i y_j) / (z_j y_i)] } with i = x_t,
    y = K alpha x_0 + 1 - alpha and z = K alpha f + 1 - alpha: the limit of T times the plug-in bound's term (Schiff et
    al. 2024, arXiv:2412.10193).

    Args:
        f: [B, N, K] leave-one-out probabilities of x_0.
        xt: [B, N].
        x0: [B, N].
        alpha: Scalar, or broadcasts with [B, N, 1]; in (0, 1).
        derivative: As ``alpha``.
    """
    num = f.shape[-1]
    true = num * alpha * torch.nn.functional.one_hot(x0, num).to(f.dtype) + 1 - alpha
    model = num * alpha * f + 1 - alpha
    true_i, model_i = (v.gather(-1, xt[..., None]) for v in (true, model))
    log_ratio = (model_i / true_i * true / model).log()
    braces = num / true_i - num / model_i - (true / true_i * log_ratio).sum(-1, keepdim=True)
    return (derivative / (num * alpha) * braces)[..., 0]
