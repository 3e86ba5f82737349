"""Flow matching as a process: equal to absorbing diffusion where it must be, exact kernels, bounds, bad input."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy.diffusion import SCHEDULES, Absorbing, TypedLogits
from genpolicy.diffusion.making import make_process
from genpolicy.errors import ConfigError
from genpolicy.testing import check_process
from genpolicy_flow.process import FlowMatching

K, T = 5, 8
POWERS = [(1.0, "linear"), (2.0, "quadratic"), (3.0, "cubic")]
UNIFORM = [{"source": "uniform"}, {"source": "uniform", "prediction_type": "leave_one_out"}]
SOURCES = [{"source": "mask"}, *UNIFORM]


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def some_logits(*shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(4), dtype=torch.float64)


def windows(num: int = 64) -> SimpleNamespace:
    """Rows of six tokens: the first frozen, the last no target, some of the third unlabelled."""
    tokens = torch.randint(K, (num, 6), generator=stream(2))
    tokens[::3, 2] = K
    frozen, target = torch.zeros_like(tokens).bool(), torch.ones_like(tokens).bool()
    frozen[:, 0], target[:, -1] = True, False
    return SimpleNamespace(tokens=tokens, frozen=frozen, target=target)


def model(tokens: Tensor, t: Tensor) -> Tensor:
    symbols = torch.arange(K).double()
    return torch.sin(tokens.double()[..., None] * 1.3 + tokens.sum(1)[:, None, None] + symbols * 2.1 + t[:, None, None])


# Law 1.


@pytest.mark.parametrize(("power", "schedule"), POWERS)
@pytest.mark.parametrize("num_timesteps", [1, 20])
def test_a_mask_source_is_absorbing_diffusion(power: float, schedule: str, num_timesteps: int) -> None:
    flow, absorbing = FlowMatching(K, num_timesteps, "mask", power), Absorbing(K, num_timesteps, schedule)
    assert flow.input_symbols == absorbing.input_symbols
    assert flow.noise_is_visible
    assert flow.markov
    xt, x0 = torch.meshgrid(torch.arange(K + 1), torch.arange(K + 1), indexing="ij")
    logits = some_logits(K + 1, K + 1, K)
    uniform = torch.rand(2, K + 1, K + 1, generator=stream(), dtype=torch.float64)
    admitted = torch.rand(K + 1, K, generator=stream(1)) < 0.6
    admitted[:, 0] = True
    for t in range(1, num_timesteps + 1):
        same(flow.marginal(x0, t), absorbing.marginal(x0, t))
        same(flow.transition(t), absorbing.transition(t))
        same(flow.elbo_term(logits, xt, x0, t), absorbing.elbo_term(logits, xt, x0, t))
        held = admitted[:, x0[0].clamp(max=K - 1)].diagonal() & (x0 < K)  # elsewhere both terms are infinite
        terms = [p.elbo_term(logits, xt, x0, t, admitted=admitted) for p in (flow, absorbing)]
        same(*(term[held] for term in terms))
        for s in range(t):
            same(flow.posterior(xt, x0, t, s), absorbing.posterior(xt, x0, t, s))
            same(flow.reverse(logits, xt, t, s), absorbing.reverse(logits, xt, t, s))
            inside = [p.reverse(logits, xt, t, s, admitted=admitted) for p in (flow, absorbing)]
            same(*inside)
            drawn = [p.draw_previous(TypedLogits.of(logits), xt, t, s, uniform) for p in (flow, absorbing)]
            assert torch.equal(*drawn)


@pytest.mark.parametrize(("power", "schedule"), POWERS)
@pytest.mark.parametrize("weighting", ["linear", "elbo", "reciprocal"])
def test_a_mask_source_noises_and_trains_as_absorbing_diffusion(power: float, schedule: str, weighting: str) -> None:
    flow = FlowMatching(K, T, "mask", power, weighting=weighting)
    absorbing = Absorbing(K, T, schedule, weighting=weighting)
    batch = windows()
    for t in range(1, T + 1):
        noised = [p.noise(batch.tokens, t, batch.frozen, generator=stream(t)) for p in (flow, absorbing)]
        assert torch.equal(*noised)
    same(*(p.loss(model, batch, stream()) for p in (flow, absorbing)))
    same(*(p.elbo(model, batch, stream()) for p in (flow, absorbing)))


def test_the_schedules_are_powers() -> None:
    for power, schedule in POWERS:
        assert torch.equal(FlowMatching(K, 20, power=power).alpha, SCHEDULES[schedule].table(20))
    assert FlowMatching(K, 20, power=1.5).alpha[5] == pytest.approx(0.75**1.5)


# Law 2.


@pytest.mark.parametrize("options", SOURCES)
@pytest.mark.parametrize("power", [1.0, 2.0, 0.5])
def test_one_exact_step_leads_along_the_path(options: dict[str, str], power: float) -> None:
    process = FlowMatching(K, T, power=power, **options)
    states, x0 = torch.arange(process.input_symbols), torch.arange(K)[:, None]
    admitted = torch.tensor([True, True, False, True, False])
    for inside in (None, admitted):
        usable = torch.arange(K) if inside is None else inside.nonzero()[:, 0]
        for t in range(1, T + 1):
            for s in range(t):
                q = process.marginal(usable, t, admitted=inside)
                led = (q[..., None] * process.posterior(states, x0[usable], t, s)).sum(1)
                same(led, process.marginal(usable, s, admitted=inside))


def test_with_a_uniform_source_it_is_no_markov_chain() -> None:
    process = FlowMatching(K, T, "uniform")
    assert not process.markov
    assert not process.noise_is_visible
    assert process.input_symbols == K
    with pytest.raises(NotImplementedError, match="process 'flow' has no one-step matrix"):
        process.transition(1)


# Law 3, of the exact kernel; Euler's is beside the sampler.


@pytest.mark.parametrize("options", SOURCES)
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_exact_kernel_with_the_exact_prediction_ends_at_the_data(options: dict[str, str], power: float) -> None:
    process = FlowMatching(K, T, power=power, **options)
    data = some_logits(K).softmax(-1)
    states = torch.arange(process.input_symbols)
    law = process.prior()
    for t in range(T, 0, -1):
        joint = data[:, None] * process.marginal(torch.arange(K), t)  # [x_0, x_t]
        denoiser = (joint / joint.sum(0).clamp(min=1e-300)).T.log()
        logits = data.log().expand(len(states), -1) if process.prediction_type == "leave_one_out" else denoiser
        # A mask source carries decided tokens over by itself, whatever is predicted for them.
        law = law @ process.reverse(logits.clamp(min=-1e3), states, t, t - 1)
        expected = data @ process.marginal(torch.arange(K), t - 1)
        assert float((law - expected).abs().sum()) < 1e-12
    assert float((law[:K] - data).abs().sum()) < 1e-12


# Law 7.


@pytest.mark.sampled(5)
@pytest.mark.parametrize("options", SOURCES)
@pytest.mark.parametrize("power", [1.0, 3.0, 0.5])
@pytest.mark.parametrize("weighting", ["linear", "generalised_kl"])
def test_the_laws_of_a_process_hold(options: dict[str, str], power: float, weighting: str) -> None:
    check_process(FlowMatching(4, 6, power=power, weighting=weighting, **options))


class WrongPosterior(FlowMatching):
    def posterior(self, xt: Any, x0: Any, t: Any, s: Any, **options: Any) -> Tensor:
        return super().posterior(xt, x0, t, max(s - 1, 0), **options)


class NoBound(FlowMatching):
    def elbo_term(self, *arguments: Any, **options: Any) -> Tensor:
        return 0.5 * super().elbo_term(*arguments, **options)


@pytest.mark.parametrize(("make", "law"), [(WrongPosterior, "posterior leads from"), (NoBound, "bound not below")])
def test_broken_laws_of_a_uniform_source_are_found(make: Callable[..., FlowMatching], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_process(make(4, 6, "uniform"))


# The loss.


@pytest.mark.parametrize("reduction", ["sum", "mean", "batch"])
def test_with_a_mask_the_generalised_kl_is_the_elbo_weighting(reduction: str) -> None:
    losses = [
        FlowMatching(K, T, power=2, weighting=weighting, reduction=reduction).loss(model, windows(), stream())
        for weighting in ("elbo", "generalised_kl")
    ]
    same(*losses)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_a_uniform_source_trains_the_terms_of_the_bound(power: float) -> None:
    process, batch = FlowMatching(K, T, "uniform", power, weighting="generalised_kl"), windows()
    same(T * process.loss(model, batch, stream()), process.elbo(model, batch, stream()).mean())
    doubled = process.loss(model, batch, stream(), weights=torch.full((6,), 2.0).double())
    same(doubled, 2 * process.loss(model, batch, stream()))


@pytest.mark.parametrize("options", SOURCES)
def test_the_generalised_kl_has_a_finite_gradient(options: dict[str, str]) -> None:
    """Also in the last step, where a token is decided for certain, and where its symbol is not predicted at all."""
    process = FlowMatching(K, T, weighting="generalised_kl", **options)
    batch, admitted = windows(), torch.ones(6, K).bool()
    admitted[0, 1:] = False  # frozen: what stands there has no probability
    for t in (1, T):
        logits = some_logits(64, 6, K).requires_grad_()
        times = torch.full((64,), t)
        process.loss(lambda xt, t, logits=logits: logits, batch, stream(), admitted=admitted, times=times).backward()
        assert logits.grad is not None
        assert bool(logits.grad.isfinite().all())
        assert float(logits.grad.abs().sum()) > 0


def test_what_cannot_be_there_has_an_infinite_bound() -> None:
    process, zero = FlowMatching(2, T, "uniform"), torch.zeros(1, 1).long()
    sure = torch.tensor([[[-torch.inf, 0.0]]])
    assert process.elbo_term(sure, zero, zero, 1).item() == torch.inf
    assert process.elbo_term(sure, zero + 1, zero, 1).item() == torch.inf


def test_a_denoiser_is_trained_on_every_token_and_a_leave_one_out_prediction_on_noise() -> None:
    noised = torch.tensor([[True, False]])
    trained = [FlowMatching(K, T, **options).trained_tokens(noised, noised, noised).tolist() for options in SOURCES]
    assert trained == [[[True, False]], [[True, True]], [[True, False]]]


def test_unlabelled_tokens_are_source_at_every_time() -> None:
    process, unlabelled = FlowMatching(K, T, "uniform"), torch.tensor(K)
    for t in range(1, T + 1):
        same(process.marginal(unlabelled, t), process.prior())
        same(process.posterior(torch.tensor(2), unlabelled, t, 0), torch.eye(K).double()[2])


# Bad input, and what is saved.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"power": 0.0}, "power must be above 0 and at most 8, got 0"),
        ({"power": -1.0}, "power must be above 0"),
        ({"power": 8.5}, "at most 8, got 8.5"),
        ({"power": float("nan")}, "power must be above 0"),
        ({"source": "masks"}, "source must be one of mask, uniform; got 'masks'"),
        ({"prediction_type": "leave_one_out"}, "needs source=uniform"),
        ({"prediction_type": "x0"}, "prediction_type must be one of .*; got 'x0'"),
        ({"weighting": "kl"}, "weighting must be one of .*generalised_kl; got 'kl'"),
        ({"num_timesteps": 0}, "num_timesteps must be from 1"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FlowMatching(K, **options)
    with pytest.raises(ConfigError, match=message):
        make_process({"kind": "flow", **options}, K)


def test_a_misspelt_key_is_named_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match=r"learner\.process\.powr.*Did you mean: 'power'"):
        make_process({"kind": "flow", "powr": 2}, K)


@pytest.mark.parametrize("options", SOURCES)
def test_the_configuration_makes_the_same_process_again(options: dict[str, str]) -> None:
    process = FlowMatching(K, T, power=2, weighting="generalised_kl", reduction="mean", **options)
    again = make_process({k: v for k, v in process.config().items() if k != "num_symbols"}, K)
    assert isinstance(again, FlowMatching)
    assert again.config() == process.config()
    assert torch.equal(again.alpha, process.alpha)


def test_ids_and_times_out_of_range_are_refused() -> None:
    process = FlowMatching(K, T, "uniform")
    zero = torch.zeros(1, 1).long()
    for call in (
        lambda: process.posterior(zero + K, zero, 1, 0),
        lambda: process.posterior(zero, zero + K + 1, 1, 0),
        lambda: process.posterior(zero, zero, 2, 2),
        lambda: process.marginal(zero, T + 1),
        lambda: process.reverse(some_logits(1, 1, K), zero, 0, 0),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
