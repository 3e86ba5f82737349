"""``genpolicy data import | label | selfplay | info | fit-scale | export``: makes, labels and inspects data sets."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from genpolicy.cli import add_verbs
from genpolicy_common.arguments import MAX_SHOWN, add_alias, add_cluster, add_data, add_json, require, say
from genpolicy_labelling import arguments as kinds
from genpolicy_labelling.terminal import command_line, progress, show, stoppable

if TYPE_CHECKING:
    from genpolicy.data.oracle import Oracle
    from genpolicy.data.records import Dataset
    from genpolicy.game import Game
    from genpolicy_labelling.writer import DatasetWriter

AFTER_A_KILL = (
    "The same command resumes after Ctrl-C, SIGTERM, SIGHUP or a kill. Each answer is kept as it comes, so nothing is "
    "lost, and only positions whose search had not ended (at most 2 per engine process) are searched again. A power "
    "cut may cost the last two seconds. The rest of a block of positions begun before the kill is searched from an "
    "empty hash table, as if it were a block of its own: for those positions (at most 16 per process) some best moves "
    "and scores differ from a run without a kill, and a game that was being played continues differently."
)
"""Stands below the help of ``label`` and ``selfplay``."""
SPLITS = (
    "Splits are by game: every position of a game is in the same split, which is drawn by the game's moves, or by its "
    "id if its rows have one; a split that the source gives such rows, for example in the name of a file, is ignored. "
    "Rows without a game keep their source's split (train, validation or test); if there is none, a position and its "
    "symmetric copies are in the same split."
)
"""Stands below the help of ``import``."""


def add_parser(subparsers: Any) -> None:
    """Add ``data`` and its verbs."""
    from genpolicy_labelling import export, fit_scale

    parser = subparsers.add_parser("data", help="make, label, export and inspect data sets")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_import(verbs)
    _add_label(verbs)
    _add_selfplay(verbs)
    _add_info(verbs)
    fit_scale.add_parser(verbs)
    export.add_parser(verbs)
    add_verbs(verbs, "data")


def _add_import(verbs: Any) -> None:
    parser = verbs.add_parser(
        "import",
        help="import positions from files of games, positions or records",
        description="Import positions from files of games, positions or records.",
        epilog=SPLITS,
    )
    parser.add_argument(
        "sources",
        nargs="+",
        type=kinds.words,
        metavar="SOURCE",
        help="a file, folder or glob, or 'all' (every position of a small game)",
    )
    add_game(parser)
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="skip and count unreadable entries, and the rest of a damaged file",
    )
    parser.add_argument(
        "--max-games",
        type=kinds.positive,
        metavar="N",
        help="stop after N games; positions outside games are not counted",
    )
    parser.add_argument("--max-positions", type=kinds.positive, metavar="N", help="stop after N positions")
    add_split(parser)
    add_output(parser)
    parser.set_defaults(run=run_import)


def _add_label(verbs: Any) -> None:
    parser = verbs.add_parser(
        "label",
        help="label positions with best lines and scores from an engine or a solver",
        description="Label positions with best lines and scores from an engine or a solver, in a new data set.",
        epilog=AFTER_A_KILL,
    )
    add_data(parser, kinds.dataset)
    _add_oracle(parser)
    parser.add_argument(
        "--share",
        type=kinds.share,
        default=1.0,
        metavar="X",
        help="share of the records to relabel, in (0, 1]; the others are copied (default 1)",
    )
    parser.add_argument("--seed", type=kinds.whole, default=0, metavar="N", help="which records --share draws")
    add_output(parser)
    parser.set_defaults(run=run_label)


def _add_selfplay(verbs: Any) -> None:
    parser = verbs.add_parser(
        "selfplay",
        help="let an engine play itself, with errors, and label every position",
        description="Let an engine play itself, with errors, and label every position.",
        epilog=AFTER_A_KILL,
    )
    add_game(parser)
    _add_oracle(parser)
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--games", type=kinds.positive, metavar="N", help="number of games")
    amount.add_argument(
        "--positions", type=kinds.positive, metavar="N", help="number of positions; the last game is kept whole"
    )
    parser.add_argument(
        "--error-rate",
        type=kinds.rates,
        default=(0.05, 0.3),
        metavar="LOW:HIGH",
        help="range from which each game draws its rate of random moves (default 0.05:0.30)",
    )
    parser.add_argument(
        "--random-plies",
        type=kinds.plies,
        default=(4, 12),
        metavar="LOW:HIGH",
        help="range of the number of random moves before a game's first recorded position (default 4:12)",
    )
    parser.add_argument(
        "--openings",
        type=kinds.words,
        metavar="FILE",
        help="file of starting positions, or of games that end in them",
    )
    parser.add_argument(
        "--temperature",
        type=kinds.temperature,
        metavar="T[:PLIES]",
        help="draw the move from the oracle's policy to the power 1/T in the first PLIES plies of a game (default: "
        "play its move)",
    )
    parser.add_argument("--max-plies", type=kinds.positive, default=200, metavar="N", help="longest game (default 200)")
    parser.add_argument(
        "--adjudicate",
        type=kinds.adjudication,
        metavar="VALUE:PLIES",
        help="end a game when the value stays beyond VALUE, in (0, 1], for PLIES labelled plies (default: never)",
    )
    parser.add_argument("--seed", type=kinds.whole, default=0, metavar="N", help="seed of every draw (default 0)")
    add_split(parser)
    add_output(parser)
    parser.set_defaults(run=run_selfplay)


def _add_info(verbs: Any) -> None:
    parser = verbs.add_parser("info", help="show what a data set holds, and verify its checksums")
    add_data(parser, kinds.dataset)
    parser.add_argument(
        "--with",
        dest="others",
        nargs="+",
        type=kinds.dataset,
        default=[],
        metavar="FOLDER",
        help="count it together with these, as a policy learns from several: do their splits contradict each other?",
    )
    parser.add_argument(
        "--rows", type=kinds.not_negative, default=3, metavar="N", help="number of example records (default 3)"
    )
    add_json(parser, "it")
    parser.set_defaults(run=run_info)


def add_game(parser: argparse.ArgumentParser) -> None:
    """Add ``--game``."""
    parser.add_argument(
        "--game", type=kinds.words, required=True, metavar="SPEC", help="e.g. chess or connect:rows=3,cols=3,k=3"
    )


def _add_oracle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--oracle",
        type=kinds.words,
        required=True,
        metavar="SPEC",
        help="e.g. 'stockfish?nodes=2000', '/path/to/engine?depth=12&line=searched', 'solver', or "
        "'policy:mcts:FOLDER?simulations=50', which keeps the search's policy and value",
    )
    parser.add_argument("--horizon", type=kinds.positive, default=8, metavar="N", help="moves in a line (default 8)")
    parser.add_argument(
        "--move-values",
        action="store_true",
        help="also score every legal move, with one search each; with the engine option multipv=8, only the best eight",
    )
    parallel = parser.add_argument("--parallel", type=kinds.positive, metavar="N", help="engine processes at once")
    add_alias(parser, "--processes", parallel)
    add_cluster(parser)


def add_split(parser: argparse.ArgumentParser) -> None:
    """Add ``--split`` and ``--split-seed``."""
    parser.add_argument(
        "--split",
        type=kinds.fractions,
        default="0.9/0.05/0.05",
        metavar="TRAIN/VALIDATION/TEST",
        help="fractions of the games, or of the positions without a game (default 0.9/0.05/0.05)",
    )
    parser.add_argument("--split-seed", type=kinds.whole, default=0, metavar="N", help="seed of the split (default 0)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--out`` and ``--json``."""
    parser.add_argument("--out", type=kinds.folder, required=True, metavar="FOLDER", help="folder of the new data set")
    add_json(parser, "the counts")


