"""Copies: what an imagined square or counter is told raises the logit of that symbol, whatever symbol it is.

Without them the head learns symbol by symbol that a token usually holds what it is told, and a count that is seldom
seen is learned late. With them logits are those of the head, and

    logit[told] += c g(h),    g linear in the features h of the token,

a gated pointer (Gulcehre et al. 2016, arXiv:1603.08148) whose one place is known. It begins without effect.

Axes: B batch, n tokens, W width, G symbols of a group.
"""

from __future__ import annotations

from torch import Tensor, nn

from genpolicy.networks.embedding import StartsAtZero
from genpolicy.networks.shown_moves import ShownMoves

GATE = 4.0
"""c, by which the gate learns faster than the rest."""


class Copies(StartsAtZero):
    """The gate, and what is told by ``shown``."""

    def __init__(self, shown: ShownMoves, width: int) -> None:
        super().__init__()
        self._shown = [shown]  # in a list, so that its weights are the trunk's alone
        self.gate = nn.Linear(width, 1)

    def told(self, inputs: Tensor) -> Tensor:
        """[B, n] the symbol that each token of ids [B, n] is told, or one that no state holds; see ``ShownMoves``."""
        return self._shown[0].told_symbols(inputs)

    def forward(self, logits: Tensor, hidden: Tensor, at: Tensor) -> Tensor:
        """Logits [..., G] with the gates of ``hidden`` [..., W] added at columns ``at`` [...]; none where one is -1."""
        gates = GATE * self.gate(hidden) * (at >= 0)[..., None]
        return logits.scatter_add(-1, at.clamp(min=0)[..., None], gates.to(logits.dtype))
