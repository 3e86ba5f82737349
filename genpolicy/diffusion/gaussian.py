"""Gaussian diffusion in terms of gamma, the negative log signal-to-noise ratio (Kingma et al. 2021, arXiv:2107.00630).

z_t = alpha_t x + sigma_t eps with alpha_t^2 = sigmoid(-gamma_t) and sigma_t^2 = sigmoid(gamma_t): variance preserving.
gamma rises with t in [0, 1], linearly or by a monotone network.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

GAMMA_MIN, GAMMA_MAX = -13.3, 5.0  # defaults of the released VDM code


def linear_gamma(t: Tensor, gamma_min: float = GAMMA_MIN, gamma_max: float = GAMMA_MAX) -> Tensor:
    """gamma at times in [0, 1], of any shape."""
    return gamma_min + (gamma_max - gamma_min) * t


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


def step_weight(gamma_s: Tensor, gamma_t: Tensor, num_timesteps: int) -> Tensor:
    """Weight T/2 (exp(gamma_t - gamma_s) - 1) of ||eps - eps_hat||^2 in the T-step bound, one random step drawn."""
    return 0.5 * num_timesteps * torch.expm1(gamma_t - gamma_s)


def continuous_weight(gamma_slope: Tensor) -> Tensor:
    """Weight gamma'(t) / 2 of ||eps - eps_hat||^2 in the continuous-time bound."""
    return 0.5 * gamma_slope


def prior_kl(x: Tensor, gamma_1: Tensor) -> Tensor:
    """KL( N(alpha_1 x, sigma_1^2) || N(0, 1) ) of each number of ``x``, nats."""
    alpha_1, sigma_1 = alpha_sigma(gamma_1)
    # log sigma^2 by logsigmoid: sigma^2 is within 1e-2 of 1 and its own logarithm would lose digits.
    return 0.5 * (sigma_1**2 + (alpha_1 * x) ** 2 - 1 - nn.functional.logsigmoid(gamma_1))


class MonotoneGamma(nn.Module):
    """A learned gamma: a line plus a small network whose weights are used through abs(), so that it rises everywhere.

    Args:
        gamma_min: gamma at 0, exactly where ``pinned``.
        gamma_max: gamma at 1, exactly where ``pinned``.
        num_features: Hidden width.
        pinned: Rescale so that the ends are gamma_min and gamma_max; in the released VDM code they drift.
    """

    def __init__(
        self,
        gamma_min: float = GAMMA_MIN,
        gamma_max: float = GAMMA_MAX,
        num_features: int = 1024,
        *,
        pinned: bool = True,
    ) -> None:
        super().__init__()
        self.pinned, self.gamma_min, self.gamma_max = pinned, gamma_min, gamma_max
        self.slope = nn.Parameter(torch.tensor(gamma_max - gamma_min))
        self.offset = nn.Parameter(torch.tensor(gamma_min))
        self.into = nn.Parameter(torch.randn(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.out = nn.Parameter(torch.randn(num_features) * 0.01)

    def forward(self, t: Tensor) -> Tensor:
        """gamma at times in [0, 1], of any shape."""
        gamma = self._free(t)
        if not self.pinned:
            return gamma
        low, high = self._free(t.new_zeros(())), self._free(t.new_ones(()))
        return self.gamma_min + (self.gamma_max - self.gamma_min) * (gamma - low) / (high - low)

    def _free(self, t: Tensor) -> Tensor:
        hidden = 2 * torch.sigmoid((2 * t - 1)[..., None] * self.into.abs() + self.bias) - 1
        return self.offset + self.slope.abs() * t + (hidden * self.out.abs()).sum(-1) / len(self.out)
