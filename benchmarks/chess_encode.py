"""How fast chess states are made and encoded: parse, play, legal, encode in batches, decode.

Run ``python benchmarks/chess_encode.py [--rounds 5]``; one core, positions of random games.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
from positions import NUM_STATES, random_states
from ratios import describe, in_turns, rate

import genpolicy

RUN = {"rounds": "--rounds", "quick": ["--rounds", "2"]}


def main() -> None:
    """Report a rate for each operation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
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
    describe(f"{NUM_STATES} chess states, numpy {np.__version__}, chess {version('chess')}")
    for name, seconds in in_turns(calls, arguments.rounds, warm_up=1).items():
        rate(name, [NUM_STATES / value for value in seconds], "states/s")


if __name__ == "__main__":
    main()
