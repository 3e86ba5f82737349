"""Policy and value in one network: what is learnt from which record, the loss by hand, decisions, bad input."""

from __future__ import annotations

import dataclasses
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import genpolicy
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import CheckpointError, ConfigError, DatasetError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.testing import check_learner, check_policy
from genpolicy.training.setup import take_weights
from genpolicy_policy_baselines.judged_windows import JudgedBatch
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner
from genpolicy_policy_baselines.policy_value import PolicyValueConfig, PolicyValueLearner
from tests.small_datasets import CONNECT, solved_connect, write_dataset

NAN = float("nan")
TINY = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="board", head="typed", move_rank=8, init_std=0.1)


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"))


def make(game: Game[Any], **options: Any) -> PolicyValueLearner:
    torch.manual_seed(0)
    return PolicyValueLearner(game, PolicyValueConfig(**{"network": TINY, **options}))


def games(folder: Path, *, split: str = "train") -> Dataset:
    """Two games and what stands alone: X moves first, and a result is X's."""
    x, o = ".../.../... X", "X../.../... O"

    def record(state: str, line: str | None, **options: Any) -> Record:
        return Record(state=state, line=line, split=split, **options)

    return write_dataset(
        folder,
        CONNECT,
        [
            record(x, "b2", scores=("value:0.5",), game_id="g", ply=0, result=-1.0),
            record(o, "b2", scores=("value:0.5",), game_id="g", ply=1, result=-1.0, value=-0.25),
            record("X../.../... O", None, game_id="g", ply=2),  # nothing to learn: it gives no window
            record("XO./.../... X", "b2", game_id="g", ply=6, result=-1.0),
            record("X.O/.../... X", "b2", game_id="h", ply=3, policy="b2=0.75 a1=0.25"),  # the result is not known
            record("X../O../... X", None, scores=("value:-1",), ply=4, result=0.0),  # no game, no move
        ],
    )


def batch_of(learner: PolicyValueLearner, data: Dataset, epoch: int = 0) -> JudgedBatch:
    windows = learner.windows(data, "train", seed=0)
    return windows.batch(np.arange(len(windows)), epoch)


def test_labels_are_what_the_records_hold(game: Game[Any], tmp_path: Path) -> None:
    batch = batch_of(make(game), games(tmp_path))
    b2, a1 = game.moves.index("b2"), game.moves.index("a1")
    assert batch.move.tolist() == [b2, b2, b2, b2, -1]
    # The value of a search before the score before the result; a value between is partly a draw. For the mover:
    # the game is won by O, who moves in the second record.
    expected = [[0.5, 0.5, 0], [0, 0.75, 0.25], [0, 0, 1], [NAN] * 3, [0, 0, 1]]
    torch.testing.assert_close(batch.wdl, torch.tensor(expected), atol=1e-3, rtol=0, equal_nan=True)
    assert batch.plies_left.tolist()[:3] == [7, 6, 1]  # the last recorded position is at ply 6, and a move was made
    assert batch.plies_left[3:].isnan().all()
    shares = torch.zeros(5, len(game.moves))
    shares[3, b2], shares[3, a1] = 0.75, 0.25
    torch.testing.assert_close(batch.policy, shares)


def test_the_result_has_its_share(game: Game[Any], tmp_path: Path) -> None:
    batch = batch_of(make(game, result_share=0.2), games(tmp_path))
    expected = [[0.4, 0.4, 0.2], [0.2, 0.6, 0.2], [0, 0, 1], [NAN] * 3, [0, 0.2, 0.8]]
    torch.testing.assert_close(batch.wdl, torch.tensor(expected), atol=1e-3, rtol=0, equal_nan=True)


def test_no_policies_take_no_memory_and_symmetries_turn_all_labels(game: Game[Any], tmp_path: Path) -> None:
    assert batch_of(make(game), solved_connect(tmp_path / "solved", every=40)).policy.shape[1] == 0
    shared = [dataclasses.replace(r, policy="a2=1.0", line="a2") for r in games(tmp_path / "a").records()]
    data, learner = write_dataset(tmp_path / "b", CONNECT, shared[:2]), make(game, augment=True)
    seen = set()
    for epoch in range(24):
        batch = batch_of(learner, data, epoch)
        assert batch.policy.argmax(-1).tolist() == batch.move.tolist()
        seen |= set(batch.move.tolist())
    assert {game.moves[move] for move in seen} == {"a2", "b1", "b3", "c2"}


