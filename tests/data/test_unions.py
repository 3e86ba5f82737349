"""Several data sets read as one: by their checksums, of one game, none of them twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from genpolicy import cli, load_game
from genpolicy.config import compose
from genpolicy.data import window_build
from genpolicy.data.records import Dataset, Record
from genpolicy.data.window_source import build_windows
from genpolicy.data.windows import WindowOptions
from genpolicy.errors import CheckpointError, ConfigError, DatasetError
from genpolicy.sequence import Layout
from genpolicy.training.config import RunConfig
from genpolicy.training.loop import train
from tests.small_datasets import CONNECT, solved_connect, write_dataset

pytestmark = pytest.mark.usefixtures("warm_start")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Records whose first half has the smaller checksum, so that a union of its halves reads as it does."""
    folder = tmp_path_factory.mktemp("whole")
    records = list(solved_connect(folder / "solved", every=20).records())[:226]
    halves = [write_dataset(folder / str(i), CONNECT, records[i : i + 113]) for i in (0, 113)]
    ordered = sorted(halves, key=lambda half: half.checksum)
    return write_dataset(folder / "whole", CONNECT, [record for half in ordered for record in half.records()])


@pytest.fixture
def halves(whole: Dataset, tmp_path: Path) -> list[Dataset]:
    records = list(whole.records())
    middle = len(records) // 2
    return [
        write_dataset(tmp_path / name, CONNECT, r) for name, r in (("a", records[:middle]), ("b", records[middle:]))
    ]


def configuration(folders: object, out: Path, *overrides: str) -> RunConfig:
    settings = [
        f"data.folder={json.dumps(folders)}",
        "data.validation=test",
        "learner.kind=one_step",
        "learner.network.num_layers=1",
        "learner.network.width=16",
        "learner.network.num_heads=2",
        "trainer.device=cpu",
        "trainer.batch_size=8",
        "trainer.max_steps=4",
        "trainer.tensorboard=false",
        f"out={out}",
    ]
    return compose(RunConfig, overrides=[*settings, *overrides])


def test_a_union_reads_as_the_whole(whole: Dataset, halves: list[Dataset]) -> None:
    union = Dataset.open([half.folder for half in halves])
    assert list(union.records()) == list(whole.records())
    assert (union.num_records, union.splits, union.game_spec) == (whole.num_records, whole.splits, whole.game_spec)
    assert union.columns(["state"], "test").equals(whole.columns(["state"], "test"))
    assert union.label == f"{halves[0].folder} + {halves[1].folder}"
    sums = {union.checksum, whole.checksum, *(half.checksum for half in halves)}
    assert len(sums) == 4
    other = Dataset.open([half.folder for half in reversed(halves)])
    assert other.checksum == union.checksum, "the order in which they are named does not count"
    assert list(other.records()) == list(union.records())
    assert Dataset.open([whole.folder]).checksum == whole.checksum


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_windows_of_a_union_are_those_of_the_whole(
    whole: Dataset, halves: list[Dataset], workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_build, "num_cores", lambda: workers)
    monkeypatch.setattr(window_build, "PARALLEL_RECORDS", 1)
    monkeypatch.setattr(window_build, "BATCH_ROWS", 16)
    game, union = load_game(CONNECT), Dataset.open([half.folder for half in halves])
    layout, options = Layout(game, "s-asa", 3), WindowOptions(redraw=True, cache_dir=tmp_path / "cache")
    one, other = (build_windows(dataset, "train", game, layout, options) for dataset in (whole, union))
    assert len(one) == len(other)
    for epoch in range(3):
        indices = np.arange(len(one))
        assert (one.batch(indices, epoch).tokens == other.batch(indices, epoch).tokens).all()


def test_a_run_trains_on_a_union_and_says_of_what(halves: list[Dataset], tmp_path: Path) -> None:
    folders = [str(half.folder) for half in halves]
    folder = train(configuration(folders, tmp_path / "run"))
    facts = json.loads((folder / "provenance.json").read_text())["dataset"]
    assert facts["checksum"] == Dataset.open(folders).checksum
    assert [part["checksum"] for part in facts["parts"]] == [half.checksum for half in halves]
    assert [part["folder"] for part in facts["parts"]] == folders
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data"]["folder"] == folders
    train(configuration(folders, tmp_path / "run", "trainer.max_steps=6"), resume=True)
    with pytest.raises(CheckpointError, match=r"dataset was \['.*', '.*'\] and is '"):
        train(configuration(folders[0], tmp_path / "run", "trainer.max_steps=8"), resume=True)
    # Resuming from the folder alone reads the list out of the run's own configuration.
    assert cli.main(["train", "--resume", "--out", str(tmp_path / "run"), "trainer.max_steps=7"]) == 0


def test_what_does_not_go_together_is_refused(halves: list[Dataset], tmp_path: Path) -> None:
    a, b = (half.folder for half in halves)
    copy = write_dataset(tmp_path / "copy", CONNECT, list(halves[0].records()))
    with pytest.raises(DatasetError, match=rf"{a} and {copy.folder} hold the same records .*list only one"):
        Dataset.open([a, b, copy.folder])
    other = load_game("connect:rows=3,cols=4,k=3,gravity=false")
    record = Record(state=other.format(other.parse()), line=other.moves[0], split="train")
    elsewhere = write_dataset(tmp_path / "other", other.spec, [record])
    with pytest.raises(DatasetError, match=rf"{elsewhere.folder}: its game is .*cols=4"):
        Dataset.open([a, elsewhere.folder])
    scaled = tmp_path / "scaled"
    write_dataset(scaled, CONNECT, list(halves[1].records()))
    info = yaml.safe_load((scaled / "dataset.yaml").read_text())
    (scaled / "dataset.yaml").write_text(yaml.safe_dump({**info, "oracle": {"centipawn_scale": 2.0}}))
    with pytest.raises(DatasetError, match=rf"{scaled}: its centipawn scale is 2\.0"):
        Dataset.open([a, scaled])
    with pytest.raises(DatasetError, match="at least one folder"):
        Dataset.open([])
    with pytest.raises(DatasetError, match="gone"):
        Dataset.open([a, tmp_path / "gone"])
    with pytest.raises(ConfigError, match=r"data\.folder is a folder or a list of folders, got 7"):
        configuration(7, tmp_path / "run")
