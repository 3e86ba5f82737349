"""The sampler of flow matching: exact and Euler steps, churn that keeps the marginals, and what it refuses."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy.diffusion import Absorbing, Multinomial, Process, Sampler, make_sampler
from genpolicy.errors import ConfigError
from genpolicy.testing.processes import check_sampler
from genpolicy_flow import formulas
from genpolicy_flow.process import FlowMatching
from genpolicy_flow.sampler import FlowSampler
from tests.diffusion.test_remasking_sampler import remasking_posterior

K = 5
SOURCES = ["mask", "uniform"]
NUM_DRAWS = 40_000


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def flow_sampler(process: Process, **options: Any) -> FlowSampler:
    made = make_sampler("flow", process, **options)
    assert isinstance(made, FlowSampler)
    return made


def kernel(sampler: FlowSampler, prediction: Tensor, t: int, s: int) -> Tensor:
    """p(x_s | x_t) [S, S] of each x_t, from p(x_0 | x_t) [S, K], by the sampler's two probabilities."""
    process = sampler.process
    states = torch.arange(process.input_symbols)
    decide, forget = sampler.chances(t, s)
    f = torch.nn.functional.pad(prediction, (0, len(states) - K))
    decided = torch.where(process.undecided(states), decide, 0.0)
    held = formulas.mix(formulas.point_mass(states, f), f, decided)
    return formulas.mix(held, process.prior(), forget.expand(len(states)))


def end_law(sampler: FlowSampler, data: Tensor) -> Tensor:
    """The law of one token, played with the exact p(x_0 | x_t)."""
    process, law, symbols = sampler.process, sampler.process.prior(), torch.arange(K)
    for t, s in itertools.pairwise(sampler.timesteps.tolist()):
        joint = data[:, None] * process.marginal(symbols, t)
        law = law @ kernel(sampler, (joint / joint.sum(0).clamp(min=1e-300)).T, t, s)
    return law[:K]


DATA = torch.tensor([0.5, 0.05, 0.2, 0.2, 0.05], dtype=torch.float64)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("power", [1.0, 2.0])
@pytest.mark.parametrize("churn", [0.0, 0.5, 1.0, 10.0])
def test_exact_steps_end_at_the_data(source: str, power: float, churn: float) -> None:
    """Law 3, for a few steps of several lengths too."""
    for num_steps in (8, 3, 1):
        sampler = flow_sampler(FlowMatching(K, 8, source, power), churn=churn)
        sampler.set_timesteps(num_steps)
        assert float((end_law(sampler, DATA) - DATA).abs().sum()) < 1e-12


@pytest.mark.parametrize("churn", [0.0, 1.0])
def test_euler_errs_and_at_least_halves_its_error_in_four_times_the_steps(churn: float) -> None:
    """Law 3, a uniform source; with a mask the law of one token does not depend on when it is decided."""
    errors = []
    for num in (16, 64):
        sampler = flow_sampler(FlowMatching(K, num, "uniform"), kernel="euler", churn=churn)
        errors.append(float((end_law(sampler, DATA) - DATA).abs().sum()))
    assert errors[0] > 1e-3
    assert errors[1] <= errors[0] / 2


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("churn", [0.0, 0.7, 2.0])
def test_euler_is_the_exact_kernel_to_second_order(source: str, churn: float) -> None:
    differences = []
    for num in (100, 200, 400):
        t, prediction = num // 2, DATA.expand(K + (source == "mask"), -1)
        made = [flow_sampler(FlowMatching(K, num, source, 2.0), kernel=k, churn=churn) for k in ("exact", "euler")]
        differences.append(
            float((kernel(made[0], prediction, t, t - 1) - kernel(made[1], prediction, t, t - 1)).norm())
        )
    assert [a / b for a, b in itertools.pairwise(differences)] == pytest.approx([4, 4], rel=0.1)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("churn", [0.3, 1.0, 4.0])
def test_churn_keeps_every_marginal(source: str, power: float, churn: float) -> None:
    """Law 4: given x_0, from the marginal at t to the marginal at s."""
    sampler = flow_sampler(FlowMatching(K, 8, source, power), churn=churn)
    process = sampler.process
    for t in range(1, 9):
        for s, x0 in itertools.product(range(t), range(K)):
            clean = torch.eye(K).double()[x0].expand(process.input_symbols, -1)
            led = process.marginal(torch.tensor(x0), t) @ kernel(sampler, clean, t, s)
            torch.testing.assert_close(led, process.marginal(torch.tensor(x0), s), rtol=0, atol=1e-12)


