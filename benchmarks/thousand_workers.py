"""Does the command keep up with a thousand workers? Its CPU, its memory, and what is lost when one in a hundred dies.

    python benchmarks/thousand_workers.py [--workers 1000] [--seconds 1.5 | --engine stockfish --nodes 1000000]

The workers are simulated: two processes hold their connections, and each worker answers one position after the other
with the label that the data set has, after as long as a search took that was timed before. Some of them end without a
word, half of these in the middle of a message. Everything else is real: the sockets, the journal, the shards, the
code of ``genpolicy data label --cluster``. In the end the records must be those of the data set.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import multiprocessing
import os
import pickle
import platform
import queue
import random
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import genpolicy
from genpolicy.data.oracle import Line
from genpolicy.data.records import Dataset, DatasetInfo, Record
from genpolicy.game import Game
from genpolicy.machine import commit
from genpolicy_common.cluster import Cluster, Hello, Versions
from genpolicy_labelling.cluster_oracle import LINES, READY, ClusterOracle
from genpolicy_labelling.label import LabelResult, label, make_record
from genpolicy_labelling.writer import DatasetWriter

RUN = {
    "args": ["--seconds", "1.5"],
    "quick": ["--seconds", "0.2", "--workers", "50", "--positions", "1600"],
    "packages": ["chess"],
}
FACTS = {"about": {"name": "simulated"}, "scale": 1.0, "together": 1}
NUM_HOSTS = 2


@dataclass(eq=False)
class Simulation:
    """A worker as its host sees it."""

    number: int
    pipe: Connection
    dies: float
    waiting: deque[tuple[int, int, str]] = field(default_factory=deque)
    """Block, task and position of what it has been asked."""
    busy: bool = False


class Host:
    """A process that stands for many workers.

    Args:
        orders: Tells of workers to begin: number, address of the command, token, moment of its death.
        answers: Labels by position.
        times: Seconds that searches took; each answer takes one of them, drawn anew.
        ended: Set for workers that have ended, by number.
        sent: Counts answers, by number.
    """

    def __init__(
        self, orders: Connection, answers: Mapping[str, Line], times: Sequence[float], ended: Any, sent: Any
    ) -> None:
        self._orders, self._answers, self._times, self._ended, self._sent = orders, answers, times, ended, sent
        self._draw, self._parent = random.Random(os.getpid()), os.getppid()
        self._selector = DefaultSelector()
        self._due: list[tuple[float, int, Simulation]] = []
        self._count = itertools.count()

    def run(self) -> None:
        """Serve until the command is gone."""
        self._selector.register(self._orders, EVENT_READ)
        while True:
            if os.getppid() != self._parent:
                return
            wait_s = min(1.0, max(0.0, self._due[0][0] - time.monotonic())) if self._due else 1.0
            for key, _ in self._selector.select(wait_s):
                try:
                    self._begin() if key.fileobj is self._orders else self._take(key.data)
                except (EOFError, OSError):
                    if key.fileobj is self._orders:
                        return
                    self._end(key.data)
            while self._due and self._due[0][0] <= time.monotonic():
                self._answer(heapq.heappop(self._due)[2])

    def _begin(self) -> None:
        number, address, token, dies = self._orders.recv()
        connected = socket.create_connection(address)
        connected.sendall(token)
        worker = Simulation(number, Connection(connected.detach()), dies)
        worker.pipe.send(Hello(Versions.here(), "simulated", number))
        worker.pipe.send((READY, FACTS))
        self._selector.register(worker.pipe, EVENT_READ, worker)

    def _take(self, worker: Simulation) -> None:
        block, _, _, _, questions = worker.pipe.recv()
        worker.waiting.extend((block, index, root) for index, (root, _) in questions.items())
        if not worker.busy:
            self._search(worker)

    def _search(self, worker: Simulation) -> None:
        worker.busy = bool(worker.waiting)
        if worker.busy:
            due = time.monotonic() + self._draw.choice(self._times)
            heapq.heappush(self._due, (due, next(self._count), worker))

    def _answer(self, worker: Simulation) -> None:
        if worker.pipe.closed:
            return
        block, index, root = worker.waiting.popleft()
        message = (LINES, block, [(index, self._answers[root])])
        if time.monotonic() > worker.dies:
            if worker.number % 2:
                whole = pickle.dumps(message)
                os.write(worker.pipe.fileno(), struct.pack("!i", len(whole)) + whole[: len(whole) // 2])
            self._end(worker)
            return
        try:
            worker.pipe.send(message)
            self._sent[worker.number] += 1
        except OSError:
            self._end(worker)
            return
        self._search(worker)

    def _end(self, worker: Simulation) -> None:
        if not worker.pipe.closed:
            self._selector.unregister(worker.pipe)
            worker.pipe.close()
            self._ended[worker.number] = 1


def _host(*arguments: Any) -> None:
    Host(*arguments).run()


def _pass_on(orders: queue.SimpleQueue[Any], host: Connection) -> None:
    with host, suppress(OSError):
        while (order := orders.get()) is not None:
            host.send(order)


class Simulated(Cluster):
    """A cluster of simulated workers.

    Args:
        num_workers: How many at once.
        answers: Labels by position.
        times: Seconds of searches.
        deaths: Seconds from now at which workers die, one each.
        seed: Of which workers these are.
    """

    def __init__(
        self,
        num_workers: int,
        answers: Mapping[str, Line],
        times: Sequence[float],
        deaths: Sequence[float],
        seed: int = 0,
    ) -> None:
        super().__init__("127.0.0.1")
        self._places, self.answers = num_workers, answers
        now, mortal = time.monotonic(), random.Random(seed).sample(range(num_workers), len(deaths))
        self._dies = {number: now + after for number, after in zip(mortal, deaths, strict=True)}
        context = multiprocessing.get_context("fork")
        self.ended, self.sent = (context.RawArray("q", 2 * num_workers + 1) for _ in range(2))
        self.hosts: list[Any] = []
        self._orders: list[queue.SimpleQueue[Any]] = []
        for _ in range(NUM_HOSTS):
            ours, theirs = context.Pipe()
            process = context.Process(target=_host, args=(theirs, answers, times, self.ended, self.sent), daemon=True)
            process.start()
            self.hosts.append(process)
            theirs.close()
            # A host waits until it is let in, which may be after all workers were asked for.
            self._orders.append(queue.SimpleQueue())
            threading.Thread(target=_pass_on, args=(self._orders[-1], ours), daemon=True).start()
        self._launched = 0

    @property
    def num_places(self) -> int:
        """Workers at once."""
        return self._places

    def _launch(self, address: tuple[str, int], token: bytes, *_: Any) -> Any:
        number, self._launched = self._launched, self._launched + 1
        self._orders[number % NUM_HOSTS].put((number, address, token, self._dies.get(number, float("inf"))))
        return number

    def _end_of(self, handle: Any) -> str | None:
        return "it was killed" if self.ended[handle] else None

    def _kill(self, handle: Any) -> None:
        """It ends with its pipe."""

    def close(self) -> None:
        """End all workers, and their hosts."""
        super().close()
        for orders in self._orders:
            orders.put(None)
        for process in self.hosts:
            process.kill()
            process.join()


def cut(source: Dataset, number: int, folder: Path) -> Dataset:
    """The first records of a data set."""
    info = DatasetInfo(game=source.game_spec, made_by="cut", command="simulation")
    with DatasetWriter(folder, info, journal=False) as writer:
        writer.add(0, list(itertools.islice(source.records(), number)))
        writer.finish()
    return Dataset.open(folder)


def recorded(source: Dataset, game: Game[Any]) -> dict[str, Line]:
    """The labels of a data set by position."""
    index = game.moves.index

    def line(record: Record) -> Line:
        moves = tuple(map(index, record.moves))
        return Line(moves, tuple(record.scores), record.ended, {index(m): s for m, s in record.scored_moves.items()})

    return {record.state: line(record) for record in source.records()}


@dataclass
class Run:
    """What a run came to."""

    seconds: float
    cpu_seconds: float
    memory_mb: list[float]
    """After each twentieth of the answers."""
    num_lost: int
    """Workers."""
    most_in_work: int
    """Positions that were begun and not finished, at most."""
    num_answers: int
    sent: int
    same: bool
    """The records are those of the data set, in order, with the recorded labels."""


class Counting(ClusterOracle):
    """Counts positions that are begun."""

    num_begun = 0

    def _begin(self, tasks: Any) -> Any:
        self.num_begun += len(tasks or ())
        return super()._begin(tasks)


def simulate(
    source: Dataset, game: Game[Any], cluster: Simulated, folder: Path, horizon: int, rows_per_shard: int
) -> Run:
    """Label a labelled data set anew with simulated workers, which know its labels."""
    done = most = 0
    memory: list[float] = []
    info = DatasetInfo(game=game.spec, made_by="label", oracle=FACTS["about"], command="simulation")  # type: ignore[arg-type]

    def note(result: LabelResult) -> None:
        nonlocal done, most
        most = max(most, oracle.num_begun - done)
        done += 1
        if done * 20 // source.num_records >= len(memory):
            memory.append(memory_mb())

    with (
        Counting("simulated", game, cluster, single=True) as oracle,
        DatasetWriter(folder, info, rows_per_shard=rows_per_shard) as writer,
    ):
        while len(cluster._by_pipe) < cluster.num_places:  # all have joined
            worker, message = oracle._crew.event()
            oracle._greet(worker, message)
        print(f"all have joined; {time.process_time():.1f} s of CPU so far", flush=True)
        began, cpu = time.monotonic(), time.process_time()
        label(source, writer, game, oracle, horizon, progress=note)
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        writer.commit_all()
        made = Dataset(folder, writer.info)
        same = all(
            ours == replace(each, **labels_of(game, cluster.answers[each.state]))
            for ours, each in zip(made.records(), source.records(), strict=True)
        )
        answered, lost = sum(oracle._crew.answered.values()), oracle._crew.num_lost
    return Run(seconds, cpu, memory, lost, most, answered, sum(cluster.sent), same)


def labels_of(game: Game[Any], line: Line) -> dict[str, Any]:
    """What of a record an answer decides. Of a position that a data set has twice, ``recorded`` keeps one."""
    made = make_record(game, None, line, state_text="")
    return {name: getattr(made, name) for name in ("line", "ended", "scores", "move_values")}


def memory_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def timed(game: Game[Any], source: Dataset, engine: str, nodes: int, number: int) -> list[float]:
    """Seconds of searches of the first positions of every game."""
    from genpolicy.data.oracle import make_oracle

    states = [record.state for record in itertools.islice(source.records(), 0, None, 701)][:number]
    times = []
    with make_oracle(f"{engine}?nodes={nodes}", game, processes=1) as oracle:
        for state in states:
            began = time.perf_counter()
            oracle.analyse([game.parse(state)], 8)
            times.append(time.perf_counter() - began)
    return times


def processor() -> str:
    """Name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="sample:chess")
    parser.add_argument("--positions", type=int, default=36_000)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, help="every search takes so long; without it searches are timed")
    parser.add_argument("--engine", default="stockfish")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--deaths", type=float, default=0.01, help="share of the workers that die")
    parser.add_argument("--rows-per-shard", type=int, default=5000)
    arguments = parser.parse_args()
    scratch = tempfile.TemporaryDirectory()
    source = cut(Dataset.open(arguments.data), arguments.positions, Path(scratch.name) / "positions")
    game = genpolicy.load_game(source.game_spec)
    times = [arguments.seconds]
    if arguments.seconds is None:
        times = timed(game, source, arguments.engine, arguments.nodes, 24)
    mean = statistics.mean(times)
    expected = source.num_records * mean / arguments.workers
    draw = random.Random(0)
    deaths = [draw.uniform(0.1, 0.8) * expected for _ in range(round(arguments.deaths * arguments.workers))]
    print(
        f"{arguments.workers} workers, {source.num_records} positions of {arguments.data}, {mean:.3f} s a search "
        f"({min(times):.3f} to {max(times):.3f}); {processor()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}, commit {commit()}, Python {platform.python_version()}",
        flush=True,
    )
    cluster = Simulated(arguments.workers, recorded(source, game), times, deaths)
    with scratch as folder:
        run = simulate(source, game, cluster, Path(folder) / "labelled", 8, arguments.rows_per_shard)
    ideal = arguments.workers / mean
    rate = run.num_answers / run.seconds
    start, middle, end = run.memory_mb[1], run.memory_mb[len(run.memory_mb) // 2], run.memory_mb[-1]
    print(f"answers a second                {rate:8.0f}   (the workers alone: {ideal:.0f})")
    print(f"the command's CPU, share        {run.cpu_seconds / run.seconds:8.2f}   of a core")
    print(f"the command's CPU an answer, us {1e6 * run.cpu_seconds / run.num_answers:8.0f}")
    print(f"its share if nothing else ran   {run.cpu_seconds / run.num_answers * ideal:8.2f}   of a core")
    print(f"memory, MB: start, middle, end  {start:8.0f} {middle:8.0f} {end:8.0f}")
    print(f"most positions in work          {run.most_in_work:8d}")
    print(f"workers that died               {run.num_lost:8d}")
    print(f"answers lost                    {source.num_records - run.num_answers if run.same else -1:8d}")
    print(f"answers double                  {max(0, run.num_answers - source.num_records):8d}")
    print(f"answers that died on their way  {run.sent - run.num_answers:8d}   (asked again)")
    print(f"records are those of the data   {run.same!s:>8}")


if __name__ == "__main__":
    main()
