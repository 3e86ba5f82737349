"""ReMDM: an ancestral sampler whose decided tokens can return to the mask (Wang et al. 2025, arXiv:2503.00307).

Axes: B batch, N tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genpolicy import declared_samplers
from genpolicy.diffusion.ranking import confidence, draw_symbols, likeliest_symbols
from genpolicy.diffusion.samplers.base import Sampler, SamplerOutput, Step


def remasking_sigma(kind: str, eta: float, alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    """sigma for eta in [0, 1]: ``cap`` is min(eta, largest), ``rescale`` eta * largest.

    The largest is min(1, (1 - alpha_s) / alpha_t): the most that a step can re-mask and still keep the marginals.
    """
    largest = torch.where(alpha_t > 0, (1 - alpha_s) / alpha_t.clamp(min=1e-300), 1.0).clamp(max=1.0)
    return largest.clamp(max=eta) if kind == "cap" else eta * largest


class RemaskingSampler(Sampler):
    """Draws x_s from the remasking posterior, which keeps every marginal of the noise.

    A decided token returns to the mask with probability sigma, which the options ``sigma`` and ``eta`` set; a masked
    one is decided with probability (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t). With ``eta`` 0 it is the ancestral
    sampler.
    """

    options = declared_samplers.REMASKING

    @property
    def needs_visible_noise(self) -> bool:
        """Always: it returns tokens to the mask."""
        return True

    def advance(self, step: Step) -> SamplerOutput:
        """Decide some masked tokens, and mask some decided ones."""
        xt, frozen, process = step.xt, step.frozen, self.process
        alpha_t, alpha_s = process.alpha[step.t], process.alpha[step.s]
        sigma = remasking_sigma(self.config.sigma, float(self.config.eta), alpha_t, alpha_s)
        decide = float((alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t))
        # One uniform draws the symbol, another the coin: together they would sharpen the samples.
        symbol, coin = step.draws(2)
        masked = process.undecided(xt) & ~frozen
        again = torch.where(masked, coin >= decide, coin < float(sigma)) & ~frozen
        drawn = draw_symbols(step.clean, symbol, masked & ~again, self.config.temperature)
        held = torch.where(masked, drawn, xt)
        prev = torch.where(again, process.mask, held)
        sampled = torch.where(masked & again, likeliest_symbols(step.clean), held)
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=confidence(step.clean, sampled, "log_prob"))
