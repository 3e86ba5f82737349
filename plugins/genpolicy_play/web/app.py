"""The application: which path answers what, and how a decision comes line by line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
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
from genpolicy_play.web.catalog import Offers
from genpolicy_play.web.deciding import DECIDE_FIELDS, Question
from genpolicy_play.web.exporting import EXPORT_FIELDS, exported
from genpolicy_play.web.middleware import Guard, Hosts, error_response
from genpolicy_play.web.positions import (
    POSITION_FIELDS,
    described,
    num_new_moves,
    position_of,
    require_game,
    typed_move,
)
from genpolicy_play.web.queue import Desk, Job, Stopped
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
"""Kinds of files that are served."""
MAX_PENDING_BYTES = 64 << 20
"""Of lines that a client has not fetched; one that is slower is left."""
SEND_TIMEOUT_S = 30.0
NUM_READERS = 8
"""Positions that are worked out at a time."""
LONG = 100
"""New moves of a game from which on it is a long one: those wait for each other, so that no other board waits for them
all."""
ResultT = TypeVar("ResultT")


def static_files(folder: Path | None = None) -> dict[str, Path]:
    """The page's files by name, as they lie there now; nothing else is ever read for a client."""
    here = Path(str(resources.files("genpolicy_play.web"))) / "static" if folder is None else folder
    found = sorted(here.iterdir()) if here.is_dir() else []
    return {path.name: path for path in found if path.suffix in MEDIA and path.is_file()}


class Application:
    """Answers the page.

    Args:
        offers: Games and policies.
        desk: Where decisions are made.
        files: The page's.
    """

    def __init__(self, offers: Offers, desk: Desk, files: Mapping[str, Path]) -> None:
        self.offers, self.desk, self.files = offers, desk, dict(files)
        self._readers: CapacityLimiter | None = None
        self._long: CapacityLimiter | None = None

    def routes(self) -> list[Route]:
        """Path by path."""
        return [
            Route("/", self.index),
            Route("/static/{name}", self.static),
            Route("/api/offers", self.list_offers),
            Route("/api/position", self.position, methods=["POST"]),
            Route("/api/decide", Decide(self), methods=["POST"]),
            Route("/api/export", self.export, methods=["POST"]),
        ]

    async def work(self, call: Callable[[], ResultT], *, long: bool = False) -> ResultT:
        """Work out something in a thread, a few at a time, so that the loop goes on; what is long one at a time."""
        if self._readers is None or self._long is None:
            self._readers, self._long = CapacityLimiter(NUM_READERS), CapacityLimiter(1)
        return await to_thread.run_sync(call, limiter=self._long if long else self._readers)

    def is_long(self, fields: Fields) -> bool:
        """Whether a request names a long game that is not known yet.

        Raises:
            RequestError: it names no game that is offered, or no moves.
        """
        return num_new_moves(fields, require_game(self.offers.replays, fields.text("game"))) > LONG

    async def index(self, request: Request) -> Response:
        """The page."""
        return await self._file(INDEX)

    async def static(self, request: Request) -> Response:
        """A file of it."""
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
        return JSONResponse(self.offers.described())

    async def position(self, request: Request) -> Response:
        """A position and what can be played there."""
        fields = Fields(read_object(await request.body()), (*POSITION_FIELDS, "typed"))
        return JSONResponse(await self.work(partial(self._position, fields), long=self.is_long(fields)))

    def _position(self, fields: Fields) -> dict[str, Any]:
        replays = require_game(self.offers.replays, fields.text("game"))
        game, flip = replays.game, fields.flag("flip")
        found = position_of(fields, replays)
        typed = fields.optional_text("typed", most=MAX_NAME)
        if typed is not None:
            moves = [game.moves[move] for move in found.moves]
            found = replays.replay(found.start, [*moves, typed_move(game, found, typed)])
        drawing = board_svg(
            game,
            board_of(game, found.state),
            flipped=flip,
            last=() if found.last is None else found.last,
            check=game.check(found.state),
        )
        return described(game, found, drawing, flip=flip)

    async def export(self, request: Request) -> Response:
        """The game as a file."""
        fields = Fields(read_object(await request.body()), EXPORT_FIELDS)
        # A file is written move by move, whatever is known of the game.
        long = len(fields.texts("moves", most=MAX_MOVES, length=MAX_MOVE)) > LONG
        name, content = await self.work(partial(self._export, fields), long=long)
        try:
            content.decode("utf-8")
            media_type = "text/plain; charset=utf-8"
        except UnicodeDecodeError:  # a format with an encoding of its own
            media_type = "application/octet-stream"
        return Response(
            content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )

    def _export(self, fields: Fields) -> tuple[str, bytes]:
        replays = require_game(self.offers.replays, fields.text("game"))
        return exported(replays.game, position_of(fields, replays), fields)

    def question(self, fields: Fields) -> Question:
        """What a client asks of a policy.

        Raises:
            RequestError: nothing that can be asked.
        """
        replays = require_game(self.offers.replays, fields.text("game"))
        offer = self.offers.offer(fields.text("policy"), replays.game)
        return Question(fields, offer, position_of(fields, replays))


