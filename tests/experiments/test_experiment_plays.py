"""A cell may play the run's policy inside another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from genpolicy import load_game
from genpolicy.networks.config import NetworkConfig
from genpolicy.policies.base import Policy
from genpolicy_experiments.plays import as_played
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Policy, Path]:
    torch.manual_seed(0)
    network = NetworkConfig(num_layers=1, width=16, num_heads=2)
    game = load_game("connect:rows=3,cols=3,k=3,gravity=false")
    policy = OneStepLearner(game, OneStepConfig(network=network)).policy()
    return policy, policy.save_pretrained(tmp_path / "policy")


def test_options_are_the_policys_own(saved: tuple[Policy, Path]) -> None:
    played: Any = as_played(*saved, {"temperature": 0.5})
    assert (played.kind, played.temperature) == ("one_step", 0.5)


def test_a_spelling_is_of_the_runs_folder(saved: tuple[Policy, Path]) -> None:
    policy, folder = saved
    played = as_played(policy, folder, {"policy": "mcts:{policy}?simulations=7&value=even"})
    decision = played.decide([policy.game.parse()])[0]
    assert decision.stats["simulations"] == 7


def test_a_search_for_any_game_plays_the_runs(saved: tuple[Policy, Path]) -> None:
    policy, folder = saved
    played = as_played(policy, folder, {"policy": "alphabeta?depth=1&prior={policy}"})
    assert played.game.spec == policy.game.spec
    assert played.decide([policy.game.parse()])[0].move in policy.game.legal(policy.game.parse())


def test_a_folder_may_have_any_name(saved: tuple[Policy, Path], tmp_path: Path) -> None:
    """Before the ? of a spelling it stands as it is, behind it quoted as values of options are."""
    policy, folder = saved
    odd = folder.rename(tmp_path / "a&b=1, 50%41")
    played = as_played(policy, odd, {"policy": "mcts:{policy}?simulations=5&value=even&prior={policy}"})
    assert played.decide([policy.game.parse()])[0].stats["simulations"] == 5


@pytest.mark.parametrize(
    ("play", "said"),
    [
        ({"policy": "mcts:uniform"}, r"play\.policy is a policy's spelling with \{policy\}"),
        ({"policy": "mcts:{policy}?value=even", "seed": 1}, r"spells all options: write play\.seed into it"),
        ({"policy": "mcts:{policy}"}, "gives no value"),
        ({"horizons": 3}, "horizons"),
    ],
)
def test_what_cannot_be_played_is_named(saved: tuple[Policy, Path], play: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        as_played(*saved, play)
