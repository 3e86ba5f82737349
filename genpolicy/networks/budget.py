"""What making a network may take, where the file of its weights sets a limit: a stranger's configuration may ask for
anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LEFT: ContextVar[list[int] | None] = ContextVar("_LEFT", default=None)


@contextmanager
def budget(numbers: int) -> Iterator[None]:
    """Inside, in this thread, ``take`` grants this many numbers and no more."""
    token = _LEFT.set([numbers])
    try:
        yield
    finally:
        _LEFT.reset(token)


def take(numbers: int, what: str) -> None:
    """Called before (or as) something of this size is made; outside ``budget`` all is granted.

    Raises:
        MemoryError: it is more than is left.
    """
    if (left := _LEFT.get()) is None:
        return
    left[0] -= numbers
    if left[0] < 0:
        raise MemoryError(what)
