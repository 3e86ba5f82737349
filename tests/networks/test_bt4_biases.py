"""Shaw, smolgen and templates: against loops over pairs of tokens and against their formulas written out."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy import load_game
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.networks import AttentionBias, DenoisingTransformer, NetworkConfig
from genpolicy.networks.biases import place_relations, token_classes
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.sequence import Layout
from genpolicy.training.config import OptimConfig
from genpolicy.training.optim import make_optimizers
from genpolicy_bt4.templates import WAVELENGTHS
from genpolicy_policy_baselines.causal import CausalTransformer
from genpolicy_policy_baselines.one_step import OneStepLearner

NAMES = ("shaw", "smolgen", "templates", "relative_templates")
SMALL: dict[str, dict[str, Any]] = {
    "shaw": {},
    "smolgen": {"compressed": 3, "hidden": 6, "code": 5},
    "templates": {"num_templates": 4, "hidden": 6, "code": 5},
    "relative_templates": {"num_templates": 4, "hidden": 6, "code": 5},
}
every_bias = pytest.mark.parametrize("name", NAMES)


def layout_of(paradigm: str = "s-asa", horizon: int = 2, rows: int = 3) -> Layout:
    return Layout(load_game(f"connect:rows={rows},cols=3,k=3"), paradigm, horizon, num_value_bins=4)


def made(layout: Layout, bias: str, seed: int = 1, *, drawn: bool = False, **options: Any) -> Any:
    """A small float64 network; unless ``drawn``, every weight of its bias differs from zero."""
    shape = {"geometry": "board", "num_layers": 2, "width": 16, "num_heads": 2, "move_rank": 4}
    config = NetworkConfig(**{**shape, "bias": bias, "bias_options": SMALL.get(bias, {}), **options})
    generator = torch.Generator().manual_seed(seed)
    net = DenoisingTransformer(layout, config, generator=generator).double().eval()
    if not drawn:
        with torch.no_grad():
            for weight in net.trunk.bias.parameters():
                weight.add_(torch.randn(weight.shape, generator=generator, dtype=torch.float64), alpha=0.5)
    return net


def features_of(net: Any, layout: Layout, rows: int = 3) -> Tensor:
    shape = (rows, layout.length, net.config.width)
    return torch.randn(shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def tokens_of(layout: Layout, num: int = 3) -> Tensor:
    weights = torch.from_numpy(layout.admitted).float()
    stream = torch.Generator().manual_seed(3)
    return torch.stack([torch.multinomial(weights, 1, generator=stream)[:, 0] for _ in range(num)])


# Shaw


@pytest.mark.parametrize("values", [True, False])
def test_shaw_equals_a_loop_over_pairs_of_tokens(values: bool) -> None:
    layout = layout_of("s-avsav", 2)
    net = made(layout, "shaw", bias_options={"values": values})
    bias, (relation, num) = net.trunk.bias, place_relations(layout)
    b, n, h, d = 2, layout.length, 2, 8
    qkv = torch.randn(b, n, 3, h, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    extra = torch.randn(h, n, n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    got = bias.attend(1, qkv, extra, 0.0)
    tables = [t[1].view(num, h, d) for t in (bias.of_query, bias.of_key)]
    of_value = bias.of_value[1].view(num, h, d) if values else torch.zeros(num, h, d, dtype=torch.float64)
    for row in range(b):
        for head in range(h):
            query, key, value = (qkv[row, :, part, head] for part in range(3))
            for i in range(0, n, 5):
                scores = []
                for j in range(n):
                    of_query, of_key = (table[relation[i, j], head] for table in tables)
                    dots = query[i] @ key[j] + query[i] @ of_query + key[j] @ of_key
                    scores.append(dots / math.sqrt(d) + extra[head, i, j])
                p = torch.stack(scores).softmax(0)
                mixed = sum(p[j] * (value[j] + of_value[relation[i, j], head]) for j in range(n))
                torch.testing.assert_close(got[row, i, head], mixed)


def test_shaw_with_the_vectors_of_queries_alone_scores_q_by_k_plus_a() -> None:
    """The first form of Shaw et al. 2018, equation 4: sum_d q_d (k_d + a_d)."""
    layout = layout_of("s-a", 1)
    bias = made(layout, "shaw", bias_options={"values": False}).trunk.bias
    torch.nn.init.zeros_(bias.of_key)
    relation, num = place_relations(layout)
    qkv = torch.randn(1, layout.length, 3, 2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    of_pair = bias.of_query[0].view(num, 2, 8)[relation]  # [N, N, H, D]
    query, key, value = qkv[0].unbind(1)
    scores = (query[:, None] * (key[None] + of_pair)).sum(-1) / math.sqrt(8)  # [i, j, H]
    expected = torch.einsum("ijh,jhd->ihd", scores.softmax(1), value)
    torch.testing.assert_close(bias.attend(0, qkv, None, 0.0)[0], expected)


# Smolgen


def smolgen_by_hand(bias: Any, i: int, root: Tensor, heads: int) -> Tensor:
    """The published lines, one by one: [B, H, L, L] from the root's features [B, L, W]."""

    def swish(z: Tensor) -> Tensor:
        return z / (1 + torch.exp(-z))

    def norm(z: Tensor, layer: Any) -> Tensor:
        centred = z - z.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight + layer.bias

    b, length, _ = root.shape
    y = torch.einsum("blw,cw->blc", root, bias.compress[i].weight)
    y = y.reshape(b, -1)
    y = swish(torch.einsum("bi,hi->bh", y, bias.hidden[i].weight) + bias.hidden[i].bias)
    y = norm(y, bias.norm_hidden[i])
    y = swish(torch.einsum("bh,gh->bg", y, bias.code[i].weight) + bias.code[i].bias)
    y = norm(y, bias.norm_code[i]).reshape(b, heads, -1)
    return torch.einsum("bhg,pg->bhp", y, bias.generator.weight).reshape(b, heads, length, length)


