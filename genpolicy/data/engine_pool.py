"""Several engine processes that stay busy: blocks of tasks ask for searches, an engine that is free takes a block.

A task is a generator that yields a ``Search``, is sent its ``SearchResult``, and returns a value. The tasks of a block
share one engine, from an empty hash table on; their searches wait in one queue, first come, first served. The order of
the searches, and with it every answer, therefore depends on the block alone, not on time or on other engines. One
thread serves all engines: an engine that ends a search gets the next one before the result of the last is looked at.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from genpolicy.data.engine_process import EngineDiedError, EngineProcess, Search, SearchResult
from genpolicy.errors import EngineError

T = TypeVar("T")
SearchTask = Generator[Search, SearchResult, T]
MAX_ATTEMPTS = 3
"""An engine that dies or hangs so often on one search leaves it without a result."""


@dataclass(eq=False)
class _Job:
    index: int
    """Of the task in its block."""
    task: SearchTask[Any]
    search: Search
    num_failures: int = 0


@dataclass(eq=False)
class _Slot:
    engine: EngineProcess
    job: _Job | None = None
    """The search that runs."""
    queue: deque[_Job] = field(default_factory=deque)
    values: list[Any] = field(default_factory=list)
    """What the tasks of the block returned."""
    num_left: int = 0
    """Tasks of the block that have not ended; 0: no block."""
    is_fresh: bool = False
    """The block's first search is to come."""
    num_idle_deaths: int = 0
    """Deaths in a row while it started or had nothing to do."""


class EnginePool:
    """Engine processes that are started together, restarted when they die, and killed in the end.

    Args:
        start: Makes one more engine process.
        num_processes: How many run side by side.

    Raises:
        EngineError: an engine cannot be started, or is none.
    """

    def __init__(self, start: Callable[[], EngineProcess], num_processes: int) -> None:
        self._start = start
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
            while any(slot.engine.stage != "idle" for slot in self._slots):
                deque(self._wait(block=True), maxlen=0)
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
            blocks: A block is taken when an engine is free. None says that there is nothing to do until another block
                has ended.

        Raises:
            EngineError: engines cannot be restarted. A search on which they die is a result with ``error`` set.
        """
        for slot in self._slots:
            if slot.engine.stage == "dead":  # a run that was given up left it so
                self._replace(slot)
        results: deque[tuple[_Slot, _Job, SearchResult]] = deque()
        source = iter(blocks)
        exhausted = False
        try:
            while True:
                while not exhausted and (free := next((s for s in self._slots if not s.num_left), None)):
                    try:
                        block = next(source)
                    except StopIteration:
                        exhausted = True
                        break
                    if block is None:
                        break
                    if not self._begin(free, block):
                        yield free.values
                if not any(slot.num_left for slot in self._slots):
                    return
                self._dispatch()
                for slot, job, result in self._collect(block=not results):
                    results.append((slot, job, result))
                    self._dispatch()
                if results:
                    slot, job, result = results.popleft()
                    try:
                        slot.queue.append(_Job(job.index, job.task, job.task.send(result)))
                    except StopIteration as stop:
                        slot.values[job.index] = stop.value
                        slot.num_left -= 1
                        if not slot.num_left:
                            yield slot.values
        finally:
            for slot in self._slots:
                slot.num_left = 0
                slot.queue.clear()
                if slot.job is not None:
                    slot.job = None
                    self._forget(slot)
                    slot.engine.kill()

    @staticmethod
    def _begin(slot: _Slot, block: Sequence[SearchTask[Any]]) -> bool:
        """Hand a block to a slot; False where none of its tasks asks for anything."""
        slot.values, slot.num_left, slot.is_fresh = [None] * len(block), 0, True
        for index, task in enumerate(block):
            try:
                slot.queue.append(_Job(index, task, next(task)))
                slot.num_left += 1
            except StopIteration as stop:
                slot.values[index] = stop.value
        return slot.num_left > 0

    def _collect(self, *, block: bool) -> Iterator[tuple[_Slot, _Job, SearchResult]]:
        """The searches that ended; those that failed wait again, up to three times."""
        for slot, result in self._wait(block=block):
            job, slot.job = slot.job, None
            assert job is not None
            if result is None:
                job.num_failures += 1
                if job.num_failures < MAX_ATTEMPTS:
                    slot.queue.appendleft(job)
                    continue
                result = SearchResult(error=f"the engine failed {MAX_ATTEMPTS} times; {self._last_failure}")
            yield slot, job, result

    def close(self) -> None:
        """Kill every engine; safe to call twice."""
        for slot in self._slots:
            self._forget(slot)
            slot.engine.kill()
        self._slots.clear()
        self._selector.close()

    def _dispatch(self) -> None:
        for slot in self._slots:
            if slot.queue and slot.job is None and slot.engine.stage == "idle":
                job = slot.job = slot.queue.popleft()
                try:
                    slot.engine.begin(job.search, fresh=slot.is_fresh)
                    slot.is_fresh = False
                except EngineDiedError as error:
                    # It died with nothing to do, which says nothing of the search.
                    slot.queue.appendleft(job)
                    slot.job = None
                    self._restart(slot, error, idle=True)

    def _wait(self, *, block: bool) -> Iterator[tuple[_Slot, SearchResult | None]]:
        """Serve what the engines printed; a result for each search that ended, None for one that failed."""
        now = time.monotonic()
        timeout = max(0.0, min(slot.engine.deadline for slot in self._slots) - now) if block else 0.0
        for key, _ in self._selector.select(None if timeout == float("inf") else timeout):
            slot, is_output = key.data
            if key.fd not in (slot.engine.stdout, slot.engine.stderr) or slot.engine.stage == "dead":
                continue  # replaced a moment ago
            if not is_output:
                if not slot.engine.read_complaints():
                    self._selector.unregister(key.fd)
                continue
            try:
                result = slot.engine.read()
            except EngineDiedError as error:
                yield from self._failed(slot, error)
                continue
            if result is not None:
                slot.num_idle_deaths = 0
                self.num_nodes += result.num_nodes
                yield slot, result
        now = time.monotonic()
        for slot in self._slots:
            if slot.engine.deadline <= now:
                yield from self._failed(slot, slot.engine.expired())

    def _failed(self, slot: _Slot, error: EngineDiedError) -> Iterator[tuple[_Slot, None]]:
        self._last_failure = str(error)
        self._restart(slot, error, idle=slot.job is None)
        if slot.job is not None:
            yield slot, None

    def _restart(self, slot: _Slot, error: EngineDiedError, *, idle: bool) -> None:
        slot.num_idle_deaths += idle
        if idle and (not self._started or slot.num_idle_deaths >= MAX_ATTEMPTS):
            raise EngineError(f"{error}; is it an engine, and do its files lie where it looks for them?") from error
        self.num_restarts += 1
        self._replace(slot)

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
