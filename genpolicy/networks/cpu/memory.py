"""Memory of an update that glibc keeps for the next one instead of giving it back to the system.

An update allocates and frees the same large tensors as the one before. From 32 MB on, glibc maps each of them anew and
unmaps it afterwards, so each time the system clears all of its pages, which takes longer than many operations on them.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MAX_MAPPED = -1, -4
"""Names of mallopt(3), from ``malloc.h``: free bytes at the heap's end that are given back; blocks mapped alone."""
NEVER = -1


def keep_freed_memory() -> bool:
    """Let this process keep what it frees; returns whether that is possible here (Linux with glibc).

    It never has more than it had at the fullest moment, apart from gaps between blocks, and computes the same bits. The
    environment variables ``MALLOC_TRIM_THRESHOLD_`` and ``MALLOC_MMAP_MAX_`` have no effect after it.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and bool(mallopt(MAX_MAPPED, 0)) and bool(mallopt(TRIM_THRESHOLD, NEVER))
