"""Codes as tokens of a sequence: what a network of either geometry and with either head makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genpolicy.diffusion.logits import TypedLogits
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.sequence import Layout
from tests.networks.small_networks import fake_game, layout_of

SHAPES: list[dict[str, Any]] = [
    {"geometry": "board", "head": "typed"},
    {"geometry": "sequence", "head": "typed"},
    {"geometry": "sequence", "head": "unified"},
]


def coded() -> Layout:
    return Layout(fake_game(), "s-aka", 3, num_books=2, num_codes=3)


def network(layout: Layout, **options: Any) -> DenoisingTransformer:
    config = NetworkConfig(**{"num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 4, **options})
    return DenoisingTransformer(layout, config, generator=torch.Generator().manual_seed(0)).double().eval()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_code_is_predicted_among_those_of_its_book(shape: dict[str, Any]) -> None:
    """By the groups of the prediction, and by the loss, which is that of the same probabilities."""
    layout = coded()
    net, admitted = network(layout, **shape), torch.from_numpy(layout.admitted.copy())
    tokens = torch.full((2, layout.length), layout.mask)
    tokens[:, : layout.state_length] = 1
    typed = TypedLogits.of(net(tokens)).restrict(admitted)
    total = torch.zeros(2, layout.length)
    for symbol in range(layout.num_symbols):
        total += typed.log_prob(torch.full_like(tokens, symbol)).exp().nan_to_num(0.0) * admitted[:, symbol]
    torch.testing.assert_close(total[:, layout.state_length :], torch.ones(2, layout.length - layout.state_length))
    if shape["head"] == "typed":
        where = torch.from_numpy(layout.books >= 0).expand(2, -1)
        targets = tokens.clone()
        targets[:, layout.books >= 0] = layout.code_offset + torch.tensor([0, 4, 2, 5])
        nll = net.token_nll(tokens, None, targets, where)
        expected = -typed.log_prob(targets.where(where, torch.zeros_like(tokens)))[where]
        torch.testing.assert_close(nll, expected.double(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_masked_codes_of_two_books_are_not_the_same_to_it(shape: dict[str, Any]) -> None:
    layout = coded()
    net = network(layout, **shape)
    tokens = torch.full((1, layout.length), layout.mask)
    tokens[:, : layout.state_length] = 1
    features, at = net.trunk(tokens, None)[0], (layout.books >= 0).nonzero()[0]
    assert float((features[at[0]] - features[at[1]]).detach().abs().max()) > 1e-3


def test_without_codes_weights_have_the_shapes_of_older_folders() -> None:
    assert network(layout_of(), geometry="board", head="typed").trunk.embedding.kind.shape == (3, 16)
