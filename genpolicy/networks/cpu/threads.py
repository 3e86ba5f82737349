"""Runs work on the rows of a batch in as many threads as torch uses, each thread with rows of its own.

When torch itself splits a loop of small operations over its threads, they meet after each operation, and on a machine
with other work every meeting waits for the slowest. Here the threads meet once, at the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import torch

ResultT = TypeVar("ResultT")

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
"""By process (threads do not survive a fork) and number of threads."""


def _pool(num_threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), num_threads)
    if key not in _pools:
        all_started = threading.Barrier(num_threads)

        def work_alone() -> None:
            # torch sets the number of threads on a thread's first use, which must not come after our setting.
            torch.get_num_threads()
            torch.set_num_threads(1)
            all_started.wait()

        pool = ThreadPoolExecutor(num_threads, "genpolicy")
        for started in [pool.submit(work_alone) for _ in range(num_threads)]:
            started.result()
        torch.set_num_threads(num_threads)  # a thread that starts later takes over the last number that was set
        _pools[key] = pool
    return _pools[key]


def in_parallel(work: Callable[[range], ResultT], num_rows: int) -> list[ResultT]:
    """The results of ``work`` on ranges that together are 0 .. num_rows - 1, in order.

    The ranges depend on ``num_rows`` and ``torch.get_num_threads()`` alone, so results are reproducible. ``work`` runs
    without gradients and must not draw from a shared generator.
    """
    num_threads = min(torch.get_num_threads(), num_rows)
    if num_threads <= 1:
        return [work(range(num_rows))]
    bounds = [num_rows * i // num_threads for i in range(num_threads + 1)]

    def alone(rows: range) -> ResultT:
        with torch.no_grad():  # a thread has its own gradient mode
            return work(rows)

    ranges = [range(start, stop) for start, stop in pairwise(bounds)]
    return list(_pool(num_threads).map(alone, ranges))
