"""The memory-mapped cache of encoded windows: built once for a data set, layout and viewer, checked when it is opened.

A cache is a folder of plain arrays, one file each, and ``meta.json``, which names their types, shapes and CRC-32. It is
built under another name and renamed, so it is whole or absent; one that was damaged later is built anew.

Axes: R windows, E choices, B batch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import shutil
import socket
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.data.records import Dataset
from genpolicy.data.window_build import ArrayFiles, encode_split, held_out_keys, key_sample
from genpolicy.data.window_encoder import Arrays, Viewer, WindowEncoder
from genpolicy.errors import DatasetError, RegistryError
from genpolicy.files import full_disk_named
from genpolicy.game import Game
from genpolicy.sequence import Layout

VERSION = 1
"""Raised when the cache's content changes for the same inputs."""
UNKNOWN, HELD_OUT = -1, -2
"""In ``next``: no record of the position at all; a record of another split only."""
_META = "meta.json"
_BUILDING = "building-"
_SMALL_BYTES = 1 << 23
_ROWS_AT_ONCE = 256
_CHUNK = 1 << 22
_log = logging.getLogger(__name__)


class WindowCache:
    """Read-only arrays on the disk, whose pages are handed back to the system as they are read."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder = folder
        self._columns = {name: _Column(folder / f"{name}.bin", facts) for name, facts in meta["arrays"].items()}
        self.has_choices = "move" in self._columns
        """Whether every window has its tied best moves (else only its own line)."""

    def __len__(self) -> int:
        return len(self._columns["tokens"])

    def gather(self, name: str, indices: NDArray[np.int64]) -> NDArray[Any]:
        """[B, ...] rows of an array."""
        return self._columns[name].gather(indices)

    def array(self, name: str) -> NDArray[Any]:
        """A whole (small) array, copied."""
        return self._columns[name].gather(np.arange(len(self._columns[name])))

    def choices_of(self, windows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[B] index of a window's first choice, and how many it has (at least 1)."""
        start = self.gather("starts", windows)
        return start, self.gather("starts", windows + 1) - start

    def children(self, choices: NDArray[np.int64], viewers: NDArray[np.int64]) -> NDArray[Any]:
        """[B, L] tokens of the positions after some choices, each seen by its viewer."""
        rows = self._columns["child"]
        return rows.gather(choices, viewers if rows.shape[1] > 1 else np.zeros_like(viewers))


