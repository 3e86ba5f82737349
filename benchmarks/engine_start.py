"""Times a session with a fresh engine process: start to ``uciok``, to ``readyok`` and to ``bestmove``.

python benchmarks/engine_start.py --policy runs/demo/s-asa/policy
python benchmarks/engine_start.py --policy mcts:heuristic --game shogi
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from ratios import describe, times

RUN = {"args": ["--policy", "chess"], "rounds": "--repeats", "quick": ["--repeats", "2"]}


def session_s(arguments: list[str], protocol: str, go: str) -> dict[str, float]:
    """Seconds from the start of a process to each of its answers."""
    hello = {"uci": "uciok", "usi": "usiok"}[protocol]
    began = time.perf_counter()
    command = [sys.executable, "-m", "genpolicy", "engine", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seconds = {}
        for line, answer in ((protocol, hello), ("isready", "readyok"), (f"position startpos\n{go}", "bestmove")):
            print(line, file=process.stdin, flush=True)
            while not (said := process.stdout.readline()).startswith(answer):
                if not said:
                    raise RuntimeError(f"the engine ended before {answer!r}")
            seconds[answer] = time.perf_counter() - began
        print("quit", file=process.stdin, flush=True)
    return seconds


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--game")
    parser.add_argument("--protocol", choices=("uci", "usi"), help="default: usi for shogi, else uci")
    parser.add_argument("--go", default="go", help='default "go": the policy as it is set')
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    protocol = arguments.protocol or ("usi" if arguments.game == "shogi" else "uci")
    given = ["--policy", arguments.policy, *(["--game", arguments.game] if arguments.game else [])]
    session_s(given, protocol, arguments.go)  # the first one reads the files from the disk
    runs = [session_s(given, protocol, arguments.go) for _ in range(arguments.repeats)]
    describe(f"genpolicy engine {' '.join(given)}, a fresh process each time")
    for answer in runs[0]:
        times(f"to {answer}", [run[answer] for run in runs])


if __name__ == "__main__":
    main()
