"""Writes the cache of encoded windows: built once for a data set, layout and viewer, and checked before it is used.

A cache (``genpolicy.data.window_cache`` reads it) is built under another name and renamed, so it is whole or absent;
one that is damaged later is built again. A large split is encoded by several processes, which are started as
``python -m genpolicy.data.window_build``: this works however the program was started, and nothing is pickled.
Worker k of W takes every W-th batch of records and leaves a file of arrays for each; the files are appended in order,
so the result is the same for any number of workers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from genpolicy.data.records import Dataset, Record
from genpolicy.data.window_cache import HELD_OUT, META_FILE, UNKNOWN
from genpolicy.data.window_encoder import Arrays, WindowEncoder, WindowRecord
from genpolicy.data.windows import WindowOptions
from genpolicy.errors import DatasetError, RegistryError
from genpolicy.files import full_disk_named
from genpolicy.game import Game
from genpolicy.machine import num_cores
from genpolicy.sequence import Layout

PARALLEL_RECORDS = 20_000  # below, starting processes takes longer than it saves
BATCH_ROWS = 2048
VERSION = 1
"""Raised when the cache's content changes for the same inputs."""
_COLUMNS = ("state", "line", "ended", "scores", "move_values")
_SAMPLE = 2048
_BUILDING = "building-"
_CHUNK = 1 << 22
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Split:
    """What a cache is made of."""

    dataset: Dataset
    name: str
    encoder: WindowEncoder
    limit: int | None

    @cached_property
    def num_records(self) -> int:
        """Records of the split, ``limit`` at most."""
        total = sum(int(batch.num_rows) for batch in self.dataset.batches(["split"], self.name))
        return total if self.limit is None else min(total, self.limit)


def build_cache(dataset: Dataset, split: str, game: Game[Any], layout: Layout, options: WindowOptions) -> Path:
    """The folder of the cache of a split, which is built unless a whole one exists.

    Raises:
        DatasetError: of another game, unreadable, a record that the rules refuse, or no labelled record in the split.
        DiskFullError: no space to build it.
    """
    _check_game(dataset, game)
    choices = options.redraw and _has_move_values(dataset, split)
    identity = {
        "version": VERSION,
        "dataset": dataset.checksum,
        "game": game.spec,
        "split": split,
        "layout": layout.fingerprint,
        "viewer": options.viewer,
        "choices": choices,
        "symmetries": options.augment,
        "limit": options.limit,
        "centipawn_scale": dataset.centipawn_scale,
    }
    if options.columns:  # caches from before there were any stay valid
        identity["columns"] = sorted(options.columns)
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    beside, shared = [dataset.folder / ".cache"], list(_user_caches())
    # Nothing is written into an installed package as long as there is another place.
    homes = shared + beside if dataset.name.startswith("sample:") else beside + shared
    homes = homes if options.cache_dir is None else [options.cache_dir]
    for home in homes:
        if (home / name).exists() and _is_whole(home / name):
            return home / name
    home = _writable(homes)
    building = home / f"{_BUILDING}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    scale = dataset.centipawn_scale
    encoder = WindowEncoder(game, layout, options.viewer, choices=choices, scale=scale, columns=options.columns)
    try:
        with full_disk_named(building):
            building.mkdir()
            arrays = _write(building, _Split(dataset, split, encoder, options.limit), symmetries=options.augment)
            (building / META_FILE).write_text(json.dumps({**identity, "arrays": arrays}, indent=1) + "\n")
            _put(building, home / name)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if not _is_whole(home / name):
        raise DatasetError(f"{home / name}: the cache was damaged while it was built; check the disk")
    return home / name


def _write(building: Path, split: _Split, *, symmetries: bool) -> dict[str, dict[str, Any]]:
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
        files.append({"starts": _starts(files.read("arms"))})
    if encoder.choices and not encoder.by_move:
        files.append(_link(files, _held_out_keys(split)))
    if "policy" in encoder.columns:
        files.append({"policy_starts": _starts(files.read("policy_counts"))})
    if symmetries:
        files.append({"symmetries": encoder.symmetric_places(_sample(split))})
    return files.close()


def _starts(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """[R + 1] where each window's entries begin."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _link(files: ArrayFiles, held_out: NDArray[np.uint64]) -> Arrays:
    """Where each window's choices start [R + 1], and the window that each choice leads to [E]."""
    keys, children = files.read("keys"), files.read("child_keys")
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys, children, sorter=order), len(keys) - 1)
    candidate = order[place]
    following = np.where(np.isin(children, held_out), HELD_OUT, UNKNOWN)
    following = np.where(keys[candidate] == children, candidate, following)
    return {"starts": _starts(files.read("counts")), "next": following.astype(np.int64)}


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


def _encode(files: ArrayFiles, split: _Split, scratch: Path) -> None:
    """Append the windows of a split.

    Raises:
        DatasetError: a record that the game cannot read; the message names it.
    """
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
        for num_records, arrays in parts:
            files.append(arrays)
            progress.advance(task, num_records)


def _held_out_keys(split: _Split) -> NDArray[np.uint64]:
    """Keys of the positions of all records that are not in a split."""
    keys = [np.empty(0, np.uint64)]
    for number, batch in enumerate(split.dataset.batches([*_COLUMNS, "split"], batch_rows=BATCH_ROWS)):
        others = batch.filter(pa.array([name != split.name for name in batch.column("split").to_pylist()]))
        keys.append(split.encoder.keys(_records(split.dataset, others, _COLUMNS, f"batch {number}, record", 0)))
    return np.unique(np.concatenate(keys))