class _Column:
    """One array file. A large one is read some rows at a time and its pages dropped, so memory does not grow."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.shape = tuple(facts["shape"])
        self._map: mmap.mmap | None = None
        dtype = np.dtype(facts["dtype"])
        self._rows = np.empty(self.shape, dtype)
        if self._rows.size:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._rows = np.frombuffer(self._map, dtype).reshape(self.shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def gather(self, indices: NDArray[np.int64], second: NDArray[np.int64] | None = None) -> NDArray[Any]:
        if self._map is None or self._rows.nbytes < _SMALL_BYTES or not hasattr(self._map, "madvise"):
            return self._read(indices, second)
        inner = self.shape[1:] if second is None else self.shape[2:]
        rows = np.empty((len(indices), *inner), self._rows.dtype)
        # A system maps many pages around the one that is read, so even a batch of rows can touch all of a file.
        for start in range(0, len(indices), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            rows[part] = self._read(indices[part], None if second is None else second[part])
            self._map.madvise(mmap.MADV_DONTNEED)
        return rows

    def _read(self, indices: NDArray[np.int64], second: NDArray[np.int64] | None) -> NDArray[Any]:
        found: NDArray[Any] = self._rows[indices] if second is None else self._rows[indices, second]
        return found


def open_cache(
    dataset: Dataset,
    split: str,
    game: Game[Any],
    layout: Layout,
    viewer: Viewer,
    *,
    choices: bool,
    symmetries: bool,
    folder: Path | None,
    limit: int | None,
) -> WindowCache:
    """The cache of a split, built first where there is none that is whole.

    Raises:
        DatasetError: of another game, unreadable, a record that the rules refuse, or no labelled record in the split.
        DiskFullError: no space to build it.
    """
    _check_game(dataset, game)
    choices = choices and _has_move_values(dataset, split)
    identity = {
        "version": VERSION,
        "dataset": dataset.checksum,
        "game": game.spec,
        "split": split,
        "layout": layout.fingerprint,
        "viewer": viewer,
        "choices": choices,
        "symmetries": symmetries,
        "limit": limit,
        "centipawn_scale": dataset.centipawn_scale,
    }
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    homes = [folder] if folder is not None else [dataset.folder / ".cache", *_user_caches()]
    for home in homes:
        if (home / name).exists() and (found := _open_whole(home / name)) is not None:
            return found
    home = _writable(homes)
    building = home / f"{_BUILDING}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        with full_disk_named(building):
            building.mkdir()
            encoder = WindowEncoder(game, layout, viewer, choices=choices, scale=dataset.centipawn_scale)
            _build(building, dataset, split, encoder, symmetries=symmetries, limit=limit, identity=identity)
            _put(building, home / name)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    built = _open_whole(home / name)
    if built is None:
        raise DatasetError(f"{home / name}: the cache was damaged while it was built; see to the disk")
    return built


def _build(
    building: Path,
    dataset: Dataset,
    split: str,
    encoder: WindowEncoder,
    *,
    symmetries: bool,
    limit: int | None,
    identity: dict[str, Any],
) -> None:
    """Fill a new folder."""
    files = ArrayFiles(building)
    num_records = encode_split(files, dataset, split, encoder, limit, building)
    if files.length("tokens") == 0:
        what = f"{num_records} records, none of them labelled" if num_records else "no records"
        there = ", ".join(f"{name} {count}" for name, count in dataset.splits.items())
        raise DatasetError(
            f"{dataset.folder}: split {split!r} has {what} (it has: {there}); genpolicy data label makes labels"
        )
    if encoder.by_move:
        files.append({"starts": np.concatenate([[0], np.cumsum(files.read("arms"), dtype=np.int64)])})
    if encoder.choices and not encoder.by_move:
        files.append(_link(files, held_out_keys(dataset, split, encoder)))
    if symmetries:
        files.append({"symmetries": encoder.symmetric_places(key_sample(dataset, split))})
    meta = {**identity, "arrays": files.close()}
    (building / _META).write_text(json.dumps(meta, indent=1) + "\n")


def _link(files: ArrayFiles, held_out: NDArray[np.uint64]) -> Arrays:
    """Where each window's choices start [R + 1], and the window that each choice leads to [E]."""
    keys, children = files.read("keys"), files.read("child_keys")
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys, children, sorter=order), len(keys) - 1)
    candidate = order[place]
    following = np.where(np.isin(children, held_out), HELD_OUT, UNKNOWN)
    following = np.where(keys[candidate] == children, candidate, following)
    starts = np.concatenate([[0], np.cumsum(files.read("counts"), dtype=np.int64)])
    return {"starts": starts, "next": following.astype(np.int64)}


def _open_whole(folder: Path) -> WindowCache | None:
    """The cache of a folder; None (and the folder is gone) where a byte of it differs from what was written."""
    try:
        meta = json.loads((folder / _META).read_text())
        for name, facts in meta["arrays"].items():
            if _checksum(folder / f"{name}.bin") != facts["crc32"]:
                raise ValueError(f"{name}.bin differs from what was written")
        return WindowCache(folder, meta)
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s: damaged cache of windows (%s); it is built anew", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None


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
        if not (final / _META).is_file():
            raise


def _user_caches() -> Iterator[Path]:
    base = os.environ.get("XDG_CACHE_HOME")
    yield (Path(base) if base else Path.home() / ".cache") / "genpolicy" / "windows"
    yield Path(tempfile.gettempdir()) / "genpolicy-windows"


def _writable(homes: list[Path]) -> Path:
    """The first of some folders that can be written to; what killed builds left there is swept out."""
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
    return any(
        batch.column("move_values").null_count < batch.num_rows for batch in dataset.batches(["move_values"], split)
    )


def _check_game(dataset: Dataset, game: Game[Any]) -> None:
    from genpolicy.registry import load_game

    spec = dataset.game_spec
    if spec != game.spec:
        try:
            spec = load_game(spec).spec
        except (ValueError, RegistryError):
            _log.debug("the data set's game %r is not installed", spec)
    if spec != game.spec:
        raise DatasetError(f"{dataset.folder}: records of game {dataset.game_spec!r}, not of {game.spec!r}")
