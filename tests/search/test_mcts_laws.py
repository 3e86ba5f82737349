"""The search's arithmetic: a plain second computation, signs, chance, batches, noise, bad answers of an evaluator."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import genpolicy
from genpolicy.game import Game
from genpolicy.search.model import Prior
from genpolicy.testing import check_search_model
from genpolicy_mcts.evaluators import Heuristic, Rollout
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.rules import RulesModel, even
from genpolicy_mcts.selection import MctsConfig
from genpolicy_mcts.tree import Tree
from tests.search.search_models import END, Drawn, check_tree

TIC_TAC_TOE = "connect:rows=3,cols=3,k=3,gravity=false"
GAMES = [TIC_TAC_TOE, "connect:rows=4,cols=5,k=3,gravity=true", "chess"]


class Hashed:
    """Priors and values that look random and depend on the position alone; remembers how many it was asked at once.

    Uniform: no prior. Flat: no prior and the value 0, so that nearly all choices tie.
    """

    def __init__(self, game: Game[Any], kind: str = "random") -> None:
        self.game, self.uniform, self.flat = game, kind != "random", kind == "flat"
        self.batches: list[int] = []

    def __call__(self, states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        self.batches.append(len(states))
        answers = [self.one(state) for state in states]
        return [None if self.uniform else prior for prior, _ in answers], [value for _, value in answers]

    def one(self, state: Any) -> tuple[Prior, float]:
        digest = hashlib.sha256(self.game.format(state).encode()).digest()
        draw = random.Random(digest)
        weights = np.array([draw.random() ** 2 for _ in self.game.legal(state)])
        return weights / weights.sum(), 0.0 if self.flat else draw.uniform(-1, 1)


# A plain search to compare with: objects, every legal move looked at, nothing lazy.


@dataclass
class Plain:
    """One node of the plain search; ``total`` is for the player to move there."""

    state: Any
    prior: dict[int, float] = field(default_factory=dict)
    own: float = 0.0
    visits: int = 0
    total: float = 0.0
    children: dict[int, Plain] = field(default_factory=dict)


def plain_search(game: Game[Any], evaluator: Hashed, config: MctsConfig, state: Any) -> Plain:
    root = Plain(state)
    expand(game, evaluator, root)
    for _ in range(config.simulations):
        simulate(game, evaluator, config, root)
    return root


def expand(game: Game[Any], evaluator: Hashed, node: Plain) -> float:
    prior, node.own = evaluator.one(node.state)
    legal = game.legal(node.state).tolist()
    assert isinstance(prior, np.ndarray)
    prior = np.full(len(legal), 1 / len(legal)) if evaluator.uniform else prior / prior.sum()
    node.prior = dict(zip(legal, prior.tolist(), strict=True))
    node.visits, node.total = 1, node.own
    return node.own


def simulate(game: Game[Any], evaluator: Hashed, config: MctsConfig, node: Plain, is_root: bool = True) -> float:
    result = game.outcome(node.state)
    if result is not None and not is_root:
        node.visits += 1
        node.total += result
        return result
    if not node.prior:
        return expand(game, evaluator, node)
    # Ties go to the higher prior, then to the lower id; max takes the first of equals.
    move = max(sorted(node.prior, key=lambda m: (-node.prior[m], m)), key=lambda m: score(node, m, config))
    if move not in node.children:
        node.children[move] = Plain(game.play(node.state, move))
    value = -simulate(game, evaluator, config, node.children[move], is_root=False)
    node.visits += 1
    node.total += value
    return value


def score(node: Plain, move: int, config: MctsConfig) -> float:
    child = node.children.get(move)
    constant = config.c_puct
    if constant is None:
        constant = math.log((1 + node.visits + config.c_base) / config.c_base) + config.c_init
    visits = child.visits if child else 0
    if child:
        q = -child.total / child.visits
    elif config.first_play == "mean":
        q = node.total / node.visits - config.first_play_reduction
    elif config.first_play == "value":
        q = node.own - config.first_play_reduction
    else:
        q = config.first_play_value
    return q + constant * math.sqrt(node.visits) * node.prior[move] / (1 + visits)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"c_puct": 0.1},
        {"c_puct": 3.0, "first_play": "value", "first_play_reduction": 0.25},
        {"c_base": 20.0, "c_init": 0.5, "first_play": "constant", "first_play_value": -1.0},
        {"first_play_reduction": 0.2},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["random", "uniform", "flat"])
@pytest.mark.parametrize("spec", GAMES)
def test_a_sequential_search_counts_as_a_plain_one(spec: str, kind: str, options: dict[str, Any]) -> None:
    game = genpolicy.load_game(spec)
    evaluator = Hashed(game, kind)
    config = MctsConfig(simulations=150, leaves=1, **options)
    state = game.parse()
    for _ in range(3):
        plain = plain_search(game, evaluator, config, state)
        result = Mcts(RulesModel(game, evaluator), config).search([state])[0]
        expected = {m: plain.children[m].visits if m in plain.children else 0 for m in plain.prior}
        assert result.visits == expected
        assert result.value == pytest.approx(plain.total / plain.visits, abs=1e-12)
        for move, child in plain.children.items():
            assert result.q[move] == pytest.approx(-child.total / child.visits, abs=1e-12)
        state = game.play(state, result.choice)


@pytest.mark.parametrize("virtual_loss", [1.0, 0.3, 3.0])
@pytest.mark.parametrize("spec", GAMES)
def test_batched_leaves_keep_the_books(spec: str, virtual_loss: float) -> None:
    game = genpolicy.load_game(spec)
    evaluator = Hashed(game)
    config = MctsConfig(simulations=301, leaves=16, virtual_loss=virtual_loss)
    result = Mcts(RulesModel(game, evaluator), config).search([game.parse()])[0]
    if virtual_loss != 0.3:  # 0.3 is not a binary fraction: what is put on and taken off again leaves a rounding error
        check_tree(result.tree)
    assert sum(result.visits.values()) == result.simulations == 301
    assert max(evaluator.batches) <= 16
    assert len(evaluator.batches) < 301 / 4  # leaves did wait for each other
    assert result.evaluations == sum(evaluator.batches)


def test_a_game_does_not_depend_on_those_it_is_searched_with() -> None:
    game = genpolicy.load_game("connect:rows=4,cols=5,k=3,gravity=true")
    states = [game.parse()]
    for move in (2, 2, 1):
        states.append(game.play(states[-1], move))
    evaluator = Hashed(game)
    search = Mcts(RulesModel(game, evaluator), MctsConfig(simulations=120, leaves=8, noise_fraction=0.25))
    together = search.search(states, seeds=[1, 2, 3, 4])
    num_calls = len(evaluator.batches)
    assert max(evaluator.batches) > 8  # leaves of several games in one call
    evaluator.batches.clear()
    alone = [search.search([state], seeds=[seed])[0] for state, seed in zip(states, [1, 2, 3, 4], strict=True)]
    assert [r.visits for r in alone] == [r.visits for r in together]
    assert [r.line for r in alone] == [r.line for r in together]
    assert num_calls < len(evaluator.batches) / 2


def test_values_change_sign_from_ply_to_ply() -> None:
    """Every position is worth 0.5 to White: with both colours to move the root says so, each from its own side."""
    game = genpolicy.load_game("chess")

    def for_white(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        return [None] * len(states), [0.5 if game.player(state) == 0 else -0.5 for state in states]

    black_to_move = game.play(game.parse(), game.moves.index("e2e4"))
    for state, expected in ((game.parse(), 0.5), (black_to_move, -0.5)):
        result = Mcts(RulesModel(game, for_white), MctsConfig(simulations=100)).search([state])[0]
        assert result.value == pytest.approx(expected)
        assert all(q == pytest.approx(expected) for q in result.q.values())


# The root.


def test_noise_is_mixed_into_the_prior_and_follows_the_seed() -> None:
    game = genpolicy.load_game(TIC_TAC_TOE)
    model = RulesModel(game, Hashed(game))
    config = MctsConfig(simulations=50, noise_fraction=0.25, dirichlet_alpha=0.5)
    first, again, other = (Mcts(model, config).search([game.parse()], seeds=[seed])[0] for seed in (3, 3, 4))
    assert first.visits == again.visits
    assert first.line == again.line
    assert first.visits != other.visits
    priors = dict(zip(first.tree.ids[0].tolist(), first.tree.priors[0].tolist(), strict=True))  # type: ignore[union-attr]
    clean, _ = Hashed(game).one(game.parse())
    noise = np.random.default_rng(3).dirichlet(np.full(9, 0.5))
    np.testing.assert_allclose([priors[m] for m in range(9)], 0.75 * np.asarray(clean) + 0.25 * noise, rtol=1e-12)
    with pytest.raises(ValueError, match="one seed for each"):
        Mcts(model, config).search([game.parse()])


def test_noise_over_a_kept_tree_leaves_its_visits() -> None:
    game = genpolicy.load_game(TIC_TAC_TOE)
    search = Mcts(RulesModel(game, Hashed(game)), MctsConfig(simulations=60, noise_fraction=0.5))
    first = search.search([game.parse()], seeds=[0])[0]
    child = first.tree.ranked(0)[0]
    before = dict(zip_children(first.tree, child))
    result = search.search([first.tree.embeddings[child]], seeds=[1], kept=[first.tree.subtree(child)])[0]
    assert sum(result.visits.values()) == sum(before.values()) + 60
    assert all(result.visits[move] >= visits for move, visits in before.items())
    check_tree(result.tree)


def zip_children(tree: Tree, node: int) -> list[tuple[int, int]]:
    return [(tree.actions[child], tree.visits[child]) for child in tree.children[node] or ()]


def test_a_root_that_is_over_is_an_error() -> None:
    game = genpolicy.load_game("chess")
    mated = game.parse("7k/6Q1/6K1/8/8/8/8/8 b - - 0 1")
    with pytest.raises(ValueError, match="7k/6Q1/6K1"):
        Mcts(RulesModel(game, even)).search([game.parse(), mated])


def test_a_root_drawn_by_rule_is_searched_on() -> None:
    """A record may play on past a draw that can be claimed; whoever has to move there needs a move."""
    game = genpolicy.load_game("chess")
    state = game.parse("7k/8/8/8/8/8/R7/K7 w - - 100 90")
    assert game.outcome(state) == 0.0
    result = Mcts(RulesModel(game, Heuristic(game)), MctsConfig(simulations=40)).search([state])[0]
    assert result.choice in game.legal(state)
    assert result.evaluations == 1  # every move but a capture or pawn move leads to a draw


def test_a_single_legal_move_is_played() -> None:
    game = genpolicy.load_game("chess")
    state = game.parse("k7/8/8/8/8/8/6q1/7K w - - 0 1")  # in check; the queen can be taken, and that is all
    legal = game.legal(state)
    assert len(legal) == 1
    result = Mcts(RulesModel(game, even), MctsConfig(simulations=30)).search([state])[0]
    assert result.choice == int(legal[0])
    assert result.visits == {int(legal[0]): 30}


def test_early_stop_keeps_the_move() -> None:
    game = genpolicy.load_game("connect:rows=4,cols=5,k=3,gravity=true")
    model = RulesModel(game, Hashed(game))
    state, saved = game.parse(), 0
    while game.outcome(state) is None:
        config: dict[str, Any] = {"simulations": 200, "leaves": 4}
        full = Mcts(model, MctsConfig(**config)).search([state])[0]
        short = Mcts(model, MctsConfig(early_stop=True, **config)).search([state])[0]
        assert short.choice == full.choice
        saved += 200 - short.simulations
        state = game.play(state, full.choice)
    assert saved > 0


def test_the_distribution_follows_the_temperature() -> None:
    game = genpolicy.load_game(TIC_TAC_TOE)
    result = Mcts(RulesModel(game, Hashed(game)), MctsConfig(simulations=80)).search([game.parse()])[0]
    assert result.distribution() == pytest.approx({move: n / 80 for move, n in result.visits.items()})
    squares = {move: n**2 for move, n in result.visits.items()}
    total = sum(squares.values())
    assert result.distribution(0.5) == pytest.approx({move: n / total for move, n in squares.items()})
    sharp = result.distribution(1e-3)
    assert sharp[result.choice] == pytest.approx(1.0)


def test_the_line_is_legal_and_its_positions_follow() -> None:
    game = genpolicy.load_game("chess")
    result = Mcts(RulesModel(game, Hashed(game)), MctsConfig(simulations=300)).search([game.parse()])[0]
    assert len(result.line) == len(result.embeddings) >= 2
    assert result.line[0] == result.choice
    assert len(result.line) <= result.depth
    state = game.parse()
    for move, after in zip(result.line, result.embeddings, strict=True):
        state = game.play(state, move)
        assert game.format(state) == game.format(after)


# Repetition.


def shuffled(game: Game[Any], plies: int) -> Any:
    """The initial position, then knights out and back, over and over."""
    state = game.parse()
    for ply in range(plies):
        state = game.play(state, game.moves.index(("g1f3", "g8f6", "f3g1", "f6g8")[ply % 4]))
    return state


def good_for_the_other(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
    """Whoever has just moved stands well."""
    return [None] * len(states), [-0.5] * len(states)


def test_a_repetition_that_began_before_the_root_is_a_draw_in_the_tree() -> None:
    game = genpolicy.load_game("chess")
    state = shuffled(game, 7)  # f6g8 makes the initial position stand for the third time
    back = game.moves.index("f6g8")
    config = MctsConfig(simulations=3 * len(game.legal(state)))
    drawn = Mcts(RulesModel(game, good_for_the_other), config).search([state])[0]
    assert drawn.q[back] == 0.0
    assert drawn.visits[back] > 0
    fresh = Mcts(RulesModel(game, good_for_the_other), config).search([game.parse(game.format(state))])[0]
    discounts = [
        next(r.tree.discounts[child] for child in r.tree.children[0] or () if r.tree.actions[child] == back)
        for r in (drawn, fresh)
    ]
    assert discounts == [0.0, -1.0]
    assert drawn.evaluations == drawn.simulations - drawn.visits[back] + 1


def test_a_repetition_inside_the_tree_is_a_draw() -> None:
    """A prior that only knows how to move knights out and back meets the third repetition at ply 8."""
    game = genpolicy.load_game("chess")
    cycle = [game.moves.index(m) for m in ("g1f3", "g8f6", "f3g1", "f6g8")]

    def shuffle(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        moves = [next(m for m in cycle if m in game.legal(s) and is_next(s, m)) for s in states]
        return [{move: 1.0} for move in moves], [0.0] * len(states)

    def is_next(state: Any, move: int) -> bool:
        return cycle[len(game.history(state)[1]) % 4] == move

    config = MctsConfig(simulations=30, leaves=1, c_puct=50.0)
    result = Mcts(RulesModel(game, shuffle), config).search([game.parse()])[0]
    assert result.depth == 8
    assert result.line == (*cycle, *cycle)
    assert game.outcome(result.embeddings[-1]) == 0.0
    assert result.tree.discounts[result.tree.principal_variation()[-1]] == 0.0


# What an evaluator must not answer.


def answers(prior: Any, value: Any) -> Any:
    return lambda states: ([prior] * len(states), [value] * len(states))


@pytest.mark.parametrize(
    ("prior", "value", "message"),
    [
        (None, math.nan, "value nan"),
        (None, 1.5, "value 1.5"),
        (None, math.inf, "value inf"),
        ([math.nan] * 9, 0.0, "not a distribution"),
        ([0.0] * 9, 0.0, "not a distribution"),
        ([0.2] * 9, 0.0, "not a distribution"),
        ([1.2, -0.2, *[0.0] * 7], 0.0, "not a distribution"),
        ([0.5, 0.5], 0.0, "9 legal moves"),
        ({0: 0.5, 9: 0.5}, 0.0, "illegal moves"),
        ({0: 0.5}, 0.0, "not a distribution"),
    ],
    ids=str,
)
def test_nonsense_of_an_evaluator_is_named_with_the_position(prior: Any, value: Any, message: str) -> None:
    game = genpolicy.load_game(TIC_TAC_TOE)
    with pytest.raises(ValueError, match=message) as error:
        Mcts(RulesModel(game, answers(prior, value))).search([game.parse()])
    assert ".../.../... X" in str(error.value)


def test_nonsense_below_the_root_is_seen_too() -> None:
    game = genpolicy.load_game(TIC_TAC_TOE)

    def evaluator(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        return [None] * len(states), [0.0 if game.player(state) == 0 else math.nan for state in states]

    with pytest.raises(ValueError, match="value nan"):
        Mcts(RulesModel(game, evaluator)).search([game.parse()])
    with pytest.raises(ValueError, match="1 priors and 0 values for 1"):
        Mcts(RulesModel(game, lambda states: ([None] * len(states), []))).search([game.parse()])


def test_nonsense_of_a_model_is_seen() -> None:
    ends = {"root": (0.0, 0.0, 1.0, False, END)}
    with pytest.raises(ValueError, match="without choices"):
        Mcts(Drawn(ends)).search(["root"])
    bad = {"root": (math.nan, 0.0, 1.0, False, {0: (1.0, "root")})}
    with pytest.raises(ValueError, match="value nan"):
        Mcts(Drawn(bad)).search(["root"])
    with pytest.raises(AssertionError, match="priors"):
        check_search_model(Drawn({"root": (0.0, 0.0, 1.0, False, {0: (0.7, "root")})}), ["root"])


@pytest.mark.parametrize(
    "options",
    [
        {"simulations": 0},
        {"c_puct": -1.0},
        {"c_puct": math.nan},
        {"first_play": "zero"},
        {"noise_fraction": 1.5},
        {"leaves": 0},
        {"virtual_loss": 0.0},
        {"dirichlet_alpha": 0.0},
        {"first_play_value": 2.0},
    ],
    ids=str,
)
def test_an_option_out_of_range_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        MctsConfig(**options)


# Evaluators without a network.


def expected_of_random_play(game: Game[Any], state: Any) -> float:
    """Mean result for the player to move when both sides move at random, by looking at every game."""
    result = game.outcome(state)
    if result is not None:
        return result
    after = [game.play(state, int(move)) for move in game.legal(state)]
    return -sum(expected_of_random_play(game, each) for each in after) / len(after)


@pytest.mark.parametrize("text", ["XX./OO./... X", "XX./OO./X.. O", "X../.../... O"])
def test_rollouts_estimate_random_play(text: str) -> None:
    game = genpolicy.load_game(TIC_TAC_TOE)
    state = game.parse(text)
    _, (value,) = Rollout(game, num_games=4000, seed=1)([state])
    # A game's result has a standard deviation of at most 1.
    assert value == pytest.approx(expected_of_random_play(game, state), abs=4.5 / math.sqrt(4000))


def test_rollouts_depend_on_seed_and_position_alone() -> None:
    game = genpolicy.load_game(TIC_TAC_TOE)
    state = game.parse("XX./OO./... X")
    rollout = Rollout(game, num_games=3, seed=1)
    assert rollout([state, game.parse()])[1] == rollout([game.parse(), state])[1][::-1]
    assert len({Rollout(game, seed=seed)([state])[1][0] for seed in range(20)}) > 1
    with pytest.raises(ValueError, match="at least 1"):
        Rollout(game, num_games=0)


@pytest.mark.parametrize("spec", GAMES)
def test_rules_keep_the_laws_of_a_model(spec: str) -> None:
    game = genpolicy.load_game(spec)
    check_search_model(RulesModel(game, Hashed(game)), [game.parse()], max_nodes=200)
    check_search_model(RulesModel(game, even), [game.parse()], max_nodes=200)
