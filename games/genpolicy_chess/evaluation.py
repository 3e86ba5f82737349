"""A quick static evaluation: tapered material and piece placement, pawn structure, and what is quiet.

Where the numbers come from: piece values are the textbook ones, rounded (a minor piece is worth a little more than
three pawns, a queen a little less than two rooks), with pawns and rooks worth more once few pieces are left. Placement
is a formula a piece, written by hand from what textbooks say: centre, development, rook on the seventh, a safe king in
the middle game and an active one in the end. Nothing was fitted and nothing was taken from a program.
"""

from __future__ import annotations

import math

import chess

from genpolicy.values import CENTIPAWN_SCALE
from genpolicy_chess.moves import move_id

PIECE_CENTIPAWNS = {
    chess.PAWN: 100,
    chess.KNIGHT: 320,
    chess.BISHOP: 330,
    chess.ROOK: 500,
    chess.QUEEN: 950,
    chess.KING: 0,
}
_ENDGAME_EXTRA = {chess.PAWN: 20, chess.ROOK: 20, chess.QUEEN: 20}
"""Centipawns that a piece gains on the way to the endgame."""
_PHASE = {chess.KNIGHT: 1, chess.BISHOP: 1, chess.ROOK: 2, chess.QUEEN: 4}
_FULL_PHASE = 24  # both sides' pieces at the start: 4 knights, 4 bishops, 4 rooks, 2 queens
_KING_WORTH = 10_000  # a king takes only what is not defended
_BISHOP_PAIR = (25, 45)  # middle game, endgame
_DOUBLED = (-10, -20)  # each pawn behind another of its colour
_ISOLATED = (-10, -15)
_PASSED = ((0, 0), (0, 5), (5, 10), (10, 25), (25, 45), (45, 80), (80, 140), (0, 0))  # by ranks from home
_DRIVE_KING = 12  # endgame, a square that a king is driven from the centre when the other side is a rook or more ahead
_DRIVE_LEAD = 400


def _centre_distance(square: chess.Square) -> float:
    """0.5 in the centre to 3.5 on the rim, by the larger of file and rank."""
    return max(abs(chess.square_file(square) - 3.5), abs(chess.square_rank(square) - 3.5))


def _placement(piece: chess.PieceType, square: chess.Square) -> tuple[int, int]:
    """Bonus in centipawns of a white piece, in the middle game and in the endgame."""
    file, rank, off_centre = chess.square_file(square), chess.square_rank(square), _centre_distance(square)
    back = 10 if rank == 0 else 0
    if piece == chess.PAWN:
        central = 14 if file in (3, 4) and rank in (3, 4) else 6 if file in (2, 5) and rank == 3 else 0
        stuck = -12 if file in (3, 4) and rank == 1 else 0
        return (0, 0, 2, 6, 12, 25, 45, 0)[rank] + central + stuck, (0, 0, 3, 9, 18, 35, 60, 0)[rank]
    if piece == chess.KNIGHT:
        return round(25 - 14 * off_centre) - back, round(20 - 13 * off_centre)
    if piece == chess.BISHOP:
        return round(14 - 6 * off_centre) - back, round(12 - 6 * off_centre)
    if piece == chess.ROOK:
        return (20 if rank == 6 else 0) + (8 if file in (3, 4) else 0), 12 if rank == 6 else 0
    if piece == chess.QUEEN:
        return round(4 - 2 * off_centre) - (4 if rank in (2, 3, 4) else 0), round(16 - 8 * off_centre)
    sheltered = (20 if file in (1, 2, 6) else -10 if file in (3, 4) else 10) - 25 * min(rank, 3)
    return sheltered, round(30 - 16 * off_centre)


def _tables(colour: chess.Color) -> dict[chess.PieceType, tuple[list[int], list[int]]]:
    """Worth and placement of a colour's pieces by square, in middle game and endgame; Black's are below 0."""
    sign, flip = (1, 0) if colour == chess.WHITE else (-1, 56)
    tables = {}
    for piece, worth in PIECE_CENTIPAWNS.items():
        both = [_placement(piece, square ^ flip) for square in chess.SQUARES]
        late = worth + _ENDGAME_EXTRA.get(piece, 0)
        tables[piece] = [sign * (worth + middle) for middle, _ in both], [sign * (late + end) for _, end in both]
    return tables


