"""The image policy: laws, learning, saving, what it refuses; on shogi and on chess."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.data.stream import Share, ShuffledWindows
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.policies.base import load_policy
from genpolicy.testing import check_learner, check_policy
from genpolicy_policy_image import ImageConfig, ImageLearner
from genpolicy_policy_image.windows import ImageBatch

pytestmark = pytest.mark.xdist_group("diffusers")  # on one worker, so that it is imported once

ROOT = Path(__file__).parents[2]
CHESS, SHOGI = genpolicy.load_game("chess"), genpolicy.load_game("shogi")
TINY: dict[str, Any] = {"channels": [16], "backbone_width": 16, "backbone_blocks": 1, "cross_attention_dim": 16}
VARIANTS: dict[str, dict[str, Any]] = {
    "published": {"preset": "published"},
    "repaired": {},
    "classifier": {"preset": "classifier"},
    "a classifier that draws": {"preset": "classifier", "temperature": 1.0},
    "bits by dpmsolver++": {"target": "bits", "scheduler": "dpmsolver++"},
    "noise of bits": {"target": "bits", "prediction": "eps"},
    "logits, tokens, two levels": {
        "target": "logits",
        "condition": "tokens",
        "unet": "unet2d_condition",
        "channels": [16, 32],
        "scheduler": "ddim",
    },
    "planes in a UNet with cross-attention": {"unet": "unet2d_condition"},
    "no blocks, two levels, one call": {"backbone_blocks": 0, "channels": [16, 32], "temperature": 0.0},
}


def learner(game: Any = SHOGI, **options: Any) -> ImageLearner:
    torch.manual_seed(0)
    return ImageLearner(game, ImageConfig(**{**TINY, "num_steps": 3, **options}))


@pytest.fixture(scope="module")
def shogi_data() -> Dataset:
    return Dataset.open(ROOT / "games/genpolicy_shogi/sample")


@pytest.fixture(scope="module")
def chess_data() -> Dataset:
    return Dataset.open(ROOT / "games/genpolicy_chess/sample")


def some_states(game: Any, data: Dataset, count: int = 3) -> list[Any]:
    return [game.parse(record.state) for _, record in zip(range(count), data.records("test"), strict=False)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", VARIANTS)
def test_keeps_the_laws_of_policies_and_survives_saving(name: str, shogi_data: Dataset) -> None:
    policy = learner(**VARIANTS[name]).policy()
    states = some_states(SHOGI, shogi_data)
    finished = [SHOGI.parse("8k/9/8G/9/9/9/9/9/4K2R1 w - 1")]
    check_policy(policy, states, finished=finished, max_plies=2)
    check_policy(policy.with_options(legal_mask=False), states, max_plies=2)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["repaired", "published", "classifier"])
def test_plays_chess_by_the_same_laws(name: str, chess_data: Dataset) -> None:
    check_policy(learner(CHESS, **VARIANTS[name]).policy(), some_states(CHESS, chess_data), max_plies=2)


@pytest.mark.parametrize("preset", [pytest.param("repaired", marks=pytest.mark.slow), "classifier"])
def test_learns_records_of_shogi_by_heart(preset: str, shogi_data: Dataset) -> None:
    check_learner(lambda: learner(preset=preset, num_steps=10), shogi_data)


def test_learns_records_of_chess_by_heart(chess_data: Dataset) -> None:
    check_learner(lambda: learner(CHESS, num_steps=10), chess_data, num_records=12)


@pytest.mark.slow
def test_the_published_recipe_learns_to_copy_noise_and_no_move(shogi_data: Dataset) -> None:
    """Squared error of the noise, on few records for long: far down the loss, and hardly a move of them learnt.

    The image's variance is 1/2187 of the noise's, so nearly all of the loss is gone when the noise is copied; what
    distinguishes moves is 0.003 of it (``test_image_codes``). The classifier knows these records after 200 updates.
    """
    ours = learner(preset="published")
    windows, indices = ours.windows(shogi_data, "train", seed=0), np.arange(32)
    optimiser = torch.optim.AdamW(ours.param_groups(0.0), lr=3e-3)
    stream = torch.Generator().manual_seed(0)
    batch, losses = windows.batch(indices, 0), []
    for _ in range(200):
        loss, metrics = ours.loss(batch, stream)
        losses.append(float(metrics["denoiser"]))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert float(metrics["own"]) < 1.0  # the backbone knows most of the moves ...
    assert np.mean(losses[-20:]) < 0.6 * losses[0]  # ... and the loss falls, but no draw agrees with its label
    states = [SHOGI.tokens.decode(row, 0) for row in batch.tokens[:, : ours.layout.state_length].numpy()]
    moves = (batch.tokens[:, ours.layout.first_action] - ours.layout.move_offset).tolist()
    decisions = ours.policy().with_options(legal_mask=False, num_steps=20).decide(states)
    assert sum(d.line[0] == move for d, move in zip(decisions, moves, strict=True)) <= 2


def test_windows_hold_the_image_and_the_cell_of_the_recorded_move(shogi_data: Dataset) -> None:
    ours = learner()
    windows = ours.windows(shogi_data, "validation", seed=0)
    batch = windows.batch(np.arange(20), 0)
    assert isinstance(batch, ImageBatch)
    for i, record in zip(range(20), shogi_data.records("validation"), strict=False):
        state = SHOGI.parse(record.state)
        np.testing.assert_array_equal(batch.planes[i].numpy(), SHOGI.planes([state])[0])
        move = np.array([SHOGI.moves.index(record.moves[0])])
        cells = SHOGI.move_planes().cells
        assert int(batch.label[i]) == cells[SHOGI.moves.seen_by(move, SHOGI.player(state))[0]]
        assert batch.legal[i].sum() == len(SHOGI.legal(state))
        assert batch.legal[i, batch.label[i]]


def test_batches_keep_their_images_on_their_way_to_the_loop(shogi_data: Dataset) -> None:
    windows = learner().windows(shogi_data, "test", seed=0)
    stream = ShuffledWindows(windows, 0)
    stream.begin(Share(24))
    at_the_end = len(windows) // 24  # this update takes the last windows of an epoch and the first of the next
    (part,) = stream.parts(at_the_end)
    moved = part.to("cpu")
    assert isinstance(moved, ImageBatch)
    assert moved.planes.shape == (24, 119, 9, 9)


def test_one_condition_token_tells_every_square_the_same() -> None:
    """Softmax over one key is 1: cross-attention gives all squares one vector. With a token a square it does not."""
    spreads = {}
    for condition in ("token", "tokens"):
        ours = learner(preset="published", condition=condition)
        seen: list[torch.Tensor] = []
        attention = next(m for name, m in ours.network.unet.named_modules() if name.endswith("attn2"))
        attention.register_forward_hook(lambda module, inputs, out, seen=seen: seen.append(out.detach()))
        ours.policy().decide([SHOGI.parse()])
        spreads[condition] = float(seen[0].std(dim=1).max())
    assert spreads["token"] < 1e-6
    assert spreads["tokens"] > 1e-4


def test_a_frozen_backbone_learns_by_its_own_head_alone(shogi_data: Dataset) -> None:
    ours = learner(preset="published")
    batch = ours.windows(shogi_data, "test", seed=0).batch(np.arange(8), 0)
    features = ours.network.features(batch.planes)  # type: ignore[attr-defined]
    images = ours.code.image(batch.label)  # type: ignore[attr-defined]
    ours.network(images, ours.last_timestep(8), features).sum().backward()
    assert all(p.grad is None for p in ours.network.backbone.parameters())
    ours.loss(batch, torch.Generator().manual_seed(0))[0].backward()
    assert all(p.grad is not None for p in ours.network.backbone.parameters())


def test_the_loss_of_an_unlabelled_window_is_left_out(shogi_data: Dataset) -> None:
    ours = learner(preset="classifier")
    batch = ours.windows(shogi_data, "test", seed=0).batch(np.arange(4), 0)
    assert isinstance(batch, ImageBatch)
    cut = dataclasses.replace(batch, label=torch.cat([batch.label[:3], torch.tensor([-1])]))
    three = dataclasses.replace(batch, label=batch.label[:3], planes=batch.planes[:3], legal=batch.legal[:3])
    stream = torch.Generator().manual_seed(0)
    torch.testing.assert_close(ours.loss(cut, stream)[0], ours.loss(three, stream)[0])
    nats = ours.elbo(cut, stream)
    torch.testing.assert_close(nats[:3].mean().float(), ours.loss(three, stream)[0].detach())
    assert nats[3] == 0


def test_without_a_mask_an_illegal_draw_is_no_move_of_the_line(shogi_data: Dataset) -> None:
    """An untrained network draws among 2187 cells, of which few are legal."""
    policy = learner().policy().with_options(legal_mask=False)
    decisions = policy.decide(some_states(SHOGI, shogi_data, 8))
    assert [d.line[0] == -1 for d in decisions] == [d.stats["raw_legal"] == 0 for d in decisions]
    assert sum(d.line[0] == -1 for d in decisions) >= 6
    masked = policy.with_options(legal_mask=True).decide(some_states(SHOGI, shogi_data, 8))
    assert all(d.line == (d.move,) for d in masked)


@pytest.mark.thorough
def test_draws_follow_the_classifier() -> None:
    """2,000 draws at temperature 1 against the softmax: chi-square of the 30 legal moves and the rest."""
    policy = learner(preset="classifier").policy().with_options(temperature=1.0, batch_size=500)
    decisions = policy.decide([SHOGI.parse()] * 2000)
    shares = decisions[0].policy
    assert shares is not None
    counts = {move: sum(d.move == move for d in decisions) for move in shares}
    chi = sum((counts[m] - 2000 * p) ** 2 / (2000 * p) for m, p in shares.items())
    assert chi < 58.3  # 99.9 percentile at 29 degrees of freedom


@pytest.mark.parametrize("preset", ["classifier", "repaired"])
def test_the_smallest_temperature_decides(preset: str) -> None:
    state = SHOGI.parse()
    policy = learner(preset=preset).policy()
    (small,) = policy.with_options(temperature=5e-324, num_steps=1).decide([state])
    (none,) = policy.with_options(temperature=0.0).decide([state])
    assert small.move == none.move


def test_a_saved_folder_keeps_every_switch(tmp_path: Path) -> None:
    policy = learner(preset="published", condition="tokens").policy().with_options(scheduler="ddim", num_steps=2)
    folder = policy.save_pretrained(tmp_path / "policy")
    loaded: Any = load_policy(folder)
    assert loaded.learner.config.condition == "tokens"
    assert (loaded.scheduler, loaded.num_steps, loaded.temperature) == ("ddim", 2, 1.0)
    assert not list(folder.glob("*.pt"))
    with pytest.raises(ValueError, match="takes no option 'sampler'"):
        load_policy(folder, sampler="ddim")
    with pytest.raises(ConfigError, match="scheduler must be one of"):
        load_policy(folder, scheduler="euler")
    with pytest.raises(ValueError, match="temperature 1 or takes the likeliest"):
        load_policy(folder, temperature=0.5)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-7])
    with pytest.raises(CheckpointError):
        load_policy(folder)


def test_a_game_without_planes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"connect.* Game\.planes"):
        ImageLearner(genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false"), ImageConfig(**TINY))


def test_an_argument_that_diffusers_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="diffusers cannot build"):
        learner(extra={"no_such_argument": 1})


@pytest.mark.slow
def test_the_published_size_is_built_and_stepped_once(shogi_data: Dataset) -> None:
    """912.2 M weights in the UNet, 39.8 M of them in the projection of the condition token, 16 cross-attentions."""
    ours = ImageLearner(SHOGI, ImageConfig(preset="published", size="published"))
    unet: Any = ours.network.unet
    assert round(sum(p.numel() for p in unet.parameters()) / 1e6, 1) == 912.2
    assert round(sum(p.numel() for p in unet.encoder_hid_proj.parameters()) / 1e6, 1) == 39.8
    assert sum(name.endswith("attn2") for name, _ in unet.named_modules()) == 16
    batch = ours.windows(shogi_data, "test", seed=0).batch(np.arange(1), 0)
    loss, metrics = ours.loss(batch, torch.Generator().manual_seed(0))
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(metrics["denoiser"])
    before = unet.conv_out.weight.detach().clone()
    torch.optim.SGD(ours.parameters(), lr=1e-2).step()  # without AdamW's 8 GB of moments
    assert not torch.equal(before, unet.conv_out.weight)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learner().policy().save_pretrained(tmp_path_factory.mktemp("spelled") / "tiny")


def test_options_mean_in_a_spelling_what_they_say(tiny_folder: Path) -> None:
    loaded: Any = load_policy(f"{tiny_folder}?scheduler=dpmsolver++&matched=no&legal_mask=off&num_steps=7")
    assert (loaded.scheduler, loaded.matched, loaded.legal_mask, loaded.num_steps) == ("dpmsolver++", False, False, 7)
    loaded = load_policy(f"{tiny_folder}?scheduler=dpmsolver%2B%2B&matched=1&legal_mask=Yes")
    assert (loaded.scheduler, loaded.matched, loaded.legal_mask) == ("dpmsolver++", True, True)
    assert load_policy(tiny_folder, matched="off", legal_mask=0).own_options()["matched"] is False  # type: ignore[attr-defined]
    assert loaded.with_options(matched="false", num_steps=4.0).own_options()["matched"] is False


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("matched=maybe", "matched must be true or false .*got 'maybe'"),
        ("matched=2", "matched must be true or false .*got 2"),
        ("legal_mask=maybe", "legal_mask must be true or false .*got 'maybe'"),
        ("legal_mask=", "legal_mask must be true or false .*got ''"),
        ("num_steps=2.5", "num_steps is a whole number, got 2.5"),
        ("num_steps=nan", "num_steps is a whole number, got nan"),
        ("num_steps=true", "num_steps is a whole number, got True"),
        ("num_steps=many", "num_steps is a whole number, got 'many'"),
        ("temperature=yes", "temperature is a number, got 'yes'"),
    ],
)
def test_options_that_say_nothing_are_refused(query: str, message: str, tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_policy(f"{tiny_folder}?{query}")
    key, value = query.split("=")
    if key != "temperature":
        with pytest.raises(ValueError, match=key):
            learner().policy().with_options(**{key: float(value) if value in ("2.5", "nan") else value})


@pytest.mark.parametrize("change", [{"prediction": "x0"}, {"num_timesteps": 500}, {"schedule": "cosine"}])
def test_weights_that_mean_something_else_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=f"differ in learner.{next(iter(change))}"):
        learner(preset="published", **change).take_weights(learner(preset="published"))
