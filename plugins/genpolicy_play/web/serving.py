"""A running server: the socket that it listens on, its loop, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

BACKLOG = 256


def listen(host: str, port: int) -> socket.socket:
    """A bound socket.

    Args:
        host: Address or name.
        port: 0 for any free one.

    Raises:
        ValueError: the address is not this computer's, or the port is taken or not allowed; the message names the way
            out.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be from 0 to 65535, got {port}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"--host {host!r} is no address or name that is known here ({error})") from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # a second server on the port is refused now, and not once this one has loaded
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} is taken; name another (--port {min(port + 1, 65535)}), or --port 0 for any free one"
        elif error.errno == errno.EACCES:
            reason = f"port {port} is not allowed to you; name one above 1023"
        elif error.errno == errno.EADDRNOTAVAIL:
            reason = f"--host {host}: this computer does not have that address"
        else:
            reason = f"--host {host} --port {port}: {error.strerror}"
        raise ValueError(reason) from error
    return bound


def url_of(bound: socket.socket) -> str:
    """Where a browser finds the server."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server of an application, which says nothing but what goes wrong."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
        )
    )


def serve(app: ASGIApp, bound: socket.socket, on_start: Callable[[], None]) -> asyncio.AbstractEventLoop:
    """Serve until Ctrl-C or SIGTERM; then return at once, in the middle of whatever still runs.

    Args:
        app: What answers.
        bound: Where it listens.
        on_start: Called when it does.

    Returns:
        The loop, for the caller to keep until the process ends: its answers are not cancelled one by one, which would
        take time and be reported as failures.
    """
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_serve(make_server(app), bound, on_start))
    return loop


async def _serve(server: uvicorn.Server, bound: socket.socket, on_start: Callable[[], None]) -> None:
    running = asyncio.ensure_future(server.serve(sockets=[bound]))
    while not server.started and not running.done():
        await asyncio.sleep(0.005)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # In place of uvicorn's own, which wait for answers that are under way. Windows has no such handlers.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop.set)
    on_start()
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()


class Running:
    """A server in a thread of this process, for tests and measurements; ``with Running(app) as url``.

    Args:
        app: What answers.
        host: Where to listen; the port is any free one.
    """

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1") -> None:
        self._socket = listen(host, 0)
        self._server = make_server(app)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return url_of(self._socket)

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)
