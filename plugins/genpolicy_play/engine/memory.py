"""Keeps Python's cyclic garbage collector out of searches.

A full collection looks at every object there is: some 0.25 s after torch is imported, and as much again beside a tree
of 40,000 positions. It stops every thread, the one that answers in time among them. The policies of this project leave
no cycles behind, so it has hardly anything to find; it runs when the engine waits for its GUI anyway.
"""

from __future__ import annotations

import gc

IDLE_S = 1.0  # without a task, after which a pause may be used
NUM_NEW = 500_000  # objects since the last collection that make one worth its pause
NUM_TOO_MANY = 20 * NUM_NEW  # the same where no pause comes: some gigabytes


def hold() -> None:
    """Collect nothing by itself from now on."""
    gc.disable()


def settle() -> None:
    """Never look again at what there is now: what was loaded stays."""
    gc.freeze()


def tidy(*, idle: bool) -> None:
    """Collect what has gathered, if it is much, or if it is very much and nobody is idle."""
    if gc.get_count()[0] >= (NUM_NEW if idle else NUM_TOO_MANY):
        gc.collect()
