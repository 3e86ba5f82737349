"""Makes the runs of an experiment: several at once, each in a process and a folder of its own, finished ones skipped.

A run's folder is named by its hash, so settings or records that changed begin a new one; what the old ones hold is
reported and left alone. After a kill the same command goes on: a run in the middle of training from its checkpoint.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from genpolicy.config import structured, to_dict
from genpolicy.data.records import INFO_FILE, DatasetInfo
from genpolicy.data.storage import write_atomic
from genpolicy.errors import ConfigError, DatasetError, RegistryError
from genpolicy.experiments.description import Cell, Experiment, PlannedRun, digest
from genpolicy.training import setup
from genpolicy.training.config import RunConfig

RUNS, JOB, LOG, FAILED = "runs", "job.json", "log.txt", "failed.json"
MEASURE_FORMAT = 1
"""Raised when figures written by this code would mean something else than older ones."""
LAST_LINES = 1
NOT_RUN = "not run yet"
"""What stands for the error of a run that was not begun or did not come to its end."""


@dataclass
class Job:
    """A run and what is measured of it."""

    run: PlannedRun
    folder: Path
    plays: dict[str, dict[str, Any]] = field(default_factory=dict)
    """File name of a measurement -> options of the policy."""

    @property
    def is_done(self) -> bool:
        """Whether every measurement is there."""
        return all((self.folder / f"{name}.json").exists() for name in self.plays)

    @property
    def failure(self) -> str | None:
        """Why it failed last time; None where it did not."""
        path = self.folder / FAILED
        return str(json.loads(path.read_text())["error"]) if path.exists() else None


@dataclass(frozen=True)
class Result:
    """A cell with one seed, measured; or why not."""

    cell: Cell
    seed: int
    folder: Path
    figures: dict[str, Any] | None
    hits: Path | None
    error: str | None


def play_name(experiment: Experiment, cell: Cell) -> str:
    """File name of a cell's measurement within its run."""
    wanted = to_dict(experiment.file.evaluate)
    return f"measured-{digest({'play': cell.play, 'evaluate': wanted, 'format': MEASURE_FORMAT})}"


