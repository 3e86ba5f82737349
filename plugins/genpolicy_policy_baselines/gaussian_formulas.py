"""Gaussian diffusion with a continuous schedule: the formulas of Kingma et al. 2021 (VDM, arXiv:2107.00630).

gamma, the negative log signal-to-noise ratio, rises with t, linearly or by a learned monotone network, with
alpha_t^2 = sigmoid(-gamma_t) and sigma_t^2 = sigmoid(gamma_t), so that variance is preserved. t = 1 is the noisiest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

GAMMA_MIN, GAMMA_MAX = -13.3, 5.0  # defaults of the released VDM code


def alpha_sigma(gamma: Tensor) -> tuple[Tensor, Tensor]:
    """alpha and sigma, of the shape of ``gamma``."""
    return torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma).sqrt()


def signal_to_noise(gamma: Tensor) -> Tensor:
    """alpha^2 / sigma^2."""
    return torch.exp(-gamma)


@dataclass(frozen=True)
class AncestralStep:
    """z_s = ``of_zt`` z_t + ``of_eps`` eps_hat + ``std`` noise."""

    of_zt: Tensor
    of_eps: Tensor
    std: Tensor


def ancestral_step(gamma_s: Tensor, gamma_t: Tensor) -> AncestralStep:
    """Coefficients of the reverse step from t to the earlier s, of the shape of the arguments."""
    alpha_s, sigma_s = alpha_sigma(gamma_s)
    alpha_t, sigma_t = alpha_sigma(gamma_t)
    c = -torch.expm1(gamma_s - gamma_t)
    ratio = alpha_s / alpha_t
    return AncestralStep(ratio, -ratio * sigma_t * c, sigma_s * c.sqrt())


def prior_kl(x: Tensor, gamma_1: Tensor) -> Tensor:
    """KL( N(alpha_1 x, sigma_1^2) || N(0, 1) ) of each number of ``x``, nats."""
    alpha_1, sigma_1 = alpha_sigma(gamma_1)
    # log sigma^2 by logsigmoid: sigma^2 is within 1e-2 of 1 and its own logarithm would lose digits.
    return 0.5 * (sigma_1**2 + (alpha_1 * x) ** 2 - 1 - nn.functional.logsigmoid(gamma_1))


class MonotoneGamma(nn.Module):
    """A learned gamma: a line plus a small network whose weights are used through abs(), so that it rises everywhere.

    Args:
        gamma_min: gamma at 0.
        gamma_max: gamma at 1.
        num_features: Hidden width.
    """

    def __init__(self, gamma_min: float = GAMMA_MIN, gamma_max: float = GAMMA_MAX, num_features: int = 1024) -> None:
        super().__init__()
        self.gamma_min, self.gamma_max = gamma_min, gamma_max
        self.slope = nn.Parameter(torch.tensor(gamma_max - gamma_min))
        self.offset = nn.Parameter(torch.tensor(gamma_min))
        self.into = nn.Parameter(torch.randn(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.out = nn.Parameter(torch.randn(num_features) * 0.01)

    def forward(self, t: Tensor) -> Tensor:
        """gamma at times in [0, 1], of any shape; the ends are pinned, while in the released VDM code they drift."""
        gamma = self.unpinned(t)
        low, high = self.unpinned(t.new_zeros(())), self.unpinned(t.new_ones(()))
        return self.gamma_min + (self.gamma_max - self.gamma_min) * (gamma - low) / (high - low)

    def unpinned(self, t: Tensor) -> Tensor:
        """gamma before it is rescaled to its ends."""
        hidden = 2 * torch.sigmoid((2 * t - 1)[..., None] * self.into.abs() + self.bias) - 1
        return self.offset + self.slope.abs() * t + (hidden * self.out.abs()).sum(-1) / len(self.out)
