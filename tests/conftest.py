"""For all tests."""

import signal


def pytest_configure() -> None:
    """Let signals through that a shell in the background or nohup ignores: so would all that tests interrupt."""
    for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)  # there is no SIGHUP on Windows
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
