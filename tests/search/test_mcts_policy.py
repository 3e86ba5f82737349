"""The policy mcts: laws, spellings, prior and value of other policies, kept trees."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import genpolicy
from genpolicy.control import FREE, Control
from genpolicy.errors import RegistryError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.base import Decision, Policy
from genpolicy.policies.seeds import RowSeeds
from genpolicy.policies.thinking import Answer, Limits
from genpolicy.testing import check_policy
from genpolicy_mcts import thinking
from genpolicy_mcts.policy import NUM_VARIATIONS, MctsPolicy, PolicyModel
from genpolicy_mcts.rules import even
from genpolicy_mcts.selection import MctsConfig
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner

TIC_TAC_TOE = "connect:rows=3,cols=3,k=3,gravity=false"


@pytest.fixture(scope="module")
def connect() -> Game[Any]:
    return genpolicy.load_game(TIC_TAC_TOE)


@pytest.fixture(scope="module")
def chess() -> Game[Any]:
    pytest.importorskip("chess")
    return genpolicy.load_game("chess")


@pytest.fixture(scope="module")
def folder(connect: Game[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An S-A policy of random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="board", head="typed")
        policy = OneStepLearner(connect, OneStepConfig(network=network)).policy()
    return policy.save_pretrained(tmp_path_factory.mktemp("s-a") / "policy")


def after(game: Game[Any], *moves: int | str) -> Any:
    state = game.parse()
    for move in moves:
        state = game.play(state, game.moves.index(move) if isinstance(move, str) else move)
    return state


class Judge(Policy):
    """Prior on the highest ids, a value by the side to move; counts what it is asked."""

    kind = "judge"

    def __init__(self, game: Game[Any]) -> None:
        self.game = game
        self.asked: list[int] = []
        self.closed = 0

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        self.asked.append(len(states))
        decisions = []
        for state in states:
            legal = self.game.legal(state).tolist()
            total = sum(move + 1 for move in legal)
            prior = {move: (move + 1) / total for move in legal}
            value = 0.5 if self.game.player(state) == 0 else -0.5
            decisions.append(Decision(legal[-1], policy=prior, value=value, stats={"network_calls": 2.0}))
        return decisions

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    "spelling",
    [
        "mcts:uniform?simulations=40",
        "mcts:heuristic?simulations=40&c_puct=2",
        "mcts:rollout?simulations=30",
        "mcts:uniform?simulations=40&reuse=true",
        "mcts:heuristic?simulations=40&noise_fraction=0.25&tau=2&temperature=0.8",
        "mcts:uniform?preset=diffusearch",
        "mcts:heuristic?preset=alphazero&simulations=30&reuse=true",
    ],
)
def test_keeps_the_laws(connect: Game[Any], spelling: str) -> None:
    policy = genpolicy.load_policy(spelling, game=connect)
    states = [connect.parse(), after(connect, 4), after(connect, 4, 0), after(connect, 0, 3, 1, 4)]
    check_policy(policy, states, finished=[after(connect, 0, 3, 1, 4, 2)])


def test_keeps_the_laws_at_chess(chess: Game[Any]) -> None:
    policy = genpolicy.load_policy("mcts:heuristic?simulations=60", game=chess)
    mated = after(chess, "f2f3", "e7e5", "g2g4", "d8h4")
    check_policy(policy, [chess.parse(), after(chess, "e2e4"), after(chess, "f2f3", "e7e5", "g2g4")], finished=[mated])
    assert policy.decide([after(chess, "f2f3", "e7e5", "g2g4")])[0].move == chess.moves.index("d8h4")


@pytest.mark.parametrize("value", ["even", "heuristic", "rollout"])
def test_keeps_the_laws_over_a_network(connect: Game[Any], folder: Path, value: str) -> None:
    policy = genpolicy.load_policy(f"mcts:{folder}?simulations=24&value={value}")
    assert policy.game.spec == TIC_TAC_TOE
    check_policy(policy, [connect.parse(), after(connect, 4), after(connect, 0, 3)], max_plies=4)
    stats = policy.decide([connect.parse()])[0].stats
    assert 1 < stats["network_calls"] < stats["evaluations"] <= 25  # leaves went to the network together
    assert stats["simulations"] == 24


@pytest.mark.parametrize(("batch_size", "num"), [(64, 100), (256, 300), (512, 128)])
def test_every_call_of_a_network_is_counted(connect: Game[Any], folder: Path, batch_size: int, num: int) -> None:
    judge = genpolicy.load_policy(folder, batch_size=batch_size)
    assert judge.learner is not None
    called: list[int] = []
    judge.learner.network.register_forward_hook(lambda *_: called.append(1))
    model = PolicyModel(connect, judge, even)
    model.judge([connect.parse()] * num)
    assert model.network_calls == len(called)


def test_decision_is_what_the_tree_says(connect: Game[Any]) -> None:
    judge = Judge(connect)
    policy = MctsPolicy(connect, PolicyModel(connect, judge, judge), MctsConfig(simulations=50, leaves=4))
    states = [connect.parse(), after(connect, 4)]
    first, second = policy.decide(states)
    assert first.policy is not None
    assert first.move == max(first.policy, key=lambda move: first.policy[move])  # type: ignore[index]
    assert first.value is not None
    assert second.value is not None
    assert first.value > 0 > second.value  # each for its own player to move
    assert first.line[0] == first.move
    state = states[0]
    for move, text in zip(first.line, first.states, strict=True):
        state = connect.play(state, move)
        assert connect.format(state) == text
    # One policy for both: asked once for each batch of leaves, of both games, with its two calls.
    assert max(judge.asked) == 8
    assert first.stats["network_calls"] == second.stats["network_calls"] == 2 * len(judge.asked)
    assert first.stats["evaluations"] + second.stats["evaluations"] == sum(judge.asked)
    policy.close()
    assert judge.closed


class Moody(Judge):
    """A value that is drawn anew each time a position is asked."""

    def __init__(self, game: Game[Any]) -> None:
        super().__init__(game)
        self._seeds = RowSeeds(0)

    def seed(self, seed: int) -> None:
        self._seeds.reset(seed)

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        drawn = self._seeds.draw([self.game.format(state) for state in states])
        decisions = super().decide(states)
        return [dataclasses.replace(d, value=2 * n / 2**63 - 1) for d, n in zip(decisions, drawn, strict=True)]


def test_a_policy_that_draws_is_asked_by_the_position_alone(connect: Game[Any]) -> None:
    moody = Moody(connect)
    policy = MctsPolicy(connect, PolicyModel(connect, moody, moody), MctsConfig(simulations=40, leaves=4))
    check_policy(policy, [connect.parse(), after(connect, 4), after(connect, 4, 0), after(connect, 0)])


def test_prior_and_value_of_two_policies(connect: Game[Any]) -> None:
    prior, value = Judge(connect), Judge(connect)
    policy = MctsPolicy(connect, PolicyModel(connect, prior, value), MctsConfig(simulations=20))
    policy.decide([connect.parse()])
    assert prior.asked == value.asked
    only_value = MctsPolicy(connect, PolicyModel(connect, None, value), MctsConfig(simulations=9, leaves=1))
    decision = only_value.decide([connect.parse()])[0]
    assert decision.policy == dict.fromkeys(range(9), 1 / 9)  # a uniform prior, and all values the same
    assert decision.value == 0.5


def test_a_sampled_move_follows_the_visits(connect: Game[Any]) -> None:
    policy = genpolicy.load_policy("mcts:heuristic?simulations=30&temperature=1&seed=5", game=connect)
    (expected,) = policy.with_options(temperature=0).decide([connect.parse()])
    decisions = policy.decide([connect.parse()] * 300)
    counts = Counter(decision.move for decision in decisions)
    assert expected.policy is not None
    for move, share in expected.policy.items():
        # Binomial; 4.5 standard deviations.
        assert abs(counts[move] / 300 - share) <= 4.5 * (share * (1 - share) / 300) ** 0.5 + 1e-9
    assert all(decision.line[0] == decision.move for decision in decisions)
    assert all(decision.policy == expected.policy for decision in decisions)


def test_with_options_changes_one_thing(connect: Game[Any]) -> None:
    policy = genpolicy.load_policy("mcts:uniform?simulations=30&c_puct=3", game=connect)
    assert isinstance(policy, MctsPolicy)
    other = policy.with_options(leaves=1, reuse=True)
    assert (other.config.simulations, other.config.c_puct, other.config.leaves) == (30, 3.0, 1)
    assert other.reuse
    assert not policy.reuse
    assert policy.config.leaves != 1
    assert set(policy.option_names()) >= {"simulations", "c_puct", "tau", "temperature", "reuse", "preset"}
    with pytest.raises(ValueError, match="value"):
        policy.with_options(value="even")


def test_the_papers_setting_is_named(connect: Game[Any]) -> None:
    policy = genpolicy.load_policy("mcts:uniform?preset=diffusearch", game=connect)
    assert isinstance(policy, MctsPolicy)
    assert (policy.config.c_puct, policy.config.simulations, policy.tau) == (0.1, 100, 1.0)
    assert policy.label == "mcts-100:uniform"
    more = genpolicy.load_policy("mcts:uniform?preset=diffusearch&simulations=400", game=connect)
    assert more.label == "mcts-400:uniform"


# Kept trees.


def reusing(game: Game[Any], **options: Any) -> MctsPolicy:
    policy = genpolicy.load_policy("mcts:heuristic?simulations=80&reuse=true", game=game)
    assert isinstance(policy, MctsPolicy)
    return policy.with_options(**options)


def test_the_subtree_of_the_played_moves_is_searched_on(chess: Game[Any]) -> None:
    policy = reusing(chess, simulations=1500)
    fresh = policy.with_options(reuse=False)
    state = chess.parse()
    kept = []
    for _ in range(3):
        decision = policy.decide([state])[0]
        kept.append(decision.stats["kept"])
        assert decision.stats["simulations"] == 1500
        assert decision.policy is not None
        assert sorted(decision.policy) == chess.legal(state).tolist()
        # Visits are whole numbers of all those below the root.
        total = 1500 + kept[-1]
        assert all(abs(share * total - round(share * total)) < 1e-6 for share in decision.policy.values())
        assert fresh.decide([state])[0].stats["kept"] == 0
        # What the tree holds for the line is what is kept, if the other side plays it.
        tree = policy._kept._trees[-1][0]
        child = tree.ranked(0)[0]
        answer = tree.ranked(child)[0]
        expected = tree.visits[answer] - 1
        state = chess.play(chess.play(state, decision.move), tree.actions[answer])
        assert chess.format(state) == chess.format(tree.embeddings[answer])
        found = policy._kept.find(state)
        assert found is not None
        assert found.visits[0] - 1 == expected
    assert kept[0] == 0
    assert min(kept[1:]) >= 5


def test_both_sides_of_one_policy_keep_their_tree(connect: Game[Any]) -> None:
    policy = reusing(connect)
    state, kept = connect.parse(), []
    while connect.outcome(state) is None:
        decision = policy.decide([state])[0]
        kept.append(decision.stats["kept"])
        state = connect.play(state, decision.move)
    assert kept[0] == 0
    assert min(kept[1:]) > 0


def test_another_past_is_another_position(chess: Game[Any]) -> None:
    """The same FEN with another history counts repetitions otherwise: its tree is not taken."""
    policy = reusing(chess)
    moves = ("g1f3", "g8f6", "f3g1", "f6g8") * 2
    policy.decide([after(chess, *moves[:6])])
    with_past = after(chess, *moves[:7])
    without = chess.parse(chess.format(with_past))
    assert policy._kept.find(without) is None
    assert policy._kept.find(with_past) is not None
    other_counters = chess.parse(chess.format(with_past).replace(" 7 4", " 5 4"))
    assert policy._kept.find(other_counters) is None


def test_the_seed_forgets_kept_trees(connect: Game[Any]) -> None:
    policy = reusing(connect)
    policy.decide([connect.parse()])
    assert policy.decide([after(connect, 4)])[0].stats["kept"] > 0
    policy.seed(0)
    assert policy.decide([after(connect, 4)])[0].stats["kept"] == 0


def test_many_games_at_once_keep_their_own_trees(connect: Game[Any]) -> None:
    policy, alone = reusing(connect), [reusing(connect) for _ in range(3)]
    states = [after(connect, 0), after(connect, 4), after(connect, 8)]
    for _ in range(3):
        decisions = policy.decide(states)
        single = [one.decide([state])[0] for one, state in zip(alone, states, strict=True)]
        assert [d.policy for d in decisions] == [d.policy for d in single]
        states = [connect.play(state, d.move) for state, d in zip(states, decisions, strict=True)]


def test_old_trees_go_first(connect: Game[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genpolicy_mcts.reuse.MAX_KEPT_NODES", 200)
    policy = reusing(connect)
    for move in range(6):
        policy.decide([after(connect, move)])
    assert sum(len(tree) for tree, _ in policy._kept._trees) <= 200
    assert policy._kept.find(after(connect, 5, 4)) is not None
    assert policy._kept.find(after(connect, 0, 4)) is None


# What cannot be.


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("mcts", "needs something to search with"),
        ("mcts:?simulations=5", "needs something to search with"),
        ("mcts:uniform?simulation=5", "Did you mean: 'simulations'"),
        ("mcts:uniform?simulations=0", "simulations must be at least 1, got 0"),
        ("mcts:uniform?simulations=2.5", "whole"),
        ("mcts:uniform?simulations=many", "simulations is a whole number, got"),
        ("mcts:uniform?c_puct=-1", "c_puct must be at least 0"),
        ("mcts:uniform?reuse=2", "reuse must be true or false"),
        ("mcts:uniform?temperature=-1", "temperature must be at least 0"),
        ("mcts:uniform?tau=0", "tau must be above 0"),
        ("mcts:uniform?preset=paper", "diffusearch, alphazero"),
        ("mcts:uniform?value=uniform", "even, heuristic, rollout"),
        ("mcts:uniform?prior=even", "prior=uniform"),
        ("mcts:random", "gives no value .* value=heuristic"),
        ("mcts:oracle:solver", "gives no move probabilities.* prior=uniform"),
        ("mcts:uniform?value=random", "gives no value"),
    ],
)
def test_a_wrong_spelling_is_named(connect: Game[Any], spelling: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        genpolicy.load_policy(spelling, game=connect)


def test_a_policy_without_a_value_says_the_way_out(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"gives no value .*value=FOLDER.*value=heuristic"):
        genpolicy.load_policy(f"mcts:{folder}")


def test_no_game_and_no_policy_and_two_games(connect: Game[Any], folder: Path) -> None:
    with pytest.raises(ValueError, match="name one"):
        genpolicy.load_policy("mcts:uniform")
    with pytest.raises(RegistryError, match="no such folder"):
        genpolicy.load_policy("mcts:/no/such/folder", game=connect)
    with pytest.raises(ValueError, match="plays"):
        genpolicy.load_policy(f"mcts:{folder}?value=even", game="connect:rows=4,cols=4,k=3,gravity=false")


def test_a_solver_is_a_value(connect: Game[Any]) -> None:
    policy = genpolicy.load_policy("mcts:uniform?value=oracle:solver&simulations=60", game=connect)
    decision = policy.decide([after(connect, 0)])[0]
    assert decision.move == 4  # all else loses against a corner
    assert policy.label == "mcts-60:uniform+oracle:solver"
    policy.close()
    policy.close()


def test_a_search_is_made_in_code(connect: Game[Any]) -> None:
    policy = MctsPolicy(connect, PolicyModel(connect, None, even), MctsConfig(simulations=200))
    assert policy.decide([after(connect, 0, 3, 1, 4)])[0].move == 2
    assert policy.decide([after(connect, 0, 3, 1, 4)])[0].line == (2,)


FIFTY_MOVES = "4k3/8/8/8/8/8/3r4/4K2B w - - 99 90"
"""Every move ends the game, and nothing is left to evaluate."""


def think(game: Game[Any], text: str, limits: Limits, control: Control = FREE) -> Answer:
    answers: list[Answer] = []
    policy = genpolicy.load_policy("mcts:heuristic", game=game)
    policy.thinker().think(game.parse(text), limits, answers.append, control=control)
    return answers[-1]


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (FIFTY_MOVES, Limits(nodes=100)),
        (FIFTY_MOVES, Limits(depth=8)),
        ("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", Limits(depth=8)),  # the mate gets nearly all visits
    ],
)
def test_a_limit_that_the_tree_cannot_reach_ends_the_search(chess: Game[Any], text: str, limits: Limits) -> None:
    began = time.perf_counter()
    think(chess, text, limits)
    assert time.perf_counter() - began < 5  # 15 to 26 s, were it to go on to the largest tree


def test_a_limit_in_nodes_is_reached_in_spite_of_a_mate(chess: Game[Any]) -> None:
    assert think(chess, "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", Limits(nodes=500)).nodes >= 500


@pytest.mark.parametrize("limits", [Limits(nodes=100), Limits(depth=3)])
def test_a_limit_means_the_same_at_every_speed(
    chess: Game[Any], limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinking, "PART_S", 0.2)  # so long that a part by the clock is well beyond each limit
    thinker = genpolicy.load_policy("mcts:heuristic", game=chess).thinker()
    answers: list[Answer] = []
    thinker.think(chess.parse(), limits, answers.append)  # does not know yet how long a simulation takes
    first = answers[-1]
    thinker.think(chess.parse(), limits, answers.append)
    assert answers[-1] == first


class Stopped(Exception):
    """Ends a search from outside."""


def test_a_search_without_a_leaf_can_be_stopped(chess: Game[Any]) -> None:
    began = time.perf_counter()

    def check() -> None:
        if time.perf_counter() - began > 0.2:
            raise Stopped

    policy = genpolicy.load_policy("mcts:heuristic", game=chess, simulations=1_000_000)
    with pytest.raises(Stopped):
        policy.decide([chess.parse(FIFTY_MOVES)], control=Control(check))
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("root", ["puct", "gumbel"])
def test_a_decision_lists_the_moves_that_the_search_judged(connect: Game[Any], root: str) -> None:
    policy = MctsPolicy(connect, PolicyModel(connect, None, even), MctsConfig(simulations=60, root=root))
    state = after(connect, 0, 3, 1)  # all moves but 2 lose
    (decision,) = policy.decide([state])
    first, *others = decision.variations
    assert (first.line, first.states) == (decision.line, decision.states[:1])
    assert first.states == (connect.format(connect.play(state, 2)),)
    visits = [decision.policy[each.line[0]] for each in others] if root == "puct" else []
    assert visits == sorted(visits, reverse=True)
    assert {each.line[0] for each in decision.variations} <= set(connect.legal(state).tolist())
    assert all(each.value is not None and each.value < 0 for each in others if each.line[1:] == (2,))
    crowded = policy.decide([connect.parse()])[0].variations
    assert len(crowded) == NUM_VARIATIONS < len(connect.legal(connect.parse()))
