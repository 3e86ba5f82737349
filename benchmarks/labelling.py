"""Does labelling keep the engines busy? Nodes per second through EngineOracle against a bare pipe to the same engine.

    python benchmarks/labelling.py [--engine stockfish] [--nodes 4000] [--positions 300] [--rounds 5]

The bare pipe gets every ``position`` and ``go nodes`` at once: no client slows it, it is the engine's own speed.
Both search the same positions with the same limit and hash, in turns, so that a busy machine slows both. The oracle
validates every move of every line besides. Searches on from the end of a short line count as what they are: searches.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from positions import random_positions
from ratios import describe, rate, ratio, times

import genpolicy
from genpolicy_engines.oracle import EngineOracle, find_engine

RUN = {
    "rounds": "--rounds",
    "quick": ["--rounds", "2", "--nodes", "400", "--positions", "40"],
    "programs": ["stockfish"],
}
HASH_MB = 16


def bare_pipe(engine: str, texts: list[str], nodes: int) -> tuple[int, float]:
    """Nodes searched and seconds taken when all searches are written to the engine at once."""
    process = subprocess.Popen([engine], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"uci\nsetoption name Hash value {HASH_MB}\nisready\n".encode())
    process.stdin.flush()
    while process.stdout.readline() != b"readyok\n":
        continue
    commands = "".join(f"position fen {text}\ngo nodes {nodes}\n" for text in texts).encode()
    start = time.perf_counter()
    threading.Thread(target=lambda: (process.stdin.write(commands), process.stdin.flush())).start()  # type: ignore[union-attr]
    output = bytearray()
    num_done = searched = 0
    while num_done < len(texts):
        output += os.read(process.stdout.fileno(), 1 << 20)
        num_done += output.count(b"\nbestmove", max(0, searched - 8))
        searched = len(output)
    seconds = time.perf_counter() - start
    process.kill()
    process.wait()
    searches = bytes(output).split(b"\nbestmove")[: len(texts)]
    return sum(int((re.findall(rb" nodes (\d+)", search) or [b"0"])[-1]) for search in searches), seconds


def through_oracle(oracle: EngineOracle, texts: list[str], horizon: int) -> tuple[int, float]:
    """Nodes searched and seconds taken by the oracle."""
    states = [oracle.game.parse(text) for text in texts]
    before, start = oracle.num_nodes, time.perf_counter()
    oracle.analyse(states, horizon)
    return oracle.num_nodes - before, time.perf_counter() - start


def side_by_side(call: Callable[[], tuple[int, float]], number: int) -> tuple[int, float]:
    """The same call in several threads at once: nodes of all, seconds until the last ends."""
    found: list[tuple[int, float]] = []
    threads = [threading.Thread(target=lambda: found.append(call())) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(nodes for nodes, _ in found), max(seconds for _, seconds in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="stockfish")
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--positions", type=int, default=300)
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    engine = find_engine(arguments.engine)
    game = genpolicy.load_game("chess")
    texts = [game.format(state) for state in random_positions(game, arguments.positions)]
    processes = max(2, min(2, os.cpu_count() or 1))
    options = {"engine": engine, "nodes": arguments.nodes, "hash_mb": HASH_MB}
    client: list[float] = []
    rates: dict[str, list[float]] = {"pipe": [], "oracle": [], "pipe x2": [], "oracle x2": []}
    with EngineOracle(game, **options) as one, EngineOracle(game, processes=processes, **options) as two:
        describe(
            f"{one.name}, {arguments.nodes} nodes a search, hash {HASH_MB} MB, {len(texts)} positions, horizon "
            f"{arguments.horizon}"
        )
        calls: dict[str, Callable[[], tuple[int, float]]] = {
            "pipe": lambda: bare_pipe(engine, texts, arguments.nodes),
            "oracle": lambda: through_oracle(one, texts, arguments.horizon),
            "pipe x2": lambda: side_by_side(lambda: bare_pipe(engine, texts, arguments.nodes), processes),
            "oracle x2": lambda: through_oracle(two, texts, arguments.horizon),
        }
        for number in range(arguments.rounds + 1):
            # The other way round every second time: what drifts drifts for both.
            for name, call in reversed(calls.items()) if number % 2 else calls.items():
                before = time.process_time()
                nodes, seconds = call()
                if number:  # the first round warms up
                    rates[name].append(nodes / seconds)
                    if name == "oracle":
                        client.append((time.process_time() - before) / len(texts))
            if number:
                print(f"round {number}: " + ", ".join(f"{n} {r[-1]:,.0f}" for n, r in rates.items()), file=sys.stderr)
    for name, values in rates.items():
        rate(name, values, "nodes/s")
    times("client's own CPU time a position, parsing included", client)
    pairs = {
        "oracle / bare pipe, 1 process": ("oracle", "pipe"),
        f"oracle / bare pipe, {processes} processes": ("oracle x2", "pipe x2"),
        f"oracle, 1 -> {processes} processes": ("oracle x2", "oracle"),
        f"bare pipe, 1 -> {processes} processes": ("pipe x2", "pipe"),
    }
    for name, (over, under) in pairs.items():
        ratio(name, rates[over], rates[under], rates=True)


if __name__ == "__main__":
    main()
