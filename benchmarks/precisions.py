"""Would bfloat16, int8 or ``torch.compile`` make decisions on this processor faster, and would they be the same?

    python benchmarks/precisions.py [--rounds 15] [--positions 512] [--policy chess]

A trained policy decides by one call, for one position and for 64, in float32 as it is and in each other form: bfloat16
by autocast, int8 weights and activations (dynamic quantization of every linear layer of the trunk), the trunk
compiled. The ratio is the time of float32 over it, so below 1 the other form is slower; one thread, in turns. Then how
many moves are float32's, and how many the labelled ones, over positions of the bundled sample that it was not trained
on.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from ratios import CLOCKS, describe, in_turns, ratio, times
from torch import nn

from genpolicy import load_policy
from genpolicy.data.records import Dataset
from genpolicy.networks.cpu import Linear
from genpolicy.policies.diffusion import DiffusionPolicy
from genpolicy.shipped import data_folder

RUN = {"rounds": "--rounds", "quick": ["--rounds", "2", "--positions", "32"], "args": ["--clock", "cpu"]}
BATCH = 64
Form = Callable[[], AbstractContextManager[Any]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--positions", type=int, default=512, help="whose moves are compared")
    parser.add_argument("--policy", default="chess", help="a folder, or a game whose shipped policy is taken")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu on a machine with other work")
    args = parser.parse_args()
    torch.set_num_threads(1)
    forms: dict[str, tuple[DiffusionPolicy, Form]] = {
        "float32": (_load(args.policy), nullcontext),
        "bfloat16": (_load(args.policy), partial(torch.autocast, "cpu", torch.bfloat16)),
        "int8": (_int8(_load(args.policy)), nullcontext),
    }
    if shutil.which("g++") or shutil.which("clang++"):
        forms["compiled"] = _load(args.policy), nullcontext
        forms["compiled"][0].learner.network.compile()
    game = forms["float32"][0].game
    data = Dataset.open(data_folder(f"sample:{game.name}"))
    positions = [record for record, _ in zip(data.records("test"), range(args.positions), strict=False)]
    states = [game.parse(record.state) for record in positions]
    describe(f"{args.policy}, 1 thread, {args.clock} time")
    for size in (1, BATCH):
        calls = {name: partial(_decide, *form, states[:size]) for name, form in forms.items()}
        seconds = in_turns(calls, args.rounds, clock=args.clock)
        for name in list(forms)[1:]:
            ratio(f"{size} at once, float32 over {name}", seconds["float32"], seconds[name])
        times(f"{size} at once, float32", seconds["float32"])
    labels = [game.move_from_text(state, record.moves[0]) for state, record in zip(states, positions, strict=True)]
    moves = {name: _decide(*form, states) for name, form in forms.items()}
    for name, chosen in moves.items():
        same, right = (sum(map(int.__eq__, chosen, others)) for others in (moves["float32"], labels))
        print(f"{name}: {same} of {len(states)} moves are float32's, {right} the labelled one")


def _decide(policy: DiffusionPolicy, context: Form, states: list[Any]) -> list[int]:
    """The moves."""
    with context():
        parts = [policy.decide(states[at : at + BATCH]) for at in range(0, len(states), BATCH)]
    return [decision.move for part in parts for decision in part]


def _int8(policy: DiffusionPolicy) -> DiffusionPolicy:
    """The same with the trunk's linear layers in int8; changed in place."""
    trunk = policy.learner.network.trunk
    for module in list(trunk.modules()):
        for name, child in module.named_children():
            if type(child) is Linear:  # torch quantizes its own class alone
                plain = nn.Linear(child.in_features, child.out_features, child.bias is not None)
                plain.load_state_dict(child.state_dict())
                setattr(module, name, plain)
    torch.ao.quantization.quantize_dynamic(trunk, {nn.Linear}, inplace=True)
    return policy


def _load(name: str) -> DiffusionPolicy:
    policy = load_policy(f"{name}?sampler=one_call")
    assert isinstance(policy, DiffusionPolicy)
    return policy


if __name__ == "__main__":
    main()
