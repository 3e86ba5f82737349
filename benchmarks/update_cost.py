"""What a training update of one configuration costs in updates of another, in one run.

Run ``python benchmarks/update_cost.py chess/demo-s-a 'chess/demo-imagine learner.process.state_share=0.05'``: each
argument is what follows ``genpolicy train --config``. The updates take turns on one thread, so that other work on the
machine hits all; what is compared is CPU time, and the ratio the median over turns. With it, budgets in records can be
given for equal training time.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from ratios import describe, ratio, times

import genpolicy
from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.policies.learner import Learner
from genpolicy.shipped import data_folder
from genpolicy.training.config import RunConfig
from genpolicy.training.setup import make_learner

RUN = {"args": ["chess/demo-s-a", "chess/demo-imagine"], "rounds": "--updates", "quick": ["--updates", "2"]}
WARM_UP = 2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", metavar="CONFIG", help="a configuration and what it overrides, in quotes")
    parser.add_argument("--updates", type=int, default=20, help="timed updates of each")
    parser.add_argument("--data", default="sample:chess")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = Dataset.open(data_folder(args.data))
    game = genpolicy.load_game(data.game_spec)
    made: list[tuple[Learner, torch.optim.Optimizer]] = []
    for text in args.configs:
        name, *overrides = text.split()
        config = compose(RunConfig, [name], overrides)
        learner = make_learner(game, config.learner)
        made.append((learner, torch.optim.AdamW(learner.parameters(), lr=1e-4)))
    streams = [learner.windows(data, "train", seed=0) for learner, _ in made]
    seconds: list[list[float]] = [[] for _ in made]
    size = config.trainer.batch_size
    for update in range(args.updates + WARM_UP):
        rows = (np.arange(size, dtype=np.int64) + update * size) % len(streams[0])
        for (learner, optimiser), windows, spent in zip(made, streams, seconds, strict=True):
            batch = windows.batch(rows, update)
            began = time.process_time()
            loss, _ = learner.loss(batch, torch.Generator().manual_seed(update))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if update >= WARM_UP:
                spent.append(time.process_time() - began)
    describe(f"one thread, {args.updates} updates of {size} records each, CPU time")
    for text, spent in zip(args.configs, seconds, strict=True):
        times(f"an update of {text}", spent)
        if spent is not seconds[0]:
            ratio(f"an update of {text} over one of {args.configs[0]}", spent, seconds[0])


if __name__ == "__main__":
    main()
