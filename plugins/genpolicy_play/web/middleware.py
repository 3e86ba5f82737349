"""Protects the application: checks who sends a request, limits its size, and sets the headers of every answer.

A page of another site must not reach this server through the user's browser. The ``Host`` header keeps out a name that
its owner points at 127.0.0.1 (DNS rebinding); ``Origin``, ``Sec-Fetch-Site`` and the content type keep out forms and
scripts of other origins; and no answer allows another origin to read it. Starlette's ``TrustedHostMiddleware`` checks
the first of these only, against a list of names: it cannot read IPv6 addresses or accept every loopback address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
import traceback
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from genpolicy_play.web.requests import MAX_BODY_BYTES, RequestError

BODY_TIMEOUT_S = 10.0
MAX_IN_FLIGHT = 256
"""Requests at a time; a further one is asked to retry."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FAILED = RequestError("the server failed; its terminal shows the error", 500)
_PORTS = {"http": 80, "https": 443}


class Hosts:
    """The host names under which the server answers.

    Args:
        host: The address that it listens on.
        more: Further names.
    """

    def __init__(self, host: str, more: Iterable[str] = ()) -> None:
        self.is_loopback = is_loopback(host)
        self.names = {*LOOPBACK_NAMES, host.lower(), *(name.lower() for name in more)}
        if not self.is_loopback:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def allow(self, header: str) -> bool:
        """Whether a ``Host`` header names this server."""
        name = host_of(header)
        if name is None:
            return False
        if name in self.names:
            return True
        # DNS rebinding needs a name: a page under an IP address came from that address.
        return is_loopback(name) if self.is_loopback else _is_address(name)


def host_of(header: str) -> str | None:
    """The host of ``name[:port]`` in lower case, without the brackets of IPv6; None for any other text."""
    parts = _split(f"http://{header}")
    return None if parts is None else parts[0]


def _split(url: str) -> tuple[str, int] | None:
    """Host and port of ``scheme://host[:port]``; None for any other text."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    if not plain or not host or parts.scheme not in _PORTS or any(c.isspace() or c in "\\,;" for c in url):
        return None
    return host.rstrip("."), port if port is not None else _PORTS[parts.scheme]


def same_origin(origin: str, host: str) -> bool:
    """Whether an ``Origin`` header is that of a page from ``Host``.

    The scheme is not compared: a proxy in front of the server may speak HTTPS.
    """
    parts = _split(origin)
    return parts is not None and parts == _split(f"{origin.partition('://')[0]}://{host}")


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def error_response(error: RequestError) -> JSONResponse:
    """A refusal as JSON."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return JSONResponse({"error": str(error)}, error.status, headers)


class Guard:
    """Refuses requests from elsewhere, reads bodies within their limits, and sets the headers of every answer.

    Args:
        app: The application; it receives whole bodies.
        hosts: Names under which it answers.
    """

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self.app, self.hosts = app, hosts
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # there is no lifespan and no WebSocket here
            raise RuntimeError(f"cannot answer {scope['type']!r}")
        began = False

        async def send_guarded(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        self._in_flight += 1
        try:
            if self._in_flight > MAX_IN_FLIGHT:
                raise RequestError("too many requests at a time", 503, 1)
            self._check(scope)
            if scope["method"] == "POST":
                receive = await _with_body(Headers(scope=scope), receive)
            await self.app(scope, receive, send_guarded)
        except RequestError as error:
            if not began:
                await error_response(error)(scope, receive, send_guarded)
        except Exception:
            # A bug of ours: the trace goes to the terminal of whoever runs the server, not to the client.
            traceback.print_exc(file=sys.stderr)
            if not began:
                await error_response(FAILED)(scope, receive, send_guarded)
        finally:
            self._in_flight -= 1

    def _check(self, scope: Scope) -> None:
        """Check that a request names this server and comes from its own page or from outside a browser.

        Raises:
            RequestError: it does not.
        """
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise RequestError("the request must have one Host header")
        if not self.hosts.allow(hosts[0]):
            raise RequestError(
                "this server does not answer under that name; use the address that it printed, or start it with "
                "--allow-host NAME",
                403,
            )
        if scope["method"] in ("GET", "HEAD"):
            return
        origins = headers.getlist("origin")
        if len(origins) > 1 or not all(same_origin(origin, hosts[0]) for origin in origins):
            raise RequestError("a page of another origin may not use this server", 403)
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RequestError("a page of another site may not use this server", 403)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            raise RequestError("the body must have Content-Type: application/json", 415)


async def _with_body(headers: Headers, receive: Receive) -> Receive:
    """Read a body within its limits.

    Returns:
        A ``receive`` that yields the body in one piece, then whatever the given one yields.

    Raises:
        RequestError: the body is too large or too slow, or the client has gone.
    """
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()) or int(declared[:20]) > MAX_BODY_BYTES:
        raise RequestError(f"a body may have at most {MAX_BODY_BYTES:,} bytes", 413)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestError("the client has gone")
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise RequestError(f"a body may have at most {MAX_BODY_BYTES:,} bytes", 413)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise RequestError(f"the body did not come within {BODY_TIMEOUT_S:g} seconds", 408) from None
    whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again