@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("churn", [0.3, 1.0, 4.0])
def test_churn_with_a_mask_is_the_remasking_posterior(power: float, churn: float) -> None:
    """Law 4: sigma = 1 - alpha_s / alpha_ahead."""
    sampler = flow_sampler(FlowMatching(K, 8, "mask", power), churn=churn)
    alpha, states, x0 = sampler.process.alpha, torch.arange(K + 1), torch.tensor(2)
    clean = torch.eye(K).double()[x0].expand(K + 1, -1)
    for t in range(2, 9):
        for s in range(1, t):
            ahead = s - min(s, churn * (t - s))
            low = math.floor(ahead)
            between = alpha[low] + (ahead - low) * (alpha[min(low + 1, 8)] - alpha[low])
            sigma = 1 - alpha[s] / between
            expected = torch.stack([remasking_posterior(xt, x0, alpha[t], alpha[s], sigma, K) for xt in states])
            torch.testing.assert_close(kernel(sampler, clean, t, s), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("options", [{}, {"churn": 1.5}, {"churn": 0.5, "kernel": "euler"}, {"kernel": "euler"}])
def test_a_step_has_the_frequencies_of_its_kernel(source: str, options: dict[str, Any]) -> None:
    sampler = flow_sampler(FlowMatching(K, 10, source), **options)
    num_states = sampler.process.input_symbols
    logits = torch.randn(num_states, K, generator=stream(3), dtype=torch.float64)
    xt = torch.arange(num_states).expand(NUM_DRAWS, -1)
    free = torch.zeros_like(xt).bool()
    for t, s in ((10, 6), (6, 5), (2, 0)):
        out = sampler.step(logits.expand(NUM_DRAWS, -1, -1), t, s, xt, frozen=free, generator=stream(t))
        got = torch.nn.functional.one_hot(out.prev_sample, num_states).double().mean(0)
        # Five standard deviations of a share near one half.
        torch.testing.assert_close(got, kernel(sampler, logits.softmax(-1), t, s), rtol=0, atol=0.0125)


@pytest.mark.parametrize(
    "options", [{"source": "mask"}, {"source": "uniform"}, {"source": "uniform", "prediction_type": "leave_one_out"}]
)
def test_without_churn_it_draws_what_the_ancestral_sampler_draws(options: dict[str, str]) -> None:
    process = FlowMatching(K, 10, power=2.0, **options)
    logits = torch.randn(64, 6, K, generator=stream(1), dtype=torch.float64)
    xt = process.noise(torch.zeros(64, 6).long(), 7, generator=stream(2))
    frozen = torch.rand(64, 6, generator=stream(3)) < 0.3
    drawn = [
        make_sampler(name, process).step(logits, 7, 4, xt, frozen=frozen, generator=stream(4)).prev_sample
        for name in ("flow", "ancestral")
    ]
    assert torch.equal(*drawn)


@pytest.mark.parametrize(
    "process",
    [
        FlowMatching(4, 8),
        FlowMatching(4, 8, "uniform", 2.0),
        FlowMatching(4, 8, "uniform", 0.5, prediction_type="leave_one_out"),
        FlowMatching(4, 1, "uniform"),
        Absorbing(4, 8, "cosine_maskgit"),
        Multinomial(4, 8),
    ],
    ids=lambda process: f"{process.kind} {process.config().get('source', '')}",
)
@pytest.mark.parametrize("options", [{}, {"churn": 1.0}, {"churn": 30.0, "temperature": 0.0}])
def test_the_laws_of_a_sampler_hold(process: Process, options: dict[str, Any]) -> None:
    check_sampler(make_sampler("flow", process, **options))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("power", [1.0, 2.0, 0.5])
def test_the_laws_of_a_sampler_hold_for_euler(source: str, power: float) -> None:
    check_sampler(make_sampler("flow", FlowMatching(4, 8, source, power), kernel="euler", churn=1.0))


@pytest.mark.parametrize("process", [Absorbing(4, 8, "cosine_hoogeboom"), Multinomial(4, 8, "cosine_squared")])
def test_the_laws_of_a_sampler_hold_for_euler_with_other_processes(process: Process) -> None:
    check_sampler(make_sampler("flow", process, kernel="euler", churn=1.0))


def test_the_last_step_never_churns() -> None:
    sampler = flow_sampler(FlowMatching(K, 8, "uniform"), churn=2.0)
    assert [float(chance) for chance in sampler.chances(3, 0)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("process", "options", "message"),
    [
        (FlowMatching(K, 8), {"churn": -0.1}, "churn must be at least 0, got -0.1"),
        (FlowMatching(K, 8), {"churn": math.nan}, "churn is a number, got nan"),
        (FlowMatching(K, 8), {"kernel": "eulr"}, "kernel must be one of exact, euler.*Did you mean: 'euler'"),
        (FlowMatching(K, 8), {"temperature": -1}, "temperature must be at least 0"),
        (FlowMatching(K, 1), {"kernel": "euler"}, "at least 2"),
    ],
)
def test_bad_options_are_named(process: Process, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_sampler("flow", process, **options)


def test_uniform_noise_refuses_a_sampler_that_keeps_what_is_decided() -> None:
    with pytest.raises(ConfigError, match="noise of process 'flow' looks like data"):
        make_sampler("easy_first", FlowMatching(K, 8, "uniform"), commit=True)


def test_a_sampler_is_saved_with_its_process(tmp_path: Any) -> None:
    made: Sampler = flow_sampler(FlowMatching(K, 8, "uniform", 2.0), churn=0.5, kernel="euler")
    made.save_pretrained(tmp_path)
    again = FlowSampler.from_pretrained(tmp_path)
    assert again.config == made.config
    assert again.process.config() == made.process.config()
