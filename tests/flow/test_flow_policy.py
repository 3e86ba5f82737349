"""Flow matching inside a policy: it asks for the time, learns, is saved and loaded, and plays with every sampler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import genpolicy
from genpolicy import registry
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.options import options_of
from genpolicy.policies.base import policy_spec
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from genpolicy.testing import check_policy
from genpolicy_common.labelled import labelled_positions
from genpolicy_evaluation.accuracy import measure_accuracy
from tests.policies.test_learners import train
from tests.policies.test_network_policies import some_states, won
from tests.small_datasets import CONNECT, solved_connect

MASK: dict[str, Any] = {"kind": "flow", "num_timesteps": 6, "power": 2}
UNIFORM: dict[str, Any] = {**MASK, "source": "uniform", "power": 1}
KEEP_DECIDED = {"a0_last", "easy_first_commit", "remasking"}


@pytest.fixture(scope="module")
def connect() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("flow"))


def learner(game: Game[Any], process: dict[str, Any], width: int = 32, **network: Any) -> DiffusionLearner:
    torch.manual_seed(0)
    shape = {"num_layers": 1, "num_heads": 2, "geometry": "board", "head": "typed", "init_std": 0.05, **network}
    timed = process.get("source") == "uniform"
    config = NetworkConfig(width=width, **{"time_conditioning": timed, **shape})
    return DiffusionLearner(game, DiffusionConfig(network=config, horizon=2, process=process))


# The time.


def test_a_uniform_source_asks_for_the_time(connect: Game[Any]) -> None:
    message = r"do not show the time: set learner\.network\.time_conditioning=true, or learner\.process\.timeless=true"
    with pytest.raises(ConfigError, match=message):
        learner(connect, UNIFORM, time_conditioning=False)
    for timeless in (False, "yes"):
        with pytest.raises(ConfigError, match=message):
            learner(connect, {**UNIFORM, "timeless": timeless}, time_conditioning=False)
    assert learner(connect, {**UNIFORM, "timeless": True}, time_conditioning=False).network.trunk.time is None
    assert learner(connect, UNIFORM, time_conditioning=True).network.trunk.time is not None
    learner(connect, MASK, time_conditioning=False)  # the number of masks shows it


# Training.


@pytest.mark.slow
@pytest.mark.parametrize("process", [MASK, UNIFORM], ids=["mask", "uniform"])
def test_seconds_of_training_beat_a_random_mover(process: dict[str, Any], connect: Game[Any], data: Dataset) -> None:
    """On held-out positions, by one call and by easy-first, with a mask by the flow sampler with churn, too."""
    made = learner(connect, process, width=64, num_layers=2, num_heads=4)
    train(made, data, 150, 128)
    positions = labelled_positions(data, connect, "test")
    policy = DiffusionPolicy(made)
    ways = policy.modes()
    if process is MASK:  # it draws a future from noise that looks like data, which takes more training
        ways["flow"] = policy.with_options(sampler="flow", churn=0.5, temperature=0.0)
    for mode, way in ways.items():
        figures = measure_accuracy(way, positions, mode=mode, raw=False)
        assert figures.times_random_interval[0] > 1.0, (mode, figures)


# Playing.


def allowed(process: dict[str, Any]) -> list[str]:
    names = registry.available("samplers")
    return [name for name in names if process.get("source") != "uniform" or name not in KEEP_DECIDED]


PLAYED = [(process, name) for process in (MASK, UNIFORM) for name in allowed(process)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("process", "sampler"), PLAYED, ids=[f"{p.get('source', 'mask')} {n}" for p, n in PLAYED])
def test_every_allowed_sampler_keeps_the_laws(process: dict[str, Any], sampler: str, connect: Game[Any]) -> None:
    policy = learner(connect, process).policy().with_options(sampler=sampler, num_steps=3)
    check_policy(policy, some_states(connect, 3), finished=[won(connect)])


@pytest.mark.parametrize("sampler", sorted(KEEP_DECIDED))
def test_the_others_say_why_they_do_not_play(sampler: str, connect: Game[Any]) -> None:
    with pytest.raises(ConfigError, match="looks like data"):
        learner(connect, UNIFORM).policy().with_options(sampler=sampler)


@pytest.mark.parametrize("process", [MASK, {**UNIFORM, "prediction_type": "leave_one_out"}], ids=["mask", "uniform"])
def test_it_is_saved_with_its_options_and_plays_the_same(
    process: dict[str, Any], connect: Game[Any], tmp_path: Path
) -> None:
    policy = learner(connect, process).policy().with_options(sampler="flow", churn=0.5, kernel="euler", num_steps=4)
    policy.save_pretrained(tmp_path / "policy")
    again = genpolicy.load_policy(tmp_path / "policy")
    states = some_states(connect, 4)
    assert [d.move for d in again.decide(states)] == [d.move for d in policy.decide(states)]
    assert again.learner.process.config() == policy.learner.process.config()  # type: ignore[attr-defined]
    assert again.sampling.options == {"churn": 0.5, "kernel": "euler"}  # type: ignore[attr-defined]
    other = genpolicy.load_policy(f"{tmp_path}/policy?kernel=exact&churn=2&temperature=0")
    assert other.sampling.options == {"churn": 2.0, "kernel": "exact"}  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="churn must be at least 0"):
        genpolicy.load_policy(f"{tmp_path}/policy?churn=-1")


def test_a_folder_offers_the_samplers_that_its_noise_allows(connect: Game[Any], tmp_path: Path) -> None:
    for process in (MASK, UNIFORM):
        folder = tmp_path / process.get("source", "mask")
        learner(connect, process).policy().save_pretrained(folder)
        options = {option.name: option for option in options_of("policies", "diffusion", policy_spec(str(folder)))}
        assert sorted(options["sampler"].choices) == sorted(allowed(process))


def test_its_options_are_listed_before_torch_is_loaded() -> None:
    code = """
import sys
from genpolicy.options import options_of
assert "flow" in {o.name: o for o in options_of("policies", "diffusion")}["sampler"].choices
found = {o.name: o for o in options_of("policies", "diffusion")}
assert found["churn"].needs == ("sampler", ("flow",)), found["churn"]
assert found["kernel"].choices == ("exact", "euler")
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
