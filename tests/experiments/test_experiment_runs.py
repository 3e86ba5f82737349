"""``genpolicy experiment``: data that changes in the middle, damaged files, kills, folders that cannot be used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from genpolicy.cli import main
from genpolicy.data.records import Dataset
from genpolicy.folder_lock import FolderLock
from genpolicy.machine import num_cores
from genpolicy.training.checkpoint import differences
from genpolicy_experiments import commands, making, plots, stored, worker
from genpolicy_experiments import runner as runners
from genpolicy_experiments.defaults import _without_idle
from genpolicy_experiments.description import Experiment
from genpolicy_experiments.making import make_data
from tests import warm

# On one worker, so that what the module trains is trained once.
pytestmark = [pytest.mark.usefixtures("warm_start"), pytest.mark.xdist_group("experiment-runs")]

GAME = "connect:rows=3,cols=3,k=3"
NETWORK = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 8}
TRAINER = {"batch_size": 32, "eval_records": 0, "accuracy_records": 0, "tensorboard": False, "checkpoint_every": 2}
COMMAND = [sys.executable, "-c", "import sys; from genpolicy.cli import main; sys.exit(main())", "experiment"]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two versions of one data set: other games are in the test split."""
    folder = tmp_path_factory.mktemp("versions")
    made = []
    for name, split in (("one", "0.4/0.1/0.5"), ("two", "0.5/0.1/0.4")):
        raw = folder / f"{name}-raw"
        assert main(["data", "import", "all", "--game", GAME, "--split", split, "--out", str(raw)]) == 0
        label = ["data", "label", str(raw), "--oracle", "solver", "--horizon", "1", "--out", str(folder / name)]
        assert main(label) == 0
        made.append(folder / name)
    return made[0], made[1]


def test_the_bound_is_over_windows_spread_over_the_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []

    class Windows:
        def __len__(self) -> int:
            return 13

        def batch(self, rows: Any, epoch: int) -> Any:
            seen.append(rows.tolist())

    learner = SimpleNamespace(source=lambda *a, **k: Windows(), elbo=lambda *a: torch.ones(1), eval=lambda: None)
    monkeypatch.setattr(worker, "load_policy", lambda folder: SimpleNamespace(learner=learner))
    monkeypatch.setattr(worker, "BOUND_WINDOWS", 5)
    config = SimpleNamespace(data=SimpleNamespace(validation="validation"))
    assert worker._bound(tmp_path, config, SimpleNamespace(splits={"validation": 13}), None) == 1  # type: ignore[arg-type]
    assert seen == [[0, 3, 6, 9, 12]]


