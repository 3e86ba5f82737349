import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genpolicy.errors import EngineError
from genpolicy_engines.oracle import find_engine

FAKE = Path(__file__).with_name("fake_engine.py")


@pytest.fixture
def fake_engine(tmp_path: Path) -> Callable[..., Path]:
    """Makes an engine's program that behaves as told; its logs lie beside it."""

    def make(mode: str = "good", *, sleep_s: float = 0.0) -> Path:
        folder = tmp_path / f"engine {mode}"
        folder.mkdir()
        text = FAKE.read_text()
        for old, new in (
            ('MODE = "good"', f"MODE = {mode!r}"),
            ('FOLDER = Path(".")', f"FOLDER = Path({str(folder)!r})"),
            ("SLEEP_S = 0.0", f"SLEEP_S = {sleep_s}"),
        ):
            assert old in text
            text = text.replace(old, new)
        path = folder / "engine"
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


@pytest.fixture(scope="session")
def stockfish() -> str:
    try:
        return find_engine("stockfish")
    except EngineError as error:
        pytest.skip(f"needs Stockfish: {error}")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; only root can make one."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root can mount a tiny disk")
    folder = tmp_path / "tiny"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"cannot mount a tiny disk: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)
