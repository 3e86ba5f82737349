"""Schedules: alpha(t), the probability that a token is still clean at time t.

Three different functions are called "cosine" in the literature, so each is named in full here. A schedule is a function
of t in [0, 1]; processes use its table over the integer times 0..T. alpha(0) is 1 and alpha(1) is 0, except in the
clipped table of ``cosine_hoogeboom``.
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
MAX_TIMESTEPS = 4_000
"""As many as have been published (Nichol and Dhariwal 2021). A sampler makes as many network calls unless told
otherwise, and a decision by a damaged configuration would seem to hang."""


@dataclass(frozen=True)
class Schedule:
    """One alpha(t)."""

    name: str
    alpha: Callable[[Tensor], Tensor]
    """alpha for float64 times in [0, 1], of any shape."""
    max_beta: float = 1.0
    """Largest 1 - alpha_t / alpha_{t-1} in the table."""

    def table(self, num_timesteps: int) -> Tensor:
        """[T+1] float64 alpha at the integer times 0..T.

        Raises:
            ConfigError: fewer than one timestep.
        """
        if not 1 <= num_timesteps <= MAX_TIMESTEPS:
            raise ConfigError(f"num_timesteps must be from 1 to {MAX_TIMESTEPS:,}, got {num_timesteps}")
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


def _nichol(t: Tensor) -> Tensor:
    rate = math.pi / 2 / (1 + COSINE_OFFSET)
    return torch.cos((t + COSINE_OFFSET) * rate) / math.cos(COSINE_OFFSET * rate)


SCHEDULES: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in (
        Schedule("linear", lambda t: 1 - t),
        Schedule("quadratic", lambda t: (1 - t) ** 2),
        Schedule("cubic", lambda t: (1 - t) ** 3),
        # Chang et al. 2022 (arXiv:2202.04200): the mask ratio cos(pi/2 r) with r = 1 - t.
        Schedule("cosine_maskgit", _maskgit),
        # Nichol & Dhariwal 2021 (arXiv:2102.09672), without their clip: alpha_T is 0.
        Schedule("cosine_squared", lambda t: _nichol(t) ** 2),
        # Its square root, as in Hoogeboom et al. 2021 (arXiv:2102.05379), clipped.
        Schedule("cosine_hoogeboom", _nichol, max_beta=MAX_BETA),
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
