"""For all tests."""

import signal


def pytest_configure() -> None:
    """Let SIGINT through: what a shell starts in the background ignores it, and so would all that tests interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
