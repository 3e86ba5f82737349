"""Mate problems: lengths that a slow search without memory confirms, and files of problems."""

from __future__ import annotations

import random
from pathlib import Path

import cshogi
import pytest

import genpolicy
from genpolicy.errors import SourceError
from genpolicy.game import Puzzle
from genpolicy.policies.base import Decision, Policy
from genpolicy_evaluation.puzzles import attempt_puzzles
from genpolicy_shogi.tsume import SHORTER, MateSearch

GAME = genpolicy.load_game("shogi")

# From the machine-made collection tanuki-tsume-shogi (MIT): position, solution as its author's solver found it.
PROBLEMS = [
    ("9/6PkS/9/6+R2/9/9/9/9/9 b r2b4g3s4n4l17p 1", "3d2c"),
    ("8G/9/6B1k/9/9/9/9/9/9 b G2rb2g4s4n4l18p 1", "G*2d"),
    ("7kb/5R3/9/6L2/9/9/9/9/9 b rb4g4s4n3l18p 1", "4b3b+"),
    ("6G2/9/8S/6GRP/6GR1/8k/9/9/9 b 2bg3s4n4l17p 1", "2e1e 1f1e 3e2e 1e1f 2e2f 1f1g 2f2g 1g1h 2g2h 1h1i 2h2i"),
    ("6SRp/6P1B/5PGG1/5n2k/9/9/9/9/9 b rb2g3s3n4l15p 1", "2c2d 1d1e 2d2e 1e1f 2e2f 1f1g 2f2g 1g1h 2g2h 1h1i 2h2i"),
]
# The author's solver says seven plies; Fairy-Stockfish 11.1 finds mate in five, 1.S*2e 1e 2.1f 2e 3.3d+.
COOKED = ("9/8B/8L/8k/8N/4B2R1/9/9/9 b Sr4g3s3n3l18p 1", "2f2c+ 1d1e S*2f 1e1f 5f3h R*2g 2c2e")


def slow_distance(board: cshogi.Board, plies: int) -> int | None:
    """The shortest mate by checks: every legal move that leaves the other side in check, every answer, no memory."""

    def mates(depth: int) -> bool:
        for move in list(board.legal_moves):
            board.push(move)
            found = board.is_check() and all(answered(depth - 1))
            board.pop()
            if found:
                return True
        return False

    def answered(depth: int):
        answers = list(board.legal_moves)
        if depth == 0 and answers:
            yield False
            return
        for move in answers:
            board.push(move)
            lost = mates(depth - 1)
            board.pop()
            yield lost

    return next((depth for depth in range(1, plies + 1, 2) if mates(depth)), None)


@pytest.mark.parametrize(("sfen", "line"), PROBLEMS)
def test_published_lengths(sfen, line) -> None:
    assert GAME.mate_distance(GAME.parse(sfen), 13) == len(line.split())
    assert GAME.mate_distance(GAME.parse(sfen), len(line.split()) - 2) is None


def test_against_a_search_without_memory() -> None:
    rng = random.Random(1)
    search = MateSearch()
    found = []
    while len(found) < 150:
        board = cshogi.Board("4k4/9/9/9/9/9/9/9/4K4 b 2R2B4G4S4N4L18P 1")
        pieces = [0] * 81
        king = rng.randrange(81)
        pieces[king] = 24
        for kind in rng.sample([3, 4, 5, 6, 7, 9, 13, 14, 19, 20, 23, 4, 7], 5):
            square = max(
                0, min(80, king + rng.choice([-20, -19, -11, -10, -9, -8, -2, -1, 1, 2, 8, 9, 10, 11, 18, 20]))
            )
            pieces[square] = pieces[square] or kind
        hand = [0, 0, rng.randrange(2), rng.randrange(2), rng.randrange(2), 0, 0]
        board.set_pieces(pieces, (hand, [rng.randrange(3), 0, 0, 0, 1, 0, 0]))
        board.turn = cshogi.BLACK
        try:
            text = GAME.format(GAME.parse(board.sfen()))
        except ValueError:
            continue
        expected = slow_distance(cshogi.Board(text), 3)
        found.append(expected)
        assert search.distance(text, 3) == expected, text
    assert {None, 1, 3} <= set(found)


def test_a_line_attacks_shortest_and_defends_longest() -> None:
    search = MateSearch()
    for sfen, line in PROBLEMS:
        length = len(line.split())
        board = cshogi.Board(sfen)
        for ply, usi in enumerate(search.line(sfen, length)):
            if ply % 2 == 0:
                assert search.distance(board.sfen(), 13) == length - ply
            board.push(board.move_from_usi(usi))
        assert board.is_game_over()


def test_a_dropped_pawn_does_not_mate() -> None:
    assert GAME.mate_distance(GAME.parse("7nk/9/7G1/9/9/9/9/9/4K4 b P 1"), 1) is None
    assert GAME.mate_distance(GAME.parse("7nk/9/7G1/9/9/9/9/9/4K4 b L 1"), 1) == 1


