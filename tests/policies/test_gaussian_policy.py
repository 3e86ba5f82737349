"""Continuous diffusion: diffusers' samplers over our schedule, learning, saving, what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.data.windows import TokenBatch
from genpolicy.errors import ConfigError
from genpolicy.networks import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.testing import check_learner, check_policy
from genpolicy_policy_baselines.gaussian import GaussianConfig, GaussianLearner, make_scheduler
from genpolicy_policy_baselines.gaussian_embedding import GaussianEmbedding
from genpolicy_policy_baselines.gaussian_formulas import alpha_sigma
from tests.small_datasets import CONNECT, solved_connect

pytestmark = pytest.mark.xdist_group("diffusers")  # on one worker, so that it is imported once

TINY = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="board", head="typed", init_std=0.1)


@pytest.fixture(scope="module")
def connect_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("gaussian"))


def learner(prediction: str = "x0_ce", **options: Any) -> GaussianLearner:
    process = {"prediction": prediction, "num_timesteps": 5, **options.pop("process", {})}
    config = GaussianConfig(**{"network": TINY, "horizon": 2, "process": process, **options})
    return GaussianLearner(genpolicy.load_game(CONNECT), config)


@pytest.mark.parametrize("prediction", ["x0_ce", "eps"])
def test_ddpm_steps_are_the_posterior(prediction: str) -> None:
    """diffusers' DDPM from one of its timesteps to the next has the mean and the deviation of q(z_s | z_t, e_hat)."""
    process = GaussianEmbedding(5, prediction=prediction, width=3)
    scheduler = make_scheduler("ddpm", process)
    scheduler.set_timesteps(10)
    stream = torch.Generator().manual_seed(0)
    at, following = scheduler.timesteps[4], scheduler.timesteps[5]
    z = torch.randn(20_000, 1, 3, generator=stream)
    z[:] = z[0]
    output = torch.randn(1, 1, 3, generator=stream).expand_as(z)
    stepped = scheduler.step(output, at, z, generator=stream).prev_sample[:, 0]
    t, s = ((float(i) + 1) / 1000 * torch.ones(1) for i in (at, following))
    estimate = output[:1] if prediction == "x0_ce" else process.estimate(output[:1], z[:1], t, None)
    mean, std = process.posterior(z[0], estimate[0], t, s)
    error = float(std) / len(z) ** 0.5
    torch.testing.assert_close(stepped.mean(0), mean[0], atol=5 * error + 1e-4, rtol=0)
    torch.testing.assert_close(stepped.std(0), std.expand(3), atol=5 * error, rtol=1e-3)


@pytest.mark.parametrize("prediction", ["x0_ce", "eps"])
def test_it_trains_and_plays_in_mixed_precision(prediction: str, connect_data: Dataset) -> None:
    made = learner(prediction)
    batch = made.windows(connect_data, "train", seed=0).batch(np.arange(8), 0)
    assert isinstance(batch, TokenBatch)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = made.loss(batch, torch.Generator().manual_seed(0))
        loss.backward()  # type: ignore[no-untyped-call]
        assert made.elbo(batch, torch.Generator().manual_seed(0)).isfinite().all()
        decision = made.policy().decide([made.game.parse()])[0]
    assert loss.isfinite()
    assert decision.move in made.game.legal(made.game.parse())


@pytest.mark.parametrize("num_steps", [1, 7, 64, 600, 1000])
@pytest.mark.parametrize("name", ["ddim", "dpmsolver++"])
def test_z_holds_the_noise_of_its_time(name: str, num_steps: int) -> None:
    """With a prediction that is always right, a deterministic sampler keeps its first noise: z_s = alpha_s e + sigma_s
    eps at every time, whether or not the number of calls divides 1000."""
    process = GaussianEmbedding(5, width=3, gamma_min=-6.0)  # diffusers' float32 tables know sigma_0 to 1e-3
    stream = torch.Generator().manual_seed(0)
    e, eps = torch.randn(2, 1, 4, 3, generator=stream)
    scheduler = make_scheduler(name, process)
    scheduler.set_timesteps(num_steps)
    alpha, sigma = alpha_sigma(process.gamma((scheduler.timesteps + 1) / 1000))
    z = alpha[0] * e + sigma[0] * eps
    for i in range(1, num_steps):
        z = scheduler.step(e, scheduler.timesteps[i - 1], z).prev_sample
        torch.testing.assert_close((z - alpha[i] * e) / sigma[i], eps, atol=0.01, rtol=0)


