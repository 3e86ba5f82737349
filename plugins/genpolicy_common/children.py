"""Processes that end with the one that started them, and leave Ctrl-C to it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


def follow_parent(parent: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """End this process when the one that started it is gone, as after a SIGKILL.

    Args:
        parent: Id of that process, which this one could not find out if the other ended before.
        is_wanted: Whether its work is still wanted, by other signs.
    """

    started_by = multiprocessing.parent_process()  # Windows keeps the id of a parent that has ended

    def watch() -> None:
        while os.getppid() == parent and (started_by is None or started_by.is_alive()) and is_wanted():
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Processes that are started inside do not get Ctrl-C, not even while they import; this one gets it afterwards.

    A terminal sends it to all processes of a command, and one that does not expect it prints a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield  # Windows
        return
    resource_tracker.ensure_running()  # multiprocessing starts it with the first process, and then unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
