"""The balance of losses against its closed form."""

from __future__ import annotations

import math

import pytest
import torch

from genpolicy_policy_baselines.harmony import Harmony


def settled(**losses: float) -> Harmony:
    """A balance trained on constant losses."""
    harmony = Harmony(list(losses)).double()
    constant = {name: torch.tensor(loss, dtype=torch.float64) for name, loss in losses.items()}
    optimizer = torch.optim.LBFGS(harmony.parameters(), lr=0.5, max_iter=300, tolerance_grad=1e-12, tolerance_change=0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        total: torch.Tensor = harmony(constant)
        total.backward()
        return total

    optimizer.step(closure)
    return harmony


def scale(loss: float) -> float:
    """e^s at the stationary point."""
    return (loss + math.sqrt(loss**2 + 4 * loss)) / 2


def test_the_scales_settle_where_the_closed_form_says() -> None:
    losses = {"policy": 2.3, "value": 0.7, "plies": 0.02}
    weights = settled(**losses).weights()
    for name, loss in losses.items():
        assert weights[name].item() == pytest.approx(1 / scale(loss), abs=1e-6)


def test_a_loss_in_other_units_loses_its_weight() -> None:
    """Scaled by c, a loss weighs less by scale(L) / scale(c L), and the other losses as before."""
    before, after = settled(a=0.5, b=1.5).weights(), settled(a=0.5, b=150.0).weights()
    assert after["a"].item() == pytest.approx(before["a"].item(), abs=1e-6)
    assert after["b"].item() / before["b"].item() == pytest.approx(scale(1.5) / scale(150.0), abs=1e-6)
    assert 150 * after["b"].item() < 1, "it cannot drown the others"


def test_the_sum_at_the_start_is_the_plain_sum_and_a_constant() -> None:
    losses = {"a": torch.tensor(2.0, requires_grad=True), "b": torch.tensor(3.0)}
    total = Harmony(["a", "b"])(losses)
    assert total.item() == pytest.approx(5 + 2 * math.log(2))
    total.backward()
    assert losses["a"].grad is not None
    assert losses["a"].grad.item() == 1.0


def test_a_missing_loss_is_named() -> None:
    with pytest.raises(KeyError, match="value"):
        Harmony(["policy", "value"])({"policy": torch.tensor(1.0)})
