"""A sampler that decides the masked tokens of a row in their order."""

import torch

from genpolicy.diffusion import Sampler, SamplerOutput, Step
from genpolicy.diffusion.ranking import confidence, draw_symbols
from genpolicy.options import Option


class LeftToRight(Sampler):
    """From left to right, as many tokens in each step as the grid of times asks for."""

    options = (Option("temperature", float, 0.0, low=0.0, help="divides the logits; 0 takes the likeliest symbol"),)

    @property
    def needs_visible_noise(self) -> bool:
        return True  # a masked token must be known as one

    def advance(self, step: Step) -> SamplerOutput:
        (uniform,) = step.draws(1)
        masked = self.process.undecided(step.xt) & ~step.frozen
        drawn = draw_symbols(step.clean, uniform, masked, self.config.temperature)
        sampled = torch.where(masked, drawn, step.xt)
        free = ~step.frozen
        num_left = free.sum(1, keepdim=True) * step.s // self.process.num_timesteps
        from_the_end = free.flip(1).cumsum(1).flip(1)
        prev = torch.where(masked & (from_the_end <= num_left), self.process.mask, sampled)
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=confidence(step.clean, sampled, "log_prob"))
