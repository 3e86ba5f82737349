"""Per-token predictions whose symbols may differ from token to token.

A network with one softmax over the whole vocabulary gives one group that holds every token. A network with one softmax
per kind gives a group for the states, one for the actions and one for the values, which takes far less memory and gives
no probability to symbols that a token cannot hold. Processes and samplers see ``TypedLogits`` only; a plain tensor
[B, N, K] is one group.

Axes: B batch, N tokens, K symbols of the vocabulary, n tokens of a group, G symbols of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

NEGATIVE_INFINITY = float("-inf")
Admitted = Tensor | None
"""[N, K] or [B, N, K] bool, the symbols that each token can hold; None admits all."""


@dataclass(frozen=True)
class LogitGroup:
    """Unnormalised log-probabilities of some tokens over their own symbols."""

    positions: Tensor
    """[n] places in the sequence, int64."""
    symbols: Tensor
    """[G] vocabulary ids, int64, increasing."""
    logits: Tensor
    """[B, n, G]; minus infinity on symbols that a token cannot hold."""


@dataclass(frozen=True)
class TypedLogits:
    """The groups of one prediction; together they hold every token that is predicted once."""

    groups: tuple[LogitGroup, ...]
    num_tokens: int
    num_symbols: int
    admitted: Admitted = None
    """Sets that the groups respect already, so that ``restrict`` to this very tensor has nothing to do."""

    @staticmethod
    def of(logits: Logits) -> TypedLogits:
        """A dense tensor [B, N, K] as one group; typed logits as they are."""
        if isinstance(logits, TypedLogits):
            return logits
        _, n, k = logits.shape
        positions = torch.arange(n, device=logits.device)
        return TypedLogits((LogitGroup(positions, torch.arange(k, device=logits.device), logits),), n, k)

    @property
    def batch_size(self) -> int:
        """Number B of rows."""
        return self.groups[0].logits.shape[0]

    def holding(self, place: int) -> tuple[LogitGroup, int]:
        """The group that holds a token, and the token's index in it; an ``AssertionError`` where none does."""
        for g in self.groups:
            at = torch.nonzero(g.positions == place).flatten()
            if len(at):
                return g, int(at[0])
        raise AssertionError(f"no group of the prediction holds token {place}")

    def at(self, place: int, first: int, end: int) -> Tensor:
        """[B, end - first] float64 logits of the symbols ``first`` to ``end - 1`` at a token."""
        g, index = self.holding(place)
        return g.logits[:, index, (g.symbols >= first) & (g.symbols < end)].double()

    def map(self, change: Callable[[LogitGroup], Tensor]) -> TypedLogits:
        """The same groups with other logits."""
        groups = tuple(LogitGroup(g.positions, g.symbols, change(g)) for g in self.groups)
        return TypedLogits(groups, self.num_tokens, self.num_symbols, self.admitted)

    def per_token(self, compute: Callable[[LogitGroup], Tensor]) -> Tensor:
        """A tensor [B, N] from a computation that gives [B, n] for each group; 0 where no group holds the token."""
        values = torch.cat([compute(g) for g in self.groups], 1)
        out = values.new_zeros((self.batch_size, self.num_tokens))
        # All groups at once: there may be a dozen, and a copy of a few tokens is mostly the cost of a call.
        return out.index_copy_(1, torch.cat([g.positions for g in self.groups]), values)

    def restrict(self, admitted: Admitted) -> TypedLogits:
        """Minus infinity on symbols that ``admitted`` [N, K] or [B, N, K] (bool) excludes; None changes nothing."""
        if admitted is None or admitted is self.admitted:
            return self

        def change(g: LogitGroup) -> Tensor:
            allowed = admitted.index_select(-2, g.positions).index_select(-1, g.symbols)
            return g.logits.masked_fill(~allowed, NEGATIVE_INFINITY)

        return self.map(change)

    def local_ids(self, g: LogitGroup, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Index within a group's symbols of ``ids`` [B, N], shape [B, n], and whether each is one of them."""
        wanted = ids.index_select(1, g.positions)
        # Increasing symbols are found by halving; a table of the whole vocabulary would be filled anew every time.
        local = torch.searchsorted(g.symbols, wanted).clamp(max=len(g.symbols) - 1)
        known = g.symbols.take(local) == wanted
        return local * known, known

    def log_prob(self, ids: Tensor) -> Tensor:
        """[B, N] log-probability of a symbol at each token; minus infinity where the token cannot hold it."""

        def compute(g: LogitGroup) -> Tensor:
            local, known = self.local_ids(g, ids)
            chosen = g.logits.log_softmax(-1).gather(-1, local[..., None])[..., 0]
            return chosen.masked_fill(~known, NEGATIVE_INFINITY)

        return self.per_token(compute)

    def dense(self) -> Tensor:
        """[B, N, K] float64 log-probabilities of all symbols; minus infinity where a token cannot hold one."""
        shape = (self.batch_size, self.num_tokens, self.num_symbols)
        out = torch.full(shape, NEGATIVE_INFINITY, dtype=torch.float64, device=self.groups[0].logits.device)
        for g in self.groups:
            out[:, g.positions[:, None], g.symbols[None, :]] = g.logits.double().log_softmax(-1)
        return out


Logits = Tensor | TypedLogits
"""A prediction, [B, N, K] where it is a plain tensor."""


class Denoiser(Protocol):
    """What a process trains and a sampler calls: noised tokens and a time in, a prediction of the clean tokens out.

    A module may also have ``token_nll(tokens, t, targets, where, *, admitted=None)``, which computes -log p(targets)
    only where ``where`` [B, N] is set, flattened in row-major order. Bounds that are reported give ``admitted``, as in
    ``TypedLogits.restrict``; training does not. The function ``token_nll`` uses it; without it all logits are computed.
    """

    def __call__(self, tokens: Tensor, t: Tensor) -> Logits:
        """Logits of x_0 for noised ``tokens`` [B, N] at integer times ``t`` [B]."""
        ...


def token_nll(
    model: Denoiser, tokens: Tensor, t: Tensor, targets: Tensor, where: Tensor, *, admitted: Admitted = None
) -> Tensor:
    """-log p(x_0 = targets | tokens, t) at the tokens of ``where`` [B, N] (bool), flat in row-major order, in nats.

    With ``admitted`` [N, K] or [B, N, K], the probability among the symbols that it admits.
    """
    own = getattr(model, "token_nll", None)
    if own is not None:
        result: Tensor = own(tokens, t, targets, where, **({} if admitted is None else {"admitted": admitted}))
        return result
    return -TypedLogits.of(model(tokens, t)).restrict(admitted).log_prob(targets)[where]
