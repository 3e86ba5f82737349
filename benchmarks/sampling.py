"""What does a sampler cost beside the network? T steps against T forward passes, at the 10k configuration's shape.

    python benchmarks/sampling.py [--batch 4] [--rounds 5] [--samplers easy_first ancestral ...]

Both run on the same noised positions, in turns; the forward pass is the network's own, logits included.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import genpolicy
from genpolicy import registry
from genpolicy.config import compose, structured
from genpolicy.diffusion import make_sampler, sample
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.training.config import RunConfig

ROOT = Path(__file__).resolve().parents[1]


def learner_of(config: Path) -> DiffusionLearner:
    """An untrained learner of a configuration."""
    run = compose(RunConfig, [config])
    options = {key: value for key, value in run.learner.items() if key != "kind"}
    torch.manual_seed(0)
    return DiffusionLearner(genpolicy.load_game(run.game or "chess"), structured(DiffusionConfig, options))


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/chess/diffusearch-10k.yaml")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samplers", nargs="+", default=["easy_first", "easy_first_commit", "ancestral"])
    arguments = parser.parse_args()
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

    def sampled(name: str) -> None:
        generators = [torch.Generator().manual_seed(i) for i in range(arguments.batch)]
        noise = process.prior_sample(tokens, frozen, admitted=learner.admitted, generator=generators)
        sampler = make_sampler(name, process)
        sample(learner.network, process, sampler, noise, frozen, admitted=learner.admitted, generator=generators)

    print(
        f"{arguments.config.name}: {layout.length} tokens, {steps} steps, batch {arguments.batch}, "
        f"{torch.get_num_threads()} threads of {os.cpu_count()} cores, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )
    forwards()
    for name in arguments.samplers:
        sampled(name)
        ratios = []
        for _ in range(arguments.rounds):
            before, ours, after = seconds(forwards), seconds(lambda name=name: sampled(name)), seconds(forwards)
            ratios.append(ours / ((before + after) / 2))
        middle = statistics.median(ratios)
        print(
            f"{name}: {steps} steps / {steps} forward passes = {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f}); "
            f"one pass {1e3 * before / steps:.1f} ms"
        )


if __name__ == "__main__":
    main()
