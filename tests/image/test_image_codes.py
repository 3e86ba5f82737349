"""Images of moves, schedules and samplers of the image policy, and what the published recipe's numbers mean."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from genpolicy.errors import ConfigError
from genpolicy_policy_image.codes import Code
from genpolicy_policy_image.config import ImageConfig
from genpolicy_policy_image.schedulers import noise_scheduler, sampling_scheduler

pytestmark = pytest.mark.xdist_group("diffusers")  # on one worker, so that it is imported once

SHAPE = (27, 9, 9)
TARGETS = ["probabilities", "scaled", "bits", "logits"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_is_nearest_to_its_own_cell(target: str) -> None:
    code = Code(target, SHAPE, 3.0 if target in ("scaled", "bits") else 1.0)
    cells = torch.arange(0, code.num_cells, 13)
    images = code.image(cells)
    assert images.shape == (len(cells), 12 if target == "bits" else 27, 9, 9)
    torch.testing.assert_close(code.scores(images).argmax(-1), cells)
    shares = code.log_probabilities(images).exp()
    torch.testing.assert_close(shares.argmax(-1), cells)
    torch.testing.assert_close(shares.sum(-1), torch.ones(len(cells), dtype=torch.float64))


@pytest.mark.parametrize("target", TARGETS)
def test_the_mean_image_is_the_average_of_images(target: str) -> None:
    code = Code(target, (2, 3, 3), 2.0)
    shares = torch.rand(1, 18, generator=torch.Generator().manual_seed(0)).softmax(-1)
    average = (shares.reshape(-1, 1, 1, 1) * code.image(torch.arange(18))).sum(0, keepdim=True)
    torch.testing.assert_close(code.mean(shares), average)


def test_logits_give_back_the_smoothed_move() -> None:
    code = Code("logits", SHAPE, 1.0)
    assert float(code.image(torch.tensor([5])).mean()) == pytest.approx(0, abs=1e-6)  # centred
    share = code.log_probabilities(code.image(torch.tensor([5]))).exp()[0, 5]
    assert float(share) == pytest.approx(0.99, abs=1e-6)


def test_analog_bits_are_the_binary_number() -> None:
    bits = Code("bits", (1, 2, 4), 0.5).image(torch.tensor([6]))[0, :, 0, 0]
    assert bits.tolist() == [-0.5, 0.5, 0.5]  # 6 = 110, the lowest bit first


def test_the_published_sampler_has_another_schedule() -> None:
    """alpha-bar at t = 500 and 750: 0.276 and 0.056 in training, 0.078 and 0.0033 in the sampler's defaults."""
    config = ImageConfig(preset="published")
    trained = noise_scheduler(config).alphas_cumprod
    played = sampling_scheduler(config, "ddpm", 20, matched=False).alphas_cumprod
    assert [round(float(trained[t]), 3) for t in (500, 750)] == [0.276, 0.056]
    assert [round(float(played[t]), 4) for t in (500, 750)] == [0.0778, 0.0033]
    torch.testing.assert_close(sampling_scheduler(config, "ddim", 20, matched=True).alphas_cumprod, trained)


def test_saying_nothing_already_has_a_noise_error_of_three_thousandths() -> None:
    """Predicting x_0 = 0 leaves alpha-bar / (1 - alpha-bar) times the image's mean square, 1/2187 of a one-hot one."""
    signal = noise_scheduler(ImageConfig(preset="published")).alphas_cumprod.double()
    assert float((signal / (1 - signal)).mean()) / 2187 == pytest.approx(0.0031, abs=2e-4)


@pytest.mark.parametrize(("scale", "readable"), [(20.0, 7 / 8), (3.0, 2 / 5)])
def test_a_large_scale_leaves_few_timesteps_that_teach(scale: float, readable: float) -> None:
    """Noise hides one cell of 2187 where scale * sqrt(signal / noise) is below sqrt(2 ln 2187); and it is seen to."""
    signal = noise_scheduler(ImageConfig()).alphas_cumprod.double()
    assert float((scale * (signal / (1 - signal)).sqrt() > math.sqrt(2 * math.log(2187))).double().mean()) == (
        pytest.approx(readable, abs=0.03)
    )