def run_import(arguments: argparse.Namespace) -> int:
    """``genpolicy data import``."""
    from genpolicy.data.records import DatasetInfo
    from genpolicy.registry import load_game
    from genpolicy_labelling.importing import describe_sources, import_sources
    from genpolicy_labelling.splits import SplitFractions
    from genpolicy_labelling.writer import DatasetWriter

    game = load_game(arguments.game)
    splits = SplitFractions.parse(arguments.split, arguments.split_seed)
    limits = {"max_games": arguments.max_games, "max_positions": arguments.max_positions}
    info = DatasetInfo(
        game=game.spec,
        made_by="import",
        options={**splits.options(), **limits},
        sources=describe_sources(arguments.sources),
        command=command_line(),
    )
    with stoppable() as stop, DatasetWriter(arguments.out, info, journal=False) as writer:
        stop.kept = lambda: f"{writer.num_committed} positions in finished shards are kept, the rest is read again"
        if not writer.complete:
            with progress() as bar:
                task = bar.add_task("importing", total=arguments.max_positions, unit="positions")
                report = import_sources(
                    game,
                    arguments.sources,
                    writer,
                    splits,
                    skip_bad=arguments.skip_bad,
                    **limits,
                    progress=lambda report: bar.update(task, completed=report.num_positions),
                )
            for text in report.shown:
                say(f"skipped: {text}")
            if (more := report.skipped["unreadable"] - len(report.shown)) > 0:
                say(f"skipped: {more} more unreadable entries")
            finish(writer, game, {"skipped": dict(report.skipped)})
    return _report(arguments, game)


