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
    **{f"white {name}": f"白の{piece}" for name, piece in _PIECES.items()},
    **{f"black {name}": f"黒の{piece}" for name, piece in _PIECES.items()},
}
"""English -> Japanese."""