def _sample(split: _Split) -> list[WindowRecord]:
    """Records from all over a split, some thousands at most."""
    every = _Split(split.dataset, split.name, split.encoder, None)
    records = (record for chunk in _chunks(every) for record in chunk)
    return list(islice(records, 0, None, max(1, every.num_records // _SAMPLE)))


def _chunks(split: _Split, worker: int = 0, workers: int = 1) -> Iterator[list[WindowRecord]]:
    """Every ``workers``-th batch of a split, beginning with batch ``worker``; only those are turned into objects."""
    start, names = 0, [*_COLUMNS, *split.encoder.columns]
    for number, batch in enumerate(split.dataset.batches(names, split.name, BATCH_ROWS)):
        if split.limit is not None:
            batch = batch.slice(0, max(0, split.limit - start))
            if batch.num_rows == 0:
                return
        if number % workers == worker:
            yield _records(split.dataset, batch, names, f"record {split.name}", start)
        start += batch.num_rows


def _records(
    dataset: Dataset, batch: pa.RecordBatch, names: Sequence[str], what: str, start: int
) -> list[WindowRecord]:
    records = []
    for number, row in enumerate(batch.select(list(names)).to_pylist(), start):
        r = Record.from_row(row)
        where = f"{dataset.label}: {what} {number} ({r.state!r})"
        more = (r.played, r.result, r.policy, r.value)
        records.append(WindowRecord(where, r.state, r.moves, r.scores, r.ended, r.scored_moves, *more))
    return records


def _can_be_made_again(encoder: WindowEncoder) -> bool:
    """Whether another process can make the game from its specification and gets the same encodings."""
    from genpolicy.registry import load_game

    layout = encoder.layout
    try:
        again = load_game(encoder.game.spec)
    except (ValueError, RegistryError):
        return False
    if type(again) is not type(encoder.game) or type(again.tokens) is not type(layout.tokenizer):
        return False
    return _layout(again, layout.paradigm, layout.horizon, layout.num_value_bins).fingerprint == layout.fingerprint


def _layout(game: Game[Any], paradigm: str, horizon: int, num_value_bins: int) -> Layout:
    if num_value_bins:
        return Layout(game, paradigm, horizon, num_value_bins=num_value_bins)
    return Layout(game, paradigm, horizon)


def _encode_elsewhere(split: _Split, scratch: Path, workers: int) -> Iterator[tuple[int, Arrays]]:
    """The parts of a split in order, from worker processes."""
    encoder, layout, total = split.encoder, split.encoder.layout, split.num_records
    task = {
        "dataset": [str(part.folder.resolve()) for part in split.dataset.parts],
        "split": split.name,
        "game": encoder.game.spec,
        "paradigm": layout.paradigm,
        "horizon": layout.horizon,
        "num_value_bins": layout.num_value_bins,
        "viewer": encoder.viewer,
        "choices": encoder.choices,
        "columns": encoder.columns,
        "limit": split.limit,
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
            report = scratch / f"error-{index}.txt"
            raise DatasetError(
                report.read_text() if report.exists() else f"a process that encodes windows ended with status {status}"
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
        how = {key: task[key] for key in ("viewer", "choices", "columns")}
        encoder = WindowEncoder(game, layout, scale=dataset.centipawn_scale, **how)
        split = _Split(dataset, task["split"], encoder, task["limit"])
        for i, chunk in enumerate(_chunks(split, task["worker"], task["workers"])):
            number = task["worker"] + i * task["workers"]
            unfinished = scratch / f"unfinished-{number}.npz"
            with unfinished.open("wb") as file:
                arrays: dict[str, Any] = {**encoder.encode(chunk), "num_records": np.array(len(chunk))}
                np.savez(file, **arrays)
            unfinished.rename(scratch / f"part-{number}.npz")
    except (ValueError, OSError) as error:
        (scratch / f"error-{task['worker']}.txt").write_text(str(error))
        raise SystemExit(1) from error


def _is_whole(folder: Path) -> bool:
    """Whether a cache is as it was written; where a byte differs it is deleted."""
    try:
        meta = json.loads((folder / META_FILE).read_text())
        for name, facts in meta["arrays"].items():
            if _checksum(folder / f"{name}.bin") != facts["crc32"]:
                raise ValueError(f"{name}.bin differs from what was written")
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s: damaged cache of windows (%s); it is rebuilt", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return False
    return True


def _checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc


def _put(building: Path, final: Path) -> None:
    """Rename a finished cache to its place, unless another process was faster."""
    try:
        building.rename(final)
    except OSError:
        if not (final / META_FILE).is_file():
            raise


def _user_caches() -> Iterator[Path]:
    base = os.environ.get("XDG_CACHE_HOME")
    yield (Path(base) if base else Path.home() / ".cache") / "genpolicy" / "windows"
    yield Path(tempfile.gettempdir()) / "genpolicy-windows"


def _writable(homes: list[Path]) -> Path:
    """The first of some folders that can be written to; leftovers of killed builds are deleted from it."""
    refused: list[str] = []
    for home in homes:
        try:
            home.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=home):
                pass
        except OSError as error:
            refused.append(f"{home} ({error.strerror})")
            continue
        for left in home.glob(f"{_BUILDING}{socket.gethostname()}-*"):
            pid = left.name.rsplit("-", 2)[1]
            if pid.isdigit() and not _alive(int(pid)):
                shutil.rmtree(left, ignore_errors=True)
        return home
    raise DatasetError(f"no folder for the cache of windows can be written to: {', '.join(refused)}; set cache_dir")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _has_move_values(dataset: Dataset, split: str) -> bool:
    columns = (batch.column("move_values") for batch in dataset.batches(["move_values"], split))
    return any(column.null_count < len(column) for column in columns)


def _check_game(dataset: Dataset, game: Game[Any]) -> None:
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
