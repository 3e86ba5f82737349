"""Policies over a network: laws, the legal mask, whose view, draws, saving and loading."""

from __future__ import annotations

import json
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import genpolicy
from genpolicy import registry
from genpolicy.config import structured
from genpolicy.diffusion import Sampler, SamplerOutput, Step
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.diffusion.ranking import likeliest_symbols
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.game import Game
from genpolicy.networks import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy, SamplerConfig
from genpolicy.policies.tokens import NetworkPolicy
from genpolicy.testing import check_policy
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner, OneStepPolicy
from tests.small_datasets import CONNECT

BOARD = NetworkConfig(num_layers=1, width=32, num_heads=2, geometry="board", head="typed")
SEQUENCE = NetworkConfig(num_layers=1, width=16, num_heads=2, dropout=0.1, tied=True)


class Fixed(nn.Module):
    """A network that predicts the same for every token and position: ``scores`` by vocabulary id, else -20."""

    def __init__(self, num_symbols: int, scores: dict[int, float]) -> None:
        super().__init__()
        row = torch.full((num_symbols,), -20.0)
        for symbol, score in scores.items():
            row[symbol] = score
        self.row = nn.Parameter(row)

    def forward(self, tokens: Tensor, t: Tensor | None = None) -> TypedLogits:
        return TypedLogits.of(self.row.expand(*tokens.shape, -1))

    def encode(self, *_: object) -> None:
        """What is given is not encoded apart."""

    def denoise(self, tokens: Tensor, t: Tensor, *_: object) -> TypedLogits:
        return self(tokens, t)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def connect() -> Game[Any]:
    return genpolicy.load_game(CONNECT)


@pytest.fixture(scope="module")
def chess() -> Game[Any]:
    pytest.importorskip("chess")
    return genpolicy.load_game("chess")


def diffusion(game: Game[Any], network: NetworkConfig = BOARD, **options: Any) -> DiffusionLearner:
    torch.manual_seed(0)
    return DiffusionLearner(game, DiffusionConfig(network=network, horizon=2, **options))


def one_step(game: Game[Any], network: NetworkConfig = BOARD, **options: Any) -> OneStepLearner:
    torch.manual_seed(0)
    return OneStepLearner(game, OneStepConfig(network=network, **options))


def some_states(game: Game[Any], num: int = 4) -> list[Any]:
    """Positions after 0, 1, 2, ... moves, always the middle one of the legal moves."""
    states = [game.parse()]
    while len(states) < num:
        legal = game.legal(states[-1])
        states.append(game.play(states[-1], int(legal[len(legal) // 2])))
    return states


def won(game: Game[Any]) -> Any:
    """3x3x3 won by the first player along the top row: stones on 0 3 1 4 2."""
    state = game.parse()
    for move in (0, 3, 1, 4, 2):
        state = game.play(state, move)
    return state


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "sampler", ["easy_first", "easy_first_commit", "stochastic", "ancestral", "a0_last", "one_call"]
)
def test_diffusion_policy_keeps_the_laws(connect: Game[Any], sampler: str) -> None:
    policy = diffusion(connect).policy().with_options(sampler=sampler, num_steps=4)
    check_policy(policy, some_states(connect), finished=[won(connect)])


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.5}, {"legal_mask": False}])
def test_one_step_policy_keeps_the_laws(connect: Game[Any], options: dict[str, Any]) -> None:
    check_policy(OneStepPolicy(one_step(connect), **options), some_states(connect), finished=[won(connect)])


def test_sequence_trunk_without_a_mask_keeps_the_laws_in_chess(chess: Game[Any]) -> None:
    policy = DiffusionPolicy(
        diffusion(chess, SEQUENCE, viewer="absolute"), num_steps=2, temperature=1.0, legal_mask=False
    )
    check_policy(policy, some_states(chess, 3), finished=[chess.parse("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")], max_plies=4)


