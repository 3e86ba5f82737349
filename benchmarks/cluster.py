"""Is a cluster as fast as processes? Labels a second by two workers of Ray against two local processes.

    python benchmarks/cluster.py [--engine stockfish] [--nodes 4000] [--positions 300] [--rounds 5]

Both label the same positions with the same limit, in blocks of 16, in turns, so that a busy machine slows both.
Starting Ray and the engines is not counted; it is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Generator
from typing import Any

from positions import random_positions
from ratios import describe, rate, ratio

import genpolicy
from genpolicy.data.oracle import Line, Oracle
from genpolicy_common.cluster import open_cluster
from genpolicy_engines.oracle import EngineOracle, find_engine
from genpolicy_labelling.cluster_oracle import ClusterOracle
from genpolicy_labelling.label import BLOCK_RECORDS

RUN = {
    "rounds": "--rounds",
    "quick": ["--rounds", "2", "--nodes", "400", "--positions", "64"],
    "packages": ["ray"],
    "programs": ["stockfish"],
}


def labelled_rate(oracle: Oracle, states: list[Any], horizon: int) -> float:
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
    game = genpolicy.load_game("chess")
    states = [game.parse(game.format(state)) for state in random_positions(game, arguments.positions)]
    spelling = f"{find_engine(arguments.engine)}?nodes={arguments.nodes}"
    options = {"engine": find_engine(arguments.engine), "nodes": arguments.nodes, "processes": 2}
    began = time.perf_counter()
    cluster = open_cluster("local", 2)
    with ClusterOracle(spelling, game, cluster, single=True) as there, EngineOracle(game, **options) as here:
        describe(
            f"{here.name}, {arguments.nodes} nodes a search, {arguments.positions} positions; Ray and its first worker "
            f"started in {time.perf_counter() - began:.1f} s"
        )
        for oracle in (there, here):
            labelled_rate(oracle, states[:64], arguments.horizon)
        done: dict[str, list[float]] = {"there": [], "here": []}
        for number in range(arguments.rounds):
            pair: list[tuple[str, Oracle]] = [("there", there), ("here", here)]
            for name, oracle in pair[:: 1 - 2 * (number % 2)]:
                done[name].append(labelled_rate(oracle, states, arguments.horizon))
    rate("local", done["here"], "positions/s")
    rate("Ray", done["there"], "positions/s")
    ratio("Ray over local processes", done["there"], done["here"], rates=True)


if __name__ == "__main__":
    main()
