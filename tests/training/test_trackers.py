"""``trainer.trackers``: the numbers of a run also go to W&B, MLflow and what else Accelerate knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from accelerate import tracking

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError
from tests.small_datasets import solved_connect


class RecordingTracker(tracking.GeneralTracker):
    name = "recording"
    requires_logging_directory = False
    main_process_only = True
    made: ClassVar[list[RecordingTracker]] = []

    def __init__(self, project: str, **options: Any) -> None:
        super().__init__()
        self.project, self.settings, self.lines, self.finished = project, {}, [], False
        self.made.append(self)

    @property
    def tracker(self) -> RecordingTracker:
        return self

    def start(self) -> None: ...

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.settings = values

    def log(self, values: dict[str, Any], step: int | None = None, **options: Any) -> None:
        self.lines.append({"step": step, **values})

    def finish(self) -> None:
        self.finished = True


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("data"), every=100)


def train(data: Dataset, out: Path, *trackers: str, **changed: Any) -> Path:
    settings = {
        "data.folder": str(data.folder),
        "data.validation": None,
        "learner.kind": "one_step",
        "learner.network": {"num_layers": 1, "width": 16, "num_heads": 2},
        "trainer.max_steps": 4,
        "trainer.batch_size": 8,
        "trainer.log_every": 2,
        "trainer.device": "cpu",
        "trainer.tensorboard": False,
        "trainer.trackers": list(trackers),
    }
    return genpolicy.train(None, {**settings, **changed}, out=out)


def test_a_tracker_gets_every_line_and_the_settings(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "recording", RecordingTracker)
    monkeypatch.setattr(RecordingTracker, "made", [])
    train(data, tmp_path / "run", "recording")
    (tracker,) = RecordingTracker.made
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert tracker.lines == lines
    assert [line["step"] for line in lines] == [2, 4]
    assert tracker.project == "genpolicy"
    assert tracker.settings["trainer.max_steps"] == 4
    assert tracker.settings["learner.kind"] == "one_step"
    assert tracker.settings["learner.network.width"] == 16
    assert tracker.settings["optim.betas"] == "[0.9, 0.999]"
    assert tracker.settings["data.validation"] == "null"
    # Of other types TensorBoard's tracker takes none.
    assert {type(value) for value in tracker.settings.values()} <= {int, float, str, bool}
    assert tracker.finished


def test_without_trackers_there_are_none(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingTracker, "made", [])
    train(data, tmp_path / "run")
    assert RecordingTracker.made == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("swanlab", "trainer.trackers: 'swanlab' is not installed: pip install swanlab, or leave it out"),
        ("nonsense", "trainer.trackers: .*nonsense"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_written(
    name: str, message: str, data: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(data, tmp_path / "run", name)
    assert not (tmp_path / "run").exists()
