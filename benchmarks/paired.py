"""Paired differences of policies: how much more often one plays the labelled move than another, on the same positions.

Run ``python benchmarks/paired.py POLICY POLICY ... [--data sample:chess] [--split test] [--limit N] [--best]``.
Intervals are 95 %, bootstrap by game, Wilson's for shares of 0 and 100 %; with ``--best`` any best move counts, where
the records value the moves. (``genpolicy experiment`` does the same over seeds.)
"""

from __future__ import annotations

import argparse
import itertools

import genpolicy
from genpolicy.data.records import Dataset
from genpolicy.shipped import data_folder
from genpolicy_common.labelled import labelled_positions
from genpolicy_evaluation.accuracy import hits_of
from genpolicy_evaluation.intervals import cluster_bootstrap, share_interval
from genpolicy_evaluation.positions import ask

RUN = "compares policies, which are its arguments"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", metavar="POLICY")
    parser.add_argument("--data", nargs="+", default=["sample:chess"], help="data sets, taken together")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--best", action="store_true")
    args = parser.parse_args()
    dataset = Dataset.open([data_folder(each) for each in args.data])
    game = genpolicy.load_game(dataset.game_spec)
    positions = labelled_positions(dataset, game, args.split, limit=args.limit)
    clusters = [position.cluster for position in positions]
    hits = {}
    for spec in args.policies:
        decisions = ask(genpolicy.load_policy(spec, game=game), positions, spec, show=True)
        made = hits_of(decisions, positions)
        hits[spec] = made.best if args.best else made.labelled
        low, high = share_interval(hits[spec], clusters)
        print(f"{spec}: {100 * hits[spec].mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]")
    for one, other in itertools.combinations(args.policies, 2):
        difference = hits[other] - hits[one]
        low, high = cluster_bootstrap(difference, clusters)
        print(f"{other} - {one}: {100 * difference.mean():+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]")
    print(f"{len(positions)} positions from {len(set(clusters))} games")


if __name__ == "__main__":
    main()
