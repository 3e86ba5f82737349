"""What a decision costs over one call, with full attention and with ``network.attention: prefix``, in one run.

    python benchmarks/encoded_once.py [--rounds 15] [--clock cpu] [--config chess/demo] [--searched chess/demo-imagine]

Two ratios for each kind of attention, of untrained networks and of one position on one thread: a decision by ten
calls over one by one call (``--config``), and imagined search over eight candidates at depth 1 over one call
(``--searched``): of full length, and as the sampler ``one_call`` makes it, which under ``process.order: ply`` is half
as long. What is compared alternates, so that other work on the machine hits all; medians with quartiles.
Wanted with ``prefix``: at most 6.5, and at most 9 of the call of full length.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import genpolicy
from genpolicy.config import compose, structured
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from genpolicy.training.config import RunConfig
from genpolicy_common.env import processor

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def learner_of(config: str, attention: str) -> DiffusionLearner:
    """An untrained learner."""
    run = compose(RunConfig, [config])
    section = {key: value for key, value in run.learner.items() if key != "kind"}
    section["network"] = {**section["network"], "attention": attention}
    torch.manual_seed(0)
    return DiffusionLearner(genpolicy.load_game(run.game or "chess"), structured(DiffusionConfig, section)).eval()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--config", default="chess/demo")
    parser.add_argument("--searched", default="chess/demo-imagine")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu on a machine with other work")
    args = parser.parse_args()
    clock = CLOCKS[args.clock]
    torch.set_num_threads(1)
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    first: dict[str, dict[str, Any]] = {"one call": {"sampler": "one_call"}, "ten calls": {"num_steps": 10}}
    second: dict[str, dict[str, Any]] = {"short call": {"sampler": "one_call"}, "search": {"candidates": 8, "depth": 1}}
    for attention in ("full", "prefix"):
        made = learner_of(args.config, attention)
        states = [made.game.parse()]
        for name, options in first.items():
            policy = DiffusionPolicy(made, candidates=0, **options)
            calls[attention, name] = lambda policy=policy, states=states: policy.decide(states)  # type: ignore[misc]
        made = learner_of(args.searched, attention)
        tokens, t = made.roots(states, made.viewers(states)), torch.tensor([made.process.num_timesteps])

        def whole(made: DiffusionLearner = made, tokens: torch.Tensor = tokens, t: torch.Tensor = t) -> object:
            with torch.no_grad():
                return made.network(tokens, t)

        calls[attention, "whole call"] = whole
        for name, options in second.items():
            policy = DiffusionPolicy(made, **{"candidates": 0, **options})
            calls[attention, name] = lambda policy=policy, states=states: policy.decide(states)  # type: ignore[misc]
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for number in range(args.rounds + 2):
        for key, call in calls.items():
            began = clock()
            call()
            if number > 1:
                seconds[key].append(clock() - began)
    print(f"{args.config}, {args.searched} on {processor()}, 1 thread, {args.clock} time, {args.rounds} rounds")
    for attention in ("full", "prefix"):
        for name, over in (("ten calls", "one call"), ("search", "whole call"), ("search", "short call")):
            pairs = zip(seconds[attention, name], seconds[attention, over], strict=True)
            low, middle, high = statistics.quantiles([one / other for one, other in pairs], n=4)
            ms = 1e3 * statistics.median(seconds[attention, name])
            print(f"{attention}: {name} over {over} {middle:.1f} ({low:.1f} to {high:.1f}); {name} {ms:.0f} ms")


if __name__ == "__main__":
    main()
