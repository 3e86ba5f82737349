"""What a second Ctrl-C does: end the process at once, also in the middle of a long call of torch."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

STOPPING = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)}
FIRST = "stopping after this update; again to stop at once"
SECOND = "stopped at once; --resume continues from the last checkpoint, if there is one"


@contextmanager
def second_signal_stops() -> Iterator[None]:
    """Inside, say what the first signal to the training loop asks for, and end the process at the second one.

    Python runs its handlers between two of its own instructions, and an update may spend minutes within one. The
    system's part of the handler, however, writes to a descriptor at once, which a thread reads here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)  # Python asks for that
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    outside = {number: signal.getsignal(number) for number in STOPPING}
    thread = threading.Thread(target=_watch, args=(reader, outside), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.close()
        thread.join()
        reader.close()


def _watch(reader: socket.socket, outside: Mapping[int, object]) -> None:
    """Read the numbers of signals, one byte each, until the other end is closed.

    Args:
        reader: That end.
        outside: The handlers of ``STOPPING`` outside the training loop.
    """
    noted = False
    while received := reader.recv(1):
        number = received[0]
        if number not in STOPPING or (not noted and signal.getsignal(number) == outside[number]):
            continue  # before the training loop has begun, and after its end, the first signal ends the work as always
        if noted:
            _say(SECOND)
            os._exit(128 + number)
        noted = True
        _say(FIRST)


def _say(text: str) -> None:
    """Print a line on stderr, from the first of the processes that torchrun or accelerate launch started."""
    if os.environ.get("RANK", "0") == "0":
        shown = "\033[?25h" if sys.stderr.isatty() else ""  # a progress bar hides the cursor
        with suppress(OSError):  # a terminal that was closed
            os.write(2, f"\n{shown}genpolicy: {text}\n".encode())
