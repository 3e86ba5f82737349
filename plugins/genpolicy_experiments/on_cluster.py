"""Makes the runs of an experiment on the workers of a cluster: one run at a time on each, in a process of its own.

A worker that sees the folder of a run, on this machine or on a shared disk, works there. Any other works in
``~/.cache/genpolicy/runs``, is sent what it lacks (data sets and policies by checksum, the run as far as it has come)
and sends back the policy, the measurements and the log. When a worker is lost, another one makes its run: from the last
checkpoint that it sees, else anew.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from genpolicy.config import structured
from genpolicy.data.records import INFO_FILE, Dataset, DatasetInfo
from genpolicy.errors import DatasetError
from genpolicy.files import full_disk_named, write_atomic
from genpolicy.shipped import data_folder
from genpolicy.training import setup
from genpolicy.training.checkpoint import newest
from genpolicy.training.config import RunConfig
from genpolicy.training.run import CHECKPOINTS
from genpolicy_common.cluster import Cluster, Crew, Lost, Worker
from genpolicy_common.shipping import cache, fetch, folders_of, move_into_cache, replaced
from genpolicy_experiments import stored, worker
from genpolicy_experiments.runner import Job, Runner

READY, LIST, READ, BEGUN, FILE, ENDED = "ready", "list", "read", "begun", "file", "ended"
RESULTS = ""
"""Stands for the folder of the run, beside names of data sets."""
PLACE, ON = "place", "on"
"""In ``job.json``: a random word by which a worker knows the folder when it sees it, and the worker's name."""
JOB_HERE = "job-on-worker.json"
PART = ".part"
CHUNK_BYTES = 1 << 22
SEEN_S = 60.0
"""So long may it take until this machine sees what a worker wrote on a shared disk."""


def make_runs(
    runner: Runner, waiting: Iterable[Job], cluster: Cluster, show: Callable[[Iterable[str], int], None]
) -> None:
    """Make runs on a cluster, and close it.

    Args:
        runner: Whose runs they are.
        waiting: The runs.
        cluster: Where.
        show: Told the names of the runs in progress, and how many more have ended.

    Raises:
        ClusterError: workers die one after the other, or have other versions.
        OSError, ValueError: a worker could not keep what it was sent; the message names it.
    """
    _Driver(runner, list(waiting), cluster, show).run()


