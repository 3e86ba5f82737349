"""Diffusion over moves and learned codes: windows, the law of identity codes, decoding, folders."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from genpolicy import load_game, load_policy, registry
from genpolicy.data.records import Dataset
from genpolicy.data.windows import TokenBatch
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.game import Game
from genpolicy.networks.config import NetworkConfig
from genpolicy.sequence import Layout
from genpolicy.testing.policies import check_learner, check_policy
from genpolicy.training.setup import take_weights
from genpolicy_policy_model.code_diffusion import SHAPE, CodeDiffusionConfig, CodeDiffusionLearner, CodeDiffusionPolicy
from genpolicy_policy_model.vq import VQLearner
from genpolicy_policy_model.vq_config import VQConfig
from tests.small_datasets import CONNECT, solved_connect

GAME: Game[Any] = load_game(CONNECT)
CODES: dict[str, Any] = {"num_codes": 9, "autoencoder_width": 32, "code_width": 4, "token_width": 4}
BOARD: dict[str, Any] = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2}


def learner_of(game: Game[Any] = GAME, trained: bool = True, **changed: Any) -> CodeDiffusionLearner:
    """Weights as they are drawn; the codebook counts as trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = NetworkConfig(**{**BOARD, "move_rank": 8, **changed.pop("network", {})})
        shape = {"horizon": 3, "train_pad": True, "process": {"kind": "absorbing", "num_timesteps": 4}}
        config = CodeDiffusionConfig(network=network, **{**shape, **CODES, **changed})
        learner = CodeDiffusionLearner(game, config)
    if trained:
        learner.network.autoencoder.codebooks.counts.fill_(1.0)
    return learner


def vq_of(game: Game[Any] = GAME, **changed: Any) -> VQLearner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        made = VQLearner(game, VQConfig(network=NetworkConfig(**BOARD), latent_width=16, **{**CODES, **changed}))
    made.network.autoencoder.codebooks.counts.fill_(5.0)
    return made


class Perfect(nn.Module):
    """Codes that are right about everything: the number of the answer among all, by the rules."""

    def __init__(self, game: Game[Any]) -> None:
        super().__init__()
        self.game, self.codebooks = game, vq_of().network.autoencoder.codebooks

    def following(self, row: list[int], seen: int) -> list[list[int]]:
        """Own positions after a move from a position, both as player 0 sees them; its end where the game is over."""
        game = self.game
        state = game.tokens.decode(np.array(row), 0)
        after = game.play(state, int(game.moves.seen_by(np.array(seen), 0)))
        over = game.outcome(after) is not None
        ends = [after] if over else [game.play(after, answer) for answer in game.legal(after).tolist()]
        rows: list[list[int]] = game.tokens.encode(ends, np.zeros(len(ends), np.int64)).tolist()
        return rows

    def codes(self, states: Tensor, moves: Tensor, after: Tensor) -> Tensor:
        found = [
            self.following(state, move).index(row)
            for state, move, row in zip(states.tolist(), moves.tolist(), after.tolist(), strict=True)
        ]
        return torch.tensor(found, dtype=torch.int64)[:, None]

    def likeliest(self, states: Tensor, moves: Tensor, codes: Tensor, admitted: Tensor) -> Tensor:
        assert admitted.shape[1] == len(self.game.tokens.symbols)
        rows = zip(states.tolist(), moves.tolist(), codes[:, 0].tolist(), strict=True)
        return torch.tensor([self.following(state, move)[code] for state, move, code in rows])


def perfect(game: Game[Any] = GAME, **changed: Any) -> CodeDiffusionLearner:
    learner = learner_of(game, **changed)
    learner.network.autoencoder = Perfect(game)  # type: ignore[assignment]
    return learner


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("solved"), horizon=5, every=9)


# Windows.


def lines_from(game: Game[Any], layout: Layout, root: Any, num: int) -> Tensor:
    """[R, N] every line of some plies from a position, as windows of ``s-asa`` that its mover sees."""
    viewer, rows = game.player(root), []

    def follow(states: list[Any], moves: list[int]) -> None:
        here = states[-1]
        over = game.outcome(here) is not None
        if over or len(moves) == num:
            row = np.full(layout.length, layout.pad if over else layout.mask)
            for slot in layout.slots:
                if slot.kind == "state" and slot.ply < len(states):
                    row[slot.start : slot.stop] = game.tokens.encode([states[slot.ply]], np.array([viewer]))[0]
                if slot.kind == "action" and slot.ply < len(moves):
                    row[slot.start] = layout.move_offset + game.moves.seen_by(np.array(moves[slot.ply]), viewer)
            rows.append(row)
            return
        for move in game.legal(here).tolist():
            follow([*states, game.play(here, move)], [*moves, move])

    follow([root], [])
    return torch.from_numpy(np.unique(np.stack(rows), axis=0))