def test_a_union_keeps_games_of_one_name_apart(game: Game[Any], tmp_path: Path) -> None:
    first = games(tmp_path / "a")
    short = [dataclasses.replace(r, ply=2) for r in first.records() if r.ply == 0]
    write_dataset(tmp_path / "b", CONNECT, short)
    both = Dataset.open([tmp_path / "a", tmp_path / "b"])
    assert batch_of(make(game), both).plies_left.tolist()[-1] == 1
    assert batch_of(make(game), both).plies_left.tolist()[0] == 7


def test_the_loss_is_the_sum_of_its_parts_by_hand(game: Game[Any], tmp_path: Path) -> None:
    learner = make(game, value_weight=0.5, plies_weight=2.0).double()
    batch = batch_of(learner, games(tmp_path))
    loss, parts = learner.loss(batch, torch.Generator())
    tokens = batch.tokens.clone()
    tokens[:, -1] = learner.layout.mask
    moves, wdl, plies = learner.network.judged(tokens)
    log_moves, log_wdl = moves.groups[0].logits[:, 0].log_softmax(-1), wdl.log_softmax(-1)
    b2, a1 = game.moves.index("b2"), game.moves.index("a1")
    chosen = [-log_moves[i, b2] for i in range(3)] + [-0.75 * log_moves[3, b2] - 0.25 * log_moves[3, a1]]
    policy = sum(chosen) / 4
    value = -sum((batch.wdl[i].double() * log_wdl[i]).sum() for i in (0, 1, 2, 4)) / 4
    errors = [float(plies[i].detach() - left) / 20 for i, left in enumerate([7, 6, 1])]
    huber = sum(0.5 * e * e if abs(e) < 0.5 else 0.5 * (abs(e) - 0.25) for e in errors) / 3
    torch.testing.assert_close(loss, policy + 0.5 * value + 2.0 * huber)
    torch.testing.assert_close(parts["policy"], torch.as_tensor(policy).detach())
    bound = learner.elbo(batch, torch.Generator())
    torch.testing.assert_close(bound, torch.stack([*chosen, torch.zeros((), dtype=torch.float64)]).detach())


def test_harmony_learns_the_weights_of_the_losses(game: Game[Any], tmp_path: Path) -> None:
    learner, plain = make(game, harmony=True), make(game)
    batch, generator = batch_of(learner, games(tmp_path)), torch.Generator()
    total, told = learner.loss(batch, generator)
    _, parts = plain.loss(batch, generator)
    assert total.item() == pytest.approx(sum(part.item() for part in parts.values()) + 3 * math.log(2), rel=1e-6)
    assert {name: told[name].item() for name in told if name.endswith("_weight")} == dict.fromkeys(
        ("policy_weight", "wdl_weight", "plies_weight"), 1.0
    )
    total.backward()
    assert learner.balance is not None
    scales = learner.balance.log_scales
    expected = [0.5 - parts[name].item() for name in learner.balance.names]  # the derivative of softplus(0) is 1/2
    assert scales.grad is not None
    np.testing.assert_allclose(scales.grad.numpy(), expected, rtol=1e-5)
    _, others = learner.param_groups(0.1)
    assert any(parameter is scales for parameter in others["params"]), "trained, without weight decay"
    assert {name for name in learner.network.state_dict() if "log_scales" in name} == set(), "and not saved to play"


def test_what_a_record_lacks_moves_no_weight(game: Game[Any], tmp_path: Path) -> None:
    learner = make(game)
    batch = batch_of(learner, games(tmp_path))
    learner.loss(batch.rows(torch.tensor([4])), torch.Generator())[0].backward()  # type: ignore[no-untyped-call]
    assert all(bool((p.grad == 0).all()) for p in learner.network.plies_left.parameters() if p.grad is not None)
    assert any(bool((p.grad != 0).any()) for p in learner.network.wdl.parameters() if p.grad is not None)
    # Every weight has a gradient, if 0, which DistributedDataParallel requires.
    assert all(p.grad is not None for p in learner.parameters())


