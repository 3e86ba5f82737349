"""The application: what each path answers, and how the lines of a decision are sent as they are made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from genpolicy_play.drawing import board_of, board_svg
from genpolicy_play.web.catalog import Catalog
from genpolicy_play.web.deciding import ANIMATE_FIELDS, DECIDE_FIELDS, DecisionRequest, Emit
from genpolicy_play.web.editing import EDIT_FIELDS, edited
from genpolicy_play.web.exporting import EXPORT_FIELDS, exported
from genpolicy_play.web.importing import IMPORT_FIELDS, imported
from genpolicy_play.web.middleware import FAILED, Guard, Hosts, error_response
from genpolicy_play.web.positions import (
    POSITION_FIELDS,
    described,
    num_new_moves,
    position_of,
    require_game,
    typed_move,
)
from genpolicy_play.web.queue import Cancelled, DecisionQueue, Job
from genpolicy_play.web.requests import MAX_MOVE, MAX_MOVES, MAX_NAME, Fields, RequestError, read_object

INDEX = "index.html"
MEDIA = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
"""Media types of the files that are served, by suffix."""
MAX_PENDING_BYTES = 64 << 20
"""Lines that a client has not fetched; a slower client is disconnected."""
SEND_TIMEOUT_S = 30.0
NUM_READERS = 8
"""Positions that are computed at a time."""
LONG = 100
"""New moves that make a game a long one. Long games are replayed one at a time, so that other boards need not wait."""
ResultT = TypeVar("ResultT")


def static_files(folder: Path | None = None) -> dict[str, Path]:
    """The page's files by name, listed once; no other file is ever read for a client."""
    here = Path(str(resources.files("genpolicy_play.web"))) / "static" if folder is None else folder
    paths = sorted(here.iterdir()) if here.is_dir() else []
    return {path.name: path for path in paths if path.suffix in MEDIA and path.is_file()}


