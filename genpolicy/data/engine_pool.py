"""Several engine processes that stay busy: tasks ask for searches, whichever engine is free takes the next.

A task is a generator that yields a ``Search``, is sent its ``SearchResult``, and returns a value. One thread serves all
engines: an engine that ends a search gets its next one before the result of the last is looked at.
"""

from __future__ import annotations

import itertools
import selectors
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from genpolicy.data.engine_process import EngineDiedError, EngineProcess, Search, SearchResult
from genpolicy.errors import EngineError

T = TypeVar("T")
SearchTask = Generator[Search, SearchResult, T]
MAX_ATTEMPTS = 3
"""An engine that dies or hangs so often on one search leaves it without a result."""


@dataclass(eq=False)
class _Job(Generic[T]):
    task: SearchTask[T]
    search: Search
    num_failures: int = 0


@dataclass(eq=False)
class _Slot:
    engine: EngineProcess
    job: _Job[Any] | None = None
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

    def run(self, tasks: Iterable[SearchTask[T]]) -> Iterator[T]:
        """Drive the tasks to their ends; their values come in the order in which they end.

        Tasks are taken from the iterable as engines get free, a few ahead.

        Raises:
            EngineError: engines cannot be restarted. A search on which they die is a result with ``error`` set.
        """
        for slot in self._slots:
            if slot.engine.stage == "dead":  # a run that was given up left it so
                self._replace(slot)
        waiting: deque[_Job[T]] = deque()
        results: deque[tuple[_Job[T], SearchResult]] = deque()
        source = iter(tasks)
        num_active = 0
        try:
            while True:
                num_taken = 0
                for task in itertools.islice(source, max(0, 2 * len(self._slots) - num_active)):
                    num_taken += 1
                    try:
                        waiting.append(_Job(task, next(task)))
                        num_active += 1
                    except StopIteration as stop:
                        yield stop.value
                self._dispatch(waiting)
                if not num_active:
                    if not num_taken:
                        return
                    continue
                self._collect(waiting, results, block=not results)
                if results:
                    job, result = results.popleft()
                    try:
                        waiting.append(_Job(job.task, job.task.send(result)))
                    except StopIteration as stop:
                        num_active -= 1
                        yield stop.value
        finally:
            for slot in self._slots:
                if slot.job is not None:
                    slot.job = None
                    self._forget(slot)
                    slot.engine.kill()

    def _collect(self, waiting: deque[_Job[T]], results: deque[tuple[_Job[T], SearchResult]], *, block: bool) -> None:
        """Take the searches that ended, and give their engines the next ones."""
        for slot, result in self._wait(block=block):
            job, slot.job = slot.job, None
            assert job is not None
            if result is None:
                job.num_failures += 1
                if job.num_failures < MAX_ATTEMPTS:
                    waiting.appendleft(job)
                    continue
                result = SearchResult(error=f"the engine failed {MAX_ATTEMPTS} times; {self._last_failure}")
            results.append((job, result))
            self._dispatch(waiting)

    def close(self) -> None:
        """Kill every engine; safe to call twice."""
        for slot in self._slots:
            self._forget(slot)
            slot.engine.kill()
        self._slots.clear()
        self._selector.close()

    def _dispatch(self, waiting: deque[_Job[T]]) -> None:
        for slot in self._slots:
            if waiting and slot.job is None and slot.engine.stage == "idle":
                slot.job = waiting.popleft()
                try:
                    slot.engine.begin(slot.job.search)
                except EngineDiedError as error:
                    # It died with nothing to do, which says nothing of the search.
                    waiting.appendleft(slot.job)
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
