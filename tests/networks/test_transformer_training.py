"""The denoising transformer learns: every weight has its gradient, in every form and precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy.networks import DenoisingTransformer, NetworkConfig
from tests.networks.small_networks import (
    FORMS,
    TIMES,
    clean_tokens,
    every_form,
    layout_of,
    name_of,
    network,
    noised,
    num_weights,
)


@pytest.mark.parametrize(
    "options",
    [FORMS[0], *(pytest.param(each, marks=pytest.mark.thorough) for each in FORMS[1:])],
    ids=name_of,
)
def test_overfits_a_few_rows(options: dict[str, Any]) -> None:
    layout = layout_of(horizon=2)
    net = DenoisingTransformer(
        layout,
        NetworkConfig(num_layers=2, width=32, num_heads=2, init_std=0.1, **options),
        generator=torch.Generator().manual_seed(0),
    )
    clean = clean_tokens(layout, 8)
    where = ~torch.from_numpy(layout.given).expand(8, -1)
    tokens, t = torch.where(where, layout.mask, clean), torch.full((8,), 20)
    optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(150):
        loss = net.token_nll(tokens, t, clean, where).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.05


@every_form
def test_state_dict_goes_there_and_back(options: dict[str, Any]) -> None:
    layout = layout_of()
    one, two = network(layout, 0, **options), network(layout, 1, **options)
    two.load_state_dict(one.state_dict())
    tokens = clean_tokens(layout)
    for a, b in zip(one(tokens, TIMES).groups, two(tokens, TIMES).groups, strict=True):
        assert torch.equal(a.logits, b.logits)
    assert sum(v.numel() for v in one.state_dict().values()) == num_weights(one)


@every_form
def test_every_weight_has_a_gradient_and_dropout_acts_in_training_alone(options: dict[str, Any]) -> None:
    layout = layout_of("s-avsav", 2, admit_pad=True)
    net = network(layout, dropout=0.2, **options)
    clean = clean_tokens(layout)
    tokens, where = noised(layout, clean)
    assert torch.equal(*(net.token_nll(tokens, TIMES, clean, where) for _ in range(2)))
    net.train()
    first, second = (net.token_nll(tokens, TIMES, clean, where) for _ in range(2))
    assert not torch.equal(first, second)
    first.sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None] == []


@pytest.mark.sampled(5)
@every_form
@pytest.mark.parametrize("admit_pad", [False, True])
@pytest.mark.parametrize("trained", [0, 1], ids=["nothing", "one square"])
def test_every_weight_has_a_gradient_whatever_is_trained(
    options: dict[str, Any], admit_pad: bool, trained: int
) -> None:
    """DistributedDataParallel stops where a weight takes no part in the loss of some process."""
    layout = layout_of("s-avsav", 2, admit_pad=admit_pad)
    for dtype in (torch.float32, torch.float64):
        net = network(layout, **options).to(dtype)
        clean = clean_tokens(layout)
        where = torch.zeros_like(clean, dtype=torch.bool)
        where[0, layout.slots[-3].start] = bool(trained)
        nll = net.token_nll(clean, TIMES, clean, where)
        assert len(nll) == trained
        nll.sum().backward()
        assert [name for name, p in net.named_parameters() if p.grad is None] == []


def test_gradients_of_the_whole_network_equal_finite_differences() -> None:
    layout = layout_of(horizon=2, admit_pad=True)
    net = network(layout, geometry="board", head="typed", time_conditioning=True)
    clean = clean_tokens(layout)
    tokens, where = noised(layout, clean)

    def loss() -> Tensor:
        return net.token_nll(tokens, TIMES, clean, where).sum()

    loss().backward()
    generator = torch.Generator().manual_seed(5)
    for name, parameter in net.named_parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        assert parameter.grad is not None
        slope = (parameter.grad * direction).sum().item()
        with torch.no_grad():
            values = []
            for step in (1e-5, -2e-5):
                parameter.add_(direction, alpha=step)
                values.append(loss().item())
            parameter.add_(direction, alpha=1e-5)
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-4, abs=1e-5), name


@every_form
def test_trains_under_autocast(options: dict[str, Any]) -> None:
    layout = layout_of("s-avsav", 2, admit_pad=True)
    net = network(layout, **options).float()
    clean = clean_tokens(layout)
    tokens, where = noised(layout, clean)
    expected = net.token_nll(tokens, TIMES, clean, where)
    with torch.autocast("cpu", torch.bfloat16):
        got = net.token_nll(tokens, TIMES, clean, where)
        logits = net(tokens, TIMES)
    got.mean().backward()
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, rtol=0.1, atol=0.1)  # bfloat16 has 8 bits
    torch.testing.assert_close(-logits.log_prob(clean)[where].float(), got, rtol=0.05, atol=0.05)
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())
