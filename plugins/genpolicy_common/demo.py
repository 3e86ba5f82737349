"""``genpolicy demo``: runs the command lines that ``demo-steps.yml`` beside a game's configuration ``demo`` lists."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from genpolicy.cli import EXIT_INTERRUPTED, StoppedError
from genpolicy.config import compose
from genpolicy.errors import did_you_mean
from genpolicy.machine import num_cores
from genpolicy.registry import load_game
from genpolicy.shipped import shipped
from genpolicy_common import DEMO

STEPS_FILE = "demo-steps.yml"


@dataclass
class Demo:
    """The content of ``demo-steps.yml``. In command lines and in ``next``, ``{out}`` is the folder of the demo."""

    out: str = "runs/demo"
    """Folder of the demo unless ``--out`` names another."""
    steps: list[str] = field(default_factory=list)
    """Command lines without ``genpolicy``."""
    if_installed: dict[str, str] = field(default_factory=dict)
    """Program -> a command line that is run last, where the program is installed."""
    next: str = ""
    """Printed at the end."""


def add_parser(subparsers: Any) -> None:
    """Add ``demo`` to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help=DEMO.help,
        description="Train small policies on a shipped sample, evaluate them on games that they never saw, and let one "
        "play a game against itself: some minutes on two cores. Every command line is printed before it is run. "
        "Running it again trains anew.",
    )
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings of every training run")
    parser.add_argument("--game", default="chess", metavar="NAME", help="game of the demo; default chess")
    parser.add_argument("--out", metavar="FOLDER", help="folder (default: runs/demo, or what the game's demo names)")
    parser.add_argument("--plan", action="store_true", help="print the command lines and stop")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if wrong := [setting for setting in arguments.settings if "=" not in setting]:
        raise ValueError(f"{wrong[0]!r} is not key=value; another game is --game {wrong[0]}")
    demo = compose(Demo, [steps_file(arguments.game)])
    out = arguments.out or demo.out
    steps = list(command_lines(demo, out, arguments.settings))
    if arguments.plan:
        print(*(shlex.join(["genpolicy", *step]) for step in steps), sep="\n")
        return 0
    load_game(arguments.game)  # names the extra that is missing
    os.makedirs(out, exist_ok=True)
    for group in side_by_side(steps, num_cores()):
        if status := _run_steps(group):
            return status
    print(f"\n{demo.next.replace('{out}', out)}", end="")
    return 0


def steps_file(game: str) -> Path:
    """The file of a game's demo.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    beside = {name.removesuffix("/demo"): path for name, path in shipped().items() if name.endswith("/demo")}
    known = {name: path.with_name(STEPS_FILE) for name, path in beside.items() if path.with_name(STEPS_FILE).is_file()}
    if game not in known:
        raise ValueError(f"no demo of {game!r}.{did_you_mean(game, known)} There are: {', '.join(known)}")
    return known[game]


def command_lines(demo: Demo, out: str, settings: Sequence[str]) -> Iterator[list[str]]:
    """The arguments of ``genpolicy`` of each step that this machine can take.

    Args:
        demo: The demo.
        out: Its folder.
        settings: ``key=value`` for every training run.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/games"])  # Debian's place of engines
    given = {setting.partition("=")[0] for setting in settings}
    extra = [line for program, line in demo.if_installed.items() if shutil.which(program, path=path)]
    for line in [*demo.steps, *extra]:
        words = [word.replace("{out}", out) for word in shlex.split(line)]
        if words[0] == "train":  # a setting of the user's replaces that of the step
            words = [*(word for word in words if word.partition("=")[0] not in given), *settings]
        yield words


def side_by_side(steps: Sequence[list[str]], num_cores: int) -> Iterator[Sequence[list[str]]]:
    """The steps in groups that run at the same time: trainings that follow each other, one for each core at most.

    A small network gains little from a second core.
    """
    for trains, neighbours in groupby(steps, key=lambda step: step[0] == "train"):
        group = list(neighbours)
        at_once = num_cores if trains else 1
        yield from (group[i : i + at_once] for i in range(0, len(group), at_once))


def _run_steps(steps: Sequence[list[str]]) -> int:
    """Run command lines of genpolicy at the same time and wait for all: 0, or the exit status of one that failed.

    What the first prints is shown at once, what another prints when those before it have ended. Where one fails, the
    others are told to end.
    """
    lines = [shlex.join(["genpolicy", *step]) for step in steps]
    shown = " &\n$ ".join(lines)
    print(f"\n\033[1m$ {shown}\033[0m" if sys.stdout.isatty() else f"\n$ {shown}", flush=True)
    threads = {} if len(steps) == 1 else {"OMP_NUM_THREADS": str(num_cores() // len(steps))}
    failed = interrupted = 0
    with ExitStack() as held:
        outputs = [None, *(held.enter_context(TemporaryFile()) for _ in steps[1:])]
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "genpolicy", *step],
                env={**threads, **os.environ},
                stdout=output,
                stderr=output and subprocess.STDOUT,
            )
            for step, output in zip(steps, outputs, strict=True)
        ]
        for line, process, output in zip(lines, processes, outputs, strict=True):
            while process.returncode is None:
                try:
                    process.wait()
                except KeyboardInterrupt as stop:
                    interrupted = EXIT_INTERRUPTED  # the steps got it, too, and end when they have saved what they have
                    if isinstance(stop, StoppedError):  # which they did not get
                        interrupted = 128 + stop.number
                        for each in processes:
                            each.terminate()
            if output is not None:
                output.seek(0)
                print(output.read().decode(errors="replace"), end="", flush=True)
            status = interrupted or process.returncode
            if status and not failed:
                failed = status
                print(f"genpolicy demo: stopped, exit status {status}, at: {line}", file=sys.stderr)
                for other in processes if not interrupted else ():
                    other.terminate()
    return failed
