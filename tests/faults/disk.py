"""A disk that fails at the n-th operation of this process below one folder.

An operation is an open for writing, a write, a sync, a rename, a removal or a new folder, as Python does it; what
SQLite does by itself is not counted. ``FAULTS``, at operation n:

- ``kill``: SIGKILL before it; ``torn``: half of a write is done first.
- ``full``: no space from there on; ``broken``: an input/output error, once.
- ``cut``: a power cut. What was not synced is lost: data that no fsync of its file was made of, names that no fsync of
  their folder, or of the new file itself, was made of. ``cut-names``: the names arrived, the data did not.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

FAULTS = ("kill", "torn", "full", "broken", "cut", "cut-names")
EVENTS = {"os.rename": "rename", "os.remove": "remove", "os.mkdir": "mkdir", "os.rmdir": "rmdir"}
_open, _fsync = io.open, os.fsync


class Disk:
    """The disk below a folder; one a process, since what it hooks into stays hooked.

    Args:
        root: Operations elsewhere are not counted.
        fault: One of ``FAULTS``; None counts only.
        at: Number of the operation at which it fails, from 1.
        shadow: Where the disk's content after a power cut is put, before the process is killed.
    """

    def __init__(self, root: Path, fault: str | None, at: int, shadow: Path) -> None:
        self.root, self.fault, self.at, self.shadow = str(root), fault, at, shadow
        self.count = 0
        self.data: dict[int, bytes] = {}
        """Synced content of files by inode."""
        self.names: dict[int, dict[str, tuple[int, bool]]] = {}
        """Synced names of folders by inode: the inode of each, and whether it is a folder."""
        self.cuts = fault in ("cut", "cut-names")
        if self.cuts:
            for folder, _, files in os.walk(root):
                self._sync_folder(folder)
                for file in files:
                    self._sync_file(os.path.join(folder, file))
        io.open = builtins.open = self._open  # type: ignore[assignment]
        os.fsync = self._synced  # type: ignore[assignment]
        sys.addaudithook(self._hear)

    def meet(self, kind: str, path: Any, raw: Any = None, data: Any = b"") -> None:
        """Count an operation; the fault, where its turn has come."""
        self.count += 1
        if self.fault is None or self.count < self.at or (self.count > self.at and self.fault != "full"):
            return
        if self.fault == "full":
            if kind in ("open", "write", "mkdir"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        elif self.fault == "broken":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        else:
            if self.fault == "torn" and kind == "write":
                io.FileIO.write(raw, memoryview(data)[: len(data) // 2])
            self._die()

    def _die(self) -> NoReturn:
        if self.cuts:
            self.names_arrived, self.fault = self.fault == "cut-names", None
            self.places = {os.stat(folder).st_ino: folder for folder, _, _ in os.walk(self.root)}
            self._restore(os.stat(self.root).st_ino, self.shadow)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def _inside(self, path: Any) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and os.path.abspath(os.fsdecode(path)).startswith(self.root)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        kind = EVENTS.get(event)
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            kind = "open"
        if kind is not None and self._inside(arguments[0]) and not _is_base(os.fsdecode(arguments[0])):
            self.meet(kind, arguments[0])
            if self.cuts and kind in ("remove", "rmdir", "rename"):
                self._hold(arguments[1 if kind == "rename" else 0], arguments[-1])

    def _hold(self, path: Any, folder: int) -> None:
        """Keep what goes open, so that its inode, by which it is known, is not given to another file."""
        with contextlib.suppress(OSError):
            os.open(path, os.O_RDONLY, dir_fd=None if folder < 0 else folder)

    def _open(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **more: Any) -> Any:
        if not set(mode) & set("wax+") or not self._inside(file):
            return _open(file, mode, buffering, *args, **more)
        raw = _Raw(self, file, mode.replace("b", "").replace("t", ""))
        buffer: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffer
        return io.TextIOWrapper(buffer, *args, line_buffering=buffering == 1, **more)

    def _synced(self, file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        path = os.readlink(f"/proc/self/fd/{number}")
        if self._inside(path):
            self.meet("sync", path)
            if os.path.isdir(path):
                self._sync_folder(path)
            else:
                self._sync_file(path)
        _fsync(number)

    def _sync_folder(self, path: str) -> None:
        self.names[os.stat(path).st_ino] = _listing(path)
        self._sync_name(path)

    def _sync_file(self, path: str) -> None:
        with _open(path, "rb") as file:
            self.data[os.stat(path).st_ino] = file.read()
        self._sync_name(path)

    def _sync_name(self, path: str) -> None:
        """A synced file can be found: its own name and those of the folders above it are synced, too."""
        while path != self.root:
            above, name = os.path.split(path)
            self.names.setdefault(os.stat(above).st_ino, {})[name] = os.stat(path).st_ino, os.path.isdir(path)
            path = above

    def _restore(self, folder: int, to: Path) -> None:
        """Write what the disk has of a folder."""
        to.mkdir(parents=True)
        place = self.places.get(folder)
        now = {} if place is None else _listing(place)
        kept = now if self.names_arrived and place is not None else self.names.get(folder, {})
        for name, (inode, is_folder) in kept.items():
            if is_folder:
                self._restore(inode, to / name)
            elif not _is_base(name):
                (to / name).write_bytes(self.data.get(inode, b""))
        for name in filter(_is_base, now):
            (to / name).write_bytes(Path(str(place), name).read_bytes())


def _listing(path: str) -> dict[str, tuple[int, bool]]:
    with os.scandir(path) as entries:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}


class _Raw(io.FileIO):
    """A file whose writes are operations."""

    def __init__(self, disk: Disk, file: Any, mode: str) -> None:
        super().__init__(file, mode)
        self._disk = disk

    def write(self, data: Any) -> int:
        self._disk.meet("write", self.name, self, data)
        return super().write(data) or 0


def _is_base(path: str) -> bool:
    """Whether a file is of SQLite or of a lock, which have their own way to the disk."""
    return ".sqlite" in os.path.basename(path) or ".lock" in os.path.basename(path)
