"""One pass over every block of a record gives what a call for each block gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy.errors import ConfigError
from genpolicy.networks import DenoisingTransformer
from genpolicy.networks.every_block import EveryBlock, require_every_block
from genpolicy.sequence import Layout
from tests.networks.small_networks import clean_tokens, every_form, layout_of, network, noised

BOARD: dict[str, Any] = {"geometry": "board", "head": "typed"}


def by_blocks(net: DenoisingTransformer, layout: Layout, clean: Tensor, xt: Tensor, where: Tensor) -> Tensor:
    """[B, N] -log p of the tokens of ``where``, by a call for each block; zero elsewhere."""
    out = torch.zeros(clean.shape, dtype=torch.float64)
    blocks = torch.from_numpy(layout.blocks)
    for block in range(int(blocks.max()) + 1):
        end = int((blocks <= block).sum())
        own = (blocks == block)[:end]
        view = torch.where(own, xt[:, :end], clean[:, :end])
        asked = where[:, :end] & own
        nll = net.token_nll(view, None, clean[:, :end], asked)
        out[:, :end] += torch.zeros(asked.shape, dtype=nll.dtype).masked_scatter(asked, nll)
    return out


def assert_same(net: DenoisingTransformer, layout: Layout) -> None:
    clean = clean_tokens(layout)
    xt, where = noised(layout, clean)
    expected = by_blocks(net, layout, clean, xt, where)
    got = EveryBlock(layout, net, clean).token_nll(xt, None, clean, where)
    torch.testing.assert_close(got, expected[where], rtol=1e-10, atol=1e-10)
    assert got.min() > 0


@every_form
def test_one_pass_is_a_call_for_each_block(options: dict[str, Any]) -> None:
    layout = layout_of("s-avsav")
    assert_same(network(layout, **{**options, "attention": "block_causal", "time_conditioning": False}), layout)


@pytest.mark.parametrize("paradigm", ["s-a", "sa-v", "s-aa", "s-asa", "s-ass", "s-avav"])
@pytest.mark.parametrize("shown", [True, False])
def test_in_every_paradigm(paradigm: str, shown: bool) -> None:
    layout = layout_of(paradigm, 1 if paradigm in ("s-a", "sa-v") else 3)
    assert_same(network(layout, attention="block_causal", shown_moves=shown, **BOARD), layout)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options",
    [
        *({"bias": bias} for bias in ("none", "shaw", "smolgen", "templates")),
        {"norm": "post"},
        {"gates": True, "board_code": 4},
        {"positions": "rotary"},
        {"tied": True},
    ],
    ids=str,
)
def test_with_every_bias_and_form_of_block(options: dict[str, Any]) -> None:
    layout = layout_of("s-avsav")
    assert_same(network(layout, attention="block_causal", **BOARD, **options), layout)


def test_gradients_are_the_sum_of_those_of_the_calls() -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention="block_causal", **BOARD)
    clean = clean_tokens(layout)
    xt, where = noised(layout, clean)
    by_blocks(net, layout, clean, xt, where).sum().backward()
    expected = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    EveryBlock(layout, net, clean).token_nll(xt, None, clean, where).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-8, atol=1e-10)


def test_what_is_hidden_of_earlier_blocks_is_not_seen() -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention="block_causal", **BOARD)
    clean = clean_tokens(layout)
    xt, where = noised(layout, clean)
    is_value = torch.from_numpy(layout.kinds == 2)
    hidden = clean.masked_fill(is_value, layout.mask)
    other = clean.masked_fill(is_value, int(clean[0, is_value][0]))
    asked = where & ~is_value
    got = EveryBlock(layout, net, hidden).token_nll(xt, None, clean, asked)
    torch.testing.assert_close(got, EveryBlock(layout, net, hidden).token_nll(xt, None, other, asked))
    assert not torch.allclose(got, EveryBlock(layout, net, clean).token_nll(xt, None, clean, asked))


@pytest.mark.parametrize(
    "options",
    [{"attention": "full"}, {"attention": "prefix"}, {"attention": "block_causal", "time_conditioning": True}],
)
def test_other_networks_are_refused(options: dict[str, Any]) -> None:
    layout = layout_of("s-asa")
    with pytest.raises(ConfigError, match="attention=block_causal"):
        require_every_block(network(layout, **BOARD, **options))
