"""Every configuration that is shipped composes, its learner's section too."""

from __future__ import annotations

from pathlib import Path

import pytest

from genpolicy import registry
from genpolicy.config import compose, structured
from genpolicy.training.config import RunConfig

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "configs").rglob("*.yaml"))


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
