"""``genpolicy evaluate accuracy`` and ``genpolicy evaluate futures``."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy.cli import add_verbs
from genpolicy_common.arguments import add_json, say_device, settle_device
from genpolicy_evaluation.boards import add_boards_parser
from genpolicy_evaluation.latency_command import add_latency_parser
from genpolicy_evaluation.players import add_policy_arguments, check_options, options_of, seed_of, specs_of
from genpolicy_evaluation.puzzles_command import add_puzzles_parser

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset
    from genpolicy.game import Game
    from genpolicy.policies.base import Policy


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


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the policies, the positions and the files of results."""
    add_policy_arguments(parser)
    parser.add_argument("--data", required=True, metavar="FOLDER", help="a data set (FOLDER or sample:GAME)")
    parser.add_argument("--split", default="test", help="split of the data set; default test")
    parser.add_argument("--limit", type=int, metavar="N", help="measure on N positions, drawn by the seed")
    add_json(parser)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to a Markdown file")


def run_accuracy(arguments: argparse.Namespace) -> int:
    """Measure action accuracy and show the table."""
    from genpolicy_common.labelled import labelled_positions
    from genpolicy_common.tables import write_json, write_markdown
    from genpolicy_evaluation.accuracy import accuracy_report, measure_accuracy, random_chances

    dataset, game = opened(arguments)
    positions = labelled_positions(dataset, game, arguments.split, limit=arguments.limit, seed=arguments.seed)
    rows, own = [], dict[str, dict[str, float]]()
    with _players(arguments, game) as players:
        for name, mode, player, seed in players:
            player.seed(seed)
            rows.append(measure_accuracy(player, positions, name=name, mode=mode, raw=not arguments.no_raw, show=True))
            if arguments.own and name not in own:
                own[name] = _own(player, dataset, arguments.split, len(positions))
    report = accuracy_report(rows, positions, source(arguments))
    report.print()
    for name, measured in own.items():
        print(
            f"{name}: "
            + (", ".join(f"{key} {value:.4g}" for key, value in measured.items()) or "measures nothing more")
        )
    labelled, best = random_chances(positions)
    figures = {
        "data": facts(arguments, dataset, positions),
        "random": {"labelled": float(labelled.mean()), "best": float(best.mean())},
        "policies": [row.figures() for row in rows],
        **({"own": own} if arguments.own else {}),
    }
    write_json(arguments.json, figures)
    write_markdown(arguments.markdown, [report])
    return 0


def _own(player: Policy, dataset: Dataset, split: str, num: int) -> dict[str, float]:
    """What the learner of a policy with weights measures (``Learner.measure``); {} of any other policy."""
    learner = getattr(player, "learner", None)
    found = {} if learner is None else learner.eval().measure(dataset, split, num)
    return {name: value for name, value in found.items() if not math.isnan(value)}  # NaN was not measured


def run_futures(arguments: argparse.Namespace) -> int:
    """Measure the imagined lines and show the tables."""
    from genpolicy.data.oracle import make_oracle
    from genpolicy_common.labelled import labelled_positions
    from genpolicy_common.tables import write_json, write_markdown
    from genpolicy_evaluation.futures import futures_reports, measure_futures, plot_futures
    from genpolicy_evaluation.matplotlib_style import check_plot_files

    check_plot_files([] if arguments.plot is None else [arguments.plot])
    dataset, game = opened(arguments)
    positions = labelled_positions(dataset, game, arguments.split, limit=arguments.limit, seed=arguments.seed)
    rows, opened_oracle = [], make_oracle(arguments.oracle, game) if arguments.oracle else nullcontext()
    with opened_oracle as oracle, _players(arguments, game) as players:
        for name, mode, player, seed in players:
            player.seed(seed)
            rows.append(measure_futures(player, positions, oracle=oracle, name=name, mode=mode, show=True))
    judge = arguments.oracle or "the labelled line"
    reports = futures_reports(rows, positions, source(arguments), judge)
    for report in reports:
        report.print()
    figures = {
        "data": facts(arguments, dataset, positions),
        "oracle": arguments.oracle,
        "policies": [row.figures() for row in rows],
    }
    write_json(arguments.json, figures)
    write_markdown(arguments.markdown, reports)
    if arguments.plot is not None:
        plot_futures(rows, arguments.plot)
    return 0


def opened(arguments: argparse.Namespace) -> tuple[Dataset, Game[Any]]:
    """The data set of a command line and its game; says on stderr what of it is unfinished."""
    from genpolicy import load_game
    from genpolicy.data.records import Dataset

    dataset = Dataset.open(arguments.data)
    for note in dataset.unfinished:
        print(f"genpolicy: {note}", file=sys.stderr)
    return dataset, load_game(dataset.game_spec)


@contextmanager
def _players(arguments: argparse.Namespace, game: Game[Any]) -> Iterator[list[tuple[str, str, Policy, int]]]:
    """Name, mode, policy and seed of everything to measure; all is made, and what is wrong is said, before the work.

    Policies with equal labels are told apart by how they were written.

    Raises:
        ValueError: an option that none of the policies takes, or a value that one does not.
    """
    from genpolicy import load_policy

    specs = specs_of(arguments)
    settle_device(arguments, specs)
    with ExitStack() as opened:
        loaded = []
        for spec in specs:
            loaded.append(load_policy(spec, game=game, defaults={"device": arguments.device, "seed": arguments.seed}))
            opened.callback(loaded[-1].close)
        labels = [policy.label for policy in loaded]
        names = [label if labels.count(label) == 1 else spec for label, spec in zip(labels, specs, strict=True)]
        check_options(dict(zip(names, loaded, strict=True)), arguments)
        modes = [
            (name, mode, player, seed_of(spec, arguments.seed))
            for name, spec, policy in zip(names, specs, loaded, strict=True)
            for mode, player in _modes(policy, arguments).items()
        ]
        say_device(arguments)
        yield modes


def _modes(policy: Policy, arguments: argparse.Namespace) -> dict[str, Policy]:
    """The ways of playing to measure, with the command line's options where the policy takes them."""
    modes: dict[str, Policy] = {}
    for own in options_of(policy, arguments):
        modes.update(policy.with_options(**own).modes())
    return modes


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
