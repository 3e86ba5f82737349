"""A board as SVG text: squares, pieces, hands, confidence, masks, arrows.

Colours stand in presentation attributes beside a class, so that a drawing is complete by itself and a page's style
sheet can still change it; there is no ``style`` in it, no script and nothing from outside. Classes: ``gp-board``,
``gp-place`` (a group for each square and hand slot, with ``data-place``), ``gp-square`` (with ``gp-light`` or
``gp-dark``), ``gp-piece``, ``gp-doubt`` (how unsure a decided square is), ``gp-mask``, ``gp-differs``, ``gp-last``,
``gp-check``, ``gp-arrow`` (with ``gp-first``, ``gp-second``, ``gp-illegal``), ``gp-label``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from genpolicy.drawing import Drawing
from genpolicy.game import Game
from genpolicy_play.drawing.boards import Action, Board, Cell

UNIT = 100
"""Side of a square in the drawing's own units."""
FONT = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"
MONOSPACED = "DejaVu Sans Mono, Menlo, Consolas, monospace"
MARGIN = 42
HAND_WIDTH = 136
WRITTEN = (6, 8)
"""Rows and columns in whose place the text of a game without squares stands."""
LONGEST = 64
"""Characters of its lines; longer ones are cut into several."""


@dataclass(frozen=True)
class Palette:
    """Colours of a drawing but for the board's own."""

    page: str = "#ffffff"
    text: str = "#1c2530"
    faint: str = "#66727f"
    rule: str = "#d5dae0"
    first: str = "#1b62c4"
    """Moves of the side to move."""
    second: str = "#8b35a3"
    """Moves of the other side."""
    illegal: str = "#d0312d"
    last: str = "#3fa96b"
    doubt: str = "#ec6a2c"
    mask: str = "#6b7280"


LIGHT = Palette()
DARK = Palette(
    page="#14181d",
    text="#e8ecf1",
    faint="#9aa6b2",
    rule="#39424c",
    first="#3f86e8",
    second="#b45fcc",
    illegal="#f0524d",
)


@dataclass(frozen=True)
class Arrow:
    """A move to be drawn over a board."""

    source: int
    """Place of a token; -1: a move from nowhere, drawn as a ring."""
    target: int
    label: str = ""
    """A number or two in a circle on it."""
    probability: float = 1.0
    """In [0, 1]; the stronger the surer."""
    second: bool = False
    """Made by the side that is not to move."""
    illegal: bool = False


