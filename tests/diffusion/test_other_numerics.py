"""Gaussian diffusion and remasking against brute-force vectors."""

from typing import Any

import torch
from torch import Tensor

from genpolicy.diffusion import Absorbing
from genpolicy.diffusion.samplers.remasking import remasking_sigma
from genpolicy_policy_baselines import gaussian_formulas as gaussian
from genpolicy_policy_baselines.gaussian_embedding import GaussianEmbedding
from tests.diffusion.test_remasking_sampler import remasking_posterior


def exact(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def close(got: Tensor, expected: Any) -> None:
    # To 1e-10 of the value where it is large (a signal-to-noise ratio of 6e5 has no more digits in float64).
    torch.testing.assert_close(got, exact(expected), rtol=1e-10, atol=1e-10)


def test_gamma_table(vectors: dict[str, Any]) -> None:
    process = GaussianEmbedding(2)
    for row in vectors["vdm"]["gamma_table"]:
        gamma = process.gamma(exact(row["t"]))
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
        process = GaussianEmbedding(2, row["T"], prediction="eps", weighting="elbo")
        s, t = (exact(i / row["T"]) for i in (row["i"] - 1, row["i"]))
        step = gaussian.ancestral_step(process.gamma(s), process.gamma(t))
        close(step.of_zt, row["mean_coef_zt"])
        close(step.of_eps, row["mean_coef_eps"])
        close(step.std, row["std"])
        close(process.step_weight(t, s), row["loss_weight_discrete"])
        close(0.5 * process.gamma_slope(t), row["loss_weight_continuous"])
    close(gaussian.prior_kl(exact(0.7), GaussianEmbedding(2).gamma(exact(1.0))), vectors["vdm"]["prior_kl_x0.7"])


def test_monotone_gamma(vectors: dict[str, Any]) -> None:
    expected = vectors["vdm"]["nnet_gamma_fixed_weights"]
    network = gaussian.MonotoneGamma(num_features=3).double()
    values = {"slope": 18.3, "offset": -13.3, "into": [0.5, -1, 2], "bias": [0.1, 0, -0.3], "out": [1, -2, 0.5]}
    network.load_state_dict({key: exact(value) for key, value in values.items()})
    t = exact(expected["t"])
    close(network.unpinned(t).detach(), expected["gamma"])
    pinned = network(torch.linspace(0, 1, 101, dtype=torch.float64))
    close(pinned[[0, -1]].detach(), [-13.3, 5.0])
    assert bool((pinned.diff() > 0).all())


def test_remasking_keeps_marginals(vectors: dict[str, Any]) -> None:
    x0 = torch.tensor(3)
    for row in vectors["remdm"]["values"]:
        alpha_t, alpha_s = exact(row["alpha_t"]), exact(row["alpha_s"])
        sigma = remasking_sigma(row["kind"], row["eta"], alpha_t, alpha_s)
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