@pytest.mark.parametrize("name", ["ddpm", "ddim", "dpmsolver++"])
@pytest.mark.parametrize(
    "options",
    [{"preset": "published"}, {"preset": "published", "matched": True}, {"preset": "repaired"}],
    ids=["published", "matched", "repaired"],
)
def test_a_perfect_network_draws_the_right_move(name: str, options: dict[str, Any]) -> None:
    """So the mismatched schedule alone is not what makes the published recipe fail."""
    config = ImageConfig(**options)
    assert config.scale is not None
    code = Code(str(config.target), SHAPE, config.scale)
    cells = torch.arange(0, 2187, 150)
    clean = code.image(cells)
    trained = noise_scheduler(config).alphas_cumprod
    scheduler = sampling_scheduler(config, name, 20, matched=bool(config.matched))
    stream = torch.Generator().manual_seed(0)
    images = torch.randn(clean.shape, generator=stream)
    for timestep in scheduler.timesteps:
        signal = trained[int(timestep)]
        noise = (images - signal.sqrt() * clean) / (1 - signal).sqrt()
        more = {} if name == "ddim" else {"generator": stream}
        output = noise if config.prediction == "eps" else clean
        images = scheduler.step(output, timestep, images, **more).prev_sample
    torch.testing.assert_close(code.scores(images).argmax(-1), cells)
    if config.matched:
        torch.testing.assert_close(images, clean, atol=0.05, rtol=0)


@pytest.mark.parametrize("num_steps", [7, 64, 600, 1000])
@pytest.mark.parametrize("name", ["ddim", "dpmsolver++"])
def test_images_hold_the_noise_of_their_timestep(name: str, num_steps: int) -> None:
    """With a perfect network a deterministic sampler keeps its first noise, whether or not the steps divide 1000."""
    config = ImageConfig(preset="repaired")
    signal = noise_scheduler(config).alphas_cumprod
    clean, noise = torch.randn(2, 1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    scheduler = sampling_scheduler(config, name, num_steps, matched=True)
    timesteps = scheduler.timesteps
    images = signal[timesteps[0]].sqrt() * clean + (1 - signal[timesteps[0]]).sqrt() * noise
    for timestep, following in itertools.pairwise(timesteps):
        held = (images - signal[timestep].sqrt() * clean) / (1 - signal[timestep]).sqrt()
        images = scheduler.step(held if config.prediction == "eps" else clean, timestep, images).prev_sample
        held = (images - signal[following].sqrt() * clean) / (1 - signal[following]).sqrt()
        torch.testing.assert_close(held, noise, atol=0.01, rtol=0)
    images = scheduler.step(noise if config.prediction == "eps" else clean, timesteps[-1], images).prev_sample
    torch.testing.assert_close(images, clean, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"preset": "repared"}, "Did you mean: 'repaired'"),
        ({"target": "bit"}, "Did you mean: 'bits'"),
        ({"condition": "token"}, "unet2d_condition"),
        ({"scale": 0.0}, "above 0"),
        ({"target": "logits", "scale": 3.0}, "scaled or bits"),
        ({"num_steps": 2000}, "at most num_timesteps=1000"),
        ({"channels": [20]}, "multiples of norm_groups=8"),
        ({"channels": []}, "multiples of norm_groups=8"),
        ({"backbone_blocks": -1}, "backbone_blocks must be at least 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ImageConfig(**options)


def test_presets_give_what_is_not_said() -> None:
    published = ImageConfig(preset="published", condition="tokens")
    assert (published.target, published.prediction, published.condition) == ("probabilities", "eps", "tokens")
    assert (published.matched, published.frozen_backbone, published.scale) == (False, True, 1.0)
    assert ImageConfig().scale == 3.0
    assert math.isclose(float(ImageConfig(preset="classifier").temperature or 0), 0)
