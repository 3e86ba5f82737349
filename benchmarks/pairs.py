"""How often comparators tell the better of two held-out positions, beside counting and the game's own heuristic.

Run ``python benchmarks/pairs.py FOLDER [FOLDER ...] [--data sample:chess] [--split test] [--pairs score] [--num N]``.
Pairs are drawn as the first comparator's configuration says (``--split-by position``: positions of all games apart).
*Counting* is a logistic regression on how many of each symbol the two positions hold, fitted on pairs of the training
split: piece values that suit these data. Intervals are 95 %, bootstrap by the games of both positions.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.game import Game
from genpolicy.shipped import data_folder
from genpolicy_evaluation.intervals import cluster_bootstrap, share_interval
from genpolicy_policy_deepchess.config import ComparatorConfig
from genpolicy_policy_deepchess.policy import ComparatorPolicy
from genpolicy_policy_deepchess.windows import Pairs, Positions

RUN = "compares policies, which are its arguments"


def counts(game: Game[Any], tokens: NDArray[np.int16]) -> NDArray[np.float64]:
    """[R, S] how many of each symbol stand on board and in hand, less those of the position with colours exchanged."""
    places = (game.tokens.rows >= 0) | (game.tokens.hands >= 0)
    number = len(game.tokens.symbols)
    both = [np.stack([(tokens[:, view, places] == s).sum(1) for s in range(number)], axis=1) for view in (0, 1)]
    return np.asarray((both[0] - both[1]) / 2.0)


def fitted(difference: NDArray[np.float64], better: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[S] weights of a logistic regression without an offset."""
    x, y = torch.from_numpy(difference), torch.from_numpy(better.astype(np.float64))
    weights = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ weights, y) + 1e-4 * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call,arg-type]
    return weights.detach().numpy()


def held_out(
    dataset: Dataset, split: str, game: Game[Any], config: ComparatorConfig, num: int
) -> tuple[Positions, NDArray[np.int64], NDArray[np.int64]]:
    """Positions of a split, and [n] first and [n] second of its pairs, spread over the split."""
    pairs = Pairs(Positions.read(dataset, split, game, config), config.gap, seed=0)
    index = np.unique(np.linspace(0, len(pairs) - 1, min(num, len(pairs))).astype(np.int64))
    return pairs.positions, *pairs.pairs(index, 0)


def heuristic(dataset: Dataset, split: str, game: Game[Any], config: ComparatorConfig, at: Sequence[int]) -> Any:
    """Value for player 0 of some positions, by the game's own heuristic; None without one."""
    if game.hints is None or "evaluate" not in game.hints.gives:
        return None
    tokens = Positions.read(dataset, split, game, config).tokens
    states = {place: game.tokens.decode(tokens[place, 0], 0) for place in set(at)}
    return {place: game.hints.evaluate(s) * (1 - 2 * game.player(s)) for place, s in states.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", metavar="FOLDER")
    parser.add_argument("--data", default="sample:chess")
    parser.add_argument("--split", default="test")
    parser.add_argument("--pairs", choices=("score", "result"))
    parser.add_argument("--split-by", choices=("game", "position"))
    parser.add_argument("--num", type=int, default=4000)
    args = parser.parse_args()
    dataset = Dataset.open(data_folder(args.data))
    game = genpolicy.load_game(dataset.game_spec)
    loaded = {name: genpolicy.load_policy(name, game=game) for name in args.policies}
    policies = {name: policy for name, policy in loaded.items() if isinstance(policy, ComparatorPolicy)}
    config = next(iter(policies.values())).learner.config
    asked = {"pairs": args.pairs, "split_by": args.split_by}
    config = dataclasses.replace(config, stage="compare", **{key: value for key, value in asked.items() if value})
    positions, first, second = held_out(dataset, args.split, game, config, args.num)
    better = positions.value[first] > positions.value[second]
    learned, one, other = held_out(dataset, "train", game, config, 10 * args.num)
    seen = counts(game, learned.tokens)
    weights = fitted(seen[one] - seen[other], learned.value[one] > learned.value[other])
    number = counts(game, positions.tokens) @ weights
    hits = {"counting (fitted)": (number[first] > number[second]) == better}
    if (values := heuristic(dataset, args.split, game, config, [*first, *second])) is not None:
        own = np.array([values[a] - values[b] for a, b in zip(first, second, strict=True)])
        hits["the game's heuristic"] = (own > 0) == better
    for name, policy in policies.items():
        learner = policy.learner.eval()
        codes = learner.codes_of(positions.tokens)
        with torch.no_grad():
            answer = learner.network.compare(codes[first], codes[second]).numpy()
        hits[name] = (answer > 0) == better
    names = positions.games.tolist()
    games = [(names[a], names[b]) for a, b in zip(first, second, strict=True)]
    for name, hit in hits.items():
        low, high = share_interval(hit.astype(np.float64), games)
        print(f"{name}: {100 * hit.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]")
    for a, b in itertools.combinations(hits, 2):
        difference = hits[b].astype(np.float64) - hits[a]
        low, high = cluster_bootstrap(difference, games)
        print(f"{b} - {a}: {100 * difference.mean():+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]")
    num_games = len({*itertools.chain(*games)})
    print(f"{len(first)} pairs by {config.pairs}, split by {config.split_by}; from {num_games} games")


if __name__ == "__main__":
    main()