def test_smolgen_equals_the_published_lines_at_every_pair_of_tokens() -> None:
    layout = layout_of("s-avsav", 2)
    net = made(layout, "smolgen")
    x = features_of(net, layout)
    for i in range(2):
        maps = smolgen_by_hand(net.trunk.bias, i, x[:, : layout.state_length], 2)
        got = net.trunk.bias.of_layer(i, x)
        for a, place in enumerate(layout.places):
            for b, other in enumerate(layout.places):
                is_state = place >= 0 and other >= 0
                expected = maps[:, :, place, other] if is_state else torch.zeros(3, 2, dtype=torch.float64)
                torch.testing.assert_close(got[:, :, a, b], expected)
    assert (got[:, 0] - got[:, 1]).abs().max() > 0.1  # the heads' maps differ
    assert (got[0] - got[1]).abs().max() > 0.1  # and those of different positions


def test_smolgen_whose_generator_is_zero_is_relative() -> None:
    layout = layout_of()
    smolgen, relative = made(layout, "smolgen"), made(layout, "relative")
    torch.nn.init.zeros_(smolgen.trunk.bias.generator.weight)
    state = {k: v for k, v in smolgen.state_dict().items() if k in relative.state_dict()}
    relative.load_state_dict(state)
    tokens = tokens_of(layout)
    assert torch.equal(smolgen.trunk(tokens, None), relative.trunk(tokens, None))
    assert not made(layout, "smolgen", drawn=True).trunk.bias.generator.weight.any()  # as a network begins


