"""One model for several horizons, and moves decided over several imagined futures."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import genpolicy
from genpolicy import registry
from genpolicy.data.records import Dataset
from genpolicy.diffusion.samplers import Sampler, SamplerOutput, Step
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, SamplerConfig
from genpolicy.policies.first_action import FirstAction
from genpolicy.policies.seeds import RowSeeds
from genpolicy.sequence import Layout
from genpolicy.testing import check_learner, check_policy
from tests.small_datasets import CONNECT, solved_connect

ROTARY = NetworkConfig(
    num_layers=2, width=16, num_heads=2, dropout=0.0, positions="rotary", head="unified", init_std=0.4
)
ROTARY_BOARD = NetworkConfig(
    num_layers=2, width=16, num_heads=2, positions="rotary", geometry="board", head="typed", init_std=0.4
)
BOARD = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="board", head="typed", init_std=0.1)


@pytest.fixture(scope="module")
def connect_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("horizons"))


def learner(**options: Any) -> DiffusionLearner:
    process = {"kind": "absorbing", "num_timesteps": 4}
    config = DiffusionConfig(**{"network": ROTARY, "horizon": 3, "process": process, **options})
    torch.manual_seed(0)
    return DiffusionLearner(genpolicy.load_game(CONNECT), config)


@pytest.mark.parametrize("config", [ROTARY, ROTARY_BOARD], ids=lambda config: config.geometry)
@pytest.mark.parametrize("horizon", [1, 2])
def test_what_lies_after_the_horizon_is_not_there(horizon: int, config: NetworkConfig) -> None:
    """The same weights over the shorter layout give the same logits: rotary positions belong to no length."""
    made = learner(network=config)
    short = Layout(made.game, "s-asa", horizon)
    network = DenoisingTransformer(short, config)
    network.load_state_dict(made.network.state_dict(), strict=False)  # nothing is shown in s | a
    end = made.end_of(horizon)
    assert end == short.length
    stream = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, short.num_symbols, (3, end), generator=stream)
    tokens[:, -1] = short.mask
    with torch.no_grad():
        ours = made.network(tokens, torch.ones(3)).dense()
        torch.testing.assert_close(ours, network(tokens, torch.ones(3)).dense(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["absorbing", "multinomial"])  # the second has no mask to put behind the horizon
def test_a_policy_imagines_as_far_as_it_is_told(kind: str, tmp_path: Path) -> None:
    made = learner(horizons=[1, 2], process={"kind": kind, "num_timesteps": 4})
    policy = made.policy()
    states = [made.game.parse(), made.game.play(made.game.parse(), 4)]
    for horizon in (1, 2, 3):  # 3 was never trained
        decision = policy.with_options(horizon=horizon).decide(states)[0]
        assert len(decision.line) == horizon
        assert len(decision.states) == horizon - 1
    check_policy(policy.with_options(horizon=2), states)
    folder = policy.with_options(horizon=2).save_pretrained(tmp_path / "policy")
    loaded = genpolicy.load_policy(folder)
    assert len(loaded.decide(states)[0].line) == 2


@pytest.mark.thorough
def test_mixed_horizons_fit_32_records_at_each(connect_data: Dataset) -> None:
    made: list[DiffusionLearner] = []

    def make() -> DiffusionLearner:
        made.append(learner(network=BOARD, horizon=2, horizons=[1, 2], redraw=False))
        return made[-1]

    check_learner(make, connect_data, max_updates=800, lr=5e-3)


def test_the_loss_counts_no_token_after_the_horizon(connect_data: Dataset) -> None:
    """With the one horizon 1, the loss of s | a: whatever stands after it."""
    made = learner(horizons=[1], process={"kind": "absorbing", "num_timesteps": 1})
    batch = made.windows(connect_data, "train", seed=0).batch(torch.arange(8).numpy(), 0)
    loss, _ = made.loss(batch, torch.Generator().manual_seed(0))
    first = made.layout.first_action
    shown = torch.full_like(batch.tokens, made.layout.mask)
    shown[:, : made.game.tokens.length] = batch.tokens[:, : made.game.tokens.length]
    logits = made.network(shown[:, : made.end_of(1)], torch.ones(8))
    expected = -logits.log_prob(batch.tokens[:, : first + 1])[:, first].mean()
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)


def test_several_futures_are_averaged() -> None:
    """The move is the likeliest of the mean of what each future says, each future being a decision by itself."""
    made = learner(network=dataclasses.replace(BOARD, init_std=0.5), horizon=2)
    policy = made.policy().with_options(sampler="a0_last", temperature=1.0, num_futures=5)
    states = [made.game.parse()]
    for move in (0, 4, 2):
        states.append(made.game.play(states[-1], move))
    many = policy.decide(states)
    said: dict[int, torch.Tensor] = {}
    alone = 0
    single = policy.with_options(num_futures=1)
    seeds = RowSeeds(0).draw([made.game.format(s) for s in states])
    for row, state in enumerate(states):
        chances = []
        for copy in range(5):
            legal = torch.zeros(1, len(made.game.moves), dtype=torch.bool)
            viewers = made.viewers([state])
            seen = made.game.moves.seen_by(made.game.legal(state), int(viewers[0]))
            legal[0, torch.from_numpy(seen)] = True
            first_action = FirstAction(made.layout, made.admitted, legal)
            with torch.no_grad():
                made.eval()
                imagined = single._imagine(made.roots([state], viewers), [seeds[row] + copy], first_action, None)
            chances.append(imagined.latest[0].exp())
        said[row] = torch.stack(chances).mean(0)
        best = int(said[row].argmax())
        move = int(made.game.moves.seen_by(torch.tensor([best]).numpy(), int(made.viewers([state])[0]))[0])
        assert many[row].move == move
        alone += int(chances[0].argmax()) != best
    assert alone, "the first future by itself says another move somewhere"
    assert many[0].stats["network_calls"] == 4
    check_policy(policy, states)


def test_more_futures_than_rows_of_a_call_are_imagined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy from a stranger may ask for a thousand; all at once took 11 GB in chess."""
    made = learner(network=dataclasses.replace(BOARD, init_std=0.5), horizon=2)
    policy = made.policy().with_options(sampler="a0_last", temperature=1.0, num_futures=7)
    states = [made.game.parse(), made.game.play(made.game.parse(), 4)]
    whole, dreamt = policy.decide(states), policy.dream(states[0])
    rows: list[int] = []
    made.network.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    denoise = made.network.denoise
    monkeypatch.setattr(made.network, "denoise", lambda x, *rest: rows.append(len(x)) or denoise(x, *rest))
    for module in ("diffusion", "saved"):
        monkeypatch.setattr(f"genpolicy.policies.{module}.CPU_ROWS", 3)
    policy.seed(0)
    parts, again = policy.decide(states), policy.dream(states[0])
    assert max(rows) == 3
    assert [each.move for each in parts] == [each.move for each in whole]
    for one, other in zip(parts, whole, strict=True):
        torch.testing.assert_close(one.policy, other.policy)
        assert one.stats["network_calls"] == other.stats["network_calls"]
    assert len(again.steps) == len(dreamt.steps)
    for step, before in zip(again.steps, dreamt.steps, strict=True):
        assert step.tokens.tolist() == before.tokens.tolist()


