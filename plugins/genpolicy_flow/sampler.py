"""The sampler of flow matching: exact steps, or Euler's for comparison, and a corrector that keeps the marginals.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genpolicy.diffusion import Process, Sampler, SamplerOutput, Step
from genpolicy.diffusion.ranking import confidence, draw_symbols, likeliest_symbols
from genpolicy.errors import ConfigError
from genpolicy_flow import declared, formulas


class FlowSampler(Sampler):
    """Each undecided token takes the drawn symbol with some probability, then any token returns to noise with another.

    It plays with every process: a step depends on the source and on alpha alone.

    With ``kernel`` exact, a step of length h ends ``churn`` times h beyond its goal, at most at clean tokens, and comes
    back by drawing tokens from the source anew. That keeps the marginals for every step size; for h to 0 it is the
    corrector (1 + c) u - c u_back of Gat et al. 2024 (arXiv:2407.15595), and with a mask the posterior of ReMDM with
    sigma = 1 - alpha_s / alpha_ahead. ``euler`` takes the corrector's rates at the beginning of the step. The last step
    decides every token and churns none.
    """

    options = declared.FLOW

    def adopt(self, process: Process) -> None:
        """See ``Sampler.adopt``; ``euler`` with one timestep is a ``ConfigError`` too."""
        if self.config.kernel == "euler" and process.num_timesteps == 1:
            raise ConfigError(
                "kernel=euler needs num_timesteps of at least 2: the last step is exact; take kernel=exact"
            )
        super().adopt(process)

    def chances(self, t: int, s: int) -> tuple[Tensor, Tensor]:
        """Float64 probabilities that an undecided token takes its symbol, and that any token then returns to noise."""
        churn, alpha = self.config.churn, self.process.alpha
        if s == 0:
            return torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        if self.config.kernel == "euler":
            return self._euler(t, s, churn)
        ahead = self._alpha(s - min(s, churn * (t - s)))
        return formulas.decide_probability(alpha[t], ahead), formulas.forget_probability(alpha[s], ahead)

    def _alpha(self, time: float) -> Tensor:
        """alpha between two integer times, on the straight line: the marginals hold whatever it is."""
        alpha, low = self.process.alpha, math.floor(time)
        return alpha[low] if low == time else alpha[low] + (time - low) * (alpha[low + 1] - alpha[low])

    def _euler(self, t: int, s: int, churn: float) -> tuple[Tensor, Tensor]:
        """As ``chances``; the slope of kappa is that between t and t - 1, since a process has a table of alpha."""
        alpha_t, num = self.process.alpha[t], self.process.num_timesteps
        slope = num * (self.process.alpha[t - 1] - alpha_t)
        # At T every token is a draw from the source already.
        rates = (1 + churn) * formulas.jump_rate(alpha_t, slope), churn * (slope / alpha_t if t < num else alpha_t * 0)
        decide, forget = (formulas.jump_probability(rate, (t - s) / num) for rate in rates)
        return decide, forget

    def advance(self, step: Step) -> SamplerOutput:
        """Decide some tokens, and return some to noise."""
        xt, frozen, process = step.xt, step.frozen, self.process
        decide, forget = (float(chance) for chance in self.chances(step.t, step.s))
        coin, symbol, *more = step.draws(4 if self.config.churn else 2)
        is_open = process.undecided(xt) & ~frozen
        decided = is_open & (coin < decide)
        drawn = draw_symbols(step.clean, symbol, decided, self.config.temperature)
        prev = torch.where(decided, drawn, xt)
        sampled = torch.where(is_open & ~decided, likeliest_symbols(step.clean), prev)
        if more:
            again = ~frozen & (more[0] < forget)
            prev = torch.where(again, process.pure_noise(more[1], admitted=step.admitted), prev)
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=confidence(step.clean, sampled, "log_prob"))
