"""A position is encoded once a decision: the same decisions as by calls that compute everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import genpolicy
from genpolicy import registry
from genpolicy.data.windows import TokenBatch
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.transformer import DenoisingTransformer
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from tests.small_datasets import CONNECT

GAME = genpolicy.load_game(CONNECT)
SHAPE: dict[str, Any] = {
    "geometry": "board",
    "num_layers": 2,
    "width": 16,
    "num_heads": 2,
    "head": "typed",
    "init_std": 0.3,
}
ORDERS: dict[str, Any] = {"joint": {}, "ply": {"order": "ply"}}


def learner(attention: str, order: str = "joint", *, kind: str = "absorbing", **options: Any) -> DiffusionLearner:
    torch.manual_seed(1)
    network = NetworkConfig(attention=attention, time_conditioning=kind != "absorbing", **SHAPE)
    process = {"kind": kind, "num_timesteps": 6, **ORDERS[order]}
    settings = {"paradigm": "s-avsav", "horizon": 3, "process": process, "network": network, **options}
    return DiffusionLearner(GAME, DiffusionConfig(**settings)).double().eval()


def positions(num: int = 3) -> list[Any]:
    draw, states = np.random.default_rng(0), [GAME.parse()]
    while len(states) < num:
        states.append(GAME.play(states[-1], int(draw.choice(GAME.legal(states[-1])))))
    return states


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes how many tokens the first block computes in each call, all rows together."""
    counts: list[int] = []
    init = DenoisingTransformer.__init__

    def counting(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self.trunk.blocks[0].register_forward_pre_hook(lambda _, given: counts.append(given[0][..., 0].numel()))

    monkeypatch.setattr(DenoisingTransformer, "__init__", counting)
    return counts


def assert_same(made: DiffusionLearner, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Decisions with and without sharing."""
    states = positions()
    shared = DiffusionPolicy(made, **options).decide(states)
    monkeypatch.setattr(DenoisingTransformer, "encode", lambda *_: None)
    for one, other in zip(shared, DiffusionPolicy(made, **options).decide(states), strict=True):
        assert (one.move, one.line, one.states) == (other.move, other.line, other.states)
        assert one.policy is not None
        assert other.policy is not None
        for move, chance in one.policy.items():
            assert other.policy[move] == pytest.approx(chance, abs=1e-9)
        for mine, theirs in zip(one.variations, other.variations, strict=True):
            assert (mine.line, mine.states) == (theirs.line, theirs.states)
            assert mine.value == pytest.approx(theirs.value, abs=1e-9)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("attention", ["prefix", "block_causal"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sampler", sorted(registry.available("samplers")))
def test_every_sampler(sampler: str, order: str, attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner(attention, order, kind="flow" if sampler == "flow" else "absorbing")
    assert_same(made, monkeypatch, sampler=sampler, num_steps=6)


@pytest.mark.parametrize("attention", ["prefix", "block_causal"])
@pytest.mark.parametrize(
    "options", [{"horizons": [1, 3]}, {"viewer": "absolute"}, {"paradigm": "s-asa"}, {"kind": "multinomial"}]
)
def test_every_view(options: dict[str, Any], attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same(learner(attention, **options), monkeypatch, sampler="ancestral", horizon=1, num_steps=3)


def test_several_futures_share_their_root(monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner("prefix")
    futures = {"sampler": "a0_last", "temperature": 1.0, "num_futures": 3, "num_steps": 3}
    assert_same(made, monkeypatch, **futures)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("attention", ["prefix", "block_causal"])
def test_candidates_share_their_root(attention: str, depth: int, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner(attention, order, viewer="mover")
    assert_same(made, monkeypatch, candidates=3, depth=depth)


def test_a_call_computes_imagined_tokens_alone(computed: list[int]) -> None:
    made = learner("prefix")
    root, future = made.layout.state_length, made.layout.length - made.layout.state_length
    DiffusionPolicy(made, num_steps=4).decide(positions(2))
    assert computed == [2 * root, *[2 * future] * 4]
    computed.clear()
    DiffusionPolicy(learner("full"), num_steps=4).decide(positions(2))
    assert computed == [2 * (root + future)] * 4


def test_a_search_computes_no_root_twice_and_no_block_that_it_need_not(computed: list[int]) -> None:
    made = learner("prefix", "ply")
    layout = made.layout
    root = layout.state_length
    DiffusionPolicy(made, candidates=3, depth=2).decide(positions(1))
    # The root and its move; then each candidate's board, and that as a root with its reply, twice.
    board, reply = 3 * (2 + root), [3 * root, 3 * 2]
    assert computed == [root, 2, board, *reply, board, 3 * (root + 2)]


def test_training_counts_gradients_of_all(computed: list[int]) -> None:
    """A learner under each attention trains: the loss is finite and every weight of the trunk has a gradient."""
    for attention in ("prefix", "block_causal"):
        made = learner(attention, "ply")
        tokens = made.roots(positions(4), made.viewers(positions(4)))
        clean = torch.where(tokens == made.layout.mask, _clean(made), tokens)
        given = torch.from_numpy(made.layout.given).expand_as(clean)
        batch = TokenBatch(clean, given, ~given, torch.arange(4))
        loss, _ = made.loss(batch, torch.Generator().manual_seed(0))
        loss.backward()
        assert torch.isfinite(loss)
        assert all(weight.grad is not None for weight in made.network.trunk.blocks.parameters())


def _clean(made: DiffusionLearner) -> Tensor:
    return torch.from_numpy(made.layout.admitted).int().argmax(-1)
