"""How fast chess states are made and encoded: parse, play, legal, encode in batches, decode.

Run ``python benchmarks/chess_encode.py``; one core, positions of random games, medians of five passes with the spread.
"""

from __future__ import annotations

import platform
from collections.abc import Callable

import chess
import numpy as np
from rates import NUM_STATES, random_states, rates

import genpolicy


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
