"""Learners: they fit what they are shown, learn more than chance, and their numbers are what they say."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.data.records import Dataset, Record
from genpolicy.data.windows import TokenBatch
from genpolicy.errors import CheckpointError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.policies.learner import Learner
from genpolicy.testing import check_learner
from genpolicy.training.setup import take_weights
from genpolicy_common.labelled import labelled_positions
from genpolicy_evaluation.accuracy import measure_accuracy
from genpolicy_policy_baselines.autoregressive import AutoregressiveConfig, AutoregressiveLearner
from genpolicy_policy_baselines.direct import DirectConfig, DirectLearner
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner
from tests.small_datasets import CONNECT, solved_connect, write_dataset

SMALL = NetworkConfig(num_layers=2, width=64, num_heads=4, geometry="board", head="typed", init_std=0.05)
TINY = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="board", head="typed", init_std=0.1)


@pytest.fixture(scope="module")
def connect_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"))


@pytest.fixture(scope="module")
def chess_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """32 positions of one game of seeded random moves, labelled with the four moves that came next in it."""
    pytest.importorskip("chess")
    game = genpolicy.load_game("chess")
    random = np.random.default_rng(7)
    states, moves = [game.parse()], list[int]()
    while len(moves) < 40:
        moves.append(int(random.choice(game.legal(states[-1]))))
        states.append(game.play(states[-1], moves[-1]))
    records = [
        Record(state=game.format(states[i]), line=" ".join(game.moves[m] for m in moves[i : i + 4]), split="train")
        for i in range(32)
    ]
    return write_dataset(tmp_path_factory.mktemp("chess"), "chess", records)


def diffusion(game: Game[Any], **options: Any) -> DiffusionLearner:
    return DiffusionLearner(game, DiffusionConfig(**{"network": SMALL, "process": {"kind": "absorbing"}, **options}))


def one_step(game: Game[Any], **options: Any) -> OneStepLearner:
    return OneStepLearner(game, OneStepConfig(**{"network": SMALL, **options}))


@pytest.mark.parametrize("num", [16, pytest.param(32, marks=pytest.mark.thorough)])
def test_one_step_fits_chess_records(chess_data: Dataset, num: int) -> None:
    game = genpolicy.load_game("chess")
    check_learner(lambda: one_step(game, network=TINY), chess_data, num_records=num, max_updates=300, lr=1e-2)


@pytest.mark.slow
def test_diffusion_fits_32_chess_records(chess_data: Dataset) -> None:
    """By the full sampler, three network calls."""
    game = genpolicy.load_game("chess")
    options = {"network": TINY, "horizon": 2, "process": {"kind": "absorbing", "num_timesteps": 3}}
    check_learner(lambda: diffusion(game, **options), chess_data, max_updates=500, lr=1e-2)


@pytest.mark.thorough
def test_tied_labels_are_all_right_in_the_check(connect_data: Dataset) -> None:
    game = genpolicy.load_game(CONNECT)
    check_learner(lambda: one_step(game, network=TINY), connect_data, max_updates=400, lr=5e-3)


def test_a_learner_that_cannot_learn_is_caught(connect_data: Dataset) -> None:
    def deaf() -> Learner:
        learner = one_step(genpolicy.load_game(CONNECT), network=TINY)
        learner.param_groups = lambda weight_decay: [{"params": [torch.nn.Parameter(torch.zeros(1))]}]  # type: ignore[method-assign]
        return learner

    with pytest.raises(AssertionError, match="of 32 records learnt after 25 updates"):
        check_learner(deaf, connect_data, max_updates=25)


def train(learner: Learner, data: Dataset, num_updates: int, batch_size: int) -> None:
    windows = learner.windows(data, "train", seed=0)
    optimiser = torch.optim.AdamW(learner.param_groups(0.01), lr=5e-3)
    decay = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, num_updates)
    generator = torch.Generator().manual_seed(0)
    random = np.random.default_rng(0)
    learner.train()
    for update in range(num_updates):
        loss, _ = learner.loss(windows.batch(random.integers(0, len(windows), batch_size), update), generator)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimiser.step()
        decay.step()


@pytest.mark.parametrize(
    ("make", "options", "batch_size"),
    [
        pytest.param(one_step, {}, 64, marks=pytest.mark.thorough),
        pytest.param(diffusion, {"horizon": 2}, 128, marks=pytest.mark.slow),
    ],
)
def test_seconds_of_training_beat_a_random_mover(
    make: Callable[..., Learner], options: dict[str, Any], batch_size: int, connect_data: Dataset
) -> None:
    """On held-out positions of 3x3x3 whose symmetric copies were held out too, by every way of playing."""
    torch.manual_seed(0)
    game = genpolicy.load_game(CONNECT)
    learner = make(game, **options)
    train(learner, connect_data, 150, batch_size)
    positions = labelled_positions(connect_data, game, "test")
    for mode, policy in learner.policy().modes().items():
        faster = policy.with_options(num_steps=6) if mode.startswith("easy_first") else policy
        figures = measure_accuracy(faster, positions, mode=mode, raw=False)
        assert figures.times_random_interval[0] > 1.0, (mode, figures)


def one_batch(learner: Learner, data: Dataset, num: int) -> TokenBatch:
    return learner.windows(data, "train", seed=0).batch(np.arange(num), 0)


def zeroed(kind: type[Learner], config: Any) -> Learner:
    learner: Learner = kind(genpolicy.load_game(CONNECT), config)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.zero_()
    return learner


def nats_of_chance(learner: Learner, batch: TokenBatch) -> torch.Tensor:
    """[B] the sum of log(number of admitted symbols) over the imagined tokens."""
    sizes = torch.from_numpy(learner.layout.admitted.sum(1)).double().log()
    return (batch.target * sizes).sum(1)


def test_one_step_loss_is_the_cross_entropy_of_the_move(connect_data: Dataset) -> None:
    """Against the policy's own probabilities: with every legal move scored, p(move | legal) x legal mass = p(move)."""
    torch.manual_seed(0)
    game = genpolicy.load_game(CONNECT)
    learner = one_step(game)
    learner.eval()
    records = list(connect_data.records("train"))[:16]
    batch = one_batch(learner, connect_data, 16)
    policy = learner.policy()
    nll = []
    for row, record in zip(batch.tokens, records, strict=True):
        state = game.parse(record.state)
        decision = policy.decide([state])[0]
        assert decision.policy is not None
        token = int(row[learner.layout.first_action]) - learner.layout.move_offset
        move = int(game.moves.seen_by(np.array([token]), game.player(state))[0])
        nll.append(-math.log(decision.policy[move] * decision.stats["legal_mass"]))
    loss, _ = learner.loss(batch, torch.Generator())
    assert float(loss.detach()) == pytest.approx(np.mean(nll), rel=1e-5)
    assert learner.elbo(batch, torch.Generator()).tolist() == pytest.approx(nll, rel=1e-5)


