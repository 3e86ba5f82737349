"""Alpha-beta: equal to exhaustive minimax, keeps its limits, knows mates, repetitions and hanging pieces."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import genpolicy
from genpolicy.game import Game
from genpolicy.policies.thinking import Answer, Limits
from genpolicy_alphabeta.policy import AlphaBetaPolicy
from genpolicy_alphabeta.scores import plies_to_end
from genpolicy_alphabeta.search import AlphaBeta
from genpolicy_mcts.rules import even
from tests.search.search_models import comparing, preferring, valued
from tests.small_datasets import CONNECT

WIN = 100.0  # of the reference: a win in n plies is 100 - n


def minimax(game: Game[Any], state: Any, depth: int | None, evaluate: Callable[[Any], float], plies: int = 0) -> float:
    """The slow and obvious computation: every move to the depth (None: to the end)."""
    result = game.outcome(state)
    if result is not None:
        return result if abs(result) < 1 else result * (WIN - plies)
    if depth == 0:
        return evaluate(state)
    deeper = None if depth is None else depth - 1
    return max(-minimax(game, game.play(state, m), deeper, evaluate, plies + 1) for m in game.legal(state).tolist())


def as_reference(score: Any) -> float:
    plies = plies_to_end(score)
    if plies is None:
        return float(score)
    return WIN - plies if score > 0 else plies - WIN


def random_boards(number: int, max_empty: int, seed: int) -> Iterator[tuple[Game[Any], Any]]:
    """Unfinished positions of random small boards with few empty squares, by random play."""
    rng = random.Random(seed)
    while number:
        rows, cols = rng.randint(1, 4), rng.randint(2, 4)
        k, gravity = rng.randint(2, max(rows, cols)), rng.choice(["true", "false"])
        game = genpolicy.load_game(f"connect:rows={rows},cols={cols},k={k},gravity={gravity}")
        state, empty = game.parse(), rows * cols
        target = rng.randint(1, max_empty)
        while empty > target and game.outcome(state) is None:
            state, empty = game.play(state, int(rng.choice(game.legal(state)))), empty - 1
        if game.outcome(state) is None and empty <= max_empty:
            number -= 1
            yield game, state


def anything(game: Game[Any], salt: str) -> Callable[[Any], float]:
    """A value for every position that no other position tells."""
    return lambda state: random.Random(f"{game.key(state)}|{salt}").uniform(-1, 1)


@pytest.mark.parametrize("number", [300, pytest.param(1000, marks=pytest.mark.thorough)])
def test_the_answer_is_that_of_exhaustive_minimax_on_small_boards(number: int) -> None:
    """Value, length of the win, and that the move attains both; with and without the table; to the end and cut.

    Every other board has random values at the leaves, so that a wrong bound cannot hide behind ties.
    """
    rng = random.Random(3)
    for place, (game, state) in enumerate(random_boards(number, 7, seed=1)):
        depth = rng.choice([None, 1, 2, 3, 4, 5])
        evaluate = game.hints.evaluate if place % 2 else anything(game, str(place))
        by_move = {
            move: -minimax(game, game.play(state, move), None if depth is None else depth - 1, evaluate, 1)
            for move in game.legal(state).tolist()
        }
        expected = max(by_move.values())
        for table in (True, False):
            found = AlphaBeta(game, depth=depth, table=table, evaluator=valued(evaluate)).search(state)
            where = (game.spec, game.format(state), depth, table, found, expected)
            assert as_reference(found.score) == expected, where
            assert by_move[found.move] == expected, where
            if depth is None:
                assert found.exact, where
                assert found.value == (expected > 0) - (expected < 0), where
        scores = AlphaBeta(game, depth=depth, evaluator=valued(evaluate)).move_scores(state)
        assert {move: as_reference(score) for move, score in scores.items()} == by_move


def test_a_comparator_that_orders_like_an_evaluator_gives_its_answer() -> None:
    """Draws are leaves to it, as undecided positions are."""

    for game, state in random_boards(300, 7, seed=2):

        def worth(position: Any, player: int, game: Game[Any] = game) -> float:
            value = game.hints.evaluate(position)
            return value if game.player(position) == player else -value

        depth = 3
        expected = minimax(game, state, depth, game.hints.evaluate)
        for table in (True, False):
            better = comparing(lambda a, b, player: worth(a, player) - worth(b, player))
            search = AlphaBeta(game, depth=depth, comparator=better, table=table)
            found = search.search(state)
            reached = -minimax(game, game.play(state, found.move), depth - 1, game.hints.evaluate, 1)
            assert reached == expected, (game.spec, game.format(state), table)
            if abs(expected) > 1:
                assert as_reference(found.score) == expected
                assert found.value == (1.0 if expected > 0 else -1.0)
            else:
                assert found.value is None
                assert found.text is None


def test_prior_and_killers_change_the_work_and_not_the_answer() -> None:
    for game, state in random_boards(60, 8, seed=5):
        plain = AlphaBeta(game, depth=4).search(state)

        def worst_first(position: Any, game: Game[Any] = game) -> dict[int, float]:
            return {m: game.hints.evaluate(game.play(position, m)) for m in game.legal(position).tolist()}

        steered = AlphaBeta(game, depth=4, prior=preferring(worst_first), prior_depth=1).search(state)
        assert steered.score == plain.score


def test_a_good_prior_saves_positions() -> None:
    game = genpolicy.load_game("connect:rows=4,cols=4,k=3,gravity=false")
    state = game.parse()

    def first_of(better: float) -> int:
        def prior(position: Any) -> dict[int, float]:
            return {m: -better * game.hints.evaluate(game.play(position, m)) for m in game.legal(position).tolist()}

        return AlphaBeta(game, depth=4, prior=preferring(prior), prior_depth=1).search(state).nodes

    assert first_of(1.0) < 0.5 * first_of(-1.0)


def test_the_table_saves_positions() -> None:
    game = genpolicy.load_game(CONNECT)
    counts = [AlphaBeta(game, table=table).search(game.parse()).nodes for table in (True, False)]
    assert counts[0] < 0.6 * counts[1], counts


def test_tic_tac_toe_is_a_draw_and_two_by_two_is_won() -> None:
    game = genpolicy.load_game(CONNECT)
    result = AlphaBeta(game).search(game.parse())
    assert (result.value, result.exact, result.text, len(result.line)) == (0.0, True, "value:0", 9)
    small = genpolicy.load_game("connect:rows=2,cols=2,k=2,gravity=false")
    result = AlphaBeta(small).search(small.parse())
    assert (result.value, result.text) == (1.0, "mate:2")  # X's second stone


def test_limits_are_kept() -> None:
    game = genpolicy.load_game("connect")
    for nodes in (1, 2, 7, 50, 1000):
        result = AlphaBeta(game, nodes=nodes).search(game.parse())
        assert result.nodes <= nodes
        assert result.move in game.legal(game.parse())
    assert AlphaBeta(game, nodes=1000).search(game.parse()) == result
    for depth in (1, 2, 3):
        assert AlphaBeta(game, depth=depth).search(game.parse()).depth == depth
    began = time.perf_counter()
    AlphaBeta(game, movetime_ms=150).search(game.parse())
    assert time.perf_counter() - began > 0.1  # and it ends at all


def test_a_search_depends_on_its_position_alone() -> None:
    game = genpolicy.load_game("connect:rows=4,cols=5,k=4,gravity=true")
    states = [game.parse()]
    for move in (2, 2, 3, 1, 0):
        states.append(game.play(states[-1], move))
    search = AlphaBeta(game, nodes=400)
    together = [search.search(state) for state in states]
    assert [AlphaBeta(game, nodes=400).search(state) for state in reversed(states)][::-1] == together


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"nodes": -3}, "nodes must be at least 1"),
        ({"movetime_ms": 0.0}, "movetime_ms must be"),
        ({"quiescence": -1}, "quiescence is 0 or more"),
        ({"evaluator": even, "comparator": comparing(lambda a, b, player: 0.0)}, "not both"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AlphaBeta(genpolicy.load_game(CONNECT), **options)


def test_a_finished_game_is_named() -> None:
    game = genpolicy.load_game(CONNECT)
    with pytest.raises(ValueError, match=r"the game is over in 'XXX/OO\./\.\.\. O'"):
        AlphaBeta(game).search(game.parse("XXX/OO./... O"))


def without_hints(game: Game[Any]) -> Game[Any]:
    made = copy.copy(game)
    made.hints = None
    return made


def test_without_an_evaluation_every_line_is_searched_to_its_end() -> None:
    for known, state in random_boards(60, 7, seed=8):
        game = without_hints(known)
        found = AlphaBeta(game).search(state)
        assert found.exact
        assert as_reference(found.score) == minimax(game, state, None, lambda _: 0.0)
        after = game.play(state, found.move)
        assert -minimax(game, after, None, lambda _: 0.0, 1) == as_reference(found.score)


def test_without_an_evaluation_a_thinker_searches_to_the_end() -> None:
    (game, state), *_ = random_boards(1, 7, seed=8)
    policy = AlphaBetaPolicy(without_hints(game))
    for limits in (Limits(), Limits(nodes=20_000), Limits(depth=7)):
        answers: list[Answer] = []
        policy.thinker().think(state, limits, answers.append)
        assert answers[-1].move == policy.decide([state])[0].move


@pytest.mark.parametrize("limit", [{"depth": 2}, {"nodes": 30}])
def test_without_an_evaluation_ends_out_of_reach_are_an_error(limit: dict[str, int]) -> None:
    game = without_hints(genpolicy.load_game(CONNECT))
    with pytest.raises(ValueError, match="no heuristic evaluation"):
        AlphaBeta(game, **limit).search(game.parse())