class Application:
    """Answers the page's requests.

    Args:
        catalog: Games and policies.
        queue: Makes the decisions.
        files: The page's, by name.
    """

    def __init__(self, catalog: Catalog, queue: DecisionQueue, files: Mapping[str, Path]) -> None:
        self.catalog, self.queue, self.files = catalog, queue, dict(files)
        self._readers: CapacityLimiter | None = None
        self._long: CapacityLimiter | None = None

    def routes(self) -> list[Route]:
        """The handler of each path."""
        return [
            Route("/", self.index),
            Route("/static/{name}", self.static),
            Route("/api/offers", self.list_offers),
            Route("/api/position", self.position, methods=["POST"]),
            Route("/api/decide", Decide(self, DECIDE_FIELDS, DecisionRequest.answer), methods=["POST"]),
            Route("/api/animate", Decide(self, ANIMATE_FIELDS, DecisionRequest.animate), methods=["POST"]),
            Route("/api/export", self.export, methods=["POST"]),
            Route("/api/import", self.import_game, methods=["POST"]),
            Route("/api/edit", self.edit, methods=["POST"]),
        ]

    async def work(self, call: Callable[[], ResultT], *, long: bool = False) -> ResultT:
        """Make a call in a thread, so that the event loop keeps answering; a few at a time, or one if it is long."""
        if self._readers is None or self._long is None:
            self._readers, self._long = CapacityLimiter(NUM_READERS), CapacityLimiter(1)
        return await to_thread.run_sync(call, limiter=self._long if long else self._readers)

    def is_long(self, fields: Fields) -> bool:
        """Whether a request names a long game that is not known yet.

        Raises:
            RequestError: it names no game that is offered, or malformed moves.
        """
        return num_new_moves(fields, require_game(self.catalog.games, fields)) > LONG

    async def index(self, request: Request) -> Response:
        """The page."""
        return await self._file(INDEX)

    async def static(self, request: Request) -> Response:
        """One of its files."""
        return await self._file(request.path_params["name"])

    async def _file(self, name: str) -> Response:
        path = self.files.get(name)
        if path is None:
            raise RequestError("there is no such file here", 404)
        try:
            content = await self.work(path.read_bytes)
        except OSError:
            raise RequestError("there is no such file here any more", 404) from None
        return Response(content, media_type=MEDIA[path.suffix])

    async def list_offers(self, request: Request) -> Response:
        """Games and policies."""
        return JSONResponse(self.catalog.described())

    async def position(self, request: Request) -> Response:
        """A position, its legal moves and its drawing."""
        fields = Fields(read_object(await request.body()), (*POSITION_FIELDS, "typed"))
        return JSONResponse(await self.work(partial(self._position, fields), long=self.is_long(fields)))

    def _position(self, fields: Fields) -> dict[str, Any]:
        cache = require_game(self.catalog.games, fields)
        game, flip = cache.game, fields.flag("flip")
        replay = position_of(fields, cache)
        typed = fields.optional_text("typed", most=MAX_NAME)
        if typed is not None:
            moves = [game.moves[move] for move in replay.moves]
            replay = cache.replay(replay.start, [*moves, typed_move(game, replay, typed)])
        drawing = board_svg(
            game,
            board_of(game, replay.state),
            flipped=flip,
            last=() if replay.last is None else replay.last,
            check=game.view.check(replay.state),
        )
        return described(game, replay, drawing, flip=flip)

    async def export(self, request: Request) -> Response:
        """The game as a file."""
        fields = Fields(read_object(await request.body()), EXPORT_FIELDS)
        # Writing a file plays every move, known or not.
        long = len(fields.texts("moves", most=MAX_MOVES, length=MAX_MOVE)) > LONG
        name, content = await self.work(partial(self._export, fields), long=long)
        try:
            content.decode("utf-8")
            media_type = "text/plain; charset=utf-8"
        except UnicodeDecodeError:  # a format with another encoding
            media_type = "application/octet-stream"
        return Response(
            content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )

    def _export(self, fields: Fields) -> tuple[str, bytes]:
        cache = require_game(self.catalog.games, fields)
        return exported(cache.game, position_of(fields, cache), fields)

    async def import_game(self, request: Request) -> Response:
        """The moves of a pasted game."""
        fields = Fields(read_object(await request.body()), IMPORT_FIELDS)
        cache = require_game(self.catalog.games, fields)
        return JSONResponse(await self.work(partial(imported, cache.game, fields), long=True))

    async def edit(self, request: Request) -> Response:
        """A position that somebody sets up."""
        fields = Fields(read_object(await request.body()), EDIT_FIELDS)
        cache = require_game(self.catalog.games, fields)
        return JSONResponse(await self.work(partial(edited, cache.game, fields)))

    def decision_request(self, fields: Fields) -> DecisionRequest:
        """The decision that a client requests.

        Raises:
            RequestError: a malformed request, or no such game, policy or option.
        """
        cache = require_game(self.catalog.games, fields)
        offer = self.catalog.offer(fields.text("policy"), cache.game)
        return DecisionRequest(fields, offer, position_of(fields, cache))


class Decide:
    """``POST /api/decide`` and the like, an ASGI application: it sends each line at once and sees the client go.

    Args:
        application: The application that it is a part of.
        known: Fields of a request.
        make: Makes the lines of the answer, in a thread of the queue.
    """

    def __init__(
        self, application: Application, known: Sequence[str], make: Callable[[DecisionRequest, Job, Emit], None]
    ) -> None:
        self._application, self._known, self._make = application, known, make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        application, queue = self._application, self._application.queue
        fields = Fields(read_object(await Request(scope, receive).body()), self._known)
        request = await application.work(
            partial(application.decision_request, fields), long=application.is_long(fields)
        )
        lines = Lines(asyncio.get_running_loop())
        # One key for all settings of a policy: they share its network.
        job = queue.submit(id(request.offer.policy), partial(_answer, partial(self._make, request), lines))
        try:
            await _send_lines(lines, receive, send)
        finally:
            queue.cancel(job)