def describe(folder: Path, data: Path, **changes: Any) -> Path:
    description: dict[str, Any] = {
        "name": "runs",
        "data": {"folder": str(data)},
        "run": {"learner": {"kind": "one_step", "network": NETWORK}, "trainer": TRAINER},
        "seeds": [0],
        "budget": {"records": 64},
        "evaluate": {"positions": 30},
    }
    path = folder / "runs.yaml"
    path.write_text(yaml.safe_dump({**description, **changes}, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def finished(versions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A description and the folder of its finished run."""
    folder = tmp_path_factory.mktemp("finished")
    path = describe(folder, versions[0])
    with warm.starts():
        assert main(["experiment", str(path), "--out", str(folder / "out")]) == 0
    return path, folder / "out"


@pytest.fixture
def copied(finished: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path, Path]:
    """A description, a folder with its finished run that may be harmed, and the run's folder."""
    shutil.copytree(finished[1], tmp_path / "out")
    (run,) = (tmp_path / "out" / "runs").iterdir()
    return finished[0], tmp_path / "out", run


def replace(folder: Path, version: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(version, folder)


@pytest.mark.thorough
def test_data_that_is_replaced_in_the_middle_is_not_mixed_in(tmp_path: Path, versions: tuple[Path, Path]) -> None:
    """Three seeds one after the other; the folder is replaced while the first of them trains."""
    data, out = tmp_path / "data", tmp_path / "out"
    replace(data, versions[0])
    old, new = (Dataset.open(version).checksum for version in versions)
    path = describe(tmp_path, data, seeds=[0, 1, 2], budget={"records": 3200})
    process = subprocess.Popen(
        [*COMMAND, str(path), "--out", str(out), "--parallel", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("runs/*/run/checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    replace(data, versions[1])
    said = process.communicate()[1].decode()
    assert process.returncode == 2
    assert f"{data}: the data changed while the runs were made (its checksum was {old[:12]} and is {new[:12]})" in said
    assert "Run the same command again" in said
    assert "Traceback" not in said
    assert not list(out.glob("runs/*/measured-*.json"))
    assert {stored.trained_on(folder) for folder in (out / "runs").iterdir()} == {old}


@pytest.mark.parametrize("when", ["before training", "before measuring"])
def test_a_run_whose_data_is_another_version_fails(when: str, tmp_path: Path, versions: tuple[Path, Path]) -> None:
    path = describe(tmp_path, versions[0])
    experiment = Experiment(path)
    runner = runners.Runner(experiment, tmp_path / "out")
    (job,) = runner.jobs()
    checksum, other = job.trained_on, "0" * 64
    said = {
        "parent": os.getppid(),
        "folder": str(job.folder / "run"),
        "config": job.run.config,
        "budget": job.run.budget,
        "evaluate": {"split": "test", "positions": 30, "folder": str(versions[0])},
        "plays": job.plays,
        "results": str(job.folder),
        "records": {
            "trained_on": other if when == "before training" else checksum,
            "measured_on": other if when == "before measuring" else checksum,
        },
    }
    job.folder.mkdir(parents=True)
    (job.folder / "job.json").write_text(json.dumps(said))
    with pytest.raises(ValueError, match="the data changed while the runs were made"):
        worker.main([str(job.folder / "job.json")])
    assert (job.folder / "trained.json").exists() == (when == "before measuring")
    assert not list(job.folder.glob("measured-*"))


def test_a_run_of_other_data_under_its_key_is_left_out_and_made_anew(
    copied: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, run = copied
    told = run / "run" / "policy" / "provenance.json"
    facts = json.loads(told.read_text())
    told.write_text(json.dumps({**facts, "dataset": {**facts["dataset"], "checksum": "0" * 64}}))
    assert main(["experiment", str(path), "--out", str(out), "--table-only"]) == 2
    assert f"{run}: trained on another version of the data" in capsys.readouterr().err
    assert main(["experiment", str(path), "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert f"it is kept as {run}.other-data" in said
    assert stored.trained_on(run) == facts["dataset"]["checksum"]
    assert (run.with_name(f"{run.name}.other-data") / "trained.json").exists()


HARM: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda whole: whole[:100],
    "empty": lambda whole: b"",
    "list": lambda whole: b"[]",
    "deep": lambda whole: b"[" * 100_000,
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_a_damaged_measurement_is_named(suffix: str, harm: str, copied: tuple[Path, Path, Path]) -> None:
    run = copied[2]
    (file,) = run.glob(f"measured-*.{suffix}")
    assert stored.measured(run, file.stem) is not None
    file.write_bytes(HARM[harm](file.read_bytes()))
    with pytest.raises(stored.DamagedError, match=rf"{file.name}: damaged"):
        stored.measured(run, file.stem)
    file.unlink()
    if suffix == "json":
        assert stored.measured(run, file.stem) is None
    else:
        with pytest.raises(stored.DamagedError, match="missing"):
            stored.measured(run, file.stem)


@pytest.mark.parametrize(("suffix", "harm"), [("json", "list"), ("npz", "cut off")])
def test_a_damaged_measurement_is_made_again(
    suffix: str, harm: str, copied: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, run = copied
    (file,), (hits,) = run.glob(f"measured-*.{suffix}"), run.glob("measured-*.npz")
    whole, trained = hits.read_bytes(), (run / "trained.json").stat().st_mtime_ns
    file.write_bytes(HARM[harm](file.read_bytes()))
    assert main(["experiment", str(path), "--out", str(out), "--table-only"]) == 2
    assert f"{file}: damaged" in capsys.readouterr().err
    assert main(["experiment", str(path), "--out", str(out)]) == 0
    assert f"{file}: damaged" in capsys.readouterr().err
    assert hits.read_bytes() == whole
    assert (run / "trained.json").stat().st_mtime_ns == trained


@pytest.mark.parametrize("file", ["trained.json", "run/policy/model.safetensors"])
def test_what_training_left_is_made_anew_where_it_is_damaged(file: str, copied: tuple[Path, Path, Path]) -> None:
    """The figures from the policy, the policy from its last checkpoint."""
    path, out, run = copied
    whole = {name: (run / name).read_bytes() for name in ("trained.json", "run/policy/model.safetensors")}
    for measured in run.glob("measured-*"):
        measured.unlink()
    (run / file).write_bytes(whole[file][: len(whole[file]) // 2])
    assert main(["experiment", str(path), "--out", str(out)]) == 0
    assert {name: (run / name).read_bytes() for name in whole} == whole
    assert f"{file.rpartition('/')[2]}" in (run / "log.txt").read_text()


def test_a_damaged_failure_is_still_one(copied: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    path, out, run = copied
    for measured in run.glob("measured-*"):
        measured.unlink()
    (run / "failed.json").write_text("xx")
    assert main(["experiment", str(path), "--out", str(out), "--plan"]) == 0
    assert f"failed: {run}/failed.json: damaged" in capsys.readouterr().out
    assert main(["experiment", str(path), "--out", str(out), "--table-only"]) == 2
    assert "Fix it and run the command again" in capsys.readouterr().err


def test_other_positions_are_never_compared(
    copied: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, run = copied
    (file,) = run.glob("measured-*.npz")
    arrays = stored.hits(file)
    older = {name: array for name, array in arrays.items() if name != stored.POSITIONS}
    stored.require_same_positions({file: arrays, file.with_name("older.npz"): older})
    for which, changed in (
        (stored.POSITIONS, np.array("0" * 64)),
        (stored.CLUSTERS, np.roll(arrays[stored.CLUSTERS], 1)),
    ):
        other = {**arrays, which: changed}
        with pytest.raises(ValueError, match=r"other\.npz: measured on other positions than .*delete the wrong one"):
            stored.require_same_positions({file: arrays, file.with_name("other.npz"): other, run / "a.npz": arrays})


def test_old_runs_in_a_shared_folder_are_told_where_only_the_data_changed(
    tmp_path: Path, versions: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data, runs = tmp_path / "data", tmp_path / "shared"
    replace(data, versions[0])
    axes = {"rate": {"a": {"optim.lr": 1e-3}, "b": {"optim.lr": 2e-3}}}
    path = describe(tmp_path, data, axes=axes)
    call = ["experiment", str(path), "--out", str(tmp_path / "out"), "--runs", str(runs)]
    assert main([*call, "--parallel", "2"]) == 0
    old = {json.loads(file.read_text())["name"][0]: file.parent.name for file in runs.glob("*/job.json")}
    assert "Command: genpolicy experiment" in (markdown := (tmp_path / "out" / "runs.md").read_text())
    assert f"--out {tmp_path / 'out'} --runs {runs} --parallel 2; commit" in markdown
    replace(data, versions[1])
    capsys.readouterr()
    assert main([*call, "skip=[{rate: b}]", "--table-only"]) == 2
    told = capsys.readouterr().err
    assert "1 runs in" in told
    assert old["a"] in told
    assert old["b"] not in told  # a cell that this experiment does not have is somebody else's
    assert "run the command without --table-only" in told


@pytest.mark.parametrize("kind", ["records", "steps"])
def test_a_run_that_fell_short_of_its_budget_is_named(kind: str, copied: tuple[Path, Path, Path]) -> None:
    path, out, run = copied
    experiment = Experiment(path)
    results = runners.Runner(experiment, out).results()
    assert commands.short_of_budget(experiment, results) == []
    if kind == "records":
        (file,) = run.glob("measured-*.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "records": 32}))
        results = runners.Runner(experiment, out).results()
    else:
        experiment.file.budget = {"steps": 64}
    (note,) = commands.short_of_budget(experiment, results)
    spent = "32 of 64 records" if kind == "records" else "2 of 64 steps"
    assert note.startswith(f"SHORT OF ITS BUDGET: all, seed 0: {spent}")


def test_runs_that_a_new_run_would_not_be_like_are_named(
    copied: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A default may change after a run has finished; what the description says itself stays as it is."""
    path, out, run = copied
    call = ["experiment", str(path), "--out", str(out), "--table-only"]
    assert main(call) == 0
    assert "OTHER DEFAULTS" not in capsys.readouterr().out
    file = run / "run" / "config.yaml"
    saved = yaml.safe_load(file.read_text())
    saved["optim"]["warmup"] = 0.5
    del saved["learner"]["network"]["shown_moves"]  # newer than the run, and nothing to a policy that does not imagine
    file.write_text(yaml.safe_dump(saved))
    assert main(call) == 0
    shown = " ".join(capsys.readouterr().out.split())
    changed = "optim.warmup was 0.5 and is 0.02"
    assert f"OTHER DEFAULTS THAN TODAY'S: {changed}: all, seed 0 (delete {run}, and" in shown


@pytest.mark.parametrize(("kind", "counts"), [("one_step", False), ("diffusion", True)])
def test_an_option_of_the_network_counts_where_it_makes_another_one(kind: str, counts: bool) -> None:
    now: dict[str, Any] = {"learner": {"kind": kind, "network": {**NETWORK, "shown_moves": None}}}
    then: dict[str, Any] = {"learner": {"kind": kind, "network": {**NETWORK, "shown_moves": False}}}
    left = differences(then, _without_idle(GAME, then, now))
    assert left == ["learner.network.shown_moves was False and is None"] * counts


def test_a_policy_that_cells_begin_with_is_made_where_the_data_is_there(
    tmp_path: Path, versions: tuple[Path, Path]
) -> None:
    """By commands that can be given again."""
    replace(tmp_path / "data", versions[0])
    settings = [f"learner.network.{key}={value}" for key, value in NETWORK.items()]
    settings += [f"trainer.{key}={value}" for key, value in TRAINER.items()]
    train = ["train", "data.folder={folder}", "learner.kind=one_step", *settings, "trainer.max_steps=1", "--resume"]
    made = {"folder": str(tmp_path / "data"), "make": [" ".join([*train, "--out", "{folder}-policy"])]}
    path = describe(tmp_path, tmp_path / "data")
    description = yaml.safe_load(path.read_text())
    description["run"]["init_from"] = str(tmp_path / "data-policy" / "policy")
    path.write_text(yaml.safe_dump({**description, "data": made}, sort_keys=False))
    experiment = Experiment(path)
    for _ in range(2):
        make_data(experiment, print)
        assert (tmp_path / "data-policy" / "policy" / "config.yaml").is_file()
    shutil.rmtree(tmp_path / "data-policy" / "policy")  # as after a kill
    make_data(experiment, print)
    assert (tmp_path / "data-policy" / "policy" / "config.yaml").is_file()


@pytest.mark.parametrize(
    ("change", "is_of_cell"),
    [
        ({}, True),
        ({"folder": "moved"}, True),
        ({"trained_on": "b"}, True),  # the folder holds another version
        ({"folder": "moved", "trained_on": "b"}, False),
        ({"folder": "moved", "trained_on": None}, False),
        ({"kind": "direct"}, False),
    ],
)
def test_other_seeds_of_a_cell_are_found_where_its_data_was_moved(
    change: dict[str, Any], is_of_cell: bool, tmp_path: Path
) -> None:
    def job(seed: int, kind: str = "one_step", folder: str = "data", trained_on: str | None = "a") -> dict[str, Any]:
        config = {"learner": {"kind": kind}, "data": {"folder": folder}, "trainer": {"seed": seed}}
        return {"config": config, "records": {"trained_on": trained_on}}

    (tmp_path / "first").mkdir()
    (tmp_path / "first" / stored.JOB).write_text(json.dumps(job(0)))
    found = list(worker.other_seeds(job(1, **change), tmp_path / "second"))
    assert found == [tmp_path / "first" / "run" / "config.yaml"] * is_of_cell


def _a_file(path: Path) -> None:
    path.write_text("not a folder")


def _read_only(path: Path) -> None:
    path.mkdir()
    path.chmod(0o555)


@pytest.mark.parametrize("option", ["--out", "--runs"])
@pytest.mark.parametrize(("spoil", "why"), [(_a_file, "is a file"), (_read_only, "may not be written to")])
def test_folders_that_cannot_be_used_are_refused_before_anything_is_made(
    spoil: Callable[[Path], None],
    why: str,
    option: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoiled = tmp_path / "spoiled"
    spoil(spoiled)
    monkeypatch.setattr(os, "access", lambda path, mode: bool(Path(path).stat().st_mode & 0o200))  # root may all
    out = [] if option == "--out" else ["--out", str(tmp_path / "out")]
    path = describe(tmp_path, tmp_path / "never-made")
    assert main(["experiment", str(path), *out, option, str(spoiled)]) == 2
    assert f"{spoiled}: {why}" in (said := capsys.readouterr().err)
    assert f"name another folder with {option}" in said


@pytest.mark.parametrize("setting", ["parallel=0", "parallel=-1", "threads=0", "--parallel=0", "--parallel=-1"])
def test_runs_at_once_are_at_least_one(
    setting: str, finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", str(finished[0]), "--out", str(tmp_path), setting]) == 2
    assert "at least 1" in capsys.readouterr().err


def test_cores_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 8}, raising=False)
    assert num_cores() == 3


def test_a_process_whose_parent_is_gone_already_ends() -> None:
    """Its parent was killed before it could ask who that is."""
    code = "import time; from genpolicy_common.children import follow_parent; follow_parent(1 << 22); time.sleep(60)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode < 0


@pytest.mark.parametrize("option", ["--out", "--runs"])
def test_a_folder_in_which_an_experiment_runs_is_refused(
    option: str, copied: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, _ = copied
    (tmp_path / "shared").mkdir()
    folder = {"--out": out, "--runs": tmp_path / "shared"}[option]
    with FolderLock(folder, "tests", ""):
        assert main(["experiment", str(path), "--out", str(out), "--runs", str(tmp_path / "shared")]) == 2
    said = capsys.readouterr().err
    assert f"{folder}: another process runs an experiment there (process {os.getpid()} on " in said
    assert f"choose another {option}" in said


def test_runs_may_lie_beside_their_table(copied: tuple[Path, Path, Path]) -> None:
    # The folder was locked twice, so the command said that another process ran there: itself.
    path, out, _ = copied
    folder = str(out / "runs")
    assert main(["experiment", str(path), "--out", folder, "--runs", folder]) == 0


@pytest.mark.parametrize("out", [["--out", "pre"], ["--out=pre"], ["out=pre"]])
def test_a_policy_that_a_command_makes_is_found_however_its_folder_is_spelled(
    out: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", "--config", "connect/s-a-3x3", *out]
    assert not making._is_trained(command)
    (tmp_path / "pre" / "policy").mkdir(parents=True)
    assert making._is_trained(command)
    assert making._is_trained(["data", "import", *out])


@pytest.mark.parametrize(
    ("label", "is_number"), [("4", True), ("1e-3", True), ("inf", False), ("nan", False), ("x", False)]
)
def test_labels_on_an_axis_of_numbers_are_finite(label: str, is_number: bool) -> None:
    assert plots._is_number(label) is is_number
