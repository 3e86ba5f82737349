"""One picture of a plan: the position with the imagined line, the imagined boards, the alternatives, legality.

Lengths are the drawing's own units; one of them is a pixel of an SVG at its usual size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genpolicy.game import Game
from genpolicy.policies.dream import Dream
from genpolicy.values import value_to_probability
from genpolicy_play.drawing import Action, Board, Frame, board_of, plan_arrows, played_out
from genpolicy_play.drawing.svg import BoardDrawing, Box, Palette, number, rect_at, text

WIDTH = 1200.0
MARGIN = 28.0
LARGE = 560.0
"""Most width and height of the position's own board."""
LARGEST_SCALE = 0.9
"""Most pixels of a unit: a board of few squares stays small."""
BESIDE, BESIDE_WIDE = 410.0, 520.0
"""Most width where one imagined board of that size stands beside it; the second of boards with hands at their sides."""
SMALL = (560.0, 480.0, 355.0, 268.0)
"""Most width and height of an imagined board, by how many stand in a row."""
MOST_IN_A_ROW = len(SMALL)


class Picture:
    """Pictures of one dream, all of one size, so that they can follow each other in an animation.

    Args:
        game: The game.
        dream: What is shown.
        told: Its frames; boards by the rules are drawn where the policy imagines none.
        title: Stands above.
        flipped: Player 1 below.
        palette: Colours.
        num_top: Alternatives to the first move that are listed.
    """

    def __init__(
        self,
        game: Game[Any],
        dream: Dream,
        told: Sequence[Frame],
        title: str,
        *,
        flipped: bool,
        palette: Palette,
        num_top: int,
    ) -> None:
        self.game, self.dream, self.title, self.palette = game, dream, title, palette
        self.root = board_of(game, dream.state)
        self.player = game.player(dream.state)
        self.check = game.view.check(dream.state)
        self.boards = told[-1].boards
        if not self.boards and len(told[-1].actions) > 1:
            self.boards = tuple(played_out(game, dream.state, [a.move for a in told[-1].actions]))
        self.num_boards = len(self.boards)
        self.num_top = num_top
        self.drawing = BoardDrawing(game, flipped, palette)
        self.beside = self.num_boards == 1
        """The one imagined board stands beside the position and not below."""
        side = max(self.drawing.width, self.drawing.height)
        wide = self.drawing.width > 1.15 * self.drawing.height
        self.width = WIDTH + 2 * (BESIDE_WIDE - BESIDE) if wide and self.beside else WIDTH
        large = LARGE if not self.beside else BESIDE_WIDE if wide else BESIDE
        self.scale = min(large / side, LARGEST_SCALE)
        self.columns = min(max(self.num_boards, 1), MOST_IN_A_ROW)
        if self.num_boards > MOST_IN_A_ROW:  # two rows of the same length look better than four and one
            self.columns = min(MOST_IN_A_ROW, -(-self.num_boards // 2))
        self.small = self.scale if self.beside else min(SMALL[self.columns - 1] / side, LARGEST_SCALE)
        self.top = 96.0
        num_moves, has_values = (
            max(len(dream.decision.line), 1),
            dream.layout is not None and "v" in dream.layout.paradigm,
        )
        self.move_columns = 2 if num_moves > 4 else 1
        self.move_height = 50.0 if has_values else 38.0
        panel = (
            33.0 * num_top
            + self.move_height * -(-num_moves // self.move_columns)
            + (125 if dream.decision.value is not None else 95)
        )
        below = 40.0 if self.beside else 0.0
        self.strip = self.top + max(self.drawing.height * self.scale + below, panel) + 30
        rows = 0 if self.beside else -(-self.num_boards // self.columns)
        # Whole pixels: at the usual width nothing is left over at the edges.
        self.height = round(self.strip + (24 if rows else 0) + rows * (self.drawing.height * self.small + 64) + 40)

    def svg(
        self, frame: Frame, first: Frame | None = None, *, listed: Frame | None = None, width: int | None = None
    ) -> str:
        """The picture of a frame.

        Args:
            frame: What is imagined at a step.
            first: The first step, whose p(a_0) is marked for comparison.
            listed: The step whose likeliest moves are listed, so that they keep their places; None: the frame's own.
            width: Width attribute in pixels.
        """
        boards = frame.boards or self.boards
        size = "" if width is None else f' width="{width}" height="{round(width * self.height / self.width)}"'
        box = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        # A little more than all, so that no rounding leaves an edge.
        ground = f'<rect {rect_at(Box(-9, -9, self.width + 18, self.height + 18))} fill="{self.palette.page}"/>'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}{size} role="img">',
            self.drawing.defs([self.root, *boards]),
            ground,
            self._header(frame),
            self._plan(frame),
            self._panel(frame, first, listed or frame),
            self._strip(frame, boards),
            self._legend(frame),
            "</svg>",
        ]
        return "".join(parts)

    # Above.

    def _header(self, frame: Frame) -> str:
        position, room = f"{self.game.view.title}: {self.game.format(self.dream.state)}", self.width - 2 * MARGIN - 260
        title = self._line(MARGIN, 44, self.title, 27, bold=True, room=room)
        return title + self._line(MARGIN, 73, position, 17, faint=True, room=room) + self._progress(frame)

    def _progress(self, frame: Frame) -> str:
        """How far the dream is, as a bar of its steps."""
        if frame.of <= 1:
            return ""
        width, right = 220.0, self.width - MARGIN
        label = self._line(right, 44, f"step {frame.index + 1} of {frame.of}", 19, anchor="end")
        done = width * (frame.index + 1) / frame.of
        x, y = right - width, 60.0
        track = f'<rect {rect_at(Box(x, y, width, 9))} rx="4.5" fill="{self.palette.rule}"/>'
        bar = f'<rect {rect_at(Box(x, y, done, 9))} rx="4.5" fill="{self.palette.first}"/>'
        return label + track + bar

    # The position and the line.

    def _plan(self, frame: Frame) -> str:
        arrows = plan_arrows(frame.actions, self.player)
        board = self.drawing.content(self.root, arrows=arrows, check=self.check)
        return f'<g transform="translate({number(MARGIN)} {number(self.top)}) scale({self.scale:.4f})">{board}</g>'

    def _panel(self, frame: Frame, first: Frame | None, listed: Frame) -> str:
        x = MARGIN + (1 + self.beside) * (self.drawing.width * self.scale + 34) + 4
        return self._alternatives(x, frame, first, listed) + self._moves(x, frame)

    def _alternatives(self, x: float, frame: Frame, first: Frame | None, listed: Frame) -> str:
        y, right = self.top + 14, min(self.width - MARGIN, x + 600)
        room = right - x - 170
        if not frame.policy:
            played = self._label(self.dream.decision.move)
            return self._line(x, y, f"plays {played}", 21, bold=True)
        parts = [self._line(x, y, "First move", 21, bold=True)]
        chosen = self.dream.decision.move
        shown = list(listed.policy)[: self.num_top]
        if chosen not in shown:
            shown[-1] = chosen
        for move in shown:
            y += 33
            chance = frame.policy.get(move, 0.0)
            here = move == chosen
            colour = self.palette.first if here else self.palette.faint
            parts.append(self._line(x, y, self._label(move), 18, bold=here, room=92))
            bar = f'x="{number(x + 92)}" y="{number(y - 15)}" height="18" rx="3"'
            parts.append(f'<rect {bar} width="{number(room)}" fill="{self.palette.rule}" fill-opacity="0.5"/>')
            parts.append(f'<rect {bar} width="{number(max(1.5, room * chance))}" fill="{colour}"/>')
            if first is not None and first is not frame:
                at = x + 92 + room * first.policy.get(move, 0.0)
                parts.append(
                    f'<path d="M{number(at)} {number(y - 18)}v24" stroke="{self.palette.text}" stroke-width="2.5"/>'
                )
            parts.append(self._line(right, y, f"{100 * chance:.1f} %", 17, anchor="end"))
        return "".join(parts)

    def _moves(self, x: float, frame: Frame) -> str:
        num = min(self.num_top, len(frame.policy)) if frame.policy else 0
        y = self.top + 14 + 33 * num + 58
        if not frame.actions:
            return ""
        parts = [self._line(x, y, "Imagined line", 21, bold=True)]
        values = {value.ply: value for value in frame.values}
        label_of = self._labels(frame.actions)
        for i, action in enumerate(frame.actions):
            column, row = i % self.move_columns, i // self.move_columns
            cx, cy = x + column * (self.width - MARGIN - x) / 2, y - 8 + self.move_height * row + 44
            parts.append(self._move(cx, cy, action, label_of[i]))
            if action.ply in values:
                value = values[action.ply]
                who = self.game.players[action.player]
                parts.append(
                    self._line(cx + 36, cy + 19, f"{who} wins {100 * value.win_probability:.0f} %", 14, faint=True)
                )
        rows = -(-len(frame.actions) // self.move_columns)
        decision, who = self.dream.decision, self.game.players[self.player]
        if decision.value is not None:
            said = f"win probability of {who}: {100 * value_to_probability(decision.value):.0f} %"
            if decision.wdl is not None:
                said = "{}: {:.0%} win, {:.0%} draw, {:.0%} loss".format(who, *decision.wdl)
            parts.append(self._line(x, y + 36 + self.move_height * rows, said, 17, faint=True))
        return "".join(parts)

    def _move(self, x: float, y: float, action: Action, label: str) -> str:
        palette = self.palette
        wrong = action.legal is not True and action.move >= 0
        second = action.player != self.player
        colour = palette.illegal if wrong else palette.second if second else palette.first
        disc = f'<circle cx="{number(x + 13)}" cy="{number(y - 6)}" r="13" fill="{colour}"/>'
        badge = disc + text(x + 13, y, str(action.ply + 1), 17, "#ffffff", extra=' font-weight="bold"')
        name = self._line(x + 36, y, label, 19, faint=action.masked, room=92)
        chance = self._line(x + 166, y, f"{100 * action.probability:.0f} %", 17, anchor="end", faint=action.masked)
        if not self.dream.steps and not (action.ply == 0 and self.dream.decision.policy):
            chance = ""  # nobody said how likely it is
        said = "game over" if action.move < 0 else {True: "legal", False: "illegal", None: "unplayable"}[action.legal]
        mark = palette.illegal if wrong and not action.masked else palette.faint
        return badge + name + chance + text(x + 176, y, "a guess" if action.masked else said, 14, mark, "start")

    # The imagined boards.

    def _strip(self, frame: Frame, boards: Sequence[Board]) -> str:
        if not boards:
            return ""
        parts = []
        if not self.beside:
            heading = "Imagined positions" if frame.boards else "The line by the rules (no position is imagined)"
            parts.append(self._line(MARGIN, self.strip + 12, heading, 21, bold=True))
        width, height = self.drawing.width * self.small, self.drawing.height * self.small
        gap = (self.width - 2 * MARGIN - self.columns * width) / max(self.columns - 1, 1)
        label_of = self._labels(frame.actions)
        for i, board in enumerate(boards):
            x = MARGIN + (i % self.columns) * (width + min(gap, 60.0))
            y = self.strip + 32 + (i // self.columns) * (height + 64)
            if self.beside:
                x, y = MARGIN + width + 34, self.top
            parts.append(self._small_board(x, y, board, frame, label_of))
        return "".join(parts)

    def _small_board(self, x: float, y: float, board: Board, frame: Frame, label_of: Sequence[str]) -> str:
        move = next((a for a in frame.actions if a.ply == board.ply - 1), None)
        places = (move.source, move.target) if move is not None and move.move >= 0 else ()
        drawn = self.drawing.content(board, last=places)
        placed = f'<g transform="translate({number(x)} {number(y)}) scale({self.small:.4f})">{drawn}</g>'
        left, under = x + self.drawing.left * self.small, y + self.drawing.height * self.small
        room = (self.drawing.width - self.drawing.left) * self.small
        after = f"after {board.ply}" + (f": {label_of[board.ply - 1]}" if board.ply <= len(label_of) else "")
        if self.beside and board.imagined:
            after = f"imagined {after}"
        said = _verdict(board) if board.imagined else "by the rules" if self.beside else ""
        return (
            placed
            + self._line(left, under + 19, after, 17, bold=True, room=room)
            + self._line(left, under + 40, said, 15, faint=True, room=room)
        )

    # Below, and what all of them use.

    def _legend(self, frame: Frame) -> str:
        """What hatching, colour and frames mean."""
        if not frame.boards or not self.dream.steps:
            return ""
        palette, y, x = self.palette, self.height - 24, MARGIN
        swatch = f'y="{number(y - 15)}" width="20" height="20"'
        samples = [
            (
                f'<rect x="{{0}}" {swatch} fill="#ffffff" stroke="{palette.mask}" stroke-opacity="0.6"/>'
                f'<path d="M{{0}} {number(y - 2)}l13 -13M{{1}} {number(y + 5)}l16 -16" stroke="{palette.mask}" '
                'stroke-width="2" stroke-opacity="0.6"/>',
                "masked: the likeliest guess, faint",
            ),
            (f'<rect x="{{0}}" {swatch} fill="{palette.doubt}" fill-opacity="0.55"/>', "decided, but unsure"),
            (
                f'<rect x="{{0}}" {swatch} rx="3" fill="none" stroke="{palette.illegal}" stroke-width="2.5" '
                'stroke-dasharray="5 3"/>',
                "differs from the rules",
            ),
            (f'<rect x="{{0}}" {swatch} fill="{palette.last}" fill-opacity="0.42"/>', "the move before"),
        ]
        if frame.index:
            tick = f'<path d="M{{2}} {number(y - 16)}v22" stroke="{palette.text}" stroke-width="2.5"/>'
            samples.append((tick, "at the first step"))
        parts = []
        for drawn, said in samples:
            parts.append(
                drawn.format(number(x), number(x + 4), number(x + 16)) + self._line(x + 28, y, said, 15, faint=True)
            )
            x += 28 + 7.6 * len(said) + 28
        return "".join(parts)

    def _labels(self, actions: Sequence[Action]) -> list[str]:
        """The moves as people write them while they are legal, then as the protocol does."""
        labels, state = [], self.dream.state
        for action in actions:
            labels.append(self._label(action.move, state if action.legal else None))
            if action.legal:
                state = self.game.play(state, action.move)
        return labels

    def _label(self, move: int, state: Any = ...) -> str:
        if move < 0:
            return "(end)"
        protocol = self.game.moves[move]
        if state is None:
            return protocol
        written = self.game.view.move_text(self.dream.state if state is ... else state, move)
        # A picture must not depend on a font for other scripts.
        return written if written.isascii() else protocol

    def _line(
        self,
        x: float,
        y: float,
        said: str,
        size: float,
        *,
        bold: bool = False,
        faint: bool = False,
        anchor: str = "start",
        room: float | None = None,
    ) -> str:
        if room is not None and len(said) > (most := max(3, int(room / (size * 0.58)))):
            said = said[: most - 3] + "..."
        colour = self.palette.faint if faint else self.palette.text
        return text(x, y, said, size, colour, anchor, extra=' font-weight="bold"' if bold else "")


def _verdict(board: Board) -> str:
    """What the rules say of an imagined board."""
    if board.ended:
        return "the game has ended before"
    if board.num_masked:
        return f"{board.num_masked} of {len(board.cells)} tokens masked"
    if board.num_differing is None:
        return "a legal position" if board.text is not None else "not a legal position"
    if board.num_differing == 0:
        return "as the rules make it"
    said = "1 place differs" if board.num_differing == 1 else f"{board.num_differing} places differ"
    return said + ("" if board.text is not None else ", not legal")
