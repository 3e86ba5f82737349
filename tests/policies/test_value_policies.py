"""S-V and SA-V: what they learn from, whose values are whose, what the rules decide, and that they learn."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.control import FREE
from genpolicy.data.oracle import make_oracle
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import CheckpointError, ConfigError, DatasetError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.testing import check_learner, check_policy
from genpolicy.training.config import OptimConfig
from genpolicy.training.optim import make_optimizers
from genpolicy.values import probability_to_bin, score_to_value, value_to_probability
from genpolicy_alphabeta.policy import _evaluator
from genpolicy_common.labelled import labelled_positions
from genpolicy_evaluation.accuracy import measure_accuracy
from genpolicy_labelling.label import make_record
from genpolicy_mcts.policy import PolicyModel
from genpolicy_policy_baselines.action_value import ActionValueLearner, ActionValuePolicy
from genpolicy_policy_baselines.state_value import StateValueLearner, StateValuePolicy
from genpolicy_policy_baselines.value import ValueConfig, ValueLearner
from tests.small_datasets import CONNECT, solved_connect, write_dataset

SMALL = NetworkConfig(num_layers=2, width=64, num_heads=4, geometry="board", head="typed", init_std=0.05)
TINY = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="board", head="typed", init_std=0.1)
LEARNERS = (StateValueLearner, ActionValueLearner)


@pytest.fixture(scope="module")
def connect_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"))


@pytest.fixture
def game() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


def make(kind: type[ValueLearner], game: Game[Any], **options: Any) -> ValueLearner:
    torch.manual_seed(0)
    return kind(game, ValueConfig(**{"network": TINY, **options}))


def value_bin(learner: ValueLearner, row: torch.Tensor) -> int:
    slot = learner.layout.slot("value", 0)
    assert slot is not None
    return int(row[slot.start]) - learner.layout.value_offset


def bin_of(score: str) -> int:
    return probability_to_bin(value_to_probability(score_to_value(score)))


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize("head", ["typed", "unified"])
def test_they_keep_the_laws_of_policies(kind: type[ValueLearner], head: str, game: Game[Any]) -> None:
    network = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="sequence", head=head, init_std=0.3)
    policy = make(kind, game, network=network).policy()
    states = [game.parse(), game.parse(".../.../..X O"), game.parse("XX./OO./... X")]
    check_policy(policy, states, finished=[game.parse("XXX/OO./... O")])
    check_policy(policy.with_options(readout="mode", temperature=0.5), states)


@pytest.mark.parametrize("viewer", ["mover", "absolute"])
def test_windows_hold_the_value_of_the_player_to_move(viewer: str, tmp_path: Path) -> None:
    """In records a score is its mover's; a bin is the mover's win probability, for either colour."""
    pytest.importorskip("chess")
    chess_game = genpolicy.load_game("chess")
    rows = [
        ("4k3/8/8/8/8/8/8/QK6 w - - 0 1", "cp:900", "a1a8=mate:5 b1c1=cp:800"),
        ("qk6/8/8/8/8/8/8/4K3 b - - 0 1", "cp:900", "a8a1=mate:5 b8c8=cp:800"),
        ("4k3/8/8/8/8/8/8/QK6 b - - 0 1", "cp:-900", "e8e7=cp:-900 e8d7=mate:-9"),
    ]
    records = [
        Record(state=state, line=moves.split("=")[0], scores=(score,), move_values=moves, split="train")
        for state, score, moves in rows
    ]
    data = write_dataset(tmp_path, "chess", records)
    by_state = make(StateValueLearner, chess_game, viewer=viewer, cache_dir=str(tmp_path / "c"))
    batch = by_state.windows(data, "train", seed=0).batch(np.arange(3), 0)
    assert [value_bin(by_state, row) for row in batch.tokens] == [bin_of(score) for _, score, _ in rows]
    assert bin_of("cp:900") == 127 - bin_of("cp:-900")  # changing side is a sign change
    assert batch.target.sum(1).tolist() == [1, 1, 1]
    by_move = make(ActionValueLearner, chess_game, viewer=viewer, cache_dir=str(tmp_path / "c"))
    source = by_move.windows(data, "train", seed=0)
    assert len(source) == 3
    found: set[tuple[int, str, int]] = set()
    for epoch in range(40):
        batch = source.batch(np.arange(3), epoch)
        place = by_move.layout.state_length  # of the move, which is given
        assert batch.frozen[:, : place + 1].all()
        for number, row in enumerate(batch.tokens):
            side = chess_game.player(chess_game.parse(rows[number][0])) if viewer == "mover" else 0
            token = int(row[place]) - by_move.layout.move_offset
            move = int(chess_game.moves.seen_by(np.array([token]), side)[0])
            found.add((number, chess_game.moves[move], value_bin(by_move, row)))
    expected = {
        (number, move, bin_of(score))
        for number, (_, _, moves) in enumerate(rows)
        for move, _, score in (pair.partition("=") for pair in moves.split())
    }
    assert found == expected


def test_outside_training_a_window_stays_the_same(connect_data: Dataset, game: Game[Any]) -> None:
    learner = make(ActionValueLearner, game)
    source = learner.windows(connect_data, "test", seed=0)
    one, same = (source.batch(np.arange(20), 0).tokens for _ in range(2))
    assert torch.equal(one, same)
    assert not torch.equal(one, source.batch(np.arange(20), 1).tokens)


class Fixed(StateValueLearner):
    """Values positions by a table of texts."""

    table: dict[str, float]

    def read_values(self, tokens: torch.Tensor) -> Any:
        rows = tokens[:, : self.layout.state_length].numpy()
        # The viewer is the player to move, who sees itself as player 0.
        values = np.array([self.table.get(self.game.format(self.game.tokens.decode(row, 0)), 0.0) for row in rows])
        return values, values


def test_lookahead_turns_the_sign_and_the_rules_come_first(game: Game[Any]) -> None:
    torch.manual_seed(0)
    learner = Fixed(game, ValueConfig(network=TINY, viewer="absolute"))
    learner.table = {"X../.../... O": 0.9, "..X/.../... O": -0.7}
    policy = StateValuePolicy(learner)
    decision = policy.decide([game.parse()])[0]
    assert game.moves[decision.move] == "c3"  # where O stands worst
    assert decision.value == pytest.approx(0.7)
    assert decision.policy is not None
    ratio = decision.policy[game.moves.index("c3")] / decision.policy[game.moves.index("a3")]
    assert ratio == pytest.approx(np.exp((0.7 + 0.9) / 0.1))
    # A win is 1 whatever the network says of anything else, for either side; a full board is 0.
    for text, win in (("XX./OO./... X", "c3"), ("XX./OO./X.. O", "c2")):
        decision = policy.decide([game.parse(text)])[0]
        assert (game.moves[decision.move], decision.value) == (win, 1.0)
    assert policy.decide([game.parse("XXO/OOX/XO. X")])[0].value == 0.0
    assert policy.decide([game.parse("XXO/OOX/XO. X")])[0].stats["network_calls"] == 0.0


def test_lookahead_knows_the_third_repetition() -> None:
    """Chess, whose states carry their past: every other move is valued as lost."""
    pytest.importorskip("chess")
    chess_game = genpolicy.load_game("chess")

    class Lost(StateValueLearner):
        def read_values(self, tokens: torch.Tensor) -> Any:
            return np.full(len(tokens), 0.9), np.full(len(tokens), 0.9)

    torch.manual_seed(0)
    policy = StateValuePolicy(Lost(chess_game, ValueConfig(network=TINY)))
    state = chess_game.parse("6k1/5ppp/8/8/8/8/4QPPP/6K1 w - - 0 1")
    for move in ["g1h1", "g8h8", "h1g1", "h8g8", "g1h1", "g8h8", "h1g1"]:
        state = chess_game.play(state, chess_game.moves.index(move))
    decision = policy.decide([state])[0]
    assert (chess_game.moves[decision.move], decision.value) == ("h8g8", 0.0)


def test_a_search_asks_for_a_leaf_with_one_row(game: Game[Any]) -> None:
    """Where S-V is the value beside another prior, or the evaluator of alpha-beta; a decision looks a ply ahead."""
    learner = make(StateValueLearner, game)
    policy = StateValuePolicy(learner, lookahead=False)
    states = [game.parse(), game.parse("X../.../... O"), game.parse("X../.O./... X")]
    assert learner.policy().evaluate(states) is None  # by default as decisions look ahead
    rows: list[int] = []
    learner.network.trunk.register_forward_hook(lambda module, given, out: rows.append(len(out)))
    found = policy.evaluate(states)
    assert found is not None
    assert found[1] == 1
    assert found[0] == pytest.approx(learner.read_values(learner.roots(states, learner.viewers(states)))[0].tolist())
    for readout, column in (("mean", 0), ("mode", 1)):
        read = learner.read_values(learner.roots(states, learner.viewers(states)))[column]
        changed = policy.with_options(readout=readout).evaluate(states)
        assert changed is not None
        assert changed[0] == pytest.approx(read.tolist())
    rows.clear()
    model = PolicyModel(game, None, policy)
    _, values = model.judge(states)
    assert (rows, model.network_calls) == ([3], 1)
    assert values == pytest.approx(found[0])
    _, values = _evaluator(policy, FREE)(states)
    assert rows == [3, 3]
    assert values == pytest.approx(found[0])
    assert PolicyModel(game, policy, policy).judge(states)[1] == [d.value for d in policy.decide(states)]


def test_a_batch_is_one_network_call(game: Game[Any]) -> None:
    for kind in LEARNERS:
        learner = make(kind, game)
        calls = []
        learner.network.trunk.register_forward_hook(lambda module, given, out, seen=calls: seen.append(len(out)))
        states = [game.parse(), game.parse("X../.../... O"), game.parse("XX./OO./... X")]
        decisions = learner.policy().decide(states)
        assert calls == ([9 + 8 + 4] if kind is StateValueLearner else [9 + 8 + 5])  # one of them wins at once
        assert {decision.stats["network_calls"] for decision in decisions} == {1.0}


def test_mean_and_mode_read_the_same_bins(game: Game[Any]) -> None:
    learner = make(StateValueLearner, game, num_value_bins=4)
    assert learner.centres.tolist() == [-0.75, -0.25, 0.25, 0.75]
    chances = torch.tensor([[0.4, 0.0, 0.3, 0.3]], dtype=torch.float64)
    learner.bin_probabilities = lambda tokens: chances  # type: ignore[method-assign]
    mean, mode = learner.read_values(torch.zeros(1, 1))
    assert mean.tolist() == pytest.approx([-0.3 + 0.075 + 0.225])
    assert mode.tolist() == [-0.75]


def test_bins_are_read_as_they_are_trained(game: Game[Any], connect_data: Dataset) -> None:
    """-log p(bin) of the policy's reading is the loss, with either head."""
    for head in ("typed", "unified"):
        network = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="sequence", head=head, init_std=0.3)
        for kind in LEARNERS:
            learner = make(kind, game, network=network).eval()
            batch = learner.windows(connect_data, "test", seed=0).batch(np.arange(8), 0)
            masked = torch.where(batch.frozen, batch.tokens, learner.layout.mask)
            chances = learner.bin_probabilities(masked)
            if head == "unified":
                continue  # its loss is over the whole vocabulary, and not the bins alone
            picked = chances[torch.arange(8), [value_bin(learner, row) for row in batch.tokens]]
            assert learner.elbo(batch, torch.Generator()).tolist() == pytest.approx((-picked.log()).tolist(), rel=1e-4)