@pytest.mark.parametrize(
    ("game", "options", "match"),
    [
        ("connect:rows=3,cols=3,k=3", {"geometry": "sequence"}, r"needs network\.geometry=board, got 'sequence'"),
        ("connect:rows=17,cols=16,k=3", {}, r"at most 256 tokens, got 27\d; network\.bias=templates"),
        ("connect:rows=3,cols=3,k=3", {"bias_options": {"hidden": 0}}, r"bias_options\.hidden must be at least 1"),
        ("connect:rows=3,cols=3,k=3", {"bias_options": {"hiden": 1}}, r"no option 'hiden'\. Did you mean: 'hidden'"),
    ],
)
def test_what_smolgen_refuses(game: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        made(Layout(load_game(game), "s-a", 1), "smolgen", **options)


def test_templates_refuse_a_size_of_nothing() -> None:
    with pytest.raises(ConfigError, match=r"bias_options\.num_templates must be at least 1, got 0"):
        made(layout_of(), "templates", bias_options={"num_templates": 0})


# Templates


def test_templates_equal_a_loop_over_pairs_of_tokens() -> None:
    layout = layout_of("s-avsav", 2)
    net = made(layout, "templates")
    bias, classes = net.trunk.bias, token_classes(layout)
    x = features_of(net, layout)
    code = bias.norm[1](bias.pool[1](x[:, : layout.state_length]).mean(1))
    weights = bias.mix[1](code * code.sigmoid()).view(3, 2, 4)
    got = bias.of_layer(1, x)
    for i in range(0, layout.length, 3):
        for j in range(layout.length):
            square = classes[i] == classes[j] == 0
            rows, cols = ((of[j] - of[i]) if square else 0 for of in (layout.rows, layout.cols))
            waves = []
            for axis, offset in enumerate((rows, cols, layout.plies[j] - layout.plies[i])):
                angles = [2 * math.pi * int(offset) / wavelength for wavelength in WAVELENGTHS]
                shown = 1.0 if square or axis == 2 else 0.0
                waves += [shown * math.sin(a) for a in angles] + [shown * math.cos(a) for a in angles]
            kinds = [0.0] * 16
            kinds[4 * min(int(classes[i]), 3) + min(int(classes[j]), 3)] = 1.0
            same = float(layout.places[i] == layout.places[j] >= 0)
            features = torch.tensor([*waves, *kinds, same], dtype=torch.float64)
            template = bias.out(torch.nn.functional.gelu(bias.inner(features)))
            torch.testing.assert_close(got[:, :, i, j], weights @ template, rtol=1e-6, atol=1e-6)  # float32 features


def test_templates_know_no_size() -> None:
    """The weights of a small board fit a large one, and give the same offset the same bias."""
    small, large = layout_of("s-a", 1, rows=3), layout_of("s-a", 1, rows=5)
    one, other = made(small, "templates").trunk.bias, made(large, "templates").trunk.bias
    other.load_state_dict(one.state_dict())
    x = torch.ones(1, small.length, 16, dtype=torch.float64)
    y = torch.ones(1, large.length, 16, dtype=torch.float64)
    mine, theirs = one.of_layer(0, x), other.of_layer(0, y)
    squares = [[(r * 3 + c) for r in range(3) for c in range(3)]] * 2
    torch.testing.assert_close(mine[:, :, squares[0]][..., squares[0]], theirs[:, :, squares[1]][..., squares[1]])


def test_relative_templates_are_the_sum_of_both() -> None:
    layout = layout_of("s-avsav", 2)
    net = made(layout, "relative_templates")
    both = net.trunk.bias
    relative, templates = (made(layout, name).trunk.bias for name in ("relative", "templates"))
    relative.load_state_dict({k: v for k, v in both.state_dict().items() if k in ("space", "time")})
    templates.load_state_dict({k: v for k, v in both.state_dict().items() if k not in ("space", "time")})
    torch.testing.assert_close(both.static(), relative.static())
    x = features_of(net, layout)
    torch.testing.assert_close(both.of_layer(1, x), templates.of_layer(1, x))


# All of them


@every_bias
def test_attention_begins_without_a_bias(name: str) -> None:
    layout = layout_of()
    net, none = made(layout, name, drawn=True), made(layout, "none", drawn=True)
    none.load_state_dict({k: v for k, v in net.state_dict().items() if "bias." not in k or "trunk.bias" not in k})
    tokens = tokens_of(layout)
    torch.testing.assert_close(net.trunk(tokens, None), none.trunk(tokens, None))


@every_bias
@pytest.mark.parametrize("kind", [DenoisingTransformer, CausalTransformer])
def test_a_row_does_not_depend_on_the_others_and_every_weight_learns(name: str, kind: Any) -> None:
    layout = layout_of("s-a", 1) if kind is CausalTransformer else layout_of()
    net = made(layout, name)
    net = kind(layout, net.config).double()
    with torch.no_grad():
        for weight in net.trunk.bias.parameters():
            weight.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(weight.numel()))
    tokens = tokens_of(layout)
    changed = torch.cat([tokens[:1], tokens[1:].flip(0)])
    torch.testing.assert_close(net.trunk(tokens, None)[0], net.trunk(changed, None)[0])
    net.token_nll(tokens, None, tokens, torch.ones_like(tokens).bool()).sum().backward()
    for parameter_name, weight in net.trunk.bias.named_parameters():
        assert weight.grad is not None, parameter_name
        assert bool(weight.grad.any()), parameter_name


