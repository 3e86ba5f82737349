"""One process at a time in a folder. The locks of network file systems are not reliable (sqlite.org/wal.html)."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import filelock

from genpolicy.errors import LockedError
from genpolicy.files import full_disk_named, read_json

LOCK_FILE, HOLDER_FILE = ".lock", ".lock.json"


class FolderLock:
    """Holds a folder for this process until ``release``; a context manager.

    The system frees the folder when the process ends, however it ends. ``.lock.json`` says who holds it.

    Args:
        folder: An existing folder.
        work: What a process does there, for the message: ``"writes a data set"``.
        way_out: What a user can do instead of waiting, for the message: ``"choose another folder"``.
        wait: Wait until the folder is free instead of raising.

    Raises:
        LockedError: another process holds it; the message says which one.
        DiskFullError: no space.
        OSError: the folder cannot be written to.
    """

    def __init__(self, folder: Path, work: str, way_out: str, *, wait: bool = False) -> None:
        self._folder, self._holder = folder, folder / HOLDER_FILE
        self._ours = json.dumps(_this_process())
        self._lock = filelock.FileLock(folder / LOCK_FILE, thread_local=False)
        with full_disk_named(folder / LOCK_FILE):
            try:
                self._lock.acquire(timeout=-1 if wait else 0)
            except filelock.Timeout:
                raise LockedError(
                    f"{folder}: another process {work} there{self._read_holder()}; wait for it, end it, or {way_out}"
                ) from None
            try:
                self._holder.unlink(missing_ok=True)  # of whoever was killed; or a pipe, which would wait for a reader
                self._holder.write_text(self._ours, encoding="utf-8")
            except BaseException:
                self._lock.release()
                raise

    def release(self, *, remove: bool = False) -> None:
        """Let other processes in, and delete the lock file if ``remove``; safe to call twice."""
        if self._lock.is_locked:
            if self._is_ours():
                self._holder.unlink(missing_ok=True)
            if remove and os.name == "posix":  # Windows deletes it on release, and refuses before
                Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()

    def require(self) -> None:
        """Check that this process still holds the folder; to be called before what another process must not see half.

        Raises:
            LockedError: the lock was lost, as network file systems do without a word, or with the folder itself.
        """
        if not self._folder.is_dir():
            raise LockedError(
                f"{self._folder}: was deleted or moved while this command wrote there; what was kept is where the "
                "folder is now: put it back, and run the same command again"
            )
        if not self._is_ours():
            raise LockedError(
                f"{self._folder}: its lock was lost, and another process may write there{self._read_holder()}; is it "
                "on a network file system? What was kept is safe: end the other process, or move the folder to a local "
                "disk, and run the same command again"
            )

    def _is_ours(self) -> bool:
        with suppress(OSError):
            return self._holder.read_text(encoding="utf-8") == self._ours
        return False

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _read_holder(self) -> str:
        """Who holds the folder, in brackets; "" if the holder has not written it yet."""
        try:
            holder = read_json(self._holder)
            return f" (process {holder['pid']} on {holder['host']} since {holder['since']}: {holder['command']})"
        except (OSError, ValueError, KeyError, TypeError):
            return ""


def _this_process() -> dict[str, Any]:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    about = {"pid": os.getpid(), "host": platform.node(), "since": since, "command": command[:200]}
    return {**about, "word": secrets.token_hex(8)}  # a process may hold a folder twice, where a lock was lost
