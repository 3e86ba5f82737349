"""The state tokenizer of k-in-a-row: one token a square, top row first, then one for the side to move.

Axes: B batch, L tokens of a state (squares, then the side).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genpolicy.game import IntArray, StateTokenizer

_SWAPPED = np.array([0, 2, 1, 4, 3], np.int16)
"""What each symbol becomes for player 1."""


class Board(NamedTuple):
    """One position; never mutated. Bit i of a stone set is square i, counted along the rows from the top left."""

    stones: tuple[int, int]
    """Stones of X and of O."""
    player: int
    """Player to move: 0 for X, 1 for O."""
    won: bool
    """The player who has just moved has k in a row, so the game is over."""
    moves: tuple[int, ...] = ()
    """The moves since the first known position. Two positions that differ only in these are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Board) and self[:3] == other[:3]

    def __ne__(self, other: object) -> bool:  # a tuple's own would compare the moves
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3])


class ConnectTokens(StateTokenizer[Board]):
    """Squares and side to move; a viewer sees its own stones as X, and ``x`` where it is to move itself.

    Args:
        num_rows: Rows of the board.
        num_cols: Columns of the board.
        check: Makes a position of the stones of X and O and of the player to move; raises ValueError where they
            contradict the rules.
    """

    symbols = (".", "X", "O", "x", "o")

    def __init__(self, num_rows: int, num_cols: int, check: Callable[[int, int, int], Board]) -> None:
        self._num_squares = num_rows * num_cols
        self._num_bytes = (self._num_squares + 7) // 8
        self._check = check
        squares = np.arange(self._num_squares)
        self.rows = np.append(squares // num_cols, -1).astype(np.int16)
        self.cols = np.append(squares % num_cols, -1).astype(np.int16)
        self.hands = np.full(self._num_squares + 1, -1, np.int16)
        self.admitted = np.zeros((self._num_squares + 1, len(self.symbols)), np.bool_)
        self.admitted[:-1, :3] = self.admitted[-1, 3:] = True

    @property
    def turned(self) -> tuple[IntArray, IntArray]:
        """The board as it is, X and O exchanged."""
        return np.arange(self.length), _SWAPPED

    def encode(self, states: Sequence[Board], viewers: Sequence[int] | IntArray | None = None) -> NDArray[np.int16]:
        """Token ids, shape [B, L]; see ``StateTokenizer.encode``."""
        num_bytes, squares = self._num_bytes, self._num_squares
        packed = b"".join([bits.to_bytes(num_bytes, "little") for state in states for bits in state.stones])
        stones = np.frombuffer(packed, np.uint8).reshape(len(states), 2, num_bytes)
        planes = np.unpackbits(stones, axis=2, count=squares, bitorder="little")
        ids = np.empty((len(states), squares + 1), np.int16)
        ids[:, :-1] = planes[:, 0] + 2 * planes[:, 1]
        ids[:, -1] = [3 + state.player for state in states]
        if viewers is not None:
            ids = np.where(np.asarray(viewers)[:, None] == 1, _SWAPPED[ids], ids)
        return ids

    def decode(self, row: IntArray, viewer: int = 0) -> Board:
        """The position of a row of L ids; see ``StateTokenizer.decode``."""
        ids = [int(i) for i in row]
        if len(ids) != self.length:
            raise ValueError(f"tokens {ids}: expected {self.length} of them, got {len(ids)}")
        for place, i in enumerate(ids):
            if not (0 <= i < len(self.symbols) and self.admitted[place, i]):
                raise ValueError(f"tokens {ids}: position {place} does not admit symbol {i}")
        stones = [sum(1 << square for square, i in enumerate(ids[:-1]) if i == colour) for colour in (1, 2)]
        player = ids[-1] - 3
        if viewer == 1:
            stones.reverse()
            player = 1 - player
        try:
            return self._check(stones[0], stones[1], player)
        except ValueError as error:
            raise ValueError(f"tokens {ids} seen by player {viewer}: {error}") from error
