"""Runs commands in processes that are forked from one which has imported everything."""

from __future__ import annotations

import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.faults.disk import Disk

LIMIT_S = 60.0
"""A command that takes longer hangs: alone it takes about one, and a torture shares its cores."""


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    status: int
    """Exit status, or minus the signal."""
    said: str
    num_operations: int
    seconds: float


class Nursery:
    """A process that has imported everything and forks for each command."""

    def __enter__(self) -> Nursery:
        command = [sys.executable, "-m", "tests.faults.nursery"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def run(self, arguments: list[str], root: Path, fault: str | None = None, at: int = 0) -> Ending:
        """Run ``genpolicy ARGUMENTS`` in a folder, with a fault at an operation below it; after a power cut the folder
        is as the disk has it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        shadow = root.with_name(f"{root.name}-shadow")
        order = {"arguments": arguments, "root": str(root), "fault": fault, "at": at, "shadow": str(shadow)}
        print(json.dumps(order), file=self._process.stdin, flush=True)
        ready, _, _ = select.select([self._process.stdout], [], [], 3 * LIMIT_S)
        assert ready, f"the process that forks is silent: {arguments}"
        ending = Ending(**json.loads(self._process.stdout.readline()))
        if shadow.exists():
            shutil.rmtree(root)
            shadow.rename(root)
        return ending


IMPORTS = (
    *("genpolicy.training.loop", "genpolicy.training.measure", "genpolicy.training.run", "torch._dynamo", "filelock"),
    *("genpolicy.data.window_build", "genpolicy.policies.diffusion", "genpolicy.policies.tokens", "pyarrow.parquet"),
    *(
        "genpolicy_connect.solver",
        "genpolicy_common.train",
        "genpolicy_labelling.commands",
        "genpolicy_labelling.label",
    ),
    *("genpolicy_labelling.selfplay", "genpolicy_labelling.importing", "genpolicy_arena.commands", "rich.live"),
    *("genpolicy_arena.tournament", "genpolicy_policy_baselines.simple", "genpolicy_experiments.commands", "omegaconf"),
    *(
        "genpolicy_experiments.runner",
        "genpolicy_experiments.worker",
        "genpolicy_evaluation.accuracy",
        "genpolicy_labelling.label",
    ),
    *("genpolicy_labelling.policy_oracle", "genpolicy_loop.runner", "genpolicy_loop.commands", "genpolicy_mcts.policy"),
)
"""What the commands need; none of it starts a thread."""


def _serve() -> None:
    for name in IMPORTS:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        said = Path(f"{order['root']}-said")
        counted = Path(f"{order['root']}-count")
        start = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _child(order, said, counted)
        status = None
        while status is None and time.monotonic() - start < LIMIT_S:
            done, code = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if done else None
            time.sleep(0.005)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            status = -signal.SIGALRM  # stands for a hang
        text = said.read_text(errors="replace")
        number = int(counted.read_text()) if counted.exists() else 0
        for path in (said, counted):
            path.unlink(missing_ok=True)
        ending = {"status": status, "said": text[-4000:], "num_operations": number, "seconds": time.monotonic() - start}
        print(json.dumps(ending), flush=True)


def _child(order: dict[str, Any], said: Path, counted: Path) -> None:
    from genpolicy.cli import main

    os.setpgid(0, 0)
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["root"])
    disk = Disk(Path(order["root"]), order["fault"], order["at"], Path(order["shadow"]))
    status: int = 1
    try:
        status = main(order["arguments"])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        disk.fault = None
        counted.write_text(str(disk.count))
        os._exit(status)


if __name__ == "__main__":
    _serve()
