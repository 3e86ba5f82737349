"""One engine process and its protocol: UCI (chess) and USI (shogi) over a bare pipe, without waiting.

A general client parses every line that the engine prints, at the cost of a third of a core. Here the output of a search
is kept as bytes until the engine names its move; then only the last lines are read.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from genpolicy.errors import EngineError
from genpolicy_engines.options import EngineOption, setoption_lines

_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "\ufffd")
HANDSHAKE_TIMEOUT_S = 30.0  # an engine names itself at once; one that loads tables first took 13 s on a busy core
MAX_OUTPUT_BYTES = 64 << 20  # of one search; a program that writes more is not an engine
PR_SET_PDEATHSIG = 1  # linux/prctl.h
QUEUEING_ENGINES = re.compile(r"(Fairy-)?Stockfish\b")
"""Engines whose ``go`` waits for the end of the running search, so that the next search may be sent ahead. The
protocols do not ask that of an engine. The labels of both are the same to the bit, but for one thing: they count the
moves of ``position ... moves ...`` as nodes of the search that runs (seen in 15.1), so such a position waits here."""


@dataclass(frozen=True)
class Dialect:
    """The words in which UCI and USI differ."""

    hello: str
    hello_answer: bytes
    new_game: str
    position: str
    """What comes before the position's text."""
    hash_option: str
    movetime: str = "movetime {}"
    """What follows ``go`` for a limit in milliseconds."""
    no_moves: tuple[str, ...] = ()
    """What may stand in the place of a move: the engine resigns, or claims what the rules give it."""
    mate_in_plies: bool = False
    """Mates are counted in plies, not in moves of the player who mates."""


DEFAULT_HASH_MB = 16
UCI = Dialect("uci", b"uciok", "ucinewgame", "position fen ", "Hash")
USI = Dialect(
    "usi",
    b"usiok",
    "usinewgame",
    "position sfen ",
    "USI_Hash",
    movetime="btime 0 wtime 0 byoyomi {}",
    no_moves=("resign", "win"),
    mate_in_plies=True,
)


@dataclass(frozen=True)
class Search:
    """What an engine is asked."""

    position: str
    """Text of the position, perhaps with ``moves`` and the moves played from there."""
    only: str | None = None
    """The one move that may be considered at the root; None considers all."""
    num_variations: int | None = None
    """So many of the best moves get a line and a score each (the engine's option MultiPV); None leaves it as it is."""

    @property
    def may_queue(self) -> bool:
        """Whether it may be sent while another search runs (see ``QUEUEING_ENGINES``)."""
        return " moves " not in self.position


@dataclass(frozen=True)
class SearchResult:
    """What an engine said of a search."""

    move: str = ""
    """The engine's choice, as it wrote it."""
    line: tuple[str, ...] = ()
    """Principal variation, beginning with ``move``; as the engine wrote it, nothing is checked."""
    score: str | None = None
    """Score text (``genpolicy.values``) for the player to move; None where the engine gave none."""
    num_nodes: int = 0
    error: str | None = None
    """Why there is no move: the engine died or hung on every attempt."""
    by_move: Mapping[str, str] = field(default_factory=dict)
    """Score text of each of the best moves, where a search asked for more than one; as the engine wrote the moves."""


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


def readable(output: bytes) -> str:
    """Text of an engine's bytes; what is not UTF-8, and what a terminal would obey, becomes U+FFFD."""
    return output.decode(errors="replace").translate(_CONTROLS)


def parse_search(output: bytes, dialect: Dialect = UCI) -> SearchResult:
    """Read the output of one search, from its end.

    The line is the last one that begins with the move chosen, exact scores before bounds; the score is the last exact
    one (a bound only where nothing else was reported). An engine that resigns still has a best line: its move counts.
    """
    lines = _lines_backwards(output)
    words = next(words for words in lines if words[:1] == ["bestmove"])
    move = words[1] if len(words) > 1 else ""
    no_move = move in dialect.no_moves
    num_nodes = 0
    scores: dict[bool, str] = {}  # exact or not -> what the last such line says
    variations: dict[bool, tuple[str, ...]] = {}
    for words in lines:
        if words[:1] != ["info"] or words[1:2] == ["string"] or _after(words, "multipv") not in ("", "1"):
            continue
        num_nodes = num_nodes or _number(_after(words, "nodes"))
        score = _score(words, dialect)
        if score is None:
            continue
        exact = "lowerbound" not in words and "upperbound" not in words
        scores.setdefault(exact, score)
        if "pv" in words and (no_move or _after(words, "pv") == move):
            variations.setdefault(exact, tuple(words[words.index("pv") + 1 :]))
        if True in variations:
            break
    line = variations.get(True) or variations.get(False) or ((move,) if move else ())
    score = scores.get(True, scores.get(False))
    return SearchResult(
        line[0] if no_move and line else move, line, score, num_nodes, by_move=_scores_by_move(output, dialect)
    )


_VARIATION = re.compile(rb" multipv ([0-9]{1,3}) ")


def _scores_by_move(output: bytes, dialect: Dialect) -> dict[str, str]:
    """The last exact score of each move that has one of the variations; {} where the engine gave one variation alone.

    Of a depth that was cut off in the middle only the first variations are known; the other moves keep the score of
    the depth before.
    """
    by_move: dict[str, str] = {}
    num_variations = max((_number(found.decode()) for found in _VARIATION.findall(output)), default=1)
    if num_variations == 1:
        return by_move
    for words in _lines_backwards(output):
        score, move = _score(words, dialect), _after(words, "pv")
        if words[:1] != ["info"] or words[1:2] == ["string"] or score is None or not move:
            continue
        if "lowerbound" in words or "upperbound" in words:
            continue
        by_move.setdefault(move, score)
        if len(by_move) == num_variations:
            break
    return by_move


def _lines_backwards(output: bytes) -> Iterator[list[str]]:
    """The words of each line, the last line first; most lines are never looked at."""
    end = len(output)
    while end >= 0:
        start = output.rfind(b"\n", 0, end)
        yield readable(output[start + 1 : end]).split()
        end = start


def _after(words: list[str], key: str) -> str:
    if key not in words:
        return ""
    at = words.index(key) + 1
    return words[at] if at < len(words) else ""


MAX_DIGITS = 20


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else 0


def _score(words: list[str], dialect: Dialect) -> str | None:
    kind = _after(words, "score")
    number = _after(words, kind) if kind in ("cp", "mate") else ""
    if kind == "mate" and number in ("+", "-"):  # USI: a mate whose length is not known
        number += "1"
    if len(number) >= MAX_DIGITS:
        return None
    try:
        value = int(number)
    except ValueError:
        return None
    if kind == "mate" and dialect.mate_in_plies:
        value = (value + 1) // 2 if value > 0 else -((1 - value) // 2)
    return f"{kind}:{value}"


def _spawn(command: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for us; we end the engines
            preexec_fn=_die_with_parent,
        )
    except OSError as error:
        raise EngineError(f"{command}: cannot be started: {error.strerror or error}") from error


def _make_die_with_parent() -> Callable[[], None] | None:
    """What a child does before it becomes the engine: ask to be killed when we are, even by SIGKILL (Linux)."""
    if not sys.platform.startswith("linux"):
        return None  # elsewhere the engine sees the end of its input
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask


_die_with_parent = _make_die_with_parent()
