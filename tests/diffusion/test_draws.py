"""Draws of symbols: nothing impossible, nothing lost, nothing favoured."""

import pytest
import torch

from genpolicy.diffusion.logits import TypedLogits
from genpolicy.diffusion.random import admitted_uniform, categorical
from genpolicy.diffusion.ranking import draw_symbols, tempered

# Draws.


def test_categorical_never_draws_the_impossible() -> None:
    p = torch.tensor([0.0, 0.3, 0.0, 0.7, 0.0], dtype=torch.float64)
    edges = torch.tensor([0.0, 0.3 - 1e-12, 0.3, 1 - 2**-53], dtype=torch.float64)
    assert categorical(p.expand(4, -1), edges).tolist() == [1, 1, 3, 3]
    ones = torch.full((3,), 1 - 2**-53, dtype=torch.float64)
    wide = torch.rand(3, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wide[:, 500:] = 0
    assert bool((categorical(wide, ones) < 500).all())


def test_categorical_keeps_small_probabilities() -> None:
    """Float32 Gumbel noise would never draw the second symbol."""
    p = torch.tensor([1.0, 1e-9], dtype=torch.float64)
    assert int(categorical(p, torch.tensor(1 - 1e-10, dtype=torch.float64))) == 1


@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e-40, 1e-30])
def test_the_smallest_temperatures_take_the_likeliest(temperature: float) -> None:
    """A float holds temperatures by which a logit cannot be divided."""
    logits = TypedLogits.of(torch.tensor([[[1.0, 9.0, -torch.inf, 8.0], [-3.0, -2.0, -1.0, -9.0]]]))
    everywhere = torch.ones(1, 2, dtype=torch.bool)
    uniform = torch.full((1, 2), 0.5, dtype=torch.float64)
    assert draw_symbols(logits, uniform, everywhere, temperature).tolist() == [[1, 2]]
    assert tempered(logits, temperature).dense().softmax(-1).argmax(-1).tolist() == [[1, 2]]
    assert tempered(logits, temperature).dense().softmax(-1).isfinite().all()


def test_admitted_uniform_is_uniform_over_each_tokens_set() -> None:
    admitted = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 1]]).bool()
    uniform = torch.rand(30_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = admitted_uniform(admitted, 4, uniform)
    share = torch.nn.functional.one_hot(drawn, 4).double().mean(0)
    torch.testing.assert_close(share, admitted.double() / admitted.sum(1, keepdim=True), rtol=0, atol=0.015)
    assert torch.equal(admitted_uniform(admitted.expand(30_000, -1, -1), 4, uniform), drawn)
    assert torch.equal(admitted_uniform(None, 4, uniform[:, 2:]), drawn[:, 2:])