class Runner:
    """The runs of an experiment in a folder.

    Args:
        experiment: What is run.
        out: Where; made if it is missing.
        runs: Folder of the runs, which several experiments may share: a run that two of them ask for is made once.
            None is a folder within ``out``.
    """

    def __init__(self, experiment: Experiment, out: Path, runs: Path | None = None) -> None:
        self.experiment, self.out = experiment, out
        self.runs = out / RUNS if runs is None else runs
        self._is_shared = runs is not None
        self.console = Console(stderr=True)
        self._live: dict[int, tuple[subprocess.Popen[bytes], Job]] = {}

    def make_data(self) -> None:
        """Run the commands that make the data sets, where one of them is missing or unfinished.

        A command whose work is done already finds that out by itself.

        Raises:
            ConfigError: one is missing and there are no commands, one of them failed, or they do not make it.
        """
        source, folders = self.experiment.file.data, self.experiment.data_folders()
        missing = [folder for folder in folders if not _is_complete(folder)]
        if not missing:
            return
        if not source.make:
            raise ConfigError(
                f"{self.experiment.path}: data folder {missing[0]!r} holds no data set (or an unfinished one) and "
                "data.make has no commands that make one"
            )
        for command in source.make:
            arguments = shlex.split(command.replace("{folder}", source.folder))
            self.console.print(f"genpolicy {' '.join(arguments)}", markup=False, highlight=False, soft_wrap=True)
            call = "import sys; from genpolicy.cli import main; sys.exit(main())"
            done = subprocess.run([sys.executable, "-c", call, *arguments], stdout=subprocess.DEVNULL)
            if done.returncode:
                raise ConfigError(f"{self.experiment.path}: data.make: {command!r} ended with status {done.returncode}")
        for folder in missing:
            if not _is_complete(folder):
                raise ConfigError(f"{self.experiment.path}: the commands of data.make do not make {folder!r}")

    def jobs(self) -> list[Job]:
        """Every run with its measurements, in the order of the cells, seeds innermost."""
        jobs: dict[str, Job] = {}
        for cell in self.experiment.cells:
            for seed in self.experiment.file.seeds:
                run = self.experiment.planned(cell, seed)
                job = jobs.setdefault(run.key, Job(run, self.runs / run.key))
                job.plays[play_name(self.experiment, cell)] = cell.play
        return list(jobs.values())

    def stale(self, jobs: list[Job]) -> list[Path]:
        """Folders of runs of other settings, code or records that lie here; they are not in the table.

        In a folder that is shared they are another experiment's, and not told.
        """
        known = {job.folder.name for job in jobs}
        if self._is_shared or not self.runs.is_dir():
            return []
        return sorted(f for f in self.runs.iterdir() if f.is_dir() and f.name not in known)

    def run(self, *, parallel: int | None = None) -> list[Job]:
        """Make what is missing; the jobs that failed.

        Raises:
            ConfigError: another process runs this experiment in the same folder.
            KeyboardInterrupt: interrupted; the runs have saved where they were.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        self.runs.mkdir(parents=True, exist_ok=True)
        shared = _locked(self.runs / ".lock") if self._is_shared else contextlib.nullcontext()
        with _locked(self.out / ".lock"), shared, self._stopping():
            jobs = self.jobs()
            waiting = [job for job in jobs if not job.is_done]
            self._require_possible(waiting)
            done = len(jobs) - len(waiting)
            if done:
                self.console.print(f"{done} of {len(jobs)} runs are finished already")
            self._work(waiting, len(jobs), done, parallel or self._at_once())
            return [job for job in jobs if not job.is_done]

    def _require_possible(self, waiting: list[Job]) -> None:
        """See that every learner can be made and play as is asked, before hours are spent on the others.

        Raises:
            ConfigError: a method that cannot do a paradigm, an option that it does not have, or a split to measure on
                that the data set does not have.
        """
        split, splits = self.experiment.file.evaluate.split, self.experiment.dataset.splits
        if not splits.get(split):
            have = ", ".join(name for name, count in splits.items() if count)
            raise ConfigError(
                f"{self.experiment.path}: evaluate.split {split!r} holds no record of "
                f"{self.experiment.file.data.folder}; splits with records: {have}"
            )
        _, game = setup.open_data(structured(RunConfig, waiting[0].run.config)) if waiting else (None, None)
        seen: set[str] = set()
        for job in waiting:
            learner = job.run.config.get("learner", {})
            if (known := digest([learner, sorted(job.plays)])) in seen or game is None:
                continue
            seen.add(known)
            try:
                policy = setup.make_learner(game, learner).policy()
                for play in job.plays.values():
                    policy.with_options(**play)
            except (RegistryError, ValueError) as error:
                raise ConfigError(
                    f"{self.experiment.path}: cell {job.run.name.rpartition(', ')[0]!r}: {error}; change its settings, "
                    "or leave the cell out with a line of skip"
                ) from error

    def _at_once(self) -> int:
        file = self.experiment.file
        return file.parallel or max(1, (os.cpu_count() or 1) // file.threads)

    def _work(self, waiting: list[Job], total: int, done: int, parallel: int) -> None:
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        queue = list(waiting)
        with progress:
            task = progress.add_task(self.experiment.name, total=total, completed=done)
            while queue or self._live:
                while queue and len(self._live) < parallel:
                    self._start(queue.pop(0))
                time.sleep(0.2)
                for process, job in list(self._live.values()):
                    if process.poll() is None:
                        continue
                    del self._live[process.pid]
                    self._ended(process.returncode, job)
                    progress.advance(task)
                names = "; ".join(job.run.name for _, job in self._live.values())
                progress.update(task, description=names[:60] or self.experiment.name)

    def _start(self, job: Job) -> None:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / FAILED).unlink(missing_ok=True)
        file = self.experiment.file
        said = {
            "name": job.run.name,
            "folder": str(job.folder / "run"),
            "config": job.run.config,
            "budget": dict(file.budget),
            "evaluate": {**to_dict(file.evaluate), "folder": file.data.folder},
            "plays": job.plays,
            "results": str(job.folder),
        }
        write_atomic(job.folder / JOB, json.dumps(said, indent=2).encode())
        threads = str(file.threads)
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        with (job.folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "genpolicy.experiments.worker", str(job.folder / JOB)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # a Ctrl-C at the terminal is passed on by us, once
            )
        self._live[process.pid] = (process, job)

    def _ended(self, status: int, job: Job) -> None:
        if job.is_done:  # whatever ended it afterwards, nothing of it is missing
            return
        lines = (job.folder / LOG).read_text(errors="replace").splitlines()
        error = " ".join(line.strip() for line in lines[-LAST_LINES:])[-400:] or f"ended with status {status}"
        if status < 0:
            error = f"killed by signal {signal.Signals(-status).name}; {error}"
        write_atomic(job.folder / FAILED, json.dumps({"error": error, "status": status}).encode())
        self.console.print(
            f"failed: {job.run.name}: {error}\n  {job.folder / LOG}", markup=False, highlight=False, soft_wrap=True
        )

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        """Whatever ends this, the runs are told to save and stop."""
        try:
            yield
        finally:
            for process, _ in self._live.values():
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            for process, _ in self._live.values():
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
            self._live.clear()

    def results(self) -> list[Result]:
        """What there is of every cell and seed."""
        found = []
        for cell in self.experiment.cells:
            name = play_name(self.experiment, cell)
            for seed in self.experiment.file.seeds:
                job = Job(run := self.experiment.planned(cell, seed), self.runs / run.key)
                path = job.folder / f"{name}.json"
                if path.exists():
                    figures = json.loads(path.read_text())
                    found.append(Result(cell, seed, job.folder, figures, job.folder / f"{name}.npz", None))
                else:
                    found.append(Result(cell, seed, job.folder, None, None, job.failure or NOT_RUN))
        return found


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{path.parent}: another process runs an experiment there; wait for it, or take another --out"
            ) from None
        yield


def _is_complete(folder: str) -> bool:
    """Whether a finished data set lies there; one whose description is damaged is for ``Dataset.open`` to name."""
    path = Path(folder)
    return (path / INFO_FILE).is_file() and DatasetInfo.read(path).complete


def require_data(experiment: Experiment) -> None:
    """See that the data set can be read.

    Raises:
        DatasetError: it is missing or damaged.
    """
    if not Path(experiment.file.data.folder).is_dir():
        raise DatasetError(f"{experiment.file.data.folder}: no data set; genpolicy experiment FILE makes it")
    _ = experiment.dataset
