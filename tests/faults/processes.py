"""What other processes may do to ours: engines that hang, die, flood or lie, and clients that send half a request.

``trial(seed)`` of each kind misbehaves in a way that the seed draws, and says what was wrong with our answer, or None.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

from genpolicy import load_game, load_policy
from genpolicy.errors import EngineError
from tests.fuzz.mutation import mutant
from tests.fuzz.targets import encoded

MOST_S = 10.0
ENGINE = """#!{python}
import os, random, signal, sys, time
draw = random.Random({seed})


def write(data, to=1):
    while data:
        data = data[os.write(to, data):]


def flood(line, to=1, megabytes=float("inf")):
    for _ in iter(int, 1):
        write(line * (1 + 65536 // len(line)), to)
        if (megabytes := megabytes - 1 / 16) < 0:
            return


def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)


WAYS = [
    lambda: time.sleep(3600),
    deaf,
    lambda: os._exit(draw.choice([0, 1, 7])),
    lambda: os.kill(os.getpid(), draw.choice([signal.SIGKILL, signal.SIGSEGV])),
    lambda: flood(draw.choice([b"info depth 1\\n", b"x", b"\\n", b"bestmove\\n", b"\\xff\\0"])),
    lambda: flood(b"x", megabytes=20),
    lambda: flood(b"oops\\n", to=2, megabytes=4),
    lambda: write(draw.randbytes(draw.randrange(5000))),
    lambda: (write(answer[: draw.randrange(len(answer))]), time.sleep(3600)),
    lambda: (os.close(1), time.sleep(3600)),
    lambda: os.close(0),
    lambda: write(b"bestmove" + draw.choice([b"", b" e7e5", b" a1a1 ponder", b" (none)"]) + b"\\n"),
    lambda: write(b"info depth 1 score cp 9999999999999999999999 pv " + b"e2e4 " * 9999 + b"\\n"),
    lambda: write(answer),
]
often = draw.choice([0.1, 0.5, 0.9])
for line in sys.stdin.buffer:
    word = line.split()[0] if line.split() else b""
    answer = {{b"uci": b"id name E\\nuciok\\n", b"isready": b"readyok\\n", b"go": b"bestmove e2e4\\n"}}.get(word, b"")
    if (answer or word == b"quit") and draw.random() < often:
        draw.choice(WAYS)()
    write(answer)
    if word == b"quit":
        break
"""


class HostileEngines:
    """A policy that asks an engine; the engine does what it likes."""

    name = "hostile engine processes"

    def __init__(self) -> None:
        self.game = load_game("chess")

    def trial(self, seed: int) -> str | None:
        """A decision by a fresh engine."""
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "engine.py"
            program.write_text(ENGINE.format(python=sys.executable, seed=seed))
            program.chmod(0o755)
            start, move = time.monotonic(), None
            try:
                policy = load_policy(f"engine:{program}?nodes=1&timeout_s=0.4", game=self.game)
                try:
                    move = policy.decide([self.game.parse()])[0].move
                finally:
                    policy.close()
            except EngineError as error:
                if not str(error) or len(str(error)) > 2000 or not str(error).isprintable():
                    return f"seed {seed}: message {str(error)[:300]!r}"
            except Exception as error:
                return f"seed {seed}: {type(error).__name__}: {str(error)[:300]}"
            if move is not None and move not in self.game.legal(self.game.parse()):
                return f"seed {seed}: move {move} is not legal"
            if (took := time.monotonic() - start) > MOST_S:
                return f"seed {seed}: it took {took:.1f} s"
            return f"seed {seed}: the engine still runs" if _runs(str(program)) else None

    def close(self) -> None:
        """Nothing is held."""


def _runs(program: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if program.encode() in entry.read_bytes():
                return True
    return False


class HalfRequests:
    """A web server of its own, whose clients send parts of requests and noise, and leave as they like."""

    name = "half-sent requests"

    def __init__(self) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in ``close``
        arguments = ["web", "--policy", "random", "--game", "connect:rows=3,cols=3,k=3,gravity=false", "--port", "0"]
        command = [sys.executable, "-m", "genpolicy", *arguments]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.said, text=True)
        assert self.server.stdout is not None
        line = next(line for line in self.server.stdout if "http://" in line)
        self.port = int(line.split("http://")[1].split("/")[0].rpartition(":")[2])
        bodies = [text.partition(b"\n") for text in encoded("http")]
        post = (
            b"POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        )
        self.requests = [post % (path, self.port, len(body), body) for path, _, body in bodies]
        self.requests += [b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % self.port]

    def trial(self, seed: int) -> str | None:
        """Some clients at once, then a good request."""
        draw = random.Random(seed)
        with ExitStack() as held:
            for _ in range(draw.randrange(1, 20)):
                data = draw.choice(self.requests)
                data = mutant((data, *self.requests), draw) if draw.random() < 0.5 else data
                client = held.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=MOST_S))
                with suppress(OSError):  # it may have had enough of us
                    for _ in range(draw.randrange(1, 4)):
                        client.sendall(data[: draw.randrange(len(data) + 1)])
                if draw.random() < 0.3:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                if draw.random() < 0.5:
                    client.close()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/offers", timeout=MOST_S) as answer:
                    status = answer.status
            except OSError as error:
                return f"seed {seed}: no answer: {error}"
        said = os.pread(self.said.fileno(), 1 << 20, 0)
        if b"Traceback" in said:
            return f"seed {seed}: {said[-1500:].decode(errors='replace')}"
        return None if status == 200 else f"seed {seed}: status {status}"

    def close(self) -> None:
        """End the server."""
        self.server.terminate()
        self.server.wait(timeout=20)
        self.said.close()
        if self.server.stdout is not None:
            self.server.stdout.close()


KINDS = (HostileEngines, HalfRequests)
