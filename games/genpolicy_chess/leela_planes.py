"""Chess as networks of Leela Chess Zero see it: 112 planes of the last eight positions, and 1858 moves.

Input format 1 of lc0 (``INPUT_CLASSICAL_112_PLANE``), all from the side of the player to move; squares are a1, b1, ...,
h8 of a board that is turned upside down for Black:

    13 planes for each of eight positions, the latest first: the mover's P N B R Q K, the other side's, and ones where
    the position has stood on the board before
    104 to 107: ones where the mover may castle long, short; the other side long, short
    108: ones where Black is to move; 109: plies without capture or pawn move; 110: zeros; 111: ones

A game that begins elsewhere than in the initial position has its first position repeated for those before it; in that
copy the pawn of a possible en-passant capture stands where it came from. Before the initial position there are zeros.

Moves: the 1792 pairs of squares between which a queen or a knight could go, by source and target, then the promotions
to Q, R and B by source, target and piece. A promotion to a knight is the plain move; castling is the king's move onto
its rook. Facts of format and order are from lc0's source (``neural/encoder.cc``, ``chess/bitboard.cc``).

Axes: B batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from genpolicy_chess.moves import MOVES, move_id
from genpolicy_chess.state import ChessState, drop_idle_en_passant, position_key

NUM_POSITIONS, PLANES_PER_POSITION = 8, 13
NUM_PLANES = NUM_POSITIONS * PLANES_PER_POSITION + 8
NUM_MOVES = 1858
_PROMOTIONS = (chess.QUEEN, chess.ROOK, chess.BISHOP)


def _leela_ids() -> NDArray[np.int64]:
    """[1968] Leela's id of each of our moves as White makes it; -1 for promotions on rank 1."""
    plain = sorted((m.from_square, m.to_square) for m in MOVES if m.promotion is None)
    up = sorted({(m.from_square, m.to_square) for m in MOVES if m.promotion and m.to_square >= chess.A8})
    order: list[tuple[int, int, int | None]] = [(*ends, None) for ends in plain]
    order += [(*ends, piece) for ends in up for piece in _PROMOTIONS]
    ids = {key: i for i, key in enumerate(order)}
    found = np.full(len(MOVES), -1, np.int64)
    for i, move in enumerate(MOVES):
        if move.promotion is None or move.to_square >= chess.A8:
            piece = None if move.promotion == chess.KNIGHT else move.promotion
            found[i] = ids[move.from_square, move.to_square, piece]
    return found


_LEELA_IDS = _leela_ids()


def leela_ids(state: ChessState, legal: Sequence[int]) -> NDArray[np.int64]:
    """[len(legal)] Leela's ids of legal moves, given by our absolute ids."""
    turn = 0 if state.board.turn == chess.WHITE else 56
    seen = np.empty(len(legal), np.int64)
    for i, each in enumerate(legal):
        move = MOVES[each]
        target = move.to_square
        if state.board.is_castling(move):
            target = chess.square(7 if target > move.from_square else 0, chess.square_rank(target))
        seen[i] = move_id(chess.Move(move.from_square ^ turn, target ^ turn, move.promotion))
    return _LEELA_IDS[seen]


def planes(states: Sequence[ChessState]) -> NDArray[np.float32]:
    """[B, 112, 8, 8] the positions with their past, as the module's first lines say."""
    image = np.zeros((len(states), NUM_PLANES, 8, 8), np.float32)
    for row, state in zip(image, states, strict=True):
        mover = state.board.turn
        boards = _boards(state)
        for i in range(NUM_POSITIONS):
            at = row[i * PLANES_PER_POSITION :]
            if i < len(boards):
                _draw(at, boards[i], mover)
                at[12] = _stood_before(boards, i)
            elif _is_initial(state.start):
                break
            else:
                _draw(at, _before_double_step(state.start), mover)
        aux = row[NUM_POSITIONS * PLANES_PER_POSITION :]
        for side, first in ((mover, 0), (not mover, 2)):
            aux[first] = state.board.has_queenside_castling_rights(side)
            aux[first + 1] = state.board.has_kingside_castling_rights(side)
        aux[4] = mover == chess.BLACK
        aux[5] = state.board.halfmove_clock
        aux[7] = 1
    return image


def _boards(state: ChessState) -> list[chess.Board]:
    """All positions of the game, the latest first."""
    board = state.start.copy(stack=False)
    boards = [board.copy(stack=False)]
    for move in state.moves:
        board.push(move)
        boards.append(board.copy(stack=False))
    for each in boards:
        drop_idle_en_passant(each)
    return boards[::-1]


def _stood_before(boards: list[chess.Board], i: int) -> bool:
    """Whether position ``i`` has stood on the board since the last capture or pawn move before it."""
    key, reach = position_key(boards[i]), boards[i].halfmove_clock
    return any(position_key(before) == key for before in boards[i + 1 : i + 1 + reach])


def _draw(at: NDArray[np.float32], board: chess.Board, mover: chess.Color) -> None:
    """Set the first twelve planes of ``at`` to the pieces."""
    for first, side in ((0, mover), (6, not mover)):
        for piece in chess.PIECE_TYPES:
            mask = board.pieces_mask(piece, side)
            if mover == chess.BLACK:
                mask = chess.flip_vertical(mask)
            bits = np.unpackbits(np.array([mask], "<u8").view(np.uint8), bitorder="little")
            at[first + piece - 1] = bits.reshape(8, 8)


def _is_initial(board: chess.Board) -> bool:
    return position_key(board) == position_key(chess.Board())


def _before_double_step(board: chess.Board) -> chess.Board:
    """The board with the pawn that may be captured en passant put back where it came from."""
    passed = board.ep_square
    if passed is None:
        return board
    board, forward = board.copy(stack=False), -8 if board.turn == chess.WHITE else 8
    board.set_piece_at(passed - forward, board.remove_piece_at(passed + forward))
    return board
