"""How often policies play a best move in positions that are reached by a game's moves, so that they see its history.

Run ``python benchmarks/with_history.py --data FOLDER POLICY [POLICY ...] [--split test] [--seed N]``. The data set
holds games from their first position, with all moves valued (``genpolicy data selfplay --move-values``). One position
is drawn from each game, so they are independent; positions in which every move is best are left out. (``genpolicy
evaluate accuracy`` parses positions alone, which tells a policy nothing of what came before.) Intervals are 95 %,
Wilson; two policies are compared by a sign test on the positions in which one of them alone is right.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Iterator
from math import comb
from typing import Any

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.game import Game
from genpolicy_evaluation.intervals import wilson

RUN = "compares policies, which are its arguments, as is a data set"

Position = tuple[Any, set[int]]
"""A state with its history, and its best moves."""


def positions(game: Game[Any], data: Dataset, split: str) -> Iterator[list[Position]]:
    """Those of each game."""
    for _, records in itertools.groupby(data.records(split), lambda record: record.game_id):
        state, found = game.parse(), []
        for ply, record in enumerate(records):
            if record.ply != ply or record.state != game.format(state) or record.played is None:
                break  # the game did not begin where its records do, or records are missing
            if record.move_values:
                values = {game.moves.index(m): float(s.partition(":")[2]) for m, s in _pairs(record.move_values)}
                best = {move for move, value in values.items() if value == max(values.values())}
                if len(best) < len(values):
                    found.append((state, best))
            state = game.play(state, game.moves.index(record.played))
        yield found


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(move, score) for move, _, score in (pair.partition("=") for pair in text.split())]


def sign_test(wins: int, losses: int) -> float:
    """Two-sided p of so uneven a split of fair coins."""
    n, least = wins + losses, min(wins, losses)
    p: float = 2 * sum(comb(n, k) for k in range(least + 1)) / 2**n
    return min(1.0, p)


def main() -> None:
    """Print a row a policy, and a test for each pair of neighbours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data = Dataset.open(args.data)
    game = genpolicy.load_game(data.info.game)
    draw = random.Random(args.seed)
    chosen = [draw.choice(each) for each in positions(game, data, args.split) if each]
    states = [state for state, _ in chosen]
    print(f"{len(chosen)} positions, one a game, split {args.split}, seed {args.seed}, data {data.checksum[:12]}")
    chance = sum(len(best) / len(game.legal(state)) for state, best in chosen) / len(chosen)
    print(f"{100 * chance:5.1f}  a random move")
    right = []
    for spec in args.policies:
        policy = genpolicy.load_policy(spec, game=game)
        hits = [d.move in best for d, (_, best) in zip(policy.decide(states), chosen, strict=True)]
        low, high = wilson(sum(hits), len(hits))
        print(f"{100 * sum(hits) / len(hits):5.1f} [{100 * low:.1f}, {100 * high:.1f}]  {spec}", flush=True)
        right.append(hits)
    for (a, mine), (b, other) in itertools.pairwise(zip(args.policies, right, strict=True)):
        wins, losses = (sum(x > y for x, y in zip(*pair, strict=True)) for pair in ((mine, other), (other, mine)))
        print(f"{a} alone right {wins}, {b} alone right {losses}, p {sign_test(wins, losses):.2g}")


if __name__ == "__main__":
    main()
