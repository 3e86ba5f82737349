"""The mixture of two policies: its ends, its shares, its bad input."""

from __future__ import annotations

import math

import pytest

from genpolicy import load_game, load_policy
from genpolicy.errors import RegistryError
from genpolicy.testing.policies import check_policy
from genpolicy_loop.mixture import MixturePolicy

GAME = load_game("connect:rows=3,cols=3,k=3,gravity=false")
STATES = [state for state in GAME.positions() if GAME.outcome(state) is None][::9]
A, B = "mcts:uniform?simulations=6&noise_fraction=0.5&temperature=1", "mcts:rollout?simulations=4&temperature=1"


def mixture(alpha: float) -> str:
    a, b = (text.replace("?", "%3F").replace("&", "%26") for text in (A, B))
    return f"mix:{a},{b}?alpha={alpha}"


@pytest.mark.parametrize(("alpha", "alone"), [(0, A), (1, B)])
def test_at_its_ends_it_is_one_of_the_two_decision_for_decision(alpha: float, alone: str) -> None:
    mixed, pure = load_policy(mixture(alpha), game=GAME, seed=5), load_policy(alone, game=GAME, seed=5)
    for states in (STATES[:20], STATES[10:40], STATES[:20]):
        for one, other in zip(mixed.decide(states), pure.decide(states), strict=True):
            assert (one.move, one.policy, one.value, one.line) == (other.move, other.policy, other.value, other.line)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.75])
def test_the_share_of_the_second_is_binomial(alpha: float) -> None:
    mixed = load_policy(mixture(alpha), game=GAME, seed=3)
    simulations = [d.stats["simulations"] for d in mixed.decide(STATES)]
    count = sum(number == 4 for number in simulations)
    assert set(simulations) == {4.0, 6.0}
    spread = math.sqrt(len(STATES) * alpha * (1 - alpha))
    assert abs(count - alpha * len(STATES)) < 4 * spread  # one seed in 16,000 lies outside


def test_a_position_met_again_is_drawn_again() -> None:
    mixed = load_policy(mixture(0.5), game=GAME, seed=1)
    drawn = [mixed.decide(STATES[:1])[0].stats["simulations"] for _ in range(40)]
    assert 8 <= sum(number == 4 for number in drawn) <= 32


def test_a_mixture_within_a_mixture_draws_by_itself() -> None:
    a, b, c = (f"mcts:uniform?simulations={number}" for number in (2, 3, 4))
    first, second, third = (load_policy(text, game=GAME) for text in (a, b, c))
    mixed = MixturePolicy(first, MixturePolicy(second, third))
    drawn = [decision.stats["simulations"] for decision in mixed.decide(STATES)]
    for number, share in ((2, 0.5), (3, 0.25), (4, 0.25)):
        spread = math.sqrt(len(STATES) * share * (1 - share))
        assert abs(drawn.count(number) - share * len(STATES)) < 4 * spread


def test_it_keeps_the_laws_of_a_policy() -> None:
    check_policy(load_policy(mixture(0.5), game=GAME), STATES[:6])


def test_its_options_are_changed_without_loading_again() -> None:
    mixed = load_policy(mixture(0.5), game=GAME)
    assert isinstance(mixed, MixturePolicy)
    changed = mixed.with_options(alpha=1)
    assert (changed.alpha, changed.first) == (1.0, mixed.first)
    assert changed.label == f"mix-1:{mixed.first.label},{mixed.second.label}"


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("mix:random", ValueError, "needs two policies"),
        ("mix:random,random,random", ValueError, "needs two policies"),
        ("mix:random,random?alpha=1.5", ValueError, "alpha must be at least 0 and at most 1"),
        ("mix:random,random?beta=1", ValueError, "takes no option 'beta'"),
        ("mix:random,randon", RegistryError, "random"),
    ],
)
def test_bad_input_is_named(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        load_policy(text, game=GAME)


def test_policies_of_two_games_are_refused() -> None:
    other = load_policy("random", game="connect:rows=3,cols=4,k=3")
    with pytest.raises(ValueError, match=r"plays .*cols=4"):
        MixturePolicy(load_policy("random", game=GAME), other)
