"""Alpha-beta cut by nodes: the answer is the last finished iteration's, or one that the cut iteration found better."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genpolicy.game import Game, Hints
from genpolicy_alphabeta.scores import Leaf, decided
from genpolicy_alphabeta.search import AlphaBeta
from tests.search.search_models import comparing, preferring

State = tuple[int, int]
NUM_NODES = 7


class WalkHints(Hints[State]):
    def __init__(self, game: Walk, shares: bool) -> None:
        self.game = game
        self.gives = ("evaluate", "transposition_key") if shares else ("evaluate",)

    def evaluate(self, state: State) -> float:
        return self.game.worth[state]

    def transposition_key(self, state: State, plies: int) -> State:
        return state


class Walk(Game[State]):
    """Both players in turn lead one token along the arrows of a random graph, so that positions come back all the time.

    A node without arrows is lost for the player to move. State: node and player.
    """

    name = spec = "walk"

    def __init__(self, seed: int, shares: bool) -> None:
        draw = random.Random(seed)
        self.arrows = [draw.sample(range(NUM_NODES), draw.choice([2, 2, 3, 4])) for _ in range(NUM_NODES)]
        if seed % 3 == 0:
            self.arrows[-1] = []
        self.worth = {(node, player): draw.uniform(-1, 1) for node in range(NUM_NODES) for player in (0, 1)}
        self.hints = WalkHints(self, shares)

    def parse(self, text: str | None = None) -> State:
        return 0, 0

    def format(self, state: State) -> str:
        return str(state)

    def legal(self, state: State) -> NDArray[np.int64]:
        return np.array(sorted(self.arrows[state[0]]), np.int64)

    def play(self, state: State, move_id: int) -> State:
        return move_id, 1 - state[1]

    def player(self, state: State) -> int:
        return state[1]

    def outcome(self, state: State) -> float | None:
        return None if self.arrows[state[0]] else -1.0

    def key(self, state: State) -> str:
        return str(state)


def minimax(game: Walk, state: State, depth: int, ply: int, known: dict[tuple[State, int], float]) -> float:
    """The slow and obvious computation, with ``known`` for one depth at the root."""
    if game.outcome(state) is not None:
        return decided(False, ply)
    if depth == 0:
        return game.hints.evaluate(state)
    if (state, depth) not in known:
        known[state, depth] = max(
            -minimax(game, game.play(state, move), depth - 1, ply + 1, known) for move in game.legal(state).tolist()
        )
    return known[state, depth]


def by_move(game: Walk, depth: int) -> dict[int, float]:
    root, known = game.parse(), dict[tuple[State, int], float]()
    return {m: -minimax(game, game.play(root, m), depth - 1, 1, known) for m in game.legal(root).tolist()}


def worth(game: Walk, state: State, player: int) -> float:
    return game.hints.evaluate(state) if game.player(state) == player else -game.hints.evaluate(state)


def as_number(game: Walk, score: Any) -> float:
    return worth(game, score.state, score.player) if isinstance(score, Leaf) else float(score)


@pytest.mark.parametrize("shares", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["table", "no table"])
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["evaluator", "prior", "comparator"])
@pytest.mark.parametrize(("number", "least"), [(16, 2), pytest.param(40, 10, marks=pytest.mark.thorough)])
def test_a_cut_answer_is_the_last_finished_or_a_better_one(number: int, least: int, kind: str, shares: bool) -> None:
    """At every limit: ``found.depth`` was finished, one ply more was begun.

    The move is that of a search to ``found.depth``, or beats it in an exhaustive search one ply deeper; the score is
    the move's own of one of the two. Values are random, so that each iteration likes another move.
    """
    better = 0
    for seed in range(number):
        game = Walk(seed, shares)
        options: dict[str, Any] = {}
        if kind == "prior":
            options = {"prior": preferring(lambda state: {state[0]: 1.0}), "prior_depth": 1}
        elif kind == "comparator":

            def difference(first: State, second: State, player: int, game: Walk = game) -> float:
                return worth(game, first, player) - worth(game, second, player)

            options = {"comparator": comparing(difference)}
        finished: dict[int, Any] = {}
        scores: dict[int, dict[int, float]] = {}
        for nodes in range(seed % 4 + 1, 240, 4):
            found = AlphaBeta(game, nodes=nodes, **options).search(game.parse())
            depth = found.depth
            if depth == 0 or found.exact:
                continue
            for plies in (depth, depth + 1):
                if plies not in scores:
                    scores[plies] = by_move(game, plies)
            if depth not in finished:
                finished[depth] = AlphaBeta(game, depth=depth, **options).search(game.parse())
            last, deeper = finished[depth], scores[depth + 1]
            where = (seed, nodes, found, last, scores[depth], deeper)
            score = as_number(game, found.score)
            assert found.line[0] == found.move, where
            if found.move == last.move:
                assert score in (scores[depth][found.move], deeper[found.move]), where
            else:
                better += 1
                assert deeper[found.move] > deeper[last.move], where
                assert score == deeper[found.move], where
    assert better >= least  # cut iterations did find something
