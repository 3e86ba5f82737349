"""A server of the web board and a browser, once for all tests of the page; they skip where either is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.hookimpl(tryfirst=True)  # before the hook of xdist that reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the browser run one after another, on one worker: several would start one each."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium that is installed here; none is downloaded."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'genpolicy[browser]')")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs a browser on the PATH: {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as playwright:
        # Containers lack the kernel features that Chromium's sandbox wants; the only page it opens is ours.
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def web_address(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a ``genpolicy web`` in a process of its own, with small policies for the three games."""
    pytest.importorskip("starlette", reason="needs the extra [web]")
    pytest.importorskip("uvicorn", reason="needs the extra [web]")
    from tests.play.web_policies import arguments

    log = tmp_path_factory.mktemp("web") / "log.txt"
    command = [sys.executable, "-m", "genpolicy", "web", "--port", "0", *arguments(tmp_path_factory.mktemp("policies"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as errors:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        yield _address(server, log)
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


def _address(server: subprocess.Popen[str], log: Path) -> str:
    """The address that the server prints; it answers there."""
    assert server.stdout is not None
    for line in server.stdout:
        found = next((word for word in line.split() if word.startswith("http://127.0.0.1:")), None)
        if found:
            address = found.rstrip(".,/") + "/"
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert answer.status == 200
            return address
    raise AssertionError(f"genpolicy web ended without an address:\n{log.read_text()}")
