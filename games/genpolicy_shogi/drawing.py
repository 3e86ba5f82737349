"""How a shogi board looks: kanji on wooden wedges that point at the opponent, hands beside the board."""

from __future__ import annotations

from functools import cache

from genpolicy.drawing import Drawing, HandSlot
from genpolicy_shogi.glyphs import PATHS
from genpolicy_shogi.moves import SIDE_TOKEN
from genpolicy_shogi.sfen import HAND_LETTERS

_KANJI = {
    **{"P": "歩", "L": "香", "N": "桂", "S": "銀", "G": "金", "B": "角", "R": "飛", "K": "玉"},
    **{"+P": "と", "+L": "杏", "+N": "圭", "+S": "全", "+B": "馬", "+R": "龍"},
}
_NAMES = {
    **{"P": "pawn", "L": "lance", "N": "knight", "S": "silver", "G": "gold", "B": "bishop", "R": "rook", "K": "king"},
    **{"+P": "tokin", "+L": "promoted lance", "+N": "promoted knight", "+S": "promoted silver"},
    **{"+B": "horse", "+R": "dragon"},
}
_INK, _RED = "#1d1712", "#b3261e"
# A low pawn is smaller than a king, as on a real board.
_SIZES = {"P": 0.88, "L": 0.91, "N": 0.92, "S": 0.95, "G": 0.95, "B": 0.98, "R": 0.98, "K": 1.0}


@cache
def drawing() -> Drawing:
    """Pieces, names and colours."""
    pieces, names = {".": ""}, {".": "empty"}
    for letters, kanji in _KANJI.items():
        pieces[letters] = _piece(letters, kanji)
        # By custom the stronger player, who moves second, has the king with the other name.
        upper = _piece(letters, "王" if kanji == "玉" else kanji)
        pieces[letters.lower()] = f'<g transform="rotate(180 50 50)">{upper}</g>'
        names[letters], names[letters.lower()] = f"black {_NAMES[letters]}", f"white {_NAMES[letters]}"
    names |= {"black": "Black", "white": "White"}
    mine = [HandSlot(0, letter) for letter in HAND_LETTERS]
    other = [HandSlot(1, letter.lower()) for letter in HAND_LETTERS]
    return Drawing(
        pieces=pieces,
        names=names,
        columns=tuple("987654321"),
        rows=tuple("abcdefghi"),
        squares=("#f3e3c2", "#f3e3c2"),
        lines="#7a6546",
        dots=((3, 3), (3, 6), (6, 3), (6, 6)),
        turns=True,
        hands=(*mine, *other),
        facts={SIDE_TOKEN: "to move"},
    )


def _piece(letters: str, kanji: str) -> str:
    size, ink = _SIZES[letters[-1]], _RED if letters.startswith("+") else _INK
    wedge = '<path d="M50 7L79 19L88 93L12 93L21 19Z" fill="#fbeecb" stroke="#8d7448" stroke-width="2.5"/>'
    glyph = f'<path d="{PATHS[kanji]}" fill="{ink}" stroke="{ink}" stroke-width="1.7"/>'
    return f'<g transform="translate(50 51) scale({size:g}) translate(-50 -51)">{wedge}{glyph}</g>'
