"""Writes the cache of encoded windows: built once for a data set, layout and viewer, and checked before it is used.

``genpolicy.data.array_cache`` keeps the arrays, ``genpolicy.data.window_cache`` reads them. A large split is encoded by
several processes, which are started as ``python -m genpolicy.data.window_build``: this works however the program was
started, and nothing is pickled. Worker k of W takes every W-th batch of records and leaves a file of arrays for each;
the files are appended in order, so the result is the same for any number of workers.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from genpolicy.data.array_cache import ArrayFiles, cached
from genpolicy.data.records import Dataset
from genpolicy.data.window_cache import HELD_OUT, UNKNOWN
from genpolicy.data.window_encoder import Arrays, WindowEncoder, WindowRecord
from genpolicy.data.windows import WindowOptions
from genpolicy.errors import DatasetError, RegistryError
from genpolicy.files import FULL, DiskFullError, disk_full, full_disk_named
from genpolicy.game import Game
from genpolicy.machine import num_cores
from genpolicy.sequence import Layout

PARALLEL_RECORDS = 20_000  # below, starting processes takes longer than it saves
BATCH_ROWS = 2048
VERSION = 2
"""Raised when the cache's content changes for the same inputs."""
COLUMNS = ("state", "line", "ended", "scores", "move_values")
_SAMPLE = 2048
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Split:
    """What a cache is made of."""

    dataset: Dataset
    name: str
    encoder: WindowEncoder

    @cached_property
    def num_records(self) -> int:
        """Records of the split."""
        return sum(int(batch.num_rows) for batch in self.dataset.batches(["split"], self.name))


def build_cache(dataset: Dataset, split: str, game: Game[Any], layout: Layout, options: WindowOptions) -> Path:
    """The folder of the cache of a split, which is built unless a whole one exists.

    Raises:
        DatasetError: of another game, unreadable, a record that the rules refuse, or no labelled record in the split.
        DiskFullError: no space to build it.
    """
    check_game(dataset, game)
    columns = (batch.column("move_values") for batch in dataset.batches(["move_values"], split))
    choices = options.redraw and any(column.null_count < len(column) for column in columns)
    identity = {
        "version": VERSION,
        "dataset": dataset.checksum,
        "game": game.spec,
        "split": split,
        "layout": layout.fingerprint,
        "viewer": options.viewer,
        "choices": choices,
        "symmetries": options.augment,
        "limit": None,  # of the records; caches from when there was one stay valid
        "centipawn_scale": dataset.centipawn_scale,
    }
    if choices and dataset.beside is not None:
        identity["beside"] = dataset.beside.checksum
    if options.columns:  # caches from before there were any stay valid
        identity["columns"] = sorted(options.columns)
    scale = dataset.centipawn_scale
    encoder = WindowEncoder(game, layout, options.viewer, choices=choices, scale=scale, columns=options.columns)
    write = partial(_write, split=_Split(dataset, split, encoder), symmetries=options.augment)
    return cached(dataset, identity, write, options.cache_dir)


def _write(building: Path, *, split: _Split, symmetries: bool) -> dict[str, dict[str, Any]]:
    """Fill a new folder with arrays; their facts."""
    files, encoder = ArrayFiles(building), split.encoder
    _encode(files, split, building)
    if files.length("tokens") == 0:
        what = f"{split.num_records} records, none of them labelled" if split.num_records else "no records"
        there = ", ".join(f"{name} {count}" for name, count in split.dataset.splits.items())
        raise DatasetError(
            f"{split.dataset.label}: split {split.name!r} has {what} (it has: {there}); genpolicy data label makes "
            "labels"
        )
    if encoder.by_move:
        files.append({"starts": starts_of(files.read("arms"))})
    if encoder.choices and not encoder.by_move:
        files.append(_link(files, _held_out_keys(split)))
    if "policy" in encoder.columns:
        files.append({"policy_starts": starts_of(files.read("policy_counts"))})
    if symmetries:
        files.append({"symmetries": encoder.symmetric_places(_sample(split))})
    return files.close()


