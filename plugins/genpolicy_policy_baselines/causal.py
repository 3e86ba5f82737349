"""The same trunk from left to right: every imagined token is predicted from those before it.

The given prefix sees itself in full (a prefix language model); an imagined token sees the prefix, itself and the tokens
imagined before it. The features of token n - 1 predict token n. A factorised move head also reads the squares of the
state in which the move is made, and ``board_values`` those of the state that is valued; all of them lie before the move
or value, so their own features are read.

Axes: B batch, N tokens, W width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from genpolicy.diffusion.logits import LogitGroup, TypedLogits
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.heads import TypedHead
from genpolicy.networks.transformer import DenoisingTransformer
from genpolicy.sequence import KINDS, Layout


class CausalTransformer(DenoisingTransformer):
    """Predicts each imagined token from the tokens before it.

    Args:
        layout: The tokens of a sequence; the given ones must come first.
        config: The network's shape.
        num_input_symbols: Symbols that the input may hold; the layout's and the mask if None.
        options: Arguments of ``DenoisingTransformer``.

    Raises:
        ConfigError: the sequence does not begin with given tokens, so the first would be predicted from nothing.
    """

    def __init__(
        self, layout: Layout, config: NetworkConfig, num_input_symbols: int | None = None, **options: Any
    ) -> None:
        super().__init__(layout, config, num_input_symbols, causal=True, **options)
        given = torch.from_numpy(layout.given.copy())
        num_given = int(given.sum())
        if num_given == 0 or not bool(given[:num_given].all()):
            raise ConfigError(f"paradigm {layout.paradigm!r} does not begin with given tokens")
        before = torch.ones(layout.length, layout.length, dtype=torch.bool).tril()
        self.visible = nn.Buffer(before | given, persistent=False)
        reads_board = layout.kinds == KINDS.index("action")
        if isinstance(self.head, TypedHead) and self.head.values is not None:
            reads_board |= layout.kinds == KINDS.index("value")
        self.reads_board = nn.Buffer(torch.from_numpy(reads_board) & ~given, persistent=False)

    def forward(self, tokens: Tensor, t: Tensor | None = None, visible: Tensor | None = None) -> TypedLogits:
        """Logits of every imagined token, from the ids [B, N] before it.

        ``visible`` hides more than the order does. Logits at given tokens mean nothing.
        """
        shifted, mixed = self._features(tokens, t, visible)
        others = TypedLogits.of(self.head(shifted, tokens))
        readers = TypedLogits.of(self.head(mixed, tokens)) if bool(self.reads_board.any()) else others
        groups = tuple(
            r if bool(self.reads_board[r.positions].all()) else _with_readers(o, r, self.reads_board)
            for o, r in zip(others.groups, readers.groups, strict=True)
        )
        return TypedLogits(groups, others.num_tokens, others.num_symbols)

    def token_nll(
        self,
        tokens: Tensor,
        t: Tensor | None,
        targets: Tensor,
        where: Tensor,
        visible: Tensor | None = None,
        *,
        admitted: Tensor | None = None,
    ) -> Tensor:
        """-log p(target | tokens before it), in nats, at the tokens of ``where`` [B, N] (bool), flat, row-major;
        ``admitted`` as in ``DenoisingTransformer``."""
        shifted, mixed = self._features(tokens, t, visible)
        nll = shifted.new_zeros(where.shape, dtype=torch.float32 if shifted.dtype != torch.float64 else None)
        for features, chosen in ((shifted, where & ~self.reads_board), (mixed, where & self.reads_board)):
            part = self.head.nll(features, targets, chosen, tokens, admitted)
            nll = nll.masked_scatter(chosen, part.to(nll.dtype))
        return nll[where]

    def _features(self, tokens: Tensor, t: Tensor | None, visible: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features [B, N, W] of the token before each, and each token's own ones but at those that read the board."""
        hidden = self.trunk(tokens, t, self.visible if visible is None else self.visible & visible)
        shifted = hidden.roll(1, dims=1)
        return shifted, torch.where(self.reads_board[:, None], shifted, hidden)


def _with_readers(others: LogitGroup, readers: LogitGroup, reads_board: Tensor) -> LogitGroup:
    """A group of tokens that read the board and others (a unified head's), with the right prediction for each token."""
    logits = torch.where(reads_board[others.positions][:, None], readers.logits, others.logits)
    return LogitGroup(others.positions, others.symbols, logits)
