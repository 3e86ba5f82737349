"""Puzzles: the two rules on cases written by hand, against slow second computations, and on bad files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import chess
import pytest

import genpolicy
from genpolicy.errors import EngineError
from genpolicy.game import Game, Puzzle
from genpolicy.policies.base import Decision, Policy
from genpolicy_evaluation.puzzle_tables import PuzzleResult, puzzle_reports
from genpolicy_evaluation.puzzles import _Asker, attempt_puzzles
from tests.contracts.test_third_party_game import NimGame
from tests.evaluation.chess_puzzles import QUEEN_E7, QUEEN_UP, SCHOLAR, SCHOLAR_MOVES, puzzle
from tests.small_datasets import CONNECT


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


def test_mate_distance_is_minimax_on_small_positions() -> None:
    game = genpolicy.load_game(CONNECT)
    wins = 0
    for state in list(game.positions())[::3]:
        if game.outcome(state) is None:
            result, plies = slow_distance(game.format(state))
            assert game.mate_distance(state, 9) == (plies if result > 0 else None), game.format(state)
            assert game.mate_distance(state, 1) == (1 if result > 0 and plies == 1 else None)
            wins += result > 0
    assert wins > 400


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


class AgainNim(NimGame):
    """Who takes one match or three moves again; who takes the last one wins."""

    alternates = False

    def parse(self, text: str | None = None) -> Any:
        return (*super().parse(text), None)

    def play(self, state: Any, move_id: int) -> Any:
        left, player = super().play(state[:2], move_id)
        return left, player ^ (move_id != 1), state[1]

    def outcome(self, state: Any) -> float | None:
        return None if state[0] else 1.0 if state[1] == state[2] else -1.0

    def format(self, state: Any) -> str:
        return super().format(state[:2])


@pytest.mark.parametrize(
    ("moves", "asked", "solved"),
    [(["1", "1", "2"], 3, True), (["1", "1", "1", "1"], 3, False), (["1", "2"], 2, False)],
)
def test_every_own_move_is_judged_where_a_player_moves_twice(moves: list[str], asked: int, solved: bool) -> None:
    policy = Scripted(AgainNim(), moves)
    line = Puzzle("n", "f:1", "4 A", (), (0, 0, 1))
    (attempt,) = attempt_puzzles(policy, [line]).attempts
    assert (len(policy.batches), attempt.solved) == (asked, solved)


def test_a_win_that_keeps_the_turn_is_a_win() -> None:
    (attempt,) = attempt_puzzles(Scripted(AgainNim(), ["3"]), [Puzzle("n", "f:1", "3 A", (), (0, 1))]).attempts
    assert attempt.solved


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


def test_answers_between_failures_end_a_row_of_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they come one by one or as a whole batch."""
    policy = genpolicy.load_policy("random", game="chess")
    answered = policy.decide

    def decide(states: Sequence[Any]) -> list[Decision]:
        if "dies" in states:
            raise EngineError("the engine died")
        return answered(states)

    monkeypatch.setattr(policy, "decide", decide)
    asker, start = _Asker(policy), policy.game.parse()
    for _ in range(2):
        assert len(asker.ask(["dies"] * 7)) == 7
        assert isinstance(asker.ask([start])[0], Decision)
    with pytest.raises(EngineError):
        asker.ask(["dies"] * 8)
