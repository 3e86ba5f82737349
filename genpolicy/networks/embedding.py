"""Token embeddings: symbols and places of a sequence, or symbols, squares and plies of a board.

Axes: B batch, N tokens, W width, V input symbols, L tokens of a state, A action tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.errors import ConfigError
from genpolicy.networks.cpu import Linear
from genpolicy.sequence import KINDS, Layout

TIME_FEATURES = 64


def index_buffer(array: NDArray[np.generic]) -> nn.Buffer:
    """An int64 (or bool) tensor of a table; as an attribute of a module it moves with it and is not saved."""
    table = np.asarray(array)
    own = table.copy() if table.dtype == np.bool_ else table.astype(np.int64)
    return nn.Buffer(torch.from_numpy(own), persistent=False)


class StartsAtZero(nn.Module):
    """A part that begins without effect: its weights, all its own and those in it, are drawn as zeros."""

    def draw_weights(self, std: float, generator: torch.Generator | None) -> None:
        """See ``genpolicy.networks.transformer.DrawsOwnWeights``."""
        for parameter in self.parameters():
            parameter.zero_()


class SequenceEmbedding(nn.Module):
    """Symbol plus place in the sequence, as in GPT-2; the symbol alone where attention is rotary."""

    def __init__(self, layout: Layout, num_input_symbols: int, width: int, learned_positions: bool) -> None:
        super().__init__()
        self.symbol = nn.Embedding(num_input_symbols, width)
        self.position = nn.Parameter(torch.empty(layout.length, width)) if learned_positions else None

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids [B, n] to features [B, n, W]."""
        x: Tensor = self.symbol(tokens)
        return x if self.position is None else x + self.position[: tokens.shape[1]]


