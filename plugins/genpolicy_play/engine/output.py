"""Standard output that carries the protocol alone: everything else that is printed goes to standard error."""

from __future__ import annotations

import os
import sys
import threading


class ClosedOutputError(ConnectionError):
    """Nobody reads any more."""


class Output:
    """Writes whole lines, each at once, from any thread.

    Args:
        descriptor: Where they go.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    @classmethod
    def claim(cls) -> Output:
        """Take standard output over: what others print, from Python or from C, goes to standard error from now on."""
        sys.stdout.flush()
        descriptor = os.dup(1)
        os.dup2(2, 1)
        return cls(descriptor)

    def send(self, *lines: str) -> None:
        """Write lines.

        Raises:
            ClosedOutputError: nobody reads them.
        """
        data = "".join(f"{_plain(line)}\n" for line in lines).encode()
        with self._lock:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except (BrokenPipeError, ConnectionResetError) as error:
                    raise ClosedOutputError("standard output was closed") from error


def _plain(line: str) -> str:
    """A line without what would break it: GUIs read ASCII, one line at a time."""
    return "".join(c if " " <= c <= "~" else "?" for c in line)