def test_multinomial_noise_plays_too(connect: Game[Any]) -> None:
    learner = diffusion(connect, process={"kind": "multinomial", "num_timesteps": 5})
    check_policy(learner.policy(), some_states(connect), finished=[won(connect)])


def test_probabilities_are_the_softmax_over_legal_moves(connect: Game[Any]) -> None:
    learner = one_step(connect)
    offset = learner.layout.move_offset
    scores = {offset + 0: 3.0, offset + 1: 2.0, offset + 5: 1.0}
    learner.network = Fixed(learner.layout.num_symbols, scores)  # type: ignore[assignment]
    state = connect.play(connect.parse(), 0)  # square 0 is taken: the likeliest move is illegal
    decision = learner.policy().decide([state])[0]
    assert (decision.move, decision.line) == (1, (1,))
    assert decision.policy is not None
    weights = {move: np.exp(scores.get(offset + move, -20.0)) for move in range(9)}
    legal_total = sum(weights[move] for move in range(1, 9))
    assert decision.policy == pytest.approx({move: weights[move] / legal_total for move in range(1, 9)}, rel=1e-6)
    assert decision.stats["raw_legal"] == 0
    assert decision.stats["legal_mass"] == pytest.approx(legal_total / sum(weights.values()), rel=1e-5)


@pytest.mark.parametrize("sampler", ["one_call", "easy_first"])
def test_without_the_mask_the_raw_move_is_shown_and_a_legal_one_played(connect: Game[Any], sampler: str) -> None:
    learner = diffusion(connect, viewer="absolute")
    offset = learner.layout.move_offset
    learner.network = Fixed(learner.layout.num_symbols, {offset + 4: 3.0, offset + 7: 2.0})  # type: ignore[assignment]
    state = connect.play(connect.parse(), 4)
    policy = DiffusionPolicy(learner, sampler=sampler, num_steps=3, legal_mask=False)
    decision = policy.decide([state])[0]
    assert (decision.line[0], decision.move, decision.stats["raw_legal"]) == (4, 7, 0.0)
    decision = policy.decide([connect.parse()])[0]
    assert (decision.line[0], decision.move, decision.stats["raw_legal"]) == (4, 4, 1.0)


@pytest.mark.parametrize("sampler", ["one_call", "easy_first", "a0_last", "ancestral"])
def test_with_the_mask_the_sampler_itself_goes_on_from_a_legal_move(connect: Game[Any], sampler: str) -> None:
    learner = diffusion(connect, viewer="absolute")
    offset = learner.layout.move_offset
    learner.network = Fixed(learner.layout.num_symbols, {offset + 4: 9.0, offset + 7: 2.0})  # type: ignore[assignment]
    decision = DiffusionPolicy(learner, sampler=sampler, num_steps=3).decide([connect.play(connect.parse(), 4)])[0]
    assert decision.line[0] == decision.move != 4
    assert decision.line[1] == 4 or sampler == "ancestral"  # only the first action is held to the rules


def test_padding_as_first_action_is_no_move(connect: Game[Any]) -> None:
    learner = diffusion(connect, train_pad=True)
    layout = learner.layout
    learner.network = Fixed(layout.num_symbols, {layout.pad: 5.0, layout.move_offset + 3: 1.0})  # type: ignore[assignment]
    raw = DiffusionPolicy(learner, sampler="one_call", legal_mask=False).decide([connect.parse()])[0]
    assert (raw.line, raw.states, raw.move, raw.stats["raw_legal"]) == ((-1, -1), (None,), 3, 0.0)
    assert learner.policy().decide([connect.parse()])[0].move == 3


