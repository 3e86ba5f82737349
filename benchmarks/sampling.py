"""What does a sampler cost beside the network? T steps against T forward passes, at the 10k configuration's shape.

    python benchmarks/sampling.py [--batch 1] [--rounds 5] [--clock cpu] [--samplers easy_first ancestral ...]

Both run on the same noised positions, in turns; the forward pass is the network's own, logits included. The ratio shall
be at most 1.05 with every sampler; the exit status is 1 where it is not. On a machine that is busy with other work take
--clock cpu, the time that this process was computing, with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

import torch
from ratios import CLOCKS, describe, in_turns, ratio

import genpolicy
from genpolicy import registry
from genpolicy.config import compose, structured
from genpolicy.diffusion import Sampler, make_sampler, sample
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.training.config import RunConfig

ROOT = Path(__file__).resolve().parents[1]
RUN = {"rounds": "--rounds", "quick": ["--rounds", "2", "--batch", "1", "--samplers", "easy_first"]}
LIMIT = 1.05
SAMPLERS = ("easy_first", "easy_first_commit", "stochastic", "a0_last", "ancestral", "remasking", "by_ply", "flow")


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
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--samplers", nargs="+", default=SAMPLERS)
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

    def sampled(sampler: Sampler) -> None:
        generators = [torch.Generator().manual_seed(i) for i in range(arguments.batch)]
        noise = process.prior_sample(tokens, frozen, admitted=learner.admitted, generator=generators)
        sample(learner.network, process, sampler, noise, frozen, admitted=learner.admitted, generator=generators)

    describe(
        f"{arguments.config.name}: {layout.length} tokens, {steps} steps, batch {arguments.batch}, "
        f"{torch.get_num_threads()} threads, {arguments.clock} time"
    )
    missed = False
    options = {"a0_last": {"last": [layout.first_action]}, "by_ply": {"blocks": layout.blocks.tolist()}}
    for name in arguments.samplers:
        # A policy makes its sampler once and keeps it.
        call = functools.partial(sampled, make_sampler(name, process, **options.get(name, {})))
        # Every second round is the other way round, so that a pass is as often before the sampler as after it.
        spent = in_turns({"passes": forwards, "sampler": call}, arguments.rounds, clock=arguments.clock, warm_up=1)
        figure = ratio(
            f"{name}, {steps} steps over {steps} forward passes",
            spent["sampler"],
            spent["passes"],
            wanted=f"at most {LIMIT}",
        )
        missed = missed or not figure.reached
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
