"""Boards and frames: turned back to the absolute view, checked against the rules, drawn as clean SVG."""

from __future__ import annotations

import copy
import dataclasses
import random
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import genpolicy
from genpolicy.drawing import Drawing, HandSlot
from genpolicy.game import Game, View
from genpolicy.networks import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.policies.dream import Dream, DreamStep
from genpolicy.sequence import Layout
from genpolicy_play.drawing import Arrow, board_of, board_svg, frame_of_step, frames, move_places, plan_arrows
from genpolicy_play.drawing.svg import BoardDrawing

SVG = "{http://www.w3.org/2000/svg}"
SPECS = {"chess": "chess", "shogi": "cshogi", "connect": None, "connect:rows=3,cols=3,k=3,gravity=false": None}


def load(spec: str) -> Game[Any]:
    if library := SPECS.get(spec):
        pytest.importorskip(library)
    return genpolicy.load_game(spec)


@pytest.fixture(params=SPECS, name="game")
def _game(request: pytest.FixtureRequest) -> Game[Any]:
    return load(request.param)


def walk(game: Game[Any], plies: int, seed: int = 0) -> list[tuple[Any, int]]:
    """States and the random move that was made in each."""
    draw, state, line = random.Random(seed), game.parse(), []
    for _ in range(plies):
        legal = game.legal(state)
        if game.outcome(state) is not None or not len(legal):
            break
        move = int(draw.choice(legal.tolist()))
        line.append((state, move))
        state = game.play(state, move)
    return line


def told(game: Game[Any], state: Any, moves: list[int], paradigm: str = "s-asa", pad_from: int = 99) -> DreamStep:
    """A step that imagines just what the rules make of some moves, seen by the player to move; PAD from a ply on."""
    layout = Layout(game, paradigm, len(moves), admit_pad=True)
    viewer, future = game.player(state), [state]
    for move in moves:
        future.append(game.play(future[-1], move) if len(future) <= pad_from else future[-1])
    tokens = np.full(layout.length, layout.pad, np.int64)
    for slot in layout.slots:
        if slot.kind == "state" and slot.ply < pad_from:
            tokens[slot.start : slot.stop] = game.tokens.encode([future[slot.ply]], [viewer])[0]
        elif slot.kind == "action" and slot.ply < pad_from:
            seen = game.moves.seen_by(np.array([moves[slot.ply]]), viewer)[0]
            tokens[slot.start] = layout.move_offset + int(seen)
    chances = np.linspace(0.1, 1.0, layout.length)
    return DreamStep(layout, viewer, 0, 1, 0, tokens, tokens, chances, {moves[0]: 1.0})


def half_masked(step: DreamStep, masked: NDArray[np.bool_]) -> DreamStep:
    """The step with some tokens still masked, the policy guessing what they were."""
    return dataclasses.replace(step, tokens=np.where(masked, step.layout.mask, step.tokens))


