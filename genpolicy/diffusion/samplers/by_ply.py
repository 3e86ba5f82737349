"""Decoding block by block: a move, then the board after it, then the next move, ...

Axes: B batch, N tokens.
"""

from __future__ import annotations

import math
from collections import Counter

import torch

from genpolicy import declared_samplers
from genpolicy.diffusion.ranking import confidence, draw_symbols, least_sure
from genpolicy.diffusion.samplers.base import Sampler, SamplerOutput, Step


class ByPlySampler(Sampler):
    """Decides the blocks of a sequence in order, and within a block the surest tokens first.

    Every block gets one network call and the largest, the boards, share the calls that are left over; with fewer calls
    than blocks the last call decides all that remains. What is decided stays.
    """

    options = declared_samplers.BY_PLY
    orders_blocks = True

    def set_timesteps(self, num_steps: int | None = None) -> None:
        """See ``Sampler.set_timesteps``; also shares the calls among the blocks."""
        super().set_timesteps(num_steps)
        sizes = Counter(block for block in self.config.blocks if block >= 0)
        order = sorted(sizes)
        calls = dict.fromkeys(order, 1)
        largest = [block for block in order if sizes[block] == max(sizes.values())]
        for extra in range(self.num_inference_steps - len(order)):
            calls[largest[extra % len(largest)]] += 1
        plan = [(block, block, (number - 1 - i) / number) for block, number in calls.items() for i in range(number)]
        end = self.num_inference_steps
        self._plan: list[tuple[int, int, float]] = [*plan[: end - 1], (plan[end - 1][0], order[-1], 0.0)]
        """For each call: first block, last block, part of their tokens that is noise afterwards."""

    def blocks_at(self, t: int) -> tuple[int, int]:
        """See ``Sampler.blocks_at``."""
        return self._planned(t)[:2]

    def _planned(self, t: int) -> tuple[int, int, float]:
        return self._plan[int((self.timesteps > t).sum())]

    def advance(self, step: Step) -> SamplerOutput:
        """Decide tokens of the call's blocks; later ones stay noise."""
        first, last, left = self._planned(step.t)
        if step.s == 0:
            last, left = max(self.config.blocks), 0.0
        blocks = torch.tensor(self.config.blocks, device=step.xt.device).clamp(min=0)
        later = ~step.frozen & (blocks > last)
        here = ~step.frozen & (blocks >= first) & (blocks <= last)
        undecided = here & self.process.undecided(step.xt)
        symbol, noise = step.draws(2)
        drawn = draw_symbols(step.clean, symbol, undecided | later, self.config.temperature)
        sampled = torch.where(undecided | later, drawn, step.xt)
        scores = confidence(step.clean, sampled, self.config.score)
        count = (here.sum(1) * left).long()
        again = least_sure(scores.masked_fill(~undecided, math.inf), ~here, count) & undecided
        held = torch.where(here, sampled, step.xt)
        prev = torch.where(again, self.process.pure_noise(noise, admitted=step.admitted), held)
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=scores)
