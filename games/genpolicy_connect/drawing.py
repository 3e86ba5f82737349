"""How a board of k-in-a-row looks: X as crosses and O as rings, or discs in two colours where stones fall."""

from __future__ import annotations

from genpolicy.drawing import Drawing

_CROSS = '<path d="M24 24L76 76M76 24L24 76" stroke="#1d5fb4" stroke-width="13" stroke-linecap="round" fill="none"/>'
_RING = '<circle cx="50" cy="50" r="28" stroke="#c2451e" stroke-width="12" fill="none"/>'
_HOLE = '<circle cx="50" cy="50" r="39" fill="#f6f8fa" stroke="#1f4f8f" stroke-width="2"/>'


def _disc(fill: str, edge: str) -> str:
    outer = f'<circle cx="50" cy="50" r="39" fill="{fill}" stroke="{edge}" stroke-width="3"/>'
    return (
        outer + f'<circle cx="50" cy="50" r="27" fill="none" stroke="{edge}" stroke-width="3" stroke-opacity="0.55"/>'
    )


def drawing(rows: int, cols: int, gravity: bool) -> Drawing:
    """The look of a board; a column of a board with gravity is a move, so that rows need no name there."""
    letters = tuple(chr(ord("a") + col) for col in range(cols))
    names = {".": "empty", "X": "X", "O": "O", "x": "X", "o": "O"}
    facts = {rows * cols: "to move"}
    if gravity:
        pieces = {".": _HOLE, "X": _disc("#e3b322", "#a37c0b"), "O": _disc("#cf3d36", "#8c211c")}
        return Drawing(pieces, names, columns=letters, squares=("#3c74bd", "#3c74bd"), lines="", facts=facts)
    pieces = {".": "", "X": _CROSS, "O": _RING}
    numbers = tuple(str(rows - row) for row in range(rows))
    return Drawing(pieces, names, columns=letters, rows=numbers, facts=facts)