_TABLES = {colour: _tables(colour) for colour in chess.COLORS}
_BESIDE = [
    sum(chess.BB_FILES[file] for file in (at - 1, at + 1) if 0 <= file < 8) for at in range(8)
]  # the files next to a file
_AHEAD = {
    colour: [
        sum(
            mask
            for rank, mask in enumerate(chess.BB_RANKS)
            if (rank > chess.square_rank(square)) == (colour == chess.WHITE) and rank != chess.square_rank(square)
        )
        for square in chess.SQUARES
    ]
    for colour in chess.COLORS
}


def static_centipawns(board: chess.Board) -> int:
    """What the position is worth to the player to move, in centipawns."""
    middle = end = phase = 0
    pieces = (board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings)
    for colour in chess.COLORS:
        own = board.occupied_co[colour]
        for piece, mask in enumerate(pieces, chess.PAWN):
            by_square_middle, by_square_end = _TABLES[colour][piece]
            for square in chess.scan_forward(mask & own):
                middle += by_square_middle[square]
                end += by_square_end[square]
                phase += _PHASE.get(piece, 0)
        sign = 1 if colour == chess.WHITE else -1
        if chess.popcount(board.bishops & own) > 1:
            middle, end = middle + sign * _BISHOP_PAIR[0], end + sign * _BISHOP_PAIR[1]
        pawns = _pawn_structure(board.pawns & own, board.pawns & ~own, colour)
        middle, end = middle + sign * pawns[0], end + sign * pawns[1]
    end += _drive_king(board, end)
    phase = min(phase, _FULL_PHASE)
    # Rounded towards 0, so that the colours are alike.
    total = int((middle * phase + end * (_FULL_PHASE - phase)) / _FULL_PHASE)
    return total if board.turn == chess.WHITE else -total


def _pawn_structure(own: chess.Bitboard, theirs: chess.Bitboard, colour: chess.Color) -> tuple[int, int]:
    """Doubled, isolated and passed pawns of a colour, in the middle game and in the endgame."""
    middle = end = 0
    for square in chess.scan_forward(own):
        file, ahead = chess.square_file(square), _AHEAD[colour][square]
        if own & ahead & chess.BB_FILES[file]:
            middle, end = middle + _DOUBLED[0], end + _DOUBLED[1]
        elif not theirs & ahead & (chess.BB_FILES[file] | _BESIDE[file]):
            rank = chess.square_rank(square)
            bonus = _PASSED[rank if colour == chess.WHITE else 7 - rank]
            middle, end = middle + bonus[0], end + bonus[1]
        if not own & _BESIDE[file]:
            middle, end = middle + _ISOLATED[0], end + _ISOLATED[1]
    return middle, end


def _drive_king(board: chess.Board, end: int) -> int:
    """Endgame bonus for White where a side far ahead has driven the other's king from the centre and is near it."""
    if abs(end) < _DRIVE_LEAD:
        return 0
    white, black = board.king(chess.WHITE), board.king(chess.BLACK)
    if white is None or black is None:
        return 0
    sign, loser = (1, black) if end > 0 else (-1, white)
    return sign * round(_DRIVE_KING * (2 * _centre_distance(loser) - chess.square_distance(white, black) / 2))


def static_value(board: chess.Board) -> float:
    """``static_centipawns`` as a value in (-1, 1), on the scale of engines' scores (``genpolicy.values``)."""
    # 2 / (1 + exp(-x)) - 1 = tanh(x / 2), which has the same digits for both colours.
    return math.tanh(CENTIPAWN_SCALE * static_centipawns(board) / 2)


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


def forcing_moves(board: chess.Board) -> list[int] | None:
    """Ids of the captures and queen promotions, the most valuable victim and then the cheapest attacker first.

    None in check, where nothing may be left out.
    """
    if board.is_check():
        return None
    seventh = chess.BB_RANK_7 if board.turn == chess.WHITE else chess.BB_RANK_2
    found = []
    for move in board.generate_legal_captures():
        if move.promotion in (None, chess.QUEEN):
            victim = board.piece_type_at(move.to_square) or chess.PAWN  # nothing stands there: en passant
            gain = PIECE_CENTIPAWNS[victim] + (PIECE_CENTIPAWNS[chess.QUEEN] if move.promotion else 0)
            found.append((-gain, _worth(board, move.from_square), move_id(move)))
    if pawns := board.pawns & board.occupied_co[board.turn] & seventh:
        for move in board.generate_legal_moves(from_mask=pawns, to_mask=~board.occupied):
            if move.promotion == chess.QUEEN:
                found.append((-PIECE_CENTIPAWNS[chess.QUEEN], 0, move_id(move)))
    return [move for _, _, move in sorted(found)]
