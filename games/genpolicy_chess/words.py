"""Japanese for what the game says in English: its title, players, endings and pieces."""

from __future__ import annotations

_PIECES = {
    **{"pawn": "ポーン", "knight": "ナイト", "bishop": "ビショップ", "rook": "ルーク", "queen": "クイーン"},
    "king": "キング",
}

JAPANESE = {
    "Chess": "チェス",
    "White": "白",
    "Black": "黒",
    "checkmate": "チェックメイト",
    "stalemate": "ステイルメイト",
    "fifty moves without capture or pawn move": "50手ルール",
    "threefold repetition": "同形三復",
    "insufficient material": "戦力不足",
    "empty": "空き",
    "to move": "手番",
    "White may castle short": "白のキャスリング（キング側）",
    "White may castle long": "白のキャスリング（クイーン側）",
    "Black may castle short": "黒のキャスリング（キング側）",
    "Black may castle long": "黒のキャスリング（クイーン側）",
    "yes": "可",
    "no": "不可",
    "White has no king": "白のキングがありません",
    "Black has no king": "黒のキングがありません",
    "a side has more than one king": "キングが二つ以上あります",
    "a castling right without its king and rook at home": "キングかルークが元の位置になく、キャスリング不可です",
    "the side that is not to move is in check": "手番でない側にチェックがかかっています",
    "the board is empty": "盤面に駒がありません",
    **{f"white {name}": f"白の{piece}" for name, piece in _PIECES.items()},
    **{f"black {name}": f"黒の{piece}" for name, piece in _PIECES.items()},
}
"""English -> Japanese."""
