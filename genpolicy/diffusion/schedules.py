"""Schedules: alpha(t), the probability that a token is still clean at time t.

Three different functions are called "cosine" in the literature, so each is named in full. Every schedule exists twice:
as a table over the integer times 0..T, which processes use, and as a function of t in [0, 1] with its derivative, which
the continuous-time bounds use. alpha(0) = 1; alpha at the end is 0, but for the clipped table of ``cosine_hoogeboom``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from genpolicy.errors import ConfigError, did_you_mean

COSINE_OFFSET = 0.008  # s of Nichol & Dhariwal 2021 (arXiv:2102.09672), used by Hoogeboom et al. 2021 too
MAX_BETA = 0.999  # clip of the one-step noise of cosine_hoogeboom, so that its last alpha is small and not 0


@dataclass(frozen=True)
class Schedule:
    """One alpha(t)."""

    name: str
    alpha: Callable[[Tensor], Tensor]
    """alpha for float64 times in [0, 1], of any shape."""
    derivative: Callable[[Tensor], Tensor]
    """d alpha / dt, at most 0, for float64 times in [0, 1]."""
    max_beta: float = 1.0
    """Largest 1 - alpha_t / alpha_{t-1} in the table."""

    def table(self, num_timesteps: int) -> Tensor:
        """[T+1] float64 alpha at the integer times 0..T.

        Raises:
            ConfigError: fewer than one timestep.
        """
        if num_timesteps < 1:
            raise ConfigError(f"num_timesteps must be at least 1, got {num_timesteps}")
        times = torch.arange(num_timesteps + 1, dtype=torch.float64) / num_timesteps
        alpha = self.alpha(times)
        # Rounding leaves 1 - 1e-17 and 1e-33 where the formulas have 1 and 0; a mask must be certain at t = T.
        alpha[0], alpha[-1] = 1.0, 0.0
        for t in range(1, num_timesteps + 1):
            alpha[t] = torch.maximum(alpha[t], alpha[t - 1] * (1 - self.max_beta))
        return alpha


def _maskgit(t: Tensor) -> Tensor:
    # 1 - cos x loses digits near t = 1; 2 sin^2(x / 2) does not.
    return 2 * torch.sin(math.pi / 4 * (1 - t)) ** 2


def _maskgit_derivative(t: Tensor) -> Tensor:
    return -math.pi / 2 * torch.sin(math.pi / 2 * (1 - t))


_ANGLE_RATE = math.pi / 2 / (1 + COSINE_OFFSET)
_COS_AT_0 = math.cos(COSINE_OFFSET * _ANGLE_RATE)


def _angle(t: Tensor) -> Tensor:
    return (t + COSINE_OFFSET) * _ANGLE_RATE


SCHEDULES: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in (
        Schedule("linear", lambda t: 1 - t, lambda t: -torch.ones_like(t)),
        # Chang et al. 2022 (arXiv:2202.04200): the mask ratio cos(pi/2 r) with r = 1 - t.
        Schedule("cosine_maskgit", _maskgit, _maskgit_derivative),
        # Nichol & Dhariwal 2021 (arXiv:2102.09672), without their clip: alpha_T is 0.
        Schedule(
            "cosine_squared",
            lambda t: (torch.cos(_angle(t)) / _COS_AT_0) ** 2,
            lambda t: -_ANGLE_RATE * torch.sin(2 * _angle(t)) / _COS_AT_0**2,
        ),
        # The square root of the former, as in Hoogeboom et al. 2021 (arXiv:2102.05379), clipped.
        Schedule(
            "cosine_hoogeboom",
            lambda t: torch.cos(_angle(t)) / _COS_AT_0,
            lambda t: -_ANGLE_RATE * torch.sin(_angle(t)) / _COS_AT_0,
            max_beta=MAX_BETA,
        ),
    )
}


def get_schedule(name: str) -> Schedule:
    """The schedule of a name.

    Raises:
        ConfigError: no such schedule; the message lists those there are.
    """
    if name not in SCHEDULES:
        hint = did_you_mean(str(name), SCHEDULES)
        raise ConfigError(f"schedule {name!r} does not exist.{hint} There are: {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def alpha_table(name: str, num_timesteps: int) -> Tensor:
    """[T+1] float64 alpha at the integer times 0..T of the schedule of a name.

    Raises:
        ConfigError: no such schedule, or fewer than one timestep.
    """
    return get_schedule(name).table(num_timesteps)
