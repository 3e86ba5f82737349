"""Encodes a split into array files: in this process, or in several where the split is large.

The workers are processes of their own (``python -m genpolicy.data.window_build``), so it makes no difference how the
program was started, and nothing is pickled. Worker k of W takes every W-th batch of records and leaves a file of arrays
for each; the files are appended in order, so the result is the same for any number of workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from genpolicy.data.records import Dataset, Record
from genpolicy.data.window_encoder import Arrays, Labelled, WindowEncoder
from genpolicy.errors import DatasetError, RegistryError
from genpolicy.game import Game
from genpolicy.machine import num_cores
from genpolicy.sequence import Layout

PARALLEL_RECORDS = 20_000  # below, starting processes takes longer than it saves
BATCH_ROWS = 2048
_COLUMNS = ("state", "line", "ended", "scores", "move_values")
_SAMPLE = 2048


class ArrayFiles:
    """Arrays that grow on the disk along their first axis."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, BinaryIO] = {}
        self._facts: dict[str, dict[str, Any]] = {}

    def append(self, arrays: Arrays) -> None:
        """Add rows; the first call settles each array's type and inner shape."""
        for name, rows in arrays.items():
            if name not in self._open:
                self._open[name] = (self._folder / f"{name}.bin").open("wb")
                self._facts[name] = {"dtype": rows.dtype.str, "shape": [0, *rows.shape[1:]], "crc32": 0}
            data = np.ascontiguousarray(rows).tobytes()
            self._open[name].write(data)
            self._facts[name]["shape"][0] += len(rows)
            self._facts[name]["crc32"] = zlib.crc32(data, self._facts[name]["crc32"])

    def length(self, name: str) -> int:
        """Rows so far."""
        return int(self._facts[name]["shape"][0]) if name in self._facts else 0

    def read(self, name: str) -> NDArray[Any]:
        """All rows so far, in memory."""
        self._open[name].flush()
        return np.fromfile(self._folder / f"{name}.bin", self._facts[name]["dtype"]).reshape(self._facts[name]["shape"])

    def close(self) -> dict[str, dict[str, Any]]:
        """Flush to the disk; type, shape and CRC-32 of each array."""
        for file in self._open.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        return self._facts


