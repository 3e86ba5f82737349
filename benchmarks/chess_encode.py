"""How fast chess states are made and encoded: parse, play, legal, encode in batches, decode.

Run ``python benchmarks/chess_encode.py``; one core, positions of random games, medians of five passes with the spread.
"""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import chess
import numpy as np

import genpolicy

NUM_STATES = 4096


def random_states(game: Any, count: int) -> list[Any]:
    """Positions of random games, in playing order."""
    rng, states = random.Random(0), []
    while len(states) < count:
        state = game.parse()
        while game.outcome(state) is None and len(states) < count:
            states.append(state)
            state = game.play(state, int(rng.choice(game.legal(state))))
    return states


def rates(call: Callable[[], object], repeats: int = 5) -> tuple[float, float, float]:
    """Least, median and most states a second over some passes, after one to warm up."""
    call()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        found.append(NUM_STATES / (time.perf_counter() - start))
    return min(found), statistics.median(found), max(found)


def main() -> None:
    """Print one line for each operation."""
    game = genpolicy.load_game("chess")
    states = random_states(game, NUM_STATES)
    texts = [game.format(state) for state in states]
    rows = game.tokens.encode(states)
    viewers = np.arange(NUM_STATES) % 2
    moves = [int(game.legal(state)[0]) for state in states]
    fresh = [game.parse(text) for text in texts]

    def forget_legal() -> None:
        for state in fresh:
            state._legal = None
            game.legal(state)

    calls: dict[str, Callable[[], object]] = {
        "encode, one batch": lambda: game.tokens.encode(states),
        "encode, mixed viewers": lambda: game.tokens.encode(states, viewers),
        "encode, batches of 32": lambda: [game.tokens.encode(states[i : i + 32]) for i in range(0, NUM_STATES, 32)],
        "decode": lambda: [game.tokens.decode(row) for row in rows],
        "parse": lambda: [game.parse(text) for text in texts],
        "play": lambda: [game.play(state, move) for state, move in zip(fresh, moves, strict=True)],
        "legal": forget_legal,
    }
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, ", end="")
    print(f"numpy {np.__version__}, chess {chess.__version__}, {NUM_STATES} states; states a second (least to most)")
    for name, call in calls.items():
        least, median, most = rates(call)
        print(f"{name:24}{median:12,.0f}   ({least:,.0f} to {most:,.0f})")


if __name__ == "__main__":
    main()
