"""A policy that judges positions, as an engine and in a picture: win, draw and loss from end to end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import genpolicy
from genpolicy.cli import main
from genpolicy.networks import NetworkConfig
from genpolicy_policy_baselines.policy_value import PolicyValueConfig, PolicyValueLearner
from tests.play.engine_session import Session

pytest.importorskip("chess")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    network = NetworkConfig(num_layers=1, width=16, num_heads=2, geometry="board", head="typed", move_rank=8)
    learner = PolicyValueLearner(genpolicy.load_game("chess"), PolicyValueConfig(network=network))
    return learner.policy().save_pretrained(tmp_path_factory.mktemp("judge") / "policy")


def test_the_engine_sends_what_the_network_says_of_draws(folder: Path) -> None:
    policy = genpolicy.load_policy(str(folder))
    (decision,) = policy.decide([policy.game.parse()])
    assert decision.wdl is not None
    with Session("--policy", str(folder)) as session:
        session.ask("uci", until="uciok")
        told = session.ask("isready", "position startpos", "go nodes 1")
        session.send("setoption name UCI_ShowWDL value false")
        without = session.ask("isready", "position startpos", "go nodes 1")
    (shares,) = {m.groups() for line in told if (m := re.search(r" wdl (\d+) (\d+) (\d+) ", line))}
    assert [int(each) / 1000 for each in shares] == pytest.approx(decision.wdl, abs=2e-3)
    assert sum(map(int, shares)) == 1000
    assert not any("wdl" in line for line in without)


def test_a_picture_and_its_figures_tell_draws(folder: Path, tmp_path: Path) -> None:
    out, figures = tmp_path / "plan.svg", tmp_path / "plan.json"
    assert main(["show", "--policy", str(folder), "--out", str(out), "--json", str(figures)]) == 0
    said = json.loads(figures.read_text())
    assert sum(said["wdl"]) == pytest.approx(1)
    assert said["stats"]["plies_left"] > 0
    assert "White: {:.0%} win, {:.0%} draw, {:.0%} loss".format(*said["wdl"]) in out.read_text()
