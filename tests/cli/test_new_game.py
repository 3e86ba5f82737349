"""``genpolicy new-game`` writes a package that passes its own test and can be trained on."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from genpolicy.cli import main
from genpolicy_common.new_game import write

pytestmark = pytest.mark.usefixtures("warm_start")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new game, installed as ``pip install -e`` would install it."""
    monkeypatch.chdir(tmp_path)
    assert main(["new-game", "tiny_pawns"]) == 0
    folder = tmp_path / "genpolicy-tiny_pawns"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / "genpolicy_tiny_pawns-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    ((group, points),) = project["entry-points"].items()
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (info / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")
    return folder


def run(package: Path, *words: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=package, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_passes_its_own_test(package: Path) -> None:
    assert "1 passed" in run(package, "pytest", "-q", "-p", "no:cacheprovider", "tests")
    written = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert not any("mygame" in str(path) + path.read_text().lower() for path in written)
    tokens = runpy.run_path(str(package / "genpolicy_tiny_pawns/game.py"))["TinyPawnsTokens"]()
    assert tokens.turned is not None  # a search in the imagination needs it
    assert "class TinyPawnsTokens" in (package / "genpolicy_tiny_pawns/game.py").read_text()
    assert "genpolicy demo --game tiny_pawns" in (package / "README.md").read_text()


@pytest.mark.slow
def test_its_demo_trains_and_plays(package: Path) -> None:
    shown = run(package, "genpolicy", "demo", "--game", "tiny_pawns", "trainer.max_records=128", "trainer.device=cpu")
    assert "runs/demo-tiny_pawns/s-asa/policy" in shown
    assert (package / "runs/demo-tiny_pawns/s-a/policy/model.safetensors").is_file()


@pytest.mark.parametrize("name", ["Othello", "2048", "go-9", "", "class", "../x"])
def test_a_name_must_be_one_of_a_module(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be a game's name"):
        write(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_game_and_a_folder_that_exist_are_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is a game 'chess' already"):
        write("chess", tmp_path / "new")
    (tmp_path / "mine").write_text("work")
    for folder in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ValueError, match="not empty; name a new folder"):
            write("othello", folder)
    assert (tmp_path / "mine").read_text() == "work"
