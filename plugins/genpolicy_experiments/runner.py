"""Makes the runs of an experiment: several at once, each in a process and a folder of its own; skips finished ones.

A run's folder is named by its hash, so changed settings or records begin a new one; old folders are reported and left
alone. After a kill the same command resumes, a run in the middle of training from its checkpoint. Damaged results are
named and made anew.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from genpolicy.config import to_dict
from genpolicy.errors import ConfigError
from genpolicy.files import write_atomic
from genpolicy.folder_lock import FolderLock
from genpolicy.machine import num_cores
from genpolicy_common.cluster import Cluster
from genpolicy_common.shipping import folders_of
from genpolicy_evaluation.positions import progress_bar
from genpolicy_experiments import own, possible, stored
from genpolicy_experiments.description import Cell, Experiment, PlannedRun, digest

RUNS = "runs"
OTHER_DATA = ".other-data"
"""Suffix of a run's folder that was set aside."""
MEASURE_FORMAT = 1
"""To be increased when figures would mean something else than older ones."""
LAST_LINES = 1
"""Lines of a failed run's log that are shown."""
NOT_RUN = "not run yet"
"""Stands for the error of a run that has neither finished nor failed."""


@dataclass
class Job:
    """A run and its measurements."""

    run: PlannedRun
    folder: Path
    trained_on: str
    """Checksum of the data set in the run's key."""
    plays: dict[str, dict[str, Any]] = field(default_factory=dict)
    """File name of a measurement -> options of the policy for it."""

    @property
    def is_done(self) -> bool:
        """Whether every measurement exists, is whole, and is of a policy that was trained on the right data."""
        return not self.problems() and all((self.folder / f"{name}.json").exists() for name in self.plays)

    @property
    def is_of_other_data(self) -> bool:
        """Whether its policy was trained on another version of the data than the one in its key."""
        try:
            checksum = stored.trained_on(self.folder)
        except stored.DamagedError:
            return False
        return checksum is not None and checksum != self.trained_on

    def problems(self, names: Iterable[str] | None = None) -> list[str]:
        """Why its measurements (all, or those named) cannot be used: one message each, with the file."""
        problems = [f"{self.folder}: trained on another version of the data"] if self.is_of_other_data else []
        for name in self.plays if names is None else names:
            try:
                stored.measured(self.folder, name)
            except stored.DamagedError as error:
                problems.append(str(error))
        return problems

    @property
    def failure(self) -> str | None:
        """Why the last attempt failed; None if it did not."""
        return stored.failure(self.folder)


@dataclass(frozen=True)
class Result:
    """The measurement of a cell with one seed, or why there is none."""

    cell: Cell
    seed: int
    folder: Path
    figures: dict[str, Any] | None
    hits: Path | None
    error: str | None


def play_name(experiment: Experiment, cell: Cell) -> str:
    """File name of a cell's measurement within its run; it changes with the policies that the cell plays with."""
    identity: dict[str, Any] = {"play": cell.play, "evaluate": to_dict(experiment.file.evaluate)}
    if policies := folders_of(value for value in cell.play.values() if isinstance(value, str)):
        identity["policies"] = policies
    return f"measured-{digest({**identity, 'format': MEASURE_FORMAT})}"


