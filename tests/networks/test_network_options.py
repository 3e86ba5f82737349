"""Activation, place of the norms, gates and board code of the transformer: each against its formula written out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy import load_game
from genpolicy.config import compose
from genpolicy.errors import ConfigError
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.sequence import Layout
from genpolicy_policy_baselines.causal import CausalTransformer
from genpolicy_policy_baselines.one_step import OneStepLearner

GAME = "connect:rows=3,cols=3,k=3"


def layout_of(paradigm: str = "s-avsav", horizon: int = 2) -> Layout:
    return Layout(load_game(GAME), paradigm, horizon, num_value_bins=4)


def made(layout: Layout, kind: type[DenoisingTransformer] = DenoisingTransformer, **options: Any) -> Any:
    """A small float64 network of which every weight differs from what it begins with."""
    shape = {"geometry": "board", "num_layers": 2, "width": 16, "num_heads": 2, "move_rank": 4, "bias": "none"}
    generator = torch.Generator().manual_seed(1)
    net = kind(layout, NetworkConfig(**{**shape, **options}), generator=generator).double().eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator, dtype=torch.float64), alpha=0.2)
        if net.trunk.gates is not None:
            net.trunk.gates.scale[::2] -= 1.5  # gates that are shut
    return net


def tokens_of(layout: Layout, num: int = 3) -> Tensor:
    weights = torch.from_numpy(layout.admitted).float()
    stream = torch.Generator().manual_seed(3)
    return torch.stack([torch.multinomial(weights, 1, generator=stream)[:, 0] for _ in range(num)])


def act(z: Tensor, name: str) -> Tensor:
    if name == "mish":
        return z * torch.tanh(torch.log1p(z.exp()))
    if name == "relu2":
        return torch.where(z > 0, z * z, 0.0)
    return z * (1 + torch.erf(z / math.sqrt(2))) / 2


def norm(z: Tensor, layer: Any, eps: float) -> Tensor:
    centred = z - z.mean(-1, keepdim=True)
    scaled: Tensor = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return scaled * layer.weight + layer.bias


def mlp(x: Tensor, part: Any, name: str) -> Tensor:
    y: Tensor = act(x @ part.inner.weight.T + part.inner.bias, name)
    return y @ part.out.weight.T + part.out.bias


def by_hand(net: Any, layout: Layout, tokens: Tensor) -> Tensor:
    """Features of the trunk, one formula after the other."""
    trunk, config = net.trunk, net.config
    x = trunk.embedding(tokens)
    if trunk.shown is not None:
        x = trunk.shown(x, tokens)
    if config.board_code:
        tokenizer, codes = layout.tokenizer, torch.zeros(len(tokens), 9, config.board_code, dtype=torch.float64)
        weight = trunk.code.encode.weight.view(9, config.board_code, -1)
        for row in range(len(tokens)):
            column = 0
            for place in range(9):  # the squares come first, the side to move is the tenth token
                for symbol in range(tokenizer.admitted.shape[1]):
                    if tokenizer.admitted[place, symbol]:
                        if tokens[row, place] == symbol:
                            codes[row] += weight[:, :, column]
                        column += 1
            assert column == weight.shape[2]
        codes = codes + trunk.code.encode.bias.view(9, config.board_code)
        told = codes @ trunk.code.decode.weight.T + trunk.code.decode.bias
        added = torch.zeros_like(x)
        for i, place in enumerate(layout.places):
            if 0 <= place < 9:
                added[:, i] = told[:, place]
        x = act(x + added, config.activation)
    post, a = config.norm == "post", (2 * config.num_layers) ** -0.25
    eps = 1e-3 if post else 1e-5
    if post:
        x = norm(x, trunk.norm, eps)
    if config.gates:
        gated = x.clone()
        for i, place in enumerate(layout.places):
            if place >= 0:
                gated[:, i] = x[:, i] * (1 + trunk.gates.scale[place]).clamp(min=0) + trunk.gates.shift[place]
        x = gated
    if config.board_code:
        part, layer = trunk.embedding_mlp, trunk.embedding_norm
        x = (
            norm(x + a * mlp(x, part, config.activation), layer, eps)
            if post
            else x + mlp(norm(x, layer, eps), part, config.activation)
        )
    for block in trunk.blocks:
        name = config.activation
        if post:
            x = norm(x + a * block.attention(x, None), block.norm_attention, eps)
            x = norm(x + a * mlp(x, block.mlp, name), block.norm_mlp, eps)
        else:
            x = x + block.attention(norm(x, block.norm_attention, eps), None)
            x = x + mlp(norm(x, block.norm_mlp, eps), block.mlp, name)
    return x if post else norm(x, trunk.norm, eps)


FORMS: list[dict[str, Any]] = [
    {},
    {"activation": "mish"},
    {"activation": "relu2", "geometry": "sequence"},
    {"norm": "post"},
    {"norm": "post", "geometry": "sequence"},
    {"gates": True},
    {"board_code": 3},
    {"norm": "post", "gates": True, "board_code": 3, "activation": "mish"},
]
every_form = pytest.mark.parametrize("options", FORMS, ids=lambda o: "-".join(f"{k}={v}" for k, v in o.items()))


@every_form
@pytest.mark.parametrize("paradigm", [("s-avsav", 2), ("s-a", 1)])
def test_the_trunk_equals_its_formulas(options: dict[str, Any], paradigm: tuple[str, int]) -> None:
    layout = layout_of(*paradigm)
    net, tokens = made(layout, **options), tokens_of(layout)
    torch.testing.assert_close(net.trunk(tokens, None), by_hand(net, layout, tokens))


WANTED_FORMS = [
    *FORMS,
    {"attention": "prefix"},
    {"attention": "block_causal"},
    {"time_conditioning": "adaln"},
    {"positions": "rotary", "bias": "shaw"},
]


@pytest.mark.parametrize("options", WANTED_FORMS, ids=str)
def test_features_of_the_wanted_tokens_are_those_of_all(options: dict[str, Any]) -> None:
    layout = layout_of()
    net, tokens = made(layout, **options), tokens_of(layout)
    t = torch.tensor([1, 3, 2]) if "time_conditioning" in options else None
    where = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    where[1] = False
    few = net.trunk(tokens, t, wanted=where.flatten().nonzero()[:, 0])
    torch.testing.assert_close(few[where], net.trunk(tokens, t)[where], rtol=1e-12, atol=1e-12)
    assert not few[~where].any()
    assert net.trunk(tokens, t, wanted=torch.zeros(0, dtype=torch.int64)).shape == few.shape


@pytest.mark.parametrize("geometry", ["sequence", "board"])
def test_the_last_block_computes_only_the_tokens_that_the_loss_reads(geometry: str) -> None:
    layout = layout_of()
    net, tokens = made(layout, geometry=geometry, head="typed"), tokens_of(layout)
    where = torch.zeros_like(tokens).bool()
    where[:, layout.first_action] = True
    rows: list[int] = []
    net.trunk.blocks[-1].mlp.register_forward_hook(lambda module, args, out: rows.append(out[..., 0].numel()))
    losses = net.token_nll(tokens, None, tokens, where)
    assert rows == [
        len(tokens) if geometry == "sequence" else tokens.numel()
    ]  # the board's move head reads its squares
    logits = net(tokens).groups
    action = next(group for group in logits if layout.first_action in group.positions.tolist())
    at = action.positions.tolist().index(layout.first_action)
    targets = [action.symbols.tolist().index(int(token)) for token in tokens[:, layout.first_action]]
    expected = -action.logits.log_softmax(-1)[range(len(tokens)), at, targets]
    torch.testing.assert_close(losses, expected)


@every_form
def test_every_weight_learns_and_rows_are_independent(options: dict[str, Any]) -> None:
    layout = layout_of()
    net, tokens = made(layout, **{**options, "dropout": 0.2}), tokens_of(layout)
    changed = torch.cat([tokens[:1], tokens[1:].flip(0)])
    torch.testing.assert_close(net.trunk(tokens, None)[0], net.trunk(changed, None)[0])
    net.train()
    net.token_nll(tokens, None, tokens, torch.ones_like(tokens).bool()).sum().backward()
    idle = [name for name, weight in net.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert set(idle) <= {"trunk.embedding.hand", "trunk.embedding.source.weight"}  # this game has neither


def test_the_code_of_the_root_tells_an_imagined_move_nothing_of_what_comes_later() -> None:
    """Left to right: only the given root is read, so what is imagined later changes nothing before it."""
    layout = layout_of()
    net = made(layout, CausalTransformer, board_code=3, gates=True)
    tokens = tokens_of(layout)
    later = tokens.clone()
    later[:, -1] = layout.value_offset + (later[:, -1] - layout.value_offset + 1) % 4
    before, after = net.trunk(tokens, None, net.visible), net.trunk(later, None, net.visible)
    torch.testing.assert_close(before[:, :-1], after[:, :-1])


def test_a_noisy_root_has_no_code() -> None:
    """A symbol that a place cannot hold, such as the mask, stands for nothing."""
    layout = layout_of()
    net, tokens = made(layout, board_code=3), tokens_of(layout)
    tokens[:, : layout.state_length] = layout.mask
    got = net.trunk.code(torch.zeros(3, layout.length, 16, dtype=torch.float64), tokens)
    told = net.trunk.code.decode(net.trunk.code.encode.bias.view(9, 3))
    torch.testing.assert_close(got[0, :9], act(told, "gelu"))


@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_features_keep_their_size_through_fifteen_blocks(norm_place: str) -> None:
    """DeepNorm holds the variance near 1 at the start, as wide features enter and as they leave."""
    layout = layout_of("s-a", 1)
    config = NetworkConfig(geometry="board", num_layers=15, width=64, num_heads=4, mlp_ratio=1.5, norm=norm_place)
    net = DenoisingTransformer(layout, config, generator=torch.Generator().manual_seed(0))
    net.requires_grad_(False)
    x, inside = net.trunk.embedding(tokens_of(layout, 8)), []
    if norm_place == "post":
        x = net.trunk.norm(x)
        for block in net.trunk.blocks:
            x = block(x, None)
            inside.append(float(x.var(-1).mean()))
        assert 0.5 < min(inside) < max(inside) < 2
        # What a block adds is smaller than what it adds to, so that no layer drowns the others at the start.
        last: Any = net.trunk.blocks[-1]
        assert float(last.mlp(x).var(-1).mean()) < 0.5 * float(x.var(-1).mean())
    else:
        assert float(net.trunk(tokens_of(layout, 8), None).var(-1).mean()) == pytest.approx(1, abs=0.1)


def test_deepnorm_draws_what_the_paper_says() -> None:
    config = NetworkConfig(num_layers=8, width=256, num_heads=4, mlp_ratio=2, norm="post")
    block: Any = DenoisingTransformer(layout_of(), config, generator=torch.Generator().manual_seed(0)).trunk.blocks[3]
    query, key, value = block.attention.qkv.weight.chunk(3)
    xavier, gain = math.sqrt(2 / 512), (8 * 8) ** -0.25
    wide = math.sqrt(2 / (256 + 512))
    for matrix, expected in (
        (query, xavier),
        (key, xavier),
        (value, gain * xavier),
        (block.attention.out.weight, gain * xavier),
        (block.mlp.inner.weight, gain * wide),
        (block.mlp.out.weight, gain * wide),
    ):
        assert matrix.std().item() == pytest.approx(expected, rel=0.02)  # of 65,536 draws and more: 0.3 %
    assert not block.attention.qkv.bias.any()


def test_gates_begin_as_the_identity() -> None:
    layout = layout_of()
    gates = DenoisingTransformer(layout, NetworkConfig(geometry="board", num_layers=1, gates=True)).trunk.gates
    x = torch.randn(2, layout.length, 256, generator=torch.Generator().manual_seed(0))
    assert gates is not None
    assert torch.equal(gates(x), x)


def test_muon_leaves_gates_and_code_to_adamw() -> None:
    network = NetworkConfig(geometry="board", num_layers=2, width=16, num_heads=2, gates=True, board_code=3)
    learner = OneStepLearner(load_game(GAME), OneStepLearner.Config(network=network))
    moved = {id(p) for p in learner.param_groups(0.1)[0]["muon"]}
    names = {name for name, p in learner.network.trunk.named_parameters() if id(p) in moved}
    assert {name for name in names if not name.startswith("blocks.")} == {
        "embedding_mlp.inner.weight",
        "embedding_mlp.out.weight",
    }


def test_a_configuration_without_the_keys_is_the_one_of_before() -> None:
    layout = layout_of()
    old = compose(NetworkConfig, overrides=["geometry=board", "num_layers=1", "width=16", "num_heads=2"])
    assert (old.activation, old.norm, old.gates, old.board_code) == ("gelu", "pre", False, 0)
    names = DenoisingTransformer(layout, old).state_dict()
    assert not [name for name in names if "gates" in name or "code" in name or "embedding_" in name]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"activation": "swish"}, "activation must be one of gelu, mish, relu2; got 'swish'"),
        ({"norm": "sandwich"}, "norm must be one of pre, post; got 'sandwich'"),
        ({"gates": True, "geometry": "sequence"}, "gates needs geometry=board.*got 'sequence'"),
        ({"board_code": 8, "geometry": "sequence"}, "board_code needs geometry=board.*got 'sequence'"),
        ({"board_code": -1}, "board_code must be at least 0.*got -1"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        NetworkConfig(**{"geometry": "board", **options})


@pytest.mark.slow
def test_it_is_compiled() -> None:
    layout = layout_of()
    net, tokens = made(layout, **FORMS[-1]), tokens_of(layout)
    everywhere = torch.ones_like(tokens).bool()
    expected = net.token_nll(tokens, None, tokens, everywhere)
    net.compile(fullgraph=True, backend="aot_eager")  # all but the generation of code
    torch.testing.assert_close(net.token_nll(tokens, None, tokens, everywhere), expected)
