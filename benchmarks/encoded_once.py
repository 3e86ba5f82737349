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
from collections.abc import Callable
from typing import Any

import torch
from ratios import CLOCKS, describe, in_turns, ratio, times

import genpolicy
from genpolicy.config import compose, structured
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from genpolicy.training.config import RunConfig

RUN = {"rounds": "--rounds", "quick": ["--rounds", "3"], "args": ["--clock", "cpu"]}
WANTED = {("prefix", "ten calls"): "at most 6.5", ("prefix", "whole call"): "at most 9"}


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
    describe(f"{args.config}, {args.searched}, 1 thread, {args.clock} time")
    seconds = in_turns(calls, args.rounds, clock=args.clock)
    for attention in ("full", "prefix"):
        for name, over in (("ten calls", "one call"), ("search", "whole call"), ("search", "short call")):
            limit = WANTED.get((attention, over if name == "search" else name))
            ratio(f"{attention}: {name} over {over}", seconds[attention, name], seconds[attention, over], wanted=limit)
        times(f"{attention}: ten calls", seconds[attention, "ten calls"])
        times(f"{attention}: search", seconds[attention, "search"])


if __name__ == "__main__":
    main()
