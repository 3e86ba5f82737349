"""Random and oracle policies, their spellings, and where draws come from."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.data.oracle import Line, Oracle, make_oracle
from genpolicy.errors import EngineError, RegistryError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.options import options_of
from genpolicy.policies.base import policy_spec, spelled_options
from genpolicy.policies.seeds import RowSeeds
from genpolicy.testing import check_policy
from genpolicy_engines.oracle_policy import OraclePolicy
from genpolicy_play.engine.options import declaration
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner
from genpolicy_policy_baselines.simple import RandomPolicy
from tests.small_datasets import CONNECT


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


def after(game: Game[Any], *moves: int) -> Any:
    state = game.parse()
    for move in moves:
        state = game.play(state, move)
    return state


def test_random_keeps_the_laws(game: Game[Any]) -> None:
    check_policy(
        RandomPolicy(game), [game.parse(), after(game, 4), after(game, 4, 0)], finished=[after(game, 0, 3, 1, 4, 2)]
    )


def test_random_is_uniform(game: Game[Any]) -> None:
    counts = Counter(d.move for d in RandomPolicy(game, seed=1).decide([game.parse()] * 9000))
    assert set(counts) == set(range(9))
    # Each count is binomial(9000, 1/9): mean 1000, standard deviation 29.8.
    assert max(abs(count - 1000) for count in counts.values()) < 4.5 * 29.8


def test_seeds_of_a_row_do_not_depend_on_the_others() -> None:
    seeds, others = RowSeeds(5), RowSeeds(5)
    a, b, again = seeds.draw(["a", "b", "a"])
    assert len({a, b, again}) == 3
    assert others.draw(["b"]) == [b]
    assert others.draw(["a"]) == [a]
    assert others.draw(["a"]) == [again]
    others.reset(5)
    assert others.draw(["a"]) == [a]
    others.reset(6)
    assert others.draw(["a"]) != [a]


def test_solver_policy_wins_and_blocks(game: Game[Any]) -> None:
    policy = genpolicy.load_policy("oracle:solver", game=game)
    win = after(game, 0, 3, 1, 4)  # 0 1 _ for the player to move: 2 wins
    block = after(game, 0, 4, 1)  # 0 1 _ for the other: 2 is forced
    assert [d.move for d in policy.decide([win, block])] == [2, 2]
    assert policy.decide([win])[0].value == 1.0
    assert policy.label == "oracle:solver"
    check_policy(policy, [game.parse(), win, block], finished=[after(game, 0, 3, 1, 4, 2)])


class Silent(Oracle):
    """Labels nothing."""

    def __init__(self, game: Game[Any]) -> None:
        self.game = game

    def describe(self) -> dict[str, Any]:
        return {}

    def analyse(self, states: Any, horizon: int, *, move_values: bool = False) -> list[Line]:
        return [Line((), error="it died three times") for _ in states]


def test_an_oracle_without_an_answer_is_an_error(game: Game[Any]) -> None:
    with pytest.raises(EngineError, match=r"no move for .*: it died three times"):
        OraclePolicy(Silent(game), "oracle:silent").decide([game.parse()])


@pytest.mark.parametrize(
    ("spec", "options", "error", "message"),
    [
        ("random", {}, ValueError, "name one"),
        ("random:x", {"game": CONNECT}, ValueError, "takes no argument"),
        ("random?sed=1", {"game": CONNECT}, ValueError, "Did you mean: 'seed'"),
        ("randm", {"game": CONNECT}, RegistryError, "Did you mean: 'random'"),
        ("oracle", {"game": CONNECT}, ValueError, "needs an oracle's name"),
        ("oracle:solvr", {"game": CONNECT}, RegistryError, "Did you mean: 'solver'"),
        ("oracle:solver?nodes=3", {"game": CONNECT}, ValueError, "nodes"),
        ("no/such/folder", {}, RegistryError, "no such folder"),
        ("diffusion", {"game": CONNECT}, RegistryError, "loaded from a folder"),
    ],
)
def test_bad_spellings_are_named(spec: str, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        genpolicy.load_policy(spec, **options)


def test_spelled_options_are_typed(game: Game[Any]) -> None:
    first = genpolicy.load_policy("random?seed=7", game=game).decide([game.parse()] * 20)
    second = RandomPolicy(game, seed=7).decide([game.parse()] * 20)
    assert [d.move for d in first] == [d.move for d in second]


def test_what_is_spelled_wins_over_a_programs_defaults(game: Game[Any]) -> None:
    def moves(spec: str, **settings: Any) -> list[int]:
        policy = genpolicy.load_policy(spec, game=game, **settings)
        return [decision.move for decision in policy.decide([game.parse()] * 30)]

    assert moves("random", defaults={"seed": 5}) == moves("random?seed=5")
    assert moves("random?seed=7", defaults={"seed": 5}) == moves("random?seed=7")
    assert moves("random?seed=7", defaults={"seed": 5}, seed=6) == moves("random?seed=6")


def test_a_plus_in_a_spelling_is_a_plus() -> None:
    query = "scheduler=dpmsolver++&name=a%26b%20c&empty=&none&seed=3&rate=0.5&mask=False"
    assert spelled_options(query) == {
        "scheduler": "dpmsolver++",
        "name": "a&b c",
        "empty": "",
        "none": "",
        "seed": 3,
        "rate": 0.5,
        "mask": False,
    }
    with pytest.raises(ValueError, match=r"seed must be a whole number, got '1\+2'"):
        make_oracle("solver?seed=1+2", genpolicy.load_game(CONNECT))


@pytest.mark.parametrize(("value", "is_on"), [("no", False), ("off", False), ("0", False), ("1", True), ("on", True)])
def test_truth_values_are_read(value: str, is_on: bool, tmp_path: Any) -> None:
    torch.manual_seed(0)
    config = OneStepConfig(network=NetworkConfig(num_layers=1, width=16, num_heads=2))
    folder = OneStepLearner(genpolicy.load_game(CONNECT), config).policy().save_pretrained(tmp_path / "p")
    loaded: Any = genpolicy.load_policy(f"{folder}?legal_mask={value}")
    assert loaded.legal_mask is is_on
    spec = policy_spec(f"{folder}?legal_mask={value}")
    (option,) = (each for each in options_of("policies", spec.kind, spec) if each.name == "legal_mask")
    assert declaration(option) == f"type check default {'true' if is_on else 'false'}"
    for wrong in ("maybe", "2"):
        with pytest.raises(ValueError, match="option legal_mask must be true or false"):
            genpolicy.load_policy(f"{folder}?legal_mask={wrong}")


def test_random_has_no_folder(game: Game[Any], tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="has no folder"):
        RandomPolicy(game).save_pretrained(tmp_path)


def test_probabilities_are_of_the_legal_moves(game: Game[Any]) -> None:
    decision = RandomPolicy(game).decide([after(game, 0, 1)])[0]
    assert decision.policy is not None
    assert sorted(decision.policy) == list(range(2, 9))
    assert np.isclose(sum(decision.policy.values()), 1.0)


def test_greedy_is_refused_where_a_game_has_no_heuristic_evaluation() -> None:
    """Not at its first move: in a tournament it would forfeit every game."""
    with pytest.raises(ValueError, match="no heuristic evaluation"):
        genpolicy.load_policy("greedy", game="pig:goal=20")
