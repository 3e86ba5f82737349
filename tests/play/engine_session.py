"""A session with a fresh engine process, for the tests: what was said, and whether every line of it is protocol."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

MOVE = r"(?:[a-h][1-8][a-h][1-8][qrbn]?|[1-9][a-i][1-9][a-i]\+?|[PLNSGBR]\*[1-9][a-i])"
INFO = re.compile(
    rf"info depth \d+ multipv \d+ (?:score (?:cp|mate) -?\d+ (?:wdl \d+ \d+ \d+ )?)?nodes \d+ nps \d+ time \d+"
    rf" pv {MOVE}(?: {MOVE})*|info depth 0 score (?:cp 0|mate [01]) (?:wdl \d+ \d+ \d+ )?nodes 0 nps 0 time 0"
)
ENGINE = (sys.executable, "-m", "genpolicy", "engine")
LINES = re.compile(
    rf"id (?:name|author) .+|option name .+ type (?:spin default -?\d+ min -?\d+ max -?\d+|check default (?:true|false)"
    rf"|combo default \S+(?: var \S+)+|string default \S+)|uciok|usiok|readyok|info string [ -~]+|{INFO.pattern}"
    rf"|bestmove (?:{MOVE}(?: ponder {MOVE})?|\(none\)|resign|win)|checkmate (?:{MOVE}(?: {MOVE})*|nomate|timeout)"
)


class Session:
    """An engine process whose output is read as it comes.

    Args:
        arguments: Behind ``genpolicy engine``.
        command: Another program in place of it.
    """

    def __init__(self, *arguments: str, command: Sequence[str] | None = None) -> None:
        command = list(command or [*ENGINE, *arguments])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, bufsize=0
        )
        self.lines: list[str] = []
        """All that came on standard output."""
        self.complaints = b""
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._drain)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        rest = b""
        while chunk := self.process.stdout.read(1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                self.lines.append(line.decode("ascii"))
                self._new.put(self.lines[-1])
        if rest:
            self.lines.append(f"(cut line) {rest!r}")
        self._new.put(None)

    def _drain(self) -> None:
        assert self.process.stderr is not None
        while chunk := self.process.stderr.read(1 << 16):
            self.complaints += chunk

    def send(self, *lines: str | bytes) -> None:
        assert self.process.stdin is not None
        data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def until(self, wanted: str | Callable[[str], bool], timeout_s: float = 60.0) -> list[str]:
        """The lines up to the first that begins with a text (or of which a function says so), that one included."""
        seen: list[str] = []
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"no {wanted!r} in {timeout_s} s; last: {seen[-5:]}; {self.complaints!r}"
                ) from None
            if line is None:
                raise AssertionError(f"the engine ended before {wanted!r}; last: {seen[-5:]}; {self.complaints!r}")
            seen.append(line)
            if line.startswith(wanted) if isinstance(wanted, str) else wanted(line):
                return seen

    def ask(self, *lines: str | bytes, until: str = "bestmove", timeout_s: float = 60.0) -> list[str]:
        self.send(*lines)
        return self.until(until, timeout_s)

    def stays_silent(self, seconds: float) -> None:
        """No move for so long. The time is the point: a slow machine cannot fail this, only see less."""
        time.sleep(seconds)
        assert not any(line.startswith("bestmove") for line in self.ask("isready", until="readyok"))

    def end(self, timeout_s: float = 10.0) -> int:
        """Close the input, and wait; the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout_s)

    def strays(self) -> list[str]:
        """Lines on standard output that do not belong to the protocol."""
        return [line for line in self.lines if not LINES.fullmatch(line)]

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:  # they end with the process's output; a pipe is not closed under a reader
            reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()


def best(lines: Sequence[str]) -> str:
    """The move of the last line, a ``bestmove``."""
    return lines[-1].split()[1]


def before_bestmove(lines: Sequence[str]) -> list[str]:
    """The ``info`` lines that are not ``info string``."""
    return [line for line in lines if line.startswith("info ") and not line.startswith("info string")]
