"""The denoising transformer: both geometries, both heads, against laws and slow second computations."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from genpolicy.config import compose, to_dict
from genpolicy.diffusion.logits import NEGATIVE_INFINITY, TypedLogits, token_nll
from genpolicy.errors import ConfigError
from genpolicy.game import MoveVocabulary
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.networks.biases import RelativeBias, ply_relations, token_classes
from genpolicy.networks.embedding import BoardEmbedding
from genpolicy.networks.heads import TypedHead, clusters_of
from genpolicy.networks.transformer import Block
from genpolicy.sequence import KINDS, Layout

ROWS, COLS, NUM_EXTRA = 2, 3, 3  # extras: side to move, a counter, a hand slot


def fake_game(gravity: bool = False) -> Any:
    """Six squares of four pieces, and three other tokens; moves with promotions, or drops without a source."""
    num_squares = ROWS * COLS
    length = num_squares + NUM_EXTRA
    squares = np.arange(num_squares)
    none = np.full(NUM_EXTRA, -1)
    admitted = np.zeros((length, 30), np.bool_)
    admitted[:num_squares, :4] = True
    admitted[num_squares, 4:6] = True
    admitted[num_squares + 1, 6:29] = True
    admitted[num_squares + 2, 26:30] = True
    tokens = SimpleNamespace(
        length=length,
        symbols=tuple(f"y{i}" for i in range(30)),
        rows=np.concatenate([squares // COLS, none]).astype(np.int16),
        cols=np.concatenate([squares % COLS, none]).astype(np.int16),
        hands=np.concatenate([none, none, [-1] * (NUM_EXTRA - 1), [0]])[-length:].astype(np.int16),
        admitted=admitted,
    )
    if gravity:
        triples = [(-1, square, 0) for square in squares]
    else:
        triples = [(i, j, 0) for i in squares for j in squares if i != j and (i + j) % 3]
        triples += [(i, j, 1) for i in (0, 1) for j in (3, 4)] + [(length - 1, j, 2) for j in (2, 5)]
    source, target, kind = (np.array(column, np.int16) for column in zip(*triples, strict=True))
    texts = tuple(f"{i}-{j}-{k}" for i, j, k in triples)
    return SimpleNamespace(tokens=tokens, moves=MoveVocabulary(texts, source, target, kind, 3, np.arange(len(texts))))


def layout_of(paradigm: str = "s-asa", horizon: int = 3, *, gravity: bool = False, admit_pad: bool = False) -> Layout:
    return Layout(fake_game(gravity), paradigm, horizon, num_value_bins=8, admit_pad=admit_pad)


def network(layout: Layout, seed: int = 0, **options: Any) -> DenoisingTransformer:
    """A small float64 network whose every table differs from zero."""
    config = NetworkConfig(**{"num_layers": 2, "width": 16, "num_heads": 2, "move_rank": 4, **options})
    generator = torch.Generator().manual_seed(seed)
    net = DenoisingTransformer(layout, config, generator=generator).double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=0.2)
    return net


def num_weights(net: DenoisingTransformer) -> int:
    """A tied table counts once."""
    return sum(p.numel() for p in net.parameters())


def clean_tokens(layout: Layout, num: int = 3, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.tensor([[rng.choice(np.flatnonzero(row)) for row in layout.admitted] for _ in range(num)])


def noised(layout: Layout, clean: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    where = torch.rand(clean.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    where &= ~torch.from_numpy(layout.given)
    return torch.where(where, layout.mask, clean), where


FORMS = [
    {"geometry": "sequence", "head": "unified"},
    {"geometry": "sequence", "head": "unified", "tied": True, "positions": "rotary"},
    {"geometry": "sequence", "head": "typed", "tied": True},
    {"geometry": "sequence", "head": "typed", "time_conditioning": True},
    {"geometry": "board", "head": "unified"},
    {"geometry": "board", "head": "typed"},
    {"geometry": "board", "head": "typed", "positions": "rotary"},
    {"geometry": "board", "head": "typed", "tied": True, "time_conditioning": True},
]
every_form = pytest.mark.parametrize("options", FORMS, ids=lambda o: "-".join(str(v) for v in o.values()))
TIMES = torch.tensor([1, 7, 20])


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


@pytest.mark.parametrize("gravity", [False, True])
@pytest.mark.parametrize("paradigm", [("s-asa", 3), ("s-aa", 2)])
def test_factorised_move_logits_equal_the_formula(gravity: bool, paradigm: tuple[str, int]) -> None:
    layout = layout_of(*paradigm, gravity=gravity, admit_pad=True)
    net = network(layout, geometry="board", head="typed", move_rank=5)
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
                    ends.append(of_action if place < 0 else hidden[row, int(layout.head_squares[a, place])])
                extra = kind.of_action.weight @ of_action
                query = kind.query.weight @ ends[0] + kind.query.bias + extra[:5]
                key = kind.key.weight @ ends[1] + kind.key.bias + extra[5:]
                logits.append(query @ key / math.sqrt(5) + head.bias[m])
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


@every_form
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