def test_a_sampler_without_a_temperature_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})

    @registry.register("samplers", "fixed")
    class Fixed(Sampler):
        decides_last = True

        def advance(self, step: Step) -> SamplerOutput:
            raise NotImplementedError

    with pytest.raises(ConfigError, match="take sampler=a0_last or fixed and a temperature above 0"):
        learner().policy().with_options(sampler="fixed", num_futures=3)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a horizon of this model is 1..3 \(learner.horizon\), got 4"):
        learner(horizons=[1, 4])
    policy = learner().policy()
    with pytest.raises(ConfigError, match=r"a horizon of this model is 1\.\.3"):
        policy.with_options(horizon=9)
    # By one call such a network imagines the move alone; other horizons are refused all the same.
    by_ply = learner(process={"kind": "absorbing", "order": "ply"}).policy()
    for options in ({"horizon": 9}, {"sampler": "one_call", "horizon": 9}):
        with pytest.raises(ConfigError, match=r"a horizon of this model is 1\.\.3"):
            by_ply.with_options(**options)
    with pytest.raises(ConfigError, match=r"a horizon of this model is 1\.\.3 \(learner.horizon\), got 0"):
        learner(sampler=SamplerConfig(horizon=0)).policy()
    for options in ({"sampler": "easy_first"}, {"sampler": "a0_last", "temperature": 0.0}):
        with pytest.raises(ConfigError, match="take sampler=a0_last and a temperature above 0"):
            policy.with_options(num_futures=3, **options)
    with pytest.raises(ConfigError, match="a search of candidates=2 draws none: leave one of them out"):
        policy.with_options(num_futures=3, sampler="a0_last", temperature=1.0, candidates=2)
    with pytest.raises(ValueError, match="num_futures must be at least 1 and at most 1024"):
        policy.with_options(num_futures=10**9)
    with pytest.raises(ValueError, match="depth must be at least 1 and at most 64"):
        policy.with_options(depth=10**9)
    with pytest.raises(ValueError, match="num_futures must be at least 1"):
        policy.with_options(num_futures=0)


def test_plies_that_no_horizon_trains_are_refused_in_training(tmp_path: Path) -> None:
    solved = solved_connect(tmp_path, every=20)
    with pytest.raises(ConfigError, match=r"learner.horizon=3 is beyond learner.horizons=\[1\]"):
        learner(horizons=[1], network=BOARD).windows(solved, "train", seed=0)
    rotary = dataclasses.replace(BOARD, positions="rotary")
    assert len(learner(horizons=[1], network=rotary).windows(solved, "train", seed=0))


@pytest.mark.parametrize(
    ("one", "other", "option"),
    [
        (
            {"kind": "multinomial", "prediction_type": "leave_one_out"},
            {"kind": "multinomial"},
            "process.prediction_type",
        ),
        ({"kind": "absorbing", "num_timesteps": 10}, {"kind": "absorbing"}, "process.num_timesteps"),
    ],
)
def test_weights_that_know_another_process_are_refused(one: dict[str, Any], other: dict[str, Any], option: str) -> None:
    timed = dataclasses.replace(BOARD, time_conditioning=True)
    with pytest.raises(CheckpointError, match=f"differ in learner.{option}"):
        learner(process=one, network=timed).take_weights(learner(process=other, network=timed))