def run_label(arguments: argparse.Namespace) -> int:
    """``genpolicy data label``."""
    from genpolicy.data.records import Dataset, DatasetInfo
    from genpolicy.errors import DatasetError
    from genpolicy.registry import load_game
    from genpolicy.values import CENTIPAWN_SCALE
    from genpolicy_labelling.label import LabelResult, label
    from genpolicy_labelling.writer import DatasetWriter

    require(arguments.folder, "--data", "runs/games")
    source = Dataset.open(arguments.folder)
    if arguments.out.resolve() == arguments.folder.resolve():
        raise ValueError(
            f"--out {arguments.out}: is the data set to label; name a new folder (the data set stays as it is)"
        )
    if source.unfinished:  # labelling would miss the rest
        raise DatasetError(source.unfinished[0])
    game = load_game(source.game_spec)
    with stoppable(), _open_oracle(arguments, game, single=True) as oracle:
        scale = float(oracle.describe().get("centipawn_scale", CENTIPAWN_SCALE))
        if arguments.share < 1 and scale != source.centipawn_scale and _has_centipawns(source):
            raise DatasetError(
                f"--share {arguments.share:g} keeps scores of {arguments.folder}, whose centipawns are of scale "
                f"{source.centipawn_scale:g}, and the oracle's are of {scale:g}: give it that scale, or label all"
            )
        info = DatasetInfo(
            game=game.spec,
            made_by="label",
            oracle=oracle.describe(),
            options={
                "horizon": arguments.horizon,
                "move_values": arguments.move_values,
                "records": source.checksum,
                **({} if arguments.share == 1 else {"share": arguments.share, "share_seed": arguments.seed}),
            },
            sources=[{"file": str(arguments.folder), "sha256": source.checksum}, *source.info.sources],
            command=command_line(),
        )
        with DatasetWriter(arguments.out, info) as writer:
            if not writer.complete:
                with progress() as bar:
                    task = bar.add_task(
                        "labelling", total=source.num_records, completed=writer.num_rows, unit="positions"
                    )
                    shown = 0

                    def on_label(done: LabelResult) -> None:
                        nonlocal shown
                        if done.error is not None:
                            shown += 1
                            if shown <= MAX_SHOWN:
                                bar.console.print(f"not labelled: {done.error}", markup=False, highlight=False)
                        bar.advance(task)

                    label(
                        source,
                        writer,
                        game,
                        oracle,
                        arguments.horizon,
                        move_values=arguments.move_values,
                        share=arguments.share,
                        seed=arguments.seed,
                        progress=on_label,
                    )
                finish(writer, game, {"skipped": source.info.counts.get("skipped", {})})
    return _report(arguments, game)


def _has_centipawns(source: Dataset) -> bool:
    return any(
        score is not None and score.startswith("cp:")
        for batch in source.batches(["scores"])
        for scores in batch.column(0).to_pylist()
        for score in scores or ()
    )


