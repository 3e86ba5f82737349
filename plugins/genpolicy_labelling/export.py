"""``genpolicy data export``: writes a data set in one of its game's formats, for people and other programs."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import filelock

from genpolicy.data.records import Dataset, Record
from genpolicy.errors import DatasetError, LockedError
from genpolicy.facets import writer
from genpolicy.game import Game, PlayedGame, Position
from genpolicy_common.arguments import add_data, require


def export_positions(dataset: Dataset, game: Game[Any], path: Path, split: str | None = None) -> tuple[int, int]:
    """Write the records of a data set as positions, in their order.

    Args:
        dataset: The data set.
        game: Its game.
        path: A new file; its name determines the format (see ``Files.write_positions``).
        split: Only this split; None takes all.

    Returns:
        How many positions were written, and how many there are.

    Raises:
        ValueError: the game writes no positions, or not in a format of this name.
    """
    count = 0

    def positions() -> Iterator[Position]:
        nonlocal count
        for row, record in enumerate(dataset.records(split)):
            yield _position(record, f"{dataset.folder}: record {row}")
            count += 1

    files = writer(game, path, "positions")
    return files.write_positions(path, positions(), scale=dataset.centipawn_scale), count


def export_games(dataset: Dataset, game: Game[Any], path: Path, split: str | None = None) -> tuple[int, int]:
    """Write the games whose moves a data set holds; arguments, result and errors as ``export_positions``.

    Raises:
        DatasetError: the data set has no game, or the records of one do not follow from each other.
    """
    count = 0

    def games() -> Iterator[PlayedGame]:
        nonlocal count
        known = ((row, record) for row, record in enumerate(dataset.records(split)) if record.game_id and record.played)
        for _, group in groupby(known, key=lambda pair: pair[1].game_id):
            yield _game(game, [(f"{dataset.folder}: record {row}", record) for row, record in group])
            count += 1

    written = writer(game, path, "games").write_games(path, games())
    if count == 0:
        raise DatasetError(f"{dataset.folder}: holds no game (no record says which move was played)")
    return written, count


def _position(record: Record, where: str) -> Position:
    return Position(
        record.state,
        where,
        record.moves,
        record.scores,
        ended=record.ended,
        game_id=record.game_id,
        ply=record.ply,
        split=record.split,
        played=record.played,
        result=record.result,
        policy=record.policy,
    )


def _game(game: Game[Any], rows: list[tuple[str, Record]]) -> PlayedGame:
    state = game.parse(rows[0][1].state)
    moves = []
    for where, record in rows:
        if game.format(state) != record.state:
            raise DatasetError(f"{where}: does not follow from the record before it, so its game cannot be written")
        moves.append(game.moves.index(record.played or ""))
        state = game.play(state, moves[-1])
    first = rows[0][1]
    return PlayedGame(str(first.game_id), first.state, tuple(moves), first.result)


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "export",
        help="write a data set as a file in one of the game's own formats",
        description="Write positions with their labels, or whole games, in the format that the file's name determines.",
    )
    add_data(parser, old="DATASET")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="a new file; its suffix determines the format"
    )
    parser.add_argument("--games", action="store_true", help="write whole games, from the moves that were played")
    parser.add_argument("--split", metavar="NAME", help="only train, validation or test (default: all)")
    parser.set_defaults(run=run, output_options=("out",))


def run(arguments: argparse.Namespace) -> int:
    """``genpolicy data export``."""
    from genpolicy.registry import load_game

    require(arguments.folder, "--data", "runs/labelled")
    dataset = Dataset.open(arguments.folder)
    game = load_game(dataset.game_spec)
    what: Literal["games", "positions"] = "games" if arguments.games else "positions"
    write = export_games if arguments.games else export_positions
    writer(game, arguments.out, what)  # which names this file where it refuses
    unfinished = arguments.out.with_name(f".unfinished-{arguments.out.name}")  # half a file would look like a whole one
    lock = filelock.FileLock(unfinished.with_name(f"{unfinished.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise LockedError(f"--out {arguments.out}: another process writes it; wait for it or name a new file") from None
    try:
        if arguments.out.exists():
            raise ValueError(f"--out {arguments.out}: exists already; name a new file")
        unfinished.unlink(missing_ok=True)
        count, there = write(dataset, game, unfinished, arguments.split)
        if there == 0:
            raise DatasetError(
                f"{dataset.folder}: holds no record{f' of split {arguments.split}' * bool(arguments.split)}"
            )
        if count == 0:
            raise DatasetError(
                f"--out {arguments.out}: this format can hold none of the {there:,} {what} (it may need a result, or a "
                f"line and a score of each position); name another format"
            )
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.rename(arguments.out)
    except ValueError as error:  # such as a name that stands for no format of the game
        raise ValueError(str(error).replace(str(unfinished), f"--out {arguments.out}")) from error
    finally:
        unfinished.unlink(missing_ok=True)
        if os.name == "posix":  # Windows deletes it on release
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
    left = f"; the format has no place for the other {there - count:,}" if count < there else ""
    print(f"wrote {count:,} of {there:,} {what} to {shlex.quote(str(arguments.out))}{left}")
    return 0
