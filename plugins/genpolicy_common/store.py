"""Work that survives a kill at any moment.

An entry of a store is with the operating system when ``put`` returns, so a killed process loses none. The disk is told
to keep what was put every ``SYNC_S`` seconds: so much a power cut may cost, and it leaves the file whole. Both need a
local disk: SQLite's write-ahead log and file locks are not reliable on network file systems (sqlite.org/wal.html).
"""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import genpolicy
from genpolicy.errors import LockedError
from genpolicy.files import disk_full

FORM = 1
"""Form of the tables and of what genpolicy keeps in them (``PRAGMA user_version``)."""
APPLICATION_ID = 0x67706F6C
"""``gpol`` (``PRAGMA application_id``): tells a store from other programs' SQLite files."""
SYNC_S = 2.0
BUSY_S = 30.0
"""How long a write waits for another process's write."""
MAX_LOG_PAGES = 1024
"""The write-ahead log is written back at so many pages (4 MiB) even within ``SYNC_S``."""

_TABLES = (
    "CREATE TABLE about (purpose TEXT NOT NULL, genpolicy TEXT NOT NULL)",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, value NOT NULL, "
    "crc32 INTEGER NOT NULL, UNIQUE (name, key))",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORM}",
)
_PUT = (
    "INSERT INTO entries (name, key, value, crc32) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (name, key) DO UPDATE SET value = excluded.value, crc32 = excluded.crc32"
)
_IO_ERRORS = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_NOT_WRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class StoreError(ValueError):
    """A store of unfinished work is damaged, of another form, or holds something else."""


