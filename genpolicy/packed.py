"""Packed files: what Python's own library does not unpack."""

from __future__ import annotations

import io
from typing import IO

import zstandard

_CHUNK_BYTES = 1 << 12  # small, since a chunk of packed bytes can unpack to thousands of times its size


class ZstandardReader(io.RawIOBase):
    """Unpacks a Zstandard file of one or more frames; unlike the library's stream reader, it notices a cut one.

    Args:
        packed: The packed bytes.

    Raises:
        EOFError: while reading, where the file ends within a frame.
        zstandard.ZstdError: while reading, where it is damaged.
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
        """Fill a buffer as far as one packed chunk goes; the number of bytes, 0 at the end."""
        while not self._pending:
            data = self._unread or self._packed.read(_CHUNK_BYTES)
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
