"""Alpha-beta on chess: mates for both colours, hanging pieces, repetitions, and a table that forgets no history."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest

pytest.importorskip("chess")

import chess

import genpolicy
from genpolicy_alphabeta.search import AlphaBeta
from genpolicy_mcts.rules import even
from tests.search.search_models import valued

GAME = genpolicy.load_game("chess")
FLIP = GAME.symmetries[0]
MATES_IN_ONE = {
    "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1": "a1a8",  # back rank
    "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 2 3": "f3f7",  # scholar's mate
    "6rk/6pp/8/6N1/8/8/8/K7 w - - 0 1": "g5f7",  # smothered
    "k7/8/1K6/8/8/8/8/7R w - - 0 1": "h1h8",
}
MATES_IN_TWO = [
    "k7/8/2K5/8/8/8/8/1R6 w - - 0 1",
    "kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1",  # Morphy's problem: 1. Ra6
    "7k/8/8/8/8/1R6/R7/K7 w - - 0 1",  # two rooks
]


def both_colours(fen: str) -> list[Any]:
    state = GAME.parse(fen)
    return [state, FLIP.state(state)]


@pytest.mark.parametrize("evaluator", [None, even], ids=["heuristic", "even"])
@pytest.mark.parametrize("fen", MATES_IN_ONE)
def test_mate_in_one(fen: str, evaluator: Any) -> None:
    for number, state in enumerate(both_colours(fen)):
        move = GAME.moves.index(MATES_IN_ONE[fen])
        for depth in (1, 3):
            found = AlphaBeta(GAME, depth=depth, evaluator=evaluator).search(state)
            assert found.move == (FLIP.moves[move] if number else move)
            assert (found.text, found.value, found.exact) == ("mate:1", 1.0, True)


@pytest.mark.thorough
def test_wins_in_one_of_random_games_with_little_to_spend() -> None:
    """Twenty positions of each colour, with no heuristic, and with a few hundred positions where captures abound."""
    rng = random.Random(1)
    missing = [20, 20]
    while any(missing):
        state = GAME.parse()
        for _ in range(120):
            if GAME.outcome(state) is not None:
                break
            legal = GAME.legal(state).tolist()
            wins = {m for m in legal if GAME.outcome(GAME.play(state, m)) == -1} if missing[GAME.player(state)] else ()
            if wins:
                missing[GAME.player(state)] -= 1
                for search in (AlphaBeta(GAME, depth=2, evaluator=even), AlphaBeta(GAME, nodes=120)):
                    found = search.search(state)
                    assert found.move in wins
                    assert found.text == "mate:1"
            state = GAME.play(state, rng.choice(legal))


@pytest.mark.parametrize("fen", MATES_IN_TWO)
def test_mate_in_two_is_shortest_and_the_line_mates(fen: str) -> None:
    for state in both_colours(fen):
        found = AlphaBeta(GAME, depth=5).search(state)
        assert (found.text, found.value, found.depth, len(found.line)) == ("mate:2", 1.0, 3, 3)
        for move in found.line:
            state = GAME.play(state, move)
        assert GAME.outcome(state) == -1.0


def test_the_side_that_is_mated_says_so_and_holds_out() -> None:
    for state in both_colours("kbK5/pp6/RP6/8/8/8/8/8 b - - 1 1"):  # after Morphy's 1. Ra6
        found = AlphaBeta(GAME, depth=4).search(state)
        assert (found.text, found.value, len(found.line)) == ("mate:-1", -1.0, 2)


def test_quiescence_sees_the_recapture() -> None:
    """At depth 1 a queen takes a defended pawn, unless what can be taken back is looked at."""
    for state in both_colours("4k3/2p5/3p4/8/8/8/3Q4/4K3 w - - 0 1"):
        taking = GAME.moves.index("d2d6") if state.board.turn else GAME.moves.index("d7d3")
        assert AlphaBeta(GAME, depth=1, quiescence=0).search(state).move == taking
        assert AlphaBeta(GAME, depth=1).search(state).move != taking


def test_quiescence_saves_the_piece_that_hangs() -> None:
    """At depth 1 the opponent's capture of the knight lies beyond the depth."""
    for state in both_colours("4k3/2p5/8/2p5/3N4/8/4P3/4K3 w - - 0 1"):
        found = AlphaBeta(GAME, depth=1).search(state)
        after = GAME.play(state, found.move).board
        knight = after.pieces(chess.KNIGHT, not after.turn).pop()
        assert not after.attackers(after.turn, knight)
        blind = AlphaBeta(GAME, depth=1, quiescence=0).search(state)
        worse = AlphaBeta(GAME, depth=2).search(state)
        assert found.value is not None
        assert blind.value is not None
        assert worse.value is not None
        assert abs(found.value - worse.value) < 0.1


def shuffled(fen: str, moves: str) -> Any:
    state = GAME.parse(fen)
    for move in moves.split():
        state = GAME.play(state, GAME.moves.index(move))
    return state


