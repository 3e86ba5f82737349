"""What networks and people see of a shogi position: dlshogi's planes, the evaluation, boards as text and drawing."""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from cshogi import dlshogi

from genpolicy_play.drawing import board_of, board_svg
from genpolicy_shogi import labels
from genpolicy_shogi.evaluation import static_score
from genpolicy_shogi.planes import features, planes
from tests.shogi.shogi_positions import GAME, play, random_states, reference, turned

POSITIONS = reference()["positions"]
STATES = random_states(1500, seed=41)


def digest(image: np.ndarray) -> str:
    return hashlib.sha256(np.packbits(image.astype(bool).reshape(-1)).tobytes()).hexdigest()


def test_features_are_dlshogis() -> None:
    states = [GAME.parse(position["sfen"]) for position in POSITIONS]
    x1, x2 = features(states)
    assert x1.shape == (200, 62, 9, 9)
    assert x2.shape == (200, 57, 9, 9)
    assert x1.dtype == x2.dtype == np.float32
    for position, pieces, hands in zip(POSITIONS, x1, x2, strict=True):
        assert [digest(pieces), digest(hands)] == position["features_sha256"]


def test_planes_do_not_depend_on_the_librarys_switch_or_on_earlier_calls() -> None:
    # Of kings that have entered, the switch tells most.
    entered = [GAME.parse(position["sfen"]) for position in POSITIONS if position["category"].startswith("nyugyoku")]
    states = entered + STATES[:30]
    before = planes(states)
    dlshogi.use_nyugyoku_features(True)
    try:
        with_switch = planes(states)
    finally:
        dlshogi.use_nyugyoku_features(False)
    planes(STATES[50:100])
    assert np.array_equal(before, with_switch)
    assert np.array_equal(before, GAME.planes(states))
    assert GAME.planes([]).shape == (0, 119, 9, 9)


def test_the_library_gets_buffers_in_which_nothing_is_written_beyond_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the switch on it writes 119 planes into whatever it is given, of whatever type: other objects' memory."""
    original, rooms = dlshogi.make_input_features, []

    def spy(board: object, pieces: np.ndarray, hands: np.ndarray) -> None:
        rooms.append((pieces.shape, hands.shape, pieces.dtype, hands.dtype, pieces.any() or hands.any()))
        original(board, pieces, hands)

    monkeypatch.setattr(dlshogi, "make_input_features", spy)
    planes(STATES[:5])
    assert rooms == [((62, 9, 9), (119, 9, 9), np.float32, np.float32, False)] * 5


def test_planes_stand_in_the_rows_and_columns_of_the_tokens() -> None:
    names = ("P", "L", "N", "S", "B", "R", "G", "K", "+P", "+L", "+N", "+S", "+B", "+R")
    for state in STATES[::50]:
        image = GAME.planes([state])[0]
        row = GAME.tokens.encode([state], [GAME.player(state)])[0]
        board = np.array([GAME.tokens.symbols[i] for i in row[:81]]).reshape(9, 9)
        for plane, name in enumerate(names):
            assert np.array_equal(image[plane] == 1, board == name)
            assert np.array_equal(image[31 + plane] == 1, board == name.lower())
        assert (image[118] == float(state.in_check)).all()


def test_both_colours_see_the_same_planes() -> None:
    states = STATES[::30]
    others = [GAME.parse(turned(GAME.format(state))) for state in states]
    assert np.array_equal(GAME.planes(states), GAME.planes(others))


def test_labels_and_features_share_their_squares() -> None:
    """A label's square is the target's cell in dlshogi's own order of planes: files, then ranks, as the mover sees."""
    for state in STATES[::40]:
        if len(GAME.legal(state)) == 0:
            continue
        move = int(GAME.legal(state)[0])
        square = int(GAME.labels(np.array([move]), GAME.player(state))[0]) % 81
        after, _ = features([GAME.play(state, move)])
        file, rank = divmod(80 - square, 9)  # the other side looks now
        assert after[0, 31:45, file, rank].sum() == 1  # one of its opponent's pieces has come there
        assert labels.NUM_LABELS == 27 * 81


