"""The baseline: every token by one network call.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import torch

from genpolicy import declared_samplers
from genpolicy.diffusion.ranking import confidence, draw_symbols
from genpolicy.diffusion.samplers.base import Sampler, SamplerOutput, Step


class OneCallSampler(Sampler):
    """Decides every token by one network call, from T straight to 0.

    Given nothing but noise, the network predicts the marginal of each token, so this is the baseline of every sampler
    that takes more calls.
    """

    options = declared_samplers.ONE_CALL

    def set_timesteps(self, num_steps: int | None = None) -> None:
        """Lay the grid, which is T, 0 whatever ``num_steps`` is.

        Raises:
            ValueError: not 1..T.
        """
        super().set_timesteps(num_steps)
        super().set_timesteps(1)

    def advance(self, step: Step) -> SamplerOutput:
        """Decide every token."""
        if step.s != 0:
            raise ValueError(f"one_call goes straight to time 0, got a step from {step.t} to {step.s}")
        (symbol,) = step.draws(1)
        undecided = self.process.undecided(step.xt) & ~step.frozen
        sampled = torch.where(undecided, draw_symbols(step.clean, symbol, undecided, self.config.temperature), step.xt)
        scores = confidence(step.clean, sampled, self.config.score)
        return SamplerOutput(prev_sample=sampled, sampled=sampled, scores=scores)
