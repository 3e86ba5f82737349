"""Japanese for what the game says in English: its title, players, endings and pieces."""

from __future__ import annotations

_PIECES = {
    **{"pawn": "歩", "lance": "香", "knight": "桂", "silver": "銀", "gold": "金", "bishop": "角", "rook": "飛"},
    **{"king": "玉", "tokin": "と", "promoted lance": "成香", "promoted knight": "成桂", "promoted silver": "成銀"},
    **{"horse": "馬", "dragon": "龍"},
}

JAPANESE = {
    "Shogi": "将棋",
    "Black": "先手",
    "White": "後手",
    "checkmate": "詰み",
    "no legal move": "合法手なし",
    "perpetual check": "連続王手の千日手",
    "fourfold repetition": "千日手",
    "declaration of the entered king": "入玉宣言",
    "empty": "空き",
    "to move": "手番",
    "a side has more than one king": "玉が二枚以上あります",
    "there is no king (a mate problem may lack one, not both)": "玉がありません（詰将棋では一方の玉だけ省略できます）",
    "the kings stand next to each other": "玉どうしが隣り合っています",
    **dict(zip("abcdefghi", "一二三四五六七八九", strict=True)),  # the ranks
    **{f"black {name}": f"先手の{kanji}" for name, kanji in _PIECES.items()},
    **{f"white {name}": f"後手の{kanji}" for name, kanji in _PIECES.items()},
}
"""English -> Japanese."""
