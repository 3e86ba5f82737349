"""Models that are not games: the same player twice, chance, and embeddings of any kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import genpolicy
from genpolicy import registry
from genpolicy.control import FREE, Control
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy
from genpolicy.policies.thinking import Answer, Limits
from genpolicy.search.model import Choices, Nodes, SearchModel
from genpolicy.testing import check_search_model
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.selection import MctsConfig
from tests.search.search_models import END, Drawn, check_tree

# Models that are not games: the same player twice, and chance.


@pytest.mark.parametrize("leaves", [1, 4])
def test_the_same_player_may_move_twice(leaves: int) -> None:
    # After "twice" the root's player chooses again, and may win; after "once" the other side chooses, and would win.
    model = Drawn(
        {
            "root": (0.0, 0.0, 1.0, False, {0: (0.5, "twice"), 1: (0.5, "once")}),
            "twice": (0.0, 0.0, 1.0, False, {0: (0.5, "won"), 1: (0.5, "lost")}),
            "once": (0.0, 0.0, -1.0, False, {0: (0.5, "won"), 1: (0.5, "lost")}),
            "won": (0.0, 1.0, 0.0, False, END),  # for the player who chose it
            "lost": (0.0, -1.0, 0.0, False, END),
        }
    )
    check_search_model(model, ["root"])
    result = Mcts(model, MctsConfig(simulations=400, leaves=leaves)).search(["root"])[0]
    assert result.choice == 0
    assert result.line == (0, 0)
    assert result.q[0] > 0.9
    assert result.q[1] < -0.5
    check_tree(result.tree)


class Arms(SearchModel):
    """Five arms, pulled again and again: the one number decides, so that an embedding has nothing to tell.

    Pulling the last arm ends the game. ``asked`` counts the rows of ``expand``.
    """

    def __init__(self, embedding: Any) -> None:
        self.embedding, self.asked = embedding, 0

    def root(self, states: Sequence[Any]) -> Nodes:
        return self._batch([-1] * len(states), [1.0] * len(states))

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        assert all(embedding is self.embedding for embedding in embeddings)
        self.asked += len(choices)
        return self._batch(choices, [0.0 if choice == 4 else -1.0 for choice in choices])

    def _batch(self, arms: Sequence[int], discounts: list[float]) -> Nodes:
        count = len(arms)
        rewards = [0.0 if arm < 0 else (0.1, 0.4, -0.2, 0.0, 0.3)[arm] for arm in arms]
        choices = [Choices(np.arange(5), None)] * count
        return Nodes([self.embedding] * count, choices, [0.0] * count, rewards, discounts, [False] * count)


class Unlike:
    """An embedding that cannot be asked whether it is true, nor what it equals."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError("embeddings are opaque")

    def __bool__(self) -> bool:
        raise TypeError("embeddings are opaque")


EMBEDDINGS = ["None", "array", "empty array", "incomparable", "nan", "0"]


@pytest.mark.parametrize("embedding", [None, np.arange(3), np.zeros(0), Unlike(), math.nan, 0], ids=EMBEDDINGS)
@pytest.mark.parametrize("leaves", [1, 8])
def test_a_search_asks_nothing_of_an_embedding(embedding: Any, leaves: int) -> None:
    """Whatever it is, None too: the search is that over plain strings, and no node is asked for twice."""
    config = MctsConfig(simulations=60, leaves=leaves)
    models = Arms("plain"), Arms(embedding)
    check_search_model(models[1], [0])
    for model in models:
        model.asked = 0
    plain, opaque = (Mcts(model, config).search([0, 1])[1] for model in models)
    for name in ("visits", "q", "choice", "value", "line", "simulations", "evaluations", "depth"):
        assert getattr(opaque, name) == getattr(plain, name), name
    check_tree(opaque.tree)
    assert models[1].asked == models[0].asked == 2 * (len(opaque.tree) - 1)
    assert opaque.visits[4] > 1  # the end of the game was visited again, and not asked for again
    # A subtree is taken over, and searched on; the end of the game has none.
    below = {opaque.tree.actions[node]: opaque.tree.subtree(node) for node in opaque.tree.children[0] or ()}
    kept = below[1]
    assert below[4] is None
    assert kept is not None
    again = Mcts(models[1], config).search([0], kept=[kept])[0]
    assert sum(again.visits.values()) == opaque.visits[1] - 1 + 60
    check_tree(again.tree)


def test_rewards_on_the_way_count() -> None:
    # 0.75 now and then a loss of 1 for what follows; or nothing now and nothing after.
    model = Drawn(
        {
            "root": (0.0, 0.0, 1.0, False, {0: (0.5, "greedy"), 1: (0.5, "calm")}),
            "greedy": (0.0, 0.75, -1.0, False, {0: (1.0, "taken back")}),
            "taken back": (0.0, 1.0, 0.0, False, END),
            "calm": (0.0, 0.0, -1.0, False, {0: (1.0, "even")}),
            "even": (0.0, 0.0, 0.0, False, END),
        }
    )
    result = Mcts(model, MctsConfig(simulations=200, leaves=1)).search(["root"])[0]
    assert result.choice == 1
    # 0.75 - (n - 1) / n after n visits, the first of which met the value 0.
    visits = result.visits[0]
    assert result.q[0] == pytest.approx(0.75 - (visits - 1) / visits)


