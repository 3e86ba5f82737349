"""How much memory training, labelling, the engine and the page gain in a long run; Linux only.

    python benchmarks/long_runs.py [--minutes 60] [--policy chess] [--engine stockfish] [--only engine web]

The four run side by side, busy all the time. A figure is the highest resident memory of a command and of the processes
that it started, after the first tenth of the time, less that at a tenth: what comes after the start.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeAlias

from positions import random_positions
from ratios import describe, rate
from web import Client, served

import genpolicy

RUN = "takes an hour: python benchmarks/long_runs.py"
SAMPLES = 240
WANTED = "at most 200"
Work: TypeAlias = "Callable[[], int]"


def tree_mib(root: int) -> float:
    """Resident memory of a process and of all that it started, in MiB."""
    parents, resident = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            except OSError:  # ended meanwhile
                continue
            parents[int(folder.name)] = int(status["PPid"])
            resident[int(folder.name)] = int(status.get("VmRSS", "0").split()[0]) / 1024
    family, found = {root}, True
    while found:
        found = {child for child, parent in parents.items() if parent in family} - family
        family |= found
    return sum(resident.get(each, 0.0) for each in family)


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A genpolicy command, ended by SIGTERM (a shell's background commands ignore SIGINT)."""
    line, pipe = [sys.executable, "-m", "genpolicy", *arguments], subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is not None:
                print(f"genpolicy {arguments[0]} had ended with status {process.returncode}", file=sys.stderr)
            process.terminate()


@contextmanager
def training(folder: Path, _: argparse.Namespace) -> Iterator[tuple[int, Work]]:
    """The chess demo, without an end."""
    given = ["trainer.max_minutes=null", "trainer.max_records=1000000000", "trainer.device=cpu"]
    with command("train", "--config", "chess/demo", "--out", str(folder), *given) as process:

        def updates() -> int:
            return int(json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["step"])

        yield process.pid, updates


@contextmanager
def labelling(folder: Path, arguments: argparse.Namespace) -> Iterator[tuple[int, Work]]:
    """Self-play of an engine, every position labelled."""
    oracle = f"{arguments.engine}?nodes=2000"
    given = ["--game", "chess", "--oracle", oracle, "--positions", "10000000", "--error-rate", "0:0.5"]
    with command("data", "selfplay", *given, "--out", str(folder)) as process:

        def entries() -> int:
            (journal,) = folder.parent.rglob("journal.sqlite")
            with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as store:
                return int(store.execute("SELECT COUNT(*) FROM entries").fetchone()[0])

        yield process.pid, entries


@contextmanager
def busy(step: Callable[[], None]) -> Iterator[Work]:
    """Repeat something in a thread; how often it was done."""
    done, ended = [0], threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            step()
            done[0] += 1

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        ended.set()
        thread.join()


@contextmanager
def engine(_: Path, arguments: argparse.Namespace) -> Iterator[tuple[int, Work]]:
    """A GUI's session that asks about one position after the other."""
    texts, draw = fens(), random.Random(0)
    with command("engine", "--policy", arguments.policy) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print("uci\nisready", file=process.stdin, flush=True)

        def decide() -> None:
            print(f"position fen {draw.choice(texts)}\ngo", file=process.stdin, flush=True)
            while not (said := process.stdout.readline()).startswith("bestmove"):  # type: ignore[union-attr]
                if not said:
                    raise RuntimeError("the engine ended")

        with busy(decide) as work:
            yield process.pid, work


@contextmanager
def web(_: Path, arguments: argparse.Namespace) -> Iterator[tuple[int, Work]]:
    """A page that asks for a dream in one position after the other."""
    texts, draw = fens(), random.Random(1)
    with served(["--policy", arguments.policy]) as (host, port, pid):
        client = Client(host, port)
        policy = client.offers()["policies"][0]

        def ask() -> None:
            body = {"game": policy["game"], "start": draw.choice(texts), "policy": policy["id"], "dream": True}
            status, _, _, answer = client.post("/api/decide", body)
            if status != 200 or b'"decision"' not in answer.splitlines()[-1]:
                raise RuntimeError(f"{status} {answer[-300:]!r}")

        with busy(ask) as work:
            yield pid, work


def fens() -> list[str]:
    """Positions to ask about."""
    game = genpolicy.load_game("chess")
    return [game.format(state) for state in random_positions(game, 2000)]


WORKS: Mapping[str, tuple[Callable[..., object], str]] = {
    "training": (training, "updates"),
    "labelling": (labelling, "answers and games that are in no file of records yet"),
    "engine": (engine, "decisions"),
    "web": (web, "decisions with dreams"),
}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--policy", default="chess")
    parser.add_argument("--engine", default="stockfish")
    parser.add_argument("--only", nargs="+", choices=tuple(WORKS), default=tuple(WORKS))
    arguments = parser.parse_args()
    describe(f"memory of {', '.join(arguments.only)} side by side for {arguments.minutes:g} minutes")
    seen: dict[str, list[float]] = {name: [] for name in arguments.only}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = {
            name: stack.enter_context(WORKS[name][0](Path(folder, name), arguments))  # type: ignore[arg-type]
            for name in arguments.only
        }
        began = time.monotonic()
        for number in range(1, SAMPLES + 1):
            time.sleep(max(0.0, began + number * 60 * arguments.minutes / SAMPLES - time.monotonic()))
            for name, (pid, _) in running.items():  # type: ignore[misc]
                seen[name].append(tree_mib(pid))
            if number % (SAMPLES // 12) == 0:
                sizes = ", ".join(f"{name} {values[-1]:,.0f}" for name, values in seen.items())
                print(f"after {number * arguments.minutes / SAMPLES:.1f} min: {sizes} MiB", file=sys.stderr, flush=True)
        counts = {name: work() for name, (_, work) in running.items()}  # type: ignore[misc]
    for name, values in seen.items():
        start, later = values[SAMPLES // 10 - 1], values[SAMPLES // 10 :]
        print(f"{name}: {counts[name]:,} {WORKS[name][1]}; {start:,.0f} MiB at a tenth, {values[-1]:,.0f} at the end")
        rate(f"{name}, highest after a tenth less at a tenth", [max(later) - start], "MiB", wanted=WANTED)


if __name__ == "__main__":
    main()
