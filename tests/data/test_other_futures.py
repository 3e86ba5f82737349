"""Futures that are not the oracle's: random moves in the true world, and another position's future."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genpolicy
from genpolicy.data.oracle import make_oracle
from genpolicy.data.records import Dataset
from genpolicy.networks import NetworkConfig
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.training.config import DataConfig
from genpolicy.training.setup import make_stream
from tests.small_datasets import CONNECT, solved_connect

TINY = NetworkConfig(num_layers=1, width=16, num_heads=2, geometry="board", head="typed")


@pytest.fixture(scope="module")
def connect_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("futures"))


def test_the_first_move_is_the_oracles_and_the_rest_is_random() -> None:
    game = genpolicy.load_game(CONNECT)
    states = [state for state in game.positions() if game.outcome(state) is None][:400]
    with make_oracle("random_future?oracle=solver&seed=3", game) as oracle, make_oracle("solver", game) as solver:
        lines, again = (oracle.analyse(states, 4) for _ in "ab")
        alone = [oracle.analyse([state], 4)[0] for state in states[:20]]
        best = solver.analyse(states, 4, move_values=True)
    assert lines == again
    assert lines[:20] == alone
    agreeing = 0
    for state, line, right in zip(states, lines, best, strict=True):
        assert line.moves[0] == right.moves[0]
        for move in line.moves:
            assert move in game.legal(state)
            state = game.play(state, move)
        assert line.ended == (game.outcome(state) is not None)
        assert line.ended or len(line.moves) == 4
        agreeing += line.moves == right.moves
    assert agreeing < 0.5 * len(states)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        make_oracle("random_future?oracle=solver&seed=x", game)


def test_an_unrelated_future_says_nothing_of_the_move(connect_data: Dataset, tmp_path: Path) -> None:
    game = genpolicy.load_game(CONNECT)
    windows = {}
    for future in ("labelled", "unrelated"):
        config = DiffusionConfig(network=TINY, horizon=3, redraw=False, future=future)
        learner = DiffusionLearner(game, config)
        windows[future] = learner.windows(connect_data, "train", seed=0)
    layout = learner.layout
    indices = np.arange(500)
    own, other = (windows[name].batch(indices, 1) for name in ("labelled", "unrelated"))
    upto = layout.first_action + 1
    assert torch.equal(own.tokens[:, :upto], other.tokens[:, :upto])
    changed = (own.tokens[:, upto:] != other.tokens[:, upto:]).any(1).double().mean()
    assert float(changed) > 0.95
    again = windows["unrelated"].batch(indices[100:110], 1)
    assert torch.equal(again.tokens, other.tokens[100:110])
    assert not torch.equal(windows["unrelated"].batch(indices, 2).tokens, other.tokens)
    every = windows["labelled"].batch(np.arange(len(windows["labelled"])), 1).tokens[:, upto:]
    known = {tuple(row) for row in every.tolist()}
    assert all(tuple(row) in known for row in other.tokens[:, upto:].tolist())
    validation = learner.windows(connect_data, "test", seed=0).batch(np.arange(5), 0)
    assert bool(validation.target.any())


@pytest.mark.parametrize("drawn", [{"redraw": True}, {"augment": True}, {"future": "unrelated"}])
def test_windows_are_drawn_anew_in_the_split_that_is_trained_on(drawn: dict[str, Any], connect_data: Dataset) -> None:
    config = DiffusionConfig(network=TINY, horizon=3, **{"redraw": False, **drawn})
    learner = DiffusionLearner(genpolicy.load_game(CONNECT), config)
    data = DataConfig(train="test", validation="train")
    stream = make_stream("diffusion", learner, connect_data, data, seed=0)
    assert stream.num_records is not None
    assert stream.num_records < len(learner.source(connect_data, "train", seed=0))
    trained, neighbour = (learner.windows(connect_data, split, seed=0) for split in ("test", "train"))
    measured = learner.source(connect_data, "test", seed=0)
    for windows, is_drawn in ((trained, True), (neighbour, False), (measured, False)):
        one, other = (windows.batch(np.arange(200), epoch).tokens for epoch in (1, 2))
        assert torch.equal(one, other) is not is_drawn


def test_scores_keep_the_scale_of_the_oracle_that_gave_them(monkeypatch: pytest.MonkeyPatch) -> None:
    game = genpolicy.load_game(CONNECT)
    solver = type(make_oracle("solver", game))
    monkeypatch.setattr(solver, "describe", lambda self: {"name": "solver", "centipawn_scale": 0.01})
    monkeypatch.setattr(solver, "scale", 0.01, raising=False)
    with make_oracle("random_future", game) as oracle:
        assert oracle.scale == oracle.describe()["centipawn_scale"] == 0.01
