"""Several engine processes that stay busy: blocks of tasks ask for searches, an engine that is free takes a block.

A task is a generator that yields a ``Search``, is sent its ``SearchResult``, and returns a value. The tasks of a block
share one engine, from an empty hash table on. A task in progress comes before those that have not begun, and the next
search is chosen before the running one has ended: so at most two tasks of a block are between their first search and
their end, and the order of the searches, and with it every answer, depends on the block alone, not on time, on other
engines, or on how far ahead an engine takes commands.

One thread serves all engines. An engine that queues commands has its next search in its own pipe before it ends the
running one, another gets it before the result of the last is looked at; the next block is made ready meanwhile.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from genpolicy.errors import EngineError
from genpolicy_engines.process import EngineDiedError, EngineProcess
from genpolicy_engines.protocol import Search, SearchResult, parse_search

T = TypeVar("T")
SearchTask = Generator[Search, SearchResult, T]
MAX_ATTEMPTS = 3
"""An engine that dies or hangs so often on one search leaves it without a result."""
AHEAD = 2
"""Searches of a block that are chosen, running or not looked at yet: one runs, one waits behind it."""
SILENT_S = 3.0  # an engine that takes longer to get ready is spoken of
SHORTEST_NAP_S, LONGEST_NAP_S = 0.0003, 0.02


@dataclass(eq=False)
class _Job:
    index: int
    """Of the task in its block."""
    task: SearchTask[Any]
    search: Search
    num_failures: int = 0


@dataclass(eq=False)
class _Block:
    """A block whose tasks have asked for their first searches."""

    values: list[Any]
    """What its tasks returned."""
    queue: deque[_Job]
    """Searches to come."""
    num_left: int
    """Tasks that have not ended."""

    @staticmethod
    def prepare(tasks: Sequence[SearchTask[Any]]) -> _Block:
        """Run every task to its first search."""
        block = _Block([None] * len(tasks), deque(), 0)
        for index, task in enumerate(tasks):
            try:
                block.queue.append(_Job(index, task, next(task)))
                block.num_left += 1
            except StopIteration as stop:
                block.values[index] = stop.value
        return block


@dataclass(eq=False)
class _Slot:
    engine: EngineProcess
    block: _Block | None = None
    chosen: deque[_Job] = field(default_factory=deque)
    """Searches that were chosen and have not ended, the first ``engine.num_sent`` of them in the engine."""
    num_unread: int = 0
    """Results that were not looked at yet."""
    is_fresh: bool = False
    """The block's first search is to come."""
    num_idle_deaths: int = 0
    """Deaths in a row while it started or had nothing to do."""

    def choose(self) -> None:
        """Fix which searches come next."""
        while self.block and self.block.queue and len(self.chosen) + self.num_unread < AHEAD:
            self.chosen.append(self.block.queue.popleft())


class _Supply:
    """Takes blocks one ahead of the engines."""

    def __init__(self, blocks: Iterable[Sequence[SearchTask[Any]] | None]) -> None:
        self._source = iter(blocks)
        self._ready: _Block | None = None
        self.is_dry = False
        """There is nothing until another block has ended."""

    def make_ready(self) -> None:
        """Have the next block ready, if there is one."""
        if self._ready is None and not self.is_dry:
            tasks = next(self._source, None)  # an iterator that has ended says so again
            self.is_dry = tasks is None
            self._ready = None if tasks is None else _Block.prepare(tasks)

    def take(self) -> _Block | None:
        """The next block; None where there is none now."""
        self.make_ready()
        block, self._ready = self._ready, None
        return block