def batch_of(layout: Layout, rows: Tensor) -> TokenBatch:
    given = torch.from_numpy(layout.given.copy()).expand(rows.shape)
    return TokenBatch(rows, given, ~given & (rows != layout.mask), torch.arange(len(rows)))


def test_windows_become_own_moves_and_codes_of_the_answers() -> None:
    """Against the window read slot by slot; games end by an own move, by an answer, or are cut."""
    learner = perfect()
    lines, layout, codes = learner.window_layout, learner.layout, learner.network.autoencoder
    assert [slot.kind for slot in layout.slots] == ["state", "action", *["code", "action"] * 2]
    rows = lines_from(GAME, lines, GAME.parse("XO./XO./... X"), 5)
    cut = rows[:40].clone()
    cut[:, lines.slots[4].start :] = lines.mask  # s a s a | s ...: the answer is known, what it leads to is not
    whole = batch_of(lines, torch.cat([rows, cut]))
    made, ends = learner.coded(whole), set[str]()
    for row, coded, target in zip(whole.tokens.tolist(), made.tokens.tolist(), made.target.tolist(), strict=True):
        tokens = {(s.kind, s.ply): row[s.start : s.stop] for s in lines.slots}
        expected = [*tokens["state", 0]]
        for ply in (0, 2, 4):
            move = tokens["action", ply][0]
            expected.append({lines.pad: layout.pad, lines.mask: layout.mask}.get(move, move))
            if ply == 4:
                continue
            states = [tokens["state", at] for at in (ply, ply + 1, ply + 2)]
            if states[1][0] == lines.pad:
                expected.append(layout.pad)
            elif states[2][0] == lines.mask:
                expected.append(layout.mask)
            else:
                ends.add("own" if states[2][0] == lines.pad else "answer")
                after = states[1] if states[2][0] == lines.pad else states[2]
                following = Perfect.following(codes, states[0], move - lines.move_offset)  # type: ignore[arg-type]
                expected.append(layout.code_offset + following.index(after))
        assert coded == expected
        given = layout.state_length
        assert target == [False] * given + [token != layout.mask for token in expected[given:]]
    assert ends == {"own", "answer"}
    trained = perfect(train_pad=False).coded(whole)
    assert not trained.target[trained.tokens == layout.pad].any()
    assert torch.equal(trained.tokens, made.tokens)


