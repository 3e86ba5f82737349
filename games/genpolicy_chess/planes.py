"""Chess as an image: planes of a position and AlphaZero's 73 planes of moves, both as the mover sees the board.

Rows and columns are those of the tokens: row 0 is the rank furthest from the mover, column 0 the a-file.

Position, 18 planes: the mover's P N B R Q K, the other side's, the mover's right to castle short and long, the other
side's, the square of an en-passant capture, and plies without capture or pawn move over 100.

Moves, 73 planes by *source* square (Silver et al. 2017, arXiv:1712.01815, "Representation"): 56 of a queen's moves, 8
directions clockwise from the mover's forward one and 7 distances each; 8 of a knight's, clockwise; 9 underpromotions,
to N, B and R, each by a capture to the left, straight ahead and by a capture to the right. A promotion to a queen is
the queen's move. 1858 of the 4672 cells hold a move.

Axes: B batch, M moves of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from genpolicy.game import StateTokenizer
from genpolicy_chess.moves import MOVES, square_token
from genpolicy_chess.state import ChessState

NUM_PLANES = 18
NUM_MOVE_PLANES = 73
_DIRECTIONS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
"""(rows, columns) of a step, clockwise from straight ahead."""
_JUMPS = ((-2, 1), (-1, 2), (1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1))
_UNDERPROMOTIONS = (chess.KNIGHT, chess.BISHOP, chess.ROOK)
_JUMP_PLANE, _UNDERPROMOTION_PLANE = 56, 64


def planes(tokenizer: StateTokenizer[ChessState], states: Sequence[ChessState]) -> NDArray[np.float32]:
    """[B, 18, 8, 8] the positions as their movers see them."""
    movers = [int(state.board.turn == chess.BLACK) for state in states]
    tokens = tokenizer.encode(states, movers)[:, :64].reshape(-1, 8, 8)
    image = np.zeros((len(states), NUM_PLANES, 8, 8), np.float32)
    image[:, :12] = tokens[:, None] == np.arange(1, 13)[:, None, None]
    for row, state in zip(image, states, strict=True):
        board = state.board
        for side, first in ((board.turn, 12), (not board.turn, 14)):
            row[first] = board.has_kingside_castling_rights(side)
            row[first + 1] = board.has_queenside_castling_rights(side)
        if board.ep_square is not None:
            seen = board.ep_square if board.turn == chess.WHITE else board.ep_square ^ 56
            row[16].flat[square_token(seen)] = 1
        row[17] = board.halfmove_clock / 100
    return image


def _plane(move: chess.Move) -> int | None:
    """Plane of a move that White makes; None for one that White never makes (a promotion on rank 1)."""
    rows = chess.square_rank(move.from_square) - chess.square_rank(move.to_square)
    columns = chess.square_file(move.to_square) - chess.square_file(move.from_square)
    if move.promotion is not None and rows > 0:
        return None
    if move.promotion in _UNDERPROMOTIONS:
        return _UNDERPROMOTION_PLANE + 3 * _UNDERPROMOTIONS.index(move.promotion) + columns + 1
    if (rows, columns) in _JUMPS:
        return _JUMP_PLANE + _JUMPS.index((rows, columns))
    distance = max(abs(rows), abs(columns))
    return 7 * _DIRECTIONS.index((rows // distance, columns // distance)) + distance - 1


def cells() -> NDArray[np.int64]:
    """[M] cell of each move on the grid [73, 8, 8] as its mover sees it; -1 for moves that no mover makes."""
    found = np.full(len(MOVES), -1, np.int64)
    for i, move in enumerate(MOVES):
        plane = _plane(move)
        if plane is not None:
            found[i] = 64 * plane + square_token(move.from_square)
    return found
