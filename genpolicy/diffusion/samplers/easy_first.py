"""Easy-first decoding: keep what the network is surest of, and return the rest to noise.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genpolicy import declared_samplers
from genpolicy.diffusion.ranking import confidence, draw_symbols, least_sure, num_noised
from genpolicy.diffusion.samplers.base import Sampler, SamplerOutput, Step


class EasyFirstSampler(Sampler):
    """Keeps the surest tokens and returns the others to noise (Ye et al. 2025, arXiv:2502.19805).

    Of the n tokens of a row that are not frozen, the option ``rate`` says how many are noise after a step to s. Tied
    tokens are kept from left to right. Without ``commit`` all tokens compete anew at every step, as in the paper, so a
    decided token can return to noise; with it a decided token stays.

    ``noise`` is the c of the Gumbel noise c s/T that is added to the ranking alone (0.5 in the paper's released
    ``stochastic0.5``).
    """

    options = declared_samplers.EASY_FIRST

    @property
    def needs_visible_noise(self) -> bool:
        """Where decided tokens stay."""
        return bool(self.config.commit)

    def advance(self, step: Step) -> SamplerOutput:
        """Decide every token, and return the least sure of them to noise."""
        config, clean, xt, frozen = self.config, step.clean, step.xt, step.frozen
        symbol, ranking, noise = step.draws(3)
        undecided = self.process.undecided(xt) & ~frozen
        drawn = draw_symbols(clean, symbol, undecided, config.temperature)
        sampled = torch.where(undecided, drawn, xt)
        scores = confidence(clean, sampled, config.score)
        rank_by = scores
        if config.noise > 0:
            gumbel = -torch.log(-torch.log(ranking.clamp(min=torch.finfo(torch.float64).tiny)))
            rank_by = scores + config.noise * step.s / self.process.num_timesteps * gumbel
        if config.commit:
            rank_by = rank_by.masked_fill(~undecided & ~frozen, math.inf)
        again = self._noise_again(rank_by, frozen, step.s)
        if config.commit:
            again = again & undecided
        prev = torch.where(again, self.process.pure_noise(noise, admitted=step.admitted), sampled)
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=scores)

    def _noise_again(self, rank_by: Tensor, frozen: Tensor, s: int) -> Tensor:
        num = (~frozen).sum(1)
        return least_sure(rank_by, frozen, num_noised(num, s, self.process.num_timesteps, self.config.rate))


class EasyFirstCommitSampler(EasyFirstSampler):
    """Easy-first that keeps what is decided."""

    options = declared_samplers.EASY_FIRST_COMMIT


class StochasticSampler(EasyFirstSampler):
    """Easy-first with the ranking noise of the paper's released code."""

    options = declared_samplers.STOCHASTIC