def test_the_losing_side_takes_the_third_repetition_and_the_winning_side_does_not() -> None:
    fen, round_trip = "6k1/5ppp/8/8/8/8/4QPPP/6K1 w - - 0 1", "g1h1 g8h8 h1g1 h8g8"
    for number, state in enumerate((shuffled(fen, f"{round_trip} g1h1 g8h8 h1g1"), None)):
        position = FLIP.state(shuffled(fen, f"{round_trip} g1h1 g8h8 h1g1")) if number else state
        back = GAME.moves.index("h8g8" if number == 0 else "h1g1")
        for depth in (1, 2, 3):
            found = AlphaBeta(GAME, depth=depth).search(position)
            assert (found.move, found.value) == (back, 0.0)
        # The same position without its past is lost.
        alone = AlphaBeta(GAME, depth=2).search(GAME.parse(GAME.format(position)))
        assert alone.value is not None
        assert alone.value < -0.5
    # One ply before, the queen's side must not go back.
    before = shuffled(fen, f"{round_trip} g1h1 g8h8")
    for depth in (2, 3):
        found = AlphaBeta(GAME, depth=depth).search(before)
        assert found.move != GAME.moves.index("h1g1")
        assert found.value is not None
        assert found.value > 0.5


def ends(state: Any, plies: int) -> tuple[Any, ...]:
    """Where the game is over within some plies, as a tree."""
    result = GAME.outcome(state)
    if result is not None or plies == 0:
        return (result,)
    return tuple(ends(GAME.play(state, move), plies - 1) for move in GAME.legal(state).tolist())


def test_positions_of_one_transposition_key_end_alike() -> None:
    """The same position with many pasts: where the trees of results differ, the keys must."""
    rng = random.Random(5)
    num_unlike = num_shared = 0
    for clock in (0, 90):
        pasts: dict[Any, list[Any]] = {}
        for _ in range(60):
            state = GAME.parse(f"k7/8/8/7p/7P/8/8/K7 w - - {clock} 80")  # the pawns are stuck
            for _ in range(rng.choice([4, 6, 7, 8, 9])):
                kings = [m for m in GAME.legal(state).tolist() if GAME.moves[m][2:4] in ("a1", "b1", "c1", "a8", "b8")]
                after = GAME.play(state, rng.choice(kings))
                if GAME.outcome(after) is None:
                    state = after
            pasts.setdefault(GAME.key(state), []).append(state)
        for alike in pasts.values():
            for plies in (1, 2, 3):
                groups: dict[Any, set[Any]] = {}
                for state in alike:
                    groups.setdefault(GAME.hints.transposition_key(state, plies), set()).add(ends(state, plies))
                assert all(len(trees) == 1 for trees in groups.values())
                num_unlike += len(set().union(*groups.values())) > 1
                num_shared += len(alike) > len(groups)
    assert num_unlike > 3
    clocks = {clock: GAME.parse(f"k7/8/8/7p/7P/8/8/K7 w - - {clock} 80") for clock in (10, 20, 97)}
    keys = {clock: GAME.hints.transposition_key(state, 3) for clock, state in clocks.items()}
    assert keys[10] == keys[20] != keys[97]
    assert num_shared > 3


def _undoes(state: Any, move: int) -> bool:
    before = state.moves[-2].uci()
    return bool(GAME.moves[move] == before[2:4] + before[:2])


@pytest.mark.thorough
def test_the_table_changes_nothing_whatever_the_past() -> None:
    """Endgames after moves back and forth, repetitions and the 50-move rule within reach, any value at the leaves."""
    rng = random.Random(11)
    starts = [
        "8/8/4k3/8/8/3K4/8/R6r w - - 0 1",
        "8/5k2/8/8/8/2K5/1B6/7r w - - 94 80",
        "8/8/8/1k6/8/8/1K4P1/r7 w - - 9 70",
    ]
    for number in range(18):
        state = GAME.parse(starts[number % 3])
        for _ in range(rng.randint(2, 9)):
            moves = GAME.legal(state).tolist()
            back = [m for m in moves if len(state.moves) > 1 and _undoes(state, m)]
            after = GAME.play(state, rng.choice(back or moves))
            if GAME.outcome(after) is None:
                state = after
        salt = str(number)

        def anything(position: Any, salt: str = salt) -> float:
            return random.Random(repr(GAME.key(position)) + salt).uniform(-1, 1)

        with_table, without = (
            AlphaBeta(GAME, depth=3, table=table, evaluator=valued(anything)).search(state) for table in (True, False)
        )
        assert with_table.score == without.score, (GAME.format(state), [m.uci() for m in state.moves])


@pytest.mark.thorough
def test_a_search_that_is_cut_keeps_the_last_finished_move() -> None:
    """The root comes again inside the tree, where another move is best; that once decided what was looked at first."""

    def evaluate(state: Any) -> float:
        digest = hashlib.md5(str(GAME.key(state)).encode()).digest()
        return (int.from_bytes(digest[:4], "big") % 2001 - 1000) / 1000 * 0.9

    state = GAME.parse("8/8/8/4P3/8/8/k1K5/8 w - - 0 1")
    finished = [AlphaBeta(GAME, depth=n, quiescence=0, evaluator=valued(evaluate)).search(state) for n in (5, 6)]
    advance = GAME.moves.index("e5e6")
    assert [found.move for found in finished] == [advance] * 2
    limits = range(finished[0].nodes, 1600, 49)
    cut = [AlphaBeta(GAME, nodes=nodes, quiescence=0, evaluator=valued(evaluate)).search(state) for nodes in limits]
    assert {(found.move, found.depth) for found in cut} <= {(advance, 5), (advance, 6)}
