"""Puzzles: the two rules on cases written by hand, against slow second computations, and on bad files."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import chess
import pytest
import zstandard

import genpolicy
from genpolicy.cli import main
from genpolicy.errors import EngineError, SourceError
from genpolicy.evaluation.puzzle_tables import PuzzleResult, by_rating, by_theme, puzzle_reports
from genpolicy.evaluation.puzzles import Attempt, attempt_puzzles, read_puzzle_file
from genpolicy.game import Game, Puzzle
from genpolicy.policies.base import Decision, Policy
from tests.small_datasets import CONNECT

HEADER = "PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags"
QUEEN_UP = "6k1/8/6K1/8/8/8/5Q2/8 b - - 0 1"
QUEEN_E7 = "6k1/4Q3/6K1/8/8/8/8/8 b - - 0 1"
SCHOLAR = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/8/PPPP1PPP/RNBQK1NR w KQkq - 2 3"
SCHOLAR_MOVES = "d1h5 g7g6 h5f3 g8f6"


class Scripted(Policy):
    """Plays the moves of its list in turn, for one puzzle, and notes how it was asked."""

    kind: ClassVar[str] = "scripted"

    def __init__(self, game: Game[Any], moves: Sequence[str]) -> None:
        self.game = game
        self._moves = list(moves)
        self.batches: list[int] = []

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        self.batches.append(len(states))
        return [Decision(self.game.moves.index(self._moves.pop(0))) for _ in states]


class Playing(Policy):
    """Answers by a function of the position."""

    kind: ClassVar[str] = "playing"

    def __init__(self, game: Game[Any], choose: Any) -> None:
        self.game, self._choose = game, choose
        self.batches: list[int] = []

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        self.batches.append(len(states))
        return [Decision(self._choose(state)) for state in states]


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return genpolicy.load_game("chess")


def puzzle(game: Game[Any], fen: str, moves: str, **facts: Any) -> Puzzle:
    ids = tuple(game.moves.index(move) for move in moves.split())
    return Puzzle(name="p", where="file:1", start=fen, setup=ids[:1], solution=ids[1:], **facts)


# The seven cases below were judged by the published evaluation of Ruoss et al. 2024 (searchless_chess).
@pytest.mark.parametrize(
    ("fen", "moves", "answers", "solved", "first"),
    [
        pytest.param(QUEEN_UP, "g8h8 f2f8", "f2f8", True, True, id="the solution"),
        pytest.param(QUEEN_UP, "g8h8 f2f8", "g6f7", False, False, id="another move, no mate"),
        pytest.param(QUEEN_E7, "g8h8 e7f8", "e7h7", True, True, id="another move that mates"),
        pytest.param(QUEEN_E7, "g8h8 e7d7 h8g8 d7g7", "e7h7", True, True, id="mates before the line does"),
        pytest.param(SCHOLAR, SCHOLAR_MOVES, "g7g6 g8f6", True, True, id="both moves right"),
        pytest.param(SCHOLAR, SCHOLAR_MOVES, "g7g6 f8g7", False, True, id="the second wrong"),
        pytest.param(SCHOLAR, SCHOLAR_MOVES, "a7a6", False, False, id="the first wrong ends it"),
    ],
)
def test_line_rule_on_published_cases(
    game: Game[Any], fen: str, moves: str, answers: str, solved: bool, first: bool
) -> None:
    policy = Scripted(game, answers.split())
    found = attempt_puzzles(policy, [puzzle(game, fen, moves)])
    (attempt,) = found.attempts
    assert (attempt.solved, attempt.solved_any, attempt.first) == (solved, solved, first)
    assert [game.moves[move] for move in attempt.moves] == answers.split()
    assert found.num_moves == len(answers.split())


def test_second_move_that_mates_instead_of_the_line_solves(game: Game[Any]) -> None:
    line = puzzle(game, QUEEN_E7, "g8h8 e7d7 h8g8 d7e8")  # e8 mates; so does g7
    attempt = attempt_puzzles(Scripted(game, ["e7d7", "d7g7"]), [line]).attempts[0]
    assert attempt.solved


def random_puzzles(number: int, seed: int) -> list[tuple[str, list[str]]]:
    """Positions of random games with the random moves that followed, even in number: right in form, without sense."""
    draws = random.Random(seed)
    made: list[tuple[str, list[str]]] = []
    while len(made) < number:
        board = chess.Board()
        for _ in range(draws.randrange(0, 60)):
            if board.is_game_over():
                break
            board.push(draws.choice(list(board.legal_moves)))
        fen, moves = board.fen(), []
        for _ in range(2 * draws.randrange(1, 4)):
            if not any(board.legal_moves):
                break
            moves.append(draws.choice(list(board.legal_moves)))
            board.push(moves[-1])
        if len(moves) >= 2 and len(moves) % 2 == 0:
            made.append((fen, [move.uci() for move in moves]))
    return made


def slow_judge(fen: str, moves: list[str], choose: Any) -> bool:
    """The rule again, with python-chess, one puzzle at a time."""
    board = chess.Board(fen)
    for index, text in enumerate(moves):
        if index % 2 == 0:
            board.push_uci(text)
            continue
        answer = choose(board.fen())
        board.push_uci(answer)
        if answer != text:
            return board.is_checkmate()
    return True


def test_line_rule_agrees_with_a_slow_second_judge(game: Game[Any]) -> None:
    made = random_puzzles(150, seed=3)
    # The solution three times in four, otherwise any legal move, mates first: all ends of a puzzle come up.
    known: dict[str, str] = {}
    for fen, moves in made:
        board = chess.Board(fen)
        for index, text in enumerate(moves):
            if index % 2 == 1:
                known[board.fen()] = text
            board.push_uci(text)

    def choose(fen: str) -> str:
        draws = random.Random(fen)
        if draws.random() < 0.75:
            return known[fen]
        board = chess.Board(fen)
        legal = sorted(move.uci() for move in board.legal_moves)
        return draws.choice(legal)

    expected = [slow_judge(fen, moves, choose) for fen, moves in made]
    puzzles = [puzzle(game, fen, " ".join(moves)) for fen, moves in made]
    policy = Playing(game, lambda state: game.moves.index(choose(game.format(state))))
    found = attempt_puzzles(policy, puzzles)
    assert [attempt.solved for attempt in found.attempts] == expected
    assert 20 < sum(expected) < 140
    # One call for all that are at the policy's turn, round by round.
    assert policy.batches[0] == len(puzzles)
    assert len(policy.batches) == max(len(attempt.moves) for attempt in found.attempts)
    assert sum(policy.batches) == found.num_moves


# Mates.


@cache
def slow_distance(text: str) -> tuple[int, int]:
    """(result for the player to move, plies to it) of a 3x3 position by plain minimax over all lines."""
    game = genpolicy.load_game(CONNECT)
    state = game.parse(text)
    end = game.outcome(state)
    if end is not None:
        return int(end), 0
    children = [slow_distance(game.format(game.play(state, int(move)))) for move in game.legal(state)]
    results = [(-result, plies + 1) for result, plies in children]
    best = max(result for result, _ in results)
    lengths = [plies for result, plies in results if result == best]
    return best, min(lengths) if best > 0 else max(lengths)


def test_mate_distance_is_minimax_on_every_small_position() -> None:
    game = genpolicy.load_game(CONNECT)
    wins = 0
    for state in game.positions():
        if game.outcome(state) is None:
            result, plies = slow_distance(game.format(state))
            assert game.mate_distance(state, 9) == (plies if result > 0 else None), game.format(state)
            assert game.mate_distance(state, 1) == (1 if result > 0 and plies == 1 else None)
            wins += result > 0
    assert wins > 1000


@pytest.mark.parametrize(
    ("fen", "plies"),
    [
        ("7k/8/6K1/8/8/8/5Q2/8 w - - 0 1", 1),
        ("7k/8/5K2/8/8/8/8/R7 w - - 0 1", 3),
        ("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", 3),  # Paul Morphy's problem, mate in two: 1.Ra6
        ("rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq g3 0 2", 1),  # the fool's mate
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 1", None),  # no mate in two
    ],
)
def test_mate_distance_of_known_chess_problems(game: Game[Any], fen: str, plies: int | None) -> None:
    assert game.mate_distance(game.parse(fen), 3) == plies


def mate_puzzle(game: Game[Any], fen: str, solution: str) -> Puzzle:
    ids = tuple(game.moves.index(move) for move in solution.split())
    return Puzzle("m", "file:2", fen, (), ids, rule="mate", mate_in=len(ids))


LADDER = "7k/8/5K2/8/8/8/8/R7 w - - 0 1"  # 1.Kf7 Kh7 2.Rh1#


@pytest.mark.parametrize(
    ("answers", "shortest", "any_mate", "first"),
    [
        pytest.param("f6f7 a1h1", True, True, True, id="the solution"),
        pytest.param("f6g6 a1a8", True, True, True, id="another mate as short: 1.Kg6 Kg8 2.Ra8"),
        pytest.param("a1a2 a2h2 h2h8", False, True, False, id="a move lost: 1.Ra2 Kg8 2.Rh2 Kf8 3.Rh8"),
        pytest.param("a1g1 g1g7", False, False, False, id="no mate in time any more"),
    ],
)
def test_mate_rule_counts_shortest_and_any(
    game: Game[Any], answers: str, shortest: bool, any_mate: bool, first: bool
) -> None:
    policy = Scripted(game, answers.split())
    found = attempt_puzzles(policy, [mate_puzzle(game, LADDER, "f6f7 h8h7 a1h1")], longer=2).attempts[0]
    assert (found.solved, found.solved_any, found.first) == (shortest, any_mate, first)


def test_no_longer_mate_counts_where_none_is_allowed(game: Game[Any]) -> None:
    policy = Scripted(game, ["a1a2", "f6g6", "a2a8"])
    found = attempt_puzzles(policy, [mate_puzzle(game, LADDER, "f6f7 h8h7 a1h1")], longer=0).attempts[0]
    assert not found.solved_any
    assert len(found.moves) == 1


@pytest.mark.parametrize(("longer", "any_mate"), [(0, False), (1, False), (2, True), (4, True)])
def test_plies_of_the_solution_count_towards_the_longest_mate(game: Game[Any], longer: int, any_mate: bool) -> None:
    """The first move is the solution's, the second loses two plies: mate at the 7th and not the 5th."""
    start = "8/7k/5K2/8/8/8/8/6R1 w - - 0 1"
    fixed = {0: "g1a1", 1: "a1b1"}
    asked: list[Any] = []

    def choose(state: Any) -> int:
        asked.append(state)
        if (given := fixed.get(len(asked) - 1)) is not None:
            return game.moves.index(given)
        after = {int(move): game.play(state, int(move)) for move in game.legal(state)}
        best = game.mate_distance(state, 5)
        assert best is not None
        return next(move for move, position in after.items() if _lost_in(game, position, best - 1))

    solution = mate_puzzle(game, start, "g1a1 h7h8 f6f7 h8h7 a1h1")
    found = attempt_puzzles(Playing(game, choose), [solution], longer=longer).attempts[0]
    assert (found.first, found.solved, found.solved_any) == (True, False, any_mate)
    assert len(found.moves) == (4 if any_mate else 2)


