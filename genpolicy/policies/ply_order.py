"""Noise ordered by ply: one block of a record is noised, those before it are clean, those after it are cut off.

Under noise over the whole future a move is seldom a question: it is masked while a changed square is in sight that
gives it away. Ordered by ply it is one whenever its own block is drawn. This is block diffusion (Arriola et
al. 2025, arXiv:2503.09573) with a move and the board after it as blocks.

-log p(future | root) is the sum over blocks of -log p(block | root, blocks before it), so the bound is the sum of the
blocks' bounds.

Axes: B batch, N tokens, K blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from genpolicy.data.windows import TokenBatch
from genpolicy.sequence import KINDS, Layout

ORDERS = ("joint", "ply")
STATES, MOVES = 0.15, 0.1
"""Part of the records in which a state, or a later move, is restored beside the first move, which is in all."""
DECAY = 0.6
"""How much less often each further move is drawn."""
CERTAIN = 0.8
"""Part of the records in which a drawn move is pure noise, as it is when it is decided, and not a move or its value."""
HIDDEN_VALUES = 0.5
"""Part of the records in which earlier values are not shown: who imagines the board after a move knows none yet."""


class PlyOrder:
    """Views of windows with one block of each noised.

    Args:
        layout: Of the windows.
        joint: Part of the records that are restored under noise over the whole future, too, for samplers that decide in
            another order.
    """

    def __init__(self, layout: Layout, joint: float = 0.0) -> None:
        self.blocks = torch.from_numpy(layout.blocks)
        self.is_value = torch.from_numpy(layout.kinds == KINDS.index("value"))
        firsts = [int((layout.blocks == block).argmax()) for block in range(int(layout.blocks.max()) + 1)]
        self.ends = [*firsts[1:], layout.length]
        """Number of tokens up to the end of each block."""
        self.mask, self.joint = layout.mask, joint
        is_state = torch.tensor([KINDS[layout.kinds[first]] == "state" for first in firsts])
        self._is_state = is_state.tolist()
        later = torch.where(is_state, 0.0, DECAY ** (~is_state).cumsum(0).double())
        later[0] = 0
        states = is_state.double()
        self.chances = torch.zeros(len(firsts), dtype=torch.float64)
        for share, among in ((STATES, states), (MOVES, later)):
            if among.any():
                self.chances += share * among / among.sum()
        """[K] float64, how often each block is restored in training."""
        self.chances[0] = 1.0

    def drawn(self, num: int, offset: Tensor) -> Tensor:
        """[num] the later blocks of some records in order, as evenly as they can be drawn; K: all blocks; 0: none.

        Args:
            num: Number of records.
            offset: [] uniform in [0, 1).
        """
        ends = torch.cat([self.chances[1:], self.chances.new_tensor([self.joint])]).cumsum(0)
        places = (torch.arange(num) + offset.double().cpu()) / num
        block = torch.searchsorted(ends, places, right=True) + 1
        return block.masked_fill(places >= ends[-1], 0)

    def view(self, batch: TokenBatch, block: int, hide_values: Tensor) -> TokenBatch:
        """The windows up to the end of a block, which is to be restored.

        Args:
            batch: B windows.
            block: 0 to K - 1.
            hide_values: [B] bool, whether the values before it are pure noise.
        """
        batch = batch.first(self.ends[block])
        tokens, frozen = batch.tokens, batch.frozen
        blocks, is_value = (x[: self.ends[block]].to(tokens.device) for x in (self.blocks, self.is_value))
        earlier = blocks < block
        # An unlabelled token is pure noise at every time, which is what a hidden one has to be.
        tokens = tokens.masked_fill(earlier & is_value & hide_values[:, None] & ~frozen, self.mask)
        frozen = frozen | (earlier & (tokens != self.mask))
        return dataclasses.replace(batch, tokens=tokens, frozen=frozen, target=batch.target & (blocks == block))

    def split(self, batch: TokenBatch, draws: Tensor) -> Iterator[tuple[TokenBatch, Tensor]]:
        """A batch for training: the first block of all records, then some records by the later block drawn for each.

        Args:
            batch: B windows.
            draws: [4, B] uniform in [0, 1).

        Yields:
            A part of the batch, and [n] bool, in which of its rows all that is restored is to be pure noise.
        """
        offset, order, hide, certain = draws
        block = self.drawn(len(batch), offset[0])[order.argsort().cpu()]
        for k in sorted({0, *block.tolist()}):
            rows = (block == k if k else block >= 0).nonzero()[:, 0].to(batch.tokens.device)
            part = batch.rows(rows)
            if k == len(self.ends):
                yield part, torch.zeros_like(rows, dtype=torch.bool)
            else:
                pure = (certain[rows] < CERTAIN) & (not self._is_state[k])
                yield self.view(part, k, hide[rows] < HIDDEN_VALUES), pure
