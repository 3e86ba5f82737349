"""Copied symbols: what an imagined token is told, raised by a gate."""

from __future__ import annotations

import itertools

import pytest
import torch

import genpolicy
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.transformer import DenoisingTransformer
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.sequence import Layout
from tests.networks.test_shown_moves import GAMES, counted, left_by, shown, some_tokens

SHAPE = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2}


def network(layout: Layout, *, copies: bool) -> DenoisingTransformer:
    config = NetworkConfig(**SHAPE, copied_symbols=copies)
    return DenoisingTransformer(layout, config, generator=torch.Generator().manual_seed(0)).eval()


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("paradigm", ["s-asa", "s-avsav"])
def test_an_open_gate_copies_what_the_tables_of_the_game_say(name: str, paradigm: str) -> None:
    layout = Layout(genpolicy.load_game(name), paradigm, 3)
    made = network(layout, copies=True)
    made.head.copies.gate.bias.data.fill_(1e4)
    tokens = some_tokens(layout, 4)
    logits = made(tokens, torch.ones(4)).dense()
    states = [slot for slot in layout.slots if slot.kind == "state"]
    for row, ids in enumerate(tokens.tolist()):
        known = ids[states[0].start : states[0].stop]
        for before, after in itertools.pairwise(states):
            told = counted(layout, left_by(layout, ids, before.ply, known))
            places = [k for k, symbol in enumerate(told) if layout.admitted[after.start + k, symbol]]
            chosen = logits[row, after.start : after.stop].argmax(-1).tolist()
            assert [chosen[k] for k in places] == [told[k] for k in places]
            own = ids[after.start : after.stop]
            known = [symbol if symbol < layout.move_offset else known[k] for k, symbol in enumerate(own)]


def test_copies_begin_without_effect_and_learn() -> None:
    layout = Layout(genpolicy.load_game(GAMES[2]), "s-asa", 2)
    plain, copies = (network(layout, copies=on) for on in (False, True))
    tokens, clean = some_tokens(layout, 4), some_tokens(layout, 4, seed=1)
    for one, other in zip(plain(tokens, torch.ones(4)).groups, copies(tokens, torch.ones(4)).groups, strict=True):
        torch.testing.assert_close(one.logits, other.logits)
    where = torch.from_numpy((layout.kinds == 0) & ~layout.given).expand(4, -1) & (tokens == layout.mask)
    told = copies.token_nll(tokens, torch.ones(4), clean.where(clean != layout.mask, 0), where)
    told[told.isfinite()].sum().backward()
    assert float(copies.head.copies.gate.weight.grad.abs().sum()) > 0


def test_a_token_is_told_its_own_symbol_also_where_the_one_before_it_predicts_it() -> None:
    layout = Layout(genpolicy.load_game(GAMES[0]), "s-asa", 3)
    tokens = some_tokens(layout, 3)
    assert torch.equal(shown(layout, causal=True).told_symbols(tokens), shown(layout).told_symbols(tokens))


def test_what_imagines_no_state_has_no_gate() -> None:
    layout = Layout(genpolicy.load_game(GAMES[2]), "s-a", 1)
    assert network(layout, copies=True).head.copies is None


@pytest.mark.parametrize("wrong", [{"head": "unified"}, {"shown_moves": False}])
def test_copies_need_what_tells_the_symbols_and_a_typed_head(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="copied_symbols needs shown moves and head=typed"):
        NetworkConfig(**{**SHAPE, "copied_symbols": True, **wrong})


def test_training_goes_on_from_a_network_without_copies_and_not_from_one_with_them() -> None:
    game = genpolicy.load_game(GAMES[2])
    plain, copies = (
        DiffusionLearner(game, DiffusionConfig(horizon=2, network=NetworkConfig(**SHAPE, copied_symbols=on)))
        for on in (False, True)
    )
    copies.take_weights(plain)
    tokens = some_tokens(copies.layout, 2)
    torch.testing.assert_close(copies.network(tokens).groups[0].logits, plain.network(tokens).groups[0].logits)
    with pytest.raises(CheckpointError, match=r"head\.copies"):
        plain.take_weights(copies)
    longer = DiffusionLearner(game, DiffusionConfig(horizon=3, network=NetworkConfig(**SHAPE)))
    with pytest.raises(CheckpointError, match=r"head\.copies"):
        longer.take_weights(copies)
