"""The formulas of flow matching: brute-force vectors, the corrector's rates, the integral that bounds approach."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from genpolicy_flow import formulas
from genpolicy_flow.process import FlowMatching

Toy = Callable[..., Tensor]
X1 = torch.tensor([[1, 3]])


def exact(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def close(got: Tensor, expected: Any) -> None:
    torch.testing.assert_close(got, exact(expected), rtol=1e-10, atol=1e-10)


def source_of(num: int) -> Tensor:
    """The mask among 6 states, uniform among 5."""
    return torch.eye(6).double()[5] if num == 6 else torch.full((5,), 0.2, dtype=torch.float64)


def velocity(posterior: Tensor, xt: Tensor, kappa_t: Tensor, slope: Tensor) -> Tensor:
    """rate * (p(x_1 | x_t) - d(x_t)), [..., S]: the flow towards data; ``posterior`` is p(x_1 | x_t) [..., S]."""
    return formulas.jump_rate(kappa_t, slope)[..., None] * (posterior - formulas.point_mass(xt, posterior))


def backward_velocity(source: Tensor, xt: Tensor, kappa_t: Tensor, slope: Tensor) -> Tensor:
    """kappa' / kappa * (d(x_t) - p_0), [..., S]: the same path's flow read towards noise."""
    return (slope / kappa_t)[..., None] * (formulas.point_mass(xt, source) - source)


def corrector_velocity(forward: Tensor, backward: Tensor, churn: float) -> Tensor:
    """(1 + c) u - c u_back: keeps the path's marginals for every c."""
    return (1 + churn) * forward - churn * backward


def generalised_kl(log_posterior: Tensor, xt: Tensor, x1: Tensor, kappa_t: Tensor, slope: Tensor) -> Tensor:
    """The bound's integrand for a denoiser, [...] nats per unit of time.

    -rate * [ p(x_t | x_t) - 1(x_t = x_1) + 1(x_t != x_1) log p(x_1 | x_t) ], ``log_posterior`` being log p(. | x_t).
    """
    at_xt = log_posterior.gather(-1, xt[..., None])[..., 0].exp()
    at_x1 = log_posterior.gather(-1, x1[..., None])[..., 0]
    bracket = torch.where(xt == x1, at_xt - 1, at_xt + at_x1)
    return -formulas.jump_rate(kappa_t, slope) * bracket


def test_flow_velocities(vectors: dict[str, Any]) -> None:
    for row in vectors["dfm"]["values"]:
        kappa_t, slope = formulas.kappa(exact(row["t"]), float(row["kappa"].removeprefix("t^")))
        close(kappa_t, row["kappa_t"])
        close(slope, row["dkappa_t"])
        source = source_of(len(row["p_t"]))
        close(formulas.path(torch.tensor(row["x1"]), source, kappa_t), row["p_t"])
        xt = torch.tensor(row["x_t"])
        forward = velocity(exact(row["posterior"]), xt, kappa_t, slope)
        backward = backward_velocity(source, xt, kappa_t, slope)
        close(forward, row["velocity"])
        close(backward, row["backward_velocity"])
        close(corrector_velocity(forward, backward, 1.0), row["corrector_velocity_c1"])
        jump = formulas.jump_probability(formulas.jump_rate(kappa_t, slope), 0.05)
        close(jump, row["euler_jump_prob_h0.05_given_x1"])


def carried_over(toy: Toy, states: Tensor) -> Tensor:
    """Log-probabilities [M, 2, 6] of a denoiser that knows an unmasked token to be clean."""
    log_f = torch.cat([toy(states).log_softmax(-1), torch.full((len(states), 2, 1), -torch.inf).double()], dim=-1)
    certain = torch.nn.functional.one_hot(states, 6).double().log()
    return torch.where((states == 5)[..., None], log_f, certain)


