"""MyGame: its tokens, its moves and its rules. What stands here is hexapawn; replace it by your own game.

A pawn steps forward onto an empty square or captures one square diagonally forward. Who reaches the far side wins; who
cannot move loses. A state is the board as text, row by row from the top, with X for player 0 (who moves up and first)
and O for player 1, and the player to move. Axes: B batch, L tokens of a state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game, Hints, IntArray, MoveVocabulary, StateTokenizer

State = tuple[str, int]
ROWS, COLS = 4, 4
NUM_SQUARES = ROWS * COLS
START = "O" * COLS + "." * (NUM_SQUARES - 2 * COLS) + "X" * COLS
SIDES = "XO"
SWAPPED = str.maketrans("XO", "OX")
NAMES = [f"{'abcdefgh'[square % COLS]}{ROWS - square // COLS}" for square in range(NUM_SQUARES)]

# Every move that there can be, as the squares it starts from and ends on. A game in which stones are placed has one
# move for each square, and -1 as its source; a pass is a move, too: from -1 to the token of the player to move.
MOVES = [
    (square, square + COLS * step + aside)
    for step in (-1, 1)
    for square in range(NUM_SQUARES)
    for aside in (-1, 0, 1)
    if 0 <= square // COLS + step < ROWS and 0 <= square % COLS + aside < COLS
]


def turned(state: State) -> State:
    """The position from the other side: the board turned, the colours and the player to move exchanged.

    A game without a direction, such as tic-tac-toe, leaves out ``[::-1]`` here and in the tokenizer's ``turned``, and
    turns no square in ``mirrored``.
    """
    board, player = state
    return board[::-1].translate(SWAPPED), 1 - player


class MyGameTokens(StateTokenizer[State]):
    """One token a square, then one for the player to move; player 1 sees the position turned."""

    symbols = (".", "X", "O", "x", "o")
    rows = np.array([*(square // COLS for square in range(NUM_SQUARES)), -1], np.int16)
    cols = np.array([*(square % COLS for square in range(NUM_SQUARES)), -1], np.int16)
    hands = np.full(NUM_SQUARES + 1, -1, np.int16)
    admitted = np.array([[True, True, True, False, False]] * NUM_SQUARES + [[False, False, False, True, True]])

    def encode(self, states: Sequence[State], viewers: Sequence[int] | IntArray | None = None) -> NDArray[np.int16]:
        """Token ids [B, L] of each state as its viewer sees it."""
        eyes = [0] * len(states) if viewers is None else viewers
        seen = [turned(state) if eye else state for state, eye in zip(states, eyes, strict=True)]
        ids = [[".XO".index(stone) for stone in board] + [3 + player] for board, player in seen]
        return np.array(ids, np.int16).reshape(len(states), self.length)

    def decode(self, row: IntArray, viewer: int = 0) -> State:
        """The state of a row that ``viewer`` sees."""
        ids = [int(i) for i in row]
        if len(ids) != self.length or not all(0 <= i < 5 and self.admitted[p, i] for p, i in enumerate(ids)):
            raise ValueError(f"tokens {ids} are not a position")
        state = "".join(".XO"[i] for i in ids[:-1]), ids[-1] - 3
        return turned(state) if viewer else state

    @property
    def turned(self) -> tuple[IntArray, IntArray]:
        """The other side's row: the place that each token comes from, and what each symbol becomes."""
        return np.array([*range(NUM_SQUARES)[::-1], NUM_SQUARES]), np.array([0, 2, 1, 4, 3])


class MyGameHints(Hints[State]):
    """What a search may know beyond the rules; with it ``alphabeta`` makes positions to train on."""

    gives = ("evaluate",)

    def evaluate(self, state: State) -> float:
        """More pawns are better: in [-1, 1] for the player to move."""
        board, player = state
        return (board.count(SIDES[player]) - board.count(SIDES[1 - player])) / (2 * COLS)


class MyGame(Game[State]):
    """Hexapawn on a board of 4 x 4."""

    name = spec = "mygame"
    protocol = "none"
    players = ("X", "O")
    tokens = MyGameTokens()
    moves = MoveVocabulary(
        texts=tuple(NAMES[source] + NAMES[target] for source, target in MOVES),
        source=np.array([source for source, _ in MOVES], np.int16),
        target=np.array([target for _, target in MOVES], np.int16),
        kind=np.zeros(len(MOVES), np.int16),
        num_kinds=1,
        mirrored=np.array([MOVES.index((NUM_SQUARES - 1 - s, NUM_SQUARES - 1 - t)) for s, t in MOVES], np.int64),
    )
    hints = MyGameHints()

    def parse(self, text: str | None = None) -> State:
        """The state of a text such as ``OOOO......XXXX X``: the board and who moves; the start without one."""
        if text is None:
            return START, 0
        board, _, side = text.partition(" ")
        if len(board) != NUM_SQUARES or set(board) - set(".XO") or side not in ("X", "O"):
            raise ValueError(f"{text!r} is not a position; the first is {self.format((START, 0))!r}")
        return board, SIDES.index(side)

    def format(self, state: State) -> str:
        """The text of a state."""
        return f"{state[0]} {SIDES[state[1]]}"

    def legal(self, state: State) -> NDArray[np.int64]:
        """Sorted ids of the legal moves."""
        if self._has_arrived(state):
            return np.empty(0, np.int64)
        return np.array([i for i, move in enumerate(MOVES) if self._may(state, *move)], np.int64)

    def play(self, state: State, move_id: int) -> State:
        """The state after a legal move."""
        if move_id not in self.legal(state):
            move = self.moves[move_id] if 0 <= move_id < len(MOVES) else move_id
            legal = " ".join(self.moves[i] for i in self.legal(state))
            raise IllegalMoveError(f"move {move} is illegal in {self.format(state)!r}; legal: {legal}")
        (board, player), (source, target) = state, MOVES[move_id]
        squares = list(board)
        squares[source], squares[target] = ".", SIDES[player]
        return "".join(squares), 1 - player

    def player(self, state: State) -> int:
        """Player to move."""
        return state[1]

    def outcome(self, state: State) -> float | None:
        """The player to move has lost if the other has arrived or if it cannot move."""
        return -1.0 if self._has_arrived(state) or not len(self.legal(state)) else None

    def key(self, state: State) -> str:
        """The position itself: no rule looks at the past."""
        return self.format(state)

    def _may(self, state: State, source: int, target: int) -> bool:
        board, player = state
        forward = target // COLS - source // COLS == (-1, 1)[player]
        wanted = "." if source % COLS == target % COLS else SIDES[1 - player]
        return board[source] == SIDES[player] and forward and board[target] == wanted

    def _has_arrived(self, state: State) -> bool:
        """Whether a pawn stands on the far side; in play only the player who has just moved can have one there."""
        board, _ = state
        return "X" in board[:COLS] or "O" in board[-COLS:]