class BoardEmbedding(nn.Module):
    """Symbol plus codes for the place within the state, the ply and the kind.

    The place code depends on the token's index within its state alone, so that a square has the same code in every
    imagined state: a free vector for each place, plus one for its row, its column and its hand slot. A move's symbol is
    embedded as its source square, its target square and its kind (projections of the same place codes) plus a free
    vector, so that an imagined move says where it goes.

    Rotary attention sees the distance between plies, so with it there are two ply codes only: given and imagined.
    """

    def __init__(
        self,
        layout: Layout,
        num_input_symbols: int,
        width: int,
        learned_positions: bool = True,
        features: bool = False,
    ) -> None:
        super().__init__()
        self.symbol = nn.Embedding(num_input_symbols, width)
        length, moves = layout.state_length, layout.moves
        self.place = nn.Parameter(torch.empty(length, width))
        # Index 0 is "none" and stays zero.
        self.rows, self.cols, self.hands = (
            index_buffer(of_token[:length] + 1) for of_token in (layout.rows, layout.cols, layout.hands)
        )
        self.row = nn.Parameter(torch.empty(int(self.rows.max()) + 1, width))
        self.col = nn.Parameter(torch.empty(int(self.cols.max()) + 1, width))
        self.hand = nn.Parameter(torch.empty(int(self.hands.max()) + 1, width))
        plies = layout.plies if learned_positions else ~layout.given
        self.ply = nn.Parameter(torch.empty(int(plies.max()) + 1, width))
        # Three kinds came first, so that weights have a row for each of those; codes have one of each codebook.
        self.kind = nn.Parameter(torch.empty(3 + layout.num_books, width))
        self.plies = index_buffer(plies.astype(np.int64))
        self.kinds = index_buffer(layout.kinds + layout.books.clip(0))
        # Place ``length`` is the zero code of tokens and move ends that are not a place of a state.
        self.state_places = index_buffer(np.where(layout.places >= 0, layout.places, length))
        actions = np.flatnonzero(layout.kinds == KINDS.index("action"))
        self.action_tokens = index_buffer(actions)
        self._actions: list[int] = actions.tolist()
        self.source = Linear(width, width, bias=False)
        self.target = Linear(width, width, bias=False)
        self.move_kinds = nn.Parameter(torch.empty(moves.num_kinds + 1, width))

        def by_symbol(of_move: NDArray[np.int16], none: int) -> nn.Buffer:
            table = np.full(num_input_symbols, none)
            table[layout.move_offset + np.arange(len(moves))] = np.where(of_move >= 0, of_move, none)
            return index_buffer(table)

        self.move_source, self.move_target = by_symbol(moves.source, length), by_symbol(moves.target, length)
        self.move_kind = by_symbol(moves.kind, moves.num_kinds)
        self.features = Features(layout, width) if features else None

    def place_codes(self) -> Tensor:
        """[L + 1, W] code of each place of a state; zeros in the last row."""
        codes = (
            self.place + _lookup(self.row, self.rows) + _lookup(self.col, self.cols) + _lookup(self.hand, self.hands)
        )
        return F.pad(codes, (0, 0, 0, 1))

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids [B, n] of the first n tokens to features [B, n, W]."""
        n = tokens.shape[1]
        codes = self.place_codes()
        static = F.embedding(self.state_places[:n], codes) + F.embedding(self.plies[:n], self.ply)
        x: Tensor = self.symbol(tokens) + (static + F.embedding(self.kinds[:n], self.kind))
        if self.features is not None:
            x = self.features(x, tokens)
        num_actions = sum(at < n for at in self._actions)  # of NumPy, torch.compile would make a graph of its own
        if num_actions == 0:
            return x
        action_tokens = self.action_tokens[:num_actions]
        ids = tokens[:, action_tokens]
        moves = (
            F.embedding(self.move_source[ids], self.source(codes))
            + F.embedding(self.move_target[ids], self.target(codes))
            + F.embedding(self.move_kind[ids], self.move_kinds)
        )
        return x.index_add(1, action_tokens, moves)


class Features(StartsAtZero):
    """Adds a linear map of the game's own features of the root state to the embedding of its tokens.

    Raises:
        ConfigError: the game's tokenizer supplies no features.
    """

    def __init__(self, layout: Layout, width: int) -> None:
        super().__init__()
        made = layout.tokenizer.features()
        if made is None:
            raise ConfigError(
                f"network.features=true: {type(layout.tokenizer).__name__} supplies no features (chess's tokenizer "
                "does); set network.features=false, or write StateTokenizer.features for this game"
            )
        self.root = index_buffer(np.arange(layout.state_length))
        self.of_root = made
        num_features: Any = made.num_features
        self.into = nn.Parameter(torch.empty(num_features, width))  # a layer would draw from torch's generator

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """[B, n, W] in and out, of ids [B, n]."""
        told = self.of_root(tokens[:, self.root]).to(self.into.dtype) @ self.into
        return x.index_add(1, self.root, told.to(x.dtype))


class TimeEmbedding(nn.Module):
    """A vector for each timestep, which is added to every token: sines of t through two projections."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = Linear(TIME_FEATURES, width)
        self.out = Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        """[B, 1, W] from times [B]."""
        half = TIME_FEATURES // 2
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, device=t.device) / half)
        angles = t[:, None].to(frequencies.dtype) * frequencies
        features = torch.cat([angles.cos(), angles.sin()], dim=-1).to(self.inner.weight.dtype)
        out: Tensor = self.out(F.gelu(self.inner(features)))
        return out[:, None]


class Modulation(StartsAtZero):
    """Shift, scale and gate of both parts of a block, from a condition; a block begins as the identity (DiT's
    adaLN-Zero)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = Linear(width, 6 * width)

    def forward(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        """[B, 1, 3, W] shift, scale and gate of attention, and those of the feed-forward part, from [B, 1, W]."""
        attention, mlp = self.out(F.silu(condition)).unflatten(-1, (2, 3, -1)).unbind(2)
        return attention, mlp


def _lookup(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table; zeros for index 0."""
    return F.embedding(index, table) * (index > 0)[:, None]
