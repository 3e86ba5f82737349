"""How a game of shogi ends beyond mate: fourfold repetition with perpetual check, declaration of an entered king.

Both are computed from the keys of a state's own history (``genpolicy_shogi.state.position_key``). cshogi's ``is_draw``
answers on the second occurrence and looks at the last cycle alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from genpolicy_shogi.sfen import BLACK, KING, WHITE_OFFSET
from genpolicy_shogi.state import CHECK_AT, HANDS_AT, SIDE_AT, ShogiState

MAX_OCCURRENCES = 4
ZONE_PIECES = 10
"""Pieces beside the king that must stand in the zone."""
WIN_27 = (28, 27)
"""Points with which Black and White win under the 27-point rule."""
WIN_24, DRAW_24 = 31, 24
"""Points with which either side wins, or draws, under the 24-point rule."""
_BIG = (5, 6, 13, 14)  # bishop, rook, horse, dragon: five points each
_BIG_SLOTS = (5, 6)


def repetition(keys: Sequence[bytes]) -> float | None:
    """Result for the player to move if the last position stands for the fourth time; else None.

    Where every move that one side made between the first and the fourth occurrence gave check, that side loses, also if
    the other side's move brought the fourth occurrence about; where both did, or neither, it is a draw.

    Args:
        keys: Keys of all positions of the game, the first one counted, in order.
    """
    key = keys[-1]
    if keys.count(key) < MAX_OCCURRENCES:
        return None
    places = [place for place, seen in enumerate(keys) if seen == key]
    cycle = keys[places[-MAX_OCCURRENCES] + 1 :]
    # A position in check was brought about by a checking move of the side that is not to move in it.
    mover_checks = all(seen[CHECK_AT] for seen in cycle if seen[SIDE_AT] != key[SIDE_AT])
    other_checks = all(seen[CHECK_AT] for seen in cycle if seen[SIDE_AT] == key[SIDE_AT])
    return float(other_checks - mover_checks)


def declaration_points(state: ShogiState) -> int | None:
    """Points of the player to move, if everything else allows it to declare; else None.

    The king stands in the zone (the three ranks furthest from its own side) and is not in check, and at least ten of
    the player's other pieces stand there. Rooks and bishops, promoted or not, count five, all others but the king one:
    those in the zone, and all in hand. In a handicap game nothing is added for the pieces that were left out.
    """
    key = state.keys[-1]
    if key[CHECK_AT]:
        return None
    side = key[SIDE_AT]
    offset = WHITE_OFFSET * side
    first = 0 if side == BLACK else 6
    zone = key[first:HANDS_AT:9] + key[first + 1 : HANDS_AT : 9] + key[first + 2 : HANDS_AT : 9]
    if KING + offset not in zone:
        return None
    pieces = [piece - offset for piece in zone if offset < piece < offset + WHITE_OFFSET]
    if len(pieces) - 1 < ZONE_PIECES:
        return None
    hand = key[HANDS_AT + 7 * side : HANDS_AT + 7 * side + 7]
    big = sum(piece in _BIG for piece in pieces) + sum(hand[slot] for slot in _BIG_SLOTS)
    return len(pieces) - 1 + sum(hand) + 4 * big


def declaration(state: ShogiState, rule: str) -> float | None:
    """What the player to move gets by declaring now: 1.0 a win, 0.0 a draw, None nothing.

    Args:
        state: The position.
        rule: ``"27"``: Black wins with 28 points, White with 27. ``"24"``: 31 points win, 24 to 30 draw. ``"none"``.
    """
    points = None if rule == "none" else declaration_points(state)
    if points is None:
        return None
    if rule == "27":
        return 1.0 if points >= WIN_27[state.turn] else None
    return 1.0 if points >= WIN_24 else 0.0 if points >= DRAW_24 else None
