"""The sampler that follows the process's own reverse chain.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import torch

from genpolicy import declared_samplers
from genpolicy.diffusion.ranking import confidence, likeliest_symbols, tempered
from genpolicy.diffusion.samplers.base import Sampler, SamplerOutput, Step


class AncestralSampler(Sampler):
    """Draws x_s from the model's own reverse kernel, token by token (Austin et al. 2021, arXiv:2107.03006)."""

    options = declared_samplers.ANCESTRAL

    def advance(self, step: Step) -> SamplerOutput:
        """Draw every token of x_s."""
        xt, frozen = step.xt, step.frozen
        logits = tempered(step.logits, self.config.temperature)
        drawn = self.process.draw_previous(logits, xt, step.t, step.s, step.draws(2), admitted=step.admitted)
        prev = torch.where(frozen, xt, drawn)
        likeliest = likeliest_symbols(step.clean)
        # What the step did reveal is what it imagined; the rest is the likeliest guess.
        open_before, open_now = self.process.undecided(xt), self.process.undecided(prev)
        sampled = torch.where(frozen | ~open_before, xt, torch.where(open_now, likeliest, prev))
        scores = confidence(step.clean, sampled, "log_prob")
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=scores)