def test_generalised_kl(vectors: dict[str, Any], toy: Toy, pairs: Callable[[int], Tensor]) -> None:
    expected, one = vectors["dfm_generalised_kl_elbo"], exact(1.0)
    masked, plain = pairs(6), pairs(5)
    for row in expected["integrand_mask"]:
        k = exact(row["kappa"])
        chance = torch.where(masked == 5, 1 - k, torch.where(masked == X1, k, 0.0)).prod(1)
        term = generalised_kl(carried_over(toy, masked), masked, X1.expand(36, 2), k, one).sum(1)
        close(torch.where(chance > 0, chance * term, 0.0).sum(), row["value"])
    for key in ("integrand_uniform_converted", "integrand_uniform_unconverted"):
        for row in expected[key]:
            k = exact(row["kappa"])
            chance = torch.where(plain == X1, k + (1 - k) / 5, (1 - k) / 5).prod(1)
            logits = toy(plain)
            if key.endswith("_converted"):
                logits = formulas.to_denoiser(logits, plain, k, torch.tensor(5))
            term = generalised_kl(logits.log_softmax(-1), plain, X1.expand(25, 2), k, one).sum(1)
            close((chance * term).sum(), row["value"])


@pytest.mark.parametrize("num_states", [5, 6])
@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, 0.5])
@pytest.mark.parametrize("churn", [0.0, 0.7, 2.0])
def test_for_small_steps_the_kernel_with_churn_is_the_corrector(num_states: int, power: float, churn: float) -> None:
    """Law 5, by a central difference: the kernel is analytic in the step size, so a negative one will do."""
    h, tau, source = 1e-5, exact(0.4), source_of(num_states)
    kappa_t, slope = formulas.kappa(tau, power)
    f = torch.rand(num_states, generator=torch.Generator().manual_seed(1), dtype=torch.float64).softmax(-1)

    def kernel(xt: Tensor, step: float) -> Tensor:
        kappa_s, ahead = (formulas.kappa(tau + step * factor, power)[0] for factor in (1, 1 + churn))
        decided = formulas.mix(formulas.point_mass(xt, f), f, formulas.decide_probability(kappa_t, ahead))
        return formulas.mix(decided, source, formulas.forget_probability(kappa_s, ahead))

    for xt in torch.arange(num_states):
        forward = velocity(f, xt, kappa_t, slope)
        backward = backward_velocity(source, xt, kappa_t, slope)
        rate = (kernel(xt, h) - kernel(xt, -h)) / (2 * h)
        torch.testing.assert_close(rate, corrector_velocity(forward, backward, churn), rtol=0, atol=1e-6)


def gauss_legendre(panels: list[float], order: int = 40) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.legendre.leggauss(order)
    points = [(a + b) / 2 + (b - a) / 2 * nodes for a, b in itertools.pairwise(panels)]
    scaled = [(b - a) / 2 * weights for a, b in itertools.pairwise(panels)]
    return torch.tensor(np.concatenate(points)), torch.tensor(np.concatenate(scaled))


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_bounds_of_a_converted_prediction_grow_to_the_integral(power: float) -> None:
    """Law 6, one token: T = 1 is the NLL, and the distance to the integral falls as 1/T."""
    log_f = exact([0.4, -3.0, 1.1, 0.2, -0.5]).log_softmax(-1)
    x1, every = torch.tensor(1), torch.arange(5)

    def bound(num: int) -> float:
        process = FlowMatching(5, num, "uniform", power, prediction_type="leave_one_out")
        total = exact(0.0)
        for t in range(1, num + 1):
            term = process.elbo_term(log_f.expand(5, 1, 5), every[:, None], x1.expand(5, 1), t)[:, 0]
            total = total + (process.marginal(x1, t) * term).sum()
        return float(total)

    near = [10.0**-i for i in range(10, 1, -1)]
    taus, weights = gauss_legendre([0.0, *near, 0.1, 0.5, 0.9, *[1 - d for d in reversed(near)], 1.0])
    integral = exact(0.0)
    for tau, weight in zip(taus, weights, strict=True):
        kappa_t, slope = formulas.kappa(tau, power)
        denoiser = formulas.to_denoiser(log_f, every, kappa_t, torch.tensor(5)).log_softmax(-1)
        chance = formulas.path(x1, source_of(5), kappa_t)
        integral += weight * (chance * generalised_kl(denoiser, every, x1.expand(5), kappa_t, slope)).sum()

    assert bound(1) == pytest.approx(-float(log_f[1]), abs=1e-12)
    gaps = [float(integral) - bound(num) for num in (4, 16, 64, 256)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] > 0  # the bound is looser with more steps
    # By T = 16 terms of order 1/T^2 are small.
    assert [a / b for a, b in itertools.pairwise(gaps[1:])] == pytest.approx([4, 4], rel=0.05)