def _lost_in(game: Game[Any], state: Any, plies: int) -> bool:
    if plies == 0 or game.outcome(state) is not None:
        return game.outcome(state) == -1
    answers = [game.play(state, int(move)) for move in game.legal(state)]
    return all(game.mate_distance(answer, plies - 1) is not None for answer in answers)


def test_mate_rule_agrees_with_minimax_on_a_small_board() -> None:
    game = genpolicy.load_game(CONNECT)
    won = [s for s in game.positions() if game.outcome(s) is None and slow_distance(game.format(s))[0] > 0]
    draws = random.Random(0)
    puzzles, expected = [], []
    policy_moves: dict[str, int] = {}

    def choose(state: Any) -> int:
        legal = [int(move) for move in game.legal(state)]
        return policy_moves.setdefault(game.format(state), draws.choice(legal))

    for start in draws.sample([s for s in won if slow_distance(game.format(s))[1] >= 3], 120):
        line, state = [], start
        while game.outcome(state) is None:  # best play of both sides
            _, plies = slow_distance(game.format(state))
            after = {int(m): slow_distance(game.format(game.play(state, int(m)))) for m in game.legal(state)}
            line.append(next(m for m, (_, p) in after.items() if p == plies - 1 and -after[m][0] in (1, -1)))
            state = game.play(state, line[-1])
        puzzles.append(Puzzle("c", "f:1", game.format(start), (), tuple(line), rule="mate", mate_in=len(line)))
        expected.append(_judged(game, start, choose))
    found = attempt_puzzles(Playing(game, choose), puzzles, longer=9)
    assert [(a.solved, a.solved_any) for a in found.attempts] == expected
    assert {(True, True), (False, True), (False, False)} == set(expected)


