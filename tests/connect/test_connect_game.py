"""k-in-a-row against published counts, a second slow set of rules, and bad input."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from genpolicy import load_game
from genpolicy.errors import IllegalMoveError, SourceError
from genpolicy.game import Symmetry
from genpolicy.testing import check_game, perft
from genpolicy_connect import ConnectGame
from genpolicy_play.drawing import board_of, board_svg

TIC_TAC_TOE = "connect:rows=3,cols=3,k=3,gravity=false"
# No game ends before ply 5; 1,440 end there, so from ply 6 on there are fewer than 9 * 8 * 7 * ...
TIC_TAC_TOE_PERFT = {1: 9, 2: 72, 3: 504, 4: 3024, 5: 15120, 6: (15120 - 1440) * 4}
# Distinct Connect Four positions after n plies: John Tromp, https://oeis.org/A212693
CONNECT_FOUR_POSITIONS = [1, 7, 49, 238, 1120, 4263, 16422]


@pytest.mark.parametrize(
    "spec",
    [
        TIC_TAC_TOE,
        "connect",
        "connect:rows=4,cols=4,k=3",
        "connect:rows=3,cols=5,k=3,gravity=false",
        "connect:rows=1,cols=6,k=3,gravity=false",
        "connect:rows=6,cols=1,k=2",
        "connect:rows=9,cols=9,k=5,gravity=false",
    ],
)
def test_laws(spec: str) -> None:
    check_game(load_game(spec), num_games=3)


def test_laws_from_given_positions() -> None:
    check_game(
        load_game(TIC_TAC_TOE),
        texts=["XO./.X./..O X", "XOX/OXO/.X. O", "XXX/OO./... O"],
        perft={**TIC_TAC_TOE_PERFT, "XOX/OXO/.X. O": {1: 2, 2: 2 * 1}},
    )


def test_symmetries_that_are_not_a_whole_group_are_told_what_is_missing() -> None:
    class Mirrored(ConnectGame):
        @property
        def symmetries(self) -> tuple[Symmetry, ...]:
            return super().symmetries[:2]  # left-right and top-bottom, without the half turn that both make

    with pytest.raises(AssertionError, match=r"keeps the canonical key \(symmetries must be a whole group"):
        check_game(Mirrored(3, 3, 3, False))


def test_player_1_sees_the_colours_swapped() -> None:
    game = load_game(TIC_TAC_TOE)
    rows = game.tokens.encode([game.parse("XO./.X./... O")] * 2, [0, 1])
    assert ["".join(game.tokens.symbols[i] for i in row) for row in rows] == ["XO..X....o", "OX..O....x"]


def test_tokens_from_the_top_left() -> None:
    game = load_game("connect:rows=2,cols=3,k=3")
    row = game.tokens.encode([game.parse(".X./.OX O")])[0]
    assert "".join(game.tokens.symbols[i] for i in row) == ".X..OXo"
    assert game.tokens.rows.tolist() == [0, 0, 0, 1, 1, 1, -1]
    assert game.tokens.cols.tolist() == [0, 1, 2, 0, 1, 2, -1]


@pytest.mark.parametrize(
    ("row", "viewer", "error"),
    [
        ([1, 0, 0, 0, 0, 0, 0, 0, 0, 3], 0, "as many X as O"),
        ([1, 0, 0, 0, 0, 0, 0, 0, 0, 4], 1, "as many X as O"),  # player 1's own stone, and player 0 to move
        ([1, 0, 0, 0, 0, 0, 0, 0, 3, 4], 0, "position 8 does not admit symbol 3"),
        ([1, 0, 0, 0, 0, 0, 0, 0, 0, 1], 0, "position 9 does not admit symbol 1"),
        ([-1, 0, 0, 0, 0, 0, 0, 0, 0, 3], 0, "position 0 does not admit symbol -1"),
        ([0] * 9, 0, "expected 10"),
    ],
)
def test_tokens_that_contradict_each_other(row: list[int], viewer: int, error: str) -> None:
    tokens = load_game(TIC_TAC_TOE).tokens
    with pytest.raises(ValueError, match=error):
        tokens.decode(np.array(row), viewer)


# Published counts.


@pytest.mark.parametrize(("depth", "nodes"), TIC_TAC_TOE_PERFT.items())
def test_tic_tac_toe_perft(depth: int, nodes: int) -> None:
    game = load_game(TIC_TAC_TOE)
    assert perft(game, game.parse(), depth) == nodes


def test_tic_tac_toe_has_5478_positions_765_up_to_symmetry_and_255168_games() -> None:
    # https://en.wikipedia.org/wiki/Tic-tac-toe and https://oeis.org/A061526 (games of n x n tic-tac-toe).
    game = load_game(TIC_TAC_TOE)
    positions = list(game.positions())
    assert len(positions) == len(set(positions)) == 5478
    assert len({game.canonical_key(state) for state in positions}) == 765
    assert num_games(game) == 255_168


def test_2x2_tic_tac_toe_has_24_games() -> None:
    assert num_games(load_game("connect:rows=2,cols=2,k=2,gravity=false")) == 24  # https://oeis.org/A061526


def test_connect_four_on_three_rows_and_four_columns_has_356232_games() -> None:
    assert num_games(load_game("connect:rows=3,cols=4,k=4")) == 356_232  # https://oeis.org/A342329


def num_games(game: Any) -> int:
    games_from: dict[Any, int] = {}
    for state in reversed(list(game.positions())):  # ply by ply, so that what follows is counted before
        after = [games_from[game.play(state, int(move))] for move in game.legal(state)]
        games_from[state] = sum(after) if after else 1
    return games_from[game.parse()]


def test_connect_four_perft() -> None:
    # Nobody can have won before ply 7, and a column holds 6 stones.
    game = load_game("connect")
    for depth in range(1, 6):
        assert perft(game, game.parse(), depth) == 7**depth


def test_connect_four_perft_7() -> None:
    game = load_game("connect")
    assert perft(game, game.parse(), 7) == 7**7 - 7  # less the seven ways to put seven stones into one column


def test_connect_four_positions_by_ply() -> None:
    game = load_game("connect")
    ply = {game.key(game.parse()): game.parse()}
    assert CONNECT_FOUR_POSITIONS[0] == 1
    for expected in CONNECT_FOUR_POSITIONS[1:]:
        after = [game.play(state, int(move)) for state in ply.values() for move in game.legal(state)]
        ply = {game.key(state): state for state in after}
        assert len(ply) == expected


# The rules a second time: lists of lists, looked at square by square.


def slow_winner(board: list[list[str]], k: int) -> str | None:
    num_rows, num_cols = len(board), len(board[0])
    for row in range(num_rows):
        for col in range(num_cols):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                run = []
                for i in range(k):
                    r, c = row + down * i, col + right * i
                    if 0 <= r < num_rows and 0 <= c < num_cols:
                        run.append(board[r][c])
                if run in (["X"] * k, ["O"] * k):
                    return run[0]
    return None


@pytest.mark.parametrize("seed", range(40))
def test_random_games_follow_the_slow_rules(seed: int) -> None:
    draw = random.Random(seed)
    rows, cols = draw.randint(1, 7), draw.randint(1, 7)
    k, gravity = draw.randint(2, max(2, rows, cols)), draw.random() < 0.5
    if max(rows, cols) < 2:
        cols = 2
    game = ConnectGame(rows, cols, k, gravity)
    state, board = game.parse(), [["."] * cols for _ in range(rows)]
    for ply in range(rows * cols + 1):
        assert game.format(state) == "/".join("".join(row) for row in board) + (" X" if ply % 2 == 0 else " O")
        full = all("." not in row for row in board)
        over = slow_winner(board, k) is not None
        assert game.outcome(state) == (-1.0 if over else 0.0 if full else None)
        expected = []
        if not over and gravity:
            expected = [chr(97 + c) for c in range(cols) if board[0][c] == "."]
        elif not over:
            expected = [f"{chr(97 + c)}{rows - r}" for r in range(rows) for c in range(cols) if board[r][c] == "."]
        assert [game.moves[int(i)] for i in game.legal(state)] == expected
        if not expected:
            break
        move = draw.choice(expected)
        col = ord(move[0]) - 97
        row = max(r for r in range(rows) if board[r][col] == ".") if gravity else rows - int(move[1:])
        board[row][col] = "XO"[ply % 2]
        state = game.play(state, game.moves.index(move))


# Bad input.


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("XO./.X./... X", "as many X as O"),
        ("XO./.../... O", "one more X than O"),
        ("XXX/OOO/... X", "X has 3 in a row already"),
        ("XXX/OO./O.. X", "X has 3 in a row already"),
        ("XXX/OOO/X.. O", "O has 3 in a row already"),
        ("XXX/OO./XXX O", "one more X than O"),
        ("XO./.X. O", "is not a position of"),
        ("XO./.X./...", "is not a position of"),
        ("XY./.../... X", "is not a position of"),
        (".../.../... X\n", "is not a position of"),
        ("", "is not a position of"),
    ],
)
def test_a_text_that_is_no_position(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        load_game(TIC_TAC_TOE).parse(text)
    assert repr(text) in str(caught.value)


def test_two_wins_of_one_side() -> None:
    game = load_game("connect:rows=3,cols=5,k=3,gravity=false")
    with pytest.raises(ValueError, match="X cannot have made every 3 in a row with the last stone"):
        game.parse("XXXO./OO.O./XXX.O O")
    assert game.outcome(game.parse("XXXXX/OO.OO/..... O")) == -1.0  # the stone in the middle made all three


def test_a_stone_that_floats() -> None:
    with pytest.raises(ValueError, match="floats") as caught:
        load_game("connect:rows=3,cols=3,k=3").parse("X../.../... O")
    assert "'X../.../... O'" in str(caught.value)


def test_a_win_under_other_stones_was_not_the_last_move() -> None:
    game = load_game("connect:rows=3,cols=4,k=3")
    assert game.outcome(game.parse("..../O.O./XXX. O")) == -1.0
    with pytest.raises(ValueError, match="X cannot have made every 3 in a row with the last stone"):
        game.parse("O.../OXO./XXX. O")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("rows=0", "rows must be a whole number from 1 to 26, got '0'"),
        ("cols=27", "cols must be a whole number from 1 to 26, got '27'"),
        ("rows=3,cols=3,k=4", "k must be a whole number from 2 to 3, got '4'"),
        ("rows=1,cols=1", "a board of one square has no row of two; take more rows or columns"),
        ("k=1", "k must be a whole number from 2 to 7"),
        ("k=four", "k must be a whole number"),
        ("gravity=down", r"gravity must be true or false \(yes, no, 1, 0\), got 'down'"),
        ("colums=3", "colums"),
    ],
)
def test_bad_arguments(spec: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_game(f"connect:{spec}")


def test_arguments_as_text_and_as_numbers_make_the_same_game() -> None:
    assert ConnectGame("3", "4", "3", "False").spec == ConnectGame(3, 4, 3, False).spec
    assert load_game("connect").spec == "connect:rows=6,cols=7,k=4,gravity=true"
    for yes, no in (("true", "false"), ("True", "False"), ("1", "0"), ("yes", "no")):
        assert load_game(f"connect:gravity={yes}").spec == "connect:rows=6,cols=7,k=4,gravity=true"
        assert load_game(f"connect:gravity={no}").spec == "connect:rows=6,cols=7,k=4,gravity=false"
    assert load_game(load_game(TIC_TAC_TOE).spec).spec == TIC_TAC_TOE


def test_illegal_moves_say_what_is_legal() -> None:
    game = load_game(TIC_TAC_TOE)
    state = game.parse("XO./XX./OO. X")
    with pytest.raises(IllegalMoveError, match=r"'a3' is illegal in 'XO./XX./OO. X'; legal: c3 c2 c1"):
        game.play(state, game.moves.index("a3"))
    over = game.play(state, game.moves.index("c2"))
    with pytest.raises(IllegalMoveError, match="the game is over"):
        game.play(over, game.moves.index("c1"))


def test_too_many_positions_to_enumerate() -> None:
    with pytest.raises(ValueError, match="smaller board"):
        next(load_game("connect").positions())


# Symmetries, files, pictures.


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ("rows=3,cols=3,k=3,gravity=false", 7),
        ("rows=3,cols=4,k=3,gravity=false", 3),
        ("rows=6,cols=7,k=4,gravity=true", 1),
        ("rows=1,cols=4,k=3,gravity=false", 1),
        ("rows=4,cols=1,k=3,gravity=true", 0),
    ],
)
def test_number_of_symmetries_beside_the_identity(spec: str, count: int) -> None:
    assert len(load_game(f"connect:{spec}").symmetries) == count


def test_positions_of_a_file(tmp_path: Path) -> None:
    game = load_game(TIC_TAC_TOE)
    text = "# openings\n.../.X./... O\n\nXO./.X./... O \n"
    plain, packed = tmp_path / "list.txt", tmp_path / "list.txt.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, packed):
        found = list(game.files.open_positions(path))
        assert [p.text for p in found] == [".../.X./... O", "XO./.X./... O"]
        assert [p.where for p in found] == [f"{path}:2", f"{path}:4"]


def test_bad_positions_of_a_file(tmp_path: Path) -> None:
    game = load_game(TIC_TAC_TOE)
    path = tmp_path / "list.txt"
    path.write_bytes(b".../.X./... O\nX../.../... X\n\xff\xfe\n.../.../... X\n")
    with pytest.raises(SourceError, match=r"list\.txt:2: 'X\.\./"):
        list(game.files.open_positions(path))
    bad: list[SourceError] = []
    assert len(list(game.files.open_positions(path, bad.append))) == 2
    assert [str(error).split(": ")[0].rpartition(":")[2] for error in bad] == ["2", "3"]
    assert r"\xff" in str(bad[1])


def test_files_that_hold_nothing(tmp_path: Path) -> None:
    game = load_game(TIC_TAC_TOE)
    (tmp_path / "empty.txt").write_text("\n# nothing\n")
    with pytest.raises(SourceError, match="holds no position"):
        list(game.files.open_positions(tmp_path / "empty.txt"))
    with pytest.raises(SourceError, match=r"missing\.txt: unreadable"):
        list(game.files.open_positions(tmp_path / "missing.txt"))
    whole = gzip.compress("\n".join(f"{i} nonsense" for i in range(5000)).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match="unreadable after line"):
        list(game.files.open_positions(tmp_path / "cut.gz", lambda error: None))


def test_board_text_and_drawing() -> None:
    game = load_game(TIC_TAC_TOE)
    state = game.parse("XO./.X./... O")
    assert game.view.board_text(state).splitlines() == ["3  X O .", "2  . X .", "1  . . .", "", "   a b c"]
    drawing = ElementTree.fromstring(board_svg(game, board_of(game, state)))
    pictures = [shape.attrib["href"] for shape in drawing.iter() if shape.tag.endswith("}use")]
    shapes = {shape.attrib["id"]: shape[0].tag for shape in drawing.iter() if "id" in shape.attrib}
    kinds = [shapes[picture.removeprefix("#")].rpartition("}")[2] for picture in pictures]
    assert (kinds.count("path"), kinds.count("circle")) == (2, 1)


def test_the_heuristic_prefers_more_open_lines() -> None:
    game = load_game(TIC_TAC_TOE)
    centre, edge = (game.hints.evaluate(game.parse(text)) for text in (".../.X./... O", ".X./.../... O"))
    assert centre < edge < 0 == game.hints.evaluate(game.parse())
    assert game.hints.evaluate(game.parse("XXX/OO./... O")) == -1.0


def test_positions_are_the_same_whichever_moves_led_there() -> None:
    game = load_game("connect:rows=3,cols=3,k=3,gravity=false")
    one, other = game.parse(), game.parse()
    for a, b in zip((0, 1, 2), (2, 1, 0), strict=True):
        one, other = game.play(one, a), game.play(other, b)
    assert game.past(one) != game.past(other)
    assert one == other
    assert not one != other  # noqa: SIM202  # the operator that a tuple has of its own
    assert hash(one) == hash(other)
    assert one != game.parse()
