"""A file that entries are appended to, a line of JSON with its checksum each, and that survives a kill at any moment.

An entry is with the system when ``append`` returns, so a killed process loses none. The disk is told to keep them every
``SYNC_S`` seconds: so much a power cut may cost. A last line that was torn by either is dropped when the file is opened
again; the checksum tells damage in any other line.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from genpolicy.errors import DatasetError
from genpolicy.files import full_disk_named, write_atomic

SYNC_S = 2.0


class Journal:
    """An open journal. Read it with ``entries`` before anything is appended.

    Args:
        path: The file; made where there is none.

    Raises:
        DiskFullError: no space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with full_disk_named(path):
            self._file: IO[bytes] = path.open("ab", buffering=0)
        self._synced = time.monotonic()

    def entries(self) -> Iterator[tuple[int, Any]]:
        """Number of the line, from 1, and entry; a torn last line is cut off.

        Raises:
            DatasetError: a damaged line that is not the last one.
        """
        whole = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                entry = _read(line)
                if entry is None:
                    if file.read(1):
                        raise damaged(self.path, number, "its checksum is wrong")
                    break
                whole += len(line)
                yield number, entry
        self._file.truncate(whole)

    def append(self, entry: Any) -> None:
        """Add an entry, all of it or nothing.

        Raises:
            DiskFullError: no space; what was added before is safe.
        """
        data = _line(entry)
        with full_disk_named(self.path):
            start = self._file.seek(0, os.SEEK_END)
            try:
                written = self._file.write(data)
                while written < len(data):  # the disk is full, or nearly: the next write says which
                    written += self._file.write(data[written:])
            except OSError:
                self._file.truncate(start)
                raise
            if time.monotonic() - self._synced > SYNC_S:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def rewrite(self, entries: Iterable[Any]) -> None:
        """Hold these entries and no others, at once.

        Raises:
            DiskFullError: no space; the old entries stay.
        """
        write_atomic(self.path, b"".join(map(_line, entries)))
        self._file.close()
        self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()


def damaged(path: Path, number: int, what: object) -> DatasetError:
    """What to say of a line that cannot be read."""
    return DatasetError(f"{path}:{number}: damaged journal entry ({what}); delete the line to have its work done again")


def _line(entry: Any) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b'{"crc32":"%08x","entry":%s}\n' % (zlib.crc32(text), text)


_HEAD, _TAIL = len(b'{"crc32":"01234567","entry":'), len(b"}\n")


def _read(line: bytes) -> Any:
    """The entry of a line; None where it is not as it was written."""
    text = line[_HEAD:-_TAIL]
    if line != b'{"crc32":"%08x","entry":%s}\n' % (zlib.crc32(text), text):
        return None
    return json.loads(text)
