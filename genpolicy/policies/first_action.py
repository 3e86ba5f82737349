"""The first action: its probabilities in a prediction, its legal mask, and the futures that were imagined with it.

Axes: B batch, N tokens of a sequence, M moves of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genpolicy.diffusion.logits import NEGATIVE_INFINITY, LogitGroup, TypedLogits
from genpolicy.policies.imagined import Candidates
from genpolicy.sequence import Layout


@dataclass(frozen=True)
class FirstCall:
    """First action according to the first network call of a decision, when everything imagined is masked."""

    marginal: Tensor
    """[B, M] float64 log-probabilities of the moves, p(a_0 | s) before the legal mask."""
    best: Tensor
    """[B] the likeliest symbol of the whole vocabulary, before the legal mask."""


@dataclass(frozen=True)
class Imagined:
    """A batch of futures, with the network's views of their first actions."""

    tokens: Tensor
    """[B, N] without masks in what the policy imagines."""
    first_call: FirstCall
    latest: Tensor
    """[B, M] float64 log-probabilities of the first action's moves in the last call, under the legal mask."""
    num_calls: int
    """Network calls, each of the whole batch."""
    searched: Candidates | None = None
    """What was imagined of several moves; None where one future is all there is."""


class FirstAction:
    """Finds the first action in a prediction, masks its illegal moves and reads its probabilities.

    Args:
        layout: Layout of the network's tokens.
        admitted: [N, K] bool, symbols that each token can hold.
        legal: [B, M] bool, the moves to choose from as the viewers see them; None masks nothing.
    """

    def __init__(self, layout: Layout, admitted: Tensor, legal: Tensor | None) -> None:
        self._layout, self._admitted, self.legal = layout, admitted, legal

    def repeated(self, num: int) -> FirstAction:
        """The same for every row ``num`` times over."""
        legal = None if self.legal is None else self.legal.repeat_interleave(num, dim=0)
        return FirstAction(self._layout, self._admitted, legal)

    def first_call(self, prediction: TypedLogits) -> FirstCall:
        """The record of the first network call."""
        group, place, is_move = self._find(prediction)
        admitted = self._admitted[self._layout.first_action]
        scores = group.logits[:, place].double().masked_fill(~admitted[group.symbols], NEGATIVE_INFINITY)
        return FirstCall(scores.log_softmax(-1)[:, is_move], group.symbols[scores.argmax(-1)])

    def masked(self, prediction: TypedLogits) -> TypedLogits:
        """The prediction with all probability of the first action on legal moves."""
        legal = self.legal
        if legal is None:
            return prediction
        held, place, is_move = self._find(prediction)
        allowed = torch.zeros(len(legal), len(held.symbols), dtype=torch.bool, device=held.logits.device)
        allowed[:, is_move] = legal
        logits = held.logits.clone()
        logits[:, place] = logits[:, place].masked_fill(~allowed, NEGATIVE_INFINITY)
        return prediction.map(lambda group: logits if group is held else group.logits)

    def moves(self, masked: TypedLogits) -> Tensor:
        """[B, M] float64 log-probabilities of the first action's moves."""
        layout = self._layout
        return masked.at(layout.first_action, layout.move_offset, layout.value_offset).log_softmax(-1)

    def _find(self, prediction: TypedLogits) -> tuple[LogitGroup, int, Tensor]:
        """The group that holds the first action, its place there, and which of the group's symbols [G] are moves."""
        group, place = prediction.holding(self._layout.first_action)
        return group, place, (group.symbols >= self._layout.move_offset) & (group.symbols < self._layout.value_offset)
