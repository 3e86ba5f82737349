"""The symbols around a move's squares in its logit: against a slow reading of the definition, and as rules of chess."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.errors import ConfigError
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.networks.moves import TERMS_SCALE, SymbolTerms
from genpolicy.sequence import KINDS, Layout
from genpolicy.training.setup import make_learner
from genpolicy_policy_baselines.causal import CausalTransformer
from tests.networks.small_networks import clean_tokens, fake_game, layout_of, network, noised

GAMES = ("chess", "shogi", "connect:rows=3,cols=3,k=3,gravity=false")
FORM = {"geometry": "board", "head": "typed", "move_symbols": True}


def made_for(layout: Layout) -> SymbolTerms:
    source, target = (
        np.where(places >= 0, places, layout.state_length).astype(np.int64)
        for places in (layout.moves.source, layout.moves.target)
    )
    return SymbolTerms(layout, source, target)


def squares_between(tokens: Any, source: int, target: int) -> list[int]:
    """Places on the straight line between two places, by walking towards the target one step at a time."""
    if source < 0 or target < 0 or tokens.rows[source] < 0 or tokens.rows[target] < 0:
        return []
    here, goal = ((int(tokens.rows[place]), int(tokens.cols[place])) for place in (source, target))
    step = tuple((g > h) - (g < h) for h, g in zip(here, goal, strict=True))
    found = []
    while (here := (here[0] + step[0], here[1] + step[1])) != goal:
        if not (0 <= here[0] <= tokens.rows.max() and 0 <= here[1] <= tokens.cols.max()):
            return []
        found += [p for p in range(tokens.length) if (tokens.rows[p], tokens.cols[p]) == here]
    return found


@pytest.mark.parametrize("spec", [*GAMES, "fake"])
def test_terms_are_those_of_the_definition(spec: str) -> None:
    game = fake_game() if spec == "fake" else genpolicy.load_game(spec)
    layout = Layout(game, "s-a", 1)
    terms, tokens, moves = made_for(layout), game.tokens, game.moves
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for table in terms.parameters():
            table.normal_(generator=draw)
    num = layout.move_offset
    state = torch.randint(0, num + 1, (2, layout.state_length), generator=draw)
    state[0, 0] = layout.mask
    got = (terms(state) / TERMS_SCALE).detach()
    pair, between = terms.by_pair.view(num + 1, num + 1), terms.by_between
    row_of_key: dict[tuple[int, ...], int] = {}
    step_table = terms.by_step.view(-1, num + 1)
    for row, m in itertools.product(range(2), range(0, len(moves.texts), 1 + len(moves.texts) // 400)):
        i, j = int(moves.source[m]), int(moves.target[m])
        at = [int(state[row, place].clamp(max=num)) if place >= 0 else num for place in (i, j)]
        is_step = i >= 0 and j >= 0 and tokens.rows[i] >= 0 and tokens.rows[j] >= 0
        apart = (
            (int(tokens.rows[j]) - int(tokens.rows[i]), int(tokens.cols[j]) - int(tokens.cols[i])) if is_step else ()
        )
        key = (int(moves.kind[m]), *apart)
        row_of_key.setdefault(key, int(terms.step[m]) // (num + 1))
        rest = pair[at[0], at[1]]
        for place in squares_between(tokens, i, j):
            rest = rest + between[state[row, place].clamp(max=num)]
        expected = rest + step_table[row_of_key[key], at[0]]
        torch.testing.assert_close(got[row, m], expected.detach(), rtol=1e-4, atol=1e-5)
    assert len(set(row_of_key.values())) == len(row_of_key), "each step has a row of its own"


def test_the_tables_can_say_how_pieces_of_chess_move() -> None:
    """Steps by piece, own pieces as targets and pieces in the way leave the pseudo-legal moves of pieces, no others."""
    chess = pytest.importorskip("chess")
    game: Any = genpolicy.load_game("chess")
    layout = Layout(game, "s-a", 1)
    terms, symbols = made_for(layout), game.tokens.symbols
    size, empty = layout.move_offset + 1, symbols.index(".")
    shapes = {
        "N": {(1, 2)},
        "B": {(n, n) for n in range(1, 8)},
        "R": {(0, n) for n in range(1, 8)},
        "K": {(0, 1), (1, 1)},
    }
    shapes["Q"] = shapes["B"] | shapes["R"]
    step, pair = torch.full((len(terms.by_step) // size, size), -100.0), torch.zeros(size, size)
    rows, cols = game.tokens.rows, game.tokens.cols
    for m, (i, j) in enumerate(zip(game.moves.source.tolist(), game.moves.target.tolist(), strict=True)):
        apart = tuple(sorted((abs(int(rows[j]) - int(rows[i])), abs(int(cols[j]) - int(cols[i])))))
        for piece, allowed in shapes.items():
            if apart in allowed and len(game.moves[m]) == 4:
                step[int(terms.step[m]) // size, symbols.index(piece)] = 0.0
    own = [symbols.index(piece) for piece in "PNBRQK"]
    pair[:, own] = -100.0
    between = torch.full((size,), -100.0)
    between[empty] = 0.0
    with torch.no_grad():
        terms.by_step.copy_(step.flatten())
        terms.by_pair.copy_(pair.flatten())
        terms.by_between.copy_(between)
    rng, seen = random.Random(0), 0
    for _ in range(10):
        board = chess.Board()
        for _ in range(60):
            moves = list(board.legal_moves)
            if not moves:
                break
            board.push(rng.choice(moves))
            if board.turn == chess.BLACK or rng.random() < 0.7:
                continue
            tokens = torch.from_numpy(game.tokens.encode([game.parse(board.fen())]).astype(np.int64))
            found = {game.moves[m] for m in torch.nonzero(terms(tokens)[0] > -50).flatten().tolist()}
            pieces = board.occupied_co[chess.WHITE] & ~board.pawns
            expected = {m.uci() for m in board.generate_pseudo_legal_moves(pieces) if not board.is_castling(m)}
            assert found == expected, board.fen()
            seen += 1
    assert seen > 30


@pytest.mark.parametrize("paradigm", ["s-asa", "s-avsav"])
def test_a_move_reads_the_state_that_it_is_made_in(paradigm: str) -> None:
    layout = layout_of(paradigm, 2)
    net = network(layout, **FORM)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if ".terms." not in name:
                parameter.zero_()
    tokens = clean_tokens(layout, 1)
    tokens[0, ~torch.from_numpy(layout.given)] = layout.mask
    actions = np.flatnonzero(layout.kinds == KINDS.index("action"))
    for a, slot in enumerate(slot for slot in layout.slots if slot.kind == "state"):
        changed = tokens.clone()
        places = torch.arange(slot.start, slot.start + 6)
        changed[0, places] = (tokens[0, places] + 1) % 4
        before, after = net(tokens).dense(), net(changed).dense()
        moved = (before - after).nan_to_num().abs().amax(dim=(0, 2)) > 1e-9
        assert moved[actions].tolist() == [place == a for place in range(len(actions))]


def test_at_first_they_change_nothing() -> None:
    layout = layout_of("s-asa", 2)
    config = {"num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 4, "geometry": "board", "head": "typed"}
    nets = [
        DenoisingTransformer(
            layout, NetworkConfig(**config, move_symbols=on), generator=torch.Generator().manual_seed(0)
        )
        for on in (False, True)
    ]
    tokens, _ = noised(layout, clean_tokens(layout))
    for one, other in zip(*(net(tokens).groups for net in nets), strict=True):
        assert torch.equal(one.logits, other.logits)


@pytest.mark.parametrize("pad", [{}, {"factorised_pad": True}])
def test_apart_the_network_learns_as_without_them_and_they_as_beside_it(pad: dict[str, Any]) -> None:
    layout = layout_of("s-avsav", 2, admit_pad=bool(pad))
    tokens, where = noised(layout, clean_tokens(layout))
    targets = clean_tokens(layout)
    grads: dict[str | bool, dict[str, torch.Tensor]] = {}
    values = {}
    for kind in (False, True, "apart"):
        net = network(layout, **{**FORM, "move_symbols": kind}, **pad)
        draw = torch.Generator().manual_seed(1)
        with torch.no_grad():  # the same weights for all, and tables that matter
            for name, parameter in net.named_parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))) / 4)
                if ".terms." in name:
                    parameter.normal_(generator=draw).mul_(0.05)
        nll = net.token_nll(tokens, None, targets, where)
        values[kind] = nll.detach()
        with torch.no_grad():
            torch.testing.assert_close(net.token_nll(tokens, None, targets, where), nll.detach())
        nll[nll.isfinite()].sum().backward()
        grads[kind] = {name: each.grad for name, each in net.named_parameters() if each.grad is not None}
    torch.testing.assert_close(values["apart"], values[True])
    assert not torch.equal(values["apart"], values[False])
    tables = {name for name in grads["apart"] if ".terms." in name}
    assert len(tables) == 3
    for name, gradient in grads["apart"].items():
        torch.testing.assert_close(gradient, grads[name in tables][name], msg=name)


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="move_symbols must be true, false or apart, got 'beside'"):
        NetworkConfig(**{**FORM, "move_symbols": "beside"})


@pytest.mark.parametrize("options", [{"geometry": "sequence"}, {"head": "unified"}, {"move_rank": 0}])
def test_they_need_the_factorised_head(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="move_symbols needs the factorised move head"):
        NetworkConfig(**{**FORM, **options})


@pytest.mark.parametrize("paradigm", ["s-aa", "s-asa", "s-avsav"])
def test_from_left_to_right_nothing_later_is_read(paradigm: str) -> None:
    layout = layout_of(paradigm, 2)
    shape = {"num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 4, "init_std": 0.5, **FORM}
    net = CausalTransformer(layout, NetworkConfig(**shape), generator=torch.Generator().manual_seed(0)).double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, table in net.named_parameters():
            if ".terms." in name:
                table.normal_(generator=draw)
    tokens = clean_tokens(layout, 1)
    before = net(tokens).dense()
    for at in range(layout.length):
        changed = tokens.clone()
        admitted = np.flatnonzero(layout.admitted[at])
        changed[0, at] = int(admitted[admitted != int(tokens[0, at])][0])
        moved = (net(changed).dense() - before).nan_to_num().abs().amax(dim=(0, 2)) > 1e-12
        imagined_before = (torch.arange(layout.length) <= at) & ~torch.from_numpy(layout.given)
        assert not bool((moved & imagined_before).any())


@pytest.mark.parametrize("attention", ["prefix", "block_causal"])
def test_they_read_an_encoded_position(attention: str) -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention=attention, **FORM)
    tokens, _ = noised(layout, clean_tokens(layout))
    torch.testing.assert_close(net.denoise(tokens, None, net.encode(tokens)).dense(), net(tokens).dense())


LEARNERS = ("one_step", "autoregressive", "direct", "gaussian", "policy_value", "diffusion", "diffusion by ply")


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_decides_with_them(name: str) -> None:
    game: Any = genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false")
    shape = {"num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 4, **FORM}
    settings: dict[str, Any] = {"kind": name.partition(" ")[0], "network": shape}
    if name not in ("one_step", "policy_value"):
        settings |= {"paradigm": "s-avsav" if "diffusion" in name else "s-asa", "horizon": 2}
    if "ply" in name:
        settings |= {"process": {"order": "ply"}, "sampler": {"name": "by_ply", "candidates": 3}}
    learner: Any = make_learner(game, settings)
    assert any(".terms." in key for key in learner.network.state_dict())
    decision = learner.policy().decide([game.parse()])[0]
    assert decision.move in game.legal(game.parse())