def write(folder: Path, rows: list[str], name: str = "mates.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_file_of_problems(tmp_path) -> None:
    rows = ["id,sfen,moves,mate_length"]
    rows += [f"p{i},{sfen},{line},{len(line.split())}" for i, (sfen, line) in enumerate([*PROBLEMS, COOKED])]
    puzzles = list(GAME.files.open_puzzles(write(tmp_path, rows)))
    assert [p.mate_in for p in puzzles] == [1, 1, 1, 11, 11, 5]
    assert [[GAME.moves[move] for move in p.solution] for p in puzzles[:5]] == [line.split() for _, line in PROBLEMS]
    assert {p.rule for p in puzzles} == {"mate"}
    assert puzzles[3].themes == ()
    assert puzzles[5].themes == (SHORTER,)
    assert len(puzzles[5].solution) == 5
    assert puzzles[0].where.endswith("mates.csv:2")


def test_a_list_of_positions_alone(tmp_path) -> None:
    path = write(tmp_path, ["# mates", *(sfen for sfen, _ in PROBLEMS), f"sfen {PROBLEMS[0][0]}"], "mates.sfen")
    assert [p.mate_in for p in GAME.files.open_puzzles(path)] == [1, 1, 1, 11, 11, 1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f"x,{PROBLEMS[0][0]},3d2c,3", r"mates\.csv:2: mate_length is 3 and there are 1 moves"),
        (f"x,{PROBLEMS[0][0]},3d3c,1", r":2: .*3d3c.*no check|do not mate"),
        (f"x,{PROBLEMS[0][0]},3d9i,1", r":2: .*illegal"),
        (f"x,{PROBLEMS[0][0]},,2", r":2: mate_length must be an odd number"),
        ("x,9/9/9/9/4k4/9/9/9/9 b P 1,,3", r":2: no mate within 3 plies"),
        ("x,9/9/9/9/4k4/9/9/9/9 b P,1", r":2: 3 cells for 4 columns"),
        ("x,nonsense,3d2c,1", r":2: 'nonsense' is not an SFEN"),
        (f"x,{PROBLEMS[0][0]}\ry,3d2c,1", r":2: not comma-separated values"),  # a carriage return within a row
        (f"x,{PROBLEMS[0][0]},{'3d2c ' * 40_000},1", r":2: not comma-separated values"),  # longer than csv takes
    ],
)
def test_bad_problems_name_the_line(tmp_path, row, message) -> None:
    good = f"y,{PROBLEMS[1][0]},{PROBLEMS[1][1]},1"
    path = write(tmp_path, ["id,sfen,moves,mate_length", row, good])
    with pytest.raises(SourceError, match=message):
        list(GAME.files.open_puzzles(path))
    bad: list[SourceError] = []
    assert [p.name for p in GAME.files.open_puzzles(path, bad.append)] == ["y"]
    assert len(bad) == 1


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("mates.csv", ["a,b"], r"header has no column sfen"),
        ("mates.csv", ["id,s\rfen"], r"mates\.csv:1: not comma-separated values"),
        ("mates.csv", ["id,sfen"], r"holds no problem"),
        ("mates.pdf", ["x"], r"holds no file of mate problems"),
    ],
)
def test_files_without_problems(tmp_path, name, rows, message) -> None:
    with pytest.raises(SourceError, match=message):
        list(GAME.files.open_puzzles(write(tmp_path, rows, name)))
    with pytest.raises(SourceError, match="no such file"):
        list(GAME.files.open_puzzles(tmp_path / "missing.csv"))


# Lines of checks that end in mate and force nothing, since the defender helps: positions of the same collection.
HELPED = [
    ("3R3R1/6k2/8G/9/9/9/9/9/9 b 2b3g4s4n4l18p 1", "6a6b 3b2a 1c2b", r"move 1 '6a6b' does not force mate"),
    ("7S1/7kS/7B1/9/9/9/9/9/9 b 2rb4g2s4n4l18p 1", "1b1a 2b1a 2c1b+", r"move 1 '1b1a' does not force mate"),
    ("9/7kS/9/5NR2/9/9/9/9/9 b r2b4g3s3n4l18p 1", "3d2d 2b1c 2d2c+", r"move 1 '3d2d' does not force mate"),
]


@pytest.mark.parametrize(("sfen", "line", "message"), HELPED)
def test_a_line_that_forces_nothing_is_a_bad_row(tmp_path, sfen, line, message) -> None:
    board = cshogi.Board(sfen)
    for usi in line.split():
        board.push(board.move_from_usi(usi))
    assert board.is_game_over()
    path = write(tmp_path, ["id,sfen,moves,mate_length", f"x,{sfen},{line},3", f"y,{PROBLEMS[0][0]},3d2c,1"])
    with pytest.raises(SourceError, match=r"mates\.csv:2: " + message):
        list(GAME.files.open_puzzles(path))
    bad: list[SourceError] = []
    assert [(p.name, p.verified) for p in GAME.files.open_puzzles(path, bad.append)] == [("y", True)]
    assert len(bad) == 1


@pytest.mark.parametrize(("sfen", "line", "message"), HELPED)
def test_a_line_that_nobody_verified_is_not_believed(sfen, line, message) -> None:
    """The policy plays the helper's line by heart; as a puzzle that was made in memory, nobody has checked it."""
    moves = tuple(GAME.moves.index(usi) for usi in line.split())
    played = Puzzle("x", "f:1", sfen, (), moves, rule="mate", mate_in=3)

    class ByHeart(Policy):
        kind = "by-heart"

        def __init__(self) -> None:
            self.game = GAME

        def decide(self, states):
            return [Decision(moves[0]) for _ in states]

    (attempt,) = attempt_puzzles(ByHeart(), [played], longer=0).attempts
    assert (attempt.first, attempt.solved, attempt.solved_any) == (False, False, False)


def test_a_line_break_within_quotes_belongs_to_the_row(tmp_path) -> None:
    first, second = PROBLEMS[0][0], PROBLEMS[1][0]
    path = write(tmp_path, ["id,sfen,moves,mate_length", f'"two\nlines",{first},3d2c,1', f"y,{second},G*2d,1"])
    assert [(p.name, p.where[-2:]) for p in GAME.files.open_puzzles(path)] == [("two\nlines", ":2"), ("y", ":4")]