def test_the_mover_sees_its_own_side(chess: Game[Any]) -> None:
    """A network that always says e2e4 plays e7e5 for Black if it sees the mover's side, and cannot if it does not."""
    black = chess.play(chess.parse(), chess.moves.index("d2d4"))
    for viewer, expected, raw_legal in (("mover", "e7e5", 1.0), ("absolute", None, 0.0)):
        learner = one_step(chess, viewer=viewer)
        move = learner.layout.move_offset + chess.moves.index("e2e4")
        learner.network = Fixed(learner.layout.num_symbols, {move: 5.0})  # type: ignore[assignment]
        white_answer, black_answer = learner.policy().decide([chess.parse(), black])
        assert chess.moves[white_answer.move] == "e2e4"
        assert black_answer.stats["raw_legal"] == raw_legal
        if expected is not None:
            assert chess.moves[black_answer.move] == expected


def test_imagined_states_are_read_from_the_viewers_side(chess: Game[Any]) -> None:
    """Fill in the true continuation by hand; the policy must print it as FEN whoever moves."""
    learner = diffusion(chess)
    root = chess.play(chess.parse(), chess.moves.index("d2d4"))
    reply, answer = chess.moves.index("g8f6"), chess.moves.index("c2c4")
    after = chess.play(root, reply)
    row = learner.roots([root], np.array([1]))[0].numpy()
    for slot in learner.layout.slots[1:]:
        if slot.kind == "state":
            row[slot.start : slot.stop] = chess.tokens.encode([after], [1])[0]
        else:
            move = (reply, answer)[slot.ply]
            row[slot.start] = learner.layout.move_offset + chess.moves.seen_by(np.array([move]), 1)[0]
    legal = chess.legal(root).tolist()
    decision = learner.policy()._decision(root, legal, np.zeros(len(legal)), learner.layout.pad, row, 1, {})
    assert decision.line == (reply, answer)
    assert decision.states == (chess.format(after),)


@pytest.mark.parametrize("kind", ["one_step", "diffusion"])
def test_draws_at_temperature_one_follow_the_probabilities(connect: Game[Any], kind: str) -> None:
    policy: NetworkPolicy
    if kind == "one_step":
        policy = OneStepPolicy(one_step(connect), temperature=1.0)
    else:
        policy = DiffusionPolicy(diffusion(connect), sampler="one_call", temperature=1.0)
    offset = policy.layout.move_offset
    scores = {offset + move: float(np.log(move + 1)) for move in range(9)}
    policy.learner.network = Fixed(policy.layout.num_symbols, scores)  # type: ignore[assignment]
    num = 4000
    counts = Counter(d.move for d in policy.decide([connect.parse()] * num))
    for move in range(9):
        share = (move + 1) / 45  # softmax of log 1 .. log 9
        assert abs(counts[move] - num * share) < 4.5 * np.sqrt(num * share * (1 - share))


def test_more_calls_are_counted(connect: Game[Any]) -> None:
    policy = diffusion(connect).policy()
    assert isinstance(policy, DiffusionPolicy)
    calls = {name: mode.decide([connect.parse()])[0].stats["network_calls"] for name, mode in policy.modes().items()}
    assert calls == {"one_call": 1.0, "easy_first 20": 20.0}
    assert policy.with_options(num_steps=7).decide([connect.parse()])[0].stats["network_calls"] == 7.0


