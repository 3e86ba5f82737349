"""``genpolicy experiment --cluster``: the runs and the table of one machine, whoever is lost and whatever is shared."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from genpolicy import registry
from genpolicy.cli import main
from genpolicy.data.records import Dataset
from genpolicy.files import disk_full
from genpolicy_experiments import on_cluster, stored, worker
from tests import warm
from tests.cluster.threads import Threads

# On one worker, so that what the module trains is trained once.
pytestmark = [pytest.mark.usefixtures("warm_start"), pytest.mark.xdist_group("experiment-cluster")]

GAME = "connect:rows=3,cols=3,k=3"
NETWORK = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 8}
TRAINER = {"batch_size": 32, "eval_records": 0, "accuracy_records": 0, "tensorboard": False, "checkpoint_every": 1}
COMMAND = [sys.executable, "-c", "import sys; from genpolicy.cli import main; sys.exit(main())", "experiment"]
THREADS = ("--cluster", "threads:here", "--parallel", "2")


@pytest.fixture(autouse=True)
def _registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    registry.register("clusters", "threads")(Threads)
    yield
    registry.unregister("clusters", "threads")


def describe(folder: Path, data: Path, **changes: Any) -> Path:
    description: dict[str, Any] = {
        "name": "runs",
        "data": {"folder": str(data)},
        "run": {"learner": {"kind": "one_step", "network": NETWORK}, "trainer": TRAINER},
        "seeds": [0, 1],
        "budget": {"records": 64},
        "evaluate": {"positions": 30},
    }
    path = folder / "runs.yaml"
    path.write_text(yaml.safe_dump({**description, **changes}, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An experiment of two runs, and its folder after it was made without a cluster."""
    folder = tmp_path_factory.mktemp("here")
    assert main(["data", "import", "all", "--game", GAME, "--split", "0.4/0.1/0.5", "--out", str(folder / "raw")]) == 0
    data = ["data", "label", str(folder / "raw"), "--oracle", "solver", "--horizon", "1", "--out", str(folder / "data")]
    assert main(data) == 0
    path = describe(folder, folder / "data")
    with warm.starts():
        assert main(["experiment", str(path), "--out", str(folder / "out")]) == 0
    return path, folder / "out"


def figures(out: Path) -> dict[str, Any]:
    """Everything that does not depend on the clock, by run: weights, hits, figures."""
    found: dict[str, Any] = {}
    for run in sorted((out / "runs").iterdir()):
        assert not list(run.rglob(f"*{on_cluster.PART}"))
        (name,) = (file.stem for file in run.glob("measured-*.json"))
        measured = stored.measured(run, name)
        assert measured is not None
        clock = ("ms", "ms_one_call", "minutes")
        found[run.name] = (
            (run / "run" / "policy" / "model.safetensors").read_bytes(),
            {key: hits.tolist() for key, hits in stored.hits(run / f"{name}.npz").items()},
            {key: value for key, value in measured.items() if key not in clock},
        )
    return found


def table(out: Path) -> list[str]:
    """The rows of the table."""
    return [line for line in (out / "runs.csv").read_text().splitlines() if not line.startswith(("ms", "minutes"))]


