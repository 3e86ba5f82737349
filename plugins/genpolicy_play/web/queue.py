"""A queue of decisions for a few threads, which never work on two decisions of one policy at a time.

A policy holds seeds, trees and engines that two requests must not touch at once; different policies may run side by
side. (One executor for each policy would do the same in as many lines, but its threads would keep the process alive.)
A request can be taken back while it waits and stopped while it runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from genpolicy_play.web.requests import RequestError

MAX_WAITING = 128
MAX_SECONDS = 60.0
"""Longest time of one decision."""
MAX_RETRY_S = 60


class Cancelled(Exception):
    """The client has gone, or the server ends."""


class TookTooLong(Exception):
    """The decision ran for ``MAX_SECONDS``."""


@dataclass(eq=False)
class Job:
    """One requested decision."""

    key: Hashable
    """Jobs of one key run one after another."""
    work: Callable[[Job], None]
    """Called in a thread of the queue; it handles its own errors."""
    release: Callable[[], None] = lambda: None
    """Let the next job of the key begin; for work that has done all that must not be done at once."""
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _deadline: float | None = None

    def begin(self) -> None:
        """Count the time from now on."""
        self._deadline = time.monotonic() + MAX_SECONDS

    def cancel(self) -> None:
        """Request its end."""
        self._cancelled.set()

    def check(self) -> None:
        """End the work where it has to.

        Raises:
            Cancelled: its end was requested.
            TookTooLong: it has run for too long.
        """
        if self._cancelled.is_set():
            raise Cancelled
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TookTooLong


class DecisionQueue:
    """Runs jobs.

    Args:
        num_threads: Jobs at a time; None runs as many as there are cores, at least two.
        max_waiting: Jobs that may wait.
    """

    def __init__(self, num_threads: int | None = None, max_waiting: int = MAX_WAITING) -> None:
        self.max_waiting = max_waiting
        self._num_threads = num_threads or max(2, os.cpu_count() or 1)
        self._waiting: list[Job] = []
        self._running: dict[Hashable, Job] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._seconds = 0.5
        """Recent mean of a job's time."""
        self._threads = [
            threading.Thread(target=self._run, name=f"decide-{i}", daemon=True) for i in range(self._num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, key: Hashable, work: Callable[[Job], None]) -> Job:
        """Add a job.

        Raises:
            RequestError: too many wait (503).
        """
        with self._changed:
            if len(self._waiting) >= self.max_waiting or self._closed:
                wait = self._seconds * len(self._waiting) / self._num_threads
                raise RequestError(
                    "too many boards wait for a decision; try again in a moment",
                    503,
                    retry_after_s=max(1, min(MAX_RETRY_S, round(wait))),
                )
            job = Job(key, work)
            job.release = partial(self._release, job)
            self._waiting.append(job)
            self._changed.notify_all()
            return job

    def cancel(self, job: Job) -> None:
        """Take a job back; it ends soon where it runs."""
        job.cancel()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def close(self, timeout_s: float = 1.0) -> None:
        """Stop everything; threads that do not end within the time are daemons and end with the process."""
        with self._changed:
            self._closed = True
            for job in [*self._waiting, *self._running.values()]:
                job.cancel()
            self._waiting.clear()
            self._changed.notify_all()
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    @property
    def num_busy(self) -> int:
        """Jobs that run or wait."""
        with self._changed:
            return len(self._waiting) + len(self._running)

    @property
    def num_running(self) -> int:
        """Jobs that run."""
        with self._changed:
            return len(self._running)

    def _release(self, job: Job) -> None:
        with self._changed:
            del self._running[job.key]
            job.key = job  # no other job has it
            self._running[job.key] = job
            self._changed.notify_all()

    def _take(self) -> Job | None:
        """The first job whose key no thread works on; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                job = next((job for job in self._waiting if job.key not in self._running), None)
                if job is not None:
                    self._waiting.remove(job)
                    self._running[job.key] = job
                    return job
                self._changed.wait()
            return None

    def _run(self) -> None:
        while (job := self._take()) is not None:
            began = time.monotonic()
            job.begin()
            try:
                job.work(job)
            except Exception:  # a bug of ours belongs in the terminal, and must not end the thread
                traceback.print_exc(file=sys.stderr)
            finally:
                with self._changed:
                    del self._running[job.key]
                    self._seconds += 0.2 * (time.monotonic() - began - self._seconds)
                    self._changed.notify_all()
