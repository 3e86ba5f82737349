"""Move logits factorised over the squares of the state that the move is made in.

For an action token with features h, in a state whose token features are h_0 .. h_{L-1}, the logit of the move m of kind
k from place i to place j is

    <Q_k h_i + q_k h, K_k h_j + e_k h> / sqrt(r) + b_m

so that a move has no weights of its own except the scalar b_m. The action token stands in for a missing source (as of a
drop in k-in-a-row) or target. All tables come from the game's move vocabulary.

With ``symbols`` the symbols at i, at j and between them add terms of their own (``SymbolTerms``).

PAD in place of a move says that the game is over. It has the logit <p, h> + b, or factorised, with i over the places of
the state and the action token,

    log mean_i exp(<p, h_i> + b) + log mean_m exp(logit of m)

so that whether the game is over is a question of its own: p(PAD) depends on the first term alone, and a finished game
changes no move's logit.

Axes: B batch, N tokens, W width, L places of a state, n action tokens, M moves, r rank, S sources, T targets of a kind.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.errors import ConfigError
from genpolicy.networks.embedding import StartsAtZero, index_buffer
from genpolicy.sequence import KINDS, Layout

TERMS_SCALE = 16.0
"""c: of 1, 4, 16 and 48 the lowest validation loss after 3,200 records of the chess sample (S-A, one seed)."""


class _Pick(torch.autograd.Function):
    """Columns ``index`` of a matrix. No column is picked twice, so the gradient is a pick as well and not a scatter."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return cells.index_select(1, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        # The last column is the zero that cells without a move get.
        padded = torch.nn.functional.pad(grads[0], (0, 1))
        return padded.index_select(1, inverse), None, None


