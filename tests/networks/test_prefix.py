"""Given tokens that do not attend to imagined ones, and their encoding that the calls of a decision share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy import registry
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.errors import ConfigError
from genpolicy.networks import AttentionBias, DenoisingTransformer, NetworkConfig
from genpolicy.networks.biases import RelativeBias
from genpolicy.networks.cpu import attend
from genpolicy.networks.embedding import index_buffer
from genpolicy.networks.prefix import attention_levels
from genpolicy.sequence import Layout
from genpolicy_policy_baselines.causal import CausalTransformer
from tests.networks.small_networks import TIMES, clean_tokens, every_form, layout_of, network, noised

BOARD: dict[str, Any] = {"geometry": "board", "head": "typed"}
both = pytest.mark.parametrize("attention", ["prefix", "block_causal"])


class OwnAttention(RelativeBias):
    """Queries see half of what they would."""

    def attend(self, i: int, qkv: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        query, key, value = qkv.unbind(2)
        scores = torch.einsum("bihd,bjhd->bhij", query, key) / (2 + i)
        return torch.einsum("bhij,bjhd->bihd", (scores if bias is None else scores + bias).softmax(-1), value)


@pytest.fixture
def own_attention() -> Any:
    registry.register("biases", "own_attention")(OwnAttention)
    yield
    registry.unregister("biases", "own_attention")


def some(layout: Layout) -> Tensor:
    return noised(layout, clean_tokens(layout))[0]


def num_given(layout: Layout) -> int:
    return int(layout.given.sum())


def dense(logits: TypedLogits) -> Tensor:
    """Log-probabilities of what is imagined."""
    return logits.dense()


def assert_shared(net: DenoisingTransformer, layout: Layout, tokens: Tensor) -> None:
    """One encoding, and calls of every length that a sampler makes."""
    encoded = net.encode(tokens[:, : num_given(layout)])
    ends = [slot.stop for slot in layout.slots if not slot.given]
    for end in ends:
        part = tokens[:, :end]
        torch.testing.assert_close(net.denoise(part, TIMES, encoded).dense(), net(part, TIMES).dense())


@pytest.mark.sampled(5)
@both
@every_form
def test_calls_that_share_an_encoding_predict_the_same(options: dict[str, Any], attention: str) -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention=attention, **options)
    assert_shared(net, layout, some(layout))


@pytest.mark.sampled(5)
@both
@pytest.mark.parametrize("paradigm", ["s-a", "sa-v", "s-aa", "s-asa", "s-ass", "s-avav"])
@pytest.mark.parametrize("shown", [True, False])
def test_every_paradigm_shares_its_encoding(paradigm: str, attention: str, shown: bool) -> None:
    layout = layout_of(paradigm, 1 if paradigm in ("s-a", "sa-v") else 3)
    net = network(layout, attention=attention, shown_moves=shown, **BOARD)
    assert_shared(net, layout, some(layout))


@pytest.mark.sampled(5)
@both
@pytest.mark.parametrize("bias", ["none", "relative", "shaw", "smolgen", "templates", "own_attention"])
def test_every_bias_shares_its_encoding(bias: str, attention: str, own_attention: None) -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention=attention, bias=bias, **BOARD)
    assert_shared(net, layout, some(layout))


@pytest.mark.sampled(5)
@both
@pytest.mark.parametrize("options", [{"norm": "post"}, {"gates": True, "board_code": 4}, {"positions": "rotary"}])
def test_every_form_of_block_shares_its_encoding(options: dict[str, Any], attention: str) -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention=attention, time_conditioning=True, **BOARD, **options)
    assert_shared(net, layout, some(layout))


@both
@every_form
def test_no_feature_depends_on_what_it_may_not_see(options: dict[str, Any], attention: str) -> None:
    layout = layout_of("s-avsav")
    levels = attention_levels(layout, attention)
    net = network(layout, attention=attention, **options)
    tokens = some(layout)
    features = net.trunk(tokens, TIMES)
    for level in range(int(levels.max()) + 1):
        later = torch.from_numpy(levels > level)
        changed = torch.where(later, clean_tokens(layout, seed=5), tokens)
        times = TIMES if level else TIMES + 1  # what is given does not know the time either
        seen = torch.from_numpy(levels <= level)
        got = net.trunk(changed, times)
        torch.testing.assert_close(got[:, seen], features[:, seen], rtol=0, atol=1e-12)
    if later.any():
        assert not torch.allclose(got[:, later], features[:, later])


@pytest.mark.parametrize(
    ("attention", "paradigm", "before"),
    [
        ("full", "s-asa", [True, True]),
        ("prefix", "s-asa", [False, True]),  # what is given shows no imagined move, an imagined state the next one
        ("block_causal", "s-asa", [False, False]),
        ("full", "sa-v", [True]),
        ("block_causal", "sa-v", [True]),
    ],
)
def test_a_state_shows_the_move_after_it_where_it_may_see_it(attention: str, paradigm: str, before: list[bool]) -> None:
    layout = layout_of(paradigm, 1 if paradigm == "sa-v" else 2)
    shown = network(layout, attention=attention, **BOARD).trunk.shown
    assert shown is not None
    assert shown.is_marked[:, :2].tolist() == [[one, one] for one in before]
    assert shown.is_marked[:, 2:].all(1).tolist() == ([False] if paradigm == "sa-v" else [True, False])


def test_full_attention_shows_everything_to_everything() -> None:
    """The law above is not empty: what is given changes with what is imagined, by attention and by shown moves."""
    layout = layout_of("s-avsav")
    given = num_given(layout)
    for shown in (True, False):
        net = network(layout, shown_moves=shown, **BOARD)
        tokens = some(layout)
        changed = torch.cat([tokens[:, :given], clean_tokens(layout, seed=5)[:, given:]], 1)
        one, other = (net.trunk(x, None)[:, :given] for x in (tokens, changed))
        assert (one - other).abs().max() > 1e-3
        assert net.encode(tokens) is None


@both
@pytest.mark.parametrize("bias", ["none", "relative", "own_attention"])
def test_it_is_full_attention_under_a_mask(bias: str, attention: str, own_attention: None) -> None:
    """A network of full attention, told by hand who sees whom; moves that are not shown."""
    layout = layout_of("s-avsav")
    options = {"bias": bias, "shown_moves": False, **BOARD}
    net, full = network(layout, attention=attention, **options), network(layout, **options)
    full.load_state_dict(net.state_dict())
    levels = index_buffer(attention_levels(layout, attention))
    visible = torch.zeros(layout.length, layout.length, dtype=torch.bool)
    for i in range(layout.length):
        for j in range(layout.length):
            visible[i, j] = levels[j] <= levels[i]
    tokens = some(layout)
    torch.testing.assert_close(net.trunk(tokens, None), full.trunk(tokens, None, visible))
    mine = torch.rand(visible.shape, generator=torch.Generator().manual_seed(2)) < 0.7
    mine |= torch.eye(layout.length, dtype=torch.bool)
    torch.testing.assert_close(net.trunk(tokens, None, mine), full.trunk(tokens, None, visible & mine))


@both
@pytest.mark.parametrize("bias", ["relative", "smolgen", "own_attention"])
def test_gradients_are_the_same(bias: str, attention: str, own_attention: None) -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention=attention, bias=bias, **BOARD)
    clean = clean_tokens(layout)
    tokens, where = noised(layout, clean)
    net.token_nll(tokens, None, clean, where).sum().backward()  # type: ignore[no-untyped-call]
    expected = [weight.grad for weight in net.parameters()]
    net.zero_grad()
    logits = net.denoise(tokens, None, net.encode(tokens))
    (-logits.log_prob(clean)[where].sum()).backward()  # type: ignore[no-untyped-call]
    for weight, grad in zip(net.parameters(), expected, strict=True):
        assert (weight.grad is None) == (grad is None)
        torch.testing.assert_close(weight.grad, grad)


@both
def test_a_row_stands_for_several(attention: str) -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention=attention, **BOARD)
    tokens = some(layout)
    given = num_given(layout)
    many = tokens.repeat_interleave(4, 0)
    many[:, given:] = some(layout_of("s-avsav"))[torch.arange(12) % 3][:, given:]
    shared = net.denoise(many, None, net.encode(tokens, 4))
    torch.testing.assert_close(shared.dense(), net(many, None).dense())


@pytest.mark.parametrize("per_row", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_attention_of_the_last_tokens(per_row: bool, p: float) -> None:
    """Values and gradients of the CPU's kernel, against the rows of attention between all."""
    stream = torch.Generator().manual_seed(0)
    b, n, h, d, first = 2, 3, 2, 2, 1
    qkv = torch.randn(b, n, 3, h, d, generator=stream, dtype=torch.float64, requires_grad=True)
    shape = (b, h, n - first, n) if per_row else (h, n - first, n)
    bias = torch.randn(shape, generator=stream, dtype=torch.float64, requires_grad=True)

    def run(qkv: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attend(qkv, bias, p, first)

    assert torch.autograd.gradcheck(run, (qkv, bias))
    if p == 0:
        whole = torch.zeros(*shape[:-2], n, n, dtype=torch.float64)
        whole[..., first:, :] = bias.detach()
        torch.testing.assert_close(run(qkv, bias), attend(qkv, whole, 0.0)[:, first:])
        torch.testing.assert_close(run(qkv.detach(), bias.detach()), run(qkv, bias))
    with pytest.raises(ValueError, match=r"an attention bias is \[2, 2, 3\]"):
        attend(qkv, torch.zeros(h, n, n), 0.0, first)


@pytest.mark.slow
@both
def test_it_is_compiled(attention: str) -> None:
    layout = layout_of("s-avsav")
    net = network(layout, attention=attention, **BOARD)
    tokens = some(layout)
    encoded = net.encode(tokens)
    expected = net(tokens).dense()
    net.compile(fullgraph=True, backend="aot_eager")  # all but the generation of code
    torch.testing.assert_close(net(tokens).dense(), expected)
    torch.testing.assert_close(net.denoise(tokens, None, encoded).dense(), expected)


def test_from_left_to_right_nothing_changes() -> None:
    """What is given sees itself alone there already, and an imagined token sees what lies before it."""
    layout = layout_of("s-avsav")
    tokens, out = clean_tokens(layout), []
    for attention in ("full", "prefix", "block_causal"):
        config = NetworkConfig(num_layers=2, width=16, num_heads=2, move_rank=4, attention=attention, **BOARD)
        net = CausalTransformer(layout, config, generator=torch.Generator().manual_seed(0)).double().eval()
        out.append(net(tokens).dense())
    torch.testing.assert_close(out[1], out[0])
    torch.testing.assert_close(out[2], out[0])


def test_a_bias_of_somebody_else_need_not_know_of_it() -> None:
    class Plain(AttentionBias):
        pass

    layout = layout_of("s-a", 1)
    config = NetworkConfig(num_layers=1, width=8, num_heads=2)
    qkv = torch.randn(2, 5, 3, 2, 4)
    torch.testing.assert_close(Plain(layout, config).attend_last(0, qkv, None, 0.0, 2), attend(qkv, None, 0.0)[:, 2:])
    own, bias = OwnAttention(layout, NetworkConfig(num_layers=1, width=8, num_heads=2)), torch.randn(2, 3, 5)
    whole = torch.cat([torch.zeros(2, 2, 5), bias], 1)
    torch.testing.assert_close(own.attend_last(0, qkv, bias, 0.0, 2), own.attend(0, qkv, whole, 0.0)[:, 2:])


def test_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="attention must be one of full, prefix, block_causal; got 'given'"):
        NetworkConfig(attention="given")
    assert NetworkConfig().attention == "full"
