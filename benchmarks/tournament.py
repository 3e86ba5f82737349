"""Does a tournament of fast policies keep the cores busy? Games per second and CPU use with one and two processes.

    python benchmarks/tournament.py [--game chess] [--rounds 60] [--workers 1 2] [--policy random heuristic ...]

CPU use is the time that this process and its workers spent on a core, over wall time, in cores, from the first game to
the last, so that starting interpreters is left out. Beside it stands how many cores they were ready to use: the time on
a core and the time that they waited for one. On a machine with other work nobody gets what others use, but who is ready
to run all the time keeps the cores busy once they are free. Linux only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from ratios import describe, rate, ratio

import genpolicy
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.openings import draw_random
from genpolicy_arena.tournament import TournamentConfig, run_tournament

RUN = {"quick": ["--rounds", "6"]}


def core_seconds(pid: int) -> tuple[float, float]:
    """Seconds that a process and its living descendants spent on a core, and waited for one (Linux)."""
    running = waiting = 0.0
    left = [pid]
    while left:
        one = left.pop()
        for task in Path(f"/proc/{one}/task").glob("*"):
            try:
                fields = (task / "schedstat").read_text().split()
                left += [int(child) for child in (task / "children").read_text().split()]
            except OSError:
                continue  # it ended while it was looked at
            running += float(fields[0]) / 1e9
            waiting += float(fields[1]) / 1e9
    return running, waiting


def measure(arguments: argparse.Namespace, workers: int) -> float:
    """Games a second with so many workers, from the first game to the last."""
    game = genpolicy.load_game(arguments.game)
    players = {f"{number}:{spec}": spec for number, spec in enumerate(arguments.policy)}
    config = TournamentConfig(
        game.spec,
        players,
        draw_random(game, arguments.rounds, 4, 0, reuse=True),
        rules=Adjudication(max_plies=arguments.max_plies),
    )
    marks: list[tuple[float, int, float, float]] = []

    def progress(done: int, planned: int, sprt: object) -> None:
        # Looking at processes costs; a mark every tenth of a second is enough.
        if not marks or time.perf_counter() - marks[-1][0] > 0.1 or done == planned:
            marks.append((time.perf_counter(), done, *core_seconds(os.getpid())))

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        outcome = run_tournament(config, game, Path(folder) / "t", workers=workers, progress=progress)
        wall = time.perf_counter() - began
    first = next(mark for mark in marks if mark[1] > 0)
    last = marks[-1]
    playing = last[0] - first[0]
    used, waited = (last[2] - first[2]) / playing, (last[3] - first[3]) / playing
    plies = sum(len(each.moves) - each.opening_plies for each in outcome.results)
    print(
        f"{workers} workers: {plies / len(outcome.results):.0f} plies a game, {used:.2f} cores used, "
        f"{used + waited:.2f} ready to be; whole run {wall:.1f} s, {len(outcome.results) / wall:.1f} games/s"
    )
    found = (last[1] - first[1]) / playing
    rate(f"{workers} workers, from the first game to the last", [found], "games/s")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="chess")
    parser.add_argument("--policy", nargs="+", default=["random", "mcts:heuristic?simulations=8"])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--max-plies", type=int, default=120)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    describe(f"{arguments.game}: {' against '.join(arguments.policy)}, {2 * arguments.rounds} games")
    found = {workers: measure(arguments, workers) for workers in arguments.workers}
    for workers in arguments.workers[1:]:
        name = f"games with {workers} workers over {arguments.workers[0]}"
        ratio(name, [found[workers]], [found[arguments.workers[0]]], rates=True)


if __name__ == "__main__":
    main()
