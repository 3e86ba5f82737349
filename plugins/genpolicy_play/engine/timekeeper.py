"""Makes calls when their time has come, from one thread for all of them.

A thread for each, as ``threading.Timer`` starts one, lets the caller wait until the new thread has run for the first
time: on a busy machine that is longer than a network call.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Timekeeper:
    """Starts its thread at once; the thread ends with the process.

    Args:
        failed: Is told what a call raised; the thread goes on.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()  # of calls for the same time: they cannot be compared themselves
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="time", daemon=True).start()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Make a call after so many seconds, at once for 0 or less."""
        with self._changed:
            heapq.heappush(self._calls, (time.perf_counter() + seconds, next(self._order), call))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            call = self._next()
            try:
                call()
            except Exception as error:  # one call must not take the clock from all others
                self._failed(error)

    def _next(self) -> Callable[[], None]:
        """Wait for the next call that is due."""
        with self._changed:
            while True:
                left = self._calls[0][0] - time.perf_counter() if self._calls else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(left)