class _Driver:
    def __init__(
        self, runner: Runner, waiting: list[Job], cluster: Cluster, show: Callable[[Iterable[str], int], None]
    ) -> None:
        self._runner, self._show = runner, show
        self._threads = runner.experiment.file.threads
        most = max(1, min(len(waiting), cluster.num_places // self._threads))
        self._crew: Crew[Job] = Crew(cluster, serve, os.getcwd(), say=runner.say, most=most)
        self._crew.waiting.extend(waiting)

    def run(self) -> None:
        crew = self._crew
        with closing(crew):
            while crew.waiting or crew.at_work:
                who, message = crew.event()
                if not isinstance(message, Lost):
                    self._answer(who, *message)
                while crew.idle and crew.waiting:
                    self._give(crew.waiting.popleft())
                self._show([f"{job.run.name} on {each.name}" for each, jobs in crew.at_work.items() for job in jobs], 0)
            if crew.answered:
                self._runner.say(crew.report())

    def _give(self, job: Job) -> None:
        """Have a worker make a run."""
        who = self._crew.give(job)
        before = _job_of(job)
        about = self._runner.begin(job)
        about |= {PLACE: secrets.token_hex(16), ON: who.name, "before": before.get(ON), "threads": self._threads}
        about |= {"results": str(job.folder.absolute()), "folder": str((job.folder / stored.RUN).absolute())}
        write_atomic(job.folder / stored.JOB, json.dumps(about, indent=2).encode())
        config = setup.as_begun(structured(RunConfig, about["config"]), worker.other_seeds(about, job.folder))
        about["config"] = {**about["config"], "learner": config.learner}
        about["policies"] = folders_of(set(_texts([{**about["config"], "data": {}}, about["plays"]])))
        who.send(about)

    def _answer(self, who: Worker, kind: str, *rest: Any) -> None:
        if kind == READY:
            self._crew.ready(who)
            return
        (job,) = self._crew.at_work[who]
        if kind == LIST:
            who.send(_data_files(rest[0]) if rest[0] else _run_files(job.folder))
        elif kind == READ:
            folder, name, offset = rest
            with ((data_folder(folder) if folder else job.folder) / name).open("rb") as file:
                file.seek(offset)
                who.send(file.read(CHUNK_BYTES))
        elif kind == BEGUN:
            self._runner.say(f"{job.run.name}: {rest[0]} on {who.name}")
        elif kind == FILE:
            _keep(job.folder, *rest)
        else:
            status, shared = rest
            deadline = time.monotonic() + SEEN_S
            while status == 0 and shared and not job.is_done and time.monotonic() < deadline:
                time.sleep(0.5)
            self._runner.ended(status, job, f"worker {who.name}: ")
            self._crew.at_work[who].clear()  # nobody else makes it, if the worker is lost before it is ready
            self._crew.credit(who)
            self._show([], 1)
            who.send(job.is_done)


def _job_of(job: Job) -> dict[str, Any]:
    """How a run was last begun; empty if it was not."""
    try:
        return stored.read_mapping(job.folder / stored.JOB)
    except (FileNotFoundError, stored.DamagedError):
        return {}


def _texts(value: Any) -> Iterator[str]:
    """All texts in plain values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _data_files(name: str) -> list[str]:
    return [*(str(shard["file"]) for shard in DatasetInfo.read(data_folder(name)).shards), INFO_FILE]


def _run_files(folder: Path, *, checkpoints: bool = True) -> list[str]:
    """What a run has made, without its log; a measurement's figures come last, since they say that it is whole."""
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    without = (stored.JOB, JOB_HERE, stored.FAILED, stored.LOG)
    kept = [name for name in names if name not in without and not name.endswith(PART) and "/." not in f"/{name}"]
    under = f"{stored.RUN}/{CHECKPOINTS}/"
    return sorted(
        (name for name in kept if checkpoints or not name.startswith(under)),
        key=lambda name: (not name.startswith(f"{stored.RUN}/"), name.endswith(".json"), name),
    )


def _keep(folder: Path, name: str, offset: int, chunk: bytes, last: bool) -> None:
    """Write a part of a file that a worker sends; the file is there when it is whole. Logs are joined."""
    path = folder / name
    part = path.with_name(f"{path.name}{PART}")
    part.parent.mkdir(parents=True, exist_ok=True)
    with full_disk_named(path):
        with part.open("ab" if offset else "wb") as file:
            file.write(chunk)
            if last:
                file.flush()
                os.fsync(file.fileno())
        if last and name == stored.LOG:
            with path.open("ab") as log:
                log.write(part.read_bytes())
            part.unlink()
        elif last:
            part.replace(path)


def serve(pipe: Connection, folder: str) -> None:
    """What a worker does: makes one run after the other until the command is gone.

    Args:
        pipe: To the command.
        folder: Where the command runs; relative names begin there, if this machine has it.
    """
    with suppress(OSError):
        os.chdir(folder)
    while True:
        pipe.send((READY,))
        _make(pipe, pipe.recv())


def _make(pipe: Connection, about: dict[str, Any]) -> None:
    theirs = Path(about["results"])
    shared = _place_of(theirs) == about[PLACE]
    here = theirs if shared else cache("runs") / theirs.name
    with full_disk_named(here):
        here.mkdir(parents=True, exist_ok=True)
        if not shared:
            (here / stored.LOG).unlink(missing_ok=True)
            if not (here / stored.RUN).exists():
                _fetch_run(pipe, here)
        ours = _here(pipe, about, here)
        write_atomic(here / JOB_HERE, json.dumps(ours, indent=2).encode())
    last = newest(here / stored.RUN / CHECKPOINTS)
    anew = f"starts over (its checkpoints on {about['before']} are not visible here)"
    said = f"resumes from {last.name}" if last else anew if about["before"] else "begins"
    pipe.send((BEGUN, said))
    status = _wait(pipe, stored.start(here / JOB_HERE, about["threads"]))
    if not shared:
        for name in [*([] if status else _run_files(here, checkpoints=False)), stored.LOG]:
            _send(pipe, here, name)
    pipe.send((ENDED, status, shared))
    if pipe.recv() and not shared:
        shutil.rmtree(here, ignore_errors=True)


def _place_of(folder: Path) -> str | None:
    with suppress(OSError, stored.DamagedError):
        return stored.read_mapping(folder / stored.JOB).get(PLACE)
    return None


def _here(pipe: Connection, about: dict[str, Any], here: Path) -> dict[str, Any]:
    """The description of a run with the names that this machine has for folders."""
    places = fetch(pipe, about["policies"])
    config, evaluate, versions = about["config"], about["evaluate"], about["versions"]
    trained_on = config["data"]["folder"]
    if isinstance(trained_on, str):
        trained_on = _dataset(pipe, trained_on, versions[trained_on])
    else:
        trained_on = [_dataset(pipe, folder, versions[folder]) for folder in trained_on]
    config = {**_replaced({**config, "data": {}}, places), "data": {**config["data"], "folder": trained_on}}
    return {
        **about,
        "parent": os.getpid(),
        "folder": str(here / stored.RUN),
        "results": str(here),
        "config": config,
        "evaluate": {**evaluate, "folder": _dataset(pipe, evaluate["folder"], versions[evaluate["folder"]])},
        "plays": _replaced(about["plays"], places),
    }


def _replaced(value: Any, places: Mapping[str, str]) -> Any:
    """Plain values with the places of policies in their texts."""
    if isinstance(value, str):
        return replaced(value, places)
    if isinstance(value, Mapping):
        return {key: _replaced(each, places) for key, each in value.items()}
    return [_replaced(each, places) for each in value] if isinstance(value, list) else value


def _dataset(pipe: Connection, name: str, wanted: str) -> str:
    """Where this machine has a data set; one that it lacks is fetched, and kept under its checksum."""
    kept = cache("data") / wanted
    if _has(name, wanted):
        return name
    if _is_whole(kept):
        return str(kept)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with full_disk_named(kept), tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        whole = Path(scratch) / "data"
        pipe.send((LIST, name))
        for file in pipe.recv():
            _fetch(pipe, name, file, whole / file)
        stored.require_version(name, wanted, actual=Dataset.open(whole).checksum)
        move_into_cache(whole, kept, _is_whole)
    return str(kept)


def _is_whole(kept: Path) -> bool:
    """Whether a data set in the cache, a folder named by its checksum, is there and undamaged."""
    with suppress(DatasetError, OSError):
        return Dataset.open(kept).checksum == kept.name
    return False


def _has(name: str, wanted: str) -> bool:
    """Whether this machine has that version of a data set there."""
    with suppress(DatasetError, OSError):
        folder = data_folder(name)
        return Dataset(folder, DatasetInfo.read(folder)).checksum == wanted
    return False


def _fetch_run(pipe: Connection, here: Path) -> None:
    """Fetch what the command has of a run; the part with the checkpoints is there when it is whole."""
    part = here / f"{stored.RUN}{PART}"
    shutil.rmtree(part, ignore_errors=True)
    pipe.send((LIST, RESULTS))
    for name in pipe.recv():
        inner = name.removeprefix(f"{stored.RUN}/")
        _fetch(pipe, RESULTS, name, here / name if inner == name else part / inner)
    if part.exists():
        part.rename(here / stored.RUN)


def _fetch(pipe: Connection, folder: str, name: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while True:
            pipe.send((READ, folder, name, file.tell()))
            chunk = pipe.recv()
            file.write(chunk)
            if len(chunk) < CHUNK_BYTES:
                return


def _send(pipe: Connection, folder: Path, name: str) -> None:
    with (folder / name).open("rb") as file:
        while True:
            offset, chunk = file.tell(), file.read(CHUNK_BYTES)
            pipe.send((FILE, name, offset, chunk, len(chunk) < CHUNK_BYTES))
            if len(chunk) < CHUNK_BYTES:
                return


def _wait(pipe: Connection, process: subprocess.Popen[bytes]) -> int:
    """Wait for the process of a run; when the command is gone, let it save and stop."""
    try:
        while process.poll() is None:
            if pipe.poll(0.2):
                pipe.recv()  # nothing is sent meanwhile, so this raises that the command is gone
        return process.returncode
    finally:
        stored.stop([process])
