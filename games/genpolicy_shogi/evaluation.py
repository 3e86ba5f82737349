"""A quick static evaluation: material, placement and the kings' safety, and whether it can be trusted as it stands.

The numbers are our own round guesses (a pawn is 100), which give a search something to work with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from cshogi import move_cap, move_from_piece_type, move_is_drop, move_is_promotion, move_to
from numpy.typing import NDArray

from genpolicy_shogi.moves import ID_OF_MOVE16, MOVE16_MASK
from genpolicy_shogi.sfen import KING, NUM_SQUARES, WHITE_OFFSET
from genpolicy_shogi.state import HANDS_AT, SIDE_AT, ShogiState

PIECE_VALUES = (0, 100, 280, 300, 460, 750, 950, 520, 0, 480, 470, 480, 500, 1050, 1250)
"""Value of each piece type on the board (none P L N S B R G K +P +L +N +S +B +R)."""
HAND_VALUES = (115, 310, 330, 510, 580, 830, 1050)
"""Value of each piece in hand (P L N S G B R): it can be dropped where it is needed."""
SQUASH = 1200.0
"""A lead of a rook and a little more counts as nearly 0.7."""
_KING_WORTH = 10_000
_WINS = 50  # gains below this do not unsettle a position

_GUARD, _RAIDER = 35, 45
_ADVANCE = (0, 6, 8, 4, 9, 2, 2, 4, 0, 4, 4, 4, 4, 2, 2)


def _distance(a: int, b: int) -> int:
    """Steps of a king between two of cshogi's squares."""
    return max(abs(a // 9 - b // 9), abs(a % 9 - b % 9))


def _placement(kind: int, square: int) -> int:
    """Bonus of a black piece: for going forward, and of the king for staying home, away from the middle."""
    file, rank = divmod(square, 9)
    if kind == KING:
        return 12 * (rank - 8) + 8 * abs(file - 4)
    return _ADVANCE[kind] * (8 - rank)


def _board_table() -> NDArray[np.int32]:
    """[81, 32] worth of each piece number on each square for Black."""
    table = np.zeros((NUM_SQUARES, 32), np.int32)
    for square in range(NUM_SQUARES):
        for kind, value in enumerate(PIECE_VALUES):
            if kind:
                table[square, kind] = value + _placement(kind, square)
                table[80 - square, kind + WHITE_OFFSET] = -table[square, kind]
    return table


def _king_table() -> NDArray[np.int32]:
    """[2, 81, 81, 32] for a king of each colour on each square: worth for Black of each piece on each square.

    Own golds, silvers and promoted small pieces next to the king guard it; the other side's pieces within two steps,
    pawns and the king aside, raid it.
    """
    table = np.zeros((2, NUM_SQUARES, NUM_SQUARES, 32), np.int32)
    guards, raiders = (4, 7, 9, 10, 11, 12), (2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14)
    for king in range(NUM_SQUARES):
        for square in range(NUM_SQUARES):
            steps = _distance(king, square)
            if steps == 0 or steps > 2:
                continue
            for own in (0, WHITE_OFFSET):
                sign, colour = (1, 0) if own == 0 else (-1, 1)
                if steps == 1:
                    table[colour, king, square, [kind + own for kind in guards]] = sign * _GUARD
                other = WHITE_OFFSET - own
                table[colour, king, square, [kind + other for kind in raiders]] = -sign * (_RAIDER * (3 - steps) // 2)
    return table


_BOARD_TABLE = _board_table()
_KING_TABLE = _king_table()
_HAND_TABLE = np.array([*HAND_VALUES, *(-value for value in HAND_VALUES)], np.int32)
_SQUARES = np.arange(NUM_SQUARES)


def static_score(state: ShogiState) -> int:
    """Material, placement and safety for the player to move; a pawn is about 100."""
    key = state.keys[-1]
    numbers = np.frombuffer(key, np.uint8)
    pieces = numbers[:HANDS_AT]
    total = int(_BOARD_TABLE[_SQUARES, pieces].sum()) + int(numbers[HANDS_AT:SIDE_AT] @ _HAND_TABLE)
    for colour in (0, 1):
        king = key.find(KING + WHITE_OFFSET * colour, 0, HANDS_AT)
        if king >= 0:
            total += int(_KING_TABLE[colour, king, _SQUARES, pieces].sum())
    return -total if key[SIDE_AT] else total


def static_value(state: ShogiState) -> float:
    """``static_score`` in (-1, 1)."""
    return math.tanh(static_score(state) / SQUASH)


def is_quiet(state: ShogiState) -> bool:
    """Whether the player to move is not in check and wins no material by one capture or promotion.

    What the move gains is what it takes and what it promotes, less the piece itself where it can be taken back. Longer
    exchanges do not count.
    """
    if state.in_check:
        return False
    for move, gain, _, became in _gaining(state):
        if gain - _worth(became) >= _WINS or not _can_be_taken(state, move):
            return False
    return True


def _gaining(state: ShogiState) -> Iterator[tuple[int, int, int, int]]:
    """Captures and promotions that gain material at first sight: the move, its gain, the piece's type before and after.

    The gain is what the move takes and what it promotes.
    """
    for move in state.board.legal_moves:
        taken, kind = move_cap(move), move_from_piece_type(move)
        if move_is_drop(move) or not (taken or move_is_promotion(move)):
            continue
        became = kind + KING if move_is_promotion(move) else kind
        gain = PIECE_VALUES[taken] + PIECE_VALUES[became] - PIECE_VALUES[kind]
        if gain >= _WINS:
            yield move, gain, kind, became


def _can_be_taken(state: ShogiState, move: int) -> bool:
    board = state.board.copy()
    board.push(move)
    target = move_to(move)
    return any(move_to(reply) == target for reply in board.legal_moves)


def _worth(kind: int) -> int:
    return _KING_WORTH if kind == KING else PIECE_VALUES[kind]


def forcing_moves(state: ShogiState) -> NDArray[np.int64] | None:
    """Ids of the captures and promotions that gain material at first sight, the greatest gain and the cheapest first.

    None in check, where nothing may be left out.
    """
    if state.in_check:
        return None
    found = [(-gain, _worth(kind), int(ID_OF_MOVE16[move & MOVE16_MASK])) for move, gain, kind, _ in _gaining(state)]
    return np.array([move for _, _, move in sorted(found)], np.int64)
