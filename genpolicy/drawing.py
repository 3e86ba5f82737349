"""Drawing: how people see the board of a game. Without one, a game is a grid with its symbols as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HandSlot:
    """One kind of piece beside the board (``StateTokenizer.hands``); its token's symbol is how many there are."""

    player: int
    """Who holds it, in the absolute view: 0 or 1."""
    symbol: str
    """The state symbol whose picture stands for it."""


@dataclass(frozen=True)
class Drawing:
    """Pictures and names, all in the absolute view with row 0 on top."""

    pieces: Mapping[str, str] = field(default_factory=dict)
    """SVG elements of a state symbol within 100 by 100 units, ``""`` for an empty square; a symbol that is not here is
    drawn as text. They stand in pages as they are: no ``id``, ``style``, script or reference to anything outside."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What a symbol is called, for people who listen: ``white knight``."""
    columns: tuple[str, ...] = ()
    """Names of the columns from the left; () for none."""
    rows: tuple[str, ...] = ()
    """Names of the rows from the top; () for none."""
    squares: tuple[str, str] = ("#eef1f5", "#eef1f5")
    """Colours of the squares, as on a chessboard; the first is the top left one's."""
    lines: str = "#7a8797"
    """Colour of the lines between squares; ``""`` for none."""
    written: bool = False
    """Positions are drawn as ``View.board_text`` and not as squares, of which one token each would not show all."""
    dots: tuple[tuple[int, int], ...] = ()
    """(row, column) of the squares with a dot at their top left corner."""
    turns: bool = False
    """Pieces turn with the board: on a flipped one they are drawn upside down."""
    hands: tuple[HandSlot, ...] = ()
    """What each hand slot holds."""
    facts: Mapping[int, str] = field(default_factory=dict)
    """What other tokens say that a person sets up with a position, by their index: ``{64: "to move"}``; ``names`` has
    the names of their symbols."""