def starts_of(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """[R + 1] where each window's entries begin."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _link(files: ArrayFiles, held_out: NDArray[np.uint64]) -> Arrays:
    """Where each window's choices start [R + 1], the window that each choice leads to [E], and ``until`` [R]: the ply
    of the first position of its own line that only another split holds, or one beyond the line."""
    keys, counts, children = files.read("keys"), files.read("counts"), files.read("child_keys")
    with_moves = np.flatnonzero(counts)
    following = rows_with(keys[with_moves], children)
    following = np.where(following == UNKNOWN, UNKNOWN, with_moves[following])
    following[(following == UNKNOWN) & np.isin(children, held_out)] = HELD_OUT
    line_keys = files.read("line_keys")
    foreign = np.isin(line_keys, held_out) & ~np.isin(line_keys, keys)
    until = 1 + np.insert(foreign, foreign.shape[1], values=True, axis=1).argmax(axis=1)
    return {"starts": starts_of(counts), "next": following, "until": until.astype(np.int16)}


def rows_with(keys: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """[E] the first of some rows [R] that has each wanted key [E]; ``UNKNOWN`` where none has."""
    order = np.argsort(keys, kind="stable")
    row = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where(keys[row] == wanted, row, UNKNOWN).astype(np.int64)


def _encode(files: ArrayFiles, split: _Split, scratch: Path) -> None:
    """Append the windows of a split."""
    total = split.num_records
    workers = min(num_cores(), -(-total // BATCH_ROWS))
    parallel = total >= PARALLEL_RECORDS and workers > 1 and _can_be_made_again(split.encoder)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    quiet = total < PARALLEL_RECORDS // 10
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(f"windows of {split.dataset.folder.name}, {split.name}", total=total)
        if parallel:
            parts = _encode_elsewhere(split, scratch, workers)
        else:
            parts = ((len(chunk), split.encoder.encode(chunk)) for chunk in _chunks(split))
        with closing(parts):  # ends the processes before their folder is deleted
            for num_records, arrays in parts:
                files.append(arrays)
                progress.advance(task, num_records)


def _held_out_keys(split: _Split) -> NDArray[np.uint64]:
    """Keys of the positions that only other splits hold; of a union, where the data set is trained as a part of one."""
    dataset, ours, keys = split.dataset.beside or split.dataset, [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for number, batch in enumerate(dataset.batches([*COLUMNS, "split"], batch_rows=BATCH_ROWS)):
        is_ours = np.array([name == split.name for name in batch.column("split").to_pylist()])
        read = partial(records_of, dataset, names=COLUMNS, what=f"batch {number}, record", start=0)
        keys.append(split.encoder.keys(read(batch=batch.filter(pa.array(~is_ours)))))
        if split.dataset.beside is not None:
            ours.append(split.encoder.keys(read(batch=batch.filter(pa.array(is_ours)))))
    return np.setdiff1d(np.concatenate(keys), np.concatenate(ours))


def _sample(split: _Split) -> list[WindowRecord]:
    """Records from all over a split, some thousands at most."""
    records = (record for chunk in _chunks(split) for record in chunk)
    return list(islice(records, 0, None, max(1, split.num_records // _SAMPLE)))


def _chunks(split: _Split, worker: int = 0, workers: int = 1) -> Iterator[list[WindowRecord]]:
    """Every ``workers``-th batch of a split, beginning with batch ``worker``; only those are turned into objects."""
    start, names = 0, [*COLUMNS, *split.encoder.columns]
    for number, batch in enumerate(split.dataset.batches(names, split.name, BATCH_ROWS)):
        if number % workers == worker:
            yield records_of(split.dataset, batch, names, f"record {split.name}", start)
        start += batch.num_rows


def records_of(
    dataset: Dataset, batch: pa.RecordBatch, names: Sequence[str], what: str, start: int
) -> list[WindowRecord]:
    """The rows of a batch that has some columns; ``what`` and the number from ``start`` on name each in messages."""
    return [
        WindowRecord.from_row({**row, "where": f"{dataset.label}: {what} {number} ({row['state']!r})"})
        for number, row in enumerate(batch.select(list(names)).to_pylist(), start)
    ]


def _can_be_made_again(encoder: WindowEncoder) -> bool:
    """Whether another process can make the game from its specification and gets the same encodings."""
    from genpolicy.registry import available, load_game, split_spec

    spec = encoder.game.spec
    try:
        if available("games")[split_spec(spec)[0]].dist is None:  # registered in this process alone
            return False
        again = load_game(spec)
        fingerprint = _layout(again, **_choices(encoder)).fingerprint
    except (ValueError, LookupError):  # a RegistryError is one
        return False
    return type(again) is type(encoder.game) and fingerprint == encoder.layout.fingerprint


def _choices(encoder: WindowEncoder) -> dict[str, Any]:
    """What another process makes the layout of: as JSON holds it."""
    layout, others = encoder.layout, encoder.game.tokenizers
    tokens = next((name for name, each in others.items() if type(each) is type(layout.tokenizer)), "")
    named = ("paradigm", "horizon", "num_value_bins")
    return {"tokens": tokens, **{name: getattr(layout, name) for name in named}}


def _layout(game: Game[Any], *, tokens: str, **choices: Any) -> Layout:
    return Layout(game, **choices, tokenizer=game.tokenizer(tokens))


def _encode_elsewhere(split: _Split, scratch: Path, workers: int) -> Generator[tuple[int, Arrays], None, None]:
    """The parts of a split in order, from worker processes."""
    encoder, total = split.encoder, split.num_records
    task = {
        "dataset": [str(part.folder.resolve()) for part in split.dataset.parts],
        "split": split.name,
        "game": encoder.game.spec,
        "layout": _choices(encoder),
        "viewer": encoder.viewer,
        "choices": encoder.choices,
        "columns": encoder.columns,
        "workers": workers,
        "scratch": str(scratch.resolve()),
        "parent": os.getpid(),
    }
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "genpolicy.data.window_build", json.dumps({**task, "worker": worker})],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us; we end them
        )
        for worker in range(workers)
    ]
    done = number = 0
    try:
        while done < total:
            part = scratch / f"part-{number}.npz"
            while not part.exists():
                _raise_failure(running, number % workers, scratch, part)
                time.sleep(0.02)
            with np.load(part, allow_pickle=False) as arrays:
                num_records = int(arrays["num_records"])
                yield num_records, {name: arrays[name] for name in arrays.files if name != "num_records"}
            part.unlink()
            done, number = done + num_records, number + 1
    finally:
        for process in running:
            if process.poll() is None and done < total:
                process.kill()
            process.wait()


def _raise_failure(running: list[subprocess.Popen[bytes]], worker: int, scratch: Path, part: Path) -> None:
    for index, process in enumerate(running):
        status = process.poll()
        if status in FULL:  # how a worker ends whose disk is full
            raise disk_full(scratch, status)
        if status is not None and status != 0:
            report = scratch / f"error-{index}.txt"
            raise DatasetError(
                report.read_text("utf-8")
                if report.exists()
                else f"a process that encodes windows ended with status {status}"
            )
    if running[worker].poll() == 0 and not part.exists():
        raise DatasetError(f"{scratch}: a process that encodes windows left out {part.name}")


def _work(task: dict[str, Any]) -> None:
    """One worker: leaves ``part-i.npz`` for every batch i that is its own."""
    from genpolicy.registry import load_game

    scratch = Path(task["scratch"])
    try:
        game = load_game(task["game"])
        layout = _layout(game, **task["layout"])
        dataset = Dataset.open(task["dataset"], verify=False)
        how = {key: task[key] for key in ("viewer", "choices", "columns")}
        encoder = WindowEncoder(game, layout, scale=dataset.centipawn_scale, **how)
        chunks = _chunks(_Split(dataset, task["split"], encoder), task["worker"], task["workers"])
        for i, chunk in enumerate(chunks):
            if os.getppid() != task["parent"]:  # it was killed, and nobody takes what this makes
                return
            number = task["worker"] + i * task["workers"]
            unfinished = scratch / f"unfinished-{number}.npz"
            with full_disk_named(unfinished), unfinished.open("wb") as file:
                arrays: dict[str, Any] = {**encoder.encode(chunk), "num_records": np.array(len(chunk))}
                np.savez(file, **arrays)
            unfinished.rename(scratch / f"part-{number}.npz")
    except DiskFullError as error:  # the file of a message would be empty
        raise SystemExit(error.errno) from error
    except (ValueError, OSError, RegistryError) as error:
        (scratch / f"error-{task['worker']}.txt").write_text(str(error), encoding="utf-8")
        raise SystemExit(1) from error


def check_game(dataset: Dataset, game: Game[Any]) -> None:
    """See that a data set is of a game.

    Raises:
        DatasetError: it is of another one.
    """
    from genpolicy.registry import load_game

    spec = dataset.game_spec
    if spec != game.spec:
        try:
            spec = load_game(spec).spec
        except (ValueError, RegistryError):
            _log.debug("the data set's game %r is not installed", spec)
    if spec != game.spec:
        raise DatasetError(f"{dataset.label}: records of game {dataset.game_spec!r}, not of {game.spec!r}")


if __name__ == "__main__":
    _work(json.loads(sys.argv[1]))
