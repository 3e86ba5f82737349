"""Runs the server: the socket that it listens on, its event loop, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from genpolicy.cli import STOPPING
from genpolicy_play.web.connections import LimitedProtocol, max_connections

BACKLOG = 256
"""Most connections that wait to be accepted."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
        host: Address or name.
        port: 0 takes any free one.

    Raises:
        ValueError: the address does not belong to this computer, or the port is taken or not allowed.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be from 0 to 65535, got {port}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"--host {host!r} is not a known address or name ({error})") from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # now, before the policies are loaded, so that a second server fails at once
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} is taken; name another (--port {min(port + 1, 65535)}), or --port 0 for any free one"
        elif error.errno == errno.EACCES:
            reason = f"you may not use port {port}; name one above 1023"
        elif error.errno == errno.EADDRNOTAVAIL:
            reason = f"--host {host}: this computer does not have that address"
        else:
            reason = f"--host {host} --port {port}: {error.strerror}"
        raise ValueError(reason) from error
    return bound


def url_of(bound: socket.socket) -> str:
    """The address for a browser."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server for an application; it logs errors only."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=LimitedProtocol,
            # asyncio accepts as many connections at once, and a second and a third time before it closes one of them.
            backlog=min(BACKLOG, max_connections() // 3 + 1),
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
    """Serve until Ctrl-C, SIGTERM or SIGHUP, then return at once without waiting for requests that are being answered.

    Args:
        app: The application.
        bound: The socket that listens.
        on_start: Called once requests are answered.

    Returns:
        The event loop. The caller keeps it until the process ends: to close it would cancel each answer, which takes
        time and is reported as a failure.
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
    numbers = [signal.SIGINT, *(getattr(signal, name) for name in STOPPING if hasattr(signal, name))]
    for number in numbers:
        # In place of uvicorn's own handlers, which wait for running answers. Windows has no such handlers.
        with contextlib.suppress(NotImplementedError):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                loop.add_signal_handler(number, stop.set)
    on_start()
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
