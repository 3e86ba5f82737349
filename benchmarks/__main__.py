"""Runs the benchmarks one after the other, each in a process of its own, and keeps every figure.

    python -m benchmarks [NAME ...] [--quick] [--rounds N] [--out FILE.json] [--list]

A benchmark is a script of this folder with a constant ``RUN``: a text that says why it is not part of a run of all, or
a dictionary with any of ``args`` (what it is given), ``quick`` (what it is given besides with ``--quick``), ``rounds``
(its option for the number of rounds), ``packages`` and ``programs`` (what must be installed). Exit status: 1 if one of
them failed, 130 after Ctrl-C; what was measured before is in the file.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.ratios import REPORT, load, machine
from genpolicy.errors import did_you_mean
from genpolicy.files import write_atomic

FOLDER = Path(__file__).parent
GAMES = "/usr/games"
"""Where distributions put engines."""
PATIENCE_S = 10.0
"""What a benchmark has for cleaning up after Ctrl-C."""


@dataclass(frozen=True)
class Benchmark:
    """What a script's ``RUN`` says."""

    script: Path
    title: str
    excluded: str = ""
    args: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    rounds: str | None = None
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As users write it."""
        return self.script.stem

    def missing(self) -> str:
        """What has to be installed first; empty if nothing."""
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), GAMES])
        packages = [f"package {name}" for name in self.packages if importlib.util.find_spec(name) is None]
        return ", ".join(packages + [f"program {name}" for name in self.programs if not shutil.which(name, path=path)])

    def command(self, quick: bool, rounds: int | None) -> list[str]:
        """How it is run."""
        given = [*self.args, *(self.quick if quick else ())]
        if rounds is not None and self.rounds is not None:
            given += [self.rounds, str(rounds)]
        return [sys.executable, str(self.script), *given]


def benchmarks(folder: Path) -> dict[str, Benchmark]:
    """Those of a folder by name. Scripts are read, not imported, which would import torch.

    Raises:
        ValueError: a script has a ``RUN`` with an unknown key.
    """
    found = {}
    for script in sorted(folder.glob("*.py")):
        module = ast.parse(script.read_text(encoding="utf-8"))
        title = (ast.get_docstring(module) or "").partition("\n")[0]
        functions = [node.name for node in module.body if isinstance(node, ast.FunctionDef)]
        if "main" in functions and script.name != "__main__.py":
            found[script.stem] = Benchmark(script, title, "does not say in RUN how it is run")
        for node in module.body:
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["RUN"]:
                run: Any = ast.literal_eval(node.value)
                says = {"excluded": run} if isinstance(run, str) else run
                if wrong := says.keys() - {"excluded", "args", "quick", "rounds", "packages", "programs"}:
                    raise ValueError(
                        f"{script}: RUN has the unknown key {sorted(wrong)[0]!r}; see benchmarks/__main__.py"
                    )
                values: dict[str, Any] = {
                    key: value if isinstance(value, str) else tuple(value) for key, value in says.items()
                }
                found[script.stem] = Benchmark(script, title, **values)
    return found


@dataclass
class Runner:
    """Runs benchmarks and keeps what they report; ``results`` is what the file holds."""

    out: Path | None
    results: dict[str, Any] = field(default_factory=dict)
    current: subprocess.Popen[bytes] | None = None

    def run(self, benchmark: Benchmark, command: list[str]) -> None:
        """Run one, to its end or to Ctrl-C.

        Raises:
            KeyboardInterrupt: after the benchmark has ended and its figures are kept.
        """
        entry: dict[str, Any] = {"command": command[1:], "load before": load()}
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "figures"
            report.touch()
            try:
                entry["outcome"] = self._outcome(command, os.environ | {REPORT: str(report)})
            except KeyboardInterrupt:
                entry["outcome"] = "interrupted"
                raise
            finally:
                lines = report.read_text(encoding="utf-8").splitlines(keepends=True)
                entry["figures"] = [json.loads(line) for line in lines if line.endswith("\n")]
                entry |= {"seconds": time.monotonic() - began, "load after": load()}
                self.keep(benchmark.name, entry)

    def _outcome(self, command: list[str], environment: dict[str, str]) -> str:
        # In a group of its own it gets Ctrl-C from here alone, once, together with what it has started.
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0)
        try:
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise
        return "done" if status == 0 else f"failed: exit status {status}"

    def keep(self, name: str, entry: dict[str, Any]) -> None:
        """Add one benchmark to the file."""
        self.results["benchmarks"][name] = entry
        if self.out is not None:
            write_atomic(self.out, (json.dumps(self.results, indent=1) + "\n").encode())


def main(argv: list[str] | None = None, folder: Path = FOLDER) -> int:
    """Run what is asked for; the exit status."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--quick", action="store_true", help="small ones, which show that everything runs")
    parser.add_argument("--rounds", type=int, metavar="N", help="of every benchmark that has rounds, at least 2")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="every value, with the machine and its load")
    parser.add_argument("--list", action="store_true", help="name them and what is missing for each")
    arguments = parser.parse_args(argv)
    known = benchmarks(folder)
    if arguments.list:
        for benchmark in known.values():
            print(f"{benchmark.name:16} {benchmark.title}")
            if note := benchmark.excluded or (benchmark.missing() and f"skipped, missing: {benchmark.missing()}"):
                print(f"{'':16} ({note})")
        return 0
    for name in arguments.names:
        if name not in known:
            parser.error(f"there is no benchmark {name!r}.{did_you_mean(name, known)} --list names them")
        if known[name].excluded:
            parser.error(f"{name} {known[name].excluded}: see python {known[name].script} --help")
    if arguments.rounds is not None and arguments.rounds < 2:
        parser.error(f"--rounds must be at least 2 for a spread, got {arguments.rounds}")
    if arguments.out is not None and not arguments.out.absolute().parent.is_dir():
        parser.error(f"--out: there is no folder {arguments.out.absolute().parent}; make it first")
    chosen = [known[name] for name in arguments.names or known if not known[name].excluded]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"format": 1, "started": started, "quick": arguments.quick, "machine": machine()}
    return _run_all(chosen, Runner(arguments.out, facts | {"benchmarks": {}}), arguments.quick, arguments.rounds)


def _run_all(chosen: list[Benchmark], runner: Runner, quick: bool, rounds: int | None) -> int:
    interrupted = False
    try:
        for benchmark in chosen:
            if missing := benchmark.missing():
                runner.keep(benchmark.name, {"outcome": f"skipped, missing: {missing}", "figures": []})
                continue
            print(f"\n== {benchmark.name}: {benchmark.title}", flush=True)
            runner.run(benchmark, benchmark.command(quick, rounds))
    except KeyboardInterrupt:
        interrupted = True
    facts = runner.results["machine"]
    print(f"\n== {facts['processor']}, {facts['cores']} cores, torch {facts['torch']}; medians (quartiles)")
    outcomes = runner.results["benchmarks"]
    for name, entry in outcomes.items():
        figures = entry["figures"]
        loads = [entry[key][0] for key in ("load before", "load after") if entry.get(key)]
        tail = f", load {' to '.join(map(str, loads))}" if loads else ""
        print(f"{name}: {entry['outcome']}, {len(figures)} figures{tail}")
        for figure in figures:
            print(f"  {figure['text']}")
    if interrupted:
        return 130
    return int(any(entry["outcome"].startswith("failed") for entry in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
