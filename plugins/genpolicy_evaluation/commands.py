"""``genpolicy evaluate accuracy`` and ``genpolicy evaluate futures``."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy.cli import add_verbs
from genpolicy_common.arguments import add_json
from genpolicy_evaluation.boards import add_boards_parser
from genpolicy_evaluation.latency_command import add_latency_parser
from genpolicy_evaluation.players import Player, add_policy_arguments, open_players, opened_players, seed_of
from genpolicy_evaluation.puzzles_command import add_puzzles_parser

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset
    from genpolicy.game import Game
    from genpolicy.policies.base import Policy
    from genpolicy_common.labelled import LabelledPosition


def add_parser(subparsers: Any) -> None:
    """Add ``evaluate`` to the command line."""
    parser = subparsers.add_parser("evaluate", help="measure policies on a data set")
    measures = parser.add_subparsers(title="measures", metavar="MEASURE", required=True)
    accuracy = measures.add_parser("accuracy", help="how often the oracle's move is played")
    add_data_arguments(accuracy)
    accuracy.add_argument("--no-raw", action="store_true", help="skip the run without the legal mask")
    accuracy.add_argument(
        "--own",
        action="store_true",
        help="also what a policy's learner measures of its own, e.g. pairs_ordered",
    )
    accuracy.set_defaults(run=run_accuracy)
    futures = measures.add_parser("futures", help="how good the imagined line is, step by step")
    add_data_arguments(futures)
    futures.add_argument(
        "--oracle",
        metavar="NAME",
        help="oracle that judges imagined positions, e.g. solver or stockfish?nodes=2000; default: the labelled line",
    )
    futures.add_argument("--plot", type=Path, metavar="FILE", help="plot to a .png, .svg or .pdf file")
    futures.set_defaults(run=run_futures)
    add_boards_parser(measures)
    add_puzzles_parser(measures)
    add_latency_parser(measures)
    add_verbs(measures, "evaluate")


def add_data_arguments(parser: argparse.ArgumentParser, limit: int | None = None) -> None:
    """Add the policies, the positions and the files of results; ``limit`` is the default of ``--limit``."""
    add_policy_arguments(parser)
    parser.add_argument("--data", required=True, metavar="FOLDER", help="a data set (FOLDER or sample:GAME)")
    parser.add_argument("--split", default="test", help="split of the data set; default test")
    told = "" if limit is None else f"; default {limit}"
    parser.add_argument(
        "--limit", type=int, default=limit, metavar="N", help=f"measure on N positions, drawn by the seed{told}"
    )
    add_json(parser)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to a Markdown file")


def run_accuracy(arguments: argparse.Namespace) -> int:
    """Measure action accuracy and show the table."""
    from genpolicy_common.tables import publish
    from genpolicy_evaluation.accuracy import accuracy_report, measure_accuracy, random_chances

    dataset, game, positions = opened(arguments)
    rows, own = [], dict[str, dict[str, float]]()
    with opened_players(game, arguments, _modes) as players:
        for player in players:
            player.policy.seed(seed_of(player.spec, arguments.seed))
            name, mode, raw = player.name, player.mode, not arguments.no_raw
            rows.append(measure_accuracy(player.policy, positions, name=name, mode=mode, raw=raw, show=True))
            if arguments.own and name not in own:
                own[name] = _own(player.policy, dataset, arguments.split, len(positions))
    report = accuracy_report(rows, positions, source(arguments))
    labelled, best = random_chances(positions)
    figures = {
        "data": facts(arguments, dataset, positions),
        "random": {"labelled": float(labelled.mean()), "best": float(best.mean())},
        "policies": [row.figures() for row in rows],
        **({"own": own} if arguments.own else {}),
    }
    publish([report], figures, arguments)
    for name, measured in own.items():
        print(
            f"{name}: "
            + (", ".join(f"{key} {value:.4g}" for key, value in measured.items()) or "measures nothing more")
        )
    return 0


def _own(player: Policy, dataset: Dataset, split: str, num: int) -> dict[str, float]:
    """What the learner of a policy with weights measures (``Learner.measure``); {} of any other policy."""
    learner = getattr(player, "learner", None)
    found = {} if learner is None else learner.eval().measure(dataset, split, num)
    return {name: value for name, value in found.items() if not math.isnan(value)}  # NaN was not measured


def run_futures(arguments: argparse.Namespace) -> int:
    """Measure the imagined lines and show the tables."""
    from genpolicy.data.oracle import make_oracle
    from genpolicy_common.tables import publish
    from genpolicy_evaluation.futures import futures_reports, measure_futures, plot_futures
    from genpolicy_evaluation.matplotlib_style import check_plot_files

    check_plot_files([] if arguments.plot is None else [arguments.plot])
    dataset, game, positions = opened(arguments)
    rows, opened_oracle = [], make_oracle(arguments.oracle, game) if arguments.oracle else nullcontext()
    with opened_oracle as oracle, opened_players(game, arguments, _modes) as players:
        for player in players:
            player.policy.seed(seed_of(player.spec, arguments.seed))
            name, mode = player.name, player.mode
            rows.append(measure_futures(player.policy, positions, oracle=oracle, name=name, mode=mode, show=True))
    judge = arguments.oracle or "the labelled line"
    reports = futures_reports(rows, positions, source(arguments), judge)
    figures = {
        "data": facts(arguments, dataset, positions),
        "oracle": arguments.oracle,
        "policies": [row.figures() for row in rows],
    }
    publish(reports, figures, arguments)
    if arguments.plot is not None:
        plot_futures(rows, arguments.plot)
    return 0


def opened(arguments: argparse.Namespace) -> tuple[Dataset, Game[Any], list[LabelledPosition]]:
    """The data set of a command line, its game and the positions to measure on; says on stderr what is unfinished."""
    from genpolicy import load_game
    from genpolicy.data.records import Dataset
    from genpolicy_common.labelled import labelled_positions

    dataset = Dataset.open(arguments.data)
    for note in dataset.unfinished:
        print(f"genpolicy: {note}", file=sys.stderr)
    game = load_game(dataset.game_spec)
    positions = labelled_positions(dataset, game, arguments.split, limit=arguments.limit, seed=arguments.seed)
    return dataset, game, positions


@contextmanager
def _modes(name: str, spec: str, game: Game[Any], arguments: argparse.Namespace) -> Iterator[list[Player]]:
    """A policy once for each of its ways of playing (``Policy.modes``); see ``open_players``."""
    with open_players(name, spec, game, arguments) as players:
        modes = {mode: policy for player in players for mode, policy in player.policy.modes().items()}
        yield [Player(name, spec, policy, mode) for mode, policy in modes.items()]


def source(arguments: argparse.Namespace) -> str:
    """What a table says it was measured on."""
    return f"{arguments.data} ({arguments.split})"


def facts(arguments: argparse.Namespace, dataset: Dataset, positions: Any) -> dict[str, Any]:
    """What was measured on, for JSON."""
    return {
        "folder": str(arguments.data),
        "checksum": dataset.checksum,
        "game": dataset.game_spec,
        "split": arguments.split,
        "positions": len(positions),
        "games": len({position.cluster for position in positions}),
        "limit": arguments.limit,
        "seed": arguments.seed,
    }
