"""Gaussian diffusion, discrete flow matching, remasking and first hitting times against brute-force vectors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy.diffusion import Absorbing, flow, gaussian, get_schedule
from genpolicy.diffusion.multinomial import to_denoiser
from genpolicy.diffusion.remasking import next_reveal_time, remasking_posterior, sigma_cap, sigma_rescale

Toy = Callable[..., Tensor]
X1 = torch.tensor([[1, 3]])


def exact(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def close(got: Tensor, expected: Any) -> None:
    # To 1e-10 of the value where it is large (a signal-to-noise ratio of 6e5 has no more digits in float64).
    torch.testing.assert_close(got, exact(expected), rtol=1e-10, atol=1e-10)


def test_gamma_table(vectors: dict[str, Any]) -> None:
    for row in vectors["vdm"]["gamma_table"]:
        gamma = gaussian.linear_gamma(exact(row["t"]))
        alpha, sigma = gaussian.alpha_sigma(gamma)
        for got, key in (
            (gamma, "gamma"),
            (alpha, "alpha"),
            (sigma, "sigma"),
            (alpha**2, "alpha2"),
            (sigma**2, "sigma2"),
        ):
            close(got, row[key])
        close(gaussian.signal_to_noise(gamma), row["snr"])


def test_gaussian_ancestral_steps(vectors: dict[str, Any]) -> None:
    for row in vectors["vdm"]["ancestral"]:
        gamma_s, gamma_t = (gaussian.linear_gamma(exact(i / row["T"])) for i in (row["i"] - 1, row["i"]))
        step = gaussian.ancestral_step(gamma_s, gamma_t)
        close(step.of_zt, row["mean_coef_zt"])
        close(step.of_eps, row["mean_coef_eps"])
        close(step.std, row["std"])
        close(gaussian.step_weight(gamma_s, gamma_t, row["T"]), row["loss_weight_discrete"])
        slope = exact(gaussian.GAMMA_MAX - gaussian.GAMMA_MIN)
        close(gaussian.continuous_weight(slope), row["loss_weight_continuous"])
    close(gaussian.prior_kl(exact(0.7), gaussian.linear_gamma(exact(1.0))), vectors["vdm"]["prior_kl_x0.7"])


def test_monotone_gamma(vectors: dict[str, Any]) -> None:
    expected = vectors["vdm"]["nnet_gamma_fixed_weights"]
    network = gaussian.MonotoneGamma(num_features=3, pinned=False).double()
    values = {"slope": 18.3, "offset": -13.3, "into": [0.5, -1, 2], "bias": [0.1, 0, -0.3], "out": [1, -2, 0.5]}
    network.load_state_dict({key: exact(value) for key, value in values.items()})
    t = exact(expected["t"])
    close(network(t).detach(), expected["gamma"])
    network.pinned = True
    pinned = network(torch.linspace(0, 1, 101, dtype=torch.float64))
    close(pinned[[0, -1]].detach(), [-13.3, 5.0])
    assert bool((pinned.diff() > 0).all())


def test_flow_velocities(vectors: dict[str, Any]) -> None:
    for row in vectors["dfm"]["values"]:
        time = exact(row["t"])
        kappa_t, slope = flow.kappa(time, float(row["kappa"].removeprefix("t^")))
        close(kappa_t, row["kappa_t"])
        close(slope, row["dkappa_t"])
        num = len(row["p_t"])
        source = (
            torch.nn.functional.one_hot(torch.tensor(5), 6).double()
            if num == 6
            else torch.full((5,), 0.2, dtype=torch.float64)
        )
        close(flow.path(torch.tensor(row["x1"]), source, kappa_t), row["p_t"])
        xt = torch.tensor(row["x_t"])
        forward = flow.velocity(exact(row["posterior"]), xt, kappa_t, slope)
        backward = flow.backward_velocity(source, xt, kappa_t, slope)
        close(forward, row["velocity"])
        close(backward, row["backward_velocity"])
        close(flow.corrector_velocity(forward, backward, 1.0), row["corrector_velocity_c1"])
        close(flow.jump_probability(kappa_t, slope, 0.05), row["euler_jump_prob_h0.05_given_x1"])


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
        term = flow.generalised_kl(carried_over(toy, masked), masked, X1.expand(36, 2), k, one).sum(1)
        close(torch.where(chance > 0, chance * term, 0.0).sum(), row["value"])
    for key in ("integrand_uniform_converted", "integrand_uniform_unconverted"):
        for row in expected[key]:
            k = exact(row["kappa"])
            chance = torch.where(plain == X1, k + (1 - k) / 5, (1 - k) / 5).prod(1)
            logits = toy(plain)
            if key.endswith("_converted"):
                logits = to_denoiser(logits, plain, k, torch.tensor(5))
            term = flow.generalised_kl(logits.log_softmax(-1), plain, X1.expand(25, 2), k, one).sum(1)
            close((chance * term).sum(), row["value"])


def test_remasking_keeps_marginals(vectors: dict[str, Any]) -> None:
    x0 = torch.tensor(3)
    for row in vectors["remdm"]["values"]:
        alpha_t, alpha_s = exact(row["alpha_t"]), exact(row["alpha_s"])
        sigma = {"cap": sigma_cap, "rescale": sigma_rescale}[row["kind"]](row["eta"], alpha_t, alpha_s)
        close(sigma, row["sigma"])
        unmasked, masked = (remasking_posterior(torch.tensor(xt), x0, alpha_t, alpha_s, sigma, 5) for xt in (3, 5))
        close(unmasked, row["post_if_unmasked"])
        close(masked, row["post_if_masked"])
        close(alpha_t * unmasked + (1 - alpha_t) * masked, row["induced_marginal_xs"])
    process = Absorbing(5, 20, "cosine_maskgit")
    usual = process.posterior(torch.tensor([3, 5]), torch.tensor([3, 3]), 9, 4)
    none = remasking_posterior(
        torch.tensor([3, 5]), torch.tensor([3, 3]), process.alpha[9], process.alpha[4], exact(0.0), 5
    )
    torch.testing.assert_close(none, usual, rtol=0, atol=1e-12)


def test_first_hitting_times(vectors: dict[str, Any]) -> None:
    for row in vectors["first_hitting"]["values"]:
        arguments = exact(row["t"]), exact(row["n_masked"]), exact(row["u"])
        close(next_reveal_time(get_schedule("linear"), *arguments), row["next_t_linear"])


@pytest.mark.parametrize("name", ["cosine_maskgit", "cosine_squared"])
def test_first_hitting_times_of_other_schedules(name: str) -> None:
    """The chance that none of n tokens is revealed between t and the answer is u."""
    schedule, t, num, u = get_schedule(name), exact(0.8), exact(7.0), exact(0.3)
    s = next_reveal_time(schedule, t, num, u)
    still_masked = (1 - schedule.alpha(s)) / (1 - schedule.alpha(t))
    close(still_masked**7, 0.3)