@pytest.mark.parametrize("head", ["typed", "unified"])
@pytest.mark.parametrize("order", ["joint", "ply"])
def test_diffusion_bound_of_an_untrained_network_is_near_uniform(head: str, order: str, connect_data: Dataset) -> None:
    """Where every logit is 0, each admitted symbol has the same chance at any time, so that the bound is exactly the
    sum of log(number of admitted symbols) over the imagined tokens, in expectation."""
    network, process = dataclasses.replace(SMALL, head=head), {"kind": "absorbing", "order": order}
    learner = zeroed(DiffusionLearner, DiffusionConfig(network=network, horizon=2, redraw=False, process=process))
    batch = one_batch(learner, connect_data, 64)
    generator = torch.Generator().manual_seed(0)
    estimates = torch.stack([learner.elbo(batch, generator) for _ in range(50)]).mean(1)
    exact = float(nats_of_chance(learner, batch).mean())
    error = float(estimates.std()) / len(estimates) ** 0.5
    assert error < 0.05 * exact
    assert abs(float(estimates.mean()) - exact) < 4 * error


@pytest.mark.parametrize("head", ["typed", "unified"])
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (OneStepLearner, OneStepConfig),
        (DirectLearner, DirectConfig),
        (AutoregressiveLearner, AutoregressiveConfig),
    ],
)
def test_exact_likelihoods_are_over_the_symbols_that_a_token_can_hold(
    kind: type[Learner], config: type[Any], head: str, connect_data: Dataset
) -> None:
    learner = zeroed(kind, config(network=dataclasses.replace(SMALL, head=head)))
    batch = one_batch(learner, connect_data, 8)
    torch.testing.assert_close(
        learner.elbo(batch, torch.Generator()), nats_of_chance(learner, batch), rtol=1e-6, atol=0
    )


