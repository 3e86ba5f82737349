"""Metrics ``own:NAME`` of an experiment: what the learner measures itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from genpolicy.cli import main
from genpolicy.policies.base import load_policy
from genpolicy_experiments import own
from genpolicy_experiments.description import Experiment
from tests import warm

pytestmark = [pytest.mark.usefixtures("warm_start"), pytest.mark.xdist_group("experiment-runs")]
GAME = "connect:rows=3,cols=3,k=3"


def test_what_a_learner_measures_itself_is_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, data = tmp_path / "raw", tmp_path / "data"
    assert main(["data", "import", "all", "--game", GAME, "--split", "0.4/0.2/0.4", "--out", str(raw)]) == 0
    assert main(["data", "label", str(raw), "--oracle", "solver", "--horizon", "1", "--out", str(data)]) == 0
    network = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 8}
    trainer = {"batch_size": 32, "eval_records": 0, "accuracy_records": 0, "tensorboard": False}
    path = tmp_path / "own.yaml"
    description = {
        "data": {"folder": str(data)},
        "run": {"learner": {"kind": "policy_value", "network": network}, "trainer": trainer},
        "seeds": [0],
        "budget": {"records": 64},
        "evaluate": {"positions": 30},
        "metrics": ["best", "own:value_rank"],
    }
    path.write_text(yaml.safe_dump(description))
    command = ["experiment", str(path), "--out", str(tmp_path / "out")]
    with warm.starts():
        assert main(command) == 0
    experiment = Experiment(path)
    (run,) = (tmp_path / "out" / "runs").iterdir()
    measured = load_policy(run / "run" / "policy").learner.measure(experiment.dataset, "test", 30)  # type: ignore[union-attr]
    table = (tmp_path / "out" / "own.md").read_text()
    assert "value rank" in table
    assert f"{measured['value_rank']:.3f}" in table
    # It is kept, so a table alone is made without the weights.
    (kept,) = run.glob("own-*.json")
    kept.write_text(json.dumps({"value_rank": 0.123}))
    assert main([*command, "--table-only"]) == 0
    assert "0.123" in (tmp_path / "out" / "own.md").read_text()
    capsys.readouterr()
    description["metrics"] = ["best", "own:value_rang"]
    path.write_text(yaml.safe_dump(description))
    assert main([*command, "--table-only"]) == 0
    assert "No run has measured own:value_rang; there are: " in (said := capsys.readouterr().out)
    assert "own:value_rank" in said
    assert own.is_wanted(Experiment(path))