@pytest.mark.parametrize("name", ["ddpm", "ddim", "dpmsolver++"])
def test_every_scheduler_ends_at_the_estimate(name: str) -> None:
    """With a prediction that is always right, each ends on the embedding itself."""
    process = GaussianEmbedding(5, width=3)
    e = process.embeddings()[torch.tensor([[0, 3, 1]])].detach()
    scheduler = make_scheduler(name, process)
    scheduler.set_timesteps(7)
    assert int(scheduler.timesteps[0]) == 999
    z = torch.randn(1, 3, 3, generator=torch.Generator().manual_seed(0))
    for timestep in scheduler.timesteps:
        z = scheduler.step(e, timestep, z).prev_sample
    torch.testing.assert_close(z, e, atol=1e-2, rtol=0)  # float32, divided by a small sigma


def test_a_network_that_says_nothing_predicts_the_best_linear_guess_of_the_noise() -> None:
    """Of z = alpha x + sigma eps with x and eps of unit size: E[eps | z] = sigma z, so that x is guessed as alpha z."""
    made = learner("eps")
    noise = made.network.noise
    assert noise is not None
    for parameter in noise.parameters():
        torch.nn.init.zeros_(parameter)
    stream = torch.Generator().manual_seed(0)
    t, z = torch.tensor([0.2, 1.0]), torch.randn(2, made.layout.length, made.process.width, generator=stream)
    tokens = torch.full((2, made.layout.length), made.layout.mask)
    with torch.no_grad():
        predicted = made.network.predict(tokens, t, z)
        estimate = made.process.estimate(predicted, z, t, None)
    alpha = torch.sigmoid(-made.process.gamma(t)).sqrt()
    torch.testing.assert_close(estimate, alpha[:, None, None] * z, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("prediction", ["x0_ce", "eps"])
def test_keeps_the_laws_of_policies_and_survives_saving(prediction: str, tmp_path: Path) -> None:
    made = learner(prediction)
    game = made.game
    states = [game.parse(), game.play(game.parse(), 4), game.play(game.parse(), 0)]
    check_policy(made.policy(), states)
    made.policy().save_pretrained(tmp_path / "policy")
    loaded = genpolicy.load_policy(tmp_path / "policy", scheduler="ddim")
    ours = made.policy().with_options(scheduler="ddim").decide(states)
    assert [(d.move, d.line, d.states) for d in ours] == [(d.move, d.line, d.states) for d in loaded.decide(states)]


@pytest.mark.parametrize("scheduler", ["ddpm", "ddim", "dpmsolver++", "one_call"])
def test_every_scheduler_plays(scheduler: str) -> None:
    made = learner(scheduler=scheduler)
    decision = made.policy().decide([made.game.parse()])[0]
    assert decision.stats["network_calls"] == (1 if scheduler == "one_call" else 5)


@pytest.mark.slow
def test_fits_32_records(connect_data: Dataset) -> None:
    """By ten steps of DDPM; with less noise at t = 1 and more at t = 0 than VDM's, for tokens of few numbers."""
    process = {"num_timesteps": 10, "width": 4, "gamma_min": -3.0, "gamma_max": 6.0}
    network = dataclasses.replace(TINY, dropout=0.0)
    check_learner(
        lambda: learner(redraw=False, process=process, network=network), connect_data, max_updates=1200, lr=5e-3
    )


@pytest.mark.thorough
def test_noise_prediction_learns_more_than_chance(connect_data: Dataset) -> None:
    """Squared error alone is slow to learn discrete moves; its loss falls well below the one of no prediction."""
    torch.manual_seed(0)
    made = learner("eps", redraw=False)
    windows = made.windows(connect_data, "train", seed=0)
    optimiser = torch.optim.AdamW(made.param_groups(0.0), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for update in range(150):
        batch = windows.batch(np.arange(update * 64, update * 64 + 64) % len(windows), 0)
        loss, _ = made.loss(batch, generator)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-20:]) < 0.55 * losses[0]


def test_bad_options_are_refused() -> None:
    game = genpolicy.load_game(CONNECT)
    with pytest.raises(ConfigError, match=r"Did you mean: 'ddpm'"):
        learner(scheduler="ddpn")
    with pytest.raises(ConfigError, match=r"learner.process.widht' does not exist. Did you mean: 'width'"):
        learner(process={"widht": 3})
    for options in ({"num_timesteps": 10.5}, {"num_timesteps": True}, {"width": "8"}, {"gamma_max": "high"}):
        with pytest.raises(ConfigError, match=rf"'learner\.process\.{next(iter(options))}' is a value such as "):
            learner(process=options)
    assert learner(process={"gamma_max": 4}).process.gamma_max == 4
    with pytest.raises(ConfigError, match=r"set learner\.kind=diffusion"):
        learner(process={"kind": "absorbing"})
    with pytest.raises(ConfigError, match=r"set learner\.kind=gaussian"):
        DiffusionLearner(game, DiffusionConfig(network=TINY, process={"kind": "gaussian"}))
    with pytest.raises(ValueError, match=r"num_steps must be 1..1000"):
        learner(num_steps=0).policy()
