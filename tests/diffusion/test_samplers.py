"""Samplers: published traces, exact distributions, and the guarantees that policies rest on."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy import registry
from genpolicy.diffusion import (
    Absorbing,
    LogitGroup,
    Multinomial,
    Process,
    Sampler,
    TypedLogits,
    make_sampler,
    sample,
)
from genpolicy.diffusion.ranking import confidence, likeliest_symbols, num_noised
from genpolicy.diffusion.samplers import AncestralSampler, sample_steps
from genpolicy.errors import ConfigError

NAMES = tuple(registry.available("samplers"))


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def streams(*seeds: int) -> list[torch.Generator]:
    return [stream(seed) for seed in seeds]


def make(name: str, process: Process, length: int = 9, **options: Any) -> Sampler:
    places = {"a0_last": {"last": [2]}, "by_ply": {"blocks": [-1, 0, *[1] * (length - 4), 2, 2]}}
    return make_sampler(name, process, **places.get(name, {}), **options)


def fixed_model(logits: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A model that says the same [N, K] whatever it sees."""
    return lambda tokens, t: logits.expand(len(tokens), -1, -1)


def mixing_model(num_symbols: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A model in which every token depends on every other."""

    def logits(tokens: Tensor, t: Tensor) -> Tensor:
        place, symbol = torch.arange(tokens.shape[1]).double(), torch.arange(num_symbols).double()
        seen = (tokens.double() * (place + 1)).sum(1)[:, None, None]
        return 2 * torch.sin(seen + 0.7 * t.double()[:, None, None] + place[:, None] * 1.3 + symbol * 2.1)

    return logits


# Published traces.


def test_released_easy_first_trace(vectors: dict[str, Any]) -> None:
    """The released code, executed; where two scores tie at its cut-off it re-masks too few, and we go by position."""
    trace = vectors["diffusearch_topk_decoding"]
    x0, scores = torch.tensor(trace["x0"]), torch.tensor(trace["scores_log_prob"], dtype=torch.float64)
    frozen = torch.tensor(trace["maskable"]) == 0
    process = Absorbing(99, trace["T"])
    # Two symbols a token, so that the likeliest has the score's log-probability exactly; a frozen one is certain.
    logits = torch.full((len(x0), 99), -math.inf, dtype=torch.float64)
    logits[torch.arange(len(x0)), x0] = scores
    for spare, symbol in enumerate(range(30, 99)):
        logits[:, symbol] = torch.log(-torch.expm1(scores) / 69) if spare < 69 else -math.inf
    sampler = make_sampler("easy_first", process)
    xt = torch.where(frozen, x0, 99)[None]
    for t in range(trace["T"], 1, -1):
        out = sampler.step(logits[None], t, t - 1, xt, frozen=frozen[None])
        xt = out.prev_sample
        expected = torch.tensor(trace["xt_after_step_t"][str(t - 1)])
        if t - 1 in (16, 17):  # tokens 4 and 5 tie at -0.1 and one of them must go: the later one
            assert expected[5] == 15
            expected[5] = 99
        assert xt[0].tolist() == expected.tolist(), t
        num_masked = int((xt == 99).sum())
        assert num_masked == 10 * (t - 1) // trace["T"]
    assert sampler.step(logits[None], 1, 0, xt, frozen=frozen[None]).prev_sample[0].tolist() == trace["x0"]


def test_counts_of_the_released_codes(vectors: dict[str, Any]) -> None:
    expected, of_250 = vectors["reveal_counts"], torch.tensor([250])
    linear = [int(num_noised(of_250, s, 20, "linear")) for s in range(19, 0, -1)]
    assert linear == expected["diffusearch_linear_N250_T20"]
    cosine = [int(num_noised(of_250, s, 20, "cosine")) for s in range(19, 0, -1)]
    assert cosine == [int(250 * math.cos((20 - s) / 20 * math.pi / 2)) for s in range(19, 0, -1)]
    for num, steps in ((250, 20), (10, 3)):
        left = [int(num_noised(torch.tensor([num]), s, steps, "even")) for s in range(steps, -1, -1)]
        revealed = [before - after for before, after in itertools.pairwise(left)]
        assert revealed == expected[f"llada_N{num}_S{steps}"]


@pytest.mark.parametrize("rate", ["linear", "cosine", "even"])
def test_counts_run_from_all_to_none(rate: str) -> None:
    num = torch.tensor([0, 1, 7, 250])
    counts = torch.stack([num_noised(num, s, 20, rate) for s in range(20, -1, -1)])
    assert counts[0].tolist() == num.tolist()
    assert counts[-1].tolist() == [0, 0, 0, 0]
    assert bool((counts.diff(dim=0) <= 0).all())


def test_block_refinement_of_diffusers(vectors: dict[str, Any]) -> None:
    trace = vectors["block_refinement"]["trajectory"]
    logits = torch.tensor(vectors["confidence_scores"]["logits"], dtype=torch.float64)
    process = Absorbing(5, 3)
    sampler, start = make_sampler("easy_first_commit", process), torch.tensor(trace[:1])
    steps = sample_steps(fixed_model(logits), process, sampler, start, torch.zeros(1, 8).bool())
    assert [trace[0], *(step.output.prev_sample[0].tolist() for step in steps)] == trace


def test_confidences(vectors: dict[str, Any]) -> None:
    expected = vectors["confidence_scores"]
    logits = TypedLogits.of(torch.tensor(expected["logits"], dtype=torch.float64)[None])
    symbols = likeliest_symbols(logits)
    assert symbols[0].tolist() == expected["argmax"]
    # The vectors were computed in float32.
    for got, key in (
        (confidence(logits, symbols, "log_prob").exp(), "max_prob"),
        (-confidence(logits, symbols, "entropy"), "entropy"),
        (confidence(logits, symbols, "margin"), "margin_prob"),
    ):
        torch.testing.assert_close(got[0], torch.tensor(expected[key]).double(), rtol=0, atol=1e-6)


# Exact distributions.

NUM_DRAWS = 40_000


def exact_denoiser(joint: Tensor, process: Process) -> Callable[[Tensor, Tensor], Tensor]:
    """log p(x_0^n | x_t) by enumeration, for a joint distribution [K, K] of two tokens."""
    num = process.num_symbols

    def logits(tokens: Tensor, t: Tensor) -> Tensor:
        # One table of likelihoods q(x_t | x_0) for each of the two tokens: [B, K].
        tables = process.marginal(torch.arange(num), int(t[0]))
        first, second = tables[:, tokens[:, 0]].T, tables[:, tokens[:, 1]].T
        weight = joint * first[:, :, None] * second[:, None, :]
        return torch.stack([weight.sum(2), weight.sum(1)], dim=1).log()

    return logits


@pytest.mark.parametrize(
    ("name", "process"),
    [
        ("ancestral", Absorbing(3, 60, "linear")),
        ("ancestral", Multinomial(3, 60, "linear")),
        ("remasking", Absorbing(3, 60, "linear")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_sampling_by_the_chain_reproduces_a_joint_distribution(name: str, process: Process) -> None:
    joint = torch.tensor([[0.30, 0.02, 0.03], [0.05, 0.25, 0.0], [0.01, 0.04, 0.30]], dtype=torch.float64)
    num = NUM_DRAWS // 4
    free = torch.zeros(num, 2).bool()
    start = process.prior_sample(torch.zeros(num, 2).long(), free, generator=stream(0))
    # What a step re-masks it also decides at once, as if independent: little of it here.
    sampler = make_sampler(name, process, **({"eta": 0.02} if name == "remasking" else {}))
    drawn = sample(exact_denoiser(joint, process), process, sampler, start, free, generator=stream(1))
    counts = torch.zeros(9).index_add_(0, drawn[:, 0] * 3 + drawn[:, 1], torch.ones(num)).double() / num
    distance = float((counts - joint.flatten()).abs().sum() / 2)
    # Sampling error of 10,000 draws is about 0.01. Tokens revealed in the same of 60 steps are drawn as if
    # independent: one pair in 60, times the 0.5 by which this joint differs from independence.
    assert distance < 0.032
    independent = torch.outer(joint.sum(1), joint.sum(0)).flatten()
    assert float((counts - independent).abs().sum() / 2) > 0.4


def test_one_step_multinomial_draws_the_denoiser() -> None:
    """From pure noise straight to time 0 a sample is a draw of p(x_0 | x_T), whichever prediction the network makes."""
    logits = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, 0.5]], dtype=torch.float64)
    for prediction_type in ("denoiser", "leave_one_out"):
        process = Multinomial(3, 8, prediction_type=prediction_type)
        free = torch.zeros(NUM_DRAWS, 2).bool()
        start = process.prior_sample(torch.zeros(NUM_DRAWS, 2).long(), free, generator=stream(3))
        drawn = sample(
            fixed_model(logits),
            process,
            make_sampler("ancestral", process),
            start,
            free,
            generator=stream(4),
            num_steps=1,
        )
        frequencies = torch.nn.functional.one_hot(drawn, 3).double().mean(0)
        # Four standard deviations of a proportion over 40,000 draws.
        torch.testing.assert_close(frequencies, logits.softmax(-1), rtol=0, atol=0.01)


def test_ancestral_unmasks_at_the_posterior_rate() -> None:
    process = Absorbing(3, 20, "cosine_maskgit")
    xt = torch.full((NUM_DRAWS, 1), 3)
    free = torch.zeros(NUM_DRAWS, 1).bool()
    sampler = make_sampler("ancestral", process)
    for t, s in ((20, 19), (10, 4)):
        out = sampler.step(torch.zeros(NUM_DRAWS, 1, 3), t, s, xt, frozen=free, generator=stream(0))
        chance = float((process.alpha[s] - process.alpha[t]) / (1 - process.alpha[t]))
        got = float((out.prev_sample != 3).double().mean())
        assert got == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / NUM_DRAWS))


def test_ranking_noise_moves_the_order_and_not_the_symbols() -> None:
    process = Absorbing(2, 10)
    logits = torch.tensor([[0.5, 0.0], [0.6, 0.0], [0.7, 0.0], [0.8, 0.0]]).double()
    sampler = make_sampler("stochastic", process, noise=2.0)
    xt, free = torch.full((2000, 4), 2), torch.zeros(2000, 4).bool()
    out = sampler.step(logits.expand(2000, -1, -1), 10, 7, xt, frozen=free, generator=stream(0))
    assert bool((out.sampled == 0).all())
    revealed = (out.prev_sample != 2).double()
    assert revealed.sum(1).unique().tolist() == [2.0]
    share = revealed.mean(0)
    assert 0.3 < share[0] < share[3] < 0.9
    # Gumbel noise on scores is sampling without replacement by exp(score / scale): check the first of the ranking.
    one = make_sampler("stochastic", process, noise=2.0)
    first = one.step(logits[:2].expand(2000, -1, -1), 10, 5, xt[:, :2], frozen=free[:, :2], generator=stream(1))
    score = logits[:2].log_softmax(-1)[:, 0] / (2.0 * 5 / 10)
    got = float((first.prev_sample[:, 1] != 2).double().mean())
    assert got == pytest.approx(float(score.softmax(0)[1]), abs=5 * 0.5 / 2000**0.5)
    still = make_sampler("stochastic", process, noise=0.0)
    out = still.step(logits.expand(2000, -1, -1), 10, 7, xt, frozen=free, generator=stream(0))
    assert bool((out.prev_sample == torch.tensor([2, 2, 0, 0])).all())


# Guarantees.


def processes() -> list[Process]:
    return [Absorbing(6, 20, "cosine_maskgit"), Multinomial(6, 20), Multinomial(6, 20, prediction_type="leave_one_out")]


def allowed_here(name: str, process: Process) -> bool:
    return process.kind == "absorbing" or name not in ("a0_last", "easy_first_commit", "remasking")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("process", processes(), ids=lambda p: "-".join(map(str, p.config().values())))
@pytest.mark.parametrize("num_steps", [1, 7, 20])
def test_guarantees(name: str, process: Process, num_steps: int) -> None:
    if not allowed_here(name, process):
        return
    model = mixing_model(6)
    tokens = torch.randint(6, (4, 9), generator=stream(1))
    frozen = torch.rand(4, 9, generator=stream(2)) < 0.3
    frozen[:, 2] = False
    admitted = torch.rand(9, 6, generator=stream(3)) < 0.5
    admitted[:, 5] = True
    sampler = make(name, process)
    start = process.prior_sample(tokens, frozen, admitted=admitted, generator=streams(1, 2, 3, 4))
    calls: list[int] = []
    for step in sample_steps(
        model, process, sampler, start, frozen, admitted=admitted, generator=streams(5, 6, 7, 8), num_steps=num_steps
    ):
        calls.append(step.t)
        done = step.output.prev_sample
        assert bool((done == tokens)[frozen].all())
        assert done.dtype == torch.int64
        assert bool(torch.isfinite(step.output.scores[~frozen]).all())
    assert len(calls) == (1 if name == "one_call" else num_steps)
    assert calls[0] == 20
    assert bool((done < 6).all())
    inside = admitted.expand(4, -1, -1).gather(-1, done[..., None])[..., 0]
    assert bool(inside[~frozen].all())
    again = sample(
        model, process, sampler, start, frozen, admitted=admitted, generator=streams(5, 6, 7, 8), num_steps=num_steps
    )
    assert torch.equal(done, again)
    # A row in other company: rows 2 and 0 with their own streams.
    few = sample(
        model, process, sampler, start[[2, 0]], frozen[[2, 0]], admitted=admitted, generator=streams(7, 5),
        num_steps=num_steps,
    )  # fmt: skip
    assert torch.equal(few, done[[2, 0]])


@pytest.mark.parametrize("name", NAMES)
def test_groups_and_one_dense_tensor_say_the_same(name: str) -> None:
    for process in (Absorbing(7, 10), Multinomial(7, 10)):
        if not allowed_here(name, process):
            continue
        admitted = torch.zeros(6, 7, dtype=torch.bool)
        admitted[[0, 2, 4], :4] = True
        admitted[[1, 3, 5], 4:] = True
        dense = torch.randn(3, 6, 7, generator=stream(0), dtype=torch.float64)
        groups = []
        for positions, symbols in (([0, 2, 4], range(4)), ([1, 3, 5], range(4, 7))):
            p, k = torch.tensor(positions), torch.tensor(list(symbols))
            groups.append(LogitGroup(p, k, dense[:, p][:, :, k]))
        typed = TypedLogits(tuple(groups), 6, 7)
        free = torch.zeros(3, 6).bool()
        xt = process.prior_sample(torch.zeros(3, 6).long(), free, admitted=admitted, generator=stream(1))
        for options in ({}, {"temperature": 0.7}):
            sampler = make(name, process, 6, **options)
            t, s = (10, 0) if name == "one_call" else (10, 4)
            outs = [
                sampler.step(logits, t, s, xt, frozen=free, admitted=admitted, generator=stream(2))
                for logits in (dense, typed)
            ]
            assert torch.equal(outs[0].prev_sample, outs[1].prev_sample)
            torch.testing.assert_close(outs[0].scores, outs[1].scores, rtol=0, atol=1e-12)


def test_a_head_that_offers_the_mask_does_not_get_it() -> None:
    process = Absorbing(3, 4)
    logits = torch.zeros(5, 2, 4)
    logits[..., 3] = 50.0
    xt, free = torch.full((5, 2), 3), torch.zeros(5, 2).bool()
    for name in ("ancestral", "easy_first", "one_call"):
        out = make(name, process).step(logits, 4, 0, xt, frozen=free, generator=stream(0))
        assert bool((out.prev_sample < 3).all())


def test_reselecting_returns_a_token_to_the_mask_and_committing_does_not() -> None:
    process = Absorbing(2, 4)
    xt, free = torch.tensor([[0, 2, 2, 2]]), torch.zeros(1, 4).bool()
    # Token 0 holds a symbol that the network thinks unlikely.
    logits = torch.tensor([[[-3.0, 3.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]]]).double()
    again = make_sampler("easy_first", process).step(logits, 3, 2, xt, frozen=free)
    assert again.prev_sample.tolist() == [[2, 0, 0, 2]]
    assert again.sampled.tolist() == [[0, 0, 0, 0]]
    kept = make_sampler("easy_first_commit", process).step(logits, 3, 2, xt, frozen=free)
    assert kept.prev_sample.tolist() == [[0, 0, 2, 2]]


def test_committing_keeps_more_than_the_grid_asks_for() -> None:
    process = Absorbing(2, 4)
    xt, free = torch.tensor([[0, 1, 0, 2]]), torch.zeros(1, 4).bool()
    logits = torch.tensor([[[-3.0, 3.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]]]).double()
    # At s = 3 three of four tokens would be masked, but three are decided already.
    kept = make_sampler("easy_first_commit", process).step(logits, 4, 3, xt, frozen=free)
    assert kept.prev_sample.tolist() == [[0, 1, 0, 2]]


@pytest.mark.parametrize("name", ["ancestral", "easy_first", "one_call"])
def test_temperature_divides_the_logits(name: str) -> None:
    process = Absorbing(3, 4)
    logits = torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64).expand(NUM_DRAWS, 1, 3)
    xt, free = torch.full((NUM_DRAWS, 1), 3), torch.zeros(NUM_DRAWS, 1).bool()
    for temperature in (0.5, 2.0):
        sampler = make(name, process, temperature=temperature)
        out = sampler.step(logits, 4, 0, xt, frozen=free, generator=stream(0))
        share = torch.nn.functional.one_hot(out.prev_sample[:, 0], 3).double().mean(0)
        torch.testing.assert_close(share, (logits[0, 0] / temperature).softmax(-1), rtol=0, atol=0.0125)  # 5 sigma
    coldest = make(name, process, temperature=0.0)
    assert bool((coldest.step(logits, 4, 0, xt, frozen=free, generator=stream(0)).prev_sample == 0).all())


def test_counts_are_of_each_rows_own_targets() -> None:
    process = Absorbing(2, 4)
    frozen = torch.tensor([[False] * 8, [True] * 4 + [False] * 4])
    xt = torch.where(frozen, 1, 2)
    out = make_sampler("easy_first", process).step(torch.zeros(2, 8, 2), 4, 3, xt, frozen=frozen)
    assert (out.prev_sample == 2).sum(1).tolist() == [6, 3]
    # All tie: by index, and not none of them.
    assert out.prev_sample.tolist() == [[0, 0, 2, 2, 2, 2, 2, 2], [1, 1, 1, 1, 0, 2, 2, 2]]


@pytest.mark.parametrize("num_steps", [20, 6, 2, 1])
@pytest.mark.parametrize("commit", [False, True])
def test_a0_last_decides_its_tokens_in_the_last_call(num_steps: int, commit: bool) -> None:
    process = Absorbing(6, 20)
    sampler = make_sampler("a0_last", process, last=[3, 4], commit=commit)
    frozen = torch.zeros(2, 9).bool()
    frozen[:, :3] = True
    start = process.prior_sample(torch.zeros(2, 9).long(), frozen)
    steps = sample_steps(mixing_model(6), process, sampler, start, frozen, num_steps=num_steps)
    seen = [step.before for step in steps]
    for xt in seen:
        assert bool((xt[:, 3:5] == 6).all())
    if num_steps > 1:
        assert bool((seen[-1][:, 5:] < 6).all())


@pytest.mark.parametrize("num_timesteps", [1, 7, 20])
def test_grids(num_timesteps: int) -> None:
    sampler = make_sampler("ancestral", Absorbing(3, num_timesteps))
    for num_steps in range(1, num_timesteps + 1):
        sampler.set_timesteps(num_steps)
        grid = sampler.timesteps
        assert len(grid) == num_steps + 1
        assert (int(grid[0]), int(grid[-1])) == (num_timesteps, 0)
        assert bool((grid.diff() < 0).all())
        exact = torch.linspace(num_timesteps, 0, num_steps + 1)
        assert float((grid - exact).abs().max()) <= 0.5 + 1e-5
    for bad in (0, num_timesteps + 1):
        with pytest.raises(ValueError, match="num_steps must be"):
            sampler.set_timesteps(bad)


def test_saved_samplers_come_back(tmp_path: Path) -> None:
    for process in (Absorbing(5, 13, "cosine_squared"), Multinomial(5, 20, prediction_type="leave_one_out")):
        for name, options in (("ancestral", {"temperature": 0.5}), ("easy_first", {"score": "margin", "noise": 0.3})):
            sampler = make_sampler(name, process, **options)
            sampler.save_pretrained(tmp_path)
            again = type(sampler).from_pretrained(tmp_path)
            assert again.process.config() == process.config()
            assert {key: again.config[key] for key in options} == options
            assert torch.equal(again.timesteps, sampler.timesteps)
    with pytest.raises(ConfigError, match=r"holds EasyFirstSampler, not AncestralSampler"):
        AncestralSampler.from_pretrained(tmp_path)
    with pytest.raises(AttributeError, match=r"no 'noise'; it has: process, temperature"):
        _ = make_sampler("ancestral", Absorbing(5, 13)).config.noise


def test_bad_options_are_named() -> None:
    process = Absorbing(5, 20)
    with pytest.raises(ConfigError, match=r"easy_frist.*Did you mean: 'easy_first'"):
        make_sampler("easy_frist", process)
    with pytest.raises(ConfigError, match=r"'comit'.*Did you mean: 'commit'"):
        make_sampler("easy_first", process, comit=True)
    with pytest.raises(ConfigError, match=r"sampler 'easy_first': .*rate must be one of linear, cosine, even.*'cosin'"):
        make_sampler("easy_first", process, rate="cosin")
    with pytest.raises(ConfigError, match=r"score must be one of .*'logprob'"):
        make_sampler("easy_first", process, score="logprob")
    with pytest.raises(ConfigError, match="temperature"):
        make_sampler("ancestral", process, temperature=-1.0)
    with pytest.raises(ConfigError, match="noise"):
        make_sampler("stochastic", process, noise=-0.5)
    with pytest.raises(ConfigError, match=r"eta must be at least 0 and at most 1, got 1\.5"):
        make_sampler("remasking", process, eta=1.5)
    with pytest.raises(ConfigError, match="take ancestral"):
        make_sampler("remasking", Multinomial(5, 20))
    with pytest.raises(ConfigError, match="last="):
        make_sampler("a0_last", process)
    for name, options in (("easy_first_commit", {}), ("a0_last", {"last": [0]})):
        with pytest.raises(ConfigError, match=r"multinomial"):
            make_sampler(name, Multinomial(5, 20), **options)
    sampler = make_sampler("ancestral", process)
    logits, xt, free = torch.zeros(1, 2, 5), torch.full((1, 2), 5), torch.zeros(1, 2).bool()
    for t, s in ((0, 0), (21, 3), (5, 5), (5, 6), (5, -1)):
        with pytest.raises(ValueError, match="a step goes from t to s"):
            sampler.step(logits, t, s, xt, frozen=free)
    with pytest.raises(ValueError, match="2 generators for 1 rows"):
        sampler.step(logits, 5, 4, xt, frozen=free, generator=streams(0, 1))
    with pytest.raises(ValueError, match="made for"):
        sample(mixing_model(4), Absorbing(4, 20), sampler, xt, free)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_samples_what_a_cpu_does(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for process in processes():
        if not allowed_here(name, process):
            continue
        frozen = torch.zeros(4, 9).bool()
        frozen[:, :2] = True
        admitted = torch.rand(9, 6, generator=stream(3)) < 0.6
        admitted[:, 5] = True
        ends = []
        for device in ("cpu", "cuda"):
            held, allowed = frozen.to(device), admitted.to(device)
            tokens = torch.zeros(4, 9, dtype=torch.int64, device=device)
            start = process.prior_sample(tokens, held, admitted=allowed, generator=streams(1, 2, 3, 4))
            model = fixed_model(torch.randn(9, 6, generator=stream(5), dtype=torch.float64).to(device))
            sampler = make(name, process)
            done = sample(model, process, sampler, start, held, admitted=allowed, generator=streams(5, 6, 7, 8))
            ends.append(done.cpu())
        assert torch.equal(ends[0], ends[1])
