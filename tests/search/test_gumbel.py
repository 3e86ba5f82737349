"""Gumbel search: recorded trees node by node, Sequential Halving, policy improvement, chance, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genpolicy
from genpolicy.control import FREE
from genpolicy.policies.thinking import Answer, Limits
from genpolicy.search.model import Choices, Nodes, SearchModel
from genpolicy_mcts.gumbel import considered_visits, root_noise
from genpolicy_mcts.mcts import Mcts, SearchResult
from genpolicy_mcts.policy import MctsPolicy, PolicyModel
from genpolicy_mcts.rules import RulesModel, even
from genpolicy_mcts.selection import MctsConfig
from genpolicy_mcts.tree import Tree
from tests.search.search_models import END, Drawn, check_tree
from tests.search.test_mcts_laws import Hashed

TREES = json.loads((Path(__file__).parent / "mctx_trees.json").read_text())


class Recorded(SearchModel):
    """A recorded tree as the model: its own priors, raw values and rewards; see the file's ``source``.

    What was not visited shares the rest of the prior, of which the recorded best has its own.
    """

    bounded = False

    def __init__(self, tree: dict[str, Any]) -> None:
        self.top, self.discount, self.num_actions = tree["root"], tree["discount"], tree["num_actions"]

    def root(self, states: Sequence[Any]) -> Nodes:
        return self._batch([self.top for _ in states], 1.0)

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        below = []
        for node, choice in zip(embeddings, choices, strict=True):
            found = [each for action, _, each in node[5] if action == choice]
            assert found, f"action {choice} was not visited in the recorded tree"
            below += found
        return self._batch(below, self.discount)

    def _batch(self, nodes: list[Any], discount: float) -> Nodes:
        count = len(nodes)
        return Nodes(
            nodes,
            [self._choices(node) for node in nodes],
            [node[2] for node in nodes],
            [node[3] for node in nodes],
            [discount] * count,
            [False] * count,
        )

    def _choices(self, node: Any) -> Choices:
        priors = np.full(self.num_actions, np.nan)
        for action, prior, _ in node[5]:
            priors[action] = prior
        free = np.flatnonzero(np.isnan(priors))
        if len(free):
            best = node[4] or 0.0
            priors[free[0]] = best
            if len(free) > 1:
                priors[free[1:]] = max(0.0, 1.0 - np.nansum(priors)) / (len(free) - 1)
        return Choices(np.arange(self.num_actions), priors)


def compare(tree: Tree, node: int, recorded: Any) -> int:
    """Visits and values of a node and all below it; answers how many nodes were compared."""
    visits, value, _, _, _, below = recorded
    assert tree.visits[node] == visits
    assert tree.value_sums[node] / tree.visits[node] == pytest.approx(value, abs=1e-3)
    children = {tree.actions[child]: child for child in tree.children[node] or ()}
    assert set(children) == {action for action, _, _ in below}
    return 1 + sum(compare(tree, children[action], each) for action, _, each in below)


@pytest.mark.parametrize(
    ("name", "nodes", "config"),
    [
        (
            "gumbel_muzero_tree",
            201,
            MctsConfig(
                simulations=200, root="gumbel", gumbel_scale=0, num_considered=16, value_scale=0.5, rescale=False
            ),
        ),
        (
            "gumbel_muzero_reward_tree",
            51,
            MctsConfig(
                simulations=50, root="gumbel", gumbel_scale=0, num_considered=8, maxvisit_init=20, rescale=False
            ),
        ),
        ("muzero_qtransform_tree", 51, MctsConfig(simulations=50, leaves=1, normalise="siblings")),
    ],
)
def test_recorded_trees_are_reproduced_node_by_node(name: str, nodes: int, config: MctsConfig) -> None:
    result = Mcts(Recorded(TREES[name]), config).search(["root"])[0]
    assert compare(result.tree, 0, TREES[name]["root"]) == nodes
    check_tree(result.tree)


@pytest.mark.parametrize(
    ("num_considered", "simulations", "expected"),
    [
        (1, 4, [0, 1, 2, 3]),
        (2, 17, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8]),
        (4, 17, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]),
        (16, 5, [0, 0, 0, 0, 0]),
    ],
)
def test_sequential_halving_visits(num_considered: int, simulations: int, expected: list[int]) -> None:
    assert list(considered_visits(num_considered, simulations)) == expected


class Bandit(SearchModel):
    """One choice, whose worth is known exactly."""

    def __init__(self, priors: list[float], worths: list[float]) -> None:
        self.priors, self.worths = np.array(priors), worths

    def root(self, states: Sequence[Any]) -> Nodes:
        value = float(self.priors @ np.array(self.worths))
        choices = Choices(np.arange(len(self.worths)), self.priors)
        count = len(states)
        return Nodes(list(states), [choices] * count, [value] * count, [0.0] * count, [1.0] * count, [False] * count)

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        rewards, count = [self.worths[choice] for choice in choices], len(choices)
        none = Choices(np.empty(0, np.int64), None)
        return Nodes([None] * count, [none] * count, [0.0] * count, rewards, [0.0] * count, [False] * count)


def test_search_improves_on_the_prior_in_every_bandit() -> None:
    # argmax(log prior + noise) is a draw from the prior. For the very same noise the search's choice is worth no less:
    # who overtakes that draw in Sequential Halving does so by a greater worth. So the mean over the noise is no less.
    random = np.random.default_rng(5)
    drawn, chosen, by_prior = [], [], []
    for seed in range(1000):
        number = int(random.integers(2, 12))
        priors, worths = random.dirichlet(np.full(number, 0.5)), random.uniform(-1, 1, number)
        config = MctsConfig(
            simulations=int(random.integers(1, 40)),
            root="gumbel",
            num_considered=int(random.integers(2, 17)),
            rescale=bool(seed % 2),
        )
        (result,) = Mcts(Bandit(priors.tolist(), worths.tolist()), config).search([None], [seed])
        noise = root_noise(range(number), 1.0, seed)
        first = max(range(number), key=lambda move: math.log(priors[move]) + noise[move])
        assert worths[result.choice] >= worths[first]
        improved = np.array([result.improved[move] for move in range(number)])
        assert improved.sum() == pytest.approx(1)
        if all(result.visits.values()):  # else the mixed value stands in for a worth
            assert improved @ worths >= priors @ worths - 1e-12
        drawn.append(worths[first])
        chosen.append(worths[result.choice])
        by_prior.append(float(priors @ worths))
    # The draws' mean is the prior's, within three standard errors; the search's lies clearly above.
    error = np.std(np.array(drawn) - by_prior) / math.sqrt(1000)
    assert abs(np.mean(drawn) - np.mean(by_prior)) < 3 * error
    assert np.mean(chosen) > np.mean(by_prior) + 0.2


def plain_improved(result: SearchResult, priors: np.ndarray[Any, Any], value: float) -> np.ndarray[Any, Any]:
    """The improved policy written out, with its default constants."""
    visits = np.array([result.visits[move] for move in range(len(priors))])
    q = np.array([result.q.get(move, 0.0) for move in range(len(priors))])
    tried = visits > 0
    mixed = (value + visits.sum() * (priors * q)[tried].sum() / priors[tried].sum()) / (1 + visits.sum())
    q = np.where(tried, q, mixed)
    q = (q - q.min()) / (q.max() - q.min())
    weights = priors * np.exp((50 + visits.max()) * 0.1 * q)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("root", ["puct", "gumbel"])
def test_improved_policy_by_the_formula(root: Any) -> None:
    priors, worths = np.array([0.5, 0.1, 0.3, 0.06, 0.04]), [-0.2, 0.3, 0.1, 0.9, -1.0]
    config = MctsConfig(simulations=7, root=root, num_considered=3, leaves=1)
    (result,) = Mcts(Bandit(priors.tolist(), worths), config).search([None], [3])
    assert 0 in result.visits.values()  # a choice that was not visited has the mixed value
    expected = plain_improved(result, priors, float(priors @ worths))
    np.testing.assert_allclose([result.improved[move] for move in range(5)], expected, rtol=1e-12)


def test_a_choice_without_prior_and_a_single_choice() -> None:
    (result,) = Mcts(Bandit([1.0, 0.0], [0.1, 0.9]), MctsConfig(simulations=6, root="gumbel")).search([None], [0])
    assert sum(result.visits.values()) == 6
    assert all(math.isfinite(share) for share in result.improved.values())
    (single,) = Mcts(Bandit([1.0], [0.1]), MctsConfig(simulations=6, root="gumbel")).search([None], [0])
    assert (single.visits, single.improved) == ({0: 6}, {0: 1.0})


def test_trees_do_not_depend_on_their_batch_and_noise_depends_on_the_seed() -> None:
    game = genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false")
    states = [game.parse(), game.play(game.parse(), 4), game.play(game.parse(), 0)]
    search = Mcts(RulesModel(game, even), MctsConfig(simulations=32, root="gumbel", num_considered=4))
    together = search.search(states, [1, 2, 3])
    for state, seed, result in zip(states, [1, 2, 3], together, strict=True):
        (alone,) = search.search([state], [seed])
        assert (alone.visits, alone.choice, alone.improved) == (result.visits, result.choice, result.improved)
        check_tree(result.tree)
    assert len({search.search([states[0]], [seed])[0].choice for seed in range(20)}) > 3
    with pytest.raises(ValueError, match="needs one seed"):
        search.search(states)


def gamble(config: MctsConfig) -> dict[str, int]:
    """Visits of the outcomes of one draw by chance: two of three cost, one pays."""
    model = Drawn(
        {
            "root": (0.0, 0.0, 1.0, False, {0: (1.0, "draw")}),
            "draw": (0.0, 0.0, 1.0, True, {7: (1 / 3, "pays"), 8: (1 / 3, "costs"), 9: (1 / 3, "costs, too")}),
            "pays": (0.0, 1.0, 0.0, False, END),
            "costs": (0.0, -1.0, 0.0, False, END),
            "costs, too": (0.0, -0.9, 0.0, False, END),
        }
    )
    tree = Mcts(model, config).search(["root"], [0])[0].tree
    (draw,) = tree.children[0] or []
    return {tree.embeddings[child]: tree.visits[child] for child in tree.children[draw] or ()}


@pytest.mark.parametrize("options", [{}, {"leaves": 1}, {"root": "gumbel"}, {"normalise": "siblings"}])
def test_chance_may_be_for_or_against_who_moved(options: dict[str, Any]) -> None:
    neutral = gamble(MctsConfig(simulations=301, **options))
    assert neutral == {"pays": 100, "costs": 100, "costs, too": 100}
    against = gamble(MctsConfig(simulations=301, chance="adversarial", **options))
    assert against["pays"] < 30 < against["costs, too"] < against["costs"]
    favour = gamble(MctsConfig(simulations=301, chance="cooperative", **options))
    assert favour["pays"] > 240


class SecondIsChance(RulesModel):
    """A game in which the second player's moves are nature's, and all values are the first player's."""

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        nodes = super().expand(embeddings, choices)
        chose = [1.0 if self.game.player(state) == 0 else -1.0 for state in embeddings]
        moves = [1.0 if self.game.player(state) == 0 else -1.0 for state in nodes.embeddings]
        return replace(
            nodes,
            values=[sign * value for sign, value in zip(moves, nodes.values, strict=True)],
            rewards=[sign * reward for sign, reward in zip(chose, nodes.rewards, strict=True)],
            discounts=[abs(discount) for discount in nodes.discounts],
            chance=[sign < 0 for sign in moves],
        )