class Runner:
    """The runs of an experiment in a folder.

    Args:
        experiment: The experiment.
        out: Folder of the experiment; created if it is missing.
        runs: Folder of the runs, which several experiments may share: a run that two of them need is made once. None is
            a folder within ``out``.
    """

    def __init__(self, experiment: Experiment, out: Path, runs: Path | None = None) -> None:
        self.experiment, self.out = experiment, out
        self.runs = out / RUNS if runs is None else runs
        self._is_shared = runs is not None
        self.console = Console(stderr=True)
        self._live: dict[int, tuple[subprocess.Popen[bytes], Job]] = {}

    def jobs(self) -> list[Job]:
        """Every run with its measurements, by cell, then by seed."""
        jobs: dict[str, Job] = {}
        for cell in self.experiment.cells:
            for seed in self.experiment.file.seeds:
                run = self.experiment.planned(cell, seed)
                job = jobs.setdefault(run.key, self._job(run))
                job.plays[play_name(self.experiment, cell)] = cell.play
        return list(jobs.values())

    def _job(self, run: PlannedRun) -> Job:
        return Job(run, self.runs / run.key, self.experiment.checksum(run.config["data"]["folder"]))

    def stale(self, jobs: list[Job]) -> list[Path]:
        """Folders of runs of other settings or records, which are not in the table.

        In a shared folder, runs of other settings belong to other experiments: only folders that differ from a run of
        this experiment in nothing but the version of the data are returned.
        """
        known = {job.folder.name for job in jobs}
        if not self.runs.is_dir():
            return []
        others = sorted(f for f in self.runs.iterdir() if f.is_dir() and f.name not in known)
        if not self._is_shared:
            return others
        measured_on = self.experiment.file.data.folder
        ours = {_identity(job.run.config, job.run.budget, measured_on) for job in jobs}
        return [folder for folder in others if _identity_of(folder) in ours]

    def require_folders(self) -> None:
        """Create the folders, before anything takes time.

        Raises:
            ConfigError: one of them is a file, cannot be written to, or has a name that no policy's folder can have.
        """
        for folder, option in ((self.out, "--out"), (self.runs, "--runs" if self._is_shared else "--out")):
            if "?" in str(folder):
                raise ConfigError(
                    f"{folder}: in a policy's name '?' begins its options, so none can lie there; name another folder "
                    f"with {option}"
                )
            try:
                folder.mkdir(parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, "may not be written to")
            except OSError as error:
                why = "is a file, not a folder" if folder.is_file() else error.strerror or error
                raise ConfigError(f"{folder}: {why}; name another folder with {option}") from error

    def run(self, *, parallel: int | None = None, cluster: Cluster | None = None) -> list[Job]:
        """Make the missing runs and measurements.

        Args:
            parallel: Runs at once on this machine.
            cluster: Where the runs are made, in place of this machine; it is closed in the end.

        Returns:
            The jobs that failed.

        Raises:
            LockedError: another process runs an experiment in the same folder.
            KeyboardInterrupt: interrupted; the runs have saved their state.
            ClusterError: workers of the cluster die one after the other.
        """
        self.require_folders()
        apart = self._is_shared and self.runs.resolve() != self.out.resolve()
        folders = [(self.out, "--out"), *([(self.runs, "--runs")] if apart else [])]
        with contextlib.ExitStack() as stack:
            for folder, option in folders:
                stack.enter_context(FolderLock(folder, "runs an experiment", f"choose another {option}"))
            stack.enter_context(self._stopping())
            jobs = self.jobs()
            for job in jobs:
                self._prepare(job)
            waiting = [job for job in jobs if not job.is_done]
            possible.require(self.experiment, [(job.run, job.plays) for job in waiting], self.say)
            done = len(jobs) - len(waiting)
            if done:
                self.console.print(f"{done} of {len(jobs)} runs are finished already")
            if cluster is None:
                self._work(waiting, len(jobs), done, parallel or self._at_once())
            else:
                from genpolicy_experiments.on_cluster import make_runs

                with self._progress(len(jobs), done) as show:
                    make_runs(self, waiting, cluster, show)
            return [job for job in jobs if not job.is_done]

    def _prepare(self, job: Job) -> None:
        """Name damaged results, which are made anew, and set a run of other data aside."""
        for problem in job.problems():
            self.say(f"{problem}; rebuilt")
        if not job.is_of_other_data:
            return
        names = (f"{job.folder.name}{OTHER_DATA}{'' if n == 1 else n}" for n in itertools.count(1))
        aside = next(path for path in map(job.folder.with_name, names) if not path.exists())
        job.folder.rename(aside)
        self.say(f"  it is kept as {aside}, which can be deleted")

    def say(self, text: str) -> None:
        """Print a line on stderr."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _at_once(self) -> int:
        file = self.experiment.file
        return file.parallel or max(1, num_cores() // file.threads)

    @contextlib.contextmanager
    def _progress(self, total: int, done: int) -> Iterator[Callable[[Iterable[str], int], None]]:
        """A bar; what it is shown by: the names of the runs in progress, and how many more have ended."""
        with progress_bar(console=self.console) as progress:
            task = progress.add_task(self.experiment.name, total=total, completed=done)

            def show(names: Iterable[str], ended: int = 0) -> None:
                progress.update(task, advance=ended, description="; ".join(names)[:60] or self.experiment.name)

            yield show

    def _work(self, waiting: list[Job], total: int, done: int, parallel: int) -> None:
        queue = list(waiting)
        with self._progress(total, done) as show:
            while queue or self._live:
                while queue and len(self._live) < parallel:
                    self._start(queue.pop(0))
                time.sleep(0.2)
                ended = [(process, job) for process, job in self._live.values() if process.poll() is not None]
                for process, job in ended:
                    del self._live[process.pid]
                    self.ended(process.returncode, job)
                show((job.run.name for _, job in self._live.values()), len(ended))

    def _require_versions(self) -> None:
        """Check that the data still has the version of the runs' keys.

        Raises:
            DatasetError: it has not, so the runs in progress have to stop.
        """
        for folder in self.experiment.data_folders():
            stored.require_version(folder, self.experiment.checksum(folder))

    def begin(self, job: Job) -> dict[str, Any]:
        """Prepare the folder of a run that is about to be made, and describe the run to the process that makes it.

        Raises:
            DatasetError: the data is no longer that of the runs' keys.
        """
        self._require_versions()
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / stored.FAILED).unlink(missing_ok=True)
        file = self.experiment.file
        return {
            "name": job.run.name,
            "parent": os.getpid(),
            "folder": str(job.folder / stored.RUN),
            "config": job.run.config,
            "budget": job.run.budget,
            "evaluate": {**to_dict(file.evaluate), "folder": file.data.folder},
            "records": {"trained_on": job.trained_on, "measured_on": self.experiment.checksum(file.data.folder)},
            "versions": {folder: self.experiment.checksum(folder) for folder in self.experiment.data_folders()},
            "plays": job.plays,
            "results": str(job.folder),
        }

    def _start(self, job: Job) -> None:
        write_atomic(job.folder / stored.JOB, json.dumps(self.begin(job), indent=2).encode())
        process = stored.start(job.folder / stored.JOB, self.experiment.file.threads)
        self._live[process.pid] = (process, job)

    def ended(self, status: int, job: Job, where: str = "") -> None:
        """Note why a run has failed, if it has; ``where`` begins the message."""
        if job.is_done:  # nothing is missing, whatever ended the process afterwards
            return
        self._require_versions()  # changed data would end all other runs, too
        lines = (job.folder / stored.LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        error = " ".join(line.strip() for line in lines[-LAST_LINES:])[-400:] or f"ended with status {status}"
        if status < 0:
            error = f"killed by signal {signal.Signals(-status).name}; {error}"
        error = where + error
        write_atomic(job.folder / stored.FAILED, json.dumps({"error": error, "status": status}).encode())
        self.say(f"failed: {job.run.name}: {error}\n  {job.folder / stored.LOG}")

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        """Let the runs save and stop when the block ends, however it ends."""
        try:
            yield
        finally:
            stored.stop([process for process, _ in self._live.values()])
            self._live.clear()

    def results(self) -> list[Result]:
        """The results of every cell and seed.

        Raises:
            ConfigError: measurements are on different positions, so they cannot be compared.
        """
        results = []
        measured: dict[Path, dict[str, Any]] = {}
        for cell in self.experiment.cells:
            name = play_name(self.experiment, cell)
            for seed in self.experiment.file.seeds:
                job = self._job(self.experiment.planned(cell, seed))
                if problems := job.problems([name]):
                    error = f"{problems[0]}; the same command without --table-only makes it again"
                    results.append(Result(cell, seed, job.folder, None, None, error))
                elif (figures := stored.measured(job.folder, name)) is not None:
                    path = job.folder / f"{name}.npz"
                    measured[path] = stored.hits(path)
                    if own.is_wanted(self.experiment):
                        figures = {**figures, **own.figures(self.experiment, job.folder)}
                    results.append(Result(cell, seed, job.folder, figures, path, None))
                else:
                    results.append(Result(cell, seed, job.folder, None, None, job.failure or NOT_RUN))
        stored.require_same_positions(measured)
        return results


def _identity(config: Mapping[str, Any], budget: Mapping[str, float], measured_on: str) -> str:
    """Hash of a run without the version of the data: settings with seed, budget, folders."""
    folder = config["data"]["folder"]
    trained_on = [folder] if isinstance(folder, str) else folder
    folders = [str(Path(each)) for each in [*trained_on, measured_on]]
    return digest([{**config, "data": {**config["data"], "folder": ""}}, dict(budget), folders])


def _identity_of(folder: Path) -> str | None:
    """``_identity`` of the run in a folder; None if there is none, or its description cannot be read."""
    try:
        job = stored.read_mapping(folder / stored.JOB)
        return _identity(job["config"], job["budget"], job["evaluate"]["folder"])
    except (OSError, stored.DamagedError, KeyError, TypeError):
        return None
