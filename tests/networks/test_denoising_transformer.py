"""The denoising transformer: both geometries, both heads, against laws and slow second computations."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from genpolicy.config import compose, to_dict
from genpolicy.diffusion.logits import NEGATIVE_INFINITY, TypedLogits, token_nll
from genpolicy.errors import ConfigError
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.networks.biases import RelativeBias, ply_relations, token_classes
from genpolicy.networks.embedding import BoardEmbedding
from genpolicy.networks.heads import TypedHead, clusters_of
from genpolicy.networks.transformer import Block
from genpolicy.sequence import KINDS, Layout
from tests.networks.small_networks import (
    COLS,
    ROWS,
    TIMES,
    clean_tokens,
    every_form,
    fake_game,
    layout_of,
    network,
    noised,
    num_weights,
)


@every_form
def test_the_first_output_depends_on_the_last_token(options: dict[str, Any]) -> None:
    layout = layout_of()
    net = network(layout, **options)
    tokens = clean_tokens(layout)
    changed = tokens.clone()
    changed[:, -1] = layout.mask
    with torch.no_grad():
        first, other = net(tokens, TIMES), net(changed, TIMES)
    group = next(i for i, g in enumerate(first.groups) if 0 in g.positions)
    one, two = (logits.groups[group].logits[:, 0] for logits in (first, other))
    assert (one - two)[one.isfinite()].abs().max() > 1e-6


@every_form
def test_a_row_does_not_depend_on_the_others(options: dict[str, Any]) -> None:
    layout = layout_of()
    net = network(layout, **options)
    tokens = clean_tokens(layout)
    others = torch.cat([tokens[:1], clean_tokens(layout, 4, seed=9)])
    for a, b in zip(net(tokens, TIMES).groups, net(others, torch.tensor([1, 3, 3, 3, 3])).groups, strict=True):
        torch.testing.assert_close(a.logits[0], b.logits[0])


@pytest.mark.sampled(7)
@every_form
@pytest.mark.parametrize("paradigm", [("s-asa", 3), ("s-a", 1), ("s-avsav", 2), ("s-aa", 2), ("sa-v", 1)])
@pytest.mark.parametrize("admit_pad", [False, True])
def test_token_nll_is_minus_log_prob_of_forward(
    options: dict[str, Any], paradigm: tuple[str, int], admit_pad: bool
) -> None:
    layout = layout_of(*paradigm, admit_pad=admit_pad)
    net = network(layout, **options)
    clean = clean_tokens(layout)
    tokens, where = noised(layout, clean)
    logits = net(tokens, TIMES)
    assert sorted(int(i) for g in logits.groups for i in g.positions) == list(range(layout.length))
    expected = -logits.log_prob(clean)[where]
    got = token_nll(net, tokens, TIMES, clean, where)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    assert got.isfinite().all()
    nothing = token_nll(net, tokens, TIMES, clean, torch.zeros_like(where))
    assert nothing.shape == (0,)


@pytest.mark.parametrize("geometry", ["sequence", "board"])
@pytest.mark.parametrize("admit_pad", [False, True])
def test_typed_head_gives_exactly_nothing_to_what_is_not_admitted(geometry: str, admit_pad: bool) -> None:
    layout = layout_of("s-avsav", 2, admit_pad=admit_pad)
    logits = network(layout, geometry=geometry, head="typed")(clean_tokens(layout))
    probabilities = logits.dense().exp()
    admitted = torch.from_numpy(layout.admitted)
    assert (probabilities[:, ~admitted] == 0).all()
    assert (probabilities[:, admitted] > 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, layout.length, dtype=torch.float64))


def test_typed_nll_of_a_symbol_that_is_not_admitted_is_infinite() -> None:
    layout = layout_of()
    net = network(layout, geometry="board", head="typed")
    clean = clean_tokens(layout)
    clean[0, layout.first_action] = 0  # a piece where a move belongs
    clean[1, -10] = layout.pad
    tokens, _ = noised(layout, clean)
    nll = net.token_nll(tokens, None, clean, torch.ones_like(tokens, dtype=torch.bool)).view(clean.shape)
    assert nll[0, layout.first_action] == math.inf
    assert nll[1, -10] == math.inf
    assert int(nll.isinf().sum()) == 2


def test_unified_head_knows_every_symbol_everywhere() -> None:
    layout = layout_of()
    logits = network(layout, head="unified")(clean_tokens(layout))
    assert logits.groups[0].logits.shape == (3, layout.length, layout.num_symbols)
    assert logits.groups[0].logits.isfinite().all()


@pytest.mark.parametrize("factorised_pad", [False, True])
@pytest.mark.parametrize("gravity", [False, True])
@pytest.mark.parametrize("paradigm", [("s-asa", 3), ("s-aa", 2)])
def test_factorised_move_logits_equal_the_formula(
    gravity: bool, paradigm: tuple[str, int], factorised_pad: bool
) -> None:
    layout = layout_of(*paradigm, gravity=gravity, admit_pad=True)
    net = network(layout, geometry="board", head="typed", move_rank=5, factorised_pad=factorised_pad)
    tokens = clean_tokens(layout)
    hidden = net.trunk(tokens, None)
    head = cast(TypedHead, net.head).moves
    assert head is not None
    kinds = [k for k in range(3) if (layout.moves.kind == k).any()]  # the head holds those that occur
    group = next(g for g in net(tokens).groups if layout.first_action in g.positions)
    for a, position in enumerate(int(p) for p in np.flatnonzero(layout.kinds == KINDS.index("action"))):
        for row in range(3):
            of_action = hidden[row, position]
            logits = []
            for m in range(len(layout.moves)):
                kind = head.kinds[kinds.index(int(layout.moves.kind[m]))]
                ends = []
                for place in (int(layout.moves.source[m]), int(layout.moves.target[m])):
                    ends.append(of_action if place < 0 else hidden[row, int(layout.squares_of("action")[a, place])])
                extra = kind.of_action.weight @ of_action
                query = kind.query.weight @ ends[0] + kind.query.bias + extra[:5]
                key = kind.key.weight @ ends[1] + kind.key.bias + extra[5:]
                logits.append(query @ key / math.sqrt(5) + head.bias[m])
            places = [hidden[row, int(place)] for place in layout.squares_of("action")[a]]
            if factorised_pad:
                over = torch.stack([head.pad(place) for place in [*places, of_action]]).exp().mean().log()
                logits.append(over + torch.stack(logits).exp().mean().log())
            else:
                logits.append(head.pad.weight[0] @ of_action + head.pad.bias[0])
            expected = torch.stack(logits)
            if layout.given[position]:
                expected[-1] = NEGATIVE_INFINITY
            torch.testing.assert_close(group.logits[row, a], expected, rtol=1e-9, atol=1e-9)


def test_moves_that_cannot_be_told_apart_are_an_error() -> None:
    game = fake_game()
    game.moves.kind[:] = 0
    layout = Layout(game)
    with pytest.raises(ConfigError, match=r"0-4-0, 0-4-1 share source, target and kind.*move_rank=0"):
        DenoisingTransformer(layout, NetworkConfig(geometry="board", head="typed"))
    plain = network(layout, geometry="board", head="typed", move_rank=0)
    assert plain.head.moves is None
    hidden = torch.randn(2, layout.length, 16, dtype=torch.float64)
    action = int(np.flatnonzero(layout.kinds == KINDS.index("action"))[0])
    group = next(each for each in plain.head(hidden).groups if action in each.positions)
    symbols = group.symbols.numpy()
    table = plain.head.table
    rows = np.searchsorted(table.symbols, symbols)
    expected = hidden[:, action] @ table.weight[rows].T + table.bias[rows]
    got = group.logits[:, int((group.positions == action).nonzero())]
    finite = got > NEGATIVE_INFINITY  # the given first move admits no PAD
    assert finite.sum() >= 2 * len(game.moves)
    torch.testing.assert_close(got[finite], expected[finite])


def test_the_rank_of_the_move_head_is_not_negative() -> None:
    with pytest.raises(ConfigError, match="move_rank must be at least 0"):
        NetworkConfig(move_rank=-1)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_board_bias_equals_a_loop_over_pairs_of_tokens(positions: str) -> None:
    layout = layout_of("s-avsav", 3)
    bias = cast(RelativeBias, network(layout, geometry="board", positions=positions).trunk.bias)
    built = bias.static()
    seen: dict[tuple[Any, ...], Tensor] = {}
    by_space: dict[Any, int] = {}
    by_time: dict[Any, int] = {}
    n = layout.length
    index = bias.index.view(n, n)
    for i in range(n):
        for j in range(n):
            if layout.rows[i] >= 0 and layout.rows[j] >= 0:
                space: Any = (int(layout.rows[j] - layout.rows[i]), int(layout.cols[j] - layout.cols[i]))
            else:
                space = tuple(
                    "square" if layout.rows[x] >= 0 else (int(layout.kinds[x]), int(layout.places[x])) for x in (i, j)
                )
            step = int(layout.plies[j] - layout.plies[i]) if positions == "learned" else 0
            time = (step, layout.places[i] == layout.places[j] >= 0)
            # Equal relations share one entry and different ones do not.
            u = index[i, j]
            assert by_space.setdefault(space, int(bias.space_of[u])) == bias.space_of[u]
            assert by_time.setdefault(time, int(bias.time_of[u])) == bias.time_of[u]
            expected = bias.space[by_space[space]] + bias.time[by_time[time]]
            seen[space, time] = expected
            torch.testing.assert_close(built[:, :, i, j].reshape(-1), expected)
    assert len(set(by_space.values())) == len(by_space)
    assert len(set(by_time.values())) == len(by_time)
    assert len(by_space) >= (2 * ROWS - 1) * (2 * COLS - 1)


def test_bias_without_gradients_follows_the_tables() -> None:
    net = network(layout_of(), geometry="board")
    bias = cast(RelativeBias, net.trunk.bias)
    with torch.no_grad():
        first = bias.static()
        assert bias.static() is first
        bias.space.add_(1.0)
        torch.testing.assert_close(bias.static(), first + 1.0)
        net.load_state_dict(network(layout_of(), seed=3, geometry="board").state_dict())
        assert (bias.static() - first).abs().max() > 1.0e-3
        net.float()
        assert bias.static().dtype == torch.float32
    assert bias.static().requires_grad


def test_a_square_has_one_code_in_every_ply() -> None:
    layout = layout_of("s-ass", 3)
    embedding = cast(BoardEmbedding, network(layout, geometry="board").trunk.embedding)
    x = embedding(torch.full((1, layout.length), layout.mask))[0]
    states = [slot for slot in layout.slots if slot.kind == "state"]
    assert len(states) == 3
    for slot in states[1:]:
        # The whole difference between two plies is one vector, the same for every place.
        difference = x[slot.start : slot.stop] - x[states[0].start : states[0].stop]
        torch.testing.assert_close(difference, (embedding.ply[slot.ply] - embedding.ply[0]).expand_as(difference))
    codes = x[: layout.state_length]
    assert torch.cdist(codes, codes).add(torch.eye(len(codes)) * 9).min() > 0.1  # places differ among themselves


def test_relations_count_by_hand() -> None:
    layout = layout_of("s-asa", 2)  # 9 tokens, action, 9 tokens, action; plies 0 0 1 1
    assert token_classes(layout).tolist() == [0] * 6 + [9, 10, 11] + [1] + [0] * 6 + [9, 10, 11] + [1]
    _, num = ply_relations(layout)
    assert num == 6  # steps -1, 0, 1, each for the same place and for others
    _, num = ply_relations(layout, differences=False)
    assert num == 2


def test_rotary_positions_of_a_board_are_its_plies() -> None:
    """Between tokens of one ply nothing is rotated, and no weight belongs to one imagined ply alone."""
    layout = layout_of("s-asa", 3)
    trunk = network(layout, geometry="board", positions="rotary").trunk
    rotary = cast(Block, trunk.blocks[0]).attention.rotary
    assert rotary is not None
    one = torch.randn(1, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    turned = rotary(one.expand(1, layout.length, 1, 8))[0, :, 0]
    for ply in range(3):
        of_ply = turned[torch.from_numpy(layout.plies == ply)]
        torch.testing.assert_close(of_ply, of_ply[:1].expand_as(of_ply))
    assert (turned[0] - turned[-1]).abs().max() > 0.1
    embedding = cast(BoardEmbedding, trunk.embedding)
    assert len(embedding.ply) == 2
    x = embedding(torch.full((1, layout.length), layout.mask))[0]
    first, second = (x[slot.start : slot.stop] for slot in layout.slots if slot.kind == "state" and slot.ply > 0)
    torch.testing.assert_close(first, second)
    root = x[: layout.state_length]
    torch.testing.assert_close(first - root, (embedding.ply[1] - embedding.ply[0]).expand_as(root))


def test_an_imagined_move_says_where_it_goes() -> None:
    """Beyond its free vector a move is the codes of its source and target squares, projected, and its kind."""
    layout = layout_of("s-asa", 2)
    embedding = cast(BoardEmbedding, network(layout, geometry="board").trunk.embedding)
    with torch.no_grad():
        embedding.symbol.weight.zero_()

    def of(symbol: int) -> Tensor:
        row = torch.full((1, layout.length), layout.mask)
        row[0, layout.first_action] = symbol
        return embedding(row)[0, layout.first_action]

    codes = embedding.place_codes()
    for m, (source, target, kind) in enumerate(
        zip(layout.moves.source, layout.moves.target, layout.moves.kind, strict=True)
    ):
        expected = embedding.source.weight @ codes[source] + embedding.target.weight @ codes[target]
        expected = expected + embedding.move_kinds[kind] - embedding.move_kinds[-1]
        torch.testing.assert_close(of(layout.move_offset + m) - of(layout.mask), expected)


def test_parameters_of_the_papers_configuration() -> None:
    layout = layout_of("s-asa", 4)
    net = DenoisingTransformer(layout, NetworkConfig(dropout=0.1, tied=True))
    width, v, n = 256, layout.num_symbols + 1, layout.length
    block = 4 * width * width + 4 * width + 8 * width * width + 5 * width + 4 * width
    assert num_weights(net) == 8 * block + v * width + n * width + 2 * width
    # Ye et al. 2025 give 7.1 M with GPT-2's context of 328 tokens and a vocabulary of about 2,700 symbols.
    assert num_weights(net) - (v + n) * width == 6_318_592


def test_initial_weights_are_gpt2s_and_come_from_the_generator() -> None:
    layout, config = layout_of(), NetworkConfig(num_layers=4, width=64, num_heads=4, geometry="board", head="typed")
    nets = [DenoisingTransformer(layout, config, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    one, same, other = (net.state_dict() for net in nets)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["trunk.embedding.symbol.weight"], other["trunk.embedding.symbol.weight"])
    blocks = nets[0].trunk.blocks
    assert abs(blocks[0].mlp.inner.weight.std().item() - 0.02) < 0.001
    assert abs(blocks[0].mlp.out.weight.std().item() - 0.02 / math.sqrt(8)) < 0.001
    assert float(blocks[0].mlp.out.bias.detach().abs().max()) == 0.0
    assert torch.equal(blocks[0].norm_mlp.weight, torch.ones(64))


def test_time_matters_with_time_conditioning_alone() -> None:
    layout = layout_of()
    tokens = clean_tokens(layout)
    for options, differs in (({"time_conditioning": True}, True), ({}, False)):
        net = network(layout, **options)
        one, two = (net(tokens, torch.full((3,), t)).groups[0].logits for t in (1, 20))
        assert (not torch.equal(one, two)) == differs
    with pytest.raises(ConfigError, match="needs the timesteps"):
        network(layout, time_conditioning=True)(tokens)


def test_tokens_with_few_symbols_do_not_pay_for_those_with_many() -> None:
    layout = layout_of()
    clusters = clusters_of(layout)
    covered = sorted(int(p) for c in clusters for p in c.positions)
    assert covered == list(range(layout.length))
    for cluster in clusters:
        for position, row in zip(cluster.positions, cluster.admitted, strict=True):
            assert set(cluster.symbols[row]) == set(np.flatnonzero(layout.admitted[position]))
        assert (np.diff(cluster.symbols) > 0).all()


def test_input_may_hold_more_symbols_than_the_output() -> None:
    layout = layout_of()
    net = DenoisingTransformer(layout, NetworkConfig(num_layers=1, width=8, num_heads=1), layout.num_symbols + 5)
    tokens = torch.full((1, layout.length), layout.num_symbols + 4)
    assert TypedLogits.of(net(tokens)).num_symbols == layout.num_symbols
    with pytest.raises(ConfigError, match="num_input_symbols must be at least"):
        DenoisingTransformer(layout, NetworkConfig(), 3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("geometry=bord", r"geometry must be one of sequence, board; got 'bord'"),
        ("head=single", r"head must be one of"),
        ("positions=sine", r"positions must be one of"),
        ("width=100", r"width must be a multiple of num_heads=8, got 100"),
        ("num_layers=0", r"num_layers must be at least 1"),
        ("dropout=1.0", r"dropout must lie in \[0, 1\)"),
        ("mlp_ratio=0", r"mlp_ratio must be above 0"),
        ("init_std=-1", r"init_std must be above 0"),
        ("num_head=2", r"num_head.*Did you mean: 'num_heads'"),
    ],
)
def test_bad_configuration_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(NetworkConfig, overrides=[override])


def test_configuration_that_contradicts_itself() -> None:
    with pytest.raises(ConfigError, match="even head width"):
        NetworkConfig(positions="rotary", width=9, num_heads=3)
    assert to_dict(NetworkConfig(width=64))["width"] == 64


@pytest.mark.slow
@every_form
def test_compiled_equals_eager(options: dict[str, Any]) -> None:
    layout = layout_of(horizon=2)
    net = network(layout, **options)
    clean = clean_tokens(layout)
    tokens, where = noised(layout, clean)
    expected = net.token_nll(tokens, TIMES, clean, where)
    expected.sum().backward()
    gradients = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    net.compile(fullgraph=True)
    got = net.token_nll(tokens, TIMES, clean, where)
    torch.testing.assert_close(got, expected)
    got.sum().backward()
    for a, p in zip(gradients, net.parameters(), strict=True):
        # The sines of the timestep are float32, and a compiler may round them otherwise.
        torch.testing.assert_close(p.grad, a, rtol=1e-4, atol=1e-5)
