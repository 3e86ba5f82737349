"""What shown moves cost: a training update of the chess demo's network with them over one without, in one run.

Run ``python benchmarks/shown_moves.py [--updates 20]``. The updates of the two alternate, so that other work on the
machine hits both; the ratio is the median over pairs of neighbouring updates. Wanted: at most 1.05.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from ratios import describe, ratio, times

import genpolicy
from genpolicy.config import compose, structured
from genpolicy.data.records import Dataset
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.shipped import data_folder
from genpolicy.training.config import RunConfig

RUN = {"rounds": "--updates", "quick": ["--updates", "2"]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20, help="timed updates of each")
    parser.add_argument("--config", default="chess/demo")
    args = parser.parse_args()
    config = compose(RunConfig, [args.config])
    game, data = genpolicy.load_game(config.game), Dataset.open(data_folder(config.data.folder))
    made = {}
    for shown in (True, False):
        section = {key: value for key, value in config.learner.items() if key != "kind"}
        section["network"] = {**section["network"], "shown_moves": shown}
        learner = DiffusionLearner(game, structured(DiffusionConfig, section))
        made[shown] = learner, torch.optim.AdamW(learner.parameters(), lr=1e-4)
    windows = made[True][0].windows(data, "train", seed=0)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for update in range(args.updates + 2):
        rows = np.arange(config.trainer.batch_size, dtype=np.int64) + update * config.trainer.batch_size
        batch = windows.batch(rows, update)
        for shown, (learner, optimiser) in made.items():
            began = time.perf_counter()
            loss, _ = learner.loss(batch, torch.Generator().manual_seed(update))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if update > 1:
                seconds[shown].append(time.perf_counter() - began)
    describe(f"{args.config}, {torch.get_num_threads()} threads")
    ratio("an update with shown moves over one without", seconds[True], seconds[False], wanted="at most 1.05")
    times("an update with shown moves", seconds[True])


if __name__ == "__main__":
    main()