class Decide:
    """``POST /api/decide`` as an application of its own: it sends lines as they come, and sees the client go.

    Args:
        application: What it belongs to.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        application, desk = self._application, self._application.desk
        fields = Fields(read_object(await Request(scope, receive).body()), DECIDE_FIELDS)
        question = await application.work(partial(application.question, fields), long=application.is_long(fields))
        lines = Lines(asyncio.get_running_loop())
        # One key for all options of a policy: they share its network.
        job = desk.submit(id(question.offer.policy), partial(_answer, question, lines))
        try:
            await _sent(lines, receive, send)
        finally:
            desk.stop(job)


class Lines:
    """Lines on their way from the thread that makes them to the loop that sends them.

    Args:
        loop: The sender's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[bytes | RequestError | None] = asyncio.Queue()
        self._pending = 0

    def put(self, line: bytes | RequestError | None) -> None:
        """Hand over a line, an error, or None for the end; from any thread.

        Raises:
            Stopped: too much waits to be fetched, or the loop has ended.
        """
        if isinstance(line, bytes):
            self._pending += len(line)
            if self._pending > MAX_PENDING_BYTES:
                raise Stopped
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
        except RuntimeError:  # the loop is closed: the server ends
            raise Stopped from None

    async def get(self) -> bytes | RequestError | None:
        """The next one."""
        line = await self._queue.get()
        if isinstance(line, bytes):
            self._pending -= len(line)
        return line


def _answer(question: Question, lines: Lines, job: Job) -> None:
    """A desk's work: the answer to a question, line by line."""
    last: RequestError | None = None
    try:
        question.answer(job, lambda values: lines.put(_line(values)))
    except RequestError as error:
        last = error
    except Stopped:
        last = RequestError("stopped", 503, 1)
    except Exception:
        last = RequestError("the server failed here; what happened stands in its terminal", 500)
        raise
    finally:
        try:
            lines.put(last)
        except Stopped:
            job.stop()  # nobody waits for it any more


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


async def _sent(lines: Lines, receive: Receive, send: Send) -> None:
    """Send lines until the end, or until the client has gone.

    An error before the first line is a status of its own; after it the last line.

    Raises:
        RequestError: before anything was sent.
    """
    gone = asyncio.ensure_future(_gone(receive))
    began = False
    try:
        while True:
            coming = asyncio.ensure_future(lines.get())
            await asyncio.wait({gone, coming}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                return
            line = coming.result()
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
    """A refusal of the application's own."""
    return error_response(error)


async def _not_routed(request: Request, error: Any) -> Response:
    """A refusal of the router's, an ``HTTPException``."""
    words = {404: "there is nothing here", 405: f"{request.method} is not answered here"}
    response = error_response(RequestError(words.get(error.status_code, str(error.detail)), error.status_code))
    response.headers.update(error.headers or {})
    return response


def make_app(offers: Offers, desk: Desk, hosts: Hosts, files: Mapping[str, Path] | None = None) -> ASGIApp:
    """The guarded application.

    Args:
        offers: Games and policies.
        desk: Where decisions are made.
        hosts: Names under which it may be asked.
        files: The page's; None: those of the package.
    """
    application = Application(offers, desk, static_files() if files is None else files)
    handlers: Mapping[Any, Any] = {RequestError: _refused, HTTPException: _not_routed}
    return Guard(Starlette(routes=application.routes(), exception_handlers=handlers), hosts)
