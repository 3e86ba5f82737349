"""Learning all blocks of a record in one pass: ``process.one_pass``."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.every_block import block_spans
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy, SamplerConfig
from genpolicy.policies.ply_order import PlyOrder
from genpolicy.sequence import KINDS
from genpolicy.testing import check_learner
from tests.policies.test_ply_order import batch_of
from tests.small_datasets import CONNECT, solved_connect

BOARD = NetworkConfig(geometry="board", num_layers=2, width=32, num_heads=4, head="typed", attention="block_causal")


@pytest.fixture(scope="module")
def connect_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("one_pass"))


def learner(
    paradigm: str = "s-asa", horizon: int = 2, network: NetworkConfig = BOARD, **process: Any
) -> DiffusionLearner:
    torch.manual_seed(0)
    settings = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", "one_pass": 1.0, **process}
    config = DiffusionConfig(
        network=network,
        paradigm=paradigm,
        horizon=horizon,
        process=settings,
        redraw=False,
        sampler=SamplerConfig("by_ply", 3),
    )
    return DiffusionLearner(genpolicy.load_game(CONNECT), config)


def test_the_loss_is_the_exact_likelihood_where_all_is_pure_noise() -> None:
    made = learner(horizon=3, num_timesteps=1).double()
    batch = batch_of(made, 6)
    expected = made.elbo(batch, torch.Generator().manual_seed(1)).mean()
    got = made.loss(batch, torch.Generator().manual_seed(2))[0].detach()
    assert float(got) == pytest.approx(float(expected), rel=1e-6)


def test_of_a_share_of_the_records_all_blocks_and_of_the_others_the_first() -> None:
    made = learner(paradigm="s-avsav", horizon=3, one_pass=0.3)
    assert made.by_ply is not None
    draws = torch.rand((4, 40), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (whole, none), (first, pure) = made.by_ply.split(batch_of(made, 40), draws)
    assert none is None
    assert whole.tokens.shape == (12, made.layout.length)
    assert first.tokens.shape == (28, made.by_ply.ends[0])
    assert sorted([*whole.indices.tolist(), *first.indices.tolist()]) == list(range(40))
    assert pure is not None
    assert 0 < int(pure.sum()) < 28


@pytest.mark.parametrize("one_pass", [0.25, 1.0])
def test_every_weight_has_a_gradient_and_one_seed_one_loss(one_pass: float) -> None:
    made = learner(paradigm="s-avsav", one_pass=one_pass)
    losses = [made.loss(batch_of(made, 8), torch.Generator().manual_seed(seed))[0] for seed in (3, 3, 4)]
    assert losses[0] == losses[1] != losses[2]
    losses[0].backward()  # type: ignore[no-untyped-call]
    assert [name for name, p in made.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("process", [{"kind": "multinomial"}, {"kind": "flow", "source": "uniform", "timeless": True}])
def test_where_noise_looks_like_data_what_is_not_to_be_seen_is_noise(process: dict[str, Any]) -> None:
    """A network has no symbol for a mask then, neither for values that are hidden nor for the end of a short line."""
    made = learner(paradigm="s-avsav", horizon=3, **process)
    batch = batch_of(made, 32)
    cut = (torch.arange(32) % 2 == 0)[:, None] & (torch.arange(made.layout.length) > made.layout.first_action + 1)
    batch = dataclasses.replace(
        batch, tokens=batch.tokens.masked_fill(cut, made.layout.mask), target=batch.target & ~cut
    )
    seen = list[torch.Tensor]()
    made.network.trunk.embedding.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    loss, again = (made.loss(batch, torch.Generator().manual_seed(3))[0] for _ in range(2))
    assert loss.isfinite()
    assert loss == again
    clean, _ = seen[:2]
    last = clean.shape[1]
    assert torch.from_numpy(made.layout.admitted[:last])[torch.arange(last), clean].all()
    is_value = torch.from_numpy(made.layout.kinds == KINDS.index("value"))[:last] & ~cut[:, :last]
    changed = clean != batch.tokens[:, :last]
    assert not (changed & ~is_value & ~cut[:, :last]).any()
    assert 0.2 < changed[is_value].float().mean() < 0.8  # half of the records hide them


@pytest.mark.thorough
def test_it_fits_32_records(connect_data: Dataset) -> None:
    check_learner(learner, connect_data, max_updates=800, lr=5e-3)


def test_a_policy_imagines_with_it() -> None:
    made = learner(paradigm="s-avsav", horizon=3)
    decision = DiffusionPolicy(made).decide([made.game.parse()])[0]
    assert decision.move in made.game.legal(made.game.parse())
    assert decision.stats["network_calls"] >= 3


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        ({"one_pass": 1.5}, r"learner\.process\.one_pass' is a part of the records, from 0 to 1; got 1\.5"),
        ({"one_pass": "all"}, "got 'all'"),
        ({"state_share": 0.1}, "state_share: not beside learner.process.one_pass"),
        ({"joint_share": 0.1}, "joint_share: not beside learner.process.one_pass"),
        ({"order": "joint"}, "one_pass: only under learner.process.order=ply"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(process: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        learner(**process)


def test_another_attention_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match=r"learner\.network\.attention=block_causal"):
        learner(network=NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2, head="typed"))


def test_a_loss_that_reads_whole_predictions_is_refused() -> None:
    made = learner(kind="flow", weighting="generalised_kl")
    with pytest.raises(ConfigError, match=r"learner\.process\.one_pass trains by the likelihood of tokens"):
        made.loss(batch_of(made, 4), torch.Generator().manual_seed(0))


def test_without_it_nothing_changes() -> None:
    layout = learner().layout
    assert PlyOrder(layout, one_pass=0).chances.tolist() == PlyOrder(layout).chances.tolist()
    assert PlyOrder(layout, one_pass=0.5).chances.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "options",
    [
        {"process": {"order": "joint"}},
        {"horizons": [1, 3], "process": {"order": "joint"}},
        {"process": {"state_share": 0.2, "move_share": 0.1, "joint_share": 0.05}},
        {"process": {"one_pass": 0.25}, "attention": "block_causal"},
    ],
    ids=str,
)
def test_what_a_record_costs_is_what_passes_the_blocks(options: dict[str, Any]) -> None:
    """Tokens as the first block gets them, and pairs of them as its attention computes them, of 2,000 records."""
    process = {"kind": "absorbing", "num_timesteps": 4, "order": "ply", **options.pop("process")}
    network = NetworkConfig(
        geometry="board",
        num_layers=1,
        width=8,
        num_heads=1,
        head="typed",
        positions="rotary",
        attention=options.pop("attention", "full"),
    )
    config = DiffusionConfig(network=network, paradigm="s-avsav", horizon=3, process=process, **options)
    made = DiffusionLearner(genpolicy.load_game(CONNECT), config)
    batch, counted = batch_of(made, 200), [0, 0]

    def count(_: Any, inputs: tuple[Any, ...]) -> None:
        x, start = inputs[0], inputs[3]  # a pass of the noised tokens of all blocks begins after what is given
        spans = block_spans(made.layout) if start else ((0, x.shape[1]),)
        counted[0] += len(x) * x.shape[1]
        counted[1] += len(x) * sum((stop - first) * stop for first, stop in spans)

    made.network.trunk.blocks[0].get_submodule("attention").register_forward_pre_hook(count)
    with torch.no_grad():
        for seed in range(10):
            made.loss(batch, torch.Generator().manual_seed(seed))
    weights = sum(p.numel() for p in made.network.trunk.blocks.parameters())
    tokens, pairs = (number / 2000 for number in counted)
    rel = 0.2 if config.horizons else 0.01  # ten draws of a horizon
    assert made.flops_per_record() == pytest.approx(6 * weights * tokens + 12 * 8 * pairs, rel=rel)