class Store:
    """Entries by table and key in one SQLite file; a context manager.

    One thread at a time may use it. Other processes may open the same file; a write waits for theirs.

    Args:
        path: The file; created if it is missing. SQLite keeps two more beside it while it is open.
        purpose: What the entries are for, in a few words; a file that was made for something else is refused.

    Raises:
        StoreError: the file is damaged, made for something else, or of an older or newer form.
        LockedError: another process writes there and does not end.
        DiskFullError: no space.
        OSError: the file or its folder cannot be written to.
    """

    def __init__(self, path: Path, purpose: str) -> None:
        self.path, self.purpose = path, purpose
        self._synced = time.monotonic()
        with self._errors_named():
            self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    def put(self, table: str, key: str, value: Any) -> None:
        """Add an entry, or replace the one of the same key; all of it or nothing.

        Args:
            table: Name of the table.
            key: Name of the entry in the table.
            value: Bytes, or anything JSON can hold.

        Raises:
            DiskFullError: no space; what was put before is safe.
            LockedError: another process writes and does not end.
        """
        data = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":"))
        with self._errors_named():
            self._db.execute(_PUT, (table, key, data, _crc32(table, key, data)))
            self._sync()

    def get(self, table: str, key: str, default: Any = None) -> Any:
        """The value of a key, or the default.

        Raises:
            StoreError: the entry is damaged.
        """
        rows = self._rows("SELECT key, value, crc32 FROM entries WHERE name = ? AND key = ?", table, key)
        return next(rows, (key, default))[1]

    def items(self, table: str) -> Iterator[tuple[str, Any]]:
        """Key and value of every entry of a table, in the order in which the keys were first put.

        Raises:
            StoreError: an entry is damaged.
        """
        return self._rows("SELECT key, value, crc32 FROM entries WHERE name = ? ORDER BY number", table)

    def keys(self, table: str) -> list[str]:
        """The keys of a table, in the same order."""
        with self._errors_named():
            rows = self._db.execute("SELECT key FROM entries WHERE name = ? ORDER BY number", (table,))
            return [key for (key,) in rows]

    def delete(self, table: str, keys: Iterable[str]) -> None:
        """Take entries out of a table, all of them or none; unknown keys are passed over.

        Raises:
            DiskFullError, LockedError: as ``put``.
        """
        with self.transaction():
            self._db.executemany("DELETE FROM entries WHERE name = ? AND key = ?", ((table, key) for key in keys))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes of the block at once, or none of them if it raises or the process is killed.

        Raises:
            DiskFullError, LockedError: as ``put``.
        """
        if self._db.in_transaction:
            yield
            return
        with self._errors_named():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._sync()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> None:
        """Check what the file is before anything is written to it, then create its tables if there are none."""
        if not self._is_empty():
            self._check_form()
        self._use_write_ahead_log()
        # With the write-ahead log, NORMAL keeps the file whole through a power cut, and no commit waits for the disk.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {MAX_LOG_PAGES}")
        with self.transaction():  # which also shows whether the file can be written to
            if self._is_empty():
                for statement in _TABLES:
                    self._db.execute(statement)
                self._db.execute("INSERT INTO about VALUES (?, ?)", (self.purpose, genpolicy.__version__))
        self._check_form()
        (report,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        if report != "ok":
            raise self._damaged(report)

    def _use_write_ahead_log(self) -> None:
        """Switch the log on. SQLite does not wait for another process that is doing the same, so this does."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _is_empty(self) -> bool:
        return bool(self._db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,))

    def _check_form(self) -> None:
        if self._db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            raise StoreError(f"{self.path}: an SQLite file of another program; choose another folder")
        (form,) = self._db.execute("PRAGMA user_version").fetchone()
        purpose, version = self._db.execute("SELECT purpose, genpolicy FROM about").fetchone() or ("", "")
        if form != FORM:
            way_out = "update genpolicy" if form > FORM else f"finish it with genpolicy {version}, or start anew"
            raise StoreError(
                f"{self.path}: is of {'a newer' if form > FORM else 'an older'} form ({form}, by genpolicy {version}) "
                f"than genpolicy {genpolicy.__version__} reads ({FORM}); {way_out}"
            )
        if purpose != self.purpose:
            raise StoreError(f"{self.path}: holds {purpose!r}, not {self.purpose!r}; choose another folder")

    def _rows(self, query: str, table: str, *key: str) -> Iterator[tuple[str, Any]]:
        with self._errors_named():
            rows = self._db.execute(query, (table, *key)).fetchall()
        for found, data, crc32 in rows:
            if not isinstance(data, str | bytes) or _crc32(table, found, data) != crc32:
                raise self._damaged(f"the checksum of {table} {found!r} is wrong")
            try:
                yield found, data if isinstance(data, bytes) else json.loads(data)
            except (ValueError, RecursionError) as error:
                raise self._damaged(f"{table} {found!r}: {error}") from error

    def _sync(self) -> None:
        """Write the log back into the file, which waits for the disk, once in ``SYNC_S``."""
        if not self._db.in_transaction and time.monotonic() - self._synced > SYNC_S:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._synced = time.monotonic()

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Turn SQLite's errors into ones that name the file and the way out."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a mistake in a program, as is the use of a closed store
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # text that is not UTF-8 has none
            if code == sqlite3.SQLITE_FULL or (code in _IO_ERRORS and _is_full(self.path.parent)):
                raise disk_full(self.path) from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LockedError(f"{self.path}: another process writes there; wait for it, or end it") from error
            if code in _NOT_WRITABLE:
                text = f"cannot be written to ({error}); choose another folder"
                raise PermissionError(errno.EACCES, text, str(self.path)) from error
            if code == sqlite3.SQLITE_IOERR:
                text = (
                    f"{error} (a limit on the size of files, ulimit -f, is another reason); finished records are safe"
                )
                raise OSError(
                    errno.EIO, f"{text}: see to the disk and run the same command again", str(self.path)
                ) from error
            raise self._damaged(error) from error

    def _damaged(self, what: object) -> StoreError:
        return StoreError(
            f"{self.path}: damaged ({what}); delete it to have its work done again, or save what is readable with "
            "sqlite3's command .recover"
        )


def remove_store(path: Path) -> None:
    """Delete a store that is not open, and what SQLite keeps beside it after a kill."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _is_full(folder: Path) -> bool:
    """Whether a disk has no room for SQLite's own small files, for which SQLite reports another error than "full"."""
    return folder.is_dir() and shutil.disk_usage(folder).free < 1 << 16


def _crc32(table: str, key: str, data: str | bytes) -> int:
    """Checksum of an entry, including whether its value is text or bytes."""
    head, body = ("json", data.encode()) if isinstance(data, str) else ("bytes", data)
    return zlib.crc32(body, zlib.crc32(f"{table}\0{key}\0{head}\0".encode()))
