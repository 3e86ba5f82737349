"""A quick static evaluation: material and piece placement, and whether it can be trusted as it stands.

The numbers are round guesses of our own (centipawns); they are there so that a search has something to go by.
"""

from __future__ import annotations

import math

import chess

PIECE_CENTIPAWNS = {
    chess.PAWN: 100,
    chess.KNIGHT: 320,
    chess.BISHOP: 330,
    chess.ROOK: 500,
    chess.QUEEN: 950,
    chess.KING: 0,
}
SQUASH_CENTIPAWNS = 400.0  # a lead of a knight and a pawn counts as nearly 0.8
_KING_WORTH = 10_000  # a king takes only what is not defended
_ENDGAME_MATERIAL = 2600  # centipawns of pieces without pawns, both sides, below which kings come out


def _centre_distance(square: chess.Square) -> float:
    """0.5 in the centre to 3.5 on the rim, by the larger of file and rank."""
    return max(abs(chess.square_file(square) - 3.5), abs(chess.square_rank(square) - 3.5))


def _placement(piece: chess.PieceType, square: chess.Square) -> int:
    """Bonus in centipawns of a white piece."""
    file, rank, off_centre = chess.square_file(square), chess.square_rank(square), _centre_distance(square)
    if piece == chess.PAWN:
        central = 12 if file in (3, 4) and rank in (3, 4) else 0
        return (0, 0, 2, 8, 18, 40, 80, 0)[rank] + central
    if piece == chess.KNIGHT:
        return round(25 - 14 * off_centre) - (10 if rank == 0 else 0)
    if piece == chess.BISHOP:
        return round(15 - 6 * off_centre) - (10 if rank == 0 else 0)
    if piece == chess.ROOK:
        return (20 if rank == 6 else 0) + (8 if file in (3, 4) else 0)
    if piece == chess.QUEEN:
        return round(6 - 3 * off_centre)
    return (20 if file in (1, 2, 6) else -10 if file in (3, 4) else 10) - 25 * min(rank, 3)


def _king_in_endgame(square: chess.Square) -> int:
    return round(30 - 16 * _centre_distance(square))


_TABLES = {
    piece: [PIECE_CENTIPAWNS[piece] + _placement(piece, square) for square in chess.SQUARES]
    for piece in chess.PIECE_TYPES
}
_KING_ENDGAME = [_king_in_endgame(square) for square in chess.SQUARES]


def static_centipawns(board: chess.Board) -> int:
    """Material and placement for the player to move, in centipawns."""
    total = 0
    heavy = sum(
        PIECE_CENTIPAWNS[piece] * chess.popcount(board.pieces_mask(piece, colour))
        for piece in (chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN)
        for colour in chess.COLORS
    )
    for piece, table in _TABLES.items():
        if piece == chess.KING and heavy < _ENDGAME_MATERIAL:
            table = _KING_ENDGAME
        total += sum(table[square] for square in chess.scan_forward(board.pieces_mask(piece, chess.WHITE)))
        total -= sum(table[square ^ 56] for square in chess.scan_forward(board.pieces_mask(piece, chess.BLACK)))
    return total if board.turn == chess.WHITE else -total


def static_value(board: chess.Board) -> float:
    """``static_centipawns`` in (-1, 1)."""
    return math.tanh(static_centipawns(board) / SQUASH_CENTIPAWNS)


def is_quiet(board: chess.Board) -> bool:
    """Whether the player to move is not in check and can neither promote nor win material by one capture.

    A capture wins material if the victim is not defended or worth more than the piece that takes it. Pins and longer
    exchanges do not count.
    """
    if board.is_check():
        return False
    mover, other = board.turn, not board.turn
    for square in chess.scan_forward(board.occupied_co[other] & ~board.kings):
        attackers = board.attackers_mask(mover, square)
        if not attackers:
            continue
        if not board.attackers_mask(other, square):
            return False
        cheapest = min(_worth(board, attacker) for attacker in chess.scan_forward(attackers))
        if cheapest < _worth(board, square):
            return False
    seventh = chess.BB_RANK_7 if mover == chess.WHITE else chess.BB_RANK_2
    if not board.pawns & board.occupied_co[mover] & seventh:
        return True
    return not any(move.promotion for move in board.generate_legal_moves(from_mask=board.pawns & seventh))


def _worth(board: chess.Board, square: chess.Square) -> int:
    piece = board.piece_type_at(square)
    assert piece is not None
    return _KING_WORTH if piece == chess.KING else PIECE_CENTIPAWNS[piece]
