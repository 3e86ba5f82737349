"""A training update of a configuration by this version over one by another, in one run.

Run ``python benchmarks/versions.py FOLDER [OVERRIDE ...]``, where FOLDER is a checkout of another commit that has an
environment with its package in ``.venv`` (``git worktree add FOLDER COMMIT``, then ``make install`` there). Both train
the network of ``configs/chess/demo.yaml`` as their own commit has it, on its own sample; overrides such as
``learner.network.shown_moves=false`` go to this version's alone. Each is a process of its own, on one thread; their
updates take turns, so that other work on the machine hits both, and what is compared is CPU time. Wanted: at most 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from ratios import describe, ratio, times

RUN = "compares with another commit, whose checkout is its argument"
CONFIG, SAMPLE = "configs/chess/demo.yaml", "games/genpolicy_chess/sample"
HERE = Path(__file__).resolve().parent.parent

# Uses only what has been there since the library's first release. Prints the seconds of an update for a line read.
UPDATES = """
import inspect, sys, time
import numpy as np, torch
import genpolicy
from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.training import optim
from genpolicy.training.config import RunConfig
from genpolicy.training.setup import make_learner

torch.set_num_threads(1)
torch.manual_seed(0)
config = compose(RunConfig, [sys.argv[1]], sys.argv[3:])
data = Dataset.open(sys.argv[2])
learner = make_learner(genpolicy.load_game("chess"), config.learner)
windows = learner.windows(data, "train", seed=0)
groups = learner.param_groups(config.optim.weight_decay)
takes = inspect.signature(optim.make_optimizers).parameters
optimizers = optim.make_optimizers(*([groups, learner] if "module" in takes else [groups]), config.optim)
learner.train()
size = config.trainer.batch_size
for update, _ in enumerate(sys.stdin):
    batch = windows.batch(np.arange(size, dtype=np.int64) + update * size, update)
    began = time.process_time()
    loss, _ = learner.loss(batch, torch.Generator().manual_seed(update))
    loss.backward()
    for optimizer in optimizers.values():
        optimizer.step()
        optimizer.zero_grad()
    print(time.process_time() - began, flush=True)
"""


class Updates:
    """A process that makes one update when it is asked to."""

    def __init__(self, checkout: Path, python: str, overrides: list[str]) -> None:
        where = [str(checkout / CONFIG), str(checkout / SAMPLE)]
        self.process = subprocess.Popen(
            [python, "-c", UPDATES, *where, *overrides],
            cwd=checkout,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def one(self) -> float:
        """Seconds of CPU time of the next update."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")  # type: ignore[str-bytes-safe]
        return float(line)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of another commit with an environment in .venv")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="of this version's configuration")
    parser.add_argument("--updates", type=int, default=20, help="timed updates of each")
    args = parser.parse_args()
    other = args.other.resolve()
    pair = [Updates(HERE, sys.executable, args.overrides), Updates(other, str(other / ".venv/bin/python"), [])]
    seconds: list[list[float]] = [[], []]
    for update in range(-2, args.updates):
        for side in (0, 1) if update % 2 else (1, 0):
            spent = pair[side].one()
            if update >= 0:
                seconds[side].append(spent)
    describe("one thread, CPU time, " + " ".join([CONFIG, *args.overrides]))
    times("an update of this version", seconds[0])
    times(f"an update of {other.name}", seconds[1])
    ratio(f"an update of this version over one of {other.name}", *seconds, wanted="at most 1")


if __name__ == "__main__":
    main()