def encode_split(
    files: ArrayFiles, dataset: Dataset, split: str, encoder: WindowEncoder, limit: int | None, scratch: Path
) -> int:
    """Append the windows of a split (of its first ``limit`` records); returns how many records were read.

    Raises:
        DatasetError: a record that the game cannot read; the message names it.
    """
    total = _num_records(dataset, split)
    total = total if limit is None else min(total, limit)
    workers = min(num_cores(), -(-total // BATCH_ROWS))
    parallel = total >= PARALLEL_RECORDS and workers > 1 and _can_be_made_again(encoder)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    quiet = total < PARALLEL_RECORDS // 10
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(f"windows of {dataset.folder.name}, {split}", total=total)
        if parallel:
            parts = _encode_elsewhere(dataset, split, encoder, limit, scratch, workers, total)
        else:
            parts = ((len(chunk), encoder.encode(chunk)) for chunk in _chunks(dataset, split, limit))
        for num_records, arrays in parts:
            files.append(arrays)
            progress.advance(task, num_records)
    return total


def held_out_keys(dataset: Dataset, split: str, encoder: WindowEncoder) -> NDArray[np.uint64]:
    """Keys of the positions of all records that are not in a split."""
    found = [np.empty(0, np.uint64)]
    for number, batch in enumerate(dataset.batches([*_COLUMNS, "split"], batch_rows=BATCH_ROWS)):
        others = batch.filter(pa.array([name != split for name in batch.column("split").to_pylist()]))
        found.append(encoder.keys(_labelled(dataset, others, f"batch {number}, record", 0)))
    return np.unique(np.concatenate(found))


def key_sample(dataset: Dataset, split: str) -> list[Labelled]:
    """Records from all over a split, some thousands at most."""
    total = _num_records(dataset, split)
    every = max(1, total // _SAMPLE)
    records = (record for chunk in _chunks(dataset, split, None) for record in chunk)
    return list(islice(records, 0, None, every))


def _num_records(dataset: Dataset, split: str) -> int:
    return sum(int(batch.num_rows) for batch in dataset.batches(["split"], split))


def _chunks(
    dataset: Dataset, split: str, limit: int | None, worker: int = 0, workers: int = 1
) -> Iterator[list[Labelled]]:
    """Every ``workers``-th batch of a split, beginning with batch ``worker``; only those are turned into objects."""
    start = 0
    for number, batch in enumerate(dataset.batches(_COLUMNS, split, BATCH_ROWS)):
        if limit is not None:
            batch = batch.slice(0, max(0, limit - start))
            if batch.num_rows == 0:
                return
        if number % workers == worker:
            yield _labelled(dataset, batch, f"record {split}", start)
        start += batch.num_rows


def _labelled(dataset: Dataset, batch: pa.RecordBatch, what: str, start: int) -> list[Labelled]:
    rows = batch.select(list(_COLUMNS)).to_pylist()
    records = []
    for number, row in enumerate(rows, start):
        record = Record.from_row(row)
        where = f"{dataset.folder}: {what} {number} ({record.state!r})"
        records.append(Labelled(where, record.state, record.moves, record.scores, record.ended, record.scored_moves))
    return records


def _can_be_made_again(encoder: WindowEncoder) -> bool:
    """Whether another process can make the game from its specification and gets the same encodings."""
    from genpolicy.registry import load_game

    try:
        again = load_game(encoder.game.spec)
    except (ValueError, RegistryError):
        return False
    layout = encoder.layout
    like = _layout(again, layout.paradigm, layout.horizon, layout.num_value_bins)
    return type(again) is type(encoder.game) and like.fingerprint == layout.fingerprint


def _layout(game: Game[Any], paradigm: str, horizon: int, num_value_bins: int) -> Layout:
    if num_value_bins:
        return Layout(game, paradigm, horizon, num_value_bins=num_value_bins)
    return Layout(game, paradigm, horizon)


def _encode_elsewhere(
    dataset: Dataset, split: str, encoder: WindowEncoder, limit: int | None, scratch: Path, workers: int, total: int
) -> Iterator[tuple[int, Arrays]]:
    """The parts of a split in order, from worker processes."""
    layout = encoder.layout
    task = {
        "dataset": str(dataset.folder.resolve()),
        "split": split,
        "game": encoder.game.spec,
        "paradigm": layout.paradigm,
        "horizon": layout.horizon,
        "num_value_bins": layout.num_value_bins,
        "viewer": encoder.viewer,
        "choices": encoder.choices,
        "limit": limit,
        "workers": workers,
        "scratch": str(scratch.resolve()),
    }
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "genpolicy.data.window_build", json.dumps({**task, "worker": worker})],
            stdin=subprocess.DEVNULL,
            env=environment,
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
        if status is not None and status != 0:
            told = scratch / f"error-{index}.txt"
            raise DatasetError(
                told.read_text() if told.exists() else f"a process that encodes windows ended with status {status}"
            )
    if running[worker].poll() == 0 and not part.exists():
        raise DatasetError(f"{scratch}: a process that encodes windows left out {part.name}")


def _work(task: dict[str, Any]) -> None:
    """One worker: leaves ``part-i.npz`` for every batch i that is its own."""
    from genpolicy.registry import load_game

    scratch = Path(task["scratch"])
    try:
        game = load_game(task["game"])
        layout = _layout(game, task["paradigm"], task["horizon"], task["num_value_bins"])
        dataset = Dataset.open(task["dataset"], verify=False)
        scale = dataset.centipawn_scale
        encoder = WindowEncoder(game, layout, task["viewer"], choices=task["choices"], scale=scale)
        chunks = _chunks(dataset, task["split"], task["limit"], task["worker"], task["workers"])
        for i, chunk in enumerate(chunks):
            number = task["worker"] + i * task["workers"]
            unfinished = scratch / f"unfinished-{number}.npz"
            with unfinished.open("wb") as file:
                arrays: dict[str, Any] = {**encoder.encode(chunk), "num_records": np.array(len(chunk))}
                np.savez(file, **arrays)
            unfinished.rename(scratch / f"part-{number}.npz")
    except (ValueError, OSError) as error:
        (scratch / f"error-{task['worker']}.txt").write_text(str(error))
        raise SystemExit(1) from error


if __name__ == "__main__":
    _work(json.loads(sys.argv[1]))