def test_unlabelled_plies_carry_no_loss(tmp_path: Path) -> None:
    """A line cut after one move trains one action token and no state."""
    game = genpolicy.load_game(CONNECT)
    state = game.parse()
    data = write_dataset(
        tmp_path, game.spec, [Record(state=game.format(state), line=game.moves[4], split="train", ended=False)]
    )
    learner = diffusion(game)
    batch = one_batch(learner, data, 1)
    # s | a s a ...: the move is known and, being played, so is the position after it.
    first, second = learner.layout.slot("action", 0), learner.layout.slot("action", 1)
    assert first is not None
    assert second is not None
    assert bool(batch.target[0, first.start])
    assert not bool(batch.target[0, second.start :].any())


def test_absolute_and_mover_views_agree_on_the_policy_of_player_0(connect_data: Dataset) -> None:
    game = genpolicy.load_game(CONNECT)
    answers = []
    for viewer in ("absolute", "mover"):
        torch.manual_seed(0)
        answers.append(one_step(game, viewer=viewer).policy().decide([game.parse()])[0].policy)
    assert answers[0] == answers[1]


def test_entry_points_name_the_learners() -> None:
    from genpolicy import registry

    assert registry.load("learners", "diffusion") is DiffusionLearner
    assert registry.load("learners", "one_step") is OneStepLearner
    assert DiffusionLearner.Config is DiffusionConfig


def log_moves(learner: DiffusionLearner | OneStepLearner) -> torch.Tensor:
    game = learner.game
    states = [game.parse(), game.play(game.parse(), 0)]
    tokens = learner.roots(states, learner.viewers(states))[:, : learner.layout.first_action + 1]
    (group,) = (g for g in learner.network(tokens).groups if learner.layout.first_action in g.positions)
    at = group.positions.tolist().index(learner.layout.first_action)
    return group.logits[:, at, : len(game.moves)].log_softmax(-1)


@pytest.mark.parametrize("geometry", ["board", "sequence"])
@pytest.mark.parametrize("paradigm", ["s-asa", "s-avsav"])
def test_what_imagines_begins_with_the_moves_of_what_does_not(geometry: str, paradigm: str) -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(num_layers=2, width=32, num_heads=2, geometry=geometry, head="typed", init_std=0.3)
    source = one_step(game, network=network).eval()
    torch.nn.init.normal_(
        next(p for name, p in source.named_parameters() if name.endswith(("space", "ply", "position")))
    )
    target = diffusion(game, network=network, paradigm=paradigm, horizon=2).eval()
    assert (log_moves(target) - log_moves(source)).abs().max() > 0.1
    target.take_weights(source)
    torch.testing.assert_close(log_moves(target), log_moves(source))
    other = diffusion(game, network=dataclasses.replace(network, width=64), paradigm=paradigm, horizon=2)
    with pytest.raises(CheckpointError, match=r"differ in learner\.network\.width"):
        other.take_weights(source)
    with pytest.raises(CheckpointError, match=r"differ in learner\.viewer"):
        diffusion(game, network=network, paradigm=paradigm, viewer="absolute").take_weights(source)


