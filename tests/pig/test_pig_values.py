"""S-V where a move throws dice: the mean over the outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.networks import NetworkConfig
from genpolicy_policy_baselines.state_value import StateValueLearner, StateValuePolicy
from genpolicy_policy_baselines.value import ValueConfig

TINY = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="sequence", head="typed", move_rank=0)


class Fixed(StateValueLearner):
    """Values positions by a table of texts, for the player to move there."""

    table: dict[str, float]

    def read_values(self, tokens: torch.Tensor) -> Any:
        rows = tokens[:, : self.layout.state_length].numpy()
        values = np.array([self.table[self.game.format(self.game.tokens.decode(row, 0))] for row in rows])
        return values, values


def test_a_move_that_throws_dice_is_worth_its_mean() -> None:
    game = genpolicy.load_game("pig:goal=10")
    learner = Fixed(game, ValueConfig(network=TINY, viewer="absolute"))
    # A has 5 in hand: a 5 or a 6 wins, a 1 gives B the turn; nothing else is in the table, so nothing else is asked.
    learner.table = {"0 0 0 B choose": 0.1, "5 0 0 B choose": -0.2} | {
        f"0 0 {5 + face} A choose": 0.05 * face for face in (2, 3, 4)
    }
    policy = StateValuePolicy(learner)
    roll = (-0.1 + 0.05 * (2 + 3 + 4) + 1 + 1) / 6
    decision = policy.decide([game.parse("0 0 5 A choose")])[0]
    assert (game.moves[decision.move], decision.value) == ("roll", pytest.approx(roll))
    learner.table["5 0 0 B choose"] = -0.9  # to hold is better
    decision = policy.decide([game.parse("0 0 5 A choose")])[0]
    assert (game.moves[decision.move], decision.value) == ("hold", pytest.approx(0.9))
    assert decision.policy is not None
    assert decision.policy[1] / decision.policy[0] == pytest.approx(np.exp((0.9 - roll) / 0.1))
