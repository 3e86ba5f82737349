"""The solver against exhaustive minimax, published counts and published scores."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

from genpolicy import load_game, registry
from genpolicy.values import score_to_value
from genpolicy_connect import ConnectGame
from genpolicy_connect.solver import SolverOracle

TIC_TAC_TOE = "connect:rows=3,cols=3,k=3,gravity=false"


def minimax(game: ConnectGame) -> Any:
    """Value and plies to the end of a position, by trying everything: the slow and obvious second computation."""

    @cache
    def solve(state: Any) -> tuple[int, int]:
        outcome = game.outcome(state)
        if outcome is not None:
            return int(outcome), 0
        after = [solve(game.play(state, int(move))) for move in game.legal(state)]
        value = max(-theirs for theirs, _ in after)
        plies = [n + 1 for theirs, n in after if -theirs == value]
        return value, max(plies) if value < 0 else min(plies)

    return solve


def random_position(draw: random.Random) -> tuple[ConnectGame, Any]:
    """A position with at most 8 empty squares, on a board of at most 30."""
    while True:
        rows, cols = draw.randint(1, 5), draw.randint(1, 6)
        if max(rows, cols) < 2:
            continue
        game = ConnectGame(rows, cols, draw.randint(2, min(4, max(rows, cols))), draw.random() < 0.6)
        state = game.parse()
        for _ in range(max(0, rows * cols - draw.randint(1, 8))):
            quiet = [s for m in game.legal(state) if not (s := game.play(state, int(m))).won]
            if not quiet:
                break
            state = draw.choice(quiet)
        empty = game.num_squares - sum(stones.bit_count() for stones in state.stones)
        if empty <= 8 and game.outcome(state) is None:
            return game, state


@pytest.mark.parametrize("distance", [False, True])
def test_random_small_boards_against_minimax(distance: bool) -> None:
    draw = random.Random(5)
    decided = 0
    for _ in range(200):
        game, state = random_position(draw)
        solve = minimax(game)
        line = SolverOracle(game, distance=distance).analyse([state], 1)[0]
        assert sorted(line.move_values) == game.legal(state).tolist()
        for move, score in line.move_values.items():
            theirs, plies = solve(game.play(state, move))
            expected = -theirs * (1 - (plies + 1) / 1000 if distance else 1)
            assert score_to_value(score) == pytest.approx(expected, abs=1e-6), (game.spec, game.format(state), move)
        decided += len(set(line.move_values.values())) > 1
    assert decided > 30  # or the test would compare nothing but draws


@pytest.mark.parametrize(("rows", "cols", "k", "gravity"), [(4, 4, 3, True), (3, 3, 3, False), (3, 4, 3, True)])
def test_every_position_of_a_small_board_against_minimax(rows: int, cols: int, k: int, gravity: bool) -> None:
    game = ConnectGame(rows, cols, k, gravity)
    solve, oracle = minimax(game), SolverOracle(game)
    states = [state for state in game.positions() if game.outcome(state) is None][::5]
    for state, line in zip(states, oracle.analyse(states, 1), strict=True):
        assert score_to_value(line.scores[0] or "") == solve(state)[0]


def test_tic_tac_toe_positions_won_for_each_side() -> None:
    # Positions up to symmetry by number of stones: https://oeis.org/A317573 (X wins) and A317574 (O wins).
    game = load_game(TIC_TAC_TOE)
    oracle = SolverOracle(game)
    won: dict[str, Counter[int]] = {"X": Counter(), "O": Counter()}
    seen = set()
    for state in game.positions():
        if (key := game.canonical_key(state)) in seen:
            continue
        seen.add(key)
        value = game.outcome(state)
        if value is None:
            value = score_to_value(oracle.analyse([state], 1)[0].scores[0] or "")
        if value:
            winner = state.player if value > 0 else 1 - state.player
            won["XO"[winner]][sum(stones.bit_count() for stones in state.stones)] += 1
    assert [won["X"][n] for n in range(10)] == [0, 0, 7, 9, 85, 67, 139, 70, 23, 12]
    assert [won["O"][n] for n in range(10)] == [0, 0, 0, 8, 5, 72, 38, 56, 23, 0]


@pytest.mark.slow
def test_4x4_tic_tac_toe_positions_won_for_each_side() -> None:
    # A317573 and A317574, fourth row: X wins 1,100 of the positions with 6 stones, O none.
    game = load_game("connect:rows=4,cols=4,k=4,gravity=false")
    oracle = SolverOracle(game)
    ply = {game.canonical_key(game.parse()): game.parse()}
    for _ in range(6):
        after = (game.play(s, int(m)) for s in ply.values() for m in game.legal(s))
        ply = {game.canonical_key(s): s for s in after}
    states = list(ply.values())  # six stones: nobody has four in a row, and X is to move
    scores = Counter(line.scores[0] for line in oracle.analyse(states, 1))
    assert (scores["value:1"], scores["value:-1"]) == (1100, 0)


# From Pascal Pons' test set L3_R1 (http://blog.gamesolver.org/solving-connect-four/02-test-protocol/): the columns
# played, from 1, then the score: 1 when the player to move wins with the last of their 21 stones, 2 with the last but
# one; negative when the other player does.
PONS = """
2252576253462244111563365343671351441 -1
7422341735647741166133573473242566 1
23163416124767223154467471272416755633 0
71255763773133525731261364622167124446454 0
65214673556155731566316327373221417 -1
52677675164321472411331752454 0
3135151421347443544172316522225776773566 0
562154564361751726662253737734213275114 0
233377345754465174223731671122611552 1
6763525635134453444361412671365712 -1
3146762114467714356347741621375222 -1
67152117737262713366376314254 6
2762751722231276466633475674533 5
3642756176227637211322113551637574556 2
22647455554314246733661634615122372377511 0
427566236745127177115664464254 2
7172212567451542223676134464437761515 0
641154574541323641152467137655232232366 0
5775265212657176476365522624313714333 2
3575316255751336464276636772271112 -3
"""


@pytest.mark.parametrize("case", PONS.split("\n")[1:-1])
def test_connect_four_scores_of_pons(case: str) -> None:
    columns, score = case.split()
    game = load_game("connect")
    state = game.parse()
    for column in columns:
        state = game.play(state, int(column) - 1)
    line = SolverOracle(game, distance=True).analyse([state], 1)[0]
    value = score_to_value(line.scores[0] or "")
    end = len(columns) + round(1000 * (1 - abs(value)))  # stones on the board when the game ends
    stones_of_winner = (end + 1) // 2
    expected = 0 if value == 0 else (22 - stones_of_winner) * (1 if value > 0 else -1)
    assert expected == int(score)


# Lines.


def test_tic_tac_toe_is_a_draw() -> None:
    game = load_game(TIC_TAC_TOE)
    line = registry.load("oracles", "solver")(game).analyse([game.parse()], 9)[0]
    assert line.ended
    assert line.scores == ("value:0",) * 9
    assert set(line.move_values.values()) == {"value:0"}
    assert len(line.moves) == len(set(line.moves)) == 9


def test_a_line_is_optimal_for_both_sides() -> None:
    game = load_game("connect:rows=4,cols=4,k=3")
    oracle, solve = SolverOracle(game, seed=3), minimax(game)
    states = [s for s in game.positions() if game.outcome(s) is None]
    for root, line in zip(sample := random.Random(0).sample(states, 200), oracle.analyse(sample, 5), strict=True):
        state, value = root, solve(root)[0]
        for move, score in zip(line.moves, line.scores, strict=True):
            assert score_to_value(score or "") == value
            state, value = game.play(state, move), -value
            assert solve(state)[0] == value
        assert line.ended == (game.outcome(state) is not None)
        assert line.ended or len(line.moves) == 5


def test_the_quickest_win_is_taken_with_distance() -> None:
    game = load_game("connect:rows=3,cols=5,k=3,gravity=false")
    state = game.parse("XX.../OO.../..... X")  # c3 wins at once; c2 stops O and wins later
    quick = SolverOracle(game, distance=True).analyse([state], 9)[0]
    assert [game.moves[i] for i in quick.moves] == ["c3"]
    assert quick.ended
    assert quick.scores == ("value:0.999",)
    slow = {
        game.moves[line.moves[0]] for line in (SolverOracle(game, seed=s).analyse([state], 1)[0] for s in range(40))
    }
    assert slow == {"c3", "c2"}


@pytest.mark.thorough
def test_draws_among_best_moves_are_uniform_and_reproducible() -> None:
    game = load_game(TIC_TAC_TOE)
    start = game.parse()  # all nine moves are equally good
    counts = Counter(SolverOracle(game, seed=seed).analyse([start], 1)[0].moves[0] for seed in range(450))
    chi_square = sum((counts[move] - 50) ** 2 / 50 for move in range(9))
    assert chi_square < 26.1  # the 99.9 % point of 8 degrees of freedom

    # With one seed, positions draw for themselves: of the two best moves, each second position takes the first.
    states = [s for s in game.positions() if game.outcome(s) is None]
    firsts = []
    for line in SolverOracle(game, seed=1).analyse(states, 1):
        tied = [move for move, score in line.move_values.items() if score == line.scores[0]]
        if len(tied) == 2:
            firsts.append(line.moves[0] == tied[0])
    assert abs(sum(firsts) / len(firsts) - 0.5) < 3.3 * 0.5 / len(firsts) ** 0.5  # 3.3 standard errors

    states = states[:100]
    forwards = SolverOracle(game, seed=1).analyse(states, 4)
    backwards = SolverOracle(game, seed=1).analyse(states[::-1], 4)[::-1]
    assert forwards == backwards
    assert forwards != SolverOracle(game, seed=2).analyse(states, 4)


# What it cannot do.


def test_a_board_too_large_says_so_and_how_to_go_on() -> None:
    game = load_game("connect")
    near = game.parse()
    for column in "2252576253462244111563365343671351441":
        near = game.play(near, int(column) - 1)
    oracle = SolverOracle(game, node_limit=2000)
    empty, solved = oracle.analyse([game.parse(), near], 4)
    assert empty.moves == ()
    assert empty.error is not None
    assert "node_limit=2000" in empty.error
    assert "smaller board" in empty.error
    assert solved.error is None


def test_a_board_beyond_pythons_recursion_says_so() -> None:
    game = load_game("connect:rows=26,cols=26,k=5")
    assert "smaller board" in str(SolverOracle(game).analyse([game.parse()], 1)[0].error)


def test_bad_arguments() -> None:
    game = load_game(TIC_TAC_TOE)
    with pytest.raises(ValueError, match="distance must be true or false"):
        SolverOracle(game, distance="far")
    with pytest.raises(ValueError, match="seed must be a whole number, got 'one'"):
        SolverOracle(game, seed="one")
    with pytest.raises(ValueError, match="node_limit must be at least 1"):
        SolverOracle(game, node_limit=0)
    with pytest.raises(ValueError, match="horizon must be at least 1"):
        SolverOracle(game).analyse([game.parse()], 0)
    over = SolverOracle(game).analyse([game.parse("XXX/OO./... O")], 1)[0]
    assert "the game is over" in str(over.error)


def test_it_describes_what_decides_its_labels() -> None:
    game = load_game(TIC_TAC_TOE)
    told = SolverOracle(game, seed="7", distance="true").describe()
    assert told["name"] == "solver"
    assert (told["seed"], told["distance"], told["game"], told["score_scale"]) == (7, True, TIC_TAC_TOE, "value")
