"""Limits what connections may cost: how long the headers of a request take, and how many connections there are."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_TIMEOUT_S = 10.0
"""Time for the headers of a request from its first byte, and for those of the first one from the connection."""
MAX_CONNECTIONS = 512
MIN_CONNECTIONS = 8
OTHER_FILES = 64
"""Files that the process has open besides connections, such as the pipes of engines."""


def max_connections() -> int:
    """Connections at a time: so many that those waiting to be accepted find a free file handle as well."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = 2 * MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else soft - OTHER_FILES
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, free // 2))


class LimitedProtocol(H11Protocol):
    """One connection of uvicorn's HTTP/1.1.

    A connection is *idle* while no request of it is being answered. One connection too many closes the one that has
    been idle longest, so half-sent requests push each other out and never a client that sends its whole request.
    """

    _idle_since: float | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock, and make room."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._expect_headers()
        if len(self.connections) > max_connections():
            others = [each for each in self.connections if isinstance(each, LimitedProtocol)]
            idle = [each for each in others if each._idle_since is not None and not each.transport.is_closing()]
            min(idle, key=lambda each: each._idle_since or 0.0).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Stop the clock where the headers are whole; else start it, if it does not run."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect_headers()
        else:
            self._idle_since = None
            self._stop_clock()

    def on_response_complete(self) -> None:
        """Wait for the next request, for as long as uvicorn keeps idle connections."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:
            self._idle_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_TIMEOUT_S, self._close)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        transport: Any = self.transport
        transport.abort()
