"""The same trunk from left to right: every imagined token is predicted from those before it.

The given prefix sees itself in full (a prefix language model); an imagined token sees the prefix, itself and the tokens
imagined before it. The features of token n - 1 predict token n. A factorised move head also reads the squares of the
state in which the move is made; all of them lie before the move, so it reads their own features.

Axes: B batch, N tokens, W width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from genpolicy.diffusion.logits import LogitGroup, TypedLogits
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
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
        is_action = torch.from_numpy(layout.kinds == KINDS.index("action")) & ~given
        self.is_action = nn.Buffer(is_action, persistent=False)

    def forward(self, tokens: Tensor, t: Tensor | None = None, visible: Tensor | None = None) -> TypedLogits:
        """Logits of every imagined token, from the ids [B, N] before it.

        ``visible`` hides more than the order does. Logits at given tokens mean nothing.
        """
        shifted, mixed = self._features(tokens, t, visible)
        others = TypedLogits.of(self.head(shifted, tokens))
        actions = TypedLogits.of(self.head(mixed, tokens)) if bool(self.is_action.any()) else others
        groups = tuple(
            a if bool(self.is_action[a.positions].all()) else _with_actions(o, a, self.is_action)
            for o, a in zip(others.groups, actions.groups, strict=True)
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
        for features, chosen in ((shifted, where & ~self.is_action), (mixed, where & self.is_action)):
            part = self.head.nll(features, targets, chosen, tokens, admitted)
            nll = nll.masked_scatter(chosen, part.to(nll.dtype))
        return nll[where]

    def _features(self, tokens: Tensor, t: Tensor | None, visible: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features [B, N, W] of the token before each, and the same with a token's own features except at actions."""
        hidden = self.trunk(tokens, t, self.visible if visible is None else self.visible & visible)
        shifted = hidden.roll(1, dims=1)
        return shifted, torch.where(self.is_action[:, None], shifted, hidden)


def _with_actions(others: LogitGroup, actions: LogitGroup, is_action: Tensor) -> LogitGroup:
    """A group of actions and other tokens (a unified head's), with the right prediction for each token."""
    logits = torch.where(is_action[others.positions][:, None], actions.logits, others.logits)
    return LogitGroup(others.positions, others.symbols, logits)
