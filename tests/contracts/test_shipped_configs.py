"""Every configuration that is shipped composes, its learner's section too."""

from __future__ import annotations

from pathlib import Path

import pytest

from genpolicy import load_game, registry
from genpolicy.config import compose, structured
from genpolicy.sequence import PARADIGMS
from genpolicy.shipped import data_folder
from genpolicy.training.config import RunConfig
from genpolicy.training.setup import make_learner
from genpolicy_experiments.description import Experiment
from genpolicy_loop.config import LoopConfig
from genpolicy_loop.runner import Loop

ROOT = Path(__file__).resolve().parents[2]
ALL = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "configs").rglob("*.yaml"))
LOOPS = [file for file in ALL if Path(file).name.startswith("loop")]
FILES = [file for file in ALL if "experiments" not in file and file not in LOOPS]
EXPERIMENTS = [file for file in ALL if "experiments" in file and not file.endswith("base.yaml")]


def test_there_are_configurations() -> None:
    assert "configs/chess/demo.yaml" in FILES
    assert "configs/chess/diffusearch-10k.yaml" in FILES


@pytest.mark.parametrize("file", FILES)
def test_shipped_config_composes(file: str) -> None:
    config = compose(RunConfig, [ROOT / file])
    options = dict(config.learner)
    learner = registry.load("learners", options.pop("kind"))
    structured(learner.Config, options, where=file, prefix="learner")
    assert config.data.folder or Path(file).name.startswith("diffusearch")


@pytest.mark.parametrize("file", LOOPS)
def test_shipped_loop_composes(file: str, tmp_path: Path) -> None:
    """Its own keys, and the configuration of each learner."""
    loop = Loop(compose(LoopConfig, [ROOT / file], [f"out={tmp_path}"]))
    for settings in loop.learners.values():
        config = structured(RunConfig, settings)
        options = dict(config.learner)
        structured(registry.load("learners", options.pop("kind")).Config, options, where=file, prefix="learner")


@pytest.mark.parametrize("file", EXPERIMENTS)
@pytest.mark.parametrize("most", [2, pytest.param(1000, marks=pytest.mark.thorough)], ids=["some", "all"])
def test_shipped_experiment_composes(file: str, most: int) -> None:
    """Every cell, or some: its training configuration, its learner's options, a layout that its paradigm can have."""
    experiment = Experiment(ROOT / file)
    # A newcomer must have the data, or be able to make them.
    assert experiment.file.data.make or (data_folder(experiment.file.data.folder) / "dataset.yaml").is_file()
    for cell in experiment.cells[:: -(-len(experiment.cells) // most)]:
        data = experiment.configuration(cell, 0)
        options = dict(data["learner"])
        learner = registry.load("learners", options.pop("kind"))
        config = structured(learner.Config, options, where=cell.name, prefix="learner")
        known = getattr(learner, "policy_class", None)
        if hasattr(config, "paradigm"):
            assert config.paradigm in PARADIGMS
        if known is not None:
            assert set(cell.play) - {"policy"} <= set(known.option_names()), cell.name
    names = {cell.name for cell in experiment.cells}
    assert set(experiment.file.published.values) <= names


@pytest.mark.parametrize("file", [file for file in FILES if "bias_lr" in (ROOT / file).read_text()])
def test_a_rate_of_tables_has_tables_to_move(file: str) -> None:
    config = compose(RunConfig, [ROOT / file])
    learner = make_learner(load_game(config.game), config.learner)
    assert any(group.get("tables") for group in learner.param_groups(0.1))