def _judged(game: Game[Any], state: Any, choose: Any) -> tuple[bool, bool]:
    """Whether each move keeps the shortest win, and some win; it stands or falls whatever the longest defence is."""
    shortest = True
    while True:
        _, plies = slow_distance(game.format(state))
        after = game.play(state, choose(state))
        result, left = slow_distance(game.format(after))
        if result >= 0:
            return False, False
        shortest = shortest and left == plies - 1
        if left == 0:
            return shortest, True
        answers = [game.play(after, int(move)) for move in game.legal(after)]
        distances = [slow_distance(game.format(answer)) for answer in answers]
        state = next(answer for answer, (_, p) in zip(answers, distances, strict=True) if p == left - 1)


# Policies that fail.


def test_illegal_and_missing_answers_are_named_and_survived(game: Game[Any]) -> None:
    puzzles = [
        puzzle(game, QUEEN_UP, "g8h8 f2f8"),
        puzzle(game, SCHOLAR, SCHOLAR_MOVES),
        puzzle(game, QUEEN_E7, "g8h8 e7f8"),
    ]

    def choose(state: Any) -> int:
        text = game.format(state)
        if "KQkq" in text:
            raise EngineError("the engine died")
        return game.moves.index("e7f8")

    found = attempt_puzzles(Playing(game, choose), puzzles)
    assert [attempt.solved for attempt in found.attempts] == [False, False, True]
    assert "e7f8" in (found.attempts[0].problem or "")
    assert "illegal" in (found.attempts[0].problem or "")
    assert "the engine died" in (found.attempts[1].problem or "")
    assert len(found.problems) == 2
    table = puzzle_reports([PuzzleResult("x", found)], "file", longer=4)[0]
    assert any("no legal answer in 2 puzzles" in note for note in table.notes)


