"""Everything that tries to break genpolicy, for as long as one likes: ``python -m tests.torture --minutes 60``.

Malicious folders once, then in turn kills, torn writes, full and broken disks and power cuts at random operations of
each command, and mutants of each text format, until the time is over. Ends with one table of trials and failures, and
with status 1 if there was a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.nursery import Nursery
from tests.faults.works import WORKS, Bench, Work
from tests.fuzz.mutation import Target, fuzz
from tests.fuzz.targets import targets
from tests.fuzz.test_malicious_folders import opened, wrong

SLICE_S = 6.0
"""Time of one kind before the next one's turn."""


class Log:
    """Trials and failures by kind."""

    def __init__(self) -> None:
        self.trials, self.failures = Counter[str](), list[dict[str, str]]()

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
    end = min(until, time.monotonic() + SLICE_S)
    while time.monotonic() < end:
        fault, at = next(points)
        what = bench.disturb(work, fault, at)
        log.add(f"{work.name}, {fault}", 1, [f"operation {at}: {what}"] if what else [])


def _fuzz(target: Target, seed: int, log: Log, until: float) -> None:
    count, failures = fuzz(target, seed, 100_000, min(until, time.monotonic() + SLICE_S / 3))
    log.add(f"mutants: {target.name}", count, [f"{what}: {data[:300]!r}" for data, what in failures])


def torture(minutes: float, seed: int, log: Log, scratch: Path) -> None:
    """Fill the log until the time is over."""
    until = time.monotonic() + 60 * minutes
    (scratch / "folders").mkdir()
    results = opened(scratch / "folders", 1)
    log.add("malicious policy folders", len(results), [f"{one['name']}: {wrong(one)}" for one in results if wrong(one)])
    formats = [target for make in targets(scratch / "fuzz").values() for target in make()]
    (scratch / "faults").mkdir()
    with Nursery() as nursery:
        bench = Bench(scratch / "faults", nursery)
        turns: list[Callable[[int], None]] = []
        for work in WORKS.values():
            points = bench.points(work, seed)
            turns.append(lambda _, work=work, points=points: _disturb(bench, work, points, log, until))  # type: ignore[misc]
        for target in formats:
            turns.append(lambda number, target=target: _fuzz(target, seed + number, log, until))  # type: ignore[misc]
        number = 0
        while time.monotonic() < until:
            for turn in turns:
                if time.monotonic() < until:
                    turn(number)
            number += 1


def main() -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--json", type=Path, help="write trials and failures there")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    arguments = parser.parse_args()
    log = Log()
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
