"""What ``genpolicy data`` shows while it works, when it is done and when it is stopped."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy_common.arguments import say

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset


@dataclass
class Stop:
    """What to report when the work is stopped."""

    kept: Callable[[], str] = lambda: "what is finished is safe"


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Say what is kept and how to resume when Ctrl-C, SIGTERM or SIGHUP stops the block."""
    stop = Stop()
    try:
        yield stop
    except KeyboardInterrupt as interrupt:
        say(f"\n{str(interrupt) or 'interrupted'}; {stop.kept()}. Resume with:\n  {command_line()}")
        raise


@contextmanager
def progress() -> Iterator[Any]:
    """A progress bar on stderr, with a rate and an estimate; its tasks have a field ``unit``."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        _rate_column(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2) as bar:
        yield bar


def _rate_column() -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f}/s")

    return RateColumn()


def show(dataset: Dataset, json: Path | None) -> None:
    """Print a table of what a data set is and holds, and write the same facts to the file of ``--json``, if any.

    Raises:
        DatasetError: its ``dataset.yaml`` says that it is complete but lacks a count.
    """
    from rich.console import Console

    from genpolicy_common.tables import Report, write_json

    info, num_shards = dataset.info, sum(len(part.info.shards) for part in dataset.parts)
    report = Report(dataset.label, ["", ""], words=True)
    report.add("game", info.game)
    report.add("made by", f"{info.made_by}, genpolicy {info.genpolicy}")
    if info.command:
        report.add("command", info.command)
    if info.oracle is not None:
        report.add("oracle", ", ".join(f"{key}={value}" for key, value in info.oracle.items() if value != {}))
    report.add("records", f"{dataset.num_records} in {num_shards} shards, checksums verified")
    report.add("splits", ", ".join(f"{split} {number}" for split, number in dataset.splits.items()))
    if info.complete:
        report.add("games", str(dataset.count("games")))
        report.add("labelled", str(dataset.count("labelled")))
        report.add("repeated positions", str(dataset.count("duplicates")))
        for split, leak in dataset.count("leakage").items():
            for name, turned in (("in_training", ""), ("in_training_turned", ", as they are or turned")):
                if name in leak:
                    share = 100 * leak[name] / max(1, leak["records"])
                    report.add(
                        f"{split} positions that occur in training{turned}",
                        f"{leak[name]} of {leak['records']} ({share:.1f} %)",
                    )
        skipped = {**info.counts.get("skipped", {}), **info.counts.get("tallies", {})}
        if skipped:
            report.add("left out", ", ".join(f"{number} {reason}" for reason, number in skipped.items()))
    else:
        report.add("unfinished", f"resume with: {info.command}")
    report.add("checksum", dataset.checksum)
    report.print(Console())
    write_json(json, _facts(dataset))


def _facts(dataset: Dataset) -> dict[str, Any]:
    info = dataset.info
    return {
        "folder": str(dataset.folder),
        "game": info.game,
        "made_by": info.made_by,
        "oracle": info.oracle,
        "options": info.options,
        "sources": info.sources,
        "complete": info.complete,
        "records": dataset.num_records,
        "splits": dataset.splits,
        "counts": info.counts,
        "shards": info.shards,
        "checksum": dataset.checksum,
    }


def command_line() -> str:
    """The command that started this run, as it can be typed again."""
    return shlex.join(["genpolicy", *sys.argv[1:]])
