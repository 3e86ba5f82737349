"""For all tests."""

import gc
import random
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests import warm


def pytest_configure() -> None:
    """Let signals through that a shell in the background or nohup ignores: so would all that tests interrupt."""
    for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)  # there is no SIGHUP on Windows
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark all but every n-th case of a test that is ``sampled(n)`` as thorough, those that are already left out.

    An n without a common factor with the number of values of the last ``parametrize`` lets each of them take its turn.
    """
    seen: Counter[str] = Counter()
    for item in items:
        if (marker := item.get_closest_marker("sampled")) and not item.get_closest_marker("thorough"):
            name = item.nodeid.partition("[")[0]
            if seen[name] % marker.args[0]:
                item.add_marker("thorough")
            seen[name] += 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what lives until the end, half a million objects, out of every search for garbage: a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """A fixture draws the same numbers whichever test asks for it first."""
    _seed(f"{fixturedef.baseid}::{fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """A test draws the same numbers (weights, above all) whatever ran before it in its worker."""
    _seed(item.nodeid)


def _seed(name: str) -> None:
    seed = zlib.crc32(name.encode())
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].random.default_generator.manual_seed(seed)


@pytest.fixture
def warm_start() -> Iterator[None]:
    """Python programs that the test starts, by itself or through the library, have torch imported already."""
    with warm.starts():
        yield


@pytest.fixture
def cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python programs that the test starts begin as a user's do, in a module whose others are warm."""
    monkeypatch.setenv(warm.COLD, "1")
