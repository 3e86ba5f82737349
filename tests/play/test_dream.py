"""Dreams: the decision is that of ``decide``, the steps are what happened, and nothing impossible is imagined."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.base import Decision, Policy
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.policies.dream import Dream, DreamStep, Recorder
from genpolicy.policies.tokens import NetworkPolicy
from genpolicy.sequence import Layout
from genpolicy_play.drawing.boards import frame_of_step
from genpolicy_policy_baselines.autoregressive import AutoregressiveConfig, AutoregressiveLearner
from genpolicy_policy_baselines.direct import DirectConfig, DirectLearner
from genpolicy_policy_baselines.gaussian import GaussianConfig, GaussianLearner
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner
from genpolicy_policy_model.code_diffusion import CodeDiffusionConfig, CodeDiffusionLearner
from tests.small_datasets import CONNECT

# Weights as they are drawn, wide enough apart that samplers differ.
NET = NetworkConfig(num_layers=1, width=16, num_heads=2, dropout=0.1, geometry="board", head="typed", init_std=0.4)
UNIFIED = NetworkConfig(num_layers=1, width=16, num_heads=2, geometry="board", head="unified", init_std=0.4)


def connect() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


def diffusion(kind: str = "absorbing", network: NetworkConfig = NET, **options: Any) -> NetworkPolicy:
    torch.manual_seed(0)
    config = {"network": network, "horizon": 3, "process": {"kind": kind, "num_timesteps": 6}, **options}
    return DiffusionLearner(connect(), DiffusionConfig(**config)).policy()  # type: ignore[return-value]


def gaussian(scheduler: str) -> NetworkPolicy:
    torch.manual_seed(0)
    config = GaussianConfig(network=NET, horizon=2, process={"num_timesteps": 4}, scheduler=scheduler)
    return GaussianLearner(connect(), config).policy()  # type: ignore[return-value]


def autoregressive(**options: Any) -> Policy:
    torch.manual_seed(0)
    made = AutoregressiveLearner(connect(), AutoregressiveConfig(network=NET, horizon=2)).policy()
    return made.with_options(**options)


def direct(network: NetworkConfig = NET, **options: Any) -> Policy:
    torch.manual_seed(0)
    return DirectLearner(connect(), DirectConfig(network=network, horizon=2)).policy().with_options(**options)


def coded() -> Policy:
    torch.manual_seed(0)
    process = {"kind": "absorbing", "num_timesteps": 4}
    return CodeDiffusionLearner(connect(), CodeDiffusionConfig(network=NET, horizon=3, process=process)).policy()


def one_step(**options: Any) -> Policy:
    torch.manual_seed(0)
    return OneStepLearner(connect(), OneStepConfig(network=NET)).policy().with_options(**options)


POLICIES: dict[str, Callable[[], Any]] = {
    "easy_first": lambda: diffusion(),
    "fewer steps": lambda: diffusion().with_options(num_steps=3),
    "unified head": lambda: diffusion(network=UNIFIED),
    "one_call": lambda: diffusion().with_options(sampler="one_call"),
    "commit": lambda: diffusion().with_options(sampler="easy_first_commit"),
    "stochastic": lambda: diffusion().with_options(sampler="stochastic", temperature=1.0),
    "ancestral": lambda: diffusion().with_options(sampler="ancestral"),
    "remasking": lambda: diffusion().with_options(sampler="remasking", eta=0.5),
    "a0_last": lambda: diffusion().with_options(sampler="a0_last"),
    "futures": lambda: diffusion().with_options(sampler="a0_last", temperature=1.0, num_futures=4),
    "no mask": lambda: diffusion().with_options(legal_mask=False),
    "ended": lambda: diffusion(train_pad=True).with_options(temperature=2.0),
    "shorter": lambda: diffusion(horizons=[1, 2, 3]).with_options(horizon=2),
    "absolute": lambda: diffusion(viewer="absolute"),
    "s-aa": lambda: diffusion(paradigm="s-aa"),
    "s-ass": lambda: diffusion(paradigm="s-ass"),
    "s-avav": lambda: diffusion(paradigm="s-avav"),
    "s-avsav": lambda: diffusion(paradigm="s-avsav"),
    "multinomial": lambda: diffusion("multinomial"),
    "multinomial ancestral": lambda: diffusion("multinomial").with_options(sampler="ancestral"),
    "multinomial shorter": lambda: diffusion("multinomial", horizons=[1, 3]).with_options(horizon=1),
    **{name: partial(gaussian, name) for name in ("ddpm", "ddim", "dpmsolver++")},
    "gaussian one_call": lambda: gaussian("one_call"),
    "autoregressive": lambda: autoregressive(temperature=1.0),
    "autoregressive first": lambda: autoregressive(imagine=False),
    "direct": lambda: direct(temperature=1.0),
    "direct, unified head": lambda: direct(UNIFIED),
    "one_step": lambda: one_step(),
    "codes": coded,
    "codes, fewer plies": lambda: coded().with_options(horizon=2),
}


@pytest.fixture(params=POLICIES, name="policy")
def _policy(request: pytest.FixtureRequest) -> Any:
    return POLICIES[request.param]()


def positions(game: Game[Any]) -> list[Any]:
    """The empty board, and one where the second player is to move."""
    return [game.parse(), game.parse("XO./.X./... O")]


def without_clock(decision: Decision) -> tuple[Any, ...]:
    stats = {key: value for key, value in decision.stats.items() if key != "ms"}
    return decision.move, decision.policy, decision.value, decision.line, decision.states, stats


def dreams(policy: Any) -> list[Dream]:
    policy.seed(5)
    return [policy.dream(state) for state in positions(policy.game)]


@pytest.mark.sampled(5)
def test_the_decision_is_that_of_decide(policy: Any) -> None:
    dreamt = dreams(policy)
    policy.seed(5)
    decided = [policy.decide([state])[0] for state in positions(policy.game)]
    assert [without_clock(d.decision) for d in dreamt] == [without_clock(d) for d in decided]


@pytest.mark.sampled(5)
def test_steps_count_down_and_end_without_masks(policy: Any) -> None:
    for dream in dreams(policy):
        calls = int(dream.decision.stats["network_calls"])
        assert len(dream.steps) == calls == policy.num_calls
        assert [(step.index, step.num_steps) for step in dream.steps] == [(i, calls) for i in range(calls)]
        times = [step.time for step in dream.steps]
        assert times == sorted(set(times), reverse=True)
        assert times[-1] == 0
        assert not dream.steps[-1].masked.any()
        for step in dream.steps:
            assert (step.masked == (step.tokens == step.layout.mask)).all()


@pytest.mark.sampled(5)
def test_nothing_is_shown_where_it_is_not_admitted(policy: Any) -> None:
    for dream in dreams(policy):
        for step in dream.steps:
            layout = step.layout
            assert len(step.tokens) == len(step.guess) == len(step.confidence) == layout.length
            everywhere = np.arange(layout.length)
            assert layout.admitted[everywhere, step.guess].all()
            assert layout.admitted[everywhere, step.shown].all()
            assert ((step.confidence >= 0) & (step.confidence <= 1)).all()
            assert (step.confidence[layout.given] == 1).all()


@pytest.mark.sampled(5)
def test_first_action_probabilities_are_of_legal_moves(policy: Any) -> None:
    for dream in dreams(policy):
        legal = set(policy.game.legal(dream.state).tolist())
        for step in dream.steps:
            assert set(step.policy) == legal
            assert sum(step.policy.values()) == pytest.approx(1)
        # The decision tells of the first call.
        assert dream.decision.policy == pytest.approx(dream.steps[0].policy)


@pytest.mark.sampled(5)
def test_last_step_is_what_was_decided(policy: Any) -> None:
    for dream in dreams(policy):
        last, game = dream.steps[-1], policy.game
        actions = [s.start for s in last.layout.slots if s.kind == "action"]
        moves = last.tokens[actions] - last.layout.move_offset
        seen = [int(m) if 0 <= m < len(game.moves) else -1 for m in moves]
        absolute = game.moves.seen_by(np.array(seen), dream.viewer).tolist()
        assert tuple(absolute) == dream.decision.line[: len(absolute)]


@pytest.mark.sampled(5)
def test_steps_are_told_as_they_come(policy: Any) -> None:
    policy.seed(5)
    told: list[DreamStep] = []
    dream = policy.dream(positions(policy.game)[1], on_step=told.append)
    assert all(one is other for one, other in zip(told, dream.steps, strict=True))


def test_confidence_is_the_probability_of_one_call() -> None:
    """By the plain formula over a dense tensor: softmax of the logits of what a token admits."""
    policy: Any = diffusion().with_options(sampler="one_call", legal_mask=False)
    state = positions(policy.game)[0]
    dream = policy.dream(state)
    tokens = policy.learner.roots([state], np.array([0]))
    time = torch.tensor([policy.learner.process.num_timesteps])
    network = policy.learner.network.eval()
    with torch.no_grad():
        logits = network(tokens, time).dense()[0]
    logits[~torch.from_numpy(policy.layout.admitted)] = -torch.inf
    chances = logits.softmax(-1).numpy()
    (step,) = dream.steps
    imagined = ~policy.layout.given
    best = chances.max(-1)
    np.testing.assert_allclose(step.confidence[imagined], best[imagined], rtol=1e-5)  # float32 logits
    assert (step.tokens[imagined] == chances.argmax(-1)[imagined]).all()


def test_confidence_of_a_guess_is_no_less_than_of_what_was_kept() -> None:
    """Easy-first keeps the surest: at its first step no masked guess is surer than a token that was decided."""
    policy = diffusion(network=UNIFIED)
    step = policy.dream(positions(policy.game)[0]).steps[0]
    decided = ~step.masked & ~step.layout.given
    assert decided.any()
    assert step.masked.any()
    assert step.confidence[decided].min() >= step.confidence[step.masked].max() - 1e-6


def test_a_token_that_was_decided_for_good_keeps_what_was_said_of_it() -> None:
    """A network that decides ply by ply is not trained to say again what it is shown."""
    process = {"kind": "absorbing", "num_timesteps": 6, "order": "ply"}
    policy: Any = diffusion(paradigm="s-avsav", horizon=2, process=process).with_options(sampler="by_ply", num_steps=4)
    steps = policy.dream(positions(policy.game)[0]).steps
    assert len(steps) == 4
    for before, after in itertools.pairwise(steps):
        decided = ~before.masked
        np.testing.assert_array_equal(after.confidence[decided], before.confidence[decided])
        assert (after.confidence[before.masked] != before.confidence[before.masked]).any()
        assert (after.confidence[~after.masked] > 0).all()
        assert after.policy == before.policy
    assert {step.num_steps for step in steps} == {4}
    first, *_, last = (frame_of_step(policy.game, positions(policy.game)[0], step) for step in steps)
    assert (len(first.actions), len(first.values)) == (1, 1), "nothing is shown of a reply before it is asked for"
    assert (len(last.actions), len(last.values)) == (2, 2)


def test_a_shorter_layout_has_its_own_end_and_mask() -> None:
    """Without values PAD and mask are other ids: 128 bins fewer."""
    game = connect()
    long, short = Layout(game, "s-avav", 2, admit_pad=True), Layout(game, "s-a", 1, admit_pad=True)
    legal = game.legal(game.parse()).tolist()
    recorder = Recorder(long, short, torch.from_numpy(long.admitted), legal=legal, viewer=0, num_steps=2)
    logits = TypedLogits.of(torch.zeros(1, long.length, long.num_symbols))
    for time, symbol in ((1, long.mask), (0, long.pad)):
        tokens = torch.zeros(1, long.length, dtype=torch.int64)
        tokens[0, short.first_action] = symbol
        recorder.note(time, tokens, logits, torch.zeros(1, len(game.moves)))
    assert [int(step.tokens[-1]) for step in recorder.steps] == [short.mask, short.pad]
    assert [bool(step.masked[-1]) for step in recorder.steps] == [True, False]
    assert long.pad - short.pad == long.num_value_bins == 128


def test_row_of_a_batch_dreams_alone() -> None:
    policy = diffusion().with_options(sampler="stochastic", temperature=1.0)
    first, second = positions(policy.game)
    policy.seed(5)
    batch = policy.decide([first, second])[1]
    policy.seed(5)
    assert policy.dream(second).decision.line == batch.line


def test_an_end_from_outside_leaves_the_policy_as_it_was() -> None:
    policy: Any = diffusion()
    policy.learner.network.train()

    def stop(step: DreamStep) -> None:
        raise ConnectionAbortedError("the reader left")

    with pytest.raises(ConnectionAbortedError):
        policy.dream(positions(policy.game)[0], on_step=stop)
    assert policy.learner.network.training
    policy.seed(5)
    assert policy.dream(positions(policy.game)[0]).steps[-1].time == 0


@pytest.mark.parametrize("spec", ["random", "greedy", "mcts:heuristic?simulations=8", "alphabeta?depth=2"])
def test_policies_without_steps_tell_their_decision(spec: str) -> None:
    policy = genpolicy.load_policy(spec, game=CONNECT)
    told: list[DreamStep] = []
    dream = policy.dream(connect().parse(), on_step=told.append)
    assert (dream.steps, told, dream.layout) == ((), [], None)
    assert dream.decision.move in connect().legal(dream.state)


def test_dream_of_a_finished_game_is_refused() -> None:
    policy = diffusion()
    with pytest.raises(ValueError, match="game is over"):
        policy.dream(policy.game.parse("XXX/OO./... O"))