class EnginePool:
    """Engine processes that are started together, restarted when they die, and killed in the end.

    Args:
        start: Makes one more engine process.
        num_processes: How many run side by side.
        attempts: An engine that dies or hangs so often on one search leaves it without a result. With 1 it may not
            even die between two searches.

    Raises:
        EngineError: an engine cannot be started, or is none.
    """

    def __init__(self, start: Callable[[], EngineProcess], num_processes: int, attempts: int = MAX_ATTEMPTS) -> None:
        self._start, self._attempts = start, attempts
        self._selector = selectors.DefaultSelector()
        self._slots: list[_Slot] = []
        self._last_failure = ""
        self._started = False
        self.num_restarts = 0
        self.num_nodes = 0
        """Nodes searched so far, as the engines count them."""
        try:
            for _ in range(num_processes):
                slot = _Slot(start())
                self._slots.append(slot)
                self._watch(slot)
            self._get_ready()
            self._started = True
        except BaseException:
            self.close()
            raise

    @property
    def engines(self) -> list[EngineProcess]:
        """The processes as they are now."""
        return [slot.engine for slot in self._slots]

    def run(self, blocks: Iterable[Sequence[SearchTask[T]] | None]) -> Iterator[list[T]]:
        """Drive blocks of tasks to their ends; each gives its tasks' values, in the order in which blocks end.

        Args:
            blocks: A block is taken when an engine is free, or soon will be. None says that there is nothing to do
                until another block has ended.

        Raises:
            EngineError: engines cannot be restarted. A search on which they die is a result with ``error`` set.
        """
        for slot in self._slots:
            if slot.engine.stage == "dead":  # a run that was given up left it so
                self._replace(slot)
        results: deque[tuple[_Slot, _Job, bytes | str]] = deque()
        supply = _Supply(blocks)
        ended: list[_Block] = []
        try:
            while True:
                # Engines first: what has ended is looked at by others while they search.
                ended += self._hand_out(supply)
                self._send()
                for block in ended:
                    yield block.values
                    supply.is_dry = False
                if ended:
                    ended = []
                    continue
                if not any(slot.block for slot in self._slots):
                    return
                if not results:
                    supply.make_ready()
                if not results or not self._all_busy():
                    results.extend(self._collect(block=not results))
                    self._send()
                if results:
                    ended += self._proceed(*results.popleft())
        finally:
            for slot in self._slots:
                slot.block, slot.num_unread = None, 0
                slot.chosen.clear()
                if slot.engine.num_sent:
                    self._forget(slot)
                    slot.engine.kill()

    def close(self) -> None:
        """Kill every engine; safe to call twice."""
        for slot in self._slots:
            self._forget(slot)
            slot.engine.kill()
        self._slots.clear()
        self._selector.close()

    def _get_ready(self) -> None:
        """Wait for every engine to say that it is ready; say for whom where that takes long."""
        start = time.monotonic()
        said = False
        while waiting := [slot.engine for slot in self._slots if slot.engine.stage != "idle"]:
            patience = float("inf") if said else start + SILENT_S
            deque(self._wait(block=True, until=patience), maxlen=0)
            if not said and time.monotonic() >= patience and waiting[0].stage != "idle":
                said = True
                logging.getLogger(__name__).warning("%s", waiting[0].awaited())

    def _hand_out(self, supply: _Supply) -> list[_Block]:
        """Give blocks to engines without one, up to a block that asks for nothing, which is then given back."""
        for slot in self._slots:
            if slot.block is None and (block := supply.take()):
                if not block.num_left:
                    return [block]
                slot.block, slot.is_fresh = block, True
                slot.choose()
        return []

    def _proceed(self, slot: _Slot, job: _Job, output: bytes | str) -> list[_Block]:
        """Let a task go on with the output of its search, or why there is none; the block, where that ended it."""
        result = SearchResult(error=output) if isinstance(output, str) else parse_search(output, slot.engine.dialect)
        self.num_nodes += result.num_nodes
        block = slot.block
        assert block is not None
        slot.num_unread -= 1
        try:
            block.queue.appendleft(_Job(job.index, job.task, job.task.send(result)))
        except StopIteration as stop:
            block.values[job.index] = stop.value
            block.num_left -= 1
            if not block.num_left:
                slot.block = None
                return [block]
        slot.choose()
        return []

    def _all_busy(self) -> bool:
        """Whether every engine has its next search queued."""
        return all(slot.engine.num_sent >= AHEAD for slot in self._slots if slot.block)

    def _collect(self, *, block: bool) -> Iterator[tuple[_Slot, _Job, bytes | str]]:
        """The searches that ended. One that failed stays the first of those chosen, up to three times."""
        for slot, output in self._wait(block=block):
            if output is None:
                job = slot.chosen[0]
                job.num_failures += 1
                if job.num_failures < self._attempts:
                    continue
            often = f"the engine failed {self._attempts} times; " if self._attempts > 1 else ""
            failure = f"{often}{self._last_failure}"
            slot.num_unread += 1
            yield slot, slot.chosen.popleft(), failure if output is None else output

    def _send(self) -> None:
        for slot in self._slots:
            engine = slot.engine
            while engine.num_sent < len(slot.chosen) and engine.takes(slot.chosen[engine.num_sent].search):
                try:
                    engine.begin(slot.chosen[engine.num_sent].search, fresh=slot.is_fresh)
                    slot.is_fresh = False
                except EngineDiedError as error:
                    if not engine.num_sent:  # it died with nothing to do, which says nothing of the search
                        self._restart(slot, error, idle=True)
                    break  # else its output says what became of the running search

    def _nap_s(self) -> float:
        """How long to sleep without leaving an engine idle."""
        busy = [slot.engine for slot in self._slots if slot.block]
        if not busy or not all(engine.num_sent for engine in busy):
            return 0.0
        nap = min(engine.quiet_s() for engine in busy)
        return 0.0 if nap < SHORTEST_NAP_S else min(nap, LONGEST_NAP_S)

    def _wait(self, *, block: bool, until: float = float("inf")) -> Iterator[tuple[_Slot, bytes | None]]:
        """Serve what the engines printed; the output of each search that ended, None for one that failed."""
        timeout = 0.0
        if block:
            if nap := self._nap_s():
                time.sleep(nap)
            timeout = max(0.0, min(until, *(slot.engine.deadline for slot in self._slots)) - time.monotonic())
        for key, _ in self._selector.select(None if timeout == float("inf") else timeout):
            slot, is_output = key.data
            if key.fd not in (slot.engine.stdout, slot.engine.stderr) or slot.engine.stage == "dead":
                continue  # replaced a moment ago
            if not is_output:
                if not slot.engine.read_complaints():
                    self._selector.unregister(key.fd)
                continue
            try:
                outputs = slot.engine.read()
            except EngineDiedError as error:
                yield from self._failed(slot, error)
                continue
            for output in outputs:
                slot.num_idle_deaths = 0
                yield slot, output
        now = time.monotonic()
        for slot in self._slots:
            if slot.engine.deadline <= now:
                yield from self._failed(slot, slot.engine.expired())

    def _failed(self, slot: _Slot, error: EngineDiedError) -> Iterator[tuple[_Slot, None]]:
        self._last_failure = str(error)
        was_searching = slot.engine.num_sent > 0
        self._restart(slot, error, idle=not was_searching)
        if was_searching:
            yield slot, None

    def _restart(self, slot: _Slot, error: EngineDiedError, *, idle: bool) -> None:
        slot.num_idle_deaths += idle
        if idle and (not self._started or slot.num_idle_deaths >= MAX_ATTEMPTS):
            raise EngineError(f"{error}; is it an engine, and can it find its files?") from error
        self.num_restarts += 1
        self._replace(slot)
        if idle and self._attempts == 1:
            raise EngineError(f"{error}, before it was asked again") from error

    def _replace(self, slot: _Slot) -> None:
        self._forget(slot)
        slot.engine.kill()
        slot.engine = self._start()
        self._watch(slot)

    def _watch(self, slot: _Slot) -> None:
        self._selector.register(slot.engine.stdout, selectors.EVENT_READ, (slot, True))
        self._selector.register(slot.engine.stderr, selectors.EVENT_READ, (slot, False))

    def _forget(self, slot: _Slot) -> None:
        watched = {key.fd for key in self._selector.get_map().values()} if self._selector.get_map() else set()
        for fd in {slot.engine.stdout, slot.engine.stderr} & watched:
            self._selector.unregister(fd)