@every_bias
def test_the_first_tokens_alone_are_computed_as_among_all(name: str) -> None:
    """What comes later is hidden there and absent here."""
    layout = layout_of()
    net, n = made(layout, name), layout.state_length + 1
    tokens = tokens_of(layout)
    visible = torch.ones(layout.length, layout.length).bool()
    visible[:n, n:] = False
    torch.testing.assert_close(net.trunk(tokens[:, :n], None), net.trunk(tokens, None, visible)[:, :n])


@every_bias
def test_dropout_and_bfloat16_train(name: str) -> None:
    layout = layout_of()
    net = made(layout, name, dropout=0.3).float().train()
    tokens = tokens_of(layout)
    with torch.autocast("cpu", torch.bfloat16):
        net.token_nll(tokens, None, tokens, torch.ones_like(tokens).bool()).mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in net.trunk.bias.parameters() if p.grad is not None)


@every_bias
@pytest.mark.slow
def test_it_is_compiled(name: str) -> None:
    layout = layout_of()
    net = made(layout, name)
    tokens = tokens_of(layout)
    everywhere = torch.ones_like(tokens).bool()
    expected = net.token_nll(tokens, None, tokens, everywhere)
    gradients = torch.autograd.grad(expected.sum(), list(net.parameters()))
    net.compile(fullgraph=True, backend="aot_eager")  # all but the generation of code
    got = net.token_nll(tokens, None, tokens, everywhere)
    torch.testing.assert_close(got, expected)
    for mine, theirs in zip(torch.autograd.grad(got.sum(), list(net.parameters())), gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@every_bias
def test_muon_moves_its_matrices_and_nothing_else_of_it(name: str) -> None:
    network = NetworkConfig(
        geometry="board", num_layers=2, width=16, num_heads=2, bias=name, bias_options=SMALL[name], head="typed"
    )
    config = DiffusionConfig(paradigm="s-asa", horizon=2, network=network)
    learner = DiffusionLearner(load_game("connect:rows=3,cols=3,k=3"), config)
    optimizers = make_optimizers(learner.param_groups(0.1), OptimConfig(name="muon"))
    moved = {id(p) for group in optimizers["muon"].param_groups for p in group["params"]}
    bias = learner.network.trunk.bias
    assert {k for k, p in bias.named_parameters() if id(p) in moved} == {
        k for k, p in bias.named_parameters() if p.ndim == 2 and k not in ("space", "time")
    }
    assert (name == "shaw") == (not bias.hidden_matrices())


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
@pytest.mark.parametrize("name", ["relative", "shaw", "relative_templates", "smolgen"])
def test_tables_learn_at_a_rate_of_their_own(name: str, optimiser: str) -> None:
    network = NetworkConfig(geometry="board", num_layers=2, width=16, num_heads=2, bias=name, head="typed")
    config = DiffusionConfig(paradigm="s-asa", horizon=2, network=network)
    learner = DiffusionLearner(load_game("connect:rows=3,cols=3,k=3"), config)
    plain, apart = (
        make_optimizers(learner.param_groups(0.1), OptimConfig(name=optimiser, lr=1e-3, bias_lr=rate))
        for rate in (1.0, 8.0)
    )
    names = {id(p): key for key, p in learner.named_parameters()}

    def moved(optimizers: dict[str, Any]) -> dict[str, tuple[str, float, float, float]]:
        return {
            names[id(p)]: (kind, group["lr"], group["peak_lr"], group["weight_decay"])
            for kind, optimizer in optimizers.items()
            for group in optimizer.param_groups
            for p in group["params"]
        }

    before, after = moved(plain), moved(apart)
    assert before.keys() == after.keys() == set(names.values())
    tables = {"shaw": ["of_query", "of_key", "of_value"]}.get(name, ["space", "time"])
    ours = {key for key in before if ".bias." in key and key.rpartition(".")[2] in tables}
    assert len(ours) == len(tables)
    for key in before:
        assert after[key] == (("adamw", pytest.approx(8e-3), pytest.approx(8e-3), 0.0) if key in ours else before[key])


@pytest.mark.parametrize("name", ["none", "templates"])
def test_a_rate_of_tables_that_a_bias_lacks_is_refused(name: str) -> None:
    network = NetworkConfig(geometry="board", num_layers=2, width=16, num_heads=2, bias=name)
    learner = OneStepLearner(load_game("connect:rows=3,cols=3,k=3"), OneStepLearner.Config(network=network))
    with pytest.raises(ConfigError, match=r"optim\.bias_lr=16: .* set optim\.bias_lr=1,"):
        make_optimizers(learner.param_groups(0.1), OptimConfig(bias_lr=16))
    make_optimizers(learner.param_groups(0.1), OptimConfig())


def test_linear_layers_of_a_bias_that_names_nothing_are_no_tables() -> None:
    class Mixed(AttentionBias):
        def __init__(self, layout: Layout, config: NetworkConfig) -> None:
            super().__init__(layout, config)
            self.code = torch.nn.Linear(4, 4)
            self.table = torch.nn.Parameter(torch.zeros(3, 4))
            self.scale = torch.nn.Parameter(torch.zeros(4))

    bias = Mixed(layout_of(), NetworkConfig(geometry="board", num_layers=2, width=16, num_heads=2))
    assert [id(p) for p in bias.tables()] == [id(bias.table)]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), 1e300])