@pytest.mark.parametrize("text", ["../.. X", "X./.O X"])
def test_identity_codes_have_the_likelihood_of_boards(text: str) -> None:
    """Row 20, law: with one code a next position the exact NLL of ``s-aka`` is that of ``s-asa``, by enumeration.

    A 2x2 board, all lines of three plies with drawn probabilities. The denoiser is the exact conditional of each
    token given those that are known, so that restoring one token at a time, in any order, gives the exact likelihood.
    """
    game = load_game("connect:rows=2,cols=2,k=2,gravity=false")
    learner = perfect(game, horizon=2)
    rows = lines_from(game, learner.window_layout, game.parse(text), 3)
    weights = torch.rand(len(rows), generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.1
    weights /= weights.sum()
    coded = learner.coded(batch_of(learner.window_layout, rows)).tokens
    shapes = (Layout(game, "s-asa", 3, admit_pad=True), rows), (learner.layout, coded)
    rng = np.random.default_rng(0)
    for layout, table in shapes:
        for order in range(2):
            imagined = rng.permutation(np.flatnonzero(~layout.given))
            if order == 0:
                imagined = np.sort(imagined)
            found = [restored(layout, table, weights, row, imagined) for row in range(len(table))]
            torch.testing.assert_close(torch.stack(found), -weights.log())
    assert len(rows) > 1


def restored(layout: Layout, table: Tensor, weights: Tensor, row: int, order: Any) -> Tensor:
    """-log p of a row [N] of a table [R, N], its imagined tokens restored one by one."""
    admitted, known = torch.from_numpy(layout.admitted.copy()), torch.from_numpy(layout.given.copy())
    nll = torch.zeros((), dtype=torch.float64)
    for place in order.tolist():
        chances = torch.zeros(layout.num_symbols, dtype=torch.float64)
        fits = (table[:, known] == table[row, known]).all(1)
        chances.scatter_add_(0, table[fits, place], weights[fits])
        chances *= admitted[place]
        nll -= (chances[table[row, place]] / chances.sum()).log()
        known[place] = True
    return nll


# The learner.


def test_an_autoencoder_that_was_never_trained_is_an_error(solved: Dataset) -> None:
    learner = learner_of(trained=False)
    batch = learner.windows(solved, "train", seed=0).batch(np.arange(4), 0)
    assert isinstance(batch, TokenBatch)
    with pytest.raises(ConfigError, match="never trained; set init_from=FOLDER of a policy of kind vq"):
        learner.loss(batch, torch.Generator())


@pytest.mark.parametrize(
    "changed", [{}, {"process": {"kind": "absorbing", "order": "ply"}, "num_books": 2}, {"horizons": [1, 3]}], ids=str
)
def test_the_autoencoder_is_frozen(solved: Dataset, changed: dict[str, Any]) -> None:
    learner, generator = learner_of(**changed), torch.Generator().manual_seed(0)
    batch: Any = learner.windows(solved, "train", seed=0).batch(np.arange(32), 0)
    loss, _ = learner.loss(batch, generator)
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None for p in learner.network.autoencoder.parameters())
    frozen = {id(p) for p in learner.network.autoencoder.parameters()}
    assert not any(id(p) in frozen for group in learner.param_groups(0.1) for p in group["params"])
    assert bool(learner.elbo(batch, generator).isfinite().all())
    measured = learner.metrics(batch, generator)
    assert 0 <= float(measured["whole"]) <= 1 <= float(measured["perplexity"]) <= 9
    assert (learner.flops_per_record() or 0) > 0


@pytest.mark.slow
def test_laws_of_learners(solved: Dataset) -> None:
    check_learner(learner_of, solved)


# Folders.


def test_a_folder_is_whole_and_the_autoencoder_comes_from_vq(tmp_path: Path) -> None:
    source, learner = vq_of(), learner_of(trained=False)
    take_weights(learner, str(source.policy().save_pretrained(tmp_path / "vq")))
    for name, value in source.network.autoencoder.state_dict().items():
        assert torch.equal(learner.network.autoencoder.state_dict()[name], value)
    folder = learner.policy().save_pretrained(tmp_path / "codes")
    loaded = load_policy(str(folder)).learner
    assert loaded is not None
    saved = loaded.network.state_dict()
    assert all(torch.equal(saved[name], value) for name, value in learner.network.state_dict().items())
    again = learner_of(trained=False)
    take_weights(again, str(folder))
    assert all(torch.equal(value, saved[name]) for name, value in again.network.state_dict().items())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_codes": 8, "code_width": 2}, r"another shape: set learner\.num_codes=8, learner\.code_width=2"),
        ({"num_books": 2}, r"set learner\.num_books=2"),
        ({"span": 2}, "codes stand for what follows 2 own moves"),
    ],
)
def test_an_autoencoder_of_another_shape_is_named(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    folder = vq_of(**changed).policy().save_pretrained(tmp_path / "vq")
    with pytest.raises(CheckpointError, match=rf"init_from: .*vq: .*{said}"):
        take_weights(learner_of(), str(folder))


def test_an_autoencoder_of_another_game_or_none_is_named(tmp_path: Path) -> None:
    other = load_game("connect:rows=3,cols=4,k=3,gravity=false")
    with pytest.raises(CheckpointError, match=r"reads tokens of 'connect:rows=3,cols=4.* \(layout \w{16}\), this"):
        learner_of().take_weights(vq_of(other))
    folder = vq_of(other).policy().save_pretrained(tmp_path / "vq")
    with pytest.raises(CheckpointError, match=r"init_from: .*plays 'connect:rows=3,cols=4"):
        take_weights(learner_of(), str(folder))
    plain = registry.load("learners", "diffusion")
    with pytest.raises(CheckpointError, match="a DiffusionLearner has no autoencoder of transitions"):
        learner_of().take_weights(plain(GAME, plain.Config(network=NetworkConfig(**BOARD))))


def test_a_folder_of_another_codebook_is_refused_by_its_fingerprint(tmp_path: Path) -> None:
    folder = learner_of().policy().save_pretrained(tmp_path / "codes")
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("num_codes: 9", "num_codes: 8"))
    with pytest.raises(CheckpointError, match="its tokens are not those"):
        load_policy(str(folder))