def subtree(folder: Path, game: Game[Any], root: str) -> Dataset:
    """Every unfinished position from a root on, labelled by the solver: what lookahead meets is in the data."""
    seen: dict[Any, Any] = {}
    waiting = [game.parse(root)]
    while waiting:
        state = waiting.pop()
        if game.outcome(state) is None and game.key(state) not in seen:
            seen[game.key(state)] = state
            waiting += [game.play(state, move) for move in game.legal(state).tolist()]
    states = list(seen.values())[:32]
    with make_oracle("solver", game) as solver:
        lines = solver.analyse(states, 1, move_values=True)
    records = [make_record(game, state, line).to_row() for state, line in zip(states, lines, strict=True)]
    return write_dataset(folder, game.spec, [Record.from_row({**row, "split": "train"}) for row in records])


@pytest.mark.parametrize("kind", [LEARNERS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in LEARNERS[1:])])
def test_32_records_are_learnt_perfectly(kind: type[ValueLearner], game: Game[Any], tmp_path: Path) -> None:
    data = subtree(tmp_path, game, "XO./.X./..O X")
    assert data.num_records == 32
    check_learner(lambda: make(kind, game, network=SMALL), data, max_updates=1200, lr=5e-3)


@pytest.mark.parametrize(
    ("kind", "updates"),
    [
        pytest.param(StateValueLearner, 120, marks=pytest.mark.thorough),
        pytest.param(ActionValueLearner, 300, marks=pytest.mark.slow),
    ],
)
def test_seconds_of_training_beat_a_random_mover(kind: type[ValueLearner], updates: int, connect_data: Dataset) -> None:
    """On held-out positions of 3x3x3 whose symmetric copies were held out too, by both ways of reading."""
    game = genpolicy.load_game(CONNECT)
    learner = make(kind, game, network=SMALL, augment=True)
    windows = learner.windows(connect_data, "train", seed=0)
    config = OptimConfig(name="muon", lr=4e-3, betas=(0.9, 0.98))
    optimisers = list(make_optimizers(learner.param_groups(0.01), config).values())
    decays = [torch.optim.lr_scheduler.LinearLR(each, 1.0, 0.01, updates) for each in optimisers]
    random = np.random.default_rng(0)
    learner.train()
    for update in range(updates):
        loss, _ = learner.loss(windows.batch(random.integers(0, len(windows), 128), update), torch.Generator())
        learner.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for each in [*optimisers, *decays]:
            each.step()
    positions = labelled_positions(connect_data, game, "test", limit=300)
    for readout in ("mean", "mode"):
        figures = measure_accuracy(learner.policy().with_options(readout=readout), positions, mode=readout)
        assert figures.times_random_interval[0] > 1.05, (readout, figures)
        assert figures.raw_best is None