def test_a_rate_of_tables_that_cannot_be_is_named(rate: float) -> None:
    with pytest.raises(ValueError, match=r"optim\.bias_lr times optim\.lr .* got .* times 0\.0003"):
        OptimConfig(bias_lr=rate)


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        ("none", 0),
        ("shaw", 2 * 3 * 2 * 16 * 11**2),
        # 2 layers of: 10 tokens W c, L c h, h H g, and for each of 2 heads g L^2
        ("smolgen", 2 * 2 * (10 * 16 * 3 + 10 * 3 * 6 + 6 * 2 * 5 + 2 * 5 * 10**2)),
        ("templates", 2 * 2 * (10 * 16 * 5 + 5 * 2 * 4 + 2 * 4 * 11**2)),
        ("relative_templates", 2 * 2 * (10 * 16 * 5 + 5 * 2 * 4 + 2 * 4 * 11**2)),
    ],
)
def test_operations_counted_by_hand(name: str, forward: int) -> None:
    def learner(bias: str) -> OneStepLearner:
        network = NetworkConfig(
            geometry="board", num_layers=2, width=16, num_heads=2, bias=bias, bias_options=SMALL.get(bias, {})
        )
        return OneStepLearner(load_game("connect:rows=3,cols=3,k=3"), OneStepLearner.Config(network=network))

    assert layout_of("s-a", 1).state_length == 10
    flops, plain = learner(name).flops_per_record(), learner("none").flops_per_record()
    assert flops is not None
    assert plain is not None
    assert flops - plain == 3 * forward  # backward costs twice as much as forward


@pytest.mark.parametrize(
    ("kind", "config"),
    [(OneStepLearner, OneStepLearner.Config()), (DiffusionLearner, DiffusionConfig(paradigm="s-asa"))],
)
@pytest.mark.parametrize("before", ["none", "relative", "templates"])
def test_a_policy_learns_on_with_templates_from_where_it_was(kind: Any, config: Any, before: str) -> None:
    """What its source lacks of a bias has no effect yet; what its source has and it lacks is refused."""

    def learner(bias: str) -> Any:
        network = NetworkConfig(geometry="board", num_layers=2, width=16, num_heads=2, bias=bias)
        return kind(load_game("connect:rows=3,cols=3,k=3"), dataclasses.replace(config, network=network))

    source, more = learner(before), learner("relative_templates")
    with torch.no_grad():
        for weight in source.network.trunk.bias.parameters():
            weight.normal_()
    tokens = tokens_of(source.layout)
    more.take_weights(source)
    torch.testing.assert_close(more.network.trunk(tokens, None), source.network.trunk(tokens, None))
    with pytest.raises(CheckpointError, match=r"differ in (\d+ tensors, such as|learner\.network\.bias)"):
        source.take_weights(more)