@pytest.mark.parametrize("geometry", ["board", "sequence"])
@pytest.mark.parametrize("pool", ["flat", "mean"])
def test_it_keeps_the_laws_of_policies(geometry: str, pool: str, game: Game[Any]) -> None:
    network = dataclasses.replace(TINY, geometry=geometry, tied=geometry == "sequence", init_std=0.3)
    learner = make(game, network=network)
    if pool == "mean":
        shape = dataclasses.replace(learner.config.wdl, pool="mean")
        learner = make(game, network=network, wdl=shape, plies_left=shape)
    policy = learner.policy()
    states = [game.parse(), game.parse(".../.../..X O"), game.parse("XX./OO./... X")]
    check_policy(policy, states, finished=[game.parse("XXX/OO./... O")])
    check_policy(policy.with_options(temperature=0.5), states)
    decisions = policy.decide(states)
    for state, made in zip(states, decisions, strict=True):
        assert made.wdl is not None
        assert made.value == pytest.approx(made.wdl[0] - made.wdl[2])
        assert sum(made.wdl) == pytest.approx(1)
        assert made.stats["plies_left"] > 0
        assert made.stats["network_calls"] == 1
        assert policy.decide([state])[0].wdl == pytest.approx(made.wdl, abs=1e-5)
        assert policy.dream(state).decision.wdl == pytest.approx(made.wdl, abs=1e-5)
    assert len(policy.dream(states[0]).steps) == 1


def test_a_head_whose_loss_has_no_weight_says_nothing(game: Game[Any]) -> None:
    (without,) = make(game, plies_weight=0.0).policy().decide([game.parse()])
    assert "plies_left" not in without.stats
    assert without.value is not None
    (moves,) = make(game, value_weight=0.0).policy().decide([game.parse()])
    assert moves.value is None
    assert moves.wdl is None
    assert moves.stats["plies_left"] > 0
    (learned,) = make(game, value_weight=0.0, plies_weight=0.0, harmony=True).policy().decide([game.parse()])
    assert learned.value is not None
    assert "plies_left" in learned.stats