@dataclass(frozen=True)
class Box:
    """Where a place lies in a drawing."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> tuple[float, float]:
        """Its middle."""
        return self.x + self.width / 2, self.y + self.height / 2


def board_svg(
    game: Game[Any],
    board: Board,
    *,
    flipped: bool = False,
    last: Iterable[int] = (),
    check: int | None = None,
    arrows: Sequence[Arrow] = (),
    palette: Palette = LIGHT,
    width: int | None = None,
    title: str = "",
) -> str:
    """A board as a complete ``<svg>``.

    Args:
        game: Whose board it is.
        board: ``board_of(game, state)``, or one of a frame's.
        flipped: Player 1 below.
        last: Places of the last move; -1 among them is left out.
        check: Place of a piece to be saved.
        arrows: Drawn in order.
        palette: Colours of what is not the board.
        width: Width attribute in pixels; None leaves the size to the page.
        title: What it shows, for people who listen.
    """
    drawing = BoardDrawing(game, flipped, palette)
    size = "" if width is None else f' width="{width}" height="{round(width * drawing.height / drawing.width)}"'
    label = f" aria-label={quoteattr(title)}" if title else ""
    content = drawing.content(board, last=last, check=check, arrows=arrows)
    view = f'viewBox="0 0 {number(drawing.width)} {number(drawing.height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="gp-board" {view}{size} role="img"{label}>'
    return f"{head}{drawing.defs([board])}{content}</svg>"


def plan_arrows(actions: Sequence[Action], first_player: int) -> list[Arrow]:
    """Arrows of an imagined line, numbered by ply."""
    return [
        Arrow(
            a.source,
            a.target,
            label=str(a.ply + 1),
            probability=a.probability,
            second=a.player != first_player,
            illegal=a.legal is not True,
        )
        for a in reversed(actions)
        if a.move >= 0
    ]


class BoardDrawing:
    """Geometry and parts of the boards of one game.

    Args:
        game: The game.
        flipped: Player 1 below.
        palette: Colours of what is not the board.
    """

    def __init__(self, game: Game[Any], flipped: bool = False, palette: Palette = LIGHT) -> None:
        self.game, self.flipped, self.palette = game, flipped, palette
        self.look: Drawing = game.view.drawing
        tokens = game.tokens
        squares = int(tokens.rows.max()) + 1, int(tokens.cols.max()) + 1
        self.written = self.look.written or not all(squares)
        self.num_rows, self.num_cols = WRITTEN if self.written else squares
        self._hand_of = [self._holder(slot) for slot in range(int(tokens.hands.max()) + 1)]
        beside = HAND_WIDTH + 14 if self._hand_of else 0
        label = MARGIN if self.look.rows else 8
        self.left = float(beside + label)
        self.top = float(MARGIN if self.look.columns and self._hand_of else 8)
        right = beside + (8 if not self._hand_of else label)
        bottom = 8 if not self.look.columns or self._hand_of else MARGIN
        self.width = self.left + self.num_cols * UNIT + right
        self.height = self.top + self.num_rows * UNIT + bottom
        self.boxes = {place: box for place in range(tokens.length) if (box := self._box(place)) is not None}

    def _holder(self, slot: int) -> int:
        return self.look.hands[slot].player if slot < len(self.look.hands) else 0

    def _box(self, place: int) -> Box | None:
        if self.written:
            return None
        tokens = self.game.tokens
        row, col, hand = int(tokens.rows[place]), int(tokens.cols[place]), int(tokens.hands[place])
        if row >= 0 and col >= 0:
            if self.flipped:
                row, col = self.num_rows - 1 - row, self.num_cols - 1 - col
            return Box(self.left + col * UNIT, self.top + row * UNIT, UNIT, UNIT)
        if hand < 0:
            return None
        # The player below has its hand at the lower right, the other one at the upper left.
        own = [slot for slot, holder in enumerate(self._hand_of) if holder == self._hand_of[hand]]
        size = min(UNIT - 4, self.num_rows * UNIT / max(len(own), 1))
        below = (self._hand_of[hand] == 0) != self.flipped
        at = own.index(hand)
        if below:
            y = self.top + self.num_rows * UNIT - (at + 1) * size
            return Box(self.width - HAND_WIDTH - 4, y, HAND_WIDTH, size)
        return Box(4, self.top + at * size, HAND_WIDTH, size)

    def defs(self, boards: Iterable[Board]) -> str:
        """The pieces of some boards and the stripes of a masked square, once each."""
        boards = list(boards)
        symbols = {cell.symbol for board in boards for cell in board.cells}
        symbols |= {slot.symbol for slot in self.look.hands}
        known = [s for s in self.look.pieces if s in symbols and self.look.pieces[s]]
        groups = "".join(f'<g id="{self._id(s)}">{self.look.pieces[s]}</g>' for s in known)
        if any(cell.masked and cell.row >= 0 for board in boards for cell in board.cells):
            groups += f'<g id="gp-hatch">{self._hatch(Box(0, 0, UNIT, UNIT))}</g>'
        return f"<defs>{groups}</defs>" if groups else ""

    def _id(self, symbol: str) -> str:
        # By the specification: a page may hold boards of variants of a game, whose pieces look different.
        game = re.sub(r"\W+", "-", self.game.spec)
        return f"gp-{game}-" + "".join(f"{ord(letter):x}" for letter in symbol)

    def content(
        self,
        board: Board,
        *,
        last: Iterable[int] = (),
        check: int | None = None,
        arrows: Sequence[Arrow] = (),
    ) -> str:
        """What is in the drawing but for ``defs``, in a box of ``width`` by ``height`` units."""
        marked = set(last)
        # Under the squares, whose edges would let the page show through.
        ground = Box(self.left, self.top, self.num_cols * UNIT, self.num_rows * UNIT)
        parts = [f'<rect class="gp-ground" {rect_at(ground)} fill="{self.look.squares[1]}"/>', self._coordinates()]
        for cell in board.cells:
            if cell.place in self.boxes:
                parts.append(self._place(cell, last=cell.place in marked, check=cell.place == check))
        parts.append(self._text_of(board) if self.written else self._grid())
        parts += [self.arrow(arrow) for arrow in arrows]
        return "".join(parts)

    def _text_of(self, board: Board) -> str:
        """The position as the game writes it, as large as it fits."""
        if board.text is None:
            return ""
        written = self.game.view.board_text(self.game.parse(board.text)).expandtabs().splitlines()
        lines = [line[at : at + LONGEST] for line in written for at in range(0, max(len(line), 1), LONGEST)]
        longest = max(map(len, lines), default=0) + 2
        size = min(self.num_rows * UNIT / (1.25 * (len(lines) + 1)), self.num_cols * UNIT / (0.6 * longest), 60.0)
        return "".join(
            # Else a run of spaces would be drawn as one.
            text(
                self.left + size,
                self.top + (1 + at) * 1.25 * size,
                said.replace(" ", "\u00a0"),
                size,
                "#1c2530",
                "start",
                font=MONOSPACED,
            )
            for at, said in enumerate(lines)
        )

    # Squares and what stands on them.

    def _place(self, cell: Cell, *, last: bool, check: bool) -> str:
        box, look, palette = self.boxes[cell.place], self.look, self.palette
        rect = rect_at(box)
        parts = []
        if cell.hand >= 0:
            parts.append(f'<rect class="gp-slot" {rect} fill="#ffffff" fill-opacity="0"/>')
        else:
            light = (cell.row + cell.col) % 2 == 0
            shade = "gp-light" if light else "gp-dark"
            parts.append(f'<rect class="gp-square {shade}" {rect} fill="{look.squares[0 if light else 1]}"/>')
        if last:
            parts.append(f'<rect class="gp-last" {rect} fill="{palette.last}" fill-opacity="0.42"/>')
        if check:
            ring = disc_at(*box.centre, box.width * 0.46)
            parts.append(f'<circle class="gp-check" {ring} fill="{palette.illegal}" fill-opacity="0.55"/>')
        if cell.masked:
            at = f'x="{number(box.x)}" y="{number(box.y)}"'
            square = f'<use href="#gp-hatch" {at}/>' if cell.row >= 0 else self._hatch(box)
            parts.append(f'<g class="gp-mask">{square}</g>')
        elif (doubt := 1 - cell.probability) > 0.02:
            opacity = number(0.12 + 0.58 * doubt)
            parts.append(f'<rect class="gp-doubt" {rect} fill="{palette.doubt}" fill-opacity="{opacity}"/>')
        parts.append(self._held(cell, box) if cell.hand >= 0 else self._piece(cell.symbol, box, self._opacity(cell)))
        if cell.differs:
            inset = rect_at(Box(box.x + 5, box.y + 5, box.width - 10, box.height - 10))
            look_of = f'fill="none" stroke="{palette.illegal}" stroke-width="6" stroke-dasharray="15 9"'
            parts.append(f'<rect class="gp-differs" {inset} rx="9" {look_of}/>')
        name = quoteattr(self._name(cell))
        return f'<g class="gp-place" data-place="{cell.place}" aria-label={name}>{"".join(parts)}</g>'

    @staticmethod
    def _opacity(cell: Cell) -> float:
        return 0.1 + 0.35 * cell.probability if cell.masked else 0.4 + 0.6 * cell.probability

    def _hatch(self, box: Box) -> str:
        """Stripes over a square that is not decided yet."""
        strokes, gap = [], 20.0
        total = box.width + box.height
        for i in range(1, math.ceil(total / gap)):
            d = i * gap
            x1, y1 = box.x + max(0.0, d - box.height), box.y + min(d, box.height)
            x2, y2 = box.x + min(d, box.width), box.y + max(0.0, d - box.width)
            strokes.append(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}")
        rect = rect_at(box)
        colour = self.palette.mask
        return (
            f'<rect {rect} fill="#ffffff" fill-opacity="0.5"/>'
            f'<path d="{"".join(strokes)}" stroke="{colour}" stroke-opacity="0.4" stroke-width="3.5"/>'
        )

    def _piece(self, symbol: str, box: Box, opacity: float) -> str:
        drawn = self.look.pieces.get(symbol)
        if drawn == "" or not symbol:
            return ""
        faded = f' opacity="{number(opacity)}"' if opacity < 0.995 else ""
        if drawn is None:
            cx, cy = box.centre
            size = min(0.62, 1.5 / max(len(symbol), 1)) * box.height
            return text(cx, cy + size * 0.35, symbol, size, "#1c2530", extra=f' class="gp-piece"{faded}')
        scale = min(box.width, box.height) / 100
        # In a flipped drawing a piece that looks its player's way looks the other way.
        turn = f" rotate(180 {UNIT // 2} {UNIT // 2})" if self.flipped and self.look.turns else ""
        dx, dy = box.x + (box.width - 100 * scale) / 2, box.y + (box.height - 100 * scale) / 2
        place = f"translate({number(dx)} {number(dy)})" + (f" scale({scale:.3g})" if scale != 1 else "") + turn
        return f'<use class="gp-piece" href="#{self._id(symbol)}" transform="{place}"{faded}/>'

    def _held(self, cell: Cell, box: Box) -> str:
        if cell.hand >= len(self.look.hands):
            return self._piece(cell.symbol, box, self._opacity(cell))
        slot, count = self.look.hands[cell.hand], cell.symbol
        some = count not in ("", "0")
        opacity = self._opacity(cell) if some else 0.1
        shown = ""
        if some and count != "1":
            size, dim = box.height * 0.34, f' opacity="{number(opacity)}"' if opacity < 0.995 else ""
            x, y = box.x + box.height - 4, box.y + box.height * 0.5 + size * 0.36
            shown = text(x, y, count, size, self.palette.text, "start", extra=f' class="gp-label"{dim}')
        return self._piece(slot.symbol, Box(box.x, box.y, box.height, box.height), opacity) + shown

    def _name(self, cell: Cell) -> str:
        held = self.look.names.get(cell.symbol, cell.symbol)
        if cell.hand >= 0:
            if cell.hand < len(self.look.hands):
                slot = self.look.hands[cell.hand]
                return f"{self.look.names.get(slot.symbol, slot.symbol)} in hand: {held}"
            return f"hand {cell.hand}: {held}"
        col = self.look.columns[cell.col] if cell.col < len(self.look.columns) else str(cell.col + 1)
        row = self.look.rows[cell.row] if cell.row < len(self.look.rows) else f"/{cell.row + 1}"
        return f"{col}{row} {held}".strip()

    # Around and over the squares.

    def _grid(self) -> str:
        if not self.look.lines:
            return ""
        x0, y0 = self.left, self.top
        x1, y1 = x0 + self.num_cols * UNIT, y0 + self.num_rows * UNIT
        path = [f"M{number(x0)} {number(y0 + r * UNIT)}H{number(x1)}" for r in range(1, self.num_rows)]
        path += [f"M{number(x0 + c * UNIT)} {number(y0)}V{number(y1)}" for c in range(1, self.num_cols)]
        line = f'stroke="{self.look.lines}" fill="none"'
        dots = "".join(
            f'<circle cx="{number(x0 + c * UNIT)}" cy="{number(y0 + r * UNIT)}" r="8" fill="{self.look.lines}"/>'
            for r, c in self.look.dots
        )
        frame = f'<rect {rect_at(Box(x0, y0, x1 - x0, y1 - y0))} {line} stroke-width="5"/>'
        inner = f'<path d="{"".join(path)}" {line} stroke-width="2"/>' if path else ""
        return f'<g class="gp-grid" pointer-events="none">{inner}{frame}{dots}</g>'

    def _coordinates(self) -> str:
        look, texts, size = self.look, [], 25.0
        attributes = ' class="gp-label"'
        for col, name in enumerate(look.columns):
            at = self.num_cols - 1 - col if self.flipped else col
            y = self.top - 13 if self._hand_of else self.top + self.num_rows * UNIT + 31
            x = self.left + (at + 0.5) * UNIT
            texts.append(text(x, y, name, size, self.palette.faint, extra=attributes))
        for row, name in enumerate(look.rows):
            at = self.num_rows - 1 - row if self.flipped else row
            y = self.top + (at + 0.5) * UNIT + size * 0.35
            x = self.left + self.num_cols * UNIT + 20 if self._hand_of else self.left - 21
            texts.append(text(x, y, name, size, self.palette.faint, extra=attributes))
        return "".join(texts)

    def arrow(self, arrow: Arrow) -> str:
        """One arrow; a ring where it comes from nowhere."""
        if arrow.target not in self.boxes:
            return ""
        palette = self.palette
        colour = palette.illegal if arrow.illegal else palette.second if arrow.second else palette.first
        kind = "gp-illegal" if arrow.illegal else "gp-second" if arrow.second else "gp-first"
        opacity = 0.38 + 0.52 * max(0.0, min(1.0, arrow.probability))
        tx, ty = self.boxes[arrow.target].centre
        if arrow.source not in self.boxes:
            shape = f'<circle {disc_at(tx, ty, 41)} fill="none" stroke="{colour}" stroke-width="10"/>'
            badge = (tx + 31, ty - 31)
        else:
            sx, sy = self.boxes[arrow.source].centre
            shape, badge = _shaft(sx, sy, tx, ty, colour, dashed=arrow.illegal)
        label = self._badge(*badge, arrow.label, colour) if arrow.label else ""
        faded = f'<g opacity="{number(opacity)}">{shape}</g>'
        return f'<g class="gp-arrow {kind}" pointer-events="none">{faded}{label}</g>'

    @staticmethod
    def _badge(x: float, y: float, label: str, colour: str) -> str:
        circle = f'<circle {disc_at(x, y, 18)} fill="{colour}" stroke="#ffffff" stroke-width="3"/>'
        size = min(25, 50 / len(label))  # a percentage is white, too, and must not stick out of its disc
        return circle + text(x, y + 0.36 * size, label, size, "#ffffff", extra=' font-weight="bold"')


def _shaft(sx: float, sy: float, tx: float, ty: float, colour: str, *, dashed: bool) -> tuple[str, tuple[float, float]]:
    """A shaft with a head, and where its number goes."""
    length = math.hypot(tx - sx, ty - sy)
    if length < 1:
        ring = f'<circle {disc_at(tx, ty, 41)} fill="none" stroke="{colour}" stroke-width="10"/>'
        return ring, (tx + 31, ty - 31)
    ux, uy = (tx - sx) / length, (ty - sy) / length
    # From just off the middle of the first square to just short of the middle of the other.
    start, tip, head = 22.0, length - 8, 40.0
    ax, ay = sx + ux * start, sy + uy * start
    bx, by = sx + ux * (tip - head + 3), sy + uy * (tip - head + 3)
    hx, hy = sx + ux * tip, sy + uy * tip
    cx, cy = sx + ux * (tip - head), sy + uy * (tip - head)
    wing = 23.0
    corners = [(hx, hy), (cx - uy * wing, cy + ux * wing), (cx + uy * wing, cy - ux * wing)]
    dash = ' stroke-dasharray="26 15"' if dashed else ""
    path = f"M{number(ax)} {number(ay)}L{number(bx)} {number(by)}"
    line = f'<path d="{path}" stroke="{colour}" stroke-width="15" fill="none"{dash}/>'
    points = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    middle = start + 0.42 * (tip - head - start)
    return line + f'<polygon points="{points}" fill="{colour}"/>', (sx + ux * middle, sy + uy * middle)


def text(
    x: float,
    y: float,
    said: str,
    size: float,
    colour: str,
    anchor: str = "middle",
    extra: str = "",
    font: str = FONT,
) -> str:
    """A line of text, escaped."""
    where = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
    return f'<text {where} text-anchor="{anchor}" font-family="{font}" fill="{colour}"{extra}>{escape(said)}</text>'


def rect_at(box: Box) -> str:
    """Attributes of a rectangle."""
    sides = {"x": box.x, "y": box.y, "width": box.width, "height": box.height}
    return " ".join(f'{name}="{number(value)}"' for name, value in sides.items())


def disc_at(x: float, y: float, radius: float) -> str:
    """Attributes of a circle."""
    return f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'


def number(value: float) -> str:
    """A number without needless digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