class _KindHead(nn.Module):
    """Scores of every (source, target) pair of one kind of move."""

    def __init__(self, sources: np.ndarray[Any, Any], targets: np.ndarray[Any, Any], width: int, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.sources, self.targets = index_buffer(sources), index_buffer(targets)
        self.query = nn.Linear(width, rank)
        self.key = nn.Linear(width, rank)
        self.of_action = nn.Linear(width, 2 * rank, bias=False)

    def forward(self, places: Tensor, action: Tensor) -> Tensor:
        """[n, S * T] from place features [n, L + 1, W] and action features [n, W]."""
        of_query, of_key = self.of_action(action)[:, None, :].chunk(2, dim=-1)
        query = self.query(places.index_select(1, self.sources)) + of_query
        key = self.key(places.index_select(1, self.targets)) + of_key
        scores: Tensor = query @ key.mT
        return rearrange(scores / math.sqrt(self.rank), "n source target -> n (source target)")


class SymbolTerms(StartsAtZero):
    """What the symbols around a move's squares add to its logit, from place i to place j:

        c (D[step, symbol at i] + P[symbol at i, symbol at j] + sum over k between i and j of B[symbol at k])

    A step is a kind of move and, where both ends are on the board, the rows and columns between them; k are the squares
    between them on a row, column or diagonal. So how pieces move, what they capture and what is in their way are shared
    by all squares, and are learned from few records. All tables begin at zero; c lets them learn faster than the rest.
    Where no state is imagined, later moves read the symbols of the root.

    Args:
        layout: The tokens of a sequence.
        source: [M] place of each move's source; L for none.
        target: [M] place of its target.
    """

    def __init__(self, layout: Layout, source: NDArray[np.int64], target: NDArray[np.int64]) -> None:
        super().__init__()
        self.num_symbols = layout.move_offset
        rows, cols = (np.append(table, -1).astype(np.int64) for table in (layout.tokenizer.rows, layout.tokenizer.cols))
        on_board = (rows[source] >= 0) & (rows[target] >= 0)
        far = max(rows.max(), cols.max()) + 1  # further than any two squares are apart
        down, right = (np.where(on_board, table[target] - table[source], far) for table in (rows, cols))
        steps, step = np.unique(np.stack([layout.moves.kind, down, right]), axis=1, return_inverse=True)
        size = self.num_symbols + 1
        self.source, self.target = index_buffer(source), index_buffer(target)
        self.step = index_buffer(step.reshape(-1) * size)
        between = np.zeros((layout.state_length, len(source)), np.float32)
        is_line = on_board & ((down == 0) | (right == 0) | (abs(down) == abs(right)))
        place_at = {at: place for place, at in enumerate(zip(rows[:-1].tolist(), cols[:-1].tolist(), strict=True))}
        for move in np.flatnonzero(is_line).tolist():
            row, col, length = rows[source[move]], cols[source[move]], max(abs(down[move]), abs(right[move]))
            for k in range(1, length):
                at = (int(row + k * down[move] // length), int(col + k * right[move] // length))
                if at in place_at:
                    between[place_at[at], move] = 1.0
        self.between = nn.Buffer(torch.from_numpy(between), persistent=False)
        self.by_step = nn.Parameter(torch.zeros(steps.shape[1] * size))
        self.by_pair = nn.Parameter(torch.zeros(size * size))
        self.by_between = nn.Parameter(torch.zeros(size))

    def forward(self, state: Tensor) -> Tensor:
        """[n, M] from the ids [n, L] of the states; no symbol and an undecided one share a row."""
        known = F.pad(state.clamp(max=self.num_symbols), (0, 1), value=self.num_symbols)
        first, second = known.index_select(1, self.source), known.index_select(1, self.target)
        pair = first * (self.num_symbols + 1) + second
        terms = _entries(self.by_step, self.step + first) + _entries(self.by_pair, pair)
        return TERMS_SCALE * (terms + _entries(self.by_between, known[:, :-1]) @ self.between)


def _entries(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``. The gradient of indexing sorts, and a GPU adds equal indices one by one, which here are most of
    millions.
    """
    return table.index_select(0, index.flatten()).view(index.shape)


class MoveHead(nn.Module):
    """Logits of all moves, and of PAD where ``with_pad``, for some action tokens.

    Args:
        layout: The tokens of a sequence.
        width: W.
        rank: r.
        with_pad: Whether PAD is predicted.
        factorised_pad: Whether apart from the moves.
        symbols: Whether the logits have ``SymbolTerms``.
        apart: Whether these learn apart from the network (``apart``).

    Raises:
        ConfigError: two moves of the vocabulary share source, target and kind, so that their logits would be one.
    """

    def __init__(
        self,
        layout: Layout,
        width: int,
        rank: int,
        with_pad: bool,
        *,
        factorised_pad: bool = False,
        symbols: bool = False,
        apart: bool = False,
    ) -> None:
        super().__init__()
        self.factorised_pad, self.learns_apart = factorised_pad, apart
        moves = layout.moves
        self.num_moves = len(moves)
        length = layout.state_length
        source = np.where(moves.source >= 0, moves.source, length).astype(np.int64)
        target = np.where(moves.target >= 0, moves.target, length).astype(np.int64)
        self.kinds = nn.ModuleList()
        cell_of = np.zeros(len(moves), np.int64)
        num_cells = 0
        for kind in range(moves.num_kinds):
            of_kind = np.flatnonzero(moves.kind == kind)
            if len(of_kind) == 0:
                continue
            sources, row = np.unique(source[of_kind], return_inverse=True)
            targets, col = np.unique(target[of_kind], return_inverse=True)
            cell_of[of_kind] = num_cells + row.reshape(-1) * len(targets) + col.reshape(-1)
            num_cells += len(sources) * len(targets)
            self.kinds.append(_KindHead(sources, targets, width, rank))
        _, first, counts = np.unique(cell_of, return_index=True, return_counts=True)
        if (counts > 1).any():
            move = int(first[counts > 1][0])
            same = [moves[int(i)] for i in np.flatnonzero(cell_of == cell_of[move])]
            few = ", ".join(same[:4]) + (", ..." if len(same) > 4 else "")
            raise ConfigError(
                f"moves {few} share source, target and kind, so a head by squares cannot tell them apart: set "
                "network.move_rank=0, or give them kinds of their own"
            )
        inverse = np.full(num_cells, len(moves))
        inverse[cell_of] = np.arange(len(moves))
        self.index, self.inverse = index_buffer(cell_of), index_buffer(inverse)
        self.squares = index_buffer(layout.squares_of("action"))
        self.action_of = index_buffer(np.cumsum(layout.kinds == KINDS.index("action")) - 1)
        self.bias = nn.Parameter(torch.zeros(len(moves)))
        self.pad = nn.Linear(width, 1) if with_pad else None
        self.terms = SymbolTerms(layout, source, target) if symbols else None

    def forward(self, hidden: Tensor, rows: Tensor, tokens: Tensor, inputs: Tensor | None = None) -> Tensor:
        """[n, M] or [n, M + 1] logits, PAD last.

        Args:
            hidden: Features [B, N, W].
            rows: [n] row of the batch of each action token.
            tokens: [n] place of each action token in the sequence.
            inputs: [B, N] ids of the sequences; read with ``symbols`` alone.
        """
        logits, terms, over = self._parts(hidden, rows, tokens, inputs)
        return self._with_pad(logits if terms is None else logits + terms, over)

    def apart(self, hidden: Tensor, rows: Tensor, tokens: Tensor, inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        """The logits of ``forward`` with a gradient of the tables of ``SymbolTerms`` alone, and those without them.

        A loss of both trains the network as if there were no tables, and the tables to mend its moves.
        """
        logits, terms, over = self._parts(hidden, rows, tokens, inputs)
        assert terms is not None
        mended = self._with_pad(logits.detach() + terms, None if over is None else over.detach())
        return mended, self._with_pad(logits, over)

    def _parts(
        self, hidden: Tensor, rows: Tensor, tokens: Tensor, inputs: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Logits [n, M] without terms, the terms [n, M], and what the logit of PAD [n, 1] is made of."""
        flat = rearrange(hidden, "b n w -> (b n) w")
        base = rows * hidden.shape[1]
        action_at = base + tokens
        squares = self.squares[self.action_of[tokens]]
        at = torch.cat([base[:, None] + squares, action_at[:, None]], dim=1)
        n, num_places = at.shape
        places = rearrange(flat.index_select(0, at.flatten()), "(n place) w -> n place w", n=n, place=num_places)
        action = flat.index_select(0, action_at)
        cells = torch.cat([kind(places, action) for kind in self.kinds], dim=1)
        logits: Tensor = _Pick.apply(cells, self.index, self.inverse)  # type: ignore[no-untyped-call]
        terms = over = None
        if self.terms is not None:
            assert inputs is not None
            terms = self.terms(inputs[rows[:, None], squares])
        if self.pad is not None and self.factorised_pad:
            over = self.pad(places).logsumexp(1) - math.log(num_places)
        elif self.pad is not None:
            over = self.pad(action)
        return logits + self.bias, terms, over

    def _with_pad(self, logits: Tensor, over: Tensor | None) -> Tensor:
        if over is None:
            return logits
        if self.factorised_pad:
            over = over + logits.logsumexp(1, keepdim=True) - math.log(self.num_moves)
        return torch.cat([logits, over], dim=1)