def test_a_collapsed_codebook_is_named(caplog: pytest.LogCaptureFixture) -> None:
    source = vq_of()
    source.network.autoencoder.codebooks.counts[:, 1:] = 0.0
    with caplog.at_level(logging.WARNING):
        learner_of().take_weights(source)
    assert "a codebook has collapsed: 1.00 of 9 codes" in caplog.text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"paradigm": "s-asa"}, "paradigm of code_diffusion is 's-aka', got 's-asa'"),
        ({"viewer": "absolute"}, "viewer of code_diffusion is 'mover'"),
        ({"num_codes": 1}, "num_codes must be at least 2"),
        ({"num_books": 0}, "num_books must be at least 1"),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        learner_of(**changed)


def test_codes_need_a_learner_that_makes_them_and_players_that_take_turns() -> None:
    plain = registry.load("learners", "diffusion")
    with pytest.raises(ConfigError, match="imagines codes, which only a learner has that makes them"):
        plain(GAME, plain.Config(paradigm="s-aka"))
    with pytest.raises(ConfigError, match=r"learner\.kind=code_diffusion: in 'pig.*may move twice"):
        learner_of(load_game("pig"))
    assert {name: getattr(CodeDiffusionConfig(), name) for name in SHAPE} == {
        name: getattr(VQConfig(), name) for name in SHAPE
    }


# The policy.


def some_states() -> list[Any]:
    made = [GAME.parse()]
    for move in (4, 0, 8, 2):
        made.append(GAME.play(made[-1], move))
    return made[::2]


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"decode": False}, marks=pytest.mark.thorough),
        pytest.param({"horizon": 1}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_laws_of_policies(options: dict[str, Any]) -> None:
    check_policy(CodeDiffusionPolicy(learner_of(num_books=2), **options), some_states(), max_plies=2)


def test_modes_are_one_call_and_the_sampler_and_a_search_is_refused() -> None:
    policy = CodeDiffusionPolicy(learner_of())
    assert [*policy.modes()] == ["one_call", "easy_first 4"]
    assert all(len(mode.decide([GAME.parse()])[0].line) == 5 for mode in policy.modes().values())
    with pytest.raises(ConfigError, match="paradigm 's-aka' has no values to judge imagined boards by"):
        policy.with_options(candidates=2)


def test_every_sampler_imagines_codes() -> None:
    learner = learner_of()
    for name in registry.available("samplers"):
        policy = CodeDiffusionPolicy(learner, sampler=name, num_steps=3)
        decision = policy.decide([GAME.parse()])[0]
        assert len(decision.line) == (1 if name == "one_call" and learner.by_ply else 5)


def test_codes_are_decoded_one_after_the_other() -> None:
    """With perfect codes of a line by the rules the decision shows that line; an answer beside the rules is -1."""
    learner = perfect()
    policy, root = CodeDiffusionPolicy(learner), GAME.parse("X../.O./... X")
    rows = lines_from(GAME, learner.window_layout, root, 5)[::9]
    coded = learner.coded(batch_of(learner.window_layout, rows)).tokens
    boards = policy.reader.boards(coded)
    decision = learner_of().policy().decide([root])[0]
    empty = GAME.tokens.encode([GAME.parse()], np.zeros(1, np.int64))[0]
    between, answered = (policy.reader.lines.slot("state", ply) for ply in (1, 2))
    assert between is not None
    assert answered is not None
    for row, line, board in zip(coded.numpy(), rows.numpy(), boards, strict=True):
        assert np.array_equal(policy.reader.read(row, board, root, 0), line)
        wrong = board.copy()
        wrong[0] = empty  # no answer leads there
        read = policy.reader.read(row, wrong, root, 0)
        assert read[between.stop] == policy.reader.lines.pad
        assert np.array_equal(read[between.start : between.stop], line[between.start : between.stop])
        assert np.array_equal(read[answered.start : answered.stop], empty)
        told = policy._told(decision, line, root, 0)
        state, states = root, []
        for move in itertools.takewhile(lambda each: each >= 0, told.line):
            state = GAME.play(state, move)
            states.append(GAME.format(state))
        assert [text for text in told.states if text is not None] == states[: len(told.states)]