@pytest.mark.parametrize(("share", "best"), [(0.25, 0), (0.6, 1)])
@pytest.mark.parametrize("leaves", [1, 8])
def test_chance_is_drawn_by_its_probabilities(share: float, best: int, leaves: int) -> None:
    # A safe 0.2, or a gamble that pays 1 with probability ``share`` and -0.4 else: -0.05 or 0.44.
    model = Drawn(
        {
            "root": (0.0, 0.0, 1.0, False, {0: (0.5, "safe"), 1: (0.5, "gamble")}),
            "safe": (0.0, 0.2, 0.0, False, END),
            "gamble": (0.0, 0.0, 1.0, True, {7: (share, "pays"), 8: (1.0 - share, "costs"), 9: (0.0, "never")}),
            "pays": (0.0, 1.0, 0.0, False, END),
            "costs": (0.0, -0.4, 0.0, False, END),
            "never": (0.0, 1.0, 0.0, False, END),
        }
    )
    check_search_model(model, ["root"])
    result = Mcts(model, MctsConfig(simulations=600, leaves=leaves, c_puct=3.0)).search(["root"])[0]
    tree = result.tree
    gamble = next(node for node in range(len(tree)) if tree.embeddings[node] == "gamble")
    outcomes = {tree.embeddings[child]: tree.visits[child] for child in tree.children[gamble] or ()}
    drawn = sum(outcomes.values())
    assert drawn > 20
    assert set(outcomes) == {"pays", "costs"}
    assert abs(outcomes["pays"] - share * drawn) <= 1
    assert result.q[1] == pytest.approx(share - 0.4 * (1 - share), abs=2 / drawn)
    assert result.choice == best
    assert result.line == ((0,) if best == 0 else (1,))  # an outcome of chance is not a move of the line


class Die(SearchModel):
    """One move, a die, and then many moves of one player, again and again."""

    def __init__(self, shares: np.ndarray) -> None:
        self.shares = shares

    def root(self, states: Sequence[Any]) -> Nodes:
        return self._nodes([() for _ in states])

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        return self._nodes([(*line, choice) for line, choice in zip(embeddings, choices, strict=True)])

    def _nodes(self, lines: list[tuple[int, ...]]) -> Nodes:
        thrown, num = [len(line) == 1 for line in lines], len(lines)
        choices = [
            Choices(np.arange(len(self.shares)), self.shares) if die else Choices(np.arange(30 if line else 1), None)
            for die, line in zip(thrown, lines, strict=True)
        ]
        return Nodes(lines, choices, [0.0] * num, [0.0] * num, [1.0] * num, thrown)


@pytest.mark.parametrize("virtual_loss", [1e-6, 0.25, 1.0, 10.0, 1e6])
def test_leaves_in_flight_do_not_load_the_dice(virtual_loss: float) -> None:
    draw = np.random.default_rng(0)
    for simulations in range(2, 120, 7):
        shares = draw.dirichlet(np.full(6, 0.5))
        config = MctsConfig(simulations=simulations, leaves=8, virtual_loss=virtual_loss)
        tree = Mcts(Die(shares), config).search(["root"])[0].tree
        (die,) = tree.children[0] or ()
        visits = np.zeros(6)
        for child in tree.children[die] or ():
            visits[tree.actions[child]] = tree.visits[child]
        assert np.abs(visits - visits.sum() * shares).max() < 1


class Hidden(SearchModel):
    """A learned model's shape: embeddings are arrays, values of any size, and the rules are known at the root alone."""

    bounded = False

    def __init__(self, game: Game[Any]) -> None:
        self.game = game

    def root(self, states: Sequence[Any]) -> Nodes:
        self.network_calls += 1
        hidden = [np.zeros(9) for _ in states]
        return self._nodes(hidden, [Choices(self.game.legal(state), None) for state in states], 1.0)

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        self.network_calls += 1
        hidden = [-embedding + np.eye(9)[choice] for embedding, choice in zip(embeddings, choices, strict=True)]
        return self._nodes(hidden, [Choices(np.arange(9), None)] * len(hidden), -1.0)

    def _nodes(self, hidden: list[Any], choices: list[Choices], discount: float) -> Nodes:
        values = [float(-5 * each @ np.arange(9)) for each in hidden]
        same = [0.0] * len(hidden), [discount] * len(hidden), [False] * len(hidden)
        return Nodes(hidden, choices, values, *same)


class Imagining(Policy):
    """A policy that a tree search reads through its own model, and never asks for a decision."""

    kind = "imagining"

    def __init__(self, game: Game[Any]) -> None:
        self.game = game

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        raise AssertionError("the search decides by the policy's model")

    def search_model(self) -> SearchModel:
        return Hidden(self.game)

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> Policy:
        return cls(options["game"])


@pytest.mark.parametrize("part", [1, 8, 30, 60])
def test_a_search_over_a_policy_expands_the_policys_own_model(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A thinker measures how many simulations a part has; without a clock that changes no batch.
    monkeypatch.setattr("genpolicy_mcts.thinking.TreeThinker._part", lambda *_: part)
    game = genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false")
    registry.register("policies", "imagining")(Imagining)
    try:
        policy = genpolicy.load_policy("mcts:imagining?simulations=60&leaves=4", game=game)
    finally:
        registry.unregister("policies", "imagining")
    state = game.play(game.parse(), 8)
    decision = policy.decide([state])[0]
    assert decision.move == 7  # the legal choice that its model likes best
    assert decision.line
    assert decision.states == ()  # no position stands for a hidden vector
    assert decision.value is None  # it is not a number in [-1, 1]
    assert 1 < decision.stats["network_calls"] <= 61
    answers: list[Answer] = []
    thinker = policy.thinker()
    assert thinker is not None
    thinker.think(state, Limits(), answers.append)
    assert (answers[-1].move, answers[-1].nodes) == (7, decision.stats["network_calls"])
    with pytest.raises(ValueError, match=r"reuse.*positions"):
        policy.with_options(reuse=True).decide([state])