@pytest.mark.parametrize("leaves", [1, 16])
@pytest.mark.parametrize("normalise", ["none", "siblings"])
def test_adversarial_chance_is_the_opponent(leaves: int, normalise: Any) -> None:
    game = genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false")
    config = MctsConfig(simulations=400, leaves=leaves, normalise=normalise)
    (two,) = Mcts(RulesModel(game, Hashed(game)), config).search([game.parse()])
    adversarial = replace(config, chance="adversarial")
    (one,) = Mcts(SecondIsChance(game, Hashed(game)), adversarial).search([game.parse()])
    assert (one.tree.visits, one.tree.actions) == (two.tree.visits, two.tree.actions)
    check_tree(one.tree)


def test_a_spelling_takes_gumbel_and_its_policy_is_the_improved_one() -> None:
    policy = genpolicy.load_policy("mcts:uniform?root=gumbel&simulations=16", game="connect")
    assert isinstance(policy, MctsPolicy)
    state = policy.game.parse()
    decision = policy.decide([state])[0]
    assert decision.policy is not None
    assert sum(decision.policy.values()) == pytest.approx(1)
    (seed,) = MctsPolicy(policy.game, policy.model, policy.config).seeds.draw([policy.game.format(state)])
    (result,) = Mcts(policy.model, policy.config).search([state], [seed])
    assert (decision.move, decision.policy) == (result.choice, result.improved)
    drawing = policy.with_options(temperature=3.0)
    assert {drawing.decide([state])[0].move for _ in range(30)} <= set(range(7))
    assert policy.with_options(root="puct").config.num_leaves == 8


