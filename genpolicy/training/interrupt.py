"""Ctrl-C, SIGTERM and a hung-up terminal (SIGHUP) as a wish to stop after the present update."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Wish:
    """Which signal asked to stop, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None


@contextmanager
def wished() -> Iterator[Wish]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP is only noted; the second one acts as it always does."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish  # only the main thread may handle signals
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    # What the parent has us ignore (nohup, a shell's background job) stays ignored.
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        wish.signal = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