def test_evaluation_is_material_for_the_side_to_move() -> None:
    assert GAME.hints.evaluate(GAME.parse()) == 0.0
    ahead = GAME.parse("lnsgkgsnl/7b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b r 1".replace(" r ", " R "))
    behind = GAME.parse(GAME.format(ahead).replace(" b ", " w "))
    assert GAME.hints.evaluate(ahead) > 0.6
    assert GAME.hints.evaluate(behind) == -GAME.hints.evaluate(ahead)
    in_hand = GAME.parse("4k4/9/9/9/9/9/9/9/4K4 b R 1")
    on_board = GAME.parse("4k4/9/9/9/9/9/9/R8/4K4 b - 1")
    assert 0.5 < GAME.hints.evaluate(on_board) <= GAME.hints.evaluate(in_hand) < 1


def test_evaluation_is_the_same_for_both_colours_and_mirrored() -> None:
    (flip,) = GAME.symmetries
    for state in STATES[::20]:
        other = GAME.parse(turned(GAME.format(state)))
        assert static_score(other) == static_score(state)
        assert static_score(flip.state(state)) == static_score(state)


def test_evaluation_at_the_end_is_the_result() -> None:
    assert GAME.hints.evaluate(GAME.parse("8k/9/8G/9/9/9/9/9/4K2R1 w - 1")) == -1.0
    assert GAME.hints.evaluate(GAME.parse("+P+P+P+PK4/GGGSSS3/9/9/9/9/9/9/4k4 b 2R2B4P 1")) == 1.0


@pytest.mark.parametrize(
    ("sfen", "quiet"),
    [
        ("lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1", True),
        ("4k4/9/9/9/4r4/9/9/9/3GK4 b - 1", False),  # in check
        ("4k4/9/9/4r4/4P4/9/9/9/4K4 b - 1", False),  # takes a rook
        ("4k4/4g4/4p4/4P4/9/9/9/9/4K4 b - 1", True),  # pawn for pawn, and the tokin is taken back
        ("k8/9/9/4P4/9/9/9/9/4K4 b - 1", False),  # a pawn promotes for nothing
        ("4k4/9/4p4/9/9/4B4/9/9/4K4 b - 1", False),  # bishop promotes freely in the zone
        ("4k4/9/9/9/9/9/9/9/4K4 b G 1", True),  # drops win nothing at once
    ],
)
def test_quiet_positions(sfen: str, quiet: bool) -> None:
    assert GAME.hints.is_quiet(GAME.parse(sfen)) == quiet


def test_board_text() -> None:
    state = play(
        GAME.parse("lnsgkgsnl/1r5b1/pppppp1pp/6p2/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL b 18P".replace(" 18P", " -")), "8h2b+"
    )
    lines = GAME.view.board_text(state).splitlines()
    assert lines[0] == "White holds: -"
    assert lines[2].split() == list("987654321")
    assert lines[3].split() == [*"lnsgkgsnl", "a"]
    assert lines[2].index("8") == lines[4].index("r")  # a file's number stands above its pieces
    assert lines[4].split() == [".", "r", ".", ".", ".", ".", ".", "+B", ".", "b"]
    assert lines[11].split() == [*"LNSGKGSNL", "i"]
    assert lines[-2] == "Black holds: B"
    assert lines[-1] == "White to move"
    eighteen = GAME.view.board_text(GAME.parse("4k4/9/9/9/9/9/9/9/4K4 w 8P10p 1")).splitlines()
    assert (eighteen[0], eighteen[-2]) == ("White holds: px10", "Black holds: Px8")


def test_svg_is_well_formed_and_has_every_piece() -> None:
    for state in [*STATES[::100], *(GAME.parse(position["sfen"]) for position in POSITIONS[::20])]:
        text = board_svg(GAME, board_of(GAME, state))
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        pieces = sum(char.isalpha() for char in GAME.format(state).split()[0])
        assert sum(each.tag.endswith("}use") for each in root.iter()) == pieces + 14  # hand slots, some faint
    marked = board_svg(GAME, board_of(GAME, play(GAME.parse(), "7g7f")), last=(56, 47))
    assert marked.count("<rect") == board_svg(GAME, board_of(GAME, GAME.parse())).count("<rect") + 2
