"""Numbers of a search so small or so large that its scores or probabilities would be none: refused, or worked out."""

from __future__ import annotations

import math
import re

import pytest

from genpolicy import load_game
from genpolicy.policies.base import load_policy

GAME = "connect:rows=3,cols=3,k=3,gravity=false"


@pytest.mark.parametrize(
    ("tau", "temperature"),
    [(1e-200, 1e-200), (5e-324, 0.5), (5e-324, 0.0), (1e-320, 1e10), (1e300, 1e300), (1e308, 0.0), (0.01, 1e-9)],
)
def test_the_distribution_is_one_at_every_temperature(tau: float, temperature: float) -> None:
    game = load_game(GAME)
    policy = load_policy("mcts:heuristic", game=game, simulations=7, tau=tau, temperature=temperature)
    decision = policy.decide([game.parse()])[0]
    visits = load_policy("mcts:heuristic", game=game, simulations=7).decide([game.parse()])[0].policy
    assert decision.policy is not None
    assert visits is not None
    most = max(visits.values())
    assert math.isclose(sum(decision.policy.values()), 1.0, abs_tol=1e-12)
    for move, share in visits.items():
        if share == 0:
            assert decision.policy[move] == 0, "a choice that was never visited is never drawn"
    if tau < 1e-3:
        among = [move for move, share in visits.items() if share == most]
        assert all(decision.policy[move] == pytest.approx(1 / len(among)) for move in among)
    assert visits[decision.move] > 0


@pytest.mark.parametrize("name", ["c_puct", "c_base", "c_init", "virtual_loss", "dirichlet_alpha"])
@pytest.mark.parametrize("value", [5e-324, 1e-309, 1e-7, 1e7, 1e17, 1e300, 1e308])
def test_constants_are_refused_or_searched_with(name: str, value: float) -> None:
    game = load_game(GAME)
    noise = {"noise_fraction": 1.0} if name == "dirichlet_alpha" else {}
    refused = not (0.0 if name in ("c_puct", "c_init") else 1e-6) <= value <= (math.inf if name == "c_base" else 1e6)
    if refused:
        with pytest.raises(ValueError, match=f"{name} must be at least .*{re.escape(repr(value))}"):
            load_policy("mcts:heuristic", game=game, simulations=60, **{name: value}, **noise)
        return
    policy = load_policy("mcts:heuristic", game=game, simulations=60, **{name: value}, **noise)
    # A centre that is never looked at is not a search of tic-tac-toe.
    decision = policy.decide([game.parse()])[0]
    assert decision.policy is not None
    assert math.isclose(sum(decision.policy.values()), 1.0, abs_tol=1e-12)
    assert min(decision.policy.values()) > 0


@pytest.mark.parametrize("name", ["c_puct", "c_base", "c_init", "virtual_loss", "dirichlet_alpha"])
@pytest.mark.parametrize("value", [1e-6, 1e6])
def test_the_ends_of_the_ranges_are_searched_with(name: str, value: float) -> None:
    game = load_game(GAME)
    noise = {"noise_fraction": 0.5} if name == "dirichlet_alpha" else {}
    policy = load_policy("mcts:heuristic", game=game, simulations=200, **{name: value}, **noise)
    decision = policy.decide([game.parse()])[0]
    assert decision.policy is not None
    assert decision.value is not None
    assert math.isclose(sum(decision.policy.values()), 1.0, abs_tol=1e-12)
    assert abs(decision.value) <= 1
    assert sum(1 for share in decision.policy.values() if share > 0) >= 2
