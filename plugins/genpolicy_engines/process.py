"""One engine process, spoken to over a bare pipe without waiting."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Literal

from genpolicy.errors import EngineError
from genpolicy_engines.options import EngineOption, setoption_lines
from genpolicy_engines.protocol import DEFAULT_HASH_MB, Dialect, Search, readable

HANDSHAKE_TIMEOUT_S = 30.0  # an engine names itself at once; one that loads tables first took 13 s on a busy core
MAX_OUTPUT_BYTES = 64 << 20  # of one search; a program that writes more is not an engine
PR_SET_PDEATHSIG = 1  # linux/prctl.h
QUEUEING_ENGINES = re.compile(r"(Fairy-)?Stockfish\b")
"""Engines whose ``go`` waits for the end of the running search, so that the next search may be sent ahead. The
protocols do not ask that of an engine. The labels of both are the same to the bit, but for one thing: they count the
moves of ``position ... moves ...`` as nodes of the search that runs (seen in 15.1), so such a position waits here."""


class EngineDiedError(EngineError):
    """The process ended, hung or flooded; another one may do better."""


Stage = Literal["greeting", "settling", "idle", "searching", "dead"]


class EngineProcess:
    """A running engine. Nothing here blocks: ``read`` takes what is there, ``expired`` tells a hang.

    Args:
        command: The program.
        dialect: UCI or USI.
        options: Engine options to set, by the name the engine announces.
        limit: Words after ``go``, e.g. ``"nodes 4000"``.
        timeout_s: Most seconds for one search, and for getting ready.
        spelt: How the user wrote an option that is not spelt as the engine spells it, for messages.
    """

    def __init__(
        self,
        command: str,
        dialect: Dialect,
        options: Mapping[str, str],
        limit: str,
        timeout_s: float,
        spelt: Mapping[str, str] | None = None,
    ) -> None:
        self.command = command
        self.dialect = dialect
        self.options = dict(options)
        self.limit = limit
        self.timeout_s = timeout_s
        self.name = command
        self.announced: dict[str, EngineOption] = {}
        """Options that the engine announced, by name in lower case."""
        self.stage: Stage = "greeting"
        self.num_variations: int | None = None
        """Of the last search that named a number."""
        self.num_sent = 0
        """Searches that were sent and have not ended: the first of them runs, the others wait in the engine."""
        self._search_s = self._spread_s = 0.0
        """About how long a search takes of late, and by how much that differs from one to the next."""
        self._queues = False
        self._spelt = dict(spelt or {})
        self._began = 0.0
        self._output = bytearray()
        self._complaints = b""
        self._scanned = 0
        self._process = _spawn(command)
        self.stdin, self.stdout, self.stderr = (
            pipe.fileno() for pipe in (self._process.stdin, self._process.stdout, self._process.stderr) if pipe
        )
        os.set_blocking(self.stdout, False)
        os.set_blocking(self.stderr, False)
        self._deadline = time.monotonic() + min(HANDSHAKE_TIMEOUT_S, timeout_s)
        self._send(dialect.hello)

    def takes(self, search: Search) -> bool:
        """Whether a search may be sent: the engine is idle, or runs one and queues commands."""
        queues = self.stage == "searching" and self.num_sent < 2 and self._queues
        # An option is not set while a search runs.
        return self.stage == "idle" or (queues and search.may_queue and not self._changes(search))

    def begin(self, search: Search, *, fresh: bool) -> None:
        """Send a search that the engine takes. Behind a running one it begins, and its time, when that has ended.

        Args:
            search: What to search.
            fresh: Empty the hash table and all else the engine remembers before.

        Raises:
            EngineDiedError: it is gone.
        """
        before = f"{self.dialect.new_game}\nisready\n" if fresh else ""
        if self._changes(search):
            before = f"setoption name MultiPV value {search.num_variations}\n{before}"
            self.num_variations = search.num_variations
        only = f" searchmoves {search.only}" if search.only else ""
        if not self.num_sent:
            self._drop_output()
            self._start_clock()
        self.stage = "searching"
        self.num_sent += 1
        self._send(f"{before}{self.dialect.position}{search.position}\ngo {self.limit}{only}")

    def _changes(self, search: Search) -> bool:
        """Whether another number of variations has to be set first."""
        return search.num_variations not in (None, self.num_variations)

    def read(self) -> list[bytes]:
        """Take what the engine printed; the outputs of searches that it ended (``parse_search``), as they were sent.

        Raises:
            EngineDiedError: the process ended or floods. Results that it printed before come first, the error with the
                next call.
            EngineError: it lacks an option that was asked for, or does not take its value.
        """
        try:
            chunk = os.read(self.stdout, 1 << 16)
        except BlockingIOError:
            return []
        if not chunk:
            raise EngineDiedError(self._obituary("ended"))
        self._output += chunk
        if self.stage == "searching":
            outputs = []
            while self.num_sent and (output := self._search_ended()):
                outputs.append(output)
            return outputs
        if len(self._output) > MAX_OUTPUT_BYTES:
            raise EngineDiedError(self._obituary("floods its output"))
        while self.stage in ("greeting", "settling") and (end := self._output.find(b"\n")) >= 0:
            line = bytes(self._output[:end]).strip()
            del self._output[: end + 1]
            self._get_ready(line)
        return []

    def read_complaints(self) -> bool:
        """Take what the engine printed on stderr (kept for messages); False when it closed it."""
        try:
            chunk = os.read(self.stderr, 1 << 16)
        except BlockingIOError:
            return True
        self._complaints = (self._complaints + chunk)[-2000:]
        return bool(chunk)

    @property
    def deadline(self) -> float:
        """When it hangs, on the clock of ``time.monotonic``; infinity while it has nothing to do."""
        return self._deadline

    def quiet_s(self) -> float:
        """Seconds until the output needs to be polled again; engines print line by line, and each line wakes us.

        A running search is hardly over before it has taken what the last ones took, less three times their spread. With
        another one waiting behind it, a quarter of a search more costs nothing.
        """
        elapsed = time.monotonic() - self._began
        if self.num_sent > 1:
            return max(1.2 * self._search_s - elapsed, 0.25 * self._search_s)
        return self._search_s - 3 * self._spread_s - elapsed

    def expired(self) -> EngineDiedError:
        """What to say of an engine that passed its deadline."""
        if self.stage == "greeting":
            word = self.dialect.hello_answer.decode()
            return EngineDiedError(
                f"{self.command}: not an engine of this protocol: no {word!r} within "
                f"{min(HANDSHAKE_TIMEOUT_S, self.timeout_s):g} s"
            )
        return EngineDiedError(self._obituary(f"hangs: no answer within timeout_s={self.timeout_s:g} s"))

    def awaited(self) -> str:
        """What a start that takes long waits for."""
        word = self.dialect.hello if self.stage == "greeting" else "isready"
        timeout = min(HANDSHAKE_TIMEOUT_S, self.timeout_s) if self.stage == "greeting" else self.timeout_s
        return f"waiting for {self.command} to answer {word!r} (for {timeout:g} s at most) ..."

    def kill(self) -> None:
        """End the process at once and free its pipes; safe to call twice."""
        self.stage = "dead"
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # an engine may be a script that runs another program
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue  # nothing is buffered here, so a dead reader loses nothing

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def _get_ready(self, line: bytes) -> None:
        text = readable(line)
        if self.stage == "greeting":
            if text.startswith("id name "):
                self.name = text.removeprefix("id name ")
            elif option := EngineOption.parse(text):
                self.announced[option.name.lower()] = option
            elif line == self.dialect.hello_answer:
                # A limit in time would run from the moment at which the engine reads its "go".
                self._queues = bool(QUEUEING_ENGINES.match(self.name)) and "movetime" not in self.limit
                self.stage = "settling"
                self._deadline = time.monotonic() + self.timeout_s
                self._send("\n".join([*self._settings(), "isready"]))
        elif line == b"readyok":
            self.stage = "idle"
            self._deadline = float("inf")
            self._output.clear()

    def _settings(self) -> list[str]:
        wanted = dict(self.options)
        if wanted.get("Threads") == "1" and "threads" not in self.announced:
            del wanted["Threads"]  # an engine without the option has one
        table = self.dialect.hash_option
        if table in wanted and table.lower() not in self.announced:
            if "hash" in self.announced:  # a USI engine may call its table Hash all the same
                wanted["Hash"] = wanted.pop(table)
            elif wanted[table] == str(DEFAULT_HASH_MB):
                del wanted[table]  # nobody asked for it, and not every engine has a hash table
        return setoption_lines(self.name, self.announced, wanted, self._spelt)

    def _search_ended(self) -> bytes | None:
        # "bestmove" may have been cut in two by the last read, so look a little before what is new.
        start = max(0, self._scanned - 16)
        self._scanned = len(self._output)
        at = self._output.find(b"bestmove", start)
        while at > 0 and self._output[at - 1] != 10:  # 10 is \n
            at = self._output.find(b"bestmove", at + 1)
        if at < 0 or self._output.find(b"\n", at) < 0:
            if at >= 0:
                self._scanned = at
            elif len(self._output) > MAX_OUTPUT_BYTES:
                raise EngineDiedError(self._obituary("floods its output"))
            return None
        end = self._output.find(b"\n", at) + 1
        output = bytes(self._output[:end])
        del self._output[:end]
        self._scanned = 0
        self.num_sent -= 1
        took = time.monotonic() - self._began
        self._spread_s += 0.2 * (abs(took - self._search_s) - self._spread_s)
        self._search_s += 0.2 * (took - self._search_s)
        if self.num_sent:
            self._start_clock()
        else:
            self.stage = "idle"
            self._deadline = float("inf")
            self._output.clear()
        return output

    def _drop_output(self) -> None:
        """Forget what an idle engine printed, such as a second answer: it is not of the search to come."""
        with suppress(BlockingIOError):
            while os.read(self.stdout, 1 << 16):  # the end of the output is seen by ``read``, too
                continue
        self._output.clear()

    def _start_clock(self) -> None:
        self._began = time.monotonic()
        self._deadline = self._began + self.timeout_s

    def _send(self, text: str) -> None:
        try:
            os.write(self.stdin, f"{text}\n".encode())
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EngineDiedError(self._obituary("ended")) from error

    def _obituary(self, what: str) -> str:
        code = self._process.poll()
        if code is None and what == "ended":
            try:
                code = self._process.wait(0.2)
            except subprocess.TimeoutExpired:
                what = "closed its output"
        if what == "ended" and code is not None:
            what = f"ended with status {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        self.read_complaints()
        said = readable(self._complaints).strip()
        return f"{self.command}: {what}" + (f"; its last words: {said[-300:]!r}" if said else "")


def _spawn(command: str) -> subprocess.Popen[bytes]:
    if sys.platform == "win32":  # which cannot wait for several pipes, nor end what an engine has started
        raise EngineError(f"{command}: engines are not run on Windows; use WSL, or search with alphabeta or mcts")
    try:
        # Linux kills a child that asked for it when the thread that started it ends; only the main thread ends last.
        if _die_with_parent is None or threading.current_thread() is threading.main_thread():
            return _start(command)
        started: Future[subprocess.Popen[bytes]] = Future()
        _lasting_thread(os.getpid()).put((command, started))
        return started.result()
    except OSError as error:
        raise EngineError(f"{command}: cannot be started: {error.strerror or error}") from error


def _start(command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for us; we end the engines
        preexec_fn=_die_with_parent,
    )


@functools.cache
def _lasting_thread(pid: int) -> SimpleQueue[tuple[str, Future[subprocess.Popen[bytes]]]]:
    """What a thread that lasts as long as this process is to start; a fork, with its own ``pid``, has another one."""
    wanted: SimpleQueue[tuple[str, Future[subprocess.Popen[bytes]]]] = SimpleQueue()

    def serve() -> None:
        while True:
            command, started = wanted.get()
            try:
                started.set_result(_start(command))
            except BaseException as error:  # it is raised where the engine was asked for
                started.set_exception(error)

    threading.Thread(target=serve, name="engines", daemon=True).start()
    return wanted


def _make_die_with_parent() -> Callable[[], None] | None:
    """What a child does before it becomes the engine: ask to be killed when we are, even by SIGKILL (Linux)."""
    if not sys.platform.startswith("linux"):
        return None  # elsewhere the engine sees the end of its input
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask


_die_with_parent = _make_die_with_parent()
