"""Heads: from features to the logits of all tokens, or to the negative log-likelihood of a few.

Their products are torch's own, not those of ``networks.cpu``: in training their number of rows changes each time, and
oneDNN would compile and keep a kernel for every shape.

Axes: B batch, N tokens, W width, K symbols of the vocabulary, n chosen tokens, G symbols of a group.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.diffusion.logits import NEGATIVE_INFINITY, LogitGroup, TypedLogits
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.copies import Copies
from genpolicy.networks.embedding import index_buffer
from genpolicy.networks.moves import MoveHead
from genpolicy.networks.shown_moves import ShownMoves
from genpolicy.networks.values import BoardValues
from genpolicy.sequence import Layout, SymbolGroup


def _full_precision(logits: Tensor) -> Tensor:
    """In float32 at least: under autocast the groups come in several types."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def _nll(logits: Tensor, targets: Tensor) -> Tensor:
    """[n] -log softmax at ``targets`` [n]."""
    return F.cross_entropy(_full_precision(logits), targets, reduction="none")


class OutputTable(nn.Module):
    """A row of weights for each of some symbols: the head's own, or the input embedding's (tied, without a bias)."""

    def __init__(self, symbols: NDArray[np.int64], width: int, embedding: nn.Embedding | None) -> None:
        super().__init__()
        self.tied = embedding is not None
        # A module in a list is not registered, so that a state dict holds the embedding once.
        self._embedding = [embedding]
        self.symbols = symbols
        if embedding is None:
            self.weight = nn.Parameter(torch.empty(len(symbols), width))
            self.bias = nn.Parameter(torch.zeros(len(symbols)))

    def rows(self, symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places in this table of vocabulary ids, for ``select``."""
        return symbols if self.tied else np.searchsorted(self.symbols, symbols)

    def select(self, rows: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Weights [G, W] and biases [G] of some rows, or for None of every symbol of the table in order."""
        embedding = self._embedding[0]
        if embedding is not None:
            table = embedding.weight
            return (table[: len(self.symbols)] if rows is None else F.embedding(rows, table)), None
        if rows is None:
            return self.weight, self.bias
        return F.embedding(rows, self.weight), self.bias.index_select(0, rows)


class UnifiedHead(nn.Module):
    """One softmax over the whole vocabulary at every token, as in the paper."""

    reads_other_tokens = False
    """Whether the logits of a token follow from the features of others, too."""

    def __init__(self, layout: Layout, width: int, embedding: nn.Embedding | None) -> None:
        super().__init__()
        self.num_symbols = layout.num_symbols
        self.table = OutputTable(np.arange(layout.num_symbols), width, embedding)
        self.positions = index_buffer(np.arange(layout.length))
        self.symbols = index_buffer(np.arange(layout.num_symbols))

    def forward(self, hidden: Tensor, inputs: Tensor | None = None) -> TypedLogits:
        """One group from features [B, n, W]; ``inputs`` are not read."""
        logits, n = _full_precision(F.linear(hidden, *self.table.select(None))), hidden.shape[1]
        return TypedLogits((LogitGroup(self.positions[:n], self.symbols, logits),), n, self.num_symbols)

    def nll(
        self,
        hidden: Tensor,
        targets: Tensor,
        where: Tensor,
        inputs: Tensor | None = None,
        admitted: Tensor | None = None,
    ) -> Tensor:
        """-log p(targets [B, N]) at the tokens of ``where`` [B, N], flat, row-major; ``inputs`` are not read.

        With ``admitted`` [N, K] or [B, N, K], the softmax runs over the symbols that a token admits.
        """
        flat = where.reshape(-1).nonzero()[:, 0]
        chosen = hidden.reshape(-1, hidden.shape[-1]).index_select(0, flat)
        logits = F.linear(chosen, *self.table.select(None))
        if admitted is not None:
            logits = logits.masked_fill(~admitted.expand(*where.shape, -1)[where], NEGATIVE_INFINITY)
        return _nll(logits, targets.reshape(-1).index_select(0, flat))


def clusters_of(layout: Layout) -> list[SymbolGroup]:
    """The layout's groups, split so that the logits of tokens with few symbols cost little.

    Two sets of tokens stay together where that adds at most ``_MERGE_COST`` logits per state.
    """
    clusters: list[SymbolGroup] = []
    for group in layout.groups:
        sets: dict[bytes, list[int]] = {}
        for i, row in enumerate(group.admitted):
            sets.setdefault(row.tobytes(), []).append(i)
        parts = [(members, group.admitted[members[0]].copy()) for members in sets.values()]
        per_state = max(1, len(group.positions) // layout.state_length) if group.kind == "state" else 1
        parts.sort(key=lambda part: -int(part[1].sum()))
        merged: list[tuple[list[int], NDArray[np.bool_]]] = []
        for members, union in parts:
            for i, (others, other_union) in enumerate(merged):
                both = union | other_union
                apart = len(members) * int(union.sum()) + len(others) * int(other_union.sum())
                if (len(members) + len(others)) * int(both.sum()) - apart <= _MERGE_COST * per_state:
                    merged[i] = (others + members, both)
                    break
            else:
                merged.append((members, union))
        for members, union in merged:
            rows = np.sort(np.asarray(members))
            admitted = group.admitted[rows][:, union]
            clusters.append(SymbolGroup(group.kind, group.positions[rows], group.symbols[union], admitted))
    return clusters


_MERGE_COST = 512


class _GroupHead(nn.Module):
    """The logits of one cluster of tokens."""

    def __init__(self, layout: Layout, cluster: SymbolGroup, rows: NDArray[np.int64]) -> None:
        super().__init__()
        self.kind, self._places = cluster.kind, cluster.positions
        self.has_excluded = not bool(cluster.admitted.all())
        row_of = np.full(layout.length, -1)
        row_of[cluster.positions] = np.arange(len(cluster.positions))
        local = np.full(layout.num_symbols + 1, -1)
        local[cluster.symbols] = np.arange(len(cluster.symbols))
        self.positions, self.symbols = index_buffer(cluster.positions), index_buffer(cluster.symbols)
        self.excluded, self.rows = index_buffer(~cluster.admitted), index_buffer(rows)
        self.local, self.row_of = index_buffer(local), index_buffer(row_of)

    def number(self, length: int) -> int:
        """How many of the tokens are among the first ``length``."""
        return int(np.searchsorted(self._places, length))

    def nll(self, logits: Tensor, tokens: Tensor, targets: Tensor) -> Tensor:
        """[n] from logits [n, G] of tokens [n] (places in the sequence) and target ids [n]."""
        if self.has_excluded:
            logits = logits.masked_fill(self.excluded[self.row_of[tokens]], NEGATIVE_INFINITY)
        local = self.local[targets.clamp(0, len(self.local) - 1)]
        return _nll(logits, local.clamp(min=0)).masked_fill(local < 0, float("inf"))

    def group(self, logits: Tensor) -> LogitGroup:
        """The group of the first n tokens' logits [B, n, G], with minus infinity for symbols that are not admitted."""
        n = logits.shape[1]
        if self.has_excluded:
            logits = logits.masked_fill(self.excluded[:n], NEGATIVE_INFINITY)
        return LogitGroup(self.positions[:n], self.symbols, _full_precision(logits))


class TypedHead(nn.Module):
    """One softmax for each kind of token, over the symbols that it can hold.

    Squares and counters of a state admit different symbols and so form groups of their own; a group computes logits of
    the symbols that some token of it admits.

    Args:
        layout: Which tokens there are and what they admit.
        config: The network's shape, of which the head has ``move_rank`` and its options (in ``board`` geometry),
            ``board_values`` and ``copied_symbols``.
        embedding: The input embedding, to which the head is tied; None for weights of its own.
        shown: Tells imagined tokens the symbols that ``Copies`` adds to; None for none.
        actions_only: Whether the actions alone are predicted, and no other token is in a group.
    """

    def __init__(
        self,
        layout: Layout,
        config: NetworkConfig,
        embedding: nn.Embedding | None,
        shown: ShownMoves | None,
        *,
        actions_only: bool = False,
    ) -> None:
        super().__init__()
        self.num_symbols, width = layout.num_symbols, config.width
        clusters = [cluster for cluster in clusters_of(layout) if cluster.kind == "action" or not actions_only]
        kinds = {cluster.kind for cluster in clusters}
        factorised = "action" in kinds and config.geometry == "board" and config.move_rank > 0
        linear = [c.symbols for c in clusters if not (factorised and c.kind == "action")]
        self.table = OutputTable(np.unique(np.concatenate(linear)), width, embedding) if linear else None
        self.moves = None
        if factorised:
            self.moves = MoveHead(
                layout,
                width,
                config.move_rank,
                with_pad=any(layout.pad in c.symbols for c in clusters if c.kind == "action"),
                factorised_pad=bool(config.factorised_pad),
                symbols=bool(config.move_symbols),
                apart=config.move_symbols == "apart",
            )
        values = config.board_values if "value" in kinds else 0
        self.values = BoardValues(layout, width, values) if values else None
        copied = config.copied_symbols and "state" in kinds
        self.copies = Copies(shown, width) if copied and shown is not None and shown.carry is not None else None
        self.groups = nn.ModuleList()
        cluster_of = np.zeros(layout.length, np.int64)
        for i, cluster in enumerate(clusters):
            by_moves = factorised and cluster.kind == "action"
            rows = np.zeros(0, np.int64) if by_moves or self.table is None else self.table.rows(cluster.symbols)
            self.groups.append(_GroupHead(layout, cluster, rows))
            cluster_of[cluster.positions] = i
        self.cluster_of = index_buffer(cluster_of)

    @property
    def reads_other_tokens(self) -> bool:
        """As of ``UnifiedHead``: moves and values may be read from the squares of the board."""
        return self.moves is not None or self.values is not None

    def _told(self, inputs: Tensor | None) -> Tensor | None:
        """[B, n] the symbols that are copied; None without."""
        return None if self.copies is None or inputs is None else self.copies.told(inputs)

    def _logits(
        self, head: _GroupHead, hidden: Tensor, rows: Tensor, tokens: Tensor, inputs: Tensor | None, told: Tensor | None
    ) -> Tensor:
        """[n, G] logits of a group at batch rows [n] and tokens [n]."""
        logits: Tensor
        if self.moves is not None and head.kind == "action":
            logits = self.moves(hidden, rows, tokens, inputs)
            return logits
        assert self.table is not None
        features = hidden.reshape(-1, hidden.shape[-1]).index_select(0, rows * hidden.shape[1] + tokens)
        logits = F.linear(features, *self.table.select(head.rows))
        if self.copies is not None and told is not None and head.kind == "state":
            logits = self.copies(logits, features, head.local[told[rows, tokens]])
        if self.values is not None and head.kind == "value":
            of_bins = self.values.of_tokens(hidden, rows, tokens)
            logits = logits + F.pad(of_bins, (0, logits.shape[1] - of_bins.shape[1]))  # PAD follows the bins
        return logits

    def forward(self, hidden: Tensor, inputs: Tensor | None = None) -> TypedLogits:
        """One group for each cluster that has some of the tokens, from features [B, n, W] of ids ``inputs`` [B, n]."""
        (b, length, _), told = hidden.shape, self._told(inputs)
        out = []
        for group in self.groups:
            assert isinstance(group, _GroupHead)
            n = group.number(length)
            if n == 0:
                continue
            rows = torch.arange(b, device=hidden.device).repeat_interleave(n)
            logits = self._logits(group, hidden, rows, group.positions[:n].repeat(b), inputs, told)
            out.append(group.group(logits.view(b, n, logits.shape[-1])))
        return TypedLogits(tuple(out), length, self.num_symbols)

    def nll(
        self,
        hidden: Tensor,
        targets: Tensor,
        where: Tensor,
        inputs: Tensor | None = None,
        admitted: Tensor | None = None,
    ) -> Tensor:
        """-log p(targets [B, N]) at the tokens of ``where`` [B, N], flat, row-major; ``inputs`` as in ``forward``.

        Infinite where the token cannot hold its target. ``admitted`` is not read: every group excludes what the layout
        does.
        """
        flat = where.reshape(-1).nonzero()[:, 0]
        rows, tokens = flat // where.shape[1], flat % where.shape[1]
        chosen_targets = targets.reshape(-1).index_select(0, flat)
        cluster, told = self.cluster_of[tokens], self._told(inputs)
        parts, places = [], []
        for i, group in enumerate(self.groups):
            assert isinstance(group, _GroupHead)
            members = (cluster == i).nonzero()[:, 0]
            # Also for no tokens: every weight then has a gradient, which DistributedDataParallel requires.
            at, wanted = tokens[members], chosen_targets[members]
            is_mended = group.kind == "action" and torch.is_grad_enabled()
            if is_mended and self.moves is not None and self.moves.learns_apart:
                mended, own = self.moves.apart(hidden, rows[members], at, inputs)
                of_network = group.nll(own, at, wanted)
                # The value of the mended logits, the gradients of both; infinite ones have none.
                parts.append(group.nll(mended, at, wanted) + (of_network - of_network.detach()).nan_to_num())
            else:
                logits = self._logits(group, hidden, rows[members], at, inputs, told)
                parts.append(group.nll(logits, at, wanted))
            places.append(members)
        order = torch.cat(places)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        return torch.cat(parts).index_select(0, back)
