"""Everything that tries to break genpolicy, for as long as one likes: ``python -m tests.torture --minutes 60``.

Malicious folders once, then in turn kills, torn writes, full and broken disks and power cuts at random operations of
each command, mutants of each text format, engines that misbehave and clients that send half a request, until the time
is over. Ends with one table of trials and failures, and with status 1 if there was a failure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.faults.nursery import Nursery
from tests.faults.processes import KINDS, HalfRequests, HostileEngines
from tests.faults.works import LOOP_WORK, WORKS, Bench, Work
from tests.fuzz.mutation import Target, fuzz
from tests.fuzz.targets import targets
from tests.fuzz.test_malicious_folders import opened, wrong

FOLDERS = "malicious policy folders"

SLICE_S = 6.0
"""Time of one kind before the next one's turn."""


class Log:
    """Trials and failures by kind.

    Args:
        only: Words; a kind is tried if its name contains one of them.
        enough: Trials after which a kind has no further turns.
    """

    def __init__(self, only: Sequence[str] = ("",), enough: float = math.inf) -> None:
        self.only, self.enough = only, enough
        self.trials, self.failures = Counter[str](), list[dict[str, str]]()

    def wants(self, kind: str) -> bool:
        """Whether a kind is to be tried again."""
        return self.trials[kind] < self.enough and any(word in kind for word in self.only)

    def add(self, kind: str, trials: int, failures: list[str]) -> None:
        """Count, and show what failed at once."""
        self.trials[kind] += trials
        for text in failures:
            self.failures.append({"kind": kind, "what": text})
            print(f"{kind}: {text}", file=sys.stderr, flush=True)

    def markdown(self) -> str:
        """The table."""
        failed = Counter(failure["kind"] for failure in self.failures)
        lines = [f"| {kind} | {count:,} | {failed[kind]} |" for kind, count in sorted(self.trials.items())]
        total = f"| all | {self.trials.total():,} | {len(self.failures)} |"
        return "\n".join(["| kind | trials | failures |", "|---|---|---|", *lines, total])


def _disturb(bench: Bench, work: Work, points: Iterator[tuple[str, int]], log: Log, until: float) -> None:
    end, kinds = min(until, time.monotonic() + SLICE_S), {fault: f"{work.name}, {fault}" for fault in work.faults}
    while time.monotonic() < end and any(map(log.wants, kinds.values())):
        fault, at = next(points)
        if log.wants(kinds[fault]):
            what = bench.disturb(work, fault, at)
            log.add(kinds[fault], 1, [f"operation {at}: {what}"] if what else [])


def _fuzz(target: Target, seed: int, number: int, log: Log, until: float) -> None:
    kind = f"mutants: {target.name}"
    if log.wants(kind):
        end = min(until, time.monotonic() + SLICE_S / 3)
        count, failures = fuzz(target, seed + number, 100_000, end, examples=number == 0)
        log.add(kind, count, [f"{what}: {data[:300]!r}" for data, what in failures])


def _visit(kind: HostileEngines | HalfRequests, seeds: Iterator[int], log: Log, until: float) -> None:
    end = min(until, time.monotonic() + SLICE_S)
    while time.monotonic() < end and log.wants(kind.name):
        what = kind.trial(next(seeds))
        log.add(kind.name, 1, [what] if what else [])


def torture(minutes: float, seed: int, log: Log, scratch: Path) -> None:
    """Fill the log until the time is over, or nothing more is wanted."""
    until = time.monotonic() + 60 * minutes
    if log.wants(FOLDERS):
        (scratch / "folders").mkdir()
        results = opened(scratch / "folders", 1)
        log.add(FOLDERS, len(results), [f"{one['name']}: {wrong(one)}" for one in results if wrong(one)])
    formats = [target for make in targets(scratch / "fuzz").values() for target in make()]
    (scratch / "faults").mkdir()
    works = (*WORKS.values(), LOOP_WORK)
    with Nursery() as nursery, ExitStack() as visitors:
        bench = Bench(scratch / "faults", nursery)
        turns: list[Callable[[int], None]] = []
        for make in KINDS:
            if log.wants(make.name):
                kind = make()
                visitors.callback(kind.close)
                seeds = itertools.count(1_000_000 * seed)
                turns.append(lambda _, kind=kind, seeds=seeds: _visit(kind, seeds, log, until))  # type: ignore[misc]
        for work in works:
            if not any(log.wants(f"{work.name}, {fault}") for fault in work.faults):
                continue
            points = bench.points(work, seed)
            turns.append(lambda _, work=work, points=points: _disturb(bench, work, points, log, until))  # type: ignore[misc]
        for target in formats:
            turns.append(lambda number, target=target: _fuzz(target, seed, number, log, until))  # type: ignore[misc]
        kinds = [f"{work.name}, {fault}" for work in works for fault in work.faults]
        kinds += [*(f"mutants: {target.name}" for target in formats), *(kind.name for kind in KINDS)]
        for number in itertools.count():
            for turn in turns:
                if time.monotonic() >= until or not any(map(log.wants, kinds)):
                    return
                turn(number)


def main() -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="kinds whose names contain one of them")
    parser.add_argument("--enough", type=float, default=math.inf, metavar="N", help="trials of each kind that suffice")
    parser.add_argument("--json", type=Path, help="write trials and failures there")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    arguments = parser.parse_args()
    log = Log(arguments.only, arguments.enough)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            torture(arguments.minutes, arguments.seed, log, Path(scratch))
    finally:
        print(log.markdown())
        print(f"seed {arguments.seed}, {arguments.minutes:g} minutes")
        if arguments.markdown:
            arguments.markdown.write_text(log.markdown() + "\n")
        if arguments.json:
            arguments.json.write_text(json.dumps({"trials": log.trials, "failures": log.failures}, indent=1) + "\n")
    return 1 if log.failures else 0


if __name__ == "__main__":
    sys.exit(main())
