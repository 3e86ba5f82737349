"""Gaussian diffusion of embeddings: its laws, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genpolicy.errors import ConfigError
from genpolicy_policy_baselines.gaussian_embedding import GaussianEmbedding
from tests.diffusion.gaussian_laws import check_gaussian, is_resolved

OPTIONS: list[dict[str, Any]] = [
    {"prediction": "x0_ce"},
    {"prediction": "eps"},
    {"prediction": "eps", "schedule": "learned", "weighting": "elbo"},
    {"prediction": "x0_ce", "embedding": "one_hot"},
]


def two_points(**options: Any) -> GaussianEmbedding:
    """Embeddings +1 and -1 on a line, with ends of gamma that a grid can resolve."""
    torch.manual_seed(0)
    process = GaussianEmbedding(2, 4, width=1, gamma_min=-4.0, gamma_max=3.0, **options).double()
    with torch.no_grad():
        process.table.copy_(torch.tensor([[1.0], [-1.0]]))
    return process


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_keeps_the_laws_with_two_symbols_on_a_line(options: dict[str, Any]) -> None:
    check_gaussian(two_points(**options), num_draws=4_000)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_keeps_the_laws_with_five_symbols(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    check_gaussian(GaussianEmbedding(5, 20, **{"width": 3, **options}).double(), num_draws=4_000)


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_steps_too_narrow_for_the_grid_are_not_called_wrong(options: dict[str, Any]) -> None:
    """VDM's own ends of gamma: sigma_0 is 0.0013, and sums over a grid of 0.01 are not integrals."""
    for seed in range(3):
        torch.manual_seed(seed)
        check_gaussian(GaussianEmbedding(2, 4, width=1, **options).double(), num_draws=2_000)


def test_a_wrong_posterior_is_caught() -> None:
    class Wrong(GaussianEmbedding):
        def posterior(self, zt: Any, e: Any, t: Any, s: Any) -> Any:
            mean, std = super().posterior(zt, e, t, s)
            return mean, 1.01 * std

    with pytest.raises(AssertionError, match="posterior deviation"):
        check_gaussian(Wrong(3, 4).double())


def test_a_wrong_bound_is_caught() -> None:
    process = two_points(prediction="eps")
    assert is_resolved(process)
    process.step_weight = lambda t, s: 0.0 * t  # type: ignore[method-assign,assignment]
    with pytest.raises(AssertionError, match="weight of step"):
        check_gaussian(process)


def test_the_nearest_embedding_is_read_out() -> None:
    process = GaussianEmbedding(7, width=4).double()
    e = process.embeddings().detach()
    near = e[None] + 0.05 * torch.randn(1, 7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = process.read_out(near, torch.tensor([0.4]).double()).dense()
    assert logits.argmax(-1).tolist() == [list(range(7))]
    exact = -0.5 * torch.exp(-process.gamma(torch.tensor(0.4).double())) * torch.cdist(near, e[None]) ** 2
    torch.testing.assert_close(logits, exact.log_softmax(-1), atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prediction": "x0"}, "prediction must be one of .*; got 'x0'"),
        ({"schedule": "learned"}, "cross-entropy"),
        ({"weighting": "elbo"}, "cross-entropy"),
        ({"gamma_min": 5.0}, "gamma must rise"),
        ({"width": 0}, "width must be at least 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GaussianEmbedding(4, **options)


def test_ids_and_times_out_of_range_are_refused() -> None:
    process = GaussianEmbedding(4)
    with pytest.raises(ValueError, match="token ids"):
        process.noise(torch.tensor([[5]]), torch.tensor([0.5]))
    with pytest.raises(ValueError, match=r"t must be in \[0, 1\]"):
        process.noise(torch.tensor([[1]]), torch.tensor([1.5]))
