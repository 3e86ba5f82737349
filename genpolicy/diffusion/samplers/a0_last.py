"""Easy-first with the first action decided last.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genpolicy import declared_samplers
from genpolicy.diffusion.ranking import least_sure, num_noised
from genpolicy.diffusion.samplers.easy_first import EasyFirstSampler


class A0LastSampler(EasyFirstSampler):
    """Easy-first, but the tokens ``last`` (the first action) stay masked until everything else is decided.

    The last network call decides them, with the whole imagined future visible. The number of other masked tokens runs
    to 0 at the grid's last time above 0, instead of at 0. The process must have a mask.
    """

    options = declared_samplers.A0_LAST
    decides_last = True

    @property
    def needs_visible_noise(self) -> bool:
        """Always, for the tokens that wait."""
        return True

    def _noise_again(self, rank_by: Tensor, frozen: Tensor, s: int) -> Tensor:
        if s == 0:
            return torch.zeros_like(frozen)
        postponed = torch.zeros_like(frozen)
        postponed[:, list(self.config.last)] = True
        postponed &= ~frozen
        others = frozen | postponed
        # The last call belongs to the postponed tokens: everything else must be done when it begins.
        end = int(self.timesteps[-2])
        num = (~others).sum(1)
        count = num_noised(num, max(s - end, 0), self.process.num_timesteps - end, self.config.rate)
        return least_sure(rank_by, others, count) | postponed
