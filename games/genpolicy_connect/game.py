"""k-in-a-row on any board: tic-tac-toe, Connect Four and their kin. X moves first; k of one's own in a row win.

Position text: the rows from the top, then the side to move: ``"XO./.X./... O"``. Moves: with gravity the column from
the left (``"a"``), since the stone falls; without gravity the square (``"b2"``: column, then row from the bottom).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game, MoveVocabulary, Symmetry
from genpolicy_connect.facets import ConnectFiles, ConnectHints, ConnectView
from genpolicy_connect.tokens import Board, ConnectTokens

MAX_SIDE = 26  # a column is named by one letter
MAX_POSITIONS = 5_000_000  # positions() keeps a whole ply of them in memory


class ConnectGame(Game[Board]):
    """Tic-tac-toe (3, 3, 3, no gravity), Connect Four (6, 7, 4, gravity) and any other board.

    Args:
        rows: 1 to 26.
        cols: 1 to 26.
        k: How many stones in a row win, 2 to the longer side of the board.
        gravity: Whether a stone falls to the lowest empty square of its column. All four may be text.

    Raises:
        ValueError: a value out of range.
    """

    name = "connect"
    protocol = "none"
    players = ("X", "O")
    usual = ("connect:rows=6,cols=7,k=4,gravity=true", "connect:rows=3,cols=3,k=3,gravity=false")

    def __init__(self, rows: int | str = 6, cols: int | str = 7, k: int | str = 4, gravity: bool | str = True) -> None:
        self.rows = _number("rows", rows, 1, MAX_SIDE)
        self.cols = _number("cols", cols, 1, MAX_SIDE)
        if self.rows == self.cols == 1:
            raise ValueError("a board of one square has no row of two; take more rows or columns")
        self.k = _number("k", k, 2, max(self.rows, self.cols))
        self.gravity = _truth("gravity", gravity)
        self.spec = f"connect:rows={self.rows},cols={self.cols},k={self.k},gravity={str(self.gravity).lower()}"
        self.num_squares = self.rows * self.cols
        self._full = (1 << self.num_squares) - 1
        self._column = [sum(1 << (r * self.cols + c) for r in range(self.rows)) for c in range(self.cols)]
        self.lines = tuple(self._find_lines())
        """Every k squares in a row, as sets of bits."""
        self._lines_at = [[line for line in self.lines if line >> i & 1] for i in range(self.num_squares)]
        self.tokens = ConnectTokens(self.rows, self.cols, self._checked)
        self.moves = self._vocabulary()
        self.files = ConnectFiles(self)
        self.hints = ConnectHints(self)
        self.view = ConnectView(self)

    # The fixed tables: lines, moves.

    def _find_lines(self) -> Iterator[int]:
        for row in range(self.rows):
            for col in range(self.cols):
                for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                    end_row, end_col = row + down * (self.k - 1), col + right * (self.k - 1)
                    if end_row < self.rows and 0 <= end_col < self.cols:
                        yield sum(1 << ((row + down * i) * self.cols + col + right * i) for i in range(self.k))

    def _vocabulary(self) -> MoveVocabulary:
        letters = [chr(ord("a") + col) for col in range(self.cols)]
        if self.gravity:
            texts = tuple(letters)
            # Where the stone lands depends on the position; the bottom square stands for its column.
            target = np.arange(self.num_squares - self.cols, self.num_squares)
        else:
            texts = tuple(f"{letter}{self.rows - row}" for row in range(self.rows) for letter in letters)
            target = np.arange(self.num_squares)
        num_moves = len(texts)
        return MoveVocabulary(
            texts=texts,
            source=np.full(num_moves, -1, np.int16),  # a stone comes from outside the board
            target=target.astype(np.int16),
            kind=np.zeros(num_moves, np.int16),
            num_kinds=1,
            mirrored=np.arange(num_moves),  # player 1 sees the colours swapped and the board as it is
        )

    # Texts.

    def parse(self, text: str | None = None) -> Board:
        """The position of a text such as ``"XO./.X./... O"``; the empty board without one."""
        if text is None:
            return Board((0, 0), 0, False)
        shape = "/".join([f"[.XO]{{{self.cols}}}"] * self.rows)
        if not re.fullmatch(f"{shape} [XO]", text):
            raise ValueError(
                f"{text!r} is not a position of {self.spec}; an empty board is {self.format(self.parse())!r}"
            )
        squares = text[:-2].replace("/", "")
        x, o = (sum(1 << i for i, symbol in enumerate(squares) if symbol == colour) for colour in "XO")
        try:
            return self._checked(x, o, "XO".index(text[-1]))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a position of {self.spec}: {error}") from error

    def format(self, state: Board) -> str:
        """The rows from the top, then the side to move."""
        x, o = state.stones
        squares = ["X" if x >> i & 1 else "O" if o >> i & 1 else "." for i in range(self.num_squares)]
        rows = ["".join(squares[i : i + self.cols]) for i in range(0, self.num_squares, self.cols)]
        return f"{'/'.join(rows)} {'XO'[state.player]}"

    def _checked(self, x: int, o: int, player: int) -> Board:
        """The position of two stone sets; ValueError where no play of the stones leads to it."""
        if x.bit_count() - o.bit_count() != player:
            due = "one more X than O" if player else "as many X as O"
            raise ValueError(
                f"with {'XO'[player]} to move there are {due}, not {x.bit_count()} X and {o.bit_count()} O"
            )
        stones = x | o
        if self.gravity and (stones << self.cols & self._full) & ~stones:
            raise ValueError("a stone floats above an empty square")
        mover, last = (x, o) if player == 0 else (o, x)
        if any(mover & line == line for line in self.lines):
            raise ValueError(f"{'XO'[player]} has {self.k} in a row already and cannot be to move")
        won = [line for line in self.lines if last & line == line]
        tops = stones & ~(stones << self.cols) if self.gravity else stones
        if won and not any(all(line >> i & 1 for line in won) for i in range(self.num_squares) if tops >> i & 1):
            raise ValueError(f"{'OX'[player]} cannot have made every {self.k} in a row with the last stone")
        return Board((x, o), player, bool(won))

    # The rules.

    def legal(self, state: Board) -> NDArray[np.int64]:
        """Columns that are not full, or empty squares; none once a player has won."""
        if state.won:
            return np.empty(0, np.int64)
        taken = state.stones[0] | state.stones[1]
        # With gravity a column is open while its top square is, and the top row holds squares 0 to cols - 1.
        return np.array([i for i in range(len(self.moves)) if not taken >> i & 1], np.int64)

    def play(self, state: Board, move_id: int) -> Board:
        """The position after a move."""
        taken = state.stones[0] | state.stones[1]
        if state.won or not 0 <= move_id < len(self.moves) or taken >> int(move_id) & 1:
            named = repr(self.moves[move_id]) if 0 <= move_id < len(self.moves) else f"of id {move_id}"
            legal = " ".join(self.moves[i] for i in self.legal(state)) or "none, the game is over"
            raise IllegalMoveError(f"move {named} is illegal in {self.format(state)!r}; legal: {legal}")
        # The highest bit of a column's empty squares is its lowest square on the board.
        square = (self._column[move_id] & ~taken).bit_length() - 1 if self.gravity else int(move_id)
        x, o = state.stones
        mine = state.stones[state.player] | 1 << square
        won = False
        for line in self._lines_at[square]:
            if mine & line == line:
                won = True
                break
        moves = (*state.moves, int(move_id))
        return Board((x, mine), 0, won, moves) if state.player else Board((mine, o), 1, won, moves)

    def player(self, state: Board) -> int:
        """0 when X is to move, 1 when O is."""
        return state.player

    def outcome(self, state: Board) -> float | None:
        """-1 when the other player has won, 0 on a full board."""
        if state.won:
            return -1.0
        return 0.0 if state.stones[0] | state.stones[1] == self._full else None

    def key(self, state: Board) -> int:
        """Both stone sets in one number; no position repeats."""
        return state.stones[0] << self.num_squares | state.stones[1]

    def past(self, state: Board) -> tuple[str, tuple[int, ...]]:
        """The first position that is known, found by taking the stones off again, and the moves since."""
        stones, player = list(state.stones), state.player
        for move in reversed(state.moves):
            player = 1 - player
            column = (stones[0] | stones[1]) & self._column[move] if self.gravity else 1 << move
            stones[player] ^= column & -column  # the last stone of a column is its highest, the lowest bit
        return self.format(Board((stones[0], stones[1]), player, False)), state.moves

    # What a game may add.

    @cached_property
    def symmetries(self) -> tuple[Symmetry, ...]:  # made once, read often
        """Left-right with gravity; else every rotation and reflection that keeps the board's shape."""
        board = np.arange(self.num_squares).reshape(self.rows, self.cols)
        maps = {"left-right": board[:, ::-1]}
        if not self.gravity:
            maps |= {"top-bottom": board[::-1], "half turn": board[::-1, ::-1]}
            if self.rows == self.cols:
                maps |= {"diagonal": board.T, "antidiagonal": board[::-1, ::-1].T}
                maps |= {"quarter turn": np.rot90(board), "three quarters": np.rot90(board, 3)}
        symmetries: dict[tuple[int, ...], Symmetry] = {}
        for name, image in maps.items():
            squares = tuple(int(i) for i in image.ravel())
            moves = np.array(squares[: self.cols] if self.gravity else squares)
            if squares != tuple(range(self.num_squares)):  # on a board of one row some of them are the same
                symmetries.setdefault(squares, Symmetry(name, partial(self._mapped, squares), moves))
        return tuple(symmetries.values())

    def _mapped(self, squares: tuple[int, ...], state: Board) -> Board:
        x, o = (sum(1 << to for i, to in enumerate(squares) if bits >> i & 1) for bits in state.stones)
        return Board((x, o), state.player, state.won)

    def positions(self) -> Iterator[Board]:
        """Every reachable position, finished games too, ply by ply."""
        bound = self._count_positions()
        if bound > MAX_POSITIONS:
            raise ValueError(
                f"{self.spec} has up to {bound:.2g} positions, more than the {MAX_POSITIONS:,} that are enumerated; "
                "take a smaller board, or positions of played games"
            )
        ply = {self.key(self.parse()): self.parse()}
        while ply:
            yield from ply.values()
            after = (self.play(state, int(move)) for state in ply.values() for move in self.legal(state))
            ply = {self.key(state): state for state in after}

    def _count_positions(self) -> int:
        """An upper bound: every way to fill the board, X one ahead at most, games that are over played on."""
        # filled[n]: ways to choose n squares; with gravity, a height for every column.
        filled = [math.comb(self.num_squares, n) for n in range(self.num_squares + 1)]
        if self.gravity:
            filled = [1] + [0] * self.num_squares
            for _ in range(self.cols):
                filled = [sum(filled[max(0, n - self.rows) : n + 1]) for n in range(self.num_squares + 1)]
        return sum(ways * math.comb(n, n // 2) for n, ways in enumerate(filled))


def _truth(name: str, value: bool | str) -> bool:
    said = str(value).lower()
    if said not in ("true", "yes", "1", "false", "no", "0"):
        raise ValueError(f"{name} must be true or false (yes, no, 1, 0), got {value!r}")
    return said in ("true", "yes", "1")


def _number(name: str, value: int | str, least: int, most: int) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,3}", str(value)) or not least <= int(value) <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    return int(value)
