"""Reads the memory-mapped cache of encoded windows, which ``genpolicy.data.window_build`` writes.

A cache is a folder of plain arrays, one file each, and ``meta.json``, which names their types, shapes and CRC-32.

Axes: R windows, E choices, B batch.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.files import read_json

META_FILE = "meta.json"
UNKNOWN, HELD_OUT = -1, -2
"""In ``next``: no record of the position at all; a record of another split only."""
_SMALL_BYTES = 1 << 23
_ROWS_AT_ONCE = 256


class WindowCache:
    """Read-only arrays of a whole cache (``build_cache``); what was read of them goes back to the system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        arrays = read_json(folder / META_FILE)["arrays"]
        self._columns = {name: _Column(folder / f"{name}.bin", facts) for name, facts in arrays.items()}
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

    def span(self, name: str, windows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[B] where the entries of some windows begin (``name``: an array [R + 1] of starts) and how many they are."""
        start = self.gather(name, windows)
        return start, self.gather(name, windows + 1) - start

    def entries(self, name: str, windows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All entries of some windows, one window after the other: each one's row among them, and the entries."""
        first, count = self.span(name, windows)
        row = np.repeat(np.arange(len(windows)), count)
        return row, np.repeat(first - (np.cumsum(count) - count), count) + np.arange(len(row))

    def children(self, choices: NDArray[np.int64], viewers: NDArray[np.int64]) -> NDArray[Any]:
        """[B, L] tokens of the positions after some choices, each seen by its viewer."""
        rows = self._columns["child"]
        return rows.gather(choices, viewers % rows.shape[1])  # the only viewer, or the one of two


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

    def gather(self, *indices: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by their index along the first axis, or along the first two."""
        if self._map is None or self._rows.nbytes < _SMALL_BYTES or not hasattr(self._map, "madvise"):
            return np.asarray(self._rows[indices])
        rows = np.empty((len(indices[0]), *self.shape[len(indices) :]), self._rows.dtype)
        # A system maps many pages around the one that is read, so even a batch of rows can touch all of a file.
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            rows[part] = self._rows[tuple(each[part] for each in indices)]
            self._map.madvise(mmap.MADV_DONTNEED)
        return rows