def test_a_network_with_another_head_of_values_shares_the_rest() -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(num_layers=2, width=32, num_heads=2, geometry="board", head="typed", init_std=0.3)
    source = diffusion(game, network=network, paradigm="s-avsav", horizon=2).eval()
    of_boards = dataclasses.replace(network, board_values=16)
    target = diffusion(game, network=of_boards, paradigm="s-avsav", horizon=2).eval()
    target.take_weights(source)
    torch.testing.assert_close(log_moves(target), log_moves(source))


def test_rotary_networks_share_what_is_given_and_what_is_imagined() -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(
        num_layers=2, width=32, num_heads=2, geometry="board", head="typed", init_std=0.3, positions="rotary"
    )
    source = one_step(game, network=network).eval()
    torch.nn.init.normal_(source.network.trunk.embedding.ply)
    target = diffusion(game, network=network, paradigm="s-asa", horizon=3).eval()
    target.take_weights(source)
    torch.testing.assert_close(log_moves(target), log_moves(source))


@pytest.mark.parametrize(
    "kinds", [("multinomial", "multinomial"), ("absorbing", "multinomial"), ("multinomial", "absorbing")]
)
def test_processes_without_a_mask_share_the_symbols_that_they_have(kinds: tuple[str, str]) -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(num_layers=2, width=32, num_heads=2, geometry="board", head="typed")
    source, target = (
        diffusion(game, network=network, paradigm=paradigm, horizon=horizon, process={"kind": kind})
        for kind, paradigm, horizon in zip(kinds, ("s-a", "s-asa"), (1, 2), strict=True)
    )
    target.take_weights(source)
    num = source.layout.value_offset
    ours, theirs = (learner.network.trunk.embedding.symbol.weight[:num] for learner in (target, source))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_layers": 3}, "num_layers"),
        ({"num_heads": 4}, "num_heads"),
        ({"norm": "post"}, "norm"),
        ({"activation": "mish"}, "activation"),
        ({"positions": "rotary"}, "positions"),
        ({"bias": "templates"}, "bias"),
        ({"geometry": "sequence"}, "geometry"),
    ],
    ids=str,
)
def test_weights_of_another_network_are_refused(changes: dict[str, Any], named: str) -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(num_layers=2, width=32, num_heads=2, geometry="board", head="typed")
    source = one_step(game, network=dataclasses.replace(network, **changes))
    with pytest.raises(CheckpointError, match=rf"differ in learner\.network\.{named}"):
        diffusion(game, network=network, paradigm="s-asa", horizon=2).take_weights(source)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({"norm": "pre"}, {"norm": "post"}, "norm"),
        ({"activation": "gelu"}, {"activation": "relu2"}, "activation"),
        ({"bias": "none", "num_heads": 2}, {"bias": "none", "num_heads": 4}, "num_heads"),
        ({"bias_options": {"num_templates": 8}}, {}, "bias"),
        ({"bias_options": {"num_templates": 8}}, {"bias_options": {"num_templates": 16}}, "bias"),
        ({"board_code": 8}, {}, "board_code|tensors"),
        ({}, {"board_code": 8}, "board_code|tensors"),
        ({"gates": True}, {}, "gates|tensors"),
        ({"bias": "shaw"}, {"bias": "shaw", "bias_options": {"values": False}}, "of_value|tensors"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["same", "further", "one_step"])
def test_weights_that_would_mean_something_else_or_be_lost_are_refused(
    kind: str, before: dict[str, Any], after: dict[str, Any], named: str
) -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(num_layers=2, width=32, num_heads=2, geometry="board", head="typed")
    if "bias_options" in before:
        network = dataclasses.replace(network, bias="templates")

    def learner(changes: dict[str, Any], horizon: int) -> Any:
        changed = dataclasses.replace(network, **changes)
        if kind == "one_step":
            return one_step(game, network=changed)
        return diffusion(game, network=changed, paradigm="s-asa", horizon=horizon)

    source, target = learner(before, 2), learner(after, 3 if kind == "further" else 2)
    drawn = {name: each.clone() for name, each in target.state_dict().items()}
    with pytest.raises(CheckpointError, match=named):
        target.take_weights(source)
    assert all(torch.equal(each, drawn[name]) for name, each in target.state_dict().items())


