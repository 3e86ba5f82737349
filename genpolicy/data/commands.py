"""``genpolicy data import | label | selfplay | info | fit-scale``: making data sets and looking at them."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset
    from genpolicy.data.writer import DatasetWriter
    from genpolicy.game import Game

MAX_SHOWN = 5
"""Positions without a label whose reasons are shown; the others are counted."""
AFTER_A_KILL = (
    "The same command goes on after Ctrl-C or a kill. Nothing is written twice and nothing is lost, but the block that "
    "each engine process was at, at most {number} positions a process, is searched again, though some of them may have "
    "been answered: labels are reproducible by the block only."
)
"""Below the help of what labels; the blocks are ``label.BLOCK_RECORDS`` and ``selfplay.BLOCK_PLIES * GROUP_GAMES``."""


def add_parser(subparsers: Any) -> None:
    """Add ``data`` and its verbs."""
    from genpolicy.data import fit_scale

    parser = subparsers.add_parser("data", help="make, import, label and look at data sets")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_import(verbs)
    _add_label(verbs)
    _add_selfplay(verbs)
    _add_info(verbs)
    fit_scale.add_parser(verbs)


def _add_import(verbs: Any) -> None:
    parser = verbs.add_parser("import", help="positions from files of games, positions or others' records")
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="a file, folder or glob, or 'all' (every position of a small game)"
    )
    parser.add_argument("--game", required=True, metavar="SPEC", help="e.g. chess or connect:rows=3,cols=3,k=3")
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable entries out and count them")
    parser.add_argument(
        "--max-games", type=_positive, metavar="N", help="stop after so many games (a position without one counts not)"
    )
    parser.add_argument("--max-positions", type=_positive, metavar="N", help="stop after so many positions")
    _add_split(parser)
    _add_output(parser)
    parser.set_defaults(run=run_import)


def _add_label(verbs: Any) -> None:
    parser = verbs.add_parser(
        "label",
        help="best lines and scores from an engine or a solver",
        description="Best lines and scores from an engine or a solver.",
        epilog=AFTER_A_KILL.format(number=8),
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the data set to label")
    _add_oracle(parser)
    _add_output(parser)
    parser.set_defaults(run=run_label)


def _add_selfplay(verbs: Any) -> None:
    parser = verbs.add_parser(
        "selfplay",
        help="games of an engine against itself, with errors, every position labelled",
        description="Games of an engine against itself, with errors, every position labelled.",
        epilog=AFTER_A_KILL.format(number=32),
    )
    parser.add_argument("--game", required=True, metavar="SPEC", help="e.g. chess or connect:rows=3,cols=3,k=3")
    _add_oracle(parser)
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--games", type=_positive, metavar="N", help="so many games")
    amount.add_argument(
        "--positions", type=_positive, metavar="N", help="so many positions; the last game is kept whole"
    )
    parser.add_argument(
        "--error-rate",
        type=_float_range,
        default=(0.05, 0.3),
        metavar="LOW:HIGH",
        help="each game draws its rate of random moves from this range (default 0.05:0.30)",
    )
    parser.add_argument(
        "--random-plies",
        type=_int_range,
        default=(4, 12),
        metavar="LOW:HIGH",
        help="random moves before a game's first recorded position (default 4:12)",
    )
    parser.add_argument("--openings", metavar="FILE", help="positions or games that games begin from")
    parser.add_argument("--max-plies", type=_positive, default=200, metavar="N", help="longest game (default 200)")
    parser.add_argument(
        "--adjudicate",
        type=_adjudication,
        metavar="VALUE:PLIES",
        help="end a game when the value, in (0, 1], stays beyond VALUE for PLIES plies (default: play on)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of every draw (default 0)")
    _add_split(parser)
    _add_output(parser)
    parser.set_defaults(run=run_selfplay)


def _add_info(verbs: Any) -> None:
    parser = verbs.add_parser("info", help="what a data set holds, its checksums verified")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=int, default=3, metavar="N", help="example records to show (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write it there")
    parser.set_defaults(run=run_info)


def _add_oracle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--oracle",
        required=True,
        metavar="SPEC",
        help="e.g. 'stockfish?nodes=2000', '/path/to/engine?depth=12&line=searched', 'solver'",
    )
    parser.add_argument("--horizon", type=_positive, default=8, metavar="N", help="moves of a line (default 8)")
    parser.add_argument("--move-values", action="store_true", help="also score every legal move, one search each")
    parser.add_argument("--processes", type=_positive, metavar="N", help="engine processes side by side")


def _add_split(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--split",
        default="0.9/0.05/0.05",
        metavar="TRAIN/VALIDATION/TEST",
        help="fractions of the games, or of the positions where there are no games (default 0.9/0.05/0.05)",
    )
    parser.add_argument("--split-seed", type=int, default=0, metavar="N", help="another seed, another split")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the data set goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the counts there")


def run_import(arguments: argparse.Namespace) -> int:
    """``genpolicy data import``."""
    from genpolicy.data.importing import describe_sources, import_sources
    from genpolicy.data.records import DatasetInfo
    from genpolicy.data.splits import SplitFractions
    from genpolicy.data.writer import DatasetWriter
    from genpolicy.registry import load_game

    game = load_game(arguments.game)
    splits = SplitFractions.parse(arguments.split, arguments.split_seed)
    limits = {"max_games": arguments.max_games, "max_positions": arguments.max_positions}
    info = DatasetInfo(
        game=game.spec,
        made_by="import",
        options={**splits.options(), **limits},
        sources=describe_sources(arguments.sources),
        command=_command(),
    )
    with DatasetWriter(arguments.out, info, journal=False) as writer, _resumable():
        if not writer.complete:
            with _progress() as bar:
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
                _say(f"skipped: {text}")
            if (more := report.skipped["unreadable"] - len(report.shown)) > 0:
                _say(f"skipped: {more} more unreadable entries")
            _finish(writer, game, {"skipped": dict(report.skipped)})
    return _tell(arguments, game)


def run_label(arguments: argparse.Namespace) -> int:
    """``genpolicy data label``."""
    from genpolicy.data.label import Labelled, label
    from genpolicy.data.oracle import make_oracle
    from genpolicy.data.records import Dataset, DatasetInfo
    from genpolicy.data.writer import DatasetWriter
    from genpolicy.registry import load_game

    source = Dataset.open(arguments.folder)
    if arguments.out.resolve() == arguments.folder.resolve():
        raise ValueError(
            f"--out {arguments.out}: is the data set to label; name a new folder, the old one stays as it is"
        )
    if not source.info.complete:
        _say(f"{arguments.folder} is unfinished; labelling would miss the rest. Go on with: {source.info.command}")
        return 2
    game = load_game(source.game_spec)
    with make_oracle(arguments.oracle, game, processes=arguments.processes) as oracle:
        info = DatasetInfo(
            game=game.spec,
            made_by="label",
            oracle=oracle.describe(),
            options={"horizon": arguments.horizon, "move_values": arguments.move_values, "records": source.checksum},
            sources=[{"file": str(arguments.folder), "sha256": source.checksum}, *source.info.sources],
            command=_command(),
        )
        with DatasetWriter(arguments.out, info) as writer, _resumable():
            if not writer.complete:
                with _progress() as bar:
                    task = bar.add_task(
                        "labelling", total=source.num_records, completed=writer.num_rows, unit="positions"
                    )
                    shown = 0

                    def on_label(done: Labelled) -> None:
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
                        progress=on_label,
                    )
                _finish(writer, game, {"skipped": source.info.counts.get("skipped", {})})
    return _tell(arguments, game)


def run_selfplay(arguments: argparse.Namespace) -> int:
    """``genpolicy data selfplay``."""
    from genpolicy.data.importing import describe_sources, read_openings
    from genpolicy.data.oracle import make_oracle
    from genpolicy.data.records import DatasetInfo
    from genpolicy.data.selfplay import Selfplay, SelfplayConfig, num_finished_games
    from genpolicy.data.splits import SplitFractions
    from genpolicy.data.writer import DatasetWriter
    from genpolicy.registry import load_game

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
    )
    openings = read_openings(game, arguments.openings) if arguments.openings else ()
    sources = describe_sources([arguments.openings]) if arguments.openings else []
    with make_oracle(arguments.oracle, game, processes=arguments.processes) as oracle:
        amount = {"games": arguments.games, "positions": arguments.positions}
        info = DatasetInfo(
            game=game.spec,
            made_by="selfplay",
            oracle=oracle.describe(),
            options={**config.options(), **splits.options(), **amount},
            sources=sources,
            command=_command(),
        )
        with DatasetWriter(arguments.out, info, max_rows=arguments.positions) as writer, _resumable():
            if not writer.complete:
                with _progress() as bar:
                    unit = "games" if arguments.games else "positions"
                    done = num_finished_games(writer) if arguments.games else writer.num_rows
                    task = bar.add_task(
                        "playing", total=arguments.games or arguments.positions, completed=done, unit=unit
                    )

                    def on_block(num_games: int, num_positions: int, errors: Sequence[str]) -> None:
                        for error in errors[:MAX_SHOWN]:
                            bar.console.print(f"not labelled: {error}", markup=False, highlight=False)
                        bar.advance(task, num_games if arguments.games else num_positions)
                        # Games that ran beside the last one are dropped.
                        bar.update(task, completed=min(bar.tasks[0].completed, bar.tasks[0].total))

                    Selfplay(game, oracle, config, splits, openings).run(
                        writer, arguments.games, arguments.positions, on_block
                    )
                _finish(writer, game, {})
    return _tell(arguments, game)


def run_info(arguments: argparse.Namespace) -> int:
    """``genpolicy data info``."""
    from rich.console import Console

    from genpolicy.data.records import Dataset

    dataset = Dataset.open(arguments.folder)
    console = Console()
    _show(dataset, console)
    for number, record in zip(range(arguments.rows), dataset.records(), strict=False):
        console.print(f"\nrecord {number}", style="bold")
        for name, value in record.to_row().items():
            if value not in (None, []):
                console.print(f"  {name}: {value}", markup=False, highlight=False)
    _write_json(arguments.json, _facts(dataset))
    return 0


def _finish(writer: DatasetWriter, game: Game[Any], counts: dict[str, Any]) -> None:
    """Write the last shard, count what the data set holds, and mark it complete."""
    from genpolicy.data.records import Dataset
    from genpolicy.data.summary import count

    writer.commit_all()
    dataset = Dataset(writer.folder, writer.info)
    with _progress() as bar:
        task = bar.add_task("counting", total=dataset.num_records, unit="positions")
        found = count(dataset, game, lambda rows: bar.advance(task, rows))
    writer.finish({**found, **counts})


def _tell(arguments: argparse.Namespace, game: Game[Any]) -> int:
    """Show the finished data set; 2 when nothing in it could be labelled."""
    from rich.console import Console

    from genpolicy.data.records import Dataset

    dataset = Dataset.open(arguments.out)
    _show(dataset, Console())
    _write_json(arguments.json, _facts(dataset))
    counts = dataset.info.counts
    if dataset.info.oracle is not None and not counts["labelled"]:
        _say("no position could be labelled; see the messages above")
        return 2
    folder = shlex.quote(str(arguments.out))
    if dataset.info.oracle is None and counts["labelled"] < counts["records"]:
        print(f"label it with: genpolicy data label {folder} --oracle ORACLE --out {folder}-labelled")
    else:
        print(f"look at it with: genpolicy data info {folder}")
    return 0


def _show(dataset: Dataset, console: Any) -> None:
    from rich.table import Table

    info, counts = dataset.info, dataset.info.counts
    table = Table(title=str(dataset.folder), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    table.add_row("game", info.game)
    table.add_row("made by", f"{info.made_by}, genpolicy {info.genpolicy}")
    table.add_row("command", info.command)
    if info.oracle is not None:
        table.add_row("oracle", ", ".join(f"{key}={value}" for key, value in info.oracle.items() if value != {}))
    table.add_row("records", f"{dataset.num_records} in {len(info.shards)} shards, checksums verified")
    table.add_row("splits", ", ".join(f"{split} {number}" for split, number in dataset.splits.items()))
    if info.complete:
        table.add_row("games", str(counts["games"]))
        table.add_row("labelled", str(counts["labelled"]))
        table.add_row("repeated positions", str(counts["duplicates"]))
        for split, leak in counts["leakage"].items():
            share = 100 * leak["in_training"] / max(1, leak["records"])
            table.add_row(
                f"{split} positions that occur in training",
                f"{leak['in_training']} of {leak['records']} ({share:.1f} %)",
            )
        skipped = {**counts.get("skipped", {}), **counts.get("tallies", {})}
        if skipped:
            table.add_row("left out", ", ".join(f"{number} {reason}" for reason, number in skipped.items()))
    else:
        table.add_row("unfinished", f"go on with: {info.command}")
    table.add_row("checksum", dataset.checksum)
    console.print(table)


def _facts(dataset: Dataset) -> dict[str, Any]:
    info = dataset.info
    return {
        "folder": str(dataset.folder),
        "game": info.game,
        "made_by": info.made_by,
        "oracle": info.oracle,
        "options": info.options,
        "sources": info.sources,
        "complete": info.complete,
        "records": dataset.num_records,
        "splits": dataset.splits,
        "counts": info.counts,
        "shards": info.shards,
        "checksum": dataset.checksum,
    }


@contextmanager
def _resumable() -> Iterator[None]:
    """Say on Ctrl-C how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        _say(f"\ninterrupted; what is finished is safe. Go on with:\n  {_command()}")
        raise


@contextmanager
def _progress() -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        _rate_column(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2) as progress:
        yield progress


def _rate_column() -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f}/s")

    return RateColumn()


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _command() -> str:
    return shlex.join(["genpolicy", *sys.argv[1:]])


def _write_json(path: Path | None, facts: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(facts, indent=2) + "\n")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


def _float_range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    return float(low), float(high or low)


def _int_range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    return int(low), int(high or low)


def _adjudication(text: str) -> tuple[float, int]:
    value, _, plies = text.partition(":")
    return float(value), int(plies)