def test_runs_on_workers_that_see_the_folder_are_those_of_one_machine(
    here: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, alone = here
    out = tmp_path / "out"
    assert main(["experiment", str(path), "--out", str(out), *THREADS]) == 0
    said = capsys.readouterr().err
    assert figures(out) == figures(alone)
    assert table(out) == table(alone)
    assert said.count(": begins on ") == 2
    assert re.search(r"\d workers? answered: ", said)
    assert not (tmp_path / "cache").exists()
    assert main(["experiment", str(path), "--out", str(out), *THREADS]) == 0
    assert "2 of 2 runs are finished already" in capsys.readouterr().err


def elsewhere(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Let workers see nothing of this machine but their own cache."""
    monkeypatch.setattr(on_cluster, "_place_of", lambda folder: None)
    has = on_cluster._has
    monkeypatch.setattr(on_cluster, "_has", lambda name, wanted: str(cache) in name and has(name, wanted))


def test_runs_on_workers_that_see_nothing_are_sent_and_come_back(
    here: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, alone = here
    out = tmp_path / "out"
    elsewhere(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr(on_cluster, "CHUNK_BYTES", 1000)
    assert main(["experiment", str(path), "--out", str(out), *THREADS]) == 0
    assert figures(out) == figures(alone)
    assert table(out) == table(alone)
    assert not list(out.rglob("checkpoints"))
    (data,) = (tmp_path / "cache" / "genpolicy" / "data").iterdir()
    assert data.name == stored.trained_on(next((out / "runs").iterdir()))
    assert not list((tmp_path / "cache" / "genpolicy" / "runs").iterdir())


@pytest.mark.parametrize("damage", ["a shard lost", "a shard cut", "dataset.yaml lost"])
def test_a_damaged_data_set_in_the_cache_is_fetched_anew(
    damage: str, here: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(monkeypatch, tmp_path / "cache")
    name, pipe = str(here[0].parent / "data"), Served()
    wanted = Dataset.open(name).checksum
    kept = Path(on_cluster._dataset(cast(Connection, pipe), name, wanted))
    shard = next(kept.glob("*.parquet"))
    lost = shard if "lost" in damage and "shard" in damage else kept / "dataset.yaml"
    shard.write_bytes(shard.read_bytes()[:-9]) if "cut" in damage else lost.unlink()
    assert on_cluster._dataset(cast(Connection, pipe), name, wanted) == str(kept)
    assert Dataset.open(kept).checksum == wanted
    assert [each.name for each in kept.parent.iterdir()] == [kept.name]
    asked = len(pipe.asked)
    assert on_cluster._dataset(cast(Connection, pipe), name, wanted) == str(kept)
    assert len(pipe.asked) == asked


class Served:
    """The pipe of a worker to a command that sends what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def send(self, question: Any) -> None:
        self.asked.append(question)

    def recv(self) -> Any:
        kind, folder, *rest = self.asked[-1]
        if kind == on_cluster.LIST:
            return on_cluster._data_files(folder)
        name, offset = rest
        return (Path(folder) / name).read_bytes()[offset:][: on_cluster.CHUNK_BYTES]


@pytest.mark.thorough
def test_runs_on_two_data_sets_are_the_same_on_workers_that_see_nothing(
    here: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, raw, other = here[0].parent / "data", tmp_path / "raw", tmp_path / "other"
    assert main(["data", "import", "all", "--game", GAME, "--split", "0.1/0.1/0.8", "--out", str(raw)]) == 0
    assert main(["data", "label", str(raw), "--oracle", "solver", "--horizon", "1", "--out", str(other)]) == 0
    both = {"data.folder": [str(data), str(other)], "data.shares": [0.9, 0.1]}
    turned = {"data.folder": [str(other), str(data)], "data.shares": [0.9, 0.1]}
    path = describe(tmp_path, data, axes={"on": {"one": {}, "both": both, "turned": turned}}, seeds=[0])
    alone, out = tmp_path / "alone", tmp_path / "out"
    assert main(["experiment", str(path), "--out", str(alone)]) == 0
    weights = {run[0] for run in figures(alone).values()}
    assert len(weights) == 3  # shares go with the folders, in their order
    elsewhere(monkeypatch, tmp_path / "cache")
    assert main(["experiment", str(path), "--out", str(out), *THREADS]) == 0
    assert figures(out) == figures(alone)
    assert len(list((tmp_path / "cache" / "genpolicy" / "data").iterdir())) == 2


@pytest.mark.thorough
def test_a_run_that_was_begun_here_resumes_on_a_worker_that_sees_nothing(
    here: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the command has of a run is sent, with its checkpoints."""
    path, alone = here
    out = tmp_path / "out"
    shutil.copytree(alone, out)
    begun, _ = sorted((out / "runs").iterdir())
    for file in (*begun.glob("measured-*"), begun / "trained.json"):
        file.unlink()
    shutil.rmtree(begun / "run" / "policy")
    last = max((begun / "run" / "checkpoints").iterdir())
    shutil.rmtree(last)
    elsewhere(monkeypatch, tmp_path / "cache")
    assert main(["experiment", str(path), "--out", str(out), *THREADS]) == 0
    assert re.search(r": resumes from step-0*1 on ", capsys.readouterr().err)
    assert figures(out) == figures(alone)


def test_a_run_that_fails_on_a_worker_is_named_with_it(
    here: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run = {"learner": {"kind": "one_step", "network": NETWORK}, "trainer": {**TRAINER, "device": "cuda:77"}}
    path = describe(tmp_path, here[0].parent / "data", run=run, seeds=[0])
    elsewhere(monkeypatch, tmp_path / "cache")
    assert main(["experiment", str(path), "--out", str(out), *THREADS]) == 2
    said = capsys.readouterr().err
    assert re.search(r"failed: all, seed 0: worker \S+:\d+: \w+: .*cuda", said)
    (log,) = out.glob("runs/*/log.txt")
    assert "Traceback" in log.read_text()


def test_a_worker_with_a_full_disk_is_named(
    here: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    elsewhere(monkeypatch, tmp_path / "cache")

    def fetch(pipe: Any, folder: str, name: str, to: Path) -> None:
        raise disk_full(to)

    monkeypatch.setattr(on_cluster, "_fetch", fetch)
    assert main(["experiment", str(here[0]), "--out", str(out), *THREADS]) == 2
    said = capsys.readouterr().err
    assert re.search(r"worker \S+:\d+: .*no space left on the disk.*run the same command again", said)


@pytest.mark.parametrize("unseen", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_lost_worker_costs_what_came_after_the_checkpoint(
    here: tuple[Path, Path],
    tmp_path: Path,
    unseen: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each run's first worker ends without a word, and its process by SIGKILL; another sees its checkpoints."""
    path, alone = here
    out = tmp_path / "out"
    if unseen:
        elsewhere(monkeypatch, tmp_path / "cache")
    wait, lost = on_cluster._wait, set[str]()

    def end(pipe: Any, process: Any) -> int:
        folder = Path(process.args[-1]).parent
        if folder.name in lost:
            return wait(pipe, process)
        lost.add(folder.name)
        while not list(folder.glob("run/checkpoints/step-*")):
            time.sleep(0.02)
        process.kill()
        process.wait()
        raise EOFError

    monkeypatch.setattr(on_cluster, "_wait", end)
    assert main(["experiment", str(path), "--out", str(out), *THREADS]) == 0
    said = capsys.readouterr().err
    assert said.count("is lost (") == 2
    assert said.count(": resumes from step-") == 2
    assert figures(out) == figures(alone)
    assert table(out) == table(alone)


def test_a_process_whose_run_was_given_to_another_worker_ends(tmp_path: Path) -> None:
    """As when a machine comes back that its command took for lost, though no lock says so."""
    job = {on_cluster.PLACE: "ours", "results": str(tmp_path)}
    assert worker.is_wanted(job)
    (tmp_path / stored.JOB).write_text(json.dumps(job))
    assert worker.is_wanted(job)
    (tmp_path / stored.JOB).write_text(json.dumps({**job, on_cluster.PLACE: "theirs"}))
    assert not worker.is_wanted(job)


@pytest.mark.slow
@pytest.mark.usefixtures("cold_start")
def test_kills_of_workers_and_commands_on_ray_cost_no_run(here: tuple[Path, Path], tmp_path: Path) -> None:
    """The command is killed twice when it has begun a run, then a worker that makes one; the table is the same."""
    pytest.importorskip("ray", reason="needs the extra [ray]")
    path, alone = here
    out = tmp_path / "out"
    words = [*COMMAND, str(path), "--out", str(out), "--cluster", "local", "--parallel", "2"]
    for _ in range(2):  # and Ray with all its workers with it
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        before = {job.stat().st_mtime_ns for job in out.glob("runs/*/job.json")}
        deadline = time.monotonic() + 120
        while not {job.stat().st_mtime_ns for job in out.glob("runs/*/job.json")} - before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
        process.communicate()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said, victim = "", None
    while victim is None and (line := process.stderr.readline()):
        said += line
        victim = re.search(r": (?:begins|resumes|starts over) .*on \S+:(\d+)", line)
    assert victim is not None, said
    os.kill(int(victim[1]), signal.SIGKILL)
    said += process.communicate(timeout=600)[1]
    assert process.returncode == 0, said
    assert re.search(rf"worker \S+:{victim[1]} is lost \(", said)
    assert figures(out) == figures(alone)
    assert table(out) == table(alone)
    jobs = [json.loads(job.read_text()) for job in out.glob("runs/*/job.json")]
    assert len({job[on_cluster.PLACE] for job in jobs}) == len(jobs) == 2
