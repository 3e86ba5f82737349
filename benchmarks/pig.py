"""How often policies for Pig roll and hold as its exact solution does.

Run ``python benchmarks/pig.py POLICY POLICY ... [--game pig:goal=20,faces=3] [--limit N] [--seed S]``. They are asked
about all positions that have a choice and A to move, or about ``--limit`` of them, drawn by the seed.
"Lost" is the mean difference in win probability to the best move, in percentage points. Intervals are 95 %, bootstrap
by position; without a limit there is nothing to draw, so there are none.
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np

import genpolicy
from genpolicy.values import score_to_value
from genpolicy_evaluation.intervals import share_interval
from genpolicy_pig import PigGame
from genpolicy_pig.game import HOLD, ROLL
from genpolicy_pig.oracle import PigOracle

RUN = "compares policies, which are its arguments"
BATCH = 64
TIED = 1e-9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", metavar="POLICY")
    parser.add_argument("--game", default="pig:goal=20,faces=3")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    game = genpolicy.load_game(args.game)
    assert isinstance(game, PigGame)
    states = [s for s in game.positions() if s.player == 0 and not s.rolling and len(game.legal(s)) > 1]
    states.sort()
    everything = len(states)
    if args.limit is not None:
        states = random.Random(args.seed).sample(states, args.limit)
    lines = PigOracle(game).analyse(states, 1, move_values=True)
    values = [{move: score_to_value(score) for move, score in line.move_values.items()} for line in lines]
    holds = np.mean([each[HOLD] > each[ROLL] + TIED for each in values])
    print(f"{len(states)} of {everything} positions with a choice; holding is best in {100 * holds:.1f} %")
    for spec in args.policies:
        began = time.perf_counter()
        policy = genpolicy.load_policy(spec, game=game)
        moves = [d.move for at in range(0, len(states), BATCH) for d in policy.decide(states[at : at + BATCH])]
        lost = np.array([max(each.values()) - each[move] for each, move in zip(values, moves, strict=True)]) / 2
        hits = (lost < TIED).astype(np.float64)
        interval = ""
        if args.limit is not None:
            low, high = share_interval(hits, [*map(str, range(len(hits)))])
            interval = f" [{100 * low:.1f}, {100 * high:.1f}]"
        seconds = time.perf_counter() - began
        print(f"{spec}: optimal {100 * hits.mean():.1f} %{interval}, lost {100 * lost.mean():.2f} ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