def test_policy_that_never_answers_is_given_up(game: Game[Any]) -> None:
    def choose(state: Any) -> int:
        raise EngineError("no such engine")

    with pytest.raises(EngineError, match="no such engine"):
        attempt_puzzles(Playing(game, choose), [puzzle(game, QUEEN_UP, "g8h8 f2f8")] * 30)


# Files.

ROW = f"00abc,{QUEEN_UP},g8h8 f2f8,1234,75,90,10,mate mateIn1 endgame,https://lichess.org/x#1,"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_are_read_with_their_facts(game: Game[Any], tmp_path: Path) -> None:
    other = f'"q,1",{SCHOLAR},{SCHOLAR_MOVES},1500,80,1,2,opening short,u,Italian_Game'
    (first, second) = game.open_puzzles(write(tmp_path / "p.csv", HEADER, ROW, "", other))
    assert (first.name, first.rating, first.rating_deviation) == ("00abc", 1234.0, 75.0)
    assert first.themes == ("mate", "mateIn1", "endgame")
    assert (first.mate_in, second.mate_in) == (1, None)
    assert [game.moves[m] for m in (*first.setup, *first.solution)] == ["g8h8", "f2f8"]
    assert (first.where, second.where) == (f"{tmp_path}/p.csv:2", f"{tmp_path}/p.csv:4")
    assert second.name == "q,1"
    assert len(second.solution) == 3


def test_packed_files_other_orders_and_missing_headers_are_read(game: Game[Any], tmp_path: Path) -> None:
    (expected,) = game.open_puzzles(write(tmp_path / "p.csv", HEADER, ROW))
    (tmp_path / "g.csv.gz").write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode()))
    (tmp_path / "z.csv.zst").write_bytes(zstandard.compress(f"{HEADER}\r\n{ROW}\r\n".encode()))
    write(tmp_path / "bare.csv", ROW)
    write(tmp_path / "old.csv", ROW.removesuffix(","))  # before OpeningTags were added
    for name in ("g.csv.gz", "z.csv.zst", "bare.csv", "old.csv"):
        (found,) = game.open_puzzles(tmp_path / name)
        assert found.solution == expected.solution
        assert (found.name, found.rating, found.themes) == (expected.name, expected.rating, expected.themes)
    (few,) = game.open_puzzles(write(tmp_path / "few.csv", "Moves,FEN", f"g8h8 f2f8,{QUEEN_UP}"))
    assert (few.rating, few.themes, few.name) == (None, (), f"{tmp_path}/few.csv:2")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("00abc,nonsense,g8h8 f2f8,1234,75,90,10,mate,u,", "nonsense"),
        (f"00abc,{QUEEN_UP},g8h8 f2e8,1234,75,90,10,mate,u,", "f2e8"),
        (f"00abc,{QUEEN_UP},g8g6 f2f8,1234,75,90,10,mate,u,", "g8g6"),
        (f"00abc,{QUEEN_UP},g8h8 Qf9,1234,75,90,10,mate,u,", "Qf9"),
        (f"00abc,{QUEEN_UP},g8h8,1234,75,90,10,mate,u,", "even number"),
        (f"00abc,{QUEEN_UP},,1234,75,90,10,mate,u,", "even number"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8 h8g8,1234,75,90,10,mate,u,", "f2f8 h8g8"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8 h8g8 f8g8,1234,75,90,10,mate,u,", "h8g8"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8,strong,75,90,10,mate,u,", "strong"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8,nan,75,90,10,mate,u,", "nan"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8", "columns"),
        (ROW + ",more,and more", "columns"),
        ('00abc,"unclosed', "comma-separated"),
    ],
)
def test_bad_row_is_named_and_can_be_left_out(game: Game[Any], tmp_path: Path, row: str, said: str) -> None:
    path = write(tmp_path / "bad.csv", HEADER, ROW, row, ROW)
    with pytest.raises(SourceError) as raised:
        read_puzzle_file(game, path)
    for part in (f"{path}:3", said, "--skip-bad"):
        assert part in str(raised.value)
    found = read_puzzle_file(game, path, skip_bad=True)
    assert (len(found.puzzles), found.num_read, found.num_bad) == (2, 2, 1)
    assert f"{path}:3" in found.shown[0]