def run_selfplay(arguments: argparse.Namespace) -> int:
    """``genpolicy data selfplay``."""
    from genpolicy.data.records import DatasetInfo
    from genpolicy.registry import load_game
    from genpolicy_labelling.importing import describe_sources, read_openings
    from genpolicy_labelling.selfplay import Selfplay, SelfplayConfig, num_finished_games
    from genpolicy_labelling.splits import SplitFractions
    from genpolicy_labelling.writer import DatasetWriter

    game = load_game(arguments.game)
    splits = SplitFractions.parse(arguments.split, arguments.split_seed)
    config = SelfplayConfig(
        horizon=arguments.horizon,
        error_rate=arguments.error_rate,
        random_plies=arguments.random_plies,
        max_plies=arguments.max_plies,
        adjudicate=arguments.adjudicate,
        seed=arguments.seed,
        move_values=arguments.move_values,
        temperature=arguments.temperature,
    )
    openings = read_openings(game, arguments.openings) if arguments.openings else ()
    sources = describe_sources([arguments.openings]) if arguments.openings else []
    with stoppable(), _open_oracle(arguments, game) as oracle:
        amount = {"games": arguments.games, "positions": arguments.positions}
        info = DatasetInfo(
            game=game.spec,
            made_by="selfplay",
            oracle=oracle.describe(),
            options={**config.options(), **splits.options(), **amount},
            sources=sources,
            command=command_line(),
        )
        with DatasetWriter(arguments.out, info, max_rows=arguments.positions) as writer:
            if not writer.complete:
                with progress() as bar:
                    unit = "games" if arguments.games else "positions"
                    done = num_finished_games(writer, oracle) if arguments.games else writer.num_rows
                    task = bar.add_task(
                        "playing", total=arguments.games or arguments.positions, completed=done, unit=unit
                    )

                    def on_block(num_games: int, num_positions: int, errors: Sequence[str]) -> None:
                        for error in errors[:MAX_SHOWN]:
                            bar.console.print(f"not labelled: {error}", markup=False, highlight=False)
                        bar.advance(task, num_games if arguments.games else num_positions)
                        # Games that were played beside the last one are dropped.
                        bar.update(task, completed=min(bar.tasks[0].completed, bar.tasks[0].total))

                    Selfplay(game, oracle, config, splits, openings).run(
                        writer, arguments.games, arguments.positions, on_block
                    )
                finish(writer, game, {})
    return _report(arguments, game)


def run_info(arguments: argparse.Namespace) -> int:
    """``genpolicy data info``."""
    from rich.console import Console

    from genpolicy.data.records import Dataset
    from genpolicy.errors import printable
    from genpolicy.registry import load_game

    require(arguments.folder, "--data", "sample:chess")
    dataset = Dataset.open([arguments.folder, *arguments.others])
    if arguments.others:
        counts = _counted(dataset, load_game(dataset.game_spec))
        dataset = Dataset(dataset.folder, replace(dataset.info, counts=counts), dataset.parts)
    console = Console()
    show(dataset, arguments.json)
    for number, record in zip(range(arguments.rows), dataset.records(), strict=False):
        console.print(f"\nrecord {number}", style="bold")
        for name, value in record.to_row().items():
            if value not in (None, []):
                console.print(f"  {name}: {printable(str(value))}", markup=False, highlight=False, soft_wrap=True)
    return 0


@contextmanager
def _open_oracle(arguments: argparse.Namespace, game: Game[Any], *, single: bool = False) -> Iterator[Oracle]:
    """The oracle of this process, or that of a cluster's workers, which are reported in the end.

    Args:
        arguments: Of ``label`` or ``selfplay``.
        game: The game.
        single: Every task asks one question.
    """
    from genpolicy.data.oracle import make_oracle

    if arguments.cluster is None:
        with make_oracle(arguments.oracle, game, processes=arguments.parallel) as oracle:
            yield oracle
        return
    from genpolicy_common.cluster import open_cluster
    from genpolicy_labelling.cluster_oracle import ClusterOracle

    cluster = open_cluster(arguments.cluster, arguments.parallel)
    with ClusterOracle(arguments.oracle, game, cluster, single=single, say=say) as workers:
        yield workers
        say(workers.report())


def finish(writer: DatasetWriter, game: Game[Any], counts: dict[str, Any]) -> None:
    """Write the last shard, count what the data set holds, and mark it complete."""
    from genpolicy.data.records import Dataset

    writer.commit_all()
    writer.finish({**_counted(Dataset(writer.folder, writer.info), game), **counts})


def _counted(dataset: Dataset, game: Game[Any]) -> dict[str, Any]:
    from genpolicy_labelling.summary import count

    with progress() as bar:
        task = bar.add_task("counting", total=dataset.num_records, unit="positions")
        return count(dataset, game, lambda rows: bar.advance(task, rows))


def _report(arguments: argparse.Namespace, game: Game[Any]) -> int:
    """Show the finished data set.

    Returns:
        The exit status: 2 if no position could be labelled.
    """
    from genpolicy.data.records import Dataset

    dataset = Dataset.open(arguments.out)
    show(dataset, arguments.json)
    num_labelled = dataset.count("labelled")
    if dataset.info.oracle is not None and not num_labelled:
        say("no position could be labelled; see the messages above")
        return 2
    folder = shlex.quote(str(arguments.out))
    if dataset.info.oracle is None and num_labelled < dataset.num_records:
        print(f"label it with: genpolicy data label --data {folder} --oracle ORACLE --out {folder}-labelled")
    else:
        print(f"inspect it with: genpolicy data info --data {folder}")
    return 0
