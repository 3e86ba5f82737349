"""Times the web board over HTTP: the first move of a fresh server, and many boards that play whole games at once.

python benchmarks/web.py --policy runs/demo/s-asa/policy
python benchmarks/web.py --policy runs/demo/s-asa/policy --policy random --clients 20 --plies 60 --no-dream
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from ratios import describe, times

RUN = {
    "args": ["--policy", "chess"],
    "quick": ["--clients", "2", "--plies", "4", "--starts", "2"],
}


@contextmanager
def served(arguments: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Host and port of a server in a process of its own, and the process."""
    command = [sys.executable, "-m", "genpolicy", "web", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"http://([^:/]+):(\d+)/", line):
                    yield found.group(1), int(found.group(2)), process.pid
                    break
            else:
                raise RuntimeError("genpolicy web ended without an address")
        finally:
            process.send_signal(signal.SIGINT)


class Client:
    """One page's connection."""

    def __init__(self, host: str, port: int) -> None:
        self.connection = http.client.HTTPConnection(host, port, timeout=300)

    def offers(self) -> Any:
        """Games and policies."""
        self.connection.request("GET", "/api/offers")
        return json.load(self.connection.getresponse())

    def post(self, path: str, body: Any) -> tuple[int, float, float, bytes]:
        """Status, seconds to the first line and to the end, and the answer."""
        began = time.perf_counter()
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        answer = response.readline()
        first_s = time.perf_counter() - began
        answer += response.read()
        return response.status, first_s, time.perf_counter() - began, answer


@dataclass
class Log:
    """What the clients saw."""

    first_line_s: list[float] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    position_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    games: int = 0
    plies: int = 0


def first_move(host: str, port: int, *, dream: bool) -> tuple[float, float, int]:
    """Seconds from the first click to the first line and to the move, and the denoising steps that were shown."""
    client = Client(host, port)
    policy = client.offers()["policies"][0]
    client.post("/api/position", {"game": policy["game"]})
    asked = {"game": policy["game"], "policy": policy["id"], "dream": dream, "seed": 1}
    status, first_s, all_s, answer = client.post("/api/decide", asked)
    if status != 200:
        raise RuntimeError(answer.decode())
    return first_s, all_s, answer.count(b"\n") - 1


def play(host: str, port: int, number: int, arguments: argparse.Namespace, log: Log) -> None:
    """One board: a random mover against a policy, to the end of the game or the limit."""
    client, rng = Client(host, port), random.Random(number)
    policies = client.offers()["policies"]
    policy = policies[number % len(policies)]
    moves: list[str] = []
    side = number // len(policies) % 2
    while len(moves) < arguments.plies:
        status, _, seconds, answer = client.post("/api/position", {"game": policy["game"], "moves": moves})
        log.position_s.append(seconds)
        if status != 200:
            log.errors.append(f"position: {status} {answer[:200]!r}")
            return
        said = json.loads(answer)
        if said["outcome"] is not None:
            break
        if said["player"] == side:
            moves.append(rng.choice(said["legal"])["move"])
            continue
        body = {"game": policy["game"], "moves": moves, "policy": policy["id"], "dream": not arguments.no_dream}
        status, first_s, seconds, answer = client.post("/api/decide", body)
        log.first_line_s.append(first_s)
        log.decision_s.append(seconds)
        last = json.loads(answer.splitlines()[-1]) if status == 200 else {}
        if "decision" not in last:
            log.errors.append(f"decide: {status} {answer[-200:]!r}")
            return
        moves.append(last["decision"]["move"])
    log.games += 1
    log.plies += len(moves)


def shown(name: str, seconds: Sequence[float]) -> None:
    """Report some times, and print the 95th percentile and the maximum."""
    ordered = sorted(seconds)
    times(name, seconds)
    percentile = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    print(f"  {1e3 * percentile:.0f} ms at 95 %, {1e3 * ordered[-1]:.0f} ms at most")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", required=True)
    parser.add_argument("--game", action="append")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--plies", type=int, default=40, help="most of a game; default 40")
    parser.add_argument("--starts", type=int, default=3, help="fresh servers for the first move; default 3")
    parser.add_argument("--no-dream", action="store_true", help="ask for the move alone")
    arguments = parser.parse_args()
    given = [part for spec in arguments.policy for part in ("--policy", spec)]
    given += [part for spec in arguments.game or [] for part in ("--game", spec)]
    describe(f"genpolicy web {' '.join(given)}, uvicorn {version('uvicorn')}")
    firsts = []
    for _ in range(arguments.starts):
        with served(given) as (host, port, _):
            firsts.append(first_move(host, port, dream=not arguments.no_dream))
    times(f"first click to the first line of {firsts[0][2]} steps", [first[0] for first in firsts])
    times("first click to the move", [first[1] for first in firsts])
    log = Log()
    with served(given) as (host, port, _), ThreadPoolExecutor(arguments.clients) as pool:
        began = time.perf_counter()
        for done in [pool.submit(play, host, port, n, arguments, log) for n in range(arguments.clients)]:
            done.result()
        elapsed = time.perf_counter() - began
    print(
        f"{arguments.clients} boards at once: {log.games} games, {log.plies} plies, {len(log.decision_s)} decisions in "
        f"{elapsed:.1f} s, {len(log.errors)} errors"
    )
    for name, seconds in (("first line", log.first_line_s), ("move", log.decision_s)):
        shown(f"{arguments.clients} boards, a decision to the {name}", seconds)
    shown(f"{arguments.clients} boards, a position", log.position_s)
    for error in log.errors[:5]:
        print(error)
    sys.exit(1 if log.errors else 0)


if __name__ == "__main__":
    main()