def test_line_breaks_within_quotes_belong_to_the_row(game: Game[Any], tmp_path: Path) -> None:
    """RFC 4180 2.6; the row is named by its first line, and the rows after it by theirs."""
    quoted = f'"00\n\nabc",{QUEEN_UP},"g8h8\r\nf2f8",1234,75,90,10,"mate\nmateIn1",https://lichess.org/x#1,'
    path = write(tmp_path / "p.csv", HEADER, quoted, ROW)
    first, second = game.open_puzzles(path)
    assert (first.themes, len(first.solution), first.where) == (("mate", "mateIn1"), 1, f"{path}:2")
    assert second.where == f"{path}:7"


def test_a_quote_that_nobody_closed_costs_its_own_row_alone(game: Game[Any], tmp_path: Path) -> None:
    quoted = '"x",' + ROW.partition(",")[2]
    path = write(tmp_path / "p.csv", HEADER, 'a,"open', quoted, ROW, *[ROW] * 100, 'b,"open')
    found = read_puzzle_file(game, path, skip_bad=True)
    assert (len(found.puzzles), found.num_bad) == (102, 2)
    assert f"{path}:2" in found.shown[0]


DIES = """#!/bin/sh
while read -r word rest; do case $word in uci) echo uciok;; isready) echo readyok;; go) exit 3;; quit) exit;; esac; done
"""


def test_a_policy_that_is_given_up_takes_nothing_from_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = tmp_path / "dies"
    engine.write_text(DIES)
    engine.chmod(0o755)
    path = write(tmp_path / "p.csv", HEADER, *[ROW] * 12)
    command = ["evaluate", "puzzles", "--game", "chess", "--puzzles", str(path), "--json", str(tmp_path / "out.json")]
    command += ["--markdown", str(tmp_path / "out.md"), "--policy"]
    assert main([*command, "random", f"engine:{engine}?nodes=1", "random?seed=3"]) == 2
    shown = capsys.readouterr()
    assert "could not be measured" in shown.out
    assert f"genpolicy: not measured: engine:{engine}?nodes=1: " in shown.err
    figures = json.loads((tmp_path / "out.json").read_text())
    assert [row["policy"] for row in figures["policies"]] == ["random", "random?seed=3"]
    assert [row["policy"] for row in figures["not_measured"]] == [f"engine:{engine}?nodes=1"]
    assert "status 3" in figures["not_measured"][0]["reason"]
    assert "| random |" in (tmp_path / "out.md").read_text()
    assert main([*command, f"engine:{engine}?nodes=1"]) == 2
    assert "genpolicy: not measured" in capsys.readouterr().err


