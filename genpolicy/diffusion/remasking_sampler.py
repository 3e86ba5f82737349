"""ReMDM: an ancestral sampler whose decided tokens can return to the mask (Wang et al. 2025, arXiv:2503.00307).

Axes: B batch, N tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers.configuration_utils import register_to_config

from genpolicy.diffusion.process import Process, require_known
from genpolicy.diffusion.ranking import confidence, draw_symbols, likeliest_symbols
from genpolicy.diffusion.remasking import sigma_cap, sigma_rescale
from genpolicy.diffusion.sampler_base import Sampler, SamplerOutput, Step
from genpolicy.errors import ConfigError

SIGMAS = {"cap": sigma_cap, "rescale": sigma_rescale}


class RemaskingSampler(Sampler):
    """Draws x_s from the remasking posterior, which keeps every marginal of the noise.

    A decided token returns to the mask with probability sigma; a masked one is decided with probability
    (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t). With ``eta`` 0 it is the ancestral sampler.

    Args:
        process: ``Process.config()``, an absorbing one.
        eta: Strength of remasking, in [0, 1].
        sigma: ``cap``: min(eta, the most that keeps the marginals); ``rescale``: eta times the most.
        temperature: 0 takes the likeliest symbol, else symbols are drawn.

    Raises:
        ConfigError: an option out of range, or a process without a mask.
    """

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self, process: dict[str, Any] | None = None, eta: float = 0.1, sigma: str = "cap", temperature: float = 1.0
    ) -> None:
        require_known("sigma", sigma, tuple(SIGMAS))
        if not 0 <= eta <= 1:
            raise ConfigError(f"eta must be in [0, 1], got {eta}")
        self._set_up(temperature)

    def adopt(self, process: Process) -> None:
        """Undo the noise of ``process``.

        Raises:
            ConfigError: its noise cannot be told from data.
        """
        if not process.noise_is_visible:
            raise ConfigError(
                f"remasking returns tokens to the mask, and process {process.kind!r} has none; take ancestral"
            )
        super().adopt(process)

    def _advance(self, step: Step) -> SamplerOutput:
        xt, frozen, process = step.xt, step.frozen, self.process
        alpha_t, alpha_s = process.alpha[step.t], process.alpha[step.s]
        sigma = SIGMAS[self.config.sigma](float(self.config.eta), alpha_t, alpha_s)
        decide = float((alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t))
        # One uniform draws the symbol, another the coin: together they would sharpen the samples.
        symbol, coin = step.draws(2)
        masked = process.undecided(xt) & ~frozen
        drawn = draw_symbols(step.clean, symbol, masked, self.config.temperature)
        again = torch.where(masked, coin >= decide, coin < float(sigma)) & ~frozen
        held = torch.where(masked, drawn, xt)
        prev = torch.where(again, process.mask, held)
        sampled = torch.where(masked & again, likeliest_symbols(step.clean), held)
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=confidence(step.clean, sampled, "log_prob"))
