"""``genpolicy experiment FILE``: makes the runs, the table and the plots."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from genpolicy.errors import ConfigError
from genpolicy.files import write_atomic
from genpolicy.machine import commit
from genpolicy_common.arguments import add_cluster
from genpolicy_common.cluster import open_cluster
from genpolicy_common.tables import write_json
from genpolicy_common.train import take_settings_anywhere
from genpolicy_experiments import plots, stored, tables
from genpolicy_experiments.by_end import by_end
from genpolicy_experiments.defaults import of_other_defaults
from genpolicy_experiments.description import Experiment
from genpolicy_experiments.making import make_data, require_data
from genpolicy_experiments.runner import NOT_RUN, Result, Runner

HELP = """\
Run an experiment file and tabulate it: make all its runs, then its table and plots. For example

  genpolicy experiment experiments/small/table-5

Finished runs are skipped, so the same command resumes after an interruption or a kill, and makes the runs that an
edited file adds. A run that fails is shown as failed, with its log; the others continue. The table is written to
OUT/NAME.md, .csv and .json, and plots beside it."""


def add_parser(subparsers: Any) -> None:
    """Add ``experiment`` to the command line."""
    parser = subparsers.add_parser(
        "experiment",
        help="run an experiment file and tabulate it",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="YAML description, or the name of a shipped one")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="one setting, e.g. seeds=[0]")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder (default: runs/experiments/NAME)")
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="FOLDER",
        help="folder of the runs (default: OUT/runs); experiments that share it share their common runs",
    )
    parser.add_argument("--parallel", type=int, metavar="N", help="runs at once (default: as many as the cores allow)")
    add_cluster(parser)
    parser.add_argument("--table-only", action="store_true", help="make no runs; tabulate the finished ones")
    parser.add_argument("--plan", action="store_true", help="list the runs and their state, and stop")
    parser.set_defaults(run=run)
    take_settings_anywhere(parser)


def run(arguments: argparse.Namespace) -> int:
    """``genpolicy experiment``."""
    experiment = Experiment(arguments.file, arguments.overrides)
    out = arguments.out or Path("runs") / "experiments" / experiment.name
    if arguments.parallel is not None and arguments.parallel < 1:
        raise ValueError(f"--parallel must be at least 1, got {arguments.parallel}")
    runner = Runner(experiment, out, arguments.runs)
    try:
        return _run(arguments, experiment, runner, out)
    except KeyboardInterrupt:
        print(f"\nstopped; finished runs are safe in {runner.runs}; the same command resumes", file=sys.stderr)
        raise


def _run(arguments: argparse.Namespace, experiment: Experiment, runner: Runner, out: Path) -> int:
    if arguments.table_only or arguments.plan:
        require_data(experiment)
    else:
        runner.require_folders()
        make_data(experiment, runner.say)
    jobs = runner.jobs()
    if old := runner.stale(jobs):
        print(
            f"{len(old)} runs in {runner.runs} are of other settings or another version of the data; they are not in "
            f"the table and can be deleted: {', '.join(f.name for f in old[:3])}{', ...' if len(old) > 3 else ''}",
            file=sys.stderr,
        )
    if arguments.plan:
        for job in jobs:
            state = "finished" if job.is_done else f"failed: {job.failure}" if job.failure else "to do"
            print(f"{job.run.key}  {job.run.name}: {'; '.join([state, *job.problems()])}")
        return 0
    failed = []
    if not arguments.table_only:
        with contextlib.ExitStack() as stack:
            cluster = None
            if arguments.cluster is not None:
                cluster = stack.enter_context(open_cluster(arguments.cluster, arguments.parallel))
            failed = runner.run(parallel=arguments.parallel, cluster=cluster)
    write(experiment, runner, out, command_line(arguments))
    return 1 if failed else 0


def command_line(arguments: argparse.Namespace) -> str:
    """The command that makes the same table anew, without ``--table-only``, which would make no runs."""
    words = ["genpolicy", "experiment", str(arguments.file), *arguments.overrides]
    for option in ("out", "runs", "cluster", "parallel"):
        if (value := getattr(arguments, option)) is not None:
            words += [f"--{option}", str(value)]
    return shlex.join(words)


def write(experiment: Experiment, runner: Runner, out: Path, command: str) -> None:
    """Write the table and the plots, and show the table.

    Raises:
        ConfigError: there is nothing to show, or results cannot be compared; the message says what to do.
        DiskFullError: no space; the same command writes them again.
    """
    results = runner.results()
    _require_some(experiment, results)
    rows = tables.rows_of(experiment, results)
    tests = tables.comparisons(experiment, results)
    report = tables.report_of(experiment, rows)
    if missing := [metric for metric in experiment.file.metrics if metric not in tables.measured(results)]:
        report.notes.append(
            f"No run has measured {', '.join(missing)}; there are: {', '.join(tables.measured(results))}."
        )
    report.notes += tables.untested(experiment, tests)
    report.notes += experiment.data_notes
    report.notes += short_of_budget(experiment, results)
    report.notes += of_other_defaults(experiment, results)
    report.notes.append(f"Command: {command}; commit {', '.join(tables.commits_of(results)) or commit()}.")
    report.notes.append(f"Machine: {machine()}; records: {experiment.dataset.checksum[:12]}.")
    reports = [
        report,
        *([tables.comparison_report(tests)] if tests else []),
        *filter(None, [by_end(experiment, results)]),
    ]
    for each in reports:
        each.print()
    out.mkdir(parents=True, exist_ok=True)
    markdown = "\n".join(each.markdown() for each in reports)
    # The table is there before its pictures, which may fail.
    write_atomic(out / f"{experiment.name}.md", markdown.encode())
    write_atomic(out / f"{experiment.name}.csv", tables.as_csv(rows).encode())
    write_json(out / f"{experiment.name}.json", tables.as_json(experiment, rows, tests, results))
    pictures = plots.draw(experiment, rows, out)
    markdown += "".join(f"\n![{experiment.name}]({path.name})\n" for path in pictures if path.suffix == ".png")
    write_atomic(out / f"{experiment.name}.md", markdown.encode())
    print(out / f"{experiment.name}.md")


def _require_some(experiment: Experiment, results: Sequence[Result]) -> None:
    """Check that a run has finished.

    Raises:
        ConfigError: none has.
    """
    if any(result.figures is not None for result in results):
        return
    failed = next((result for result in results if result.error != NOT_RUN), None)
    if failed is None:
        way_out = "run the command without --table-only, which makes them"
    else:
        way_out = (
            f"the first that failed: {failed.cell.name}, seed {failed.seed}: {failed.error}; its log is "
            f"{failed.folder / stored.LOG}. Fix it and run the command again to retry all of them"
        )
    raise ConfigError(f"{experiment.path}: no run has finished, so there is no table (of {len(results)}): {way_out}")


def short_of_budget(experiment: Experiment, results: Sequence[Result]) -> list[str]:
    """A sentence for each finished run that used less than nine tenths of its budget."""
    notes = []
    for result in results:
        if result.figures is None:
            continue
        ((kind, amount),) = experiment.planned(result.cell, result.seed).budget.items()
        spent = result.figures.get(kind)
        if kind in ("steps", "epochs"):  # figures do not hold them, but the policy's provenance does
            spent = (stored.provenance(result.folder) or {}).get(kind.removesuffix("s") if kind == "steps" else kind)
        if isinstance(spent, int | float) and spent < 0.9 * amount:
            notes.append(
                f"SHORT OF ITS BUDGET: {result.cell.name}, seed {result.seed}: {spent:,.10g} of {amount:,.10g} {kind}; "
                f"not comparable with the others ({result.folder}: delete it, and the same command makes it again)."
            )
    return notes


def machine() -> str:
    """The machine, in a few words."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{platform.machine()}, {os.cpu_count()} cores, {gpu}, torch {torch.__version__}"
