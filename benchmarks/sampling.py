"""What does a sampler cost beside the network? T steps against T forward passes, at the 10k configuration's shape.

    python benchmarks/sampling.py [--batch 4] [--rounds 5] [--clock cpu] [--samplers easy_first ancestral ...]

Both run on the same noised positions, in turns; the forward pass is the network's own, logits included. The ratio shall
be at most 1.05 with every sampler; the exit status is 1 where it is not. On a machine that is busy with other work take
--clock cpu, the time that this process was computing, with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import genpolicy
from genpolicy import registry
from genpolicy.config import compose, structured
from genpolicy.diffusion import Sampler, make_sampler, sample
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.training.config import RunConfig

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.05
SAMPLERS = ("easy_first", "easy_first_commit", "stochastic", "a0_last", "ancestral", "remasking")
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def learner_of(config: Path) -> DiffusionLearner:
    """An untrained learner of a configuration."""
    run = compose(RunConfig, [config])
    options = {key: value for key, value in run.learner.items() if key != "kind"}
    torch.manual_seed(0)
    return DiffusionLearner(genpolicy.load_game(run.game or "chess"), structured(DiffusionConfig, options))


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/chess/diffusearch-10k.yaml")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--samplers", nargs="+", default=SAMPLERS)
    arguments = parser.parse_args()
    clock = CLOCKS[arguments.clock]
    registry.available("processes")
    learner = learner_of(arguments.config).eval()
    game, process, layout = learner.game, learner.process, learner.layout
    states = [game.parse()] * arguments.batch
    tokens = learner.roots(states, learner.viewers(states))
    frozen = torch.from_numpy(layout.given.copy()).expand_as(tokens)
    steps = process.num_timesteps
    times = torch.full((arguments.batch,), steps)

    def forwards() -> None:
        for _ in range(steps):
            learner.network(tokens, times)

    def sampled(sampler: Sampler) -> None:
        generators = [torch.Generator().manual_seed(i) for i in range(arguments.batch)]
        noise = process.prior_sample(tokens, frozen, admitted=learner.admitted, generator=generators)
        sample(learner.network, process, sampler, noise, frozen, admitted=learner.admitted, generator=generators)

    def seconds(call: Callable[[], object]) -> float:
        began = clock()
        call()
        return clock() - began

    print(
        f"{arguments.config.name}: {layout.length} tokens, {steps} steps, batch {arguments.batch}, "
        f"{torch.get_num_threads()} threads of {os.cpu_count()} cores, torch {torch.__version__}, "
        f"Python {platform.python_version()}, "
        f"{arguments.clock} time"
    )
    forwards()
    worst = 0.0
    for name in arguments.samplers:
        # A policy makes its sampler once and keeps it.
        options = {"last": [layout.first_action]} if name == "a0_last" else {}
        call = functools.partial(sampled, make_sampler(name, process, **options))
        call()
        ratios = []
        for _ in range(arguments.rounds):
            before, ours, after = seconds(forwards), seconds(call), seconds(forwards)
            ratios.append(ours / ((before + after) / 2))
        middle = statistics.median(ratios)
        print(
            f"{name}: {steps} steps / {steps} forward passes = {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f}); "
            f"one pass {1e3 * before / steps:.1f} ms"
        )
        worst = max(worst, middle)
    print(f"largest {worst:.3f}, at most {LIMIT} wanted")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
