"""The 1968 UCI moves that any chess position can have, in the order of the published DiffuSearch vocabulary.

First the 1792 pairs of squares that a queen or a knight could go between, sources by file and then rank (a1, a2, ...,
h8); then the 176 promotions. Castling is the king's two-square move (e1g1).
"""

from __future__ import annotations

import chess
import numpy as np

from genpolicy.game import MoveVocabulary

PROMOTIONS = (chess.QUEEN, chess.ROOK, chess.BISHOP, chess.KNIGHT)
"""Promotion pieces in the order of the kinds 1..4 and of the vocabulary."""

_KNIGHT_JUMPS = ((-2, -1), (-1, -2), (-2, 1), (1, -2), (2, -1), (-1, 2), (2, 1), (1, 2))


def square_token(square: chess.Square) -> int:
    """Index of a square's token in an encoded state: a8 is 0, h8 7, h1 63."""
    return square ^ 56


def _from_square(source: chess.Square) -> list[chess.Move]:
    """Queen lines (row, column, two diagonals), then knight jumps."""
    file, rank = chess.square_file(source), chess.square_rank(source)
    ends = [(f, rank) for f in range(8)] + [(file, r) for r in range(8)]
    ends += [(file + d, rank + d) for d in range(-7, 8)] + [(file + d, rank - d) for d in range(-7, 8)]
    ends += [(file + df, rank + dr) for df, dr in _KNIGHT_JUMPS]
    inside = [chess.square(f, r) for f, r in ends if 0 <= f < 8 and 0 <= r < 8]
    return [chess.Move(source, target) for target in inside if target != source]


def _promotions_from_file(file: int) -> list[chess.Move]:
    """For each piece: straight ahead, then to the left, then to the right; black (to rank 1) before white."""
    return [
        chess.Move(chess.square(file, rank), chess.square(to_file, to_rank), promotion=piece)
        for piece in PROMOTIONS
        for to_file in (file, file - 1, file + 1)
        if 0 <= to_file < 8
        for rank, to_rank in ((1, 0), (6, 7))
    ]


def mirrored_move(move: chess.Move) -> chess.Move:
    """The same move with the board turned over."""
    return chess.Move(move.from_square ^ 56, move.to_square ^ 56, move.promotion)


def _all_moves() -> tuple[chess.Move, ...]:
    plain = [m for file in range(8) for rank in range(8) for m in _from_square(chess.square(file, rank))]
    return (*plain, *(m for file in range(8) for m in _promotions_from_file(file)))


MOVES: tuple[chess.Move, ...] = _all_moves()
"""The move of each id."""

_CODES = {(m.from_square, m.to_square, m.promotion): i for i, m in enumerate(MOVES)}


def move_id(move: chess.Move) -> int:
    """Id of a python-chess move (castling as the king's two-square move).

    Raises:
        KeyError: no piece could make it (a null move, a drop).
    """
    return _CODES[move.from_square, move.to_square, move.promotion]


def make_vocabulary() -> MoveVocabulary:
    """The vocabulary with the tables of a factorised head; player 1 sees a move with its ranks flipped."""
    return MoveVocabulary(
        texts=tuple(m.uci() for m in MOVES),
        source=np.array([square_token(m.from_square) for m in MOVES], np.int16),
        target=np.array([square_token(m.to_square) for m in MOVES], np.int16),
        kind=np.array([PROMOTIONS.index(m.promotion) + 1 if m.promotion else 0 for m in MOVES], np.int16),
        num_kinds=len(PROMOTIONS) + 1,
        mirrored=np.array([move_id(mirrored_move(m)) for m in MOVES], np.int64),
    )
