"""The numerics against brute-force vectors, to 1e-10 in float64."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy.diffusion import Absorbing, Multinomial, Process, get_schedule
from genpolicy.diffusion.multinomial import observed_gain, to_leave_one_out
from genpolicy.diffusion.random import low_discrepancy, stratified

X0 = torch.tensor([[1, 3]])
Toy = Callable[..., Tensor]
Pairs = Callable[[int], Tensor]


def close(got: Tensor, expected: Any) -> None:
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)


PROCESSES = {"abs/linear": Absorbing, "uni/linear": Multinomial}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("linear", "linear"),
        ("cosine_maskgit", "cosine_maskgit"),
        ("cosine_squared", "cosine_sq"),
        ("cosine_hoogeboom", "cosine_hoogeboom_clip0.999"),
    ],
)
def test_alpha_tables(name: str, key: str, vectors: dict[str, Any]) -> None:
    table = get_schedule(name).table(20)
    close(table, vectors["alpha"][key])
    assert table[0] == 1
    assert (table[-1] == 0) == (name != "cosine_hoogeboom")
    alpha = get_schedule(name).alpha(torch.linspace(0, 1, 21, dtype=torch.float64))
    torch.testing.assert_close(alpha[1:-1], table[1:-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", PROCESSES)
def test_marginals(name: str, vectors: dict[str, Any]) -> None:
    process = PROCESSES[name](num_symbols=5, num_timesteps=20, schedule="linear")
    for t, table in vectors["forward_marginals"]["values"][name].items():
        close(process.marginal(torch.arange(5), int(t)), table)
        assert process.marginal(torch.arange(5), int(t)).dtype == torch.float64
    times = torch.tensor([5, 20])
    by_row = process.marginal(torch.arange(5).expand(2, -1), times)
    close(by_row[0], vectors["forward_marginals"]["values"][name]["5"])
    close(by_row[1], vectors["forward_marginals"]["values"][name]["20"])


@pytest.mark.parametrize("name", PROCESSES)
def test_posteriors(name: str, vectors: dict[str, Any]) -> None:
    process = PROCESSES[name](num_symbols=5, num_timesteps=20, schedule="linear")
    rows = [
        {**row, "t": int(t), "s": int(t) - 1}
        for t, of_time in vectors["posteriors_one_step"]["values"][name].items()
        for row in of_time
    ]
    rows = [row for row in rows + vectors["posteriors_skip"]["values"][name] if row["post"] is not None]
    assert len(rows) >= 25
    xt, x0, t, s = (torch.tensor([row[key] for row in rows]) for key in ("xt", "x0", "t", "s"))
    close(process.posterior(xt, x0, t, s), [row["post"] for row in rows])


def test_weights(vectors: dict[str, Any]) -> None:
    times = torch.arange(1, 21)
    expected = vectors["lambda"]
    for weighting in ("constant", "reciprocal", "linear"):
        close(Absorbing(5, 20, weighting=weighting).weight(times), expected[weighting])
    close(Absorbing(5, 20, "linear", weighting="elbo").weight(times), expected["elbo"]["linear"][1:])
    close(20 * Absorbing(5, 20).weight(times), [float(w) for w in expected["diffusearch_code_linear_unnormalised"]])
    alpha = vectors["alpha"]["cosine_maskgit"]
    by_hand = [(alpha[t - 1] - alpha[t]) / (1 - alpha[t]) for t in range(1, 21)]
    close(Absorbing(5, 20, "cosine_maskgit", weighting="elbo").weight(times), by_hand)


def expected_terms(process: Process, toy: Toy, states: Tensor, term: Callable[[Tensor, int], Tensor]) -> Tensor:
    """[T] expectation over x_t given x_0 = (1, 3) of a term [M] of the states and the time."""
    out = []
    for t in range(1, process.num_timesteps + 1):
        q = process.marginal(X0, t)[0]
        chance = q[0, states[:, 0]] * q[1, states[:, 1]]
        out.append(torch.where(chance > 0, chance * term(states, t), 0.0).sum())
    return torch.stack(out)


def elbo_terms(process: Process, toy: Toy, pairs: Pairs) -> Tensor:
    states = pairs(process.input_symbols)
    x0 = X0.expand(len(states), 2)
    return expected_terms(process, toy, states, lambda xt, t: process.elbo_term(toy(xt), xt, x0, t).sum(1))


def chain_nll(process: Process, toy: Toy, pairs: Pairs) -> Tensor:
    """Exact -log p(x_0 = (1, 3)) of the T-step reverse chain, by products over pairs of states."""
    states, prior = pairs(process.input_symbols), process.prior()
    mass = torch.outer(prior, prior).flatten()
    for t in range(process.num_timesteps, 0, -1):
        kernel = process.reverse(toy(states), states, t, t - 1)
        mass = torch.einsum("m,mi,mj->ij", mass, kernel[:, 0], kernel[:, 1]).flatten()
    return -mass.reshape(process.input_symbols, -1)[1, 3].log()


def test_absorbing_bound(vectors: dict[str, Any], toy: Toy, pairs: Pairs) -> None:
    expected = vectors["vlb_absorbing"]["values"]["linear"]
    process = Absorbing(5, 20, "linear")
    terms = elbo_terms(process, toy, pairs)
    close(terms, expected["L_t"])
    close(terms.sum(), expected["elbo"])
    close(process.prior_term(X0).sum(), 0.0)
    close(chain_nll(process, toy, pairs), expected["nll_T20"])


def test_absorbing_trained_losses(vectors: dict[str, Any], toy: Toy, pairs: Pairs) -> None:
    expected = vectors["vlb_absorbing"]["values"]["linear"]
    states = pairs(6)

    def masked_ce(xt: Tensor, t: int) -> Tensor:
        nll = -toy(xt).log_softmax(-1).gather(-1, X0.expand(len(xt), 2)[..., None])[..., 0]
        return torch.where(xt == 5, nll, 0.0).sum(1)

    ce = expected_terms(Absorbing(5, 20, "linear"), toy, states, masked_ce)
    close(ce, expected["masked_ce_expectation_t"])
    for weighting in ("constant", "reciprocal", "linear"):
        weight = Absorbing(5, 20, "linear", weighting=weighting).weight(torch.arange(1, 21))
        close((weight * ce).sum(), expected[f"loss_{weighting}_sum"])


def test_only_its_own_weight_makes_a_bound(toy: Toy, pairs: Pairs) -> None:
    process = Absorbing(5, 20, "cosine_squared")
    nll = chain_nll(process, toy, pairs)
    own = elbo_terms(process, toy, pairs)
    assert own.sum() > nll
    times = torch.arange(1, 21)
    reciprocal = Absorbing(5, 20, "cosine_squared", weighting="reciprocal").weight(times)
    assert (own / process.elbo_weight(times) * reciprocal).sum() < nll


@pytest.mark.parametrize(("kernel", "prediction_type"), [("plugin", "leave_one_out"), ("mixture", "denoiser")])
def test_multinomial_bounds(kernel: str, prediction_type: str, vectors: dict[str, Any], toy: Toy, pairs: Pairs) -> None:
    expected = vectors["vlb_multinomial"]["values"]["linear"][kernel]
    process = Multinomial(5, 20, "linear", prediction_type=prediction_type)
    terms = elbo_terms(process, toy, pairs)
    close(terms, expected["L_t"])
    close(terms.sum(), expected["elbo"])
    close(process.prior_term(X0).sum(), expected["L_T"])
    close(chain_nll(process, toy, pairs), expected["nll_T20"])


@pytest.mark.parametrize(("kernel", "prediction_type"), [("plugin", "leave_one_out"), ("mixture", "denoiser")])
def test_multinomial_reverse_kernels(kernel: str, prediction_type: str, vectors: dict[str, Any]) -> None:
    for row in vectors["multinomial_reverse_kernels"]["values"]:
        process = Multinomial(5, 20, row["schedule"], prediction_type=prediction_type)
        logits = torch.tensor(row["pred"], dtype=torch.float64).log()
        close(process.reverse(logits, torch.tensor(row["xt"]), row["t"], row["t"] - 1), row[kernel])


def test_multinomial_surrogates(vectors: dict[str, Any], toy: Toy, pairs: Pairs) -> None:
    expected = vectors["vlb_multinomial"]["values"]["linear"]
    states = pairs(5)
    process = Multinomial(5, 20, "linear", trained_on="corrupted")

    def nll(xt: Tensor) -> Tensor:
        return -toy(xt).log_softmax(-1).gather(-1, X0.expand(len(xt), 2)[..., None])[..., 0]

    def corrupted(xt: Tensor, t: int) -> Tensor:
        x0 = X0.expand(len(xt), 2)
        return torch.where(process.trained_tokens(xt, x0, xt == xt), nll(xt), 0.0).sum(1)

    ce = expected_terms(process, toy, states, corrupted)
    close(ce, expected["ce_on_corrupted_t"])
    close(expected_terms(process, toy, states, lambda xt, t: nll(xt).sum(1)), expected["ce_all_t"])
    times = torch.arange(1, 21)
    close((process.weight(times) * ce).sum(), expected["rdm_surrogate_linear_sum"])
    close((process.elbo_weight(times) * ce).sum(), expected["rdm_surrogate_elbo_lambda_sum"])


def test_leave_one_out_conversion(vectors: dict[str, Any]) -> None:
    for row in vectors["leave_one_out"]["values"]:
        logits = torch.tensor(row["denoiser"], dtype=torch.float64).log()
        xt, alpha, num = torch.tensor(row["xt"]), torch.tensor(row["alpha"], dtype=torch.float64), torch.tensor(5)
        converted = to_leave_one_out(logits, xt, alpha, num)
        close(converted.softmax(-1), row["loo"])
        close(-observed_gain(alpha, num), row["logit_shift_on_xt"])


def test_leave_one_out_conversion_of_diffusers(vectors: dict[str, Any]) -> None:
    row = vectors["diffusers_loo"]  # executed DiscreteDDIMScheduler, float32
    logits, alpha = torch.tensor(row["logits"]).double(), torch.tensor(row["alpha"]).double()
    ours = to_leave_one_out(logits, torch.tensor(row["xt"]), alpha, torch.tensor(5))
    torch.testing.assert_close(ours, torch.tensor(row["loo_logits"]).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("num_timesteps", ["50", "200"])
def test_discrete_bounds_approach_the_continuous_one(
    num_timesteps: str, vectors: dict[str, Any], toy: Toy, pairs: Pairs
) -> None:
    expected = vectors["nelbo_uniform_continuous"]["discrete_plugin_vlb_vs_T"][num_timesteps]
    for key, prediction_type in (("linear", "leave_one_out"), ("mixture_linear", "denoiser")):
        process = Multinomial(5, int(num_timesteps), "linear", prediction_type=prediction_type)
        close(elbo_terms(process, toy, pairs).sum(), expected[key])


def test_spread_times(vectors: dict[str, Any]) -> None:
    expected = vectors["t_sampling"]
    u = torch.tensor(expected["u"], dtype=torch.float64)
    close(low_discrepancy(u[:1], 4), expected["vdm"])
    close(stratified(u) * (1 - 1e-3) + 1e-3, expected["mdlm"])


def test_toy_is_the_vectors_toy(vectors: dict[str, Any], toy: Toy) -> None:
    close(toy(torch.tensor([[5, 5]])).softmax(-1)[0], vectors["toy_predictor"]["f_mask_mask"])
    close(toy(torch.tensor([[0, 3]])).softmax(-1)[0], vectors["toy_predictor"]["f_at_0_3"])
    assert math.isclose(sum(vectors["toy_predictor"]["f_at_0_3"][0]), 1)
