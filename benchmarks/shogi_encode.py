"""How fast shogi states are made and encoded: parse, play, legal, encode in batches, decode, planes, labels.

Run ``python benchmarks/shogi_encode.py [--rounds 5]``; one core, positions of random games.
"encode" is of states that exist; "play and encode" makes them first, "parse and encode" reads them from their texts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from positions import NUM_STATES, random_states
from ratios import describe, in_turns, rate

import genpolicy

RUN = {"rounds": "--rounds", "quick": ["--rounds", "2"], "packages": ["cshogi"]}
TARGET = 50_000
"""States a second that encoding in batches must reach on one core."""


def main() -> None:
    """Report a rate for each operation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, whatever the libraries would take
    game: Any = genpolicy.load_game("shogi")
    states = random_states(game, NUM_STATES)
    texts = [game.format(state) for state in states]
    rows = game.tokens.encode(states)
    viewers = np.arange(NUM_STATES) % 2
    moves = [int(game.legal(state)[0]) for state in states]
    players = np.array([game.player(state) for state in states])
    fresh = [game.parse(text) for text in texts]

    def forget_legal() -> None:
        for state in fresh:
            state._legal = None
            game.legal(state)

    def played() -> list[Any]:
        return [game.play(state, move) for state, move in zip(states, moves, strict=True)]

    calls: dict[str, Callable[[], object]] = {
        "encode, one batch": lambda: game.tokens.encode(states),
        "encode, mixed viewers": lambda: game.tokens.encode(states, viewers),
        "encode, batches of 32": lambda: [game.tokens.encode(states[i : i + 32]) for i in range(0, NUM_STATES, 32)],
        "decode": lambda: [game.tokens.decode(row) for row in rows],
        "parse": lambda: [game.parse(text) for text in texts],
        "parse and encode": lambda: game.tokens.encode([game.parse(text) for text in texts]),
        "play": played,
        "play and encode": lambda: game.tokens.encode(played()),
        "legal": forget_legal,
        "planes, batches of 256": lambda: [game.planes(states[i : i + 256]) for i in range(0, NUM_STATES, 256)],
        "labels": lambda: game.labels(np.array(moves), players),
    }
    describe(f"{NUM_STATES} shogi states, one core, numpy {np.__version__}, cshogi {version('cshogi')}")
    for name, seconds in in_turns(calls, arguments.rounds, warm_up=1).items():
        wanted = f"at least {TARGET}" if name.startswith("encode") else None
        rate(name, [NUM_STATES / value for value in seconds], "states/s", wanted=wanted)


if __name__ == "__main__":
    main()