def test_turned_maps_are_the_tokenizers_own(game: Game[Any]) -> None:
    turned = game.tokens.turned
    assert turned is not None
    places, symbols = turned
    for state, _ in walk(game, 60):
        absolute, other = (game.tokens.encode([state], [viewer])[0] for viewer in (0, 1))
        assert (symbols[other[places]] == absolute).all()
        assert (symbols[absolute[places]] == other).all()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_dream_of_the_truth_is_drawn_as_the_truth(game: Game[Any], seed: int) -> None:
    """For both players: symbols, moves, places and captions are those of the rules, whosever side the dream took."""
    line = walk(game, 80, seed)
    for ply in (0, 1, len(line) // 2, len(line) // 2 + 1, max(0, len(line) - 4), max(0, len(line) - 3)):
        moves = [move for _, move in line[ply : ply + 3]]
        frame = frame_of_step(game, line[ply][0], told(game, line[ply][0], moves))
        assert [a.move for a in frame.actions] == moves
        assert [a.legal for a in frame.actions] == [True] * len(moves)
        assert [a.player for a in frame.actions] == [game.player(state) for state, _ in line[ply : ply + 3]]
        assert [(a.source, a.target) for a in frame.actions] == [
            move_places(game, state, move) for state, move in line[ply : ply + 3]
        ]
        for board, (state, _) in zip(frame.boards, line[ply + 1 : ply + 3], strict=True):
            assert [c.symbol for c in board.cells] == [c.symbol for c in board_of(game, state).cells]
            assert (board.num_differing, board.ended) == (0, False)
            assert board.text is not None


def test_confidence_and_masks_turn_with_the_board(game: Game[Any]) -> None:
    """The token of the second player's view at place p stands at places[p] of the absolute one."""
    state, _ = walk(game, 4)[3]
    assert game.player(state) == 1
    moves = [int(game.legal(state)[0])]
    moves.append(int(game.legal(game.play(state, moves[0]))[0]))
    step = told(game, state, moves)
    slot = step.layout.slot("state", 1)
    assert slot is not None
    masked = step.masked.copy()
    masked[slot.start + 3] = True
    frame = frame_of_step(game, state, half_masked(step, masked))
    places = game.tokens.turned[0]  # type: ignore[index]
    assert [c.place for c in frame.boards[0].cells if c.masked] == [int(places[3])]
    expected = step.confidence[slot.start : slot.stop][places]
    np.testing.assert_allclose([c.probability for c in frame.boards[0].cells], expected)


def test_end_of_the_game_is_shown_as_such(game: Game[Any]) -> None:
    state, _ = walk(game, 2)[1]
    moves = [int(game.legal(state)[0])] * 3
    frame = frame_of_step(game, state, told(game, state, moves, pad_from=1))
    assert [a.move for a in frame.actions] == [moves[0], -1, -1]
    assert [a.legal for a in frame.actions] == [True, False, None]
    assert [board.ended for board in frame.boards] == [True, True]
    assert all(board.text is None and board.num_differing is None for board in frame.boards)
    assert [arrow.label for arrow in plan_arrows(frame.actions, 1)] == ["1"]
    ElementTree.fromstring(board_svg(game, frame.boards[0]))


def test_illegal_moves_and_wrong_squares_are_marked() -> None:
    game = load("chess")
    index = game.moves.index
    state = game.parse()
    step = told(game, state, [index("e2e4"), index("e7e5"), index("g1f3")])
    tokens = step.tokens.copy()
    actions = [slot.start for slot in step.layout.slots if slot.kind == "action"]
    tokens[actions[1]] = step.layout.move_offset + index("e4e5")  # a white pawn on Black's turn
    slot = step.layout.slot("state", 1)
    assert slot is not None
    tokens[slot.start + 36] = game.tokens.symbols.index(".")  # no pawn on e4 after e2e4
    frame = frame_of_step(game, state, dataclasses.replace(step, tokens=tokens))
    assert [a.legal for a in frame.actions] == [True, False, None]
    assert [c.place for c in frame.boards[0].cells if c.differs] == [36]
    assert [board.num_differing for board in frame.boards] == [1, None]
    drawn = board_svg(game, frame.boards[0], arrows=plan_arrows(frame.actions, 0))
    assert (drawn.count("gp-differs"), drawn.count("gp-illegal")) == (1, 2)


def test_moves_start_and_end_where_people_see_them() -> None:
    chess = load("chess")
    assert move_places(chess, chess.parse(), chess.moves.index("e2e4")) == (52, 36)  # a8 is 0, h1 is 63
    assert move_places(chess, chess.parse("4k2r/8/8/8/8/8/8/4K3 b k - 0 1"), chess.moves.index("e8g8")) == (4, 6)
    shogi = load("shogi")
    both = shogi.parse("4k4/9/9/9/9/9/9/9/4K4 b Pp 1")
    drop = shogi.moves.index("P*5e")
    assert move_places(shogi, both, drop) == (82, 40)  # Black's pawns in hand, the middle of the board
    after = shogi.play(both, shogi.moves.index("5i5h"))
    assert move_places(shogi, after, drop) == (89, 40)  # White's
    four = load("connect")
    state = four.parse()
    rest = []
    for _ in range(3):
        rest.append(move_places(four, state, 2))
        state = four.play(state, 2)
    assert rest == [(-1, 37), (-1, 30), (-1, 23)]  # one above the other, from the bottom row of 6 by 7


def test_a_move_that_ends_nowhere_on_the_board_is_shown_where_it_starts() -> None:
    """As sowing from a pit: a click on the place makes it, and a plan draws a ring there."""
    game = copy.copy(load("connect:rows=3,cols=3,k=3,gravity=false"))  # loaded games are shared
    squares, player_to_move = game.moves.target, np.full(9, 9, np.int16)
    assert game.tokens.rows[9] == -1
    for target in (np.full(9, -1, np.int16), player_to_move):
        game.moves = dataclasses.replace(game.moves, source=squares, target=target)
        assert move_places(game, game.parse(), 4) == (-1, 4)
        assert move_places(game, game.play(game.parse(), 0), 4) == (-1, 4)


def test_every_place_is_there_once_and_says_what_it_is(game: Game[Any]) -> None:
    state, _ = walk(game, 20)[-1]
    tokens = game.tokens
    for flipped in (False, True):
        root = ElementTree.fromstring(board_svg(game, board_of(game, state), flipped=flipped))
        places = [each for each in root.iter() if "data-place" in each.attrib]
        wanted = np.flatnonzero((tokens.rows >= 0) | (tokens.hands >= 0))
        assert sorted(int(p.attrib["data-place"]) for p in places) == wanted.tolist()
        assert all(p[0].tag == f"{SVG}rect" and p.attrib["aria-label"] for p in places)


def test_flipped_board_is_the_other_way_round(game: Game[Any]) -> None:
    as_it_is, flipped = BoardDrawing(game), BoardDrawing(game, flipped=True)
    squares = [p for p in as_it_is.boxes if game.tokens.rows[p] >= 0]
    boxes = [as_it_is.boxes[p] for p in squares]
    assert [flipped.boxes[p] for p in reversed(squares)] == boxes
    inside = [b for d in (as_it_is, flipped) for b in d.boxes.values()]
    assert all(b.x >= 0 and b.y >= 0 for b in inside)
    assert all(b.x + b.width <= as_it_is.width and b.y + b.height <= as_it_is.height for b in inside)
    corners = {(round(b.x), round(b.y)) for b in as_it_is.boxes.values()}
    assert len(corners) == len(as_it_is.boxes)


def test_drawing_is_whole_by_itself(game: Game[Any]) -> None:
    """No style, script or link to the outside, references only to what is there: pages forbid the rest."""
    step = told(game, game.parse(), [move for _, move in walk(game, 3)])
    masked = np.arange(step.layout.length) % 2 == 0
    frame = frame_of_step(game, game.parse(), half_masked(step, masked))
    for board in [board_of(game, game.parse()), *frame.boards]:
        text = board_svg(game, board, last=(3, -1), check=5, arrows=plan_arrows(frame.actions, 0))
        root = ElementTree.fromstring(text)
        names = {each.tag.removeprefix(SVG) for each in root.iter()}
        assert names <= {"svg", "defs", "g", "rect", "circle", "path", "polygon", "use", "text"}
        attributes = {name for each in root.iter() for name in each.attrib}
        assert not {name for name in attributes if name.startswith("on") or name in ("style", "class_")}
        known = {each.attrib["id"] for each in root.iter() if "id" in each.attrib}
        links = [each.attrib["href"] for each in root.iter() if "href" in each.attrib]
        assert {link.removeprefix("#") for link in links} <= known
        assert "url(" not in text
        assert not re.search(r'"[^"]*\bnan\b', text)


def test_every_symbol_of_a_square_has_a_picture_and_a_name(game: Game[Any]) -> None:
    tokens, look = game.tokens, game.view.drawing
    on_squares = tokens.admitted[tokens.rows >= 0].any(0)
    for symbol in np.array(tokens.symbols)[on_squares]:
        assert look.names[symbol]
        ElementTree.fromstring(f"<g>{look.pieces[symbol]}</g>")
        assert not re.search(r"\b(id|style|class|href)=", look.pieces[symbol])
    assert len(look.hands) == int(tokens.hands.max()) + 1
    assert len(look.columns) == int(tokens.cols.max()) + 1


def test_hands_of_shogi_are_beside_their_players() -> None:
    game = load("shogi")
    drawing = BoardDrawing(game)
    middle = drawing.width / 2
    assert all(drawing.boxes[82 + i].x > middle and drawing.boxes[89 + i].x < middle for i in range(7))
    board = board_of(game, game.parse("4k4/9/9/9/9/9/9/9/4K4 b R3P2b 1"))
    root = ElementTree.fromstring(board_svg(game, board))
    labels = {each.attrib["data-place"]: each for each in root.iter() if "data-place" in each.attrib}
    counts = {p: [t.text for t in g.iter(f"{SVG}text")] for p, g in labels.items() if int(p) >= 82}
    assert {p: texts for p, texts in counts.items() if texts} == {"82": ["3"], "94": ["2"]}
    assert labels["88"].attrib["aria-label"] == "black rook in hand: 1"


class Unadorned(Game[Any]):
    """A game of a third party that says nothing of its looks and whose symbols need escaping."""

    def __init__(self, inner: Game[Any]) -> None:
        self._inner = inner
        self.name, self.spec, self.protocol, self.players = "<odd>", "<odd>", "none", ("<i>", '"&"')
        self.moves = inner.moves
        self.tokens = _Renamed(inner.tokens)  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def parse(self, text: str | None = None) -> Any:
        return self._inner.parse(text)

    def format(self, state: Any) -> str:
        return self._inner.format(state)

    def legal(self, state: Any) -> Any:
        return self._inner.legal(state)

    def play(self, state: Any, move_id: int) -> Any:
        return self._inner.play(state, move_id)

    def player(self, state: Any) -> int:
        return self._inner.player(state)

    def outcome(self, state: Any) -> float | None:
        return self._inner.outcome(state)

    def key(self, state: Any) -> Any:
        return self._inner.key(state)


class _Renamed:
    """A tokenizer with symbols from outside and no word on how rows turn."""

    turned = None

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.symbols = tuple(f"<b>&\"'{symbol}" for symbol in inner.symbols)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("label", ["1", "12", "33%"])
def test_a_label_of_an_arrow_fits_its_disc(label: str) -> None:
    game = load("connect:rows=3,cols=3,k=3,gravity=false")
    drawn = ElementTree.fromstring(board_svg(game, board_of(game, game.parse()), arrows=[Arrow(-1, 4, label)]))
    arrow = next(each for each in drawn.iter(f"{SVG}g") if "gp-arrow" in each.get("class", ""))
    disc, said = arrow.findall(f"{SVG}circle")[-1], arrow.find(f"{SVG}text")
    assert said is not None
    letter = 0.7 * float(said.attrib["font-size"])  # width of a bold digit in DejaVu Sans
    assert len(label) * letter <= 2 * float(disc.attrib["r"])


def test_boards_of_two_variants_may_stand_on_one_page() -> None:
    """An id stands for one drawing: the first one on a page is drawn everywhere, as notebooks and galleries show."""
    drawn: dict[str, set[str]] = {}
    for spec in ("connect", "connect:rows=3,cols=3,k=3,gravity=false"):
        game = load(spec)
        state = game.play(game.parse(), int(game.legal(game.parse())[0]))
        for group in ElementTree.fromstring(board_svg(game, board_of(game, state))).find(f"{SVG}defs") or ():
            drawn.setdefault(group.attrib["id"], set()).add(ElementTree.tostring(group, encoding="unicode"))
    assert len(drawn) > 1
    assert all(len(looks) == 1 for looks in drawn.values())


def test_text_from_outside_is_escaped() -> None:
    game = Unadorned(load("connect:rows=3,cols=3,k=3,gravity=false"))
    state = game.parse("XO./.X./... O")
    text = board_svg(game, board_of(game, state), title='"><script>alert(1)</script>', arrows=[Arrow(-1, 0, "<b>")])
    assert "<script" not in text
    assert "<b>" not in text
    root = ElementTree.fromstring(text)
    assert root.attrib["aria-label"] == '"><script>alert(1)</script>'
    assert "<b>&\"'X" in [each.text for each in root.iter(f"{SVG}text")]


def test_a_game_that_says_nothing_of_its_looks_is_drawn() -> None:
    """Without ``turned`` a dream of the second player is shown where its tokens stand for a position."""
    inner = load("connect:rows=3,cols=3,k=3,gravity=false")
    game = Unadorned(inner)
    assert game.view.drawing == Drawing()
    state = game.parse("XO./.X./... O")
    moves = [int(m) for m in game.legal(state)[:2]]
    frame = frame_of_step(game, state, told(game, state, moves))
    after = game.play(state, moves[0])
    assert [c.symbol for c in frame.boards[0].cells] == [c.symbol for c in board_of(game, after).cells]
    step = told(game, state, moves)
    slot = step.layout.slot("state", 1)
    assert slot is not None
    tokens = step.tokens.copy()
    tokens[slot.start : slot.start + 3] = 1  # three in a row for nobody's move
    broken = frame_of_step(game, state, dataclasses.replace(step, tokens=tokens)).boards[0]
    assert (broken.text, broken.ended) == (None, False)
    assert {c.symbol for c in broken.cells} == {""}
    ElementTree.fromstring(board_svg(game, broken))


def test_hand_slots_without_a_word_are_drawn_as_text() -> None:
    game = type(load("shogi"))()

    class Plain(View[Any]):
        drawing = Drawing(hands=(HandSlot(0, "P"),))

    game.view = Plain(game)
    root = ElementTree.fromstring(board_svg(game, board_of(game, game.parse())))
    assert {int(e.attrib["data-place"]) for e in root.iter() if "data-place" in e.attrib} >= set(range(82, 96))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spec", ["chess", "shogi", "connect"])
@pytest.mark.parametrize(
    ("paradigm", "horizon"), [("s-asa", 1), ("s-asa", 8), ("s-aa", 3), ("s-ass", 3), ("s-avav", 2)]
)
def test_frames_of_a_network_hold_only_what_its_places_admit(spec: str, paradigm: str, horizon: int) -> None:
    game = load(spec)
    torch.manual_seed(0)
    network = NetworkConfig(num_layers=1, width=16, num_heads=2, geometry="board", head="typed", init_std=0.4)
    config = DiffusionConfig(
        network=network, paradigm=paradigm, horizon=horizon, process={"kind": "absorbing", "num_timesteps": 4}
    )
    policy = DiffusionLearner(game, config).policy()
    state, _ = walk(game, 8)[7]  # the second player is to move
    dream: Dream = policy.dream(state)
    for frame in frames(game, dream):
        for board in frame.boards:
            for cell in board.cells:
                assert game.tokens.admitted[cell.place, game.tokens.symbols.index(cell.symbol)]
            ElementTree.fromstring(board_svg(game, board, arrows=plan_arrows(frame.actions, 1)))
        assert len(frame.actions) == (1 if paradigm == "s-ass" else horizon)
        assert len(frame.values) == (horizon if "v" in paradigm else 0)
    last = frames(game, dream)[-1]
    assert [board.text for board in last.boards] == list(dream.decision.states)
    assert [a.move for a in last.actions] == list(dream.decision.line)
    assert sum(board.num_masked for board in last.boards) == 0
