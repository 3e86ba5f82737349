"""What the encoding benchmarks share: positions of random games, and how many states a second a call makes."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

NUM_STATES = 4096


def random_states(game: Any, count: int) -> list[Any]:
    """Positions of random games in which somebody can move, in playing order."""
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