def test_shown_moves_that_would_be_lost_are_refused_but_not_where_nothing_is_imagined() -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(num_layers=2, width=32, num_heads=2, geometry="board", head="typed", init_std=0.3)
    plain = dataclasses.replace(network, shown_moves=False)
    source = diffusion(game, network=network, paradigm="s-asa", horizon=2).eval()
    with pytest.raises(CheckpointError, match=r"differ in trunk\.shown\."):
        diffusion(game, network=plain, paradigm="s-asa", horizon=3).take_weights(source)
    target = diffusion(game, network=network, paradigm="s-a", horizon=1).eval()
    target.take_weights(source)
    for name in ("symbol.weight", "place", "source.weight"):
        ours, theirs = (each.network.trunk.embedding.get_parameter(name) for each in (target, source))
        rows = target.layout.value_offset if name == "symbol.weight" else len(ours)
        torch.testing.assert_close(ours[:rows], theirs[:rows])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"gates": True}),
        ({"bias": "none"}, {"bias": "shaw"}),
        ({"bias": "shaw", "bias_options": {"values": True}}, {"bias": "shaw"}),
        ({"bias": "relative"}, {"bias": "relative_templates"}),
    ],
    ids=str,
)
def test_what_begins_without_effect_may_be_added(before: dict[str, Any], after: dict[str, Any]) -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(num_layers=2, width=32, num_heads=2, geometry="board", head="typed", init_std=0.3)
    source, target = (
        diffusion(game, network=dataclasses.replace(network, **changes), paradigm="s-asa", horizon=2).eval()
        for changes in (before, after)
    )
    target.take_weights(source)
    torch.testing.assert_close(log_moves(target), log_moves(source))


@pytest.mark.parametrize("horizon", [2, 3])
def test_weights_that_predict_other_tokens_are_refused(tmp_path: Path, horizon: int) -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(num_layers=2, width=32, num_heads=2, geometry="board", head="typed")
    imagines = diffusion(game, network=network, paradigm="s-asa", horizon=2)
    reads = AutoregressiveLearner(game, AutoregressiveConfig(paradigm="s-asa", horizon=horizon, network=network))
    for source, target in ((imagines, reads), (reads, imagines)):
        source.policy().save_pretrained(tmp_path / type(source).__name__)
        with pytest.raises(CheckpointError, match=r"init_from: .* is autoregressive, .* choose a policy of"):
            take_weights(target, str(tmp_path / type(source).__name__))


def test_weights_for_another_viewer_are_refused_over_the_same_sequence_too() -> None:
    game = genpolicy.load_game(CONNECT)
    source, target = (diffusion(game, viewer=viewer) for viewer in ("absolute", "mover"))
    with pytest.raises(CheckpointError, match=r"differ in learner\.viewer"):
        target.take_weights(source)


def test_what_imagines_further_begins_with_the_moves_and_values_of_what_imagines_less() -> None:
    game = genpolicy.load_game(CONNECT)
    network = NetworkConfig(
        num_layers=2, width=32, num_heads=2, geometry="board", head="typed", init_std=0.3, board_values=16
    )
    source, target = (
        diffusion(game, network=network, paradigm="s-avsav", horizon=horizon).eval() for horizon in (1, 2)
    )
    tokens = source.roots([game.parse()], source.viewers([game.parse()]))

    def values(learner: DiffusionLearner) -> torch.Tensor:
        (group,) = (g for g in learner.network(tokens).groups if len(tokens[0]) - 1 in g.positions)
        return group.logits[:, group.positions.tolist().index(len(tokens[0]) - 1), : learner.layout.num_value_bins]

    assert (values(target) - values(source)).abs().max() > 0.1
    target.take_weights(source)
    torch.testing.assert_close(values(target), values(source))
