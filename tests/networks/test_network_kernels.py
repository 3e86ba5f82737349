"""The forms written for a CPU against torch's own: dropout, attention, linear."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

import genpolicy
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.networks.cpu import Linear, attend, linear
from genpolicy.networks.cpu.dropout import dropout, keep_probability
from genpolicy.networks.cpu.threads import in_parallel
from genpolicy.networks.transformer import Rotary
from genpolicy.sequence import Layout


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def num_threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def qkv_and_bias(b: int, n: int, h: int, d: int, dtype: torch.dtype = torch.float64, *, each_row: bool = False):
    g = generator()
    qkv = torch.randn(b, n, 3, h, d, generator=g, dtype=dtype, requires_grad=True)
    shape = (b, h, n, n) if each_row else (h, n, n)
    bias = torch.randn(shape, generator=g, dtype=dtype, requires_grad=True)
    return qkv, bias


def plain_attention(qkv: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    scores = query @ key.mT / math.sqrt(qkv.shape[-1])
    return ((scores if bias is None else scores + bias).softmax(-1) @ value).transpose(1, 2)


@pytest.mark.parametrize("bias", ["none", "shared", "each row"])
@pytest.mark.parametrize("shape", [(3, 5, 2, 4), (5, 210, 2, 4), (1, 1, 1, 2)])
def test_attention_and_its_gradients_equal_the_formula(num_threads: int, shape, bias: str) -> None:
    qkv, added = qkv_and_bias(*shape, each_row=bias == "each row")
    b = None if bias == "none" else added
    expected = plain_attention(qkv, b)
    got = attend(qkv, b, 0.0)
    torch.testing.assert_close(got, expected)
    weights = torch.randn(expected.shape, generator=generator(1), dtype=torch.float64)
    wrt = [qkv] if b is None else [qkv, b]
    for mine, theirs in zip(
        torch.autograd.grad((got * weights).sum(), wrt),
        torch.autograd.grad((expected * weights).sum(), wrt),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 200.0, -200.0])
def test_attention_takes_scores_beyond_the_range_of_exp(shift: float, dtype: torch.dtype) -> None:
    g = generator()
    qkv = (torch.randn(3, 7, 3, 2, 4, generator=g) * torch.tensor([8.0, 8.0, 1.0]).view(3, 1, 1)).to(dtype)
    bias = (torch.randn(2, 7, 7, generator=g) + shift).masked_fill(torch.eye(7).bool(), -math.inf).to(dtype)
    weights = torch.randn(3, 7, 2, 4, generator=g, dtype=torch.float64)
    wrt = [qkv.requires_grad_(), bias.requires_grad_()]
    exact = [x.detach().double().requires_grad_() for x in wrt]
    got, expected = attend(*wrt, 0.0), plain_attention(*exact)
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(
        torch.autograd.grad((got * weights.to(dtype)).sum(), wrt),
        torch.autograd.grad((expected * weights).sum(), exact),
        strict=True,
    ):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-3)


def test_a_row_that_a_large_number_masks_has_the_gradient_of_the_formula() -> None:
    g = generator()
    qkv, bias = torch.randn(3, 7, 3, 2, 4, generator=g), torch.randn(2, 7, 7, generator=g)
    bias[:, 2] = -1e9
    weights, wrt = torch.randn(3, 7, 2, 4, generator=g), [qkv.requires_grad_(), bias.requires_grad_()]
    got, expected = attend(*wrt, 0.0), plain_attention(*wrt)
    torch.testing.assert_close(got, expected)
    mine, theirs = (torch.autograd.grad((each * weights).sum(), wrt) for each in (got, expected))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("each_row", [False, True])
def test_a_bias_may_have_a_gradient_where_the_rest_has_none_and_the_other_way_round(each_row: bool) -> None:
    qkv, bias = qkv_and_bias(3, 6, 2, 4, each_row=each_row)
    expected = plain_attention(qkv, bias)
    for wrt, got in ((bias, attend(qkv.detach(), bias, 0.0)), (qkv, attend(qkv, bias.detach(), 0.0))):
        torch.testing.assert_close(got, expected)
        weights = torch.arange(got.numel(), dtype=torch.float64).view(got.shape)
        (mine,) = torch.autograd.grad((got * weights).sum(), wrt)
        (theirs,) = torch.autograd.grad((expected * weights).sum(), wrt, retain_graph=True)
        torch.testing.assert_close(mine, theirs)


def test_a_bias_of_each_row_that_is_the_same_is_a_shared_one() -> None:
    qkv, bias = qkv_and_bias(5, 7, 2, 4, torch.float32)
    each = bias.expand(5, -1, -1, -1)
    outs = attend(qkv, bias, 0.0), attend(qkv, each, 0.0)
    assert torch.equal(*outs)
    shared, summed = (torch.autograd.grad(out.square().sum(), bias)[0] for out in outs)
    torch.testing.assert_close(shared, summed)
    with torch.no_grad():
        torch.testing.assert_close(attend(qkv, bias, 0.0), attend(qkv, each, 0.0))


@pytest.mark.parametrize("shape", [(2, 7, 6), (1, 2, 7, 7), (4, 2, 7, 7), (7, 7)])
@pytest.mark.parametrize("with_gradient", [False, True])
def test_a_bias_of_another_shape_is_refused(shape: tuple[int, ...], with_gradient: bool) -> None:
    qkv = torch.zeros(3, 7, 3, 2, 4, requires_grad=with_gradient)
    with pytest.raises(ValueError, match=r"an attention bias is \[2, 7, 7\] or \[3, 2, 7, 7\], got \["):
        attend(qkv, torch.zeros(shape), 0.0)


def test_attention_without_bias_and_dropout_is_torchs_own() -> None:
    qkv = torch.randn(2, 40, 3, 2, 8, generator=generator(), requires_grad=True)
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    own = F.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    assert torch.equal(attend(qkv, None, 0.0), own)
    assert attend(qkv, None, 0.1).shape == own.shape
    assert "CachedAttention" in type(attend(qkv, None, 0.1).grad_fn).__name__
    assert "CachedAttention" not in type(attend(qkv, None, 0.0).grad_fn).__name__


@pytest.mark.parametrize("each_row", [False, True])
def test_attention_without_gradients_equals_attention_with_them(each_row: bool) -> None:
    qkv, bias = qkv_and_bias(2, 6, 2, 4, each_row=each_row)
    with torch.no_grad():
        torch.testing.assert_close(attend(qkv, bias, 0.0), attend(qkv.detach().requires_grad_(), bias, 0.0))
    torch.testing.assert_close(attend(qkv.detach(), bias.detach(), 0.0), attend(qkv, bias, 0.0).detach())


@pytest.mark.parametrize("scores", [1, 30, 60, 100, 220])  # 90 are a row's: some of its heads, and some rows
@pytest.mark.parametrize("each_row", [False, True])
def test_pieces_of_any_size_give_the_same(
    num_threads: int, scores: int, each_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    qkv, bias = qkv_and_bias(5, 6, 3, 4, each_row=each_row)
    first = bias[..., 1:, :]

    def results() -> list[torch.Tensor]:
        torch.random.default_generator.manual_seed(7)
        out = attend(qkv, first, 0.4, 1)
        weights = torch.arange(out.numel(), dtype=torch.float64).view(out.shape)
        return [out, *torch.autograd.grad((out * weights).sum(), (qkv, bias))]

    expected = results()
    monkeypatch.setattr(sys.modules["genpolicy.networks.cpu.attention"], "_SCRATCH_SCORES", scores)
    torch.testing.assert_close(results(), expected)


@pytest.mark.parametrize("each_row", [False, True])
def test_gradcheck_of_attention_with_dropout(num_threads: int, each_row: bool) -> None:
    qkv, bias = qkv_and_bias(2, 3, 2, 2, each_row=each_row)

    def same_draws(qkv: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(7)
            return attend(qkv, bias, 0.4)

    assert torch.autograd.gradcheck(same_draws, (qkv, bias))


def test_attention_dropout_drops_whole_probabilities_at_the_right_rate() -> None:
    # With value = identity the output is the attention matrix itself: uniform 1/n, dropped or divided by keep.
    n = 128
    qkv = torch.zeros(8, n, 3, 1, n)
    qkv[:, :, 2, 0] = torch.eye(n)
    qkv.requires_grad_()
    out = attend(qkv, None, 0.1).detach()
    dropped = out == 0
    keep = keep_probability(0.1)
    torch.testing.assert_close(out[~dropped], torch.full_like(out[~dropped], 1 / n / keep))
    trials = dropped.numel()
    assert abs(dropped.double().mean().item() - 0.1) < 5 * math.sqrt(0.09 / trials)
    # Rows of the batch, queries and keys are drawn independently: their own means spread as binomials do.
    for means in (dropped.double().mean((1, 2, 3)), dropped.double().mean((0, 2, 3)), dropped.double().mean((0, 1, 2))):
        sigma = math.sqrt(0.09 / (trials / len(means)))
        assert (means - 0.1).abs().max() < 5 * sigma
    assert not torch.equal(dropped[0], dropped[1])


@pytest.mark.parametrize("p", [0.1, 0.25, 0.9])
def test_dropout_keeps_rate_and_mean(p: float) -> None:
    x = torch.ones(50, 4001)
    out = dropout(x, p, training=True)
    kept = (out != 0).double()
    sigma = math.sqrt(p * (1 - p) / x.numel())
    assert abs(kept.mean().item() - (1 - p)) < 5 * sigma
    assert abs(out.double().mean().item() - 1) < 5 * sigma / (1 - p)
    # What is kept is one number, the inverse of the exact probability of keeping.
    torch.testing.assert_close(out[out != 0].unique(), torch.tensor([1 / keep_probability(p)]))
    # Neighbours are independent, within a 64-bit word and across.
    for lag in (1, 2, 3, 4, 5):
        both = (kept[:, lag:] * kept[:, :-lag]).mean().item()
        assert abs(both - (1 - p) ** 2) < 6 * math.sqrt(1 / x.numel())


def test_keep_probability_is_within_16_bits() -> None:
    for p in (0.0, 0.05, 0.1, 0.3, 0.5, 0.99):
        assert abs(keep_probability(p) - (1 - p)) <= 0.5 / 65536


def test_dropout_follows_torchs_default_generator(num_threads: int) -> None:
    qkv, bias = qkv_and_bias(5, 30, 2, 4)
    x = torch.ones(7, 33)
    state = torch.get_rng_state()
    first = dropout(x, 0.5, True), attend(qkv, bias, 0.5)
    second = dropout(x, 0.5, True), attend(qkv, bias, 0.5)
    torch.set_rng_state(state)
    again = dropout(x, 0.5, True), attend(qkv, bias, 0.5)
    for a, b, c in zip(first, second, again, strict=True):
        assert torch.equal(a, c)
        assert not torch.equal(a, b)


def test_dropout_does_not_depend_on_the_number_of_threads() -> None:
    x, before, state = torch.ones(7, 33), torch.get_num_threads(), torch.get_rng_state()
    outs = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        outs.append(dropout(x, 0.5, True))
    torch.set_num_threads(before)
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])


def test_gradient_of_dropout_is_its_mask() -> None:
    x = torch.randn(6, 9, dtype=torch.float64, generator=generator()).requires_grad_()
    out = dropout(x, 0.3, True)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, (out / x).detach())
    assert dropout(x, 0.3, training=False) is x
    assert dropout(x, 0.0, training=True) is x


@pytest.fixture(params=["oneDNN", "oneDNN in halves", "MKL"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    module = sys.modules["genpolicy.networks.cpu.linear"]  # the package's attribute of this name is the function
    if request.param != "MKL" and not module.HAS_ONEDNN:
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(module, "_is_wider", request.param != "MKL")
    monkeypatch.setattr(module, "_is_halved", request.param == "oneDNN in halves")
    monkeypatch.setattr(module, "_MANY_ROWS", 1)
    return request.param


@pytest.mark.parametrize(("n", "inner", "outer"), [(7, 5, 3), (40, 16, 64), (40, 64, 16), (1, 1, 1), (0, 4, 5)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_and_its_gradients_equal_torchs(library: str, n: int, inner: int, outer: int, with_bias: bool) -> None:
    g = generator()
    x = torch.randn(2, n, inner, generator=g, requires_grad=True)
    weight = torch.randn(outer, inner, generator=g, requires_grad=True)
    bias = torch.randn(outer, generator=g, requires_grad=True) if with_bias else None
    wrt = [x, weight] + ([bias] if bias is not None else [])
    mine, theirs = linear(x, weight, bias), F.linear(x, weight, bias)
    torch.testing.assert_close(mine, theirs)
    with torch.inference_mode():
        assert torch.equal(linear(x, weight, bias), mine)
    weights = torch.randn(theirs.shape, generator=g)
    for a, b in zip(
        torch.autograd.grad((mine * weights).sum(), wrt),
        torch.autograd.grad((theirs * weights).sum(), wrt),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # float32 sums in another order


@pytest.mark.parametrize("options", [{"head": "typed", "move_rank": 8}, {"head": "unified"}])
def test_onednn_gets_the_same_shapes_in_every_update(options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    # It keeps a compiled kernel for each shape: training grew with every number of masked tokens that it met.
    module = sys.modules["genpolicy.networks.cpu.linear"]
    shapes: set[tuple[torch.Size, torch.Size]] = set()

    def noted(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        shapes.add((x.shape, weight.shape))
        return F.linear(x, weight, bias)

    monkeypatch.setattr(module, "_is_wider", True)
    monkeypatch.setattr(module, "_is_halved", False)
    monkeypatch.setattr(module, "_product", noted)
    layout = Layout(genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false"), "s-asa", 2)
    network = DenoisingTransformer(layout, NetworkConfig(geometry="board", num_layers=1, width=16, **options))
    tokens = torch.multinomial(torch.from_numpy(layout.admitted).double(), 8, replacement=True, generator=generator())
    numbers = []
    for num_masked in range(1, 6):
        where = torch.zeros(8, layout.length, dtype=torch.bool)
        where[:num_masked, -num_masked:] = True
        noised = torch.where(where, layout.mask, tokens.t())
        network.token_nll(noised, torch.ones(8), tokens.t(), where).sum().backward()
        numbers.append(len(shapes))
    assert numbers[0] > 3
    assert numbers == numbers[:1] * 5


def test_linear_takes_float64_and_strided_input(library: str) -> None:
    layer = Linear(6, 4).double()
    x = torch.randn(6, 9, 5, dtype=torch.float64, generator=generator()).permute(2, 1, 0)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    single = Linear(6, 4)
    torch.testing.assert_close(single(x.float()), F.linear(x.float(), single.weight, single.bias))


@pytest.mark.parametrize("maker", ["GenuineIntel", "AuthenticAMD", None])
def test_the_maker_of_the_processor_is_read(maker: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    module = sys.modules["genpolicy.networks.cpu.linear"]
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel")
    if maker is not None:
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {maker}\n", encoding="utf-8")
    assert module._made_by_intel() == (maker != "AuthenticAMD")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n", True),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 25\n", False),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\n", False),
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 25\n", False),
        (None, True),
    ],
)
def test_the_family_of_the_processor_is_read(text, expected, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    module = sys.modules["genpolicy.networks.cpu.linear"]
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "AMD64 Family 25 Model 17 Stepping 1, AuthenticAMD")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
    assert module._is_zen_4() == expected


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    rotary = Rotary(torch.arange(20), 8)
    query, key = torch.randn(8, generator=generator()), torch.randn(8, generator=generator(1))
    at = rotary(torch.stack([query, key]).expand(1, 20, 2, 8)[:, :, :, None])[0, :, :, 0]
    scores = at[:, 0] @ at[:, 1].T
    for distance in range(-19, 20):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)
    assert (scores[0, 0] - scores[0, 5]).abs() > 1e-3


def test_work_is_split_in_order(num_threads: int) -> None:
    ranges = in_parallel(lambda rows: rows, 5)
    assert [i for rows in ranges for i in rows] == [0, 1, 2, 3, 4]
    assert len(ranges) == num_threads
    assert in_parallel(lambda rows: (torch.is_grad_enabled(), torch.get_num_threads()), 2)[0] == (
        (True, 1) if num_threads == 1 else (False, 1)
    )


def test_an_error_in_a_thread_is_raised(num_threads: int) -> None:
    def fail(rows: range) -> None:
        raise RuntimeError(f"rows {rows}")

    with pytest.raises(RuntimeError, match="rows"):
        in_parallel(fail, 4)


_COMPUTED = """
import json
import torch
from genpolicy.networks.cpu import Dropout, Linear, attend
torch.manual_seed(0)
qkv, bias = torch.randn(64, 30, 3, 2, 16, requires_grad=True), torch.randn(2, 30, 30)
attended = attend(qkv, bias, 0.0)
made = Linear(32, 8)(attended.flatten(2))
made.square().sum().backward()
own = [x.grad_fn.name() for x in (attended, Dropout(0.1)(made))]
print(json.dumps([own, made[:2].flatten().tolist() + qkv.grad[:2].flatten().tolist()]))
"""


def test_own_kernels_can_be_switched_off() -> None:
    answers = []
    for value in ("1", "0"):
        environment = {**os.environ, "GENPOLICY_OWN_KERNELS": value}
        done = subprocess.run([sys.executable, "-c", _COMPUTED], env=environment, capture_output=True, check=True)
        answers.append(json.loads(done.stdout))
    (own, numbers), (plain, expected) = answers
    assert own == ["_CachedAttentionBackward", "_DropoutBackward"]
    assert not set(plain) & set(own)
    torch.testing.assert_close(torch.tensor(numbers), torch.tensor(expected), rtol=1e-4, atol=1e-5)


_RESIDENT = """
from pathlib import Path
import torch
from genpolicy.networks.cpu.memory import keep_freed_memory
keeps = keep_freed_memory()
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])
before, tensor = resident(), torch.ones(25_000_000)
full = resident()
del tensor
print(int(keeps), full - before, resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")
def test_freed_memory_stays_with_the_process() -> None:
    answer = subprocess.run([sys.executable, "-c", _RESIDENT], capture_output=True, text=True, check=True)
    keeps, full, after = map(int, answer.stdout.split())
    if not keeps:
        pytest.skip("another C library than glibc")
    assert after > 0.99 * full, (full, after)
