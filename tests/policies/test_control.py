"""Decisions that are stopped half-way, and decisions among some of the legal moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genpolicy import load_game, load_policy
from genpolicy.control import FREE, Control
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.base import Decision, Policy, best_allowed, decide_with
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.policies.weights import check_between
from genpolicy_alphabeta.search import NODES_BETWEEN_CHECKS, AlphaBeta
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner
from genpolicy_policy_baselines.simple import RandomPolicy
from genpolicy_policy_baselines.state_value import StateValueLearner
from genpolicy_policy_baselines.value import ValueConfig

CONNECT = "connect:rows=3,cols=3,k=3,gravity=false"
NETWORK = NetworkConfig(num_layers=2, width=16, num_heads=2, geometry="board", head="typed", move_rank=4)


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module", name="game")
def connect() -> Game[Any]:
    return load_game(CONNECT)


@pytest.fixture(scope="module", name="folders")
def saved(game: Game[Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("control")
    torch.manual_seed(0)
    process = {"kind": "absorbing", "num_timesteps": 4}
    learners = {
        "diffusion": DiffusionLearner(game, DiffusionConfig(network=NETWORK, horizon=1, process=process)),
        "one_step": OneStepLearner(game, OneStepConfig(network=NETWORK)),
        "state_value": StateValueLearner(game, ValueConfig(network=NETWORK)),
    }
    return {name: learner.policy().save_pretrained(folder / name) for name, learner in learners.items()}


SPECS = [
    "random",
    "alphabeta?depth=3",
    "alphabeta?depth=2&prior={one_step}&evaluator={state_value}",
    "oracle:solver",
    "mcts:rollout?simulations=30",
    "mcts:{one_step}?value={state_value}&simulations=12",
    "{diffusion}",
    "{one_step}?temperature=1",
    "{state_value}",
]


def make(spec: str, folders: dict[str, Path]) -> Policy:
    return load_policy(spec.format(**folders), game=CONNECT, seed=3)


def only(*moves: int) -> Control:
    return Control(restrict=lambda state: moves)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spec", SPECS)
def test_only_allowed_moves_are_played(spec: str, folders: dict[str, Path], game: Game[Any]) -> None:
    policy = make(spec, folders)
    states = [game.parse(), game.play(game.parse(), 4)]
    free = [decision.move for decision in policy.decide(states)]
    others = [move for move in (1, 7) if move not in free] or [5]
    for decision in policy.decide(states, control=only(*others)):
        assert decision.move in others
        if decision.policy is not None:
            assert set(decision.policy) == set(others)
            assert sum(decision.policy.values()) == pytest.approx(1)
    policy.seed(3)
    assert [decision.move for decision in policy.decide(states)] == free, "the restriction is not kept"
    assert policy.dream(states[0], control=only(7)).decision.move == 7
    with pytest.raises(ValueError, match="no legal move is left"):
        policy.decide(states, control=only(4))
    policy.close()


@pytest.mark.parametrize("spec", SPECS)
def test_an_exception_of_check_ends_the_decision(spec: str, folders: dict[str, Path], game: Game[Any]) -> None:
    policy = make(spec, folders)
    expected = policy.decide([game.parse()])[0].move
    num_checks = 0

    def check() -> None:
        nonlocal num_checks
        num_checks += 1
        if num_checks == 2:
            raise StoppedError

    policy.seed(3)
    if spec == "random":  # done before it could be stopped
        policy.decide([game.parse()], control=Control(check))
    else:
        with pytest.raises(StoppedError):
            policy.decide([game.parse()], control=Control(check))
    policy.seed(3)
    assert policy.decide([game.parse()])[0].move == expected, "a stopped decision leaves nothing behind"
    policy.close()


def test_restricted_alphabeta_is_the_search_of_those_moves(game: Game[Any]) -> None:
    state = game.parse()
    policy = load_policy("alphabeta?depth=4", game=CONNECT)
    (decision,) = policy.decide([state], control=only(1, 5))
    found = AlphaBeta(game, depth=4).search(state, only=[1, 5])
    assert (decision.move, decision.line, decision.stats["nodes"]) == (found.move, found.line, found.nodes)


def test_a_long_search_by_the_rules_is_checked_all_along(game: Game[Any]) -> None:
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1

    found = AlphaBeta(game, depth=5).search(game.parse(), check=check)
    assert checks == -(-found.nodes // NODES_BETWEEN_CHECKS)


def test_a_restricted_search_leaves_no_tree_behind(game: Game[Any]) -> None:
    policy = load_policy("mcts:rollout?simulations=200&reuse=true", game=CONNECT)
    state = game.parse()
    policy.decide([state], control=only(0, 1))
    following = game.play(game.play(state, 0), 4)
    assert policy.decide([following])[0].stats["kept"] == 0
    policy.decide([state])
    assert policy.decide([following])[0].stats["kept"] > 0
    policy.decide([state])
    assert policy.decide([following], control=only(8))[0].stats["kept"] == 0


@pytest.mark.parametrize("spec", ["{diffusion}", "{one_step}", "mcts:{one_step}?value={state_value}&simulations=8"])
def test_large_networks_are_checked_between_their_parts(spec: str, folders: dict[str, Path], game: Game[Any]) -> None:
    policy = make(spec, folders)
    checks: list[int] = []
    (decision,) = policy.decide([game.parse()], control=Control(lambda: checks.append(1)))
    # The network, its trunk and head, and the embedding, two blocks and the norm of the trunk, at least.
    assert len(checks) >= 6 * decision.stats["network_calls"]
    before = len(checks)
    policy.decide([game.parse()])
    assert len(checks) == before, "the hooks are removed"


def test_shared_weights_are_checked_by_the_thread_that_asked() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(2, 2))
    checks: list[int] = []
    handles = check_between(network, lambda: checks.append(threading.get_ident()))
    other = threading.Thread(target=lambda: network(torch.zeros(1, 2)))
    other.start()
    other.join()
    assert checks == []
    network(torch.zeros(1, 2))
    assert checks == [threading.get_ident()] * 2
    for handle in handles:
        handle.remove()


class Stranger(RandomPolicy):
    """Of a time before ``control``: the first legal move, with or without probabilities and values."""

    def __init__(self, game: Game[Any], policy: Callable[[list[int]], dict[int, float] | None]) -> None:
        super().__init__(game)
        self._policy = policy
        self.num_asked = 0

    def decide(self, states: Sequence[Any]) -> list[Decision]:  # type: ignore[override]
        self.num_asked += len(states)
        legal = [self.game.legal(state).tolist() for state in states]
        return [Decision(moves[0], policy=self._policy(moves), value=0.5) for moves in legal]


def test_a_policy_without_control_still_plays_an_allowed_move(game: Game[Any]) -> None:
    state = game.parse()
    likely = Stranger(game, lambda legal: {move: (move + 1) / 45 for move in legal})
    assert decide_with(likely, [state], FREE)[0].move == 0
    (decision,) = decide_with(likely, [state], only(3, 5))
    assert (decision.move, decision.policy) == (5, {3: pytest.approx(4 / 10), 5: pytest.approx(6 / 10)})
    assert likely.dream(state, control=only(3)).decision.move == 3
    # One that says nothing of its moves is asked what follows them; 3 6 0 4 and then 8: the last one wins at once.
    for move in (3, 6, 0, 4):
        state = game.play(state, move)
    silent = Stranger(game, lambda legal: None)
    assert game.outcome(game.play(game.play(state, 2), 5)) is None
    (decision,) = decide_with(silent, [state], only(2, 5))
    assert (decision.move, decision.value) == (2, -0.5)


def test_a_policy_without_control_is_stopped_around_its_decisions(game: Game[Any]) -> None:
    policy = Stranger(game, lambda legal: None)
    checks: list[int] = []
    decide_with(policy, [game.parse()], Control(lambda: checks.append(policy.num_asked)))
    assert checks == [0, 1]

    def stop() -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        decide_with(policy, [game.parse()], Control(stop))
    assert policy.num_asked == 1


def test_the_mate_of_a_move_that_is_not_allowed_is_not_reported(game: Game[Any]) -> None:
    class Mating(Policy):
        kind = "mating"

        def __init__(self) -> None:
            self.game = game

        def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
            moves = [int(game.legal(state)[0]) for state in states]
            return [
                best_allowed(self, s, Decision(m, stats={"mate_plies": 1.0}), control)
                for s, m in zip(states, moves, strict=True)
            ]

    state = game.parse()
    free = Mating().decide([state])[0]
    other = Mating().decide([state], control=Control(restrict=lambda _: [int(game.legal(state)[1])]))[0]
    assert free.stats == {"mate_plies": 1.0}
    assert other.stats == {}


def test_restricted_priors_sum_to_one_again(game: Game[Any]) -> None:
    from genpolicy_mcts.mcts import Mcts
    from genpolicy_mcts.rules import RulesModel
    from genpolicy_mcts.selection import MctsConfig

    def evaluate(states: Sequence[Any]) -> tuple[list[Any], list[float]]:
        legal = [game.legal(state) for state in states]
        return [np.where(moves == 2, 1.0, 0.0) if 2 in moves else None for moves in legal], [0.0] * len(states)

    model = RulesModel(game, evaluate)
    search = Mcts(model, MctsConfig(simulations=4))
    (found,) = search.search([game.parse()], control=only(1, 2))
    assert found.tree.priors[0] is not None
    assert found.tree.priors[0].tolist() == [1.0, 0.0]
    (found,) = search.search([game.parse()], control=only(1, 3))
    assert found.tree.priors[0] is None, "no allowed move had a prior, so all are alike"
    assert set(found.visits) == {1, 3}


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("chess", "r5rk/5p1p/5R2/4B3/8/8/7P/7K w - - 0 1"),
        ("shogi", "6G2/9/8S/6GRP/6GR1/8k/9/9/9 b 2bg3s4n4l17p 1"),
    ],
)
def test_a_search_for_a_mate_can_be_stopped(name: str, position: str) -> None:
    pytest.importorskip("chess" if name == "chess" else "cshogi")
    rules = load_game(name)
    state = rules.parse(position)
    left = iter(range(5))

    def check() -> None:
        if next(left, None) is None:
            raise StoppedError

    with pytest.raises(StoppedError):
        rules.mate_distance(state, 5, check=check)
    assert rules.mate_distance(state, 1) is None