def test_the_mask_only_filters_one_call_of_the_likeliest_move(
    connect: Game[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", {})

    @registry.register("samplers", "plain")
    class Plain(Sampler):
        """Without a temperature, so that nobody can tell whether it draws."""

        def advance(self, step: Step) -> SamplerOutput:
            sampled = torch.where(step.frozen, step.xt, likeliest_symbols(step.clean))
            return SamplerOutput(sampled, sampled, torch.zeros(step.xt.shape))

    learner = diffusion(connect)
    for options, expected in (
        ({"sampler": "one_call"}, True),
        ({"sampler": "one_call", "temperature": 0.5}, False),
        ({"sampler": "easy_first", "num_steps": 1}, True),
        ({"sampler": "easy_first", "num_steps": 2}, False),
        ({"sampler": "plain", "num_steps": 1}, False),
    ):
        assert DiffusionPolicy(learner, **options).mask_only_filters is expected, options


def test_probabilities_are_those_of_the_first_call(connect: Game[Any]) -> None:
    """However many calls the sampler makes, the policy is the marginal that one call gives."""
    states = some_states(connect)
    one, full = (mode.decide(states) for mode in diffusion(connect).policy().modes().values())
    assert [d.policy for d in one] == [d.policy for d in full]
    assert [d.stats["raw_legal"] for d in one] == [d.stats["raw_legal"] for d in full]


def test_deciding_leaves_training_mode_as_it_was(connect: Game[Any]) -> None:
    learner = diffusion(connect, SEQUENCE)
    learner.train()
    policy = learner.policy()
    first = policy.decide([connect.parse()])[0].policy
    assert learner.network.training
    assert policy.decide([connect.parse()])[0].policy == first  # dropout would differ


def test_options_are_saved_and_can_be_overridden(connect: Game[Any], tmp_path: Path) -> None:
    DiffusionPolicy(diffusion(connect), sampler="stochastic", num_steps=6, noise=0.25).save_pretrained(tmp_path / "p")
    loaded = genpolicy.load_policy(tmp_path / "p")
    assert isinstance(loaded, DiffusionPolicy)
    assert loaded.sampling == SamplerConfig("stochastic", 6, None, {"noise": 0.25})
    other = genpolicy.load_policy(f"{tmp_path / 'p'}?sampler=one_call&seed=3")
    assert isinstance(other, DiffusionPolicy)
    assert (other.sampling.name, other.num_calls, other.sampling.options) == ("one_call", 1, {})
    assert (
        json.loads((tmp_path / "p" / "provenance.json").read_text())["versions"]["genpolicy"] == genpolicy.__version__
    )


def test_tied_weights_survive_saving(connect: Game[Any], tmp_path: Path) -> None:
    policy = one_step(connect, SEQUENCE).policy()
    policy.save_pretrained(tmp_path)
    loaded = genpolicy.load_policy(tmp_path)
    assert isinstance(loaded, OneStepPolicy)
    for name, tensor in policy.learner.network.state_dict().items():
        assert torch.equal(tensor, loaded.learner.network.state_dict()[name]), name
    assert loaded.label == tmp_path.name


def saved(tmp_path: Path, game: Game[Any]) -> Path:
    return diffusion(game).policy().save_pretrained(tmp_path / "policy")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("truncate", "damaged or cut short"),
        ("garbage", "damaged or cut short"),
        ("remove", "no such file"),
        ("drop", "is missing"),
        ("extra", "'strange' is not known"),
        ("reshape", "has shape"),
        ("pickle", "damaged or cut short"),
        ("flip", "its checksum is not the one"),
    ],
)
def test_damaged_weights_are_named(connect: Game[Any], tmp_path: Path, damage: str, message: str) -> None:
    folder = saved(tmp_path, connect)
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    first = next(iter(tensors))
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "garbage":
        path.write_bytes(b"\x00" * 64)
    elif damage == "flip":
        content = bytearray(path.read_bytes())
        content[-1] ^= 1  # one bit of one weight
        path.write_bytes(content)
    elif damage == "remove":
        path.unlink()
    elif damage == "pickle":
        torch.save({first: torch.zeros(3)}, path)
    else:
        if damage == "drop":
            del tensors[first]
        elif damage == "extra":
            tensors["strange"] = torch.zeros(1)
        else:
            tensors[first] = torch.zeros(3, 3)
        save_file(tensors, path)
    with pytest.raises(CheckpointError, match=message) as raised:
        genpolicy.load_policy(folder)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format: 1", "format: 99", "upgrade genpolicy"),
        ("layout: ", "layout: 0000", "tokens are not those"),
        ("horizon: 2", "horizont: 2", "horizont.*Did you mean: 'horizon'"),
        ("horizon: 2", "horizon: 3", "tokens are not those"),
        ("game: connect", "spiel: connect", "no 'game'"),
        ("rows=3", "rows=4", "tokens are not those"),
        ("weights_sha256: ", "weights_sha256: 0", "its checksum is not the one"),
    ],
)
def test_config_of_other_code_is_an_error(connect: Game[Any], tmp_path: Path, old: str, new: str, message: str) -> None:
    folder = saved(tmp_path, connect)
    config = folder / "config.yaml"
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new, 1))
    with pytest.raises(CheckpointError, match=message):
        genpolicy.load_policy(folder)


