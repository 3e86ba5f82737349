"""What a tree search costs: simulations a second with a free evaluator, and what batched leaves gain with a network.

    python benchmarks/search.py [--rounds 7] [--simulations 4000] [--skip-network | --skip-overhead]
        [--network-simulations 32] [--device cpu]

Overhead, one core: a tree of one game, uniform prior, value 0 (``even``: all time goes to the rules and the tree), and
with priors and values drawn from a hash of the position (``hashed``: narrower and deeper trees, and the legal moves of
every leaf are needed); by the process's own time, so that other work on the machine counts less, and by the clock.

Network: whole searches of chess positions with the 8-layer S-A network of configs/chess/diffusearch-10k.yaml (random
weights) as the prior and the heuristic as the value, leaves evaluated one by one and in batches, in turns, so that a
busy machine slows both; ratios are taken within each round. Threads that wait for each other count as the process's
time: look at that column under OMP_NUM_THREADS=1 only.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from positions import random_positions
from ratios import describe, rate, ratio

import genpolicy
from genpolicy.config import compose, structured
from genpolicy.game import Game
from genpolicy.search.model import Evaluator, Prior
from genpolicy.training.config import RunConfig
from genpolicy_mcts.evaluators import Heuristic
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.policy import MctsPolicy, PolicyModel
from genpolicy_mcts.rules import RulesModel, even
from genpolicy_mcts.selection import MctsConfig
from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner, OneStepPolicy

RUN = {
    "rounds": "--rounds",
    "quick": ["--rounds", "2", "--simulations", "200", "--network-simulations", "4"],
}
GAMES = {"chess": "chess", "Connect Four": "connect:rows=6,cols=7,k=4,gravity=true"}
TRUNK = Path(__file__).parents[1] / "configs/chess/diffusearch-10k.yaml"


def hashed(game: Game[Any]) -> Evaluator:
    """Priors and values that look random, cheaply: from the position's key and ply of the text."""

    def evaluate(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        priors: list[Prior] = []
        values = []
        for state in states:
            seed = zlib.crc32(str(game.key(state)).encode())
            weights = np.cos(np.arange(1, len(game.legal(state)) + 1) * (1.0 + seed % 9973))
            for _ in range(3):  # to the power of 8
                weights *= weights
            weights += 0.01
            priors.append(weights / weights.sum())
            values.append((seed % 2001 - 1000) / 1000)
        return priors, values

    return evaluate


def overhead(rounds: int, simulations: int) -> None:
    print(
        f"\nOne core, free evaluator, {simulations} simulations a search from the initial position; simulations a "
        "second of the process's time, and of the clock"
    )
    for name, spec in GAMES.items():
        game = genpolicy.load_game(spec)
        for kind, evaluator in (("even", even), ("hashed", hashed(game))):
            for leaves in (1, 16):
                search = Mcts(RulesModel(game, evaluator), MctsConfig(simulations=simulations, leaves=leaves))
                own, clock, depth = [], [], 0
                for number in range(rounds + 1):
                    began, began_own = time.perf_counter(), time.process_time()
                    (result,) = search.search([game.parse()])
                    depth = result.depth
                    if number:  # the first warms up
                        own.append(simulations / (time.process_time() - began_own))
                        clock.append(simulations / (time.perf_counter() - began))
                what = f"{name}, {kind}, {leaves} in flight, depth {depth}"
                rate(f"{what}, of the process's time", own, "simulations/s")
                rate(f"{what}, of the clock", clock, "simulations/s")


def trunk(game: Game[Any], device: str) -> OneStepPolicy:
    """S-A with the trunk of the 10k configuration, random weights."""
    learner = dict(compose(RunConfig, [TRUNK]).learner)
    options = {key: learner[key] for key in ("viewer", "network")}
    torch.manual_seed(0)
    policy = OneStepLearner(game, structured(OneStepConfig, options)).to(device).policy()
    assert isinstance(policy, OneStepPolicy)
    return policy


def with_network(rounds: int, device: str, simulations: int) -> None:
    game = genpolicy.load_game("chess")
    policy = trunk(game, device)
    size = sum(parameter.numel() for parameter in policy.learner.parameters()) / 1e6
    searches = {
        leaves: MctsPolicy(
            game, PolicyModel(game, policy, Heuristic(game)), MctsConfig(simulations=simulations, leaves=leaves)
        )
        for leaves in (1, 8, 16)
    }
    games, first = 8, "one game, 1 in flight"
    states = random_positions(game, games, 10)
    clock: dict[str, list[float]] = {}
    own: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        one = [states[number % games]]
        calls = [(f"one game, {leaves} in flight", search, one) for leaves, search in searches.items()]
        for name, search, roots in [*calls, (f"{games} games at once, 1 in flight", searches[1], states)]:
            began, began_own = time.perf_counter(), time.process_time()
            search.decide(roots)
            if number:  # the first warms up
                clock.setdefault(name, []).append(len(roots) / (time.perf_counter() - began))
                own.setdefault(name, []).append(len(roots) / (time.process_time() - began_own))
    print(
        f"\nChess, {simulations} simulations a move, S-A of {policy.learner.config.network.num_layers} layers, width "
        f"{policy.learner.config.network.width} ({size:.1f} M parameters, float32) on {device}, "
        f"{torch.get_num_threads()} threads"
    )
    for name in own:
        for kind, rates in (("of the process's time", own), ("of the clock", clock)):
            rate(f"{name}, {kind}", rates[name], "moves/s")
            if name != first:
                ratio(f"{name}, {kind}, over one by one", rates[name], rates[first], rates=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--simulations", type=int, default=4000, help="of the overhead's searches")
    parser.add_argument("--network-simulations", type=int, default=32)
    parser.add_argument("--skip-network", action="store_true")
    parser.add_argument("--skip-overhead", action="store_true")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    describe(f"search, numpy {np.__version__}")
    print("defaults:", dataclasses.asdict(MctsConfig()))
    if not arguments.skip_overhead:
        overhead(arguments.rounds, arguments.simulations)
    if not arguments.skip_network:
        with_network(arguments.rounds, arguments.device, arguments.network_simulations)


if __name__ == "__main__":
    main()
