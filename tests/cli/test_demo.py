"""``genpolicy demo``: its steps are the command lines of a file, run one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from genpolicy.cli import main
from genpolicy.config import compose
from genpolicy_common.demo import Demo, command_lines, side_by_side, steps_file

pytestmark = pytest.mark.usefixtures("warm_start")

FILE = """\
steps:
  - data info sample:chess --json {out}/info.json
  - train --config chess/demo --print-config
if_installed: {no-such-program: perft --game nothing}
next: "Now look into {out}.\\n"
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A demo of two quick steps, in place of that of chess."""
    file = tmp_path / "demo-steps.yml"
    file.write_text(FILE)
    monkeypatch.setattr("genpolicy_common.demo.steps_file", lambda game: file)
    monkeypatch.chdir(tmp_path)
    return file


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genpolicy_common.demo.num_cores", lambda: 2)


@pytest.mark.parametrize("game", ["chess", "shogi"])
def test_the_steps_of_a_shipped_demo_are_command_lines(game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path: program)
    demo = compose(Demo, [steps_file(game)])
    lines = list(command_lines(demo, "here", ["trainer.seed=3", "trainer.max_minutes=1"]))
    assert len(lines) == len(demo.steps) + len(demo.if_installed)
    trained = [line[line.index("--out") + 1] for line in lines if line[0] == "train"]
    for line in lines:
        assert ("trainer.seed=3" in line) == (line[0] == "train")
        assert not any("{" in word for word in line)
        assert [word for word in line if "max_minutes" in word] == ["trainer.max_minutes=1"] * (line[0] == "train")
        assert all(word.rpartition("/")[0] in trained for word in line if word.endswith("/policy"))
    for line in demo.next.splitlines()[1:]:
        assert "{out}" in line or "genpolicy" in line or "docs/" in line


def test_it_runs_every_step_and_says_what_is_next(steps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", "a folder", "trainer.max_records=64"]) == 0
    shown = capfd.readouterr().out
    assert "$ genpolicy data info sample:chess --json 'a folder/info.json'" in shown
    assert "max_records: 64" in shown
    assert shown.endswith("Now look into a folder.\n")
    assert Path("a folder/info.json").is_file()


def test_the_plan_is_only_printed(steps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--plan"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "genpolicy data info sample:chess --json runs/demo/info.json",
        "genpolicy train --config chess/demo --print-config",
    ]
    assert not Path("runs").exists()


def test_a_step_that_fails_ends_it(steps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    steps.write_text("steps: [data info sample:go, data info sample:chess]\n")
    assert main(["demo"]) == 2
    shown, errors = capfd.readouterr()
    assert "no such sample" in errors
    assert "stopped, exit status 2, at: genpolicy data info sample:go" in errors
    assert "sample:chess" not in shown


def test_neighbouring_trainings_run_side_by_side() -> None:
    info, train, play = ["data", "info"], ["train"], ["play"]
    steps = [info, train, train, train, play, train, play, play]
    sizes = {cores: [len(group) for group in side_by_side(steps, cores)] for cores in (1, 2, 8)}
    assert sizes == {1: [1] * 8, 2: [1, 2, 1, 1, 1, 1, 1], 8: [1, 3, 1, 1, 1, 1]}


def test_what_runs_at_the_same_time_is_shown_in_order(
    steps: Path, two_cores: None, capfd: pytest.CaptureFixture[str]
) -> None:
    prints = "train --config chess/demo --print-config"
    steps.write_text(f"steps: [{prints} trainer.seed=1, {prints} trainer.seed=2, data info sample:chess]\n")
    assert main(["demo"]) == 0
    shown = capfd.readouterr().out
    parts = ["seed=1 &\n$ genpolicy train", "seed=2\n", "seed: 1\n", "seed: 2\n", "$ genpolicy data info"]
    assert sorted(parts, key=shown.index) == parts


def test_a_training_that_fails_ends_the_one_beside_it(
    steps: Path, two_cores: None, capfd: pytest.CaptureFixture[str]
) -> None:
    long = "train --config chess/demo trainer.max_minutes=60 --out long"
    steps.write_text(f"steps: [train --config no-such, {long}, data info sample:chess]\n")
    assert main(["demo"]) == 2
    shown, errors = capfd.readouterr()
    assert "stopped, exit status 2, at: genpolicy train --config no-such" in errors
    assert "$ genpolicy data info" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--game", "shoogi"], "no demo of 'shoogi'. Did you mean: 'shogi'? There are: chess, shogi"),
        (["--game", "connect"], "no demo of 'connect'. There are: chess, shogi"),
        (["shogi"], "another game is --game shogi"),
    ],
)
def test_what_cannot_be_shown_is_said(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)])
def test_a_signal_ends_the_step_and_the_demo(
    number: signal.Signals, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    """A terminal sends Ctrl-C to all processes; SIGTERM came to the demo alone, and its training went on."""
    words = [sys.executable, "-m", "genpolicy", "demo", "--out", str(tmp_path), "trainer.max_minutes=10"]
    demo = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=tmp_path
    )
    try:
        while not (tmp_path / "s-a/metrics.jsonl").exists():  # it trains
            assert demo.poll() is None
            time.sleep(0.1)
        send(demo.pid, number)
        shown, _ = demo.communicate(timeout=120)
    finally:
        demo.kill()
    assert demo.returncode == 128 + number
    assert f"stopped, exit status {128 + number}, at: genpolicy train --config chess/demo-s-a" in shown
    assert "chess/demo --out" not in shown
