"""Heads that judge positions: closed forms of their readout, targets and losses; unknown labels; lower precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from genpolicy.errors import ConfigError
from genpolicy.networks.value_heads import (
    CategoricalHead,
    EndHead,
    PliesLeftHead,
    Readout,
    ReadoutConfig,
    finite,
    mean_of_known,
    two_hot,
)

L, W = 5, 6
NAN = float("nan")
FLAT, MEAN = ReadoutConfig("flat", per_token=3, inner=4), ReadoutConfig("mean", inner=4)


def head(kind: type[Readout] = CategoricalHead, config: ReadoutConfig = FLAT, **options: Any) -> Any:
    torch.manual_seed(0)
    return kind(L, W, config, **options).double()


def features(rows: int = 3) -> Tensor:
    return torch.randn(rows, L, W, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def layer(module: Any, x: np.ndarray[Any, Any], *, activated: bool) -> np.ndarray[Any, Any]:
    weight, bias = (part.detach().numpy() for part in (module.weight, module.bias))
    rows = zip(weight, bias, strict=True)
    out = [sum(float(w) * float(v) for w, v in zip(row, x, strict=True)) + float(b) for row, b in rows]
    return np.array([gelu(each) for each in out] if activated else out)


@pytest.mark.parametrize("config", [FLAT, MEAN], ids=["flat", "mean"])
def test_a_head_equals_its_layers_written_out(config: ReadoutConfig) -> None:
    made, x = head(config=config), features()
    for row, out in zip(x.numpy(), made(x), strict=True):
        if config.pool == "flat":
            read = np.concatenate([layer(made.token, token, activated=True) for token in row])
        else:
            read = np.array([sum(row[:, i]) / L for i in range(W)])
        expected = layer(made.out, layer(made.inner, read, activated=True), activated=False)
        np.testing.assert_allclose(out.detach().numpy(), expected, atol=1e-12)


def test_the_mean_fits_any_number_of_tokens_and_no_row_sees_another() -> None:
    made, x = head(config=MEAN), features()
    assert made(torch.cat([x, x], 1)).shape == (3, 3)
    torch.testing.assert_close(made(torch.cat([x, x], 1)), made(x))  # each token twice has the same mean
    for config in (FLAT, MEAN):
        made = head(config=config)
        torch.testing.assert_close(made(x[:1]), made(x)[:1], rtol=0, atol=1e-14)


def test_operations_are_counted_by_hand() -> None:
    # flat: 3 x 6 weights at each of 5 tokens, 15 x 4, 4 x 3; mean: 6 x 4, 4 x 3. Two forward, four backward each.
    assert head().flops_per_record() == 6 * (5 * 18 + 60 + 12)
    assert head(config=MEAN).flops_per_record() == 6 * (24 + 12)


def test_win_draw_loss_of_a_value() -> None:
    values = torch.tensor([1.0, 0.0, -1.0, 0.25, -0.75, NAN], dtype=torch.float64)
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.25, 0.75, 0], [0, 0.25, 0.75], [NAN] * 3]
    torch.testing.assert_close(head().targets(values), torch.tensor(expected, dtype=torch.float64), equal_nan=True)
    logits = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64).log()
    torch.testing.assert_close(head().mean(logits), torch.tensor([0.5], dtype=torch.float64))  # 0.6 - 0.1


@pytest.mark.parametrize("support", [[-1.0, -0.25, 0.0, 0.5, 1.0], [2.0, 1.0, -3.0], [0.0, 1.0]])
def test_two_hot_has_its_values_mean_on_two_neighbours(support: list[float]) -> None:
    points = torch.tensor(support, dtype=torch.float64)
    values = torch.linspace(min(support), max(support), 101, dtype=torch.float64)
    shares = two_hot(values, points)
    torch.testing.assert_close(shares @ points, values)
    torch.testing.assert_close(shares.sum(-1), torch.ones(101, dtype=torch.float64))
    assert shares.min() >= 0
    for row in shares:
        used = torch.nonzero(row > 1e-12).flatten().tolist()
        assert len(used) == 1 or (len(used) == 2 and used[1] == used[0] + 1)
    torch.testing.assert_close(two_hot(points, points), torch.eye(len(points), dtype=torch.float64))
    beyond = two_hot(torch.tensor([points.max() + 9, points.min() - 9]), points)
    torch.testing.assert_close(beyond @ points, torch.stack([points.max(), points.min()]))


def test_cross_entropy_of_a_distribution() -> None:
    chances, target = [0.6, 0.3, 0.1], [0.25, 0.75, 0.0]
    logits = torch.tensor([chances, chances], dtype=torch.float64).log() + 5
    losses = head().losses(logits, torch.tensor([target, [NAN, NAN, NAN]], dtype=torch.float64))
    expected = -sum(t * math.log(c) for t, c in zip(target, chances, strict=True))
    torch.testing.assert_close(losses, torch.tensor([expected, 0.0], dtype=torch.float64))


def test_plies_left_are_huber_in_units_of_twenty() -> None:
    made, x = head(PliesLeftHead), features()
    raw = Readout.forward(made, x)[:, 0].detach().tolist()
    torch.testing.assert_close(made(x), torch.tensor([20 * math.log1p(math.exp(r)) for r in raw], dtype=torch.float64))
    plies = torch.tensor([30.0, 30.0, 30.0, 30.0])
    labels = torch.tensor([30.0, 34.0, 70.0, NAN])
    # Within 10 plies half the square of e / 20, beyond 0.5 (|e| / 20 - 0.25).
    torch.testing.assert_close(made.losses(plies, labels), torch.tensor([0.0, 0.5 * 0.2**2, 0.5 * (2.0 - 0.25), 0.0]))


def test_the_end_of_the_game_is_a_cross_entropy() -> None:
    made = head(EndHead)
    assert made(features()).shape == (3,)
    log_odds, ended = torch.tensor([0.7, 0.7, 0.7, 0.7]), torch.tensor([1.0, 0.0, 0.25, NAN])
    p = 1 / (1 + math.exp(-0.7))
    expected = [-math.log(p), -math.log(1 - p), -0.25 * math.log(p) - 0.75 * math.log(1 - p), 0.0]
    torch.testing.assert_close(made.losses(log_odds, ended), torch.tensor(expected))


@pytest.mark.parametrize("kind", [CategoricalHead, PliesLeftHead, EndHead])
def test_unknown_labels_move_no_weight(kind: type[Any]) -> None:
    made, x = head(kind), features()
    labels = torch.tensor([NAN, 0.5, NAN], dtype=torch.float64)
    targets = made.targets(labels) if kind is CategoricalHead else labels
    losses = made.losses(made(x), targets)
    assert losses[[0, 2]].tolist() == [0, 0]
    torch.testing.assert_close(mean_of_known(losses, targets), losses[1])
    unknown = torch.full_like(targets, NAN)
    none = mean_of_known(made.losses(made(x), unknown), unknown)
    none.backward()  # type: ignore[no-untyped-call]
    assert none.item() == 0
    assert all(p.grad is not None and bool((p.grad == 0).all()) for p in made.parameters())


def test_numbers_are_in_full_precision_under_autocast() -> None:
    made, x = head().float(), features().float()
    with torch.autocast("cpu", torch.bfloat16):
        assert made(x).dtype == torch.float32


def test_a_diverged_head_is_named() -> None:
    made = head()
    assert finite(made(features()), "win-draw-loss").shape == (3, 3)
    with torch.no_grad():
        made.out.bias[0] = NAN
    with pytest.raises(ValueError, match=r"win-draw-loss head gives .* not finite.*diverged\. .* lower optim\.lr"):
        finite(made(features()), "win-draw-loss")


@pytest.mark.parametrize("options", [{"pool": "max"}, {"inner": 0}, {"per_token": 1 << 30}])
def test_a_readout_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"flat or mean.*got .*" + str(next(iter(options.values())))):
        ReadoutConfig(**options)
