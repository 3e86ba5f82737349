"""Is a cluster as fast as processes? Labels a second by two workers of Ray against two local processes.

    python benchmarks/cluster.py [--engine stockfish] [--nodes 4000] [--positions 300] [--rounds 5]

Both label the same positions with the same limit, in blocks of 16, in turns, so that a busy machine slows both.
Starting Ray and the engines is not counted; it is printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Generator
from typing import Any

import genpolicy
from genpolicy.data.oracle import Line, Oracle
from genpolicy.machine import commit
from genpolicy_common.cluster import open_cluster
from genpolicy_engines.oracle import EngineOracle, find_engine
from genpolicy_labelling.cluster_oracle import ClusterOracle
from genpolicy_labelling.label import BLOCK_RECORDS


def positions(number: int, seed: int = 0) -> list[Any]:
    """Positions after 6 to 60 random moves from the initial one, all with legal moves."""
    game, draw = genpolicy.load_game("chess"), random.Random(seed)
    states: list[Any] = []
    while len(states) < number:
        state = game.parse()
        for _ in range(draw.randint(6, 60)):
            if game.outcome(state) is not None:
                break
            state = game.play(state, draw.choice(game.legal(state).tolist()))
        if game.outcome(state) is None:
            states.append(game.parse(game.format(state)))
    return states


def rate(oracle: Oracle, states: list[Any], horizon: int) -> float:
    """Positions a second, in blocks as labelling has them."""

    def task(state: Any) -> Generator[Any, Line, None]:
        line = yield state
        assert line.error is None

    tasks = [task(state) for state in states]
    start = time.perf_counter()
    for _ in oracle.run((tasks[i : i + BLOCK_RECORDS] for i in range(0, len(tasks), BLOCK_RECORDS)), horizon):
        continue
    return len(states) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="stockfish")
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--positions", type=int, default=300)
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    game, states = genpolicy.load_game("chess"), positions(arguments.positions)
    spelling = f"{find_engine(arguments.engine)}?nodes={arguments.nodes}"
    options = {"engine": find_engine(arguments.engine), "nodes": arguments.nodes, "processes": 2}
    began = time.perf_counter()
    cluster = open_cluster("local", 2)
    with ClusterOracle(spelling, game, cluster, single=True) as there, EngineOracle(game, **options) as here:
        print(
            f"{here.name}, {arguments.nodes} nodes a search, {arguments.positions} positions, {os.cpu_count()} cores, "
            f"load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, commit {commit()}; Ray and its first "
            f"worker started in {time.perf_counter() - began:.1f} s"
        )
        for oracle in (there, here):
            rate(oracle, states[:64], arguments.horizon)
        rows = []
        for number in range(arguments.rounds):
            pair: list[tuple[str, Oracle]] = [("there", there), ("here", here)]
            done = {name: rate(oracle, states, arguments.horizon) for name, oracle in pair[:: 1 - 2 * (number % 2)]}
            rows.append((done["here"], done["there"], done["there"] / done["here"]))
    for name, values in zip(("local, positions/s", "Ray, positions/s", "ratio"), zip(*rows, strict=True), strict=True):
        print(f"{name:20} {statistics.median(values):8.3f}  ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
