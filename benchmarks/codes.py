"""Time of training on a record with imagined codes (S-AKA) over that with imagined positions (S-ASA), in one process.

    python benchmarks/codes.py --data runs/c4-labelled [--config connect/code-4x4] [--horizon 4] [--books 1]

A round is the loss of one batch of labelled lines and its gradient with each, in turn, so that other work on the
machine hits both; reading the windows and encoding the codes count. Untrained networks of the same shape, one thread,
CPU time. Printed are the ratio in each round as a median with quartiles, and the medians. Wanted: at most 0.5.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from ratios import describe, ratio, times

import genpolicy
from genpolicy.config import compose, structured
from genpolicy.data.records import Dataset
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.shipped import data_folder
from genpolicy.training.config import RunConfig
from genpolicy_policy_model.code_diffusion import CodeDiffusionConfig, CodeDiffusionLearner

RUN = {
    "args": ["--data", "sample:chess", "--books", "2", "--codes", "64"],
    "rounds": "--rounds",
    "quick": ["--rounds", "2"],
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--config", default="connect/code-4x4")
    parser.add_argument("--horizon", type=int, default=4)
    parser.add_argument("--books", type=int, default=1)
    parser.add_argument("--codes", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    records = Dataset.open(data_folder(args.data))
    game = genpolicy.load_game(records.game_spec)
    section = {key: value for key, value in compose(RunConfig, [args.config]).learner.items() if key != "kind"}
    section |= {"horizon": args.horizon, "num_books": args.books, "num_codes": args.codes}
    config = structured(CodeDiffusionConfig, section)
    plain: dict[str, Any] = {"network": config.network, "process": config.process, "train_pad": config.train_pad}
    boards = DiffusionLearner(game, DiffusionConfig(horizon=args.horizon, redraw=config.redraw, **plain))
    codes = CodeDiffusionLearner(game, config)
    codes.network.autoencoder.codebooks.counts.fill_(1.0)  # as if trained: what they say costs the same
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    windows = {learner: learner.windows(records, "train", seed=0) for learner in (boards, codes)}

    def update(learner: DiffusionLearner, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        began = time.process_time()
        learner.zero_grad()
        loss, _ = learner.loss(windows[learner].batch(rows, 0), generator)  # type: ignore[arg-type]
        loss.backward()  # type: ignore[no-untyped-call]
        return time.process_time() - began

    seconds: dict[DiffusionLearner, list[float]] = {boards: [], codes: []}
    for number in range(args.rounds + 3):
        rows = rng.integers(len(windows[codes]), size=args.batch)
        for learner in (boards, codes):
            took = update(learner, rows)
            if number > 2:
                seconds[learner].append(took / args.batch)
    describe(
        f"{game.spec}, {args.config}, horizon {args.horizon}, {args.books} x {args.codes} codes, batch {args.batch}, "
        "1 thread, CPU time"
    )
    for name, learner in (("S-ASA", boards), ("S-AKA", codes)):
        times(f"a record with {name}, {learner.layout.length} tokens", seconds[learner])
    ratio("S-AKA over S-ASA", seconds[codes], seconds[boards], wanted="at most 0.5")


if __name__ == "__main__":
    main()
