"""How a chessboard looks: python-chess's pieces (Colin M. L. Burnett's, GPL-2.0-or-later) on a board of our own."""

from __future__ import annotations

import re
from functools import cache

import chess
import chess.svg

from genpolicy.drawing import Drawing

_UNITS = 45  # of chess.svg's pieces
_SHARE = 0.94  # of a square that a piece's drawing takes
_PROPERTY = re.compile(r"\s*([a-z-]+)\s*:\s*([^;]+?)\s*;?\s*(?=[a-z-]+\s*:|$)")


@cache
def drawing() -> Drawing:
    """Pieces, names and colours."""
    pieces = {".": "", **{symbol: _piece(svg) for symbol, svg in chess.svg.PIECES.items()}}
    names = {".": "empty"}
    for symbol in chess.svg.PIECES:
        piece = chess.Piece.from_symbol(symbol)
        names[symbol] = f"{chess.COLOR_NAMES[piece.color]} {chess.piece_name(piece.piece_type)}"
    castles = [f"{colour} may castle {side}" for colour in ("White", "Black") for side in ("short", "long")]
    names |= {"white": "White", "black": "Black", "-": "no", **{f"castling:{letter}": "yes" for letter in "KQkq"}}
    return Drawing(
        pieces=pieces,
        names=names,
        columns=tuple("abcdefgh"),
        rows=tuple("87654321"),
        squares=("#e9edf2", "#a7b8ca"),
        lines="",
        facts={64: "to move", **dict(enumerate(castles, 65))},  # as ``genpolicy_chess.tokens`` orders them
    )


def _piece(svg: str) -> str:
    """A piece within 100 by 100 units, without ids and with attributes in place of styles."""
    bare = re.sub(r'\s(?:id|class)="[^"]*"', "", svg)
    plain = re.sub(r'\sstyle="([^"]*)"', lambda style: _attributes(style[1]), bare)
    scale, shift = 100 * _SHARE / _UNITS, 50 * (1 - _SHARE)
    return f'<g transform="translate({shift:g} {shift:g}) scale({scale:.4g})">{plain}</g>'


def _attributes(style: str) -> str:
    return "".join(f' {name}="{value}"' for name, value in _PROPERTY.findall(style))
