"""The engine as a process: its standard output, its garbage collector, and calls at set times."""

from __future__ import annotations

import gc
import heapq
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable

IDLE_S = 1.0
"""Without a task for so long, the engine may use the pause to collect garbage."""
NUM_NEW = 500_000
"""Objects since the last collection that make one worth its pause."""
NUM_TOO_MANY = 20 * NUM_NEW
"""The same where no pause comes: they take some gigabytes."""


class ClosedOutputError(ConnectionError):
    """Nobody reads the output any more."""


class Output:
    """Writes whole lines, each in one piece, from any thread.

    Args:
        descriptor: File descriptor that the lines go to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    @classmethod
    def claim(cls) -> Output:
        """Reserve standard output for the protocol.

        What anything else prints there, from Python or from C, goes to standard error from now on.
        """
        sys.stdout.flush()
        descriptor = os.dup(1)
        os.dup2(2, 1)
        return cls(descriptor)

    def send(self, *lines: str) -> None:
        """Write lines.

        Raises:
            ClosedOutputError: nobody reads them.
        """
        data = "".join(f"{_printable(line)}\n" for line in lines).encode()
        with self._lock:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except (BrokenPipeError, ConnectionResetError) as error:
                    raise ClosedOutputError("standard output was closed") from error


def _printable(line: str) -> str:
    """A line without characters that would break it: GUIs read ASCII, one line at a time."""
    return "".join(c if " " <= c <= "~" else "?" for c in line)


# A full garbage collection visits every object: about 0.25 s once torch is imported, and as much again beside a tree of
# 40,000 positions. It stops every thread, including the one that has to answer in time. The policies of this project
# leave no reference cycles behind, so a collection frees hardly anything; it runs while the engine waits for its GUI.


def pause_garbage_collection() -> None:
    """Run no collection but those of ``collect_garbage`` from now on."""
    gc.disable()


def keep_all_objects() -> None:
    """Exclude every present object from future collections: what has been loaded stays."""
    gc.freeze()


def collect_garbage(*, idle: bool) -> None:
    """Run a collection if it is worth its pause.

    Args:
        idle: Whether the engine waits for its GUI. If not, only a very large amount of garbage is collected.
    """
    if gc.get_count()[0] >= (NUM_NEW if idle else NUM_TOO_MANY):
        gc.collect()


class Timekeeper:
    """Makes calls at set times, all from one thread, which starts at once and ends with ``close`` or the process.

    ``threading.Timer`` starts a thread for each call and waits until that thread has run for the first time: on a busy
    machine this takes longer than a network call.

    Args:
        on_error: Receives an exception that a call raises; the later calls are made all the same.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()  # breaks ties between equal times: the calls themselves cannot be compared
        self._changed = threading.Condition()
        self._is_closed = False
        threading.Thread(target=self._run, name="time", daemon=True).start()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Make a call after so many seconds, or at once for 0 or less."""
        with self._changed:
            heapq.heappush(self._calls, (time.perf_counter() + seconds, next(self._order), call))
            self._changed.notify()

    def close(self) -> None:
        """Drop the calls that are not due yet and end the thread; safe to call twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (call := self._wait_for_next()) is not None:
            try:
                call()
            except Exception as error:  # one failing call must not end the thread that all others need
                self._on_error(error)

    def _wait_for_next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._is_closed:
                left = self._calls[0][0] - time.perf_counter() if self._calls else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(left)
        return None
