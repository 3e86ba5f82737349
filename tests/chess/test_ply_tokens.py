"""Plies in place of full moves: exact both ways, a step of one by every move, and what a policy needs of it."""

from __future__ import annotations

import dataclasses
import random
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy import load_policy
from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.data.windows import TokenBatch
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, SamplerConfig
from genpolicy.shipped import data_folder
from genpolicy.testing import check_game
from genpolicy.training.config import RunConfig
from genpolicy_chess.tokens import ChessTokenizer, PlyTokenizer

GAME = genpolicy.load_game("chess")
OWN, PLIES = GAME.tokens, GAME.tokenizer("plies")


def number(row: np.ndarray) -> int:
    digits = [int(PLIES.symbols[symbol]) for symbol in row[-3:]]
    return digits[0] * 10_000 + digits[1] * 100 + digits[2]


def test_positions_come_back_and_every_move_adds_one() -> None:
    rng = random.Random(1)
    for _ in range(3):
        state = GAME.parse()
        for _ in range(60):
            if GAME.outcome(state) is not None:
                break
            after = GAME.play(state, int(rng.choice(GAME.legal(state).tolist())))
            for viewer in (0, 1):
                row = PLIES.encode([state], [viewer])[0]
                assert GAME.format(PLIES.decode(row, viewer)) == GAME.format(state)
                assert np.array_equal(row[:-3], OWN.encode([state], [viewer])[0][:-3])
                assert number(row) == 2 * (state.board.fullmove_number - 1) + (not state.board.turn)
                assert number(PLIES.encode([after], [viewer])[0]) == number(row) + 1
                assert PLIES.turned is not None
                places, symbols = PLIES.turned
                assert np.array_equal(symbols[row[places]], PLIES.encode([state], [1 - viewer])[0])
            state = after


def test_a_number_that_the_side_to_move_contradicts_stands_for_no_position() -> None:
    row = PLIES.encode([GAME.parse()])[0]
    row[-1] += 1
    with pytest.raises(ValueError, match="1 plies played, after which the other side is to move"):
        PLIES.decode(row)
    far = GAME.parse("8/8/8/4k3/8/4K3/8/8 w - - 0 600000")
    with pytest.raises(ValueError, match="has no symbol"):
        PLIES.encode([far])


def learner(tokens: str) -> DiffusionLearner:
    torch.manual_seed(0)
    network = NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2, head="typed")
    config = DiffusionConfig(
        network=network,
        paradigm="s-avsav",
        horizon=2,
        tokens=tokens,
        process={"kind": "absorbing", "num_timesteps": 4, "order": "ply"},
        sampler=SamplerConfig("by_ply", 4, candidates=2),
    )
    return DiffusionLearner(GAME, config)


def test_a_learner_sees_its_windows_by_it_and_a_saved_policy_too(tmp_path: Path) -> None:
    made = learner("plies")
    assert made.layout.fingerprint != learner("").layout.fingerprint
    data = Dataset.open(data_folder("sample:chess"))
    windows = made.windows(data, "validation", seed=0)
    rows = np.arange(20)
    texts = [record.state for record, _ in zip(data.records("validation"), rows, strict=False)]
    states = [GAME.parse(text) for text in texts]
    expected = PLIES.encode(states, np.array([GAME.player(state) for state in states]))
    batch = windows.batch(rows, 0)
    assert isinstance(batch, TokenBatch)
    assert np.array_equal(batch.tokens[:, : PLIES.length].numpy(), expected)
    made.policy().save_pretrained(tmp_path / "policy")
    loaded = load_policy(str(tmp_path / "policy"))
    again, first = (policy.decide(states[:4]) for policy in (loaded, made.policy()))
    for one, other in zip(again, first, strict=True):
        assert one.move == other.move
        assert one.states == other.states
    tree = load_policy(f"mcts:{tmp_path / 'policy'}?model=imagined&simulations=3").decide(states[:1])
    assert tree[0].move in GAME.legal(states[0])


def test_a_name_that_the_game_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learner\.tokens: chess has no tokenizer 'ply'; it has: plies"):
        learner("ply")
    four = genpolicy.load_game("connect")
    with pytest.raises(ConfigError, match=r"its own alone: leave out learner\.tokens, or write ") as refused:
        DiffusionLearner(four, dataclasses.replace(learner("").config, tokens="plies"))
    (written,) = shlex.split(str(refused.value).rpartition(" ")[2])
    section = compose(RunConfig, overrides=["learner.kind=diffusion", "learner.tokens=plies", written]).learner
    assert section["tokens"] == ""


@pytest.mark.parametrize(
    ("tokenizer", "counters", "law"),
    [
        (ChessTokenizer, ((65,),), "grows by one or begins anew"),  # a right to castle
        (PlyTokenizer, ((74, 75, 76), (0,)), "grows by one or begins anew"),
        (ChessTokenizer, ((),), "each of one counter"),
        (PlyTokenizer, ((75, 76), (76,)), "each of one counter"),
    ],
)
def test_a_counter_that_not_every_move_raises_is_refused(
    tokenizer: type, counters: Any, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "counters", counters)
    with pytest.raises(AssertionError, match=law):
        check_game(genpolicy.load_game("chess"), num_games=1)


def test_promotions_are_checked_in_every_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlyTokenizer, "promoted", np.roll(PlyTokenizer().promoted, 1, axis=0))
    with pytest.raises(AssertionError, match=r"a move leaves on its target what tokens\.promoted says"):
        check_game(genpolicy.load_game("chess"), num_games=0, texts=["8/PPPPPP2/7k/8/8/8/8/K7 w - - 0 1"])