def test_plies_left_that_no_record_knows_are_named(game: Game[Any], solved: Dataset, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"of a game with a result.*learner\.plies_weight=0 leaves it out"):
        make(game).windows(solved, "train", seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(game, plies_weight=0.0).windows(solved, "train", seed=0)
        make(game).windows(games(tmp_path), "train", seed=0)


def test_it_fits_32_records(game: Game[Any], solved: Dataset) -> None:
    check_learner(lambda: make(game, plies_weight=0.0), solved, max_updates=400, lr=1e-2)


@pytest.mark.slow
def test_it_fits_32_chess_records() -> None:
    pytest.importorskip("chess")
    data = Dataset.open("sample:chess")
    check_learner(lambda: make(genpolicy.load_game("chess")), data, max_updates=400, lr=1e-2)


def test_it_learns_the_values_of_solved_positions(game: Game[Any], solved: Dataset) -> None:
    """Exact values are won, drawn and lost outright, and the head tells them apart once it has learnt."""
    learner = make(game, plies_weight=0.0)
    source = learner.windows(solved, "train", seed=0)
    chosen = np.linspace(0, len(source) - 1, 64).astype(np.int64)  # as ``measure`` chooses them
    optimiser = torch.optim.AdamW(learner.parameters(), lr=5e-3)
    for epoch in range(80):
        loss, _ = learner.loss(source.batch(chosen, epoch), torch.Generator())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert set(source.batch(chosen, 0).wdl.flatten().tolist()) == {0.0, 1.0}
    learner.eval()
    figures = learner.measure(solved, "train", 64)
    assert figures["wdl_ce"] < 0.1 < figures["wdl_prior"] < math.log(3)
    assert figures["value_rank"] > 0.7  # the label has three values, and what is tied has one rank
    assert math.isnan(figures["plies_error"])  # the solver's positions are of no game


def test_figures_of_a_head_that_knows_the_prior_alone(game: Game[Any], tmp_path: Path) -> None:
    """Games without draws: a head that says the shares of wins and losses reaches the prior's entropy."""
    rows = [r for r in games(tmp_path / "a").records() if r.line and not r.policy]
    results = [(1.0, "X"), (1.0, "X"), (-1.0, "X")]
    records = [
        dataclasses.replace(r, state=f"{s}/.../... X", result=result, scores=(), value=None, split="test")
        for (result, _), r, s in zip(results, rows, ["...", "X.O", "O.X"], strict=True)
    ]
    data, learner = write_dataset(tmp_path / "b", CONNECT, records), make(game)
    with torch.no_grad():
        learner.network.wdl.out.weight.zero_()
        learner.network.wdl.out.bias.copy_(torch.tensor([2 / 3, 1e-30, 1 / 3]).log())
    figures = learner.measure(data, "test", 10)
    entropy = -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    assert figures["wdl_prior"] == pytest.approx(entropy)
    assert figures["wdl_ce"] == pytest.approx(entropy, abs=1e-5)
    assert math.isnan(figures["value_rank"])  # it says the same of every position
    assert make(game).loss(learner.windows(data, "test", seed=0).batch(np.arange(3), 0), torch.Generator())[0] > 0


def test_operations_and_the_weights_of_each_optimiser(game: Game[Any]) -> None:
    learner = make(game)
    plain = OneStepLearner(game, OneStepConfig(network=TINY)).flops_per_record()
    places, heads = learner.layout.state_length, learner.network
    by_hand = 6 * (places * 32 * 32 + places * 32 * 128 + 128 * 3) + 6 * (places * 32 * 8 + places * 8 * 64 + 64)
    assert plain is not None
    assert learner.flops_per_record() == plain + by_hand
    decayed, others = learner.param_groups(0.1)
    assert {id(p) for group in (decayed, others) for p in group["params"]} == {id(p) for p in learner.parameters()}
    muon = {id(p) for p in decayed["muon"]}
    assert muon
    assert not muon & {id(p) for head in (heads.wdl, heads.plies_left, heads.head) for p in head.parameters()}


@pytest.mark.parametrize("head", ["wdl", "plies_left"])
def test_a_diverged_head_is_named(head: str, game: Game[Any]) -> None:
    learner = make(game)
    with torch.no_grad():
        next(iter(learner.network.get_submodule(head).parameters())).fill_(NAN)
    named = {"wdl": "win-draw-loss", "plies_left": "plies-left"}[head]
    with pytest.raises(ValueError, match=rf"network's {named} head gives numbers that are not finite"):
        learner.policy().decide([game.parse()])


def test_records_without_values_are_refused(game: Game[Any], tmp_path: Path) -> None:
    data = write_dataset(tmp_path, CONNECT, [Record(state=".../.../... X", line="b2", split="train")])
    with pytest.raises(DatasetError, match=r"split 'train' has no values, scores or results.*genpolicy data label"):
        make(game).windows(data, "train", seed=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"network": dataclasses.replace(TINY, head="unified")}, "set typed, got unified"),
        ({"train_pad": True}, "train_pad and future"),
        ({"future": "unrelated"}, "train_pad and future"),
        ({"result_share": 1.5}, r"result_share must lie in \[0, 1\], got 1.5"),
        ({"value_weight": -1.0}, "value_weight must be at least 0"),
        ({"plies_weight": NAN}, "plies_weight must be at least 0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PolicyValueConfig(**options)


def test_a_run_starts_from_its_own_kind_alone(game: Game[Any], tmp_path: Path) -> None:
    learner, other = make(game), make(game)
    learner.policy().save_pretrained(tmp_path / "own")
    with torch.no_grad():
        other.network.wdl.out.weight.add_(1)
    take_weights(other, str(tmp_path / "own"))
    torch.testing.assert_close(other.network.wdl.out.weight, learner.network.wdl.out.weight)
    with pytest.raises(CheckpointError, match=r"init_from: .*own: it and this learner differ in learner\.viewer"):
        take_weights(make(game, viewer="absolute"), str(tmp_path / "own"))
    OneStepLearner(game, OneStepConfig(network=TINY)).policy().save_pretrained(tmp_path / "s-a")
    with pytest.raises(CheckpointError, match=r"init_from: .*s-a: it and this learner differ in \d+ tensors, such as"):
        take_weights(other, str(tmp_path / "s-a"))


def test_a_search_takes_prior_and_value_from_one_call(game: Game[Any], tmp_path: Path) -> None:
    """``mcts:FOLDER`` alone: each part of leaves goes through the trunk once."""
    make(game).policy().save_pretrained(tmp_path / "policy")
    search = genpolicy.load_policy(f"mcts:{tmp_path / 'policy'}", simulations=12, leaves=4)
    inside = search.prior  # type: ignore[attr-defined]
    sizes: list[int] = []

    def count(_: Any, arguments: tuple[Tensor, ...]) -> None:
        sizes.append(len(arguments[0]))

    inside.learner.network.trunk.register_forward_pre_hook(count)
    made = search.decide([game.parse()])[0]
    assert made.stats["network_calls"] == len(sizes)
    assert made.stats["evaluations"] == sum(sizes)  # no position is asked about twice
    assert max(sizes) > 1
    priors, values = search.model.judge([game.parse()])  # type: ignore[attr-defined]
    alone = inside.decide([game.parse()])[0]
    assert (priors[0], values[0]) == (alone.policy, alone.value)
