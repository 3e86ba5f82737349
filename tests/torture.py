"""Everything that tries to break genpolicy, for as long as one likes: ``python -m tests.torture --minutes 60``.

Malicious folders once, then in turn kills, torn writes, full and broken disks and power cuts at random operations of
each command, mutants of each text format, engines that misbehave and clients that send half a request, until the time
is over. Kinds with a target have longer turns until they reach it, and then none until all have. Ends with one table
of trials and failures, and with status 1 if there was a failure.
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
from functools import partial
from pathlib import Path

from tests.faults.disk import FAULTS
from tests.faults.nursery import Nursery
from tests.faults.processes import KINDS, HalfRequests, HostileEngines
from tests.faults.works import LOOP_WORK, WORKS, Bench, Work
from tests.fuzz.mutation import Target, fuzz
from tests.fuzz.targets import targets
from tests.fuzz.test_malicious_folders import opened, wrong

FOLDERS, MUTANTS = "malicious policy folders", "mutants: "

SLICE_S = 6.0
"""Time of one kind before the next one's turn."""
TRAINING_S = 90.0
"""The same of training before its targets are reached: a trial takes seconds."""
TARGETS = {"train, kill": 200, **dict.fromkeys((f"train, {fault}" for fault in FAULTS[1:]), 40)}
"""Trials to reach first; of each format there are ``NUM_MUTANTS``, of the other kinds any number will do."""
NUM_MUTANTS = 20_000


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

    def lacks(self, kind: str) -> bool:
        """Whether a kind has not reached its target."""
        target = NUM_MUTANTS if kind.startswith(MUTANTS) else TARGETS.get(kind, 0)
        return self.trials[kind] < target and self.wants(kind)

    def add(self, kind: str, trials: int, failures: list[str]) -> None:
        """Count, and show what failed at once."""
        self.trials[kind] += trials
        for text in failures:
            self.failures.append({"kind": kind, "what": text})
            print(f"{kind}: {text}", file=sys.stderr, flush=True)

    def markdown(self) -> str:
        """The table: commands by fault, then all other kinds; "-" where a command is not tried with a fault."""
        failed = Counter(failure["kind"] for failure in self.failures)
        commands = sorted({kind.split(", ")[0] for kind in self.trials if ", " in kind})
        lines = [_row("trials", *FAULTS, "failures"), _row(*["---"] * (len(FAULTS) + 2))] if commands else []
        for command in commands:
            kinds = [f"{command}, {fault}" for fault in FAULTS]
            counts = (f"{self.trials[kind]:,}" if kind in self.trials else "-" for kind in kinds)
            lines.append(_row(command, *counts, sum(failed[kind] for kind in kinds)))
        lines += ["", _row("kind", "trials", "failures"), _row(*["---"] * 3)]
        others = sorted(kind for kind in self.trials if ", " not in kind)
        lines += [_row(kind, f"{self.trials[kind]:,}", failed[kind]) for kind in others]
        return "\n".join([*lines, _row("all", f"{self.trials.total():,}", len(self.failures))])


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _disturb(bench: Bench, work: Work, points: Iterator[tuple[str, int]], log: Log, until: float) -> None:
    kinds = {fault: _kind(work, fault) for fault in work.faults}
    behind = any(map(log.lacks, kinds.values()))
    end = min(until, time.monotonic() + (TRAINING_S if behind else SLICE_S))
    while time.monotonic() < end and any(map(log.lacks if behind else log.wants, kinds.values())):
        fault, at = next(points)
        if log.lacks(kinds[fault]) if behind else log.wants(kinds[fault]):
            what = bench.disturb(work, fault, at)
            log.add(kinds[fault], 1, [f"operation {at}: {what}"] if what else [])


def _kind(work: Work, fault: str) -> str:
    return f"{work.name}, {fault}"


def _fuzz(target: Target, seeds: Iterator[int], log: Log, until: float) -> None:
    kind, seed = MUTANTS + target.name, next(seeds)
    if log.wants(kind):
        end = min(until, time.monotonic() + (SLICE_S if log.lacks(kind) else SLICE_S / 3))
        number = max(1, NUM_MUTANTS - log.trials[kind]) if log.lacks(kind) else 100_000
        count, failures = fuzz(target, seed, number, end, examples=not log.trials[kind])
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
    (scratch / "faults").mkdir()
    with Nursery() as nursery, ExitStack() as visitors:
        bench = Bench(scratch / "faults", nursery)
        turns: list[tuple[list[str], Callable[[], None]]] = []
        for make in KINDS:
            if log.wants(make.name):
                kind = make()
                visitors.callback(kind.close)
                turns.append(([make.name], partial(_visit, kind, itertools.count(1_000_000 * seed), log, until)))
        for work in (*WORKS.values(), LOOP_WORK):
            kinds = [_kind(work, fault) for fault in work.faults]
            if any(map(log.wants, kinds)):
                turns.append((kinds, partial(_disturb, bench, work, bench.points(work, seed), log, until)))
        for target in (target for make in targets(scratch / "fuzz").values() for target in make()):
            turns.append(([MUTANTS + target.name], partial(_fuzz, target, itertools.count(seed), log, until)))
        everything = [kind for kinds, _ in turns for kind in kinds]
        while time.monotonic() < until and any(map(log.wants, everything)):
            for kinds, turn in turns:
                # Who has reached its target waits for the others.
                aimed = TARGETS.keys() >= set(kinds) or kinds[0].startswith(MUTANTS)
                if not aimed or any(map(log.lacks, kinds)) or not any(map(log.lacks, everything)):
                    turn()


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