def test_policy_of_another_game_is_an_error(connect: Game[Any], chess: Game[Any], tmp_path: Path) -> None:
    folder = saved(tmp_path, connect)
    with pytest.raises(CheckpointError, match=r"plays 'connect.*not 'chess'"):
        genpolicy.load_policy(folder, game="chess")


def test_a_folder_written_in_part_is_no_policy(connect: Game[Any], tmp_path: Path) -> None:
    folder = saved(tmp_path, connect)
    (folder / "config.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"holds no config\.yaml"):
        genpolicy.load_policy(folder)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"samplr": "one_call"}, ValueError, "Did you mean: 'sampler'"),
        ({"sampler": "easy_frst"}, ConfigError, "Did you mean: 'easy_first'"),
        ({"num_steps": 0}, ValueError, "num_steps must be at least 1, got 0"),
        ({"num_steps": 21}, ValueError, "num_steps must be 1..20"),
        ({"temperature": -1.0}, ConfigError, "temperature"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"device": "cuda:99x"}, ValueError, "device"),
        ({"sampler": "one_call", "noise": 0.5}, ConfigError, "no option 'noise'"),
    ],
)
def test_bad_options_are_named(
    connect: Game[Any], tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    folder = saved(tmp_path, connect)
    with pytest.raises(error, match=message):
        genpolicy.load_policy(folder, **options)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"process": {"kind": "absorbing", "num_timestep": 5}}, "num_timestep.*Did you mean: 'num_timesteps'"),
        ({"process": {"kind": None}}, "process.kind must name one of: absorbing"),
        ({"viewer": "black"}, "viewer must be one of mover, absolute"),
        ({"paradigm": "s-v", "horizon": 1}, "imagines no action"),
        ({"network": {"widht": 3}}, "Did you mean: 'width'"),
        ({"sampler": {"nam": "x"}}, "Did you mean: 'name'"),
    ],
)
def test_bad_learner_configuration_is_named(connect: Game[Any], data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DiffusionLearner(connect, structured(DiffusionConfig, data, prefix="learner"))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num_layers", 1_000_000_000, "num_layers must be at least 1 and at most 1,000"),
        ("num_layers", 1_000, "larger than its weights"),
        ("width", 3_200_000, "larger than its weights"),
        ("width", 1 << 40, "larger than its weights"),
        ("mlp_ratio", 9e5, "larger than its weights"),
        ("mlp_ratio", 1e300, "mlp_ratio must be above 0 and below"),
        ("num_timesteps", 1_000_000_000, "num_timesteps must be from 1 to 4,000"),
    ],
)
def test_a_configuration_cannot_ask_for_more_memory_than_its_weights(
    connect: Game[Any], tmp_path: Path, key: str, value: float, words: str
) -> None:
    folder = DiffusionPolicy(diffusion(connect, SEQUENCE)).save_pretrained(tmp_path / "policy")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    section = config["learner"]["process" if key == "num_timesteps" else "network"]
    section[key] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=words):
        genpolicy.load_policy(str(folder))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_strangers_policy_reads_no_environment(
    connect: Game[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENPOLICY_TEST_SECRET", "do not tell")
    folder = DiffusionPolicy(diffusion(connect)).save_pretrained(tmp_path / "policy")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["learner"]["paradigm"] = "${oc.env:GENPOLICY_TEST_SECRET}"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(CheckpointError, match=r"learner\.paradigm") as caught:
        genpolicy.load_policy(str(folder))
    assert "do not tell" not in str(caught.value)
