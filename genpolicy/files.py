"""Files that are whole or absent: atomic writes, checksums, and what a full disk says."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK_BYTES = 1 << 20


class DiskFullError(OSError):
    """The disk or the user's quota is full; what was finished is safe."""


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turn "no space left" into an error that names the file and the way out.

    Raises:
        DiskFullError: the block ran out of space.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        text = "no space left on the disk; finished records are safe: free some space and run the same command again"
        raise DiskFullError(error.errno, text, str(path)) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that after a crash at any moment it is the old one or the new one.

    Raises:
        DiskFullError: no space; the old file stays.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with full_disk_named(path):
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file as hexadecimal text, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
