"""Attention biases of third parties: by layer, by row, found by name; those of saved networks stay what they were."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from genpolicy import load_game, registry
from genpolicy.config import compose
from genpolicy.errors import ConfigError, RegistryError
from genpolicy.networks import AttentionBias, DenoisingTransformer, NetworkConfig
from genpolicy.networks.biases import RelativeBias
from genpolicy.sequence import Layout
from genpolicy_policy_baselines.causal import CausalTransformer


class Pooled(AttentionBias):
    """Each layer and head favours tokens by the mean of the features, and by a table of its own."""

    def __init__(self, layout: Layout, config: NetworkConfig, *, scale: float = 1.0, shared: bool = True) -> None:
        super().__init__(layout, config)
        self.scale = scale
        shape = (config.num_layers, config.num_heads, layout.length, layout.length)
        self.table = nn.Parameter(torch.empty(shape)) if shared else None
        self.maps = nn.ModuleList(
            nn.Linear(config.width, config.num_heads * layout.length, bias=False) for _ in range(config.num_layers)
        )
        self.head_shape = (config.num_heads, layout.length)

    def static(self) -> Tensor | None:
        return self.table

    def of_layer(self, i: int, x: Tensor) -> Tensor:
        to: Tensor = self.scale * self.maps[i](x.mean(1)).view(-1, *self.head_shape)
        return to[:, :, None, :].expand(-1, -1, self.head_shape[1], -1)


class NamedPooled(Pooled):
    """Takes the options of its base as ``**rest``."""

    def __init__(self, layout: Layout, config: NetworkConfig, *, name: str = "", **rest: Any) -> None:
        super().__init__(layout, config, **rest)
        self.name = name


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("biases", "pooled")(Pooled)


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout(load_game("connect:rows=3,cols=3,k=3"), "s-asa", 2, admit_pad=True)


def config(**options: Any) -> NetworkConfig:
    return NetworkConfig(**{"num_layers": 2, "width": 16, "num_heads": 2, "move_rank": 4, **options})


def made(layout: Layout, kind: type[DenoisingTransformer] = DenoisingTransformer, **options: Any) -> Any:
    return kind(layout, config(**options), generator=torch.Generator().manual_seed(1)).double()


def tokens_of(layout: Layout, num: int = 3) -> Tensor:
    weights = torch.from_numpy(layout.admitted).float()
    stream = torch.Generator().manual_seed(3)
    return torch.stack([torch.multinomial(weights, 1, generator=stream)[:, 0] for _ in range(num)])


def plain_features(trunk: nn.Module, tokens: Tensor, hidden: Tensor | None = None) -> Tensor:
    """The trunk of a sequence network written out, one layer after the other."""
    net: Any = trunk
    x = net.embedding(tokens)
    for i, block in enumerate(net.blocks):
        b, n, w = x.shape
        query, key, value = block.attention.qkv(block.norm_attention(x)).view(b, n, 3, 2, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / math.sqrt(w // 2) + net.bias.static()[i] + net.bias.of_layer(i, x)
        if hidden is not None:
            scores = scores.masked_fill(~hidden, -math.inf)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(b, n, w)
        x = x + block.attention.out(mixed)
        x = x + block.mlp(block.norm_mlp(x))
    features: Tensor = net.norm(x)
    return features


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_bias_by_layer_and_row_is_added_to_the_scores(
    pooled: None, layout: Layout, causal: bool, training: bool
) -> None:
    net = made(layout, CausalTransformer if causal else DenoisingTransformer, bias="pooled").train(training)
    tokens = tokens_of(layout)
    visible = net.visible if causal else None
    expected = plain_features(net.trunk, tokens, visible)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    got = net.trunk(tokens, None, visible)
    torch.testing.assert_close(got, expected)
    with torch.no_grad():
        torch.testing.assert_close(net.trunk(tokens, None, visible), expected)
    for mine, theirs in zip(
        torch.autograd.grad((got * weights).sum(), list(net.trunk.parameters())),
        torch.autograd.grad((expected * weights).sum(), list(net.trunk.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)
    assert all(bool(p.any()) for p in net.trunk.bias.parameters())


def test_a_bias_of_another_shape_than_its_features_is_named(pooled: None, layout: Layout) -> None:
    net = made(layout, bias="pooled", bias_options={"shared": False})
    given = tokens_of(layout)[:, : layout.state_length]
    with pytest.raises(
        RegistryError, match=r"network\.bias: Pooled\.of_layer gave the shape .* must be \[\d+, H, 10, 10\]"
    ):
        net.trunk(given, None)


@pytest.mark.parametrize("options", [{"geometry": "sequence"}, {"geometry": "board", "head": "typed", "dropout": 0.3}])
def test_a_row_does_not_depend_on_the_others(pooled: None, layout: Layout, options: dict[str, Any]) -> None:
    net = made(layout, bias="pooled", bias_options={"shared": False}, **options).eval()
    tokens = tokens_of(layout)
    changed = torch.cat([tokens[:1], tokens[1:].flip(0)])
    torch.testing.assert_close(net.trunk(tokens, None)[0], net.trunk(changed, None)[0])
    net.train()
    nll = net.token_nll(tokens, None, tokens, torch.ones_like(tokens).bool())
    nll.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())


@pytest.mark.slow
def test_a_bias_by_row_is_compiled(pooled: None, layout: Layout) -> None:
    net = made(layout, bias="pooled")
    tokens = tokens_of(layout)
    everywhere = torch.ones_like(tokens).bool()
    expected = net.token_nll(tokens, None, tokens, everywhere)
    gradients = torch.autograd.grad(expected.sum(), list(net.parameters()))
    net.compile(fullgraph=True)
    got = net.token_nll(tokens, None, tokens, everywhere)
    torch.testing.assert_close(got, expected)
    for mine, theirs in zip(torch.autograd.grad(got.sum(), list(net.parameters())), gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_bias_by_row_trains_under_autocast(pooled: None, layout: Layout) -> None:
    net = made(layout, bias="pooled").float()
    tokens = tokens_of(layout)
    everywhere = torch.ones_like(tokens).bool()
    expected = net.token_nll(tokens, None, tokens, everywhere)
    with torch.autocast("cpu", torch.bfloat16):
        got = net.token_nll(tokens, None, tokens, everywhere)
    got.mean().backward()
    torch.testing.assert_close(got, expected, rtol=0.1, atol=0.1)  # bfloat16 has 8 bits


def test_a_configuration_without_a_bias_has_the_one_of_its_geometry(layout: Layout) -> None:
    for geometry, bias in (("board", "relative"), ("sequence", "none")):
        old = compose(NetworkConfig, overrides=[f"geometry={geometry}", "num_layers=1", "width=16", "num_heads=2"])
        assert old.bias == "auto"
        net = DenoisingTransformer(layout, old)
        assert isinstance(net.trunk.bias, RelativeBias) == (bias == "relative")
        assert {name for name in net.state_dict() if "bias." in name} == (
            {"trunk.bias.space", "trunk.bias.time"} if bias == "relative" else set()
        )
        same = DenoisingTransformer(layout, config(geometry=geometry, bias=bias, num_layers=1))
        assert list(same.state_dict()) == list(net.state_dict())
    none = made(layout, geometry="board", bias="none")
    assert none.trunk.bias.static() is None
    sequence = made(layout, geometry="sequence", bias="relative")
    assert sequence.trunk.bias.static().shape == (2, 2, layout.length, layout.length)


class Ones(AttentionBias):
    def __init__(self, layout: Layout, config: NetworkConfig) -> None:
        super().__init__(layout, config)
        self.inner = nn.Linear(config.width, 3)

    def draw_weights(self, std: float, generator: torch.Generator | None) -> None:
        nn.init.ones_(self.inner.weight)
        nn.init.normal_(self.inner.bias, std=10 * std, generator=generator)


def test_a_bias_draws_its_own_weights_and_the_others_of_the_network_follow(
    monkeypatch: pytest.MonkeyPatch, layout: Layout
) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("biases", "ones")(Ones)
    net = made(layout, bias="ones")
    assert bool((net.trunk.bias.inner.weight == 1).all())
    assert bool(net.trunk.bias.inner.bias.any())
    again = made(layout, bias="ones")
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    # Attention begins without the built-in bias, and drawing it takes nothing from the generator.
    with_bias, without = made(layout, geometry="board"), made(layout, geometry="board", bias="none")
    assert not any(p.any() for p in with_bias.trunk.bias.parameters())
    ours, theirs = dict(with_bias.named_parameters()), dict(without.named_parameters())
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_wrong_biases_are_named(pooled: None, layout: Layout) -> None:
    with pytest.raises(ConfigError, match=r"network\.bias 'relativ' does not exist.*'relative'.*auto, none, pooled"):
        made(layout, bias="relativ")
    with pytest.raises(ConfigError, match=r"network\.bias_options\.scal:.*Did you mean: 'scale'.*takes: scale, shared"):
        made(layout, bias="pooled", bias_options={"scal": 1})
    with pytest.raises(ConfigError, match=r"bias 'relative' takes no option 'layers'\. It takes: none"):
        made(layout, bias="relative", bias_options={"layers": 1})
    registry.register("biases", "named")(NamedPooled)
    assert made(layout, bias="named", bias_options={"scale": 2.0, "name": "x"}).trunk.bias.scale == 2.0
    with pytest.raises(ConfigError, match=r"'named' takes no option 'rest'\. It takes: name, scale, shared"):
        made(layout, bias="named", bias_options={"rest": 1})
    registry.register("biases", "counter")(Counter)
    with pytest.raises(RegistryError, match=r"collections:Counter.* is the class Counter, not a subclass of .*Attenti"):
        made(layout, bias="counter")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"scale": "wide"}, "scale must be a number, got 'wide'"),
        ({"scale": float("inf")}, r"scale must be at most 1,099,511,627,776 in size, got inf"),
        ({"scale": True}, "scale must be a number, got True"),
        ({"shared": 3}, "shared must be true or false, got 3"),
        ({"inner": 2.5}, "inner must be a whole number, got 2.5"),
        ({"inner": None}, "inner must be a whole number, got None"),
        ({"inner": 10**20}, r"inner must be at most 1,099,511,627,776 in size, got 100,000,000,000,000,000,000"),
    ],
    ids=str,
)
def test_options_of_a_bias_have_the_types_that_it_says(
    pooled: None, layout: Layout, options: dict[str, Any], match: str
) -> None:
    class Sized(Pooled):
        def __init__(self, layout: Layout, config: NetworkConfig, *, inner: int = 2, **rest: Any) -> None:
            super().__init__(layout, config, **rest)

    if "inner" in options:
        registry.register("biases", "sized")(Sized)
    with pytest.raises(ConfigError, match=rf"network\.bias_options\.{match}"):
        made(layout, bias="sized" if "inner" in options else "pooled", bias_options=options)
    made(layout, bias="pooled", bias_options={"scale": 2, "shared": False})


class FewArguments(AttentionBias):
    def draw_weights(self, std: float) -> None:
        del std


class WithoutBase(AttentionBias):
    def __init__(self, layout: Layout, config: NetworkConfig) -> None:
        del layout, config


@pytest.mark.parametrize(
    ("kind", "message"),
    [(FewArguments, "TypeError: too many positional arguments"), (WithoutBase, r"TypeError: call super\(\).__init__")],
)
def test_a_bias_whose_weights_cannot_be_drawn_is_named(
    pooled: None, layout: Layout, kind: type[AttentionBias], message: str
) -> None:
    registry.register("biases", "mine")(kind)
    with pytest.raises(RegistryError, match=rf"attention bias 'mine' cannot be made \(.*\): {message}"):
        made(layout, bias="mine")


def test_a_bias_of_a_wrong_shape_is_refused(pooled: None, layout: Layout) -> None:
    net = made(layout, bias="pooled")
    net.trunk.bias.table = nn.Parameter(torch.zeros(2, 1, layout.length, layout.length))
    net.trunk.bias.head_shape = (1, layout.length)
    with pytest.raises(ValueError, match="an attention bias is"):
        net(tokens_of(layout))


def test_an_entry_point_is_all_that_a_bias_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout
) -> None:
    (tmp_path / "own_bias.py").write_text(
        "import torch\n"
        "from genpolicy.networks import AttentionBias\n\n\n"
        "class Diagonal(AttentionBias):\n"
        "    def __init__(self, layout, config):\n"
        "        super().__init__(layout, config)\n"
        "        self.shape = (config.num_layers, config.num_heads, layout.length, layout.length)\n\n"
        "    def static(self):\n"
        "        return 5.0 * torch.eye(self.shape[-1]).expand(self.shape)\n"
    )
    info = tmp_path / "own_bias-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-bias\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[genpolicy.biases]\ndiagonal = own_bias:Diagonal\n")
    monkeypatch.syspath_prepend(tmp_path)
    plain, net = made(layout), made(layout, bias="diagonal")
    assert list(net.state_dict()) == list(plain.state_dict())
    tokens = tokens_of(layout)
    assert (net.trunk(tokens, None) - plain.trunk(tokens, None)).abs().max() > 1e-3
