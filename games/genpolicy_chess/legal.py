"""Ids of a position's legal moves, which a tree search asks for most often.

If the king is not in check, a piece that is not pinned may go wherever it attacks, so its moves need not be created and
tried one by one. Checks, pins, castling and en passant are python-chess's.
"""

from __future__ import annotations

from functools import lru_cache

import chess

from genpolicy_chess.moves import PROMOTIONS, move_id

_BESIDE_KINGS = chess.BB_D1 | chess.BB_F1 | chess.BB_D8 | chess.BB_F8
_LAST_RANKS = chess.BB_RANK_1 | chess.BB_RANK_8
_MANY = 1 << 14


def legal_ids(board: chess.Board) -> list[int]:
    """Sorted ids of the legal moves of a position with one king a side."""
    own, them = board.occupied_co[board.turn], not board.turn
    king = board.king(board.turn)
    if king is None or board.is_attacked_by(them, king):
        return sorted(map(move_id, board.generate_legal_moves()))
    pinned = own & _pinned(board, king)
    pawns = board.pawns & own & ~pinned
    ids: list[int] = []
    for square in chess.scan_forward(own & ~(pawns | pinned | 1 << king)):
        ids += _ids(square, board.attacks_mask(square) & ~own)
    for targets, step in _pawn_moves(board, pawns):
        if targets:
            ids += _pawn_ids(targets, step)
    for target in chess.scan_forward(chess.BB_KING_ATTACKS[king] & ~own):
        if not board.is_attacked_by(them, target):
            ids += _ids(king, 1 << target)
    if board.castling_rights and chess.BB_KING_ATTACKS[king] & _BESIDE_KINGS & ~board.occupied:
        ids += map(move_id, board.generate_castling_moves())
    if pinned:
        ids += map(move_id, board.generate_legal_moves(from_mask=pinned))
    if board.ep_square is not None:
        ids += map(move_id, board.generate_legal_ep(from_mask=pawns))
    return sorted(ids)


def _pinned(board: chess.Board, king: chess.Square) -> int:
    """Own and other pieces that stand alone between the king and an enemy that slides along that line."""
    lines = chess.BB_RANK_ATTACKS[king][0] | chess.BB_FILE_ATTACKS[king][0]
    sliders = lines & (board.rooks | board.queens) | chess.BB_DIAG_ATTACKS[king][0] & (board.bishops | board.queens)
    pinned = 0
    for slider in chess.scan_forward(sliders & board.occupied_co[not board.turn]):
        between = chess.between(king, slider) & board.occupied
        if not between & between - 1:
            pinned |= between
    return pinned


def _pawn_moves(board: chess.Board, pawns: int) -> tuple[tuple[int, int], ...]:
    """Where some pawns of the player to move may go, en passant left out: targets, and how far the pawns go there."""
    free, enemies = ~board.occupied, board.occupied_co[not board.turn]
    not_a, not_h = enemies & ~chess.BB_FILE_A, enemies & ~chess.BB_FILE_H
    if board.turn:
        ahead = pawns << 8 & free
        twice = (ahead & chess.BB_RANK_3) << 8 & free
        return (ahead, 8), (twice, 16), (pawns << 7 & not_h, 7), (pawns << 9 & not_a, 9)
    ahead = pawns >> 8 & free
    twice = (ahead & chess.BB_RANK_6) >> 8 & free
    return (ahead, -8), (twice, -16), (pawns >> 7 & not_a, -7), (pawns >> 9 & not_h, -9)


@lru_cache(_MANY)
def _ids(square: chess.Square, targets: int) -> tuple[int, ...]:
    return tuple(move_id(chess.Move(square, target)) for target in chess.scan_forward(targets))


@lru_cache(_MANY)
def _pawn_ids(targets: int, step: int) -> tuple[int, ...]:
    return tuple(
        move_id(chess.Move(target - step, target, promotion=piece))
        for target in chess.scan_forward(targets)
        for piece in (PROMOTIONS if _LAST_RANKS >> target & 1 else (None,))
    )
