"""Positions as images with the cell of their labelled move.

The core's cached windows hold a position's tokens and its label (redrawn among ties, turned by a symmetry, if asked);
images are made of them a batch at a time, so memory does not grow with the data set.

Axes: B batch, C input planes, H rows, W columns, K cells of ``Game.move_planes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.data.window_source import CachedWindows
from genpolicy.data.windows import TokenBatch, WindowSource
from genpolicy.game import Game
from genpolicy.sequence import Layout


@dataclass(frozen=True)
class ImageBatch(TokenBatch):
    """Windows with images."""

    planes: Tensor
    """[B, C, H, W] float32, the position as its mover sees it."""
    label: Tensor
    """[B] int64, cell of the labelled move; -1 where the window has none."""
    legal: Tensor
    """[B, K] bool, cells of the legal moves."""


class ImageWindows(WindowSource):
    """Images over token windows.

    Args:
        windows: Windows of the layout ``s | a``, seen by player 0.
        game: Supplies planes and cells.
        layout: Layout of the windows.
    """

    def __init__(self, windows: CachedWindows, game: Game[Any], layout: Layout) -> None:
        self._windows, self._game, self._layout = windows, game, layout
        self._cells = Cells(game)

    def __len__(self) -> int:
        return len(self._windows)

    def batch(self, indices: NDArray[np.int64], epoch: int) -> ImageBatch:
        """The windows of some indices [B]."""
        batch = self._windows.batch(indices, epoch)
        tokens = batch.tokens.numpy()
        decode = self._game.tokens.decode
        states = [decode(row, 0) for row in tokens[:, : self._layout.state_length]]
        moves = tokens[:, self._layout.first_action] - self._layout.move_offset
        return ImageBatch(
            batch.tokens,
            batch.frozen,
            batch.target,
            batch.indices,
            planes=torch.from_numpy(self._game.planes(states)),
            label=torch.from_numpy(self._cells.of_labels(states, moves)),
            legal=torch.from_numpy(self._cells.legal(states, [self._game.legal(state) for state in states])),
        )


class Cells:
    """Cells of moves in positions.

    Args:
        game: Supplies the grid.

    Raises:
        ValueError: it has none.
    """

    def __init__(self, game: Game[Any]) -> None:
        self._game = game
        grid = game.move_planes()
        self.shape = grid.shape
        self._table = grid.cells
        self.num_cells = int(np.prod(grid.shape))

    def of(self, move_ids: NDArray[np.int64], player: int) -> NDArray[np.int64]:
        """Cells of absolute move ids that a player makes."""
        return self._table[self._game.moves.seen_by(move_ids, player)]

    def of_labels(self, states: list[Any], moves: NDArray[np.int64]) -> NDArray[np.int64]:
        """[B] cells of one absolute move in each position; -1 for what is not a move of the vocabulary."""
        players = np.array([self._game.player(state) for state in states], np.int64)
        known = (moves >= 0) & (moves < len(self._game.moves))
        return np.where(known, self._table[self._game.moves.seen_by(np.where(known, moves, 0), players)], -1)

    def legal(self, states: list[Any], moves: list[NDArray[np.int64]]) -> NDArray[np.bool_]:
        """[B, K] which cells hold a legal move, given each position's."""
        found = np.zeros((len(states), self.num_cells), np.bool_)
        for row, state, ids in zip(found, states, moves, strict=True):
            row[self.of(ids, self._game.player(state))] = True
        return found