def test_files_without_puzzles_are_refused(game: Game[Any], tmp_path: Path) -> None:
    for name, lines, said in [
        ("empty.csv", [HEADER], "no puzzle"),
        ("header.csv", ["PuzzleId,Moves,Rating", "a,e2e4 e7e5,1"], "no column FEN"),
        ("bad.csv", [HEADER, "a,b,c"], "all 1 rows are bad"),
        ("games.pgn", ["1. e4"], "puzzles come as"),
    ]:
        with pytest.raises(SourceError, match=said):
            read_puzzle_file(game, write(tmp_path / name, *lines), skip_bad=True)
    with pytest.raises(SourceError, match="no such file"):
        read_puzzle_file(game, tmp_path / "nowhere.csv")
    damaged = tmp_path / "cut.csv.gz"
    damaged.write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode() * 50)[:60])
    with pytest.raises(SourceError, match="damaged or cut short"):
        read_puzzle_file(game, damaged, skip_bad=True)
    connect = genpolicy.load_game(CONNECT)
    with pytest.raises(SourceError, match="reads no puzzle files"):
        read_puzzle_file(connect, tmp_path / "bad.csv")


def test_limit_draws_from_the_whole_file(game: Game[Any], tmp_path: Path) -> None:
    rows = [ROW.replace("00abc", f"{i:05}") for i in range(20)]
    path = write(tmp_path / "p.csv", HEADER, *rows)
    drawn = [[p.name for p in read_puzzle_file(game, path, limit=4, seed=seed).puzzles] for seed in range(150)]
    assert all(names == sorted(set(names)) and len(names) == 4 for names in drawn)
    assert drawn[0] == [p.name for p in read_puzzle_file(game, path, limit=4, seed=0).puzzles]
    counts = [sum(f"{i:05}" in names for names in drawn) for i in range(20)]
    assert min(counts) >= 10  # 30 expected of each, with a standard deviation of 4.9
    with pytest.raises(ValueError, match="at least 1 puzzle"):
        read_puzzle_file(game, path, limit=0)


# Counting.


def test_bands_and_themes_count_each_puzzle_where_it_belongs(game: Game[Any]) -> None:
    def attempt(rating: float | None, themes: tuple[str, ...], solved: bool) -> Attempt:
        made = puzzle(game, QUEEN_UP, "g8h8 f2f8", rating=rating, themes=themes)
        return Attempt(made, (), solved, solved, solved)

    attempts = [
        attempt(1399.9, ("fork", "pin", "fork"), True),
        attempt(1400.0, ("pin",), False),
        attempt(799.0, ("pin",), True),
        attempt(None, (), True),
    ]
    bands = by_rating(attempts)
    assert {name: len(group) for name, group in bands.items()} == {
        "600-799": 1,
        "1200-1399": 1,
        "1400-1599": 1,
        "no rating": 1,
    }
    assert list(bands) == ["600-799", "1200-1399", "1400-1599", "no rating"]
    assert {name: sum(a.solved for a in group) for name, group in by_theme(attempts).items()} == {"pin": 2, "fork": 1}


def test_command_measures_and_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.csv", HEADER, ROW, "broken", ROW)
    command = ["evaluate", "puzzles", "--game", "chess", "--policy", "random", "--policy", "random?seed=3"]
    command += ["--puzzles", str(path), "--json", str(tmp_path / "out.json"), "--markdown", str(tmp_path / "out.md")]
    assert main(command) == 2
    assert f"{path}:3" in capsys.readouterr().err
    assert main([*command, "--skip-bad"]) == 0
    shown = capsys.readouterr()
    assert "1 bad rows" in shown.out
    assert f"{path}:3" in shown.err
    figures = json.loads((tmp_path / "out.json").read_text())
    assert (figures["puzzles"]["puzzles"], figures["puzzles"]["bad_rows"]) == (2, 1)
    assert [row["policy"] for row in figures["policies"]] == ["random", "random?seed=3"]
    assert figures["policies"][0]["solved"]["puzzles"] == 2
    assert {a["puzzle"] for a in figures["policies"][0]["attempts"]} == {"00abc"}
    assert "| random |" in (tmp_path / "out.md").read_text()


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--band", "0"], "--band"),
        (["--longer", "-1"], "--longer"),
        (["--limit", "0"], "limit"),
        (["--policy", "nobody"], "nobody"),
    ],
)
def test_command_refuses_nonsense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], said: str
) -> None:
    path = write(tmp_path / "p.csv", HEADER, ROW)
    command = ["evaluate", "puzzles", "--game", "chess", "--policy", "random", "--puzzles", str(path), *extra]
    assert main(command) == 2
    assert said in capsys.readouterr().err


def test_game_must_be_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.csv", HEADER, ROW)
    assert main(["evaluate", "puzzles", "--policy", "random", "--puzzles", str(path)]) == 2
    assert "--game" in capsys.readouterr().err
