"""Caches: folders of arrays on the disk that are made from a data set once, and checked before they are used.

A cache is built under another name and renamed, so it is whole or absent; one that is damaged later is built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import filelock
import numpy as np
from numpy.typing import NDArray

from genpolicy.data.records import Dataset
from genpolicy.data.window_cache import META_FILE
from genpolicy.data.window_encoder import Arrays
from genpolicy.errors import DatasetError
from genpolicy.files import full_disk_named, read_json, refuse_pipe
from genpolicy.folder_lock import LOCK_FILE

_BUILDING = "building-"
_CHUNK = 1 << 22
_log = logging.getLogger(__name__)


def cached(
    dataset: Dataset,
    identity: Mapping[str, Any],
    write: Callable[[Path], Mapping[str, Any]],
    cache_dir: Path | None = None,
) -> Path:
    """The folder of the arrays that an identity names, which are written unless they exist and are whole.

    Args:
        dataset: What they are made from; its folder is the usual place.
        identity: All that decides their content, as JSON can hold it.
        write: Fills a new folder with arrays and returns their facts (``ArrayFiles.close``).
        cache_dir: Folder for the cache; None puts it beside the data set, or in the user's cache where that is
            read-only or shipped.

    Raises:
        DatasetError: no folder can be written to, or the disk damaged what was written; or as ``write``.
        DiskFullError: no space.
    """
    identity = json.loads(json.dumps(identity))  # as a file gives it back: tuples are lists
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    beside, shared = [dataset.folder / ".cache"], list(_user_caches())
    # Nothing is written into an installed package as long as there is another place.
    homes = shared + beside if dataset.name.startswith("sample:") else beside + shared
    homes = homes if cache_dir is None else [cache_dir]
    for home in homes:
        # Unlike Path.exists, it says no within a cache that another user keeps private.
        if os.path.exists(home / name) and (not _damage(home / name, identity) or _mended(home / name, identity)):
            return home / name
    home = _writable(homes)
    building = home / f"{_BUILDING}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        with full_disk_named(building):
            building.mkdir()
            arrays = write(building)
            meta = {**identity, "arrays": arrays, "crc32": _checksum_of_facts(arrays)}
            (building / META_FILE).write_text(json.dumps(meta, indent=1) + "\n", "utf-8")
            _put(building, home / name)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if damage := _damage(home / name, identity):
        raise DatasetError(f"{home / name}: the cache was damaged while it was built ({damage}); check the disk")
    return home / name


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


def _damage(folder: Path, identity: Mapping[str, Any]) -> str:
    """What differs in a cache from what was written, or from an identity; "" where nothing does."""
    try:
        refuse_pipe(folder / META_FILE)
        meta = read_json(folder / META_FILE)
        arrays, crc32 = meta.pop("arrays"), meta.pop("crc32", None)
        if meta != identity:
            return f"{META_FILE} is of another cache"
        if crc32 not in (None, _checksum_of_facts(arrays)):  # caches from before there was one stay valid
            return f"{META_FILE} differs from what was written"
        for name, facts in arrays.items():
            if _checksum(folder / f"{name}.bin") != facts["crc32"]:
                return f"{name}.bin differs from what was written"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return str(error) or type(error).__name__
    return ""


def _mended(folder: Path, identity: Mapping[str, Any]) -> bool:
    """Delete a damaged cache, unless another process has built it again meanwhile: whether it has."""
    with suppress(OSError, NotImplementedError), filelock.FileLock(folder.parent / LOCK_FILE):
        # One process at a time: none deletes what another has just built and is about to read.
        if not (damage := _damage(folder, identity)):
            return True
        _log.warning("%s: damaged window cache (%s); rebuilding it", folder, damage)
        shutil.rmtree(folder, ignore_errors=True)
    return False


def _checksum_of_facts(arrays: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(arrays).encode())


def _checksum(path: Path) -> int:
    crc = 0
    refuse_pipe(path)
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
    raise DatasetError(f"no folder for the window cache can be written to: {', '.join(refused)}; set cache_dir")


def _alive(pid: int) -> bool:
    try:
        if sys.platform != "win32":  # which cannot be asked: there, signal 0 is Ctrl-C
            os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
