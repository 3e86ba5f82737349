"""Predictions cut into groups of tokens that admit the same symbols: the same numbers, every token once."""

from __future__ import annotations

import pytest
import torch

from genpolicy.diffusion import Absorbing, make_sampler
from genpolicy.diffusion.logits import LogitGroup, TypedLogits
from genpolicy.diffusion.ranking import AdmittedParts, draw_tokens


def prediction(admitted: torch.Tensor) -> tuple[TypedLogits, TypedLogits]:
    """A prediction of two groups over all symbols, restricted; and the same in parts."""
    num, k = admitted.shape
    stream = torch.Generator().manual_seed(0)
    everything = torch.arange(k)
    groups = tuple(
        LogitGroup(places, everything, torch.randn(3, len(places), k, generator=stream))
        for places in (torch.arange(0, num, 2), torch.arange(1, num, 2))
    )
    whole = TypedLogits(groups, num, k)
    return whole, AdmittedParts(admitted)(whole)


def some_sets() -> torch.Tensor:
    """[8, 11]: a range, a range with a gap, single symbols, all; each for more than one token."""
    admitted = torch.zeros(8, 11, dtype=torch.bool)
    admitted[0, :4] = admitted[3, :4] = admitted[4, :4] = True
    admitted[1, [2, 5, 6]] = admitted[5, [2, 5, 6]] = True
    admitted[2, 10] = admitted[6, 10] = True
    admitted[7] = True
    return admitted


def test_parts_say_what_the_restricted_whole_says() -> None:
    admitted = some_sets()
    whole, parts = prediction(admitted)
    places = torch.cat([g.positions for g in parts.groups])
    assert sorted(places.tolist()) == list(range(8))
    for g in parts.groups:
        for row, place in enumerate(g.positions.tolist()):
            assert set(torch.nonzero(admitted[place]).flatten().tolist()) <= set(g.symbols.tolist())
            source = next(w for w in whole.groups if place in w.positions.tolist())
            at = source.positions.tolist().index(place)
            usable = source.logits[:, at].masked_fill(~admitted[place], -torch.inf)
            assert torch.equal(g.logits[:, row], usable[:, g.symbols])
    torch.testing.assert_close(parts.dense(), whole.restrict(admitted).dense(), rtol=0, atol=1e-6)


def test_tokens_that_admit_nearly_the_same_are_one_group() -> None:
    """Groups of few logits are put together, so long as few are added that a token does not admit."""
    admitted = torch.zeros(8 + 64, 2000, dtype=torch.bool)
    for token in range(4):
        admitted[token, token : token + 2] = True
    admitted[4:8, 1000:] = True  # as moves beside rights: four times six symbols more are one group too many
    admitted[8:40, 100:113] = True
    admitted[40:, 101:113] = True
    typed = TypedLogits.of(torch.zeros(1, 72, 2000))
    found = {(len(g.positions), len(g.symbols)) for g in AdmittedParts(admitted)(typed).groups}
    assert found == {(4, 5), (4, 1000), (64, 13)}


def test_what_is_restricted_already_is_left_alone() -> None:
    admitted = some_sets()
    _, parts = prediction(admitted)
    assert parts.restrict(admitted) is parts
    other = admitted.clone()
    other[0, 0] = False
    assert float(parts.restrict(other).dense()[0, 0, 0]) == -torch.inf
    assert float(parts.map(lambda g: 2 * g.logits).restrict(admitted).dense()[0, 0, 0]) > -torch.inf


def test_a_token_that_admits_nothing_is_not_hidden() -> None:
    """It keeps its logits in the parts, and loses them where it is restricted, as in an undivided prediction."""
    admitted = some_sets()
    admitted[6] = False
    _, parts = prediction(admitted)
    assert parts.restrict(admitted) is not parts
    kept = next(g for g in parts.groups if 6 in g.positions.tolist())
    assert len(kept.symbols) == 11
    nothing = next(g for g in parts.restrict(admitted).groups if 6 in g.positions.tolist())
    assert bool(nothing.logits[:, nothing.positions.tolist().index(6)].isneginf().all())


@pytest.mark.parametrize("symbols", [[0, 1, 2], [1, 4, 9], [7]])
def test_local_ids_are_places_among_the_groups_symbols(symbols: list[int]) -> None:
    g = LogitGroup(torch.tensor([0, 2]), torch.tensor(symbols), torch.zeros(1, 2, len(symbols)))
    typed = TypedLogits((g,), 3, 10)
    for symbol in range(11):  # 10 is the mask
        local, known = typed.local_ids(g, torch.tensor([[symbol, 0, symbol]]))
        assert bool(known.all()) == (symbol in symbols)
        assert local.tolist() == [[symbols.index(symbol) if symbol in symbols else 0] * 2]


def test_nothing_is_drawn_where_nothing_is_asked() -> None:
    _, parts = prediction(some_sets())
    where = torch.zeros(3, 8, dtype=torch.bool)
    where[1, 2] = where[2, 5] = True
    drawn = draw_tokens(parts, torch.full((3, 8), 0.999, dtype=torch.float64), where)
    assert drawn[1, 2] == 10
    assert drawn[2, 5] in (2, 5, 6)
    assert int((drawn != 0).sum()) == 2


def test_a_sampler_splits_by_one_tensor_once() -> None:
    sampler = make_sampler("easy_first", Absorbing(11, 4))
    admitted = some_sets()
    parts = sampler.parts_of(admitted)
    assert sampler.parts_of(admitted) is parts
    assert sampler.parts_of(admitted.clone()) is not parts
    assert sampler.parts_of(None) == sampler.parts_of(admitted.expand(3, -1, -1)) == TypedLogits.of
