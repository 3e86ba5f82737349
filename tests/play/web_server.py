"""The web board's server in a thread of the test, and a client that says exactly what is sent."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from genpolicy_play.web.app import make_app
from genpolicy_play.web.catalog import Catalog, make_catalog
from genpolicy_play.web.middleware import Hosts
from genpolicy_play.web.queue import DecisionQueue
from genpolicy_play.web.serving import listen, make_server, url_of

TIC_TAC_TOE = "connect:rows=3,cols=3,k=3,gravity=false"


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return true()


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """The body as lines of JSON."""
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def error(self) -> str:
        """What the server says is wrong; an answer that is none fails the test."""
        said = self.json
        assert list(said) == ["error"], said
        assert "Traceback" not in said["error"]
        return str(said["error"])


class Client:
    """Asks one server."""

    def __init__(self, url: str, queue: DecisionQueue, catalog: Catalog) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.queue, self.catalog = queue, catalog

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        """GET."""
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
        """POST of JSON, or of bytes as they are."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, raw, {"Content-Type": "application/json", **(headers or {})})

    def position(self, game: str, moves: Sequence[str] = (), **fields: Any) -> Any:
        """The answer of ``/api/position``."""
        reply = self.post("/api/position", {"game": game, "moves": list(moves), **fields})
        assert reply.status == 200, reply.body
        return reply.json

    def policy(self, game: str, label: str) -> str:
        """Id of a policy by its game and the beginning of its label."""
        return next(
            offer.id
            for offer in self.catalog.policies.values()
            if offer.game.spec == game and offer.label.startswith(label)
        )

    def decide(self, game: str, label: str, moves: Sequence[str] = (), **fields: Any) -> Reply:
        """The answer of ``/api/decide``."""
        return self.post(
            "/api/decide", {"game": game, "moves": list(moves), "policy": self.policy(game, label), **fields}
        )


class ThreadedServer:
    """A server in a thread of this process: ``with ThreadedServer(app) as url``.

    Args:
        app: The application.
        host: Address to listen on, at any free port.
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


@contextmanager
def serving(
    specs: Sequence[str | Path],
    games: Sequence[str],
    *,
    queue: DecisionQueue | None = None,
    files: Mapping[str, Path] | None = None,
) -> Iterator[Client]:
    """A server of some policies and games."""
    catalog = make_catalog([str(spec) for spec in specs], games)
    queue = queue or DecisionQueue()
    try:
        with ThreadedServer(make_app(catalog, queue, Hosts("127.0.0.1"), files)) as url:
            yield Client(url, queue, catalog)
    finally:
        queue.close()
        catalog.close()
