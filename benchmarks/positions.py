"""Positions of random games, for benchmarks."""

from __future__ import annotations

import random
from typing import Any

NUM_STATES = 4096
"""How many the encoding benchmarks take."""


def random_states(game: Any, count: int) -> list[Any]:
    """Positions of random games in which somebody can move, in playing order."""
    rng, states = random.Random(0), list[Any]()
    while len(states) < count:
        state = game.parse()
        while game.outcome(state) is None and len(states) < count:
            states.append(state)
            state = game.play(state, int(rng.choice(game.legal(state))))
    return states


def random_positions(game: Any, count: int, least: int = 6, most: int = 60) -> list[Any]:
    """Positions in which somebody can move, each after ``least`` to ``most`` random moves from the initial one."""
    draw, states = random.Random(0), list[Any]()
    while len(states) < count:
        state = game.parse()
        for _ in range(draw.randint(least, most)):
            if game.outcome(state) is not None:
                break
            state = game.play(state, draw.choice(game.legal(state).tolist()))
        if game.outcome(state) is None:
            states.append(state)
    return states