class Endless(Limits):
    """To continue until somebody stops it."""

    @property
    def is_endless(self) -> bool:
        return True


def test_a_search_in_parts_is_the_search_in_one() -> None:
    game = genpolicy.load_game("connect")
    policy = MctsPolicy(game, PolicyModel(game, None, even), MctsConfig(simulations=100, root="gumbel"), seed=4)
    answers: list[Answer] = []
    thinker = policy.thinker()
    thinker.think(game.parse(), Limits(), answers.append, control=FREE)
    decision = policy.decide([game.parse()])[0]
    assert (answers[-1].move, answers[-1].variations[0].line) == (decision.move, decision.line)
    assert len(answers) > 1
    # Limits do not add to simulations that were divided beforehand.
    thinker.think(game.parse(), Endless(), answers.append, control=FREE)
    assert answers[-1].nodes <= 101


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leaves": 4}, r"leaves=4 with root=gumbel.*batch over games"),
        ({"noise_fraction": 0.25}, r"noise_fraction=0.25 with root=gumbel.*gumbel_scale"),
        ({"reuse": True}, r"reuse=true with root=gumbel"),
        ({"num_considered": 0}, r"num_considered must be at least 1"),
        ({"chance": "kind"}, r"chance must be one of neutral, adversarial, cooperative"),
    ],
)
def test_what_does_not_go_with_gumbel_is_an_error(options: dict[str, Any], message: str) -> None:
    policy = genpolicy.load_policy("mcts:uniform?root=gumbel", game="connect")
    with pytest.raises(ValueError, match=message):
        policy.with_options(**options)


def test_a_kept_tree_is_refused() -> None:
    game = genpolicy.load_game("connect")
    model = RulesModel(game, even)
    (result,) = Mcts(model, MctsConfig(simulations=30)).search([game.parse()])
    tree = result.tree.subtree((result.tree.children[0] or [])[0])
    search = Mcts(model, MctsConfig(simulations=30, root="gumbel"))
    with pytest.raises(ValueError, match="kept from another search"):
        search.search([game.play(game.parse(), result.choice)], [0], [tree])