def test_missing_labels_are_named_with_the_command_that_adds_them(game: Game[Any], tmp_path: Path) -> None:
    record = Record(state=game.format(game.parse()), line="b2", split="train")
    data = write_dataset(tmp_path / "lines", game.spec, [record])
    with pytest.raises(DatasetError, match=r"split 'train' has no scores.*genpolicy data label .*lines --oracle"):
        make(StateValueLearner, game).windows(data, "train", seed=0)
    with pytest.raises(DatasetError, match=r"no move values.*data label .* --move-values"):
        make(ActionValueLearner, game).windows(data, "train", seed=0)
    odd = Record(state="XX./OO./... X", line="c3", move_values="c3=value:1 a3=value:0", split="train")
    data = write_dataset(tmp_path / "odd", game.spec, [odd])
    with pytest.raises(DatasetError, match="'a3' has a value and is not legal"):
        make(ActionValueLearner, game).windows(data, "train", seed=0)


def test_bad_options_are_named(game: Game[Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="num_value_bins must be at least 2"):
        ValueConfig(num_value_bins=1)
    with pytest.raises(ConfigError, match="train_pad"):
        ValueConfig(train_pad=True)
    policy = make(StateValueLearner, game).policy()
    for options, message in (
        ({"readout": "median"}, "mean, mode"),
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"prior_temperature": 0.0}, "prior_temperature must be above 0"),
        ({"legal_mask": False}, "takes no option 'legal_mask'"),
    ):
        with pytest.raises(ValueError, match=message):
            policy.with_options(**options)
    folder = policy.save_pretrained(tmp_path / "policy")
    shutil.copytree(folder, tmp_path / "other")
    text = (tmp_path / "other" / "config.yaml").read_text().replace("num_value_bins: 128", "num_value_bins: 64")
    (tmp_path / "other" / "config.yaml").write_text(text)
    with pytest.raises(CheckpointError):
        genpolicy.load_policy(tmp_path / "other")


def test_entry_points_name_them() -> None:
    from genpolicy import registry

    assert registry.load("learners", "state_value") is StateValueLearner
    assert registry.load("learners", "action_value") is ActionValueLearner
    assert registry.load("policies", "state_value") is StateValuePolicy
    assert registry.load("policies", "action_value") is ActionValuePolicy