class Lines:
    """Lines on their way from the thread that makes them to the event loop that sends them.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[bytes | RequestError | None] = asyncio.Queue()
        self._pending = 0

    def put(self, line: bytes | RequestError | None) -> None:
        """Pass on a line, an error, or None for the end; from any thread.

        Raises:
            Cancelled: the client fetches too slowly, or the event loop has ended.
        """
        if isinstance(line, bytes):
            self._pending += len(line)
            if self._pending > MAX_PENDING_BYTES:
                raise Cancelled
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
        except RuntimeError:  # a closed event loop: the server ends
            raise Cancelled from None

    async def get(self) -> bytes | RequestError | None:
        """The next one."""
        line = await self._queue.get()
        if isinstance(line, bytes):
            self._pending -= len(line)
        return line


def _answer(make: Callable[[Job, Emit], None], lines: Lines, job: Job) -> None:
    """Make the lines of a decision; runs in a thread of the queue."""
    last: RequestError | None = None
    try:
        make(job, lambda values: lines.put(_line(values)))
    except RequestError as error:
        last = error
    except Cancelled:
        last = RequestError("stopped", 503, 1)
    except Exception:
        last = RequestError("the server failed; its terminal shows the error", 500)
        raise
    finally:
        try:
            lines.put(last)
        except Cancelled:
            job.cancel()  # nobody waits for it any more


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


async def _send_lines(lines: Lines, receive: Receive, send: Send) -> None:
    """Send lines until the end, or until the client has gone; an error after the first line is sent as the last one.

    Raises:
        RequestError: an error before the first line, which becomes the status.
    """
    gone = asyncio.ensure_future(_gone(receive))
    began = False
    try:
        while True:
            next_line = asyncio.ensure_future(lines.get())
            await asyncio.wait({gone, next_line}, return_when=asyncio.FIRST_COMPLETED)
            if not next_line.done():
                next_line.cancel()
                return
            line = next_line.result()
            if isinstance(line, RequestError) and not began:
                raise line
            if not began:
                began = True
                headers = [(b"content-type", b"application/x-ndjson"), (b"x-accel-buffering", b"no")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            body = line if isinstance(line, bytes) else b"" if line is None else _line({"error": str(line)})
            message = {"type": "http.response.body", "body": body, "more_body": isinstance(line, bytes)}
            await asyncio.wait_for(send(message), SEND_TIMEOUT_S)
            if not isinstance(line, bytes):
                return
    except (TimeoutError, OSError):
        return  # the client does not read, or has gone
    finally:
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refused(request: Request, error: Any) -> Response:
    """The answer for an error of the application's own."""
    return error_response(error)


async def _not_routed(request: Request, error: Any) -> Response:
    """The answer for an ``HTTPException`` of the router's."""
    words = {404: "there is nothing here", 405: f"{request.method} is not allowed here"}
    response = error_response(RequestError(words.get(error.status_code, str(error.detail)), error.status_code))
    response.headers.update(error.headers or {})
    return response


async def _failed(request: Request, error: Exception) -> Response:
    """The answer for a bug of ours; starlette raises the error again, and ``Guard`` prints it."""
    return error_response(FAILED)


def make_app(catalog: Catalog, queue: DecisionQueue, hosts: Hosts, files: Mapping[str, Path] | None = None) -> ASGIApp:
    """The application behind its guard.

    Args:
        catalog: Games and policies.
        queue: Makes the decisions.
        hosts: Names under which it answers.
        files: The page's files by name; None takes those of the package.
    """
    application = Application(catalog, queue, static_files() if files is None else files)
    handlers: Mapping[Any, Any] = {RequestError: _refused, HTTPException: _not_routed, Exception: _failed}
    return Guard(Starlette(routes=application.routes(), exception_handlers=handlers), hosts)
