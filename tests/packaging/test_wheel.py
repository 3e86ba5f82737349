"""The wheel, installed into a new environment, does what the README shows, in a folder that is not the checkout.

Its dependencies are those of the running environment. Training is cut to a few records.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK = ["trainer.max_records=64", "trainer.device=cpu", "trainer.eval_records=8", "trainer.accuracy_records=8"]
GAMES = ["f3 e5 g4", "f4 e5 g4", "f3 e6 g4", "f4 e6 g4", "g4 e5 f3", "g4 e5 f4", "g4 e6 f3", "g4 e6 f4"]
"""Fool's mate, but for ``Qh4#``."""
SHORTER = {"train": QUICK, "evaluate": ["--split", "train"]}
"""What is added to a command of the README."""

pytestmark = pytest.mark.slow


class Installed:
    """An environment that the wheel is installed in, and a folder to work in."""

    def __init__(self, home: Path, wheel: Path) -> None:
        venv.create(home / "env", with_pip=False)
        python = home / "env/bin/python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*pip, str(wheel)], check=True)
        ours = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (self.packages,) = (home / "env/lib").glob("python*/site-packages")
        (self.packages / "zz_dependencies.pth").write_text("\n".join(ours) + "\n")
        self.command = str(home / "env/bin/genpolicy")
        self.work = home / "elsewhere"
        self.work.mkdir()
        unwanted = ("PYTHONPATH", "VIRTUAL_ENV")
        self.environ = {key: value for key, value in os.environ.items() if key not in unwanted}
        self.environ |= {"XDG_CACHE_HOME": str(home / "cache"), "OMP_NUM_THREADS": "1"}

    def run(self, *words: str, text: str | None = None) -> str:
        """Standard output of a command of genpolicy."""
        done = subprocess.run(
            [self.command, *words], cwd=self.work, env=self.environ, input=text, capture_output=True, text=True
        )
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    pytest.importorskip("hatchling")
    pytest.importorskip("pip")
    home = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    return Installed(home, wheel)


def test_it_is_not_the_checkout(installed: Installed) -> None:
    places = installed.work / "places.py"
    places.write_text("import genpolicy, genpolicy_chess as c, genpolicy_play as p\nprint(genpolicy.__file__, c, p)\n")
    python = Path(installed.command).with_name("python")
    shown = subprocess.run([python, places], env=installed.environ, capture_output=True, text=True, check=True).stdout
    assert shown.count(str(installed.packages)) == 3
    assert str(ROOT) not in shown


def test_every_configuration_is_found_and_printed(installed: Installed) -> None:
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        name = path.relative_to(ROOT / "configs").as_posix().removesuffix(".yaml")
        if path.parent.name in ("chess", "shogi"):
            assert installed.run("configs", name) == path.read_text()


def test_the_demo_is_planned_for_both_games(installed: Installed) -> None:
    for game, budget in (("chess", "max_records=20000"), ("shogi", "max_records=15000")):
        planned = installed.run("demo", "--game", game, "--out", "here", "--plan")
        assert f"genpolicy train --config {game}/demo-imagine trainer.{budget}" in planned
        assert "--out here/imagine" in planned


def test_the_demo_and_the_board_on_which_its_policy_plays(installed: Installed) -> None:
    steps = installed.packages / "genpolicy/configs/chess/demo-steps.yml"
    steps.write_text(re.sub(r"--limit \d+", "--limit 8", steps.read_text()))  # minutes of evaluation
    shown = installed.run("demo", *QUICK)
    assert "genpolicy web --policy runs/demo/imagine/policy --open" in shown
    assert (installed.work / "runs/demo/accuracy.json").is_file()
    (line,) = (words for words in readme_commands() if words[0] == "web")
    with serving(installed, [word for word in line if word != "--open"]) as address:
        assert "<html" in urllib.request.urlopen(address, timeout=60).read().decode().lower()


def test_the_readmes_commands_for_your_own_data(installed: Installed) -> None:
    mates = [
        f'[Result "0-1"]\n\n1. {" ".join(moves.split()[:2])} 2. {moves.split()[2]} Qh4# 0-1\n\n' for moves in GAMES
    ]
    (installed.work / "games.pgn").write_text("".join(mates))
    lines = [words for words in readme_commands() if words[0] not in ("web", "demo")]
    assert [" ".join(words[:2]) for words in lines][:2] == ["data import", "data label"]
    for words in lines:
        if words[0] == "engine":
            assert "uciok" in installed.run(*words, text="uci\nquit\n")
            continue
        if "stockfish" in " ".join(words) and shutil.which("stockfish", path="/usr/games:/usr/bin") is None:
            words = ["alphabeta?depth=1" if word.startswith("stockfish") else word for word in words]
        installed.run(*words, *SHORTER.get(words[0], []))


def readme_commands() -> list[list[str]]:
    """The command lines of genpolicy in the README, without ``genpolicy``."""
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("genpolicy ")]


@contextlib.contextmanager
def serving(installed: Installed, words: list[str]) -> Iterator[str]:
    """The address of the web board that a command serves."""
    server = subprocess.Popen(
        [installed.command, *words, "--port", "0"],
        cwd=installed.work,
        env=installed.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        seen = []
        for line in server.stdout:
            seen.append(line)
            if found := re.search(r"http://[\w.:\[\]]+", line):
                break
        else:
            pytest.fail("".join(seen))
        yield found.group()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
