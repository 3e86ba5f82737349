"""Values read from the whole board: the formula, the bins that share, and who has none."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from genpolicy.errors import ConfigError
from genpolicy.networks import NetworkConfig
from genpolicy.networks.heads import TypedHead
from genpolicy.networks.values import NUM_KNOTS, hats
from genpolicy.sequence import KINDS
from tests.networks.small_networks import clean_tokens, layout_of, network

FORM: dict[str, Any] = {"geometry": "board", "head": "typed", "board_values": 8}


@pytest.mark.parametrize("num_bins", [2, 5, 16, 128])
def test_neighbouring_bins_share_points_and_the_ends_have_their_own(num_bins: int) -> None:
    table = hats(num_bins)
    between, ends = table[:-2], table[-2:]
    np.testing.assert_allclose(between.sum(0), 1, atol=1e-6)
    assert ((between > 0).sum(0) <= 2).all()
    assert between.shape[0] == min(NUM_KNOTS, num_bins)
    assert ends[0].tolist() == [1.0] + [0.0] * (num_bins - 1)
    assert ends[1].tolist() == [0.0] * (num_bins - 1) + [1.0]


@pytest.mark.parametrize("admit_pad", [False, True])
@pytest.mark.parametrize("paradigm", [("s-v", 1), ("sa-v", 1), ("s-avav", 2), ("s-avsav", 3)])
def test_value_logits_equal_the_formula(paradigm: tuple[str, int], admit_pad: bool) -> None:
    layout = layout_of(*paradigm, admit_pad=admit_pad)
    net, tokens = network(layout, **FORM), clean_tokens(layout)
    head = cast(TypedHead, net.head)
    values, table = head.values, head.table
    assert values is not None
    assert table is not None
    hidden = net.trunk(tokens, None)
    places = np.flatnonzero(layout.kinds == KINDS.index("value"))
    group = next(g for g in net(tokens).groups if int(places[0]) in g.positions)
    rows = np.searchsorted(table.symbols, group.symbols.numpy())
    bins = torch.from_numpy(hats(layout.num_value_bins)).double()
    for place in places.tolist():
        # The state of the same ply, or the root where none is imagined.
        state = layout.slot("state", int(layout.plies[place])) or layout.slot("state", 0)
        assert state is not None
        for row in range(len(tokens)):
            each = [F.gelu(values.token.weight @ h + values.token.bias) for h in hidden[row, state.start : state.stop]]
            points = values.out(F.gelu(values.inner(torch.cat(each))))
            own = table.weight[rows] @ hidden[row, place] + table.bias[rows]
            expected = own + F.pad(points @ bins, (0, int(admit_pad)))
            got = group.logits[row, group.positions.tolist().index(place)]
            torch.testing.assert_close(got[: len(expected)], expected, rtol=1e-9, atol=1e-9)
    where = torch.zeros_like(tokens, dtype=torch.bool)
    where[:, places.tolist()] = True
    wanted = tokens[where] - layout.value_offset
    at = [group.positions.tolist().index(place) for place in places.tolist()]
    expected = F.cross_entropy(group.logits[:, at].flatten(0, 1), wanted, reduction="none")
    torch.testing.assert_close(net.token_nll(tokens, None, tokens, where), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("attention", ["prefix", "block_causal"])
def test_an_encoded_position_gives_the_same_values(attention: str) -> None:
    layout = layout_of("s-avsav", 2)
    net, tokens = network(layout, attention=attention, **FORM), clean_tokens(layout)
    whole, cached = net(tokens), net.denoise(tokens, None, net.encode(tokens))
    for one, other in zip(whole.groups, cached.groups, strict=True):
        torch.testing.assert_close(one.logits, other.logits, rtol=1e-9, atol=1e-9)


def test_without_values_there_is_no_head_for_them() -> None:
    head = cast(TypedHead, network(layout_of("s-asa"), **FORM).head)
    assert head.values is None


@pytest.mark.parametrize("options", [{"geometry": "sequence", "head": "typed"}, {"geometry": "board"}], ids=str)
def test_it_needs_squares_and_a_softmax_of_its_own(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="board_values needs geometry=board and head=typed"):
        NetworkConfig(**options, board_values=8)
