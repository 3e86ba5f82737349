"""Files: written whole or not at all, checked by checksum, unpacked, and read as rows."""

from __future__ import annotations

import csv
import errno
import glob
import hashlib
import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from genpolicy.errors import SourceError

if TYPE_CHECKING:
    import zstandard

PACKED_CHUNK_BYTES = 1 << 12  # small, since a chunk of packed bytes can unpack to thousands of times its size
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a disk without space."""
OnBad = Callable[[SourceError], None]
"""Called with the error of each bad entry of a file, which is then skipped."""
FileT = TypeVar("FileT")
EntryT = TypeVar("EntryT")
MAX_LINE_BREAKS = 50
"""Line breaks that a row may hold, so that one unclosed quote does not swallow the rest of a file."""


class DiskFullError(OSError):
    """The disk or the user's quota is full; finished work is safe."""


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turn "no space left" into an error that names the file and the way out; other errors get the file's name.

    Raises:
        DiskFullError: the block ran out of space.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(path, error.errno) from error
        if error.filename is None:  # the system tells none where the file was open already
            error.filename = str(path)
        raise


def disk_full(path: Path, number: int = errno.ENOSPC) -> DiskFullError:
    """The error of a full disk, with the way out."""
    text = "no space left on the disk; what was saved is safe: free some space and run the same command again"
    return DiskFullError(number, text, str(path))


def read_json(path: Path) -> Any:
    """What a file of JSON holds.

    Raises:
        ValueError: it is not JSON, or too deeply nested.
        OSError: it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("too deeply nested") from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that after a crash at any moment it is the old one or the new one.

    Raises:
        DiskFullError: no space; the old file stays.
    """
    temporary = temporary_of(path)
    with full_disk_named(path):
        try:
            write_durably(temporary, data)
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def temporary_of(path: Path) -> Path:
    """What ``write_atomic`` leaves beside a file when it is killed."""
    return path.with_name(f".{path.name}.tmp")


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, on systems that can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_pipe(path: Path) -> None:
    """Raise a ValueError where a pipe is in a file's place: opening it would wait for somebody who writes."""
    if path.is_fifo():
        raise ValueError("it is a pipe, not a file")


def read_at_most(path: Path, max_bytes: int) -> bytes:
    """The content of a file; a ValueError where it has more bytes, and then no more than these are read."""
    refuse_pipe(path)
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return data


def sha256_of(path: Path) -> str:
    """SHA-256 of a file as hexadecimal text, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(path: Path) -> list[Path]:
    """The files that a path stands for, in name order: itself, or those of a folder with its subfolders or of a glob.

    Hidden files of a folder are left out.
    """
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    return sorted(filter(Path.is_file, map(Path, glob.glob(str(path), recursive=True))))


class ZstandardReader(io.RawIOBase):
    """Unpacks a Zstandard file of one or more frames; unlike the library's stream reader, it notices a cut one.

    Raises:
        EOFError: while reading, if the file ends within a frame.
        zstandard.ZstdError: while reading, if it is damaged.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._pending = memoryview(b"")
        self._unread = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as one packed chunk reaches; the number of bytes, 0 at the end."""
        import zstandard  # few commands unpack anything

        while not self._pending:
            data = self._unread or self._packed.read(PACKED_CHUNK_BYTES)
            if not data:
                if self._frame is not None:
                    raise EOFError("the compressed data ends within a frame")
                return 0
            # --long archives have windows of up to 2 GiB; smaller files are not charged for it.
            frame = self._frame or zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
            self._pending = memoryview(frame.decompress(data))
            self._unread = frame.unused_data if frame.eof else b""
            self._frame = None if frame.eof else frame
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def close(self) -> None:
        """Close the packed file, too."""
        self._packed.close()
        super().close()


def csv_rows(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    r"""Rows of a comma-separated file, whose quoted fields may hold line breaks (RFC 4180, section 2.6).

    A line whose quotes stay open is joined with those that follow until they are closed. If the joined lines are not a
    row, the first line is yielded alone, broken as it is, and the others are read as rows of their own.

    Args:
        lines: Number and text of each line, without its end.

    Yields:
        Number of the row's first line, and the row's text with ``\n`` for the line breaks within it.
    """
    source = iter(lines)
    waiting: deque[tuple[int, str]] = deque()

    def following() -> tuple[int, str] | None:
        return waiting.popleft() if waiting else next(source, None)

    while (entry := following()) is not None:
        number, text = entry
        joined: list[tuple[int, str]] = []
        row = text
        while row.count('"') % 2 and len(joined) < MAX_LINE_BREAKS and (entry := following()) is not None:
            joined.append(entry)
            row += "\n" + entry[1]
        if joined and not _is_row(row):
            waiting.extendleft(reversed(joined))
            row = text
        yield number, row


def _is_row(text: str) -> bool:
    try:
        return len(list(csv.reader([text], strict=True))) == 1
    except csv.Error:  # an open quote at the end, or a line break outside quotes
        return False


def refuse(error: SourceError, on_bad: OnBad | None, cause: BaseException | None = None) -> None:
    """Call ``on_bad`` with the error of a bad entry, whose reader goes on with the next; None raises it.

    Raises:
        SourceError: ``error``, from ``cause``; what ``on_bad`` raises.
    """
    if on_bad is None:
        raise error from cause
    on_bad(error)


def entries_of(
    files: Sequence[FileT], read: Callable[[FileT, OnBad | None], Iterator[EntryT]], on_bad: OnBad | None
) -> Iterator[EntryT]:
    """The entries of some files, one file after the other.

    Args:
        files: The files.
        read: Reads one, from the file and from what is called with the error of each bad entry.
        on_bad: What to call then. One of several files that holds nothing, or cannot be read any further, counts as one
            bad entry.

    Raises:
        SourceError: as ``read``; what ``on_bad`` raises.
    """
    refused = False  # on_bad is not called with the error that it raised itself

    def count(error: SourceError) -> None:
        nonlocal refused
        assert on_bad is not None
        refused = True
        on_bad(error)
        refused = False

    for file in files:
        try:
            yield from read(file, None if on_bad is None else count)
        except SourceError as error:
            if on_bad is None or len(files) == 1 or refused:
                raise
            on_bad(error)
