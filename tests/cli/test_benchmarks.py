"""``python -m benchmarks``: what it runs, skips, keeps and reports, with benchmarks made here that measure nothing."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.__main__ import FOLDER, benchmarks, main

ROOT = FOLDER.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of benchmarks, empty yet."""
    (tmp_path / "benchmarks").mkdir()
    return tmp_path / "benchmarks"


def make(folder: Path, name: str, body: str, run: str = "{}") -> None:
    start = f'"""Makes {name}."""\nimport sys\nsys.path.insert(0, {str(FOLDER)!r})\nRUN = {run}\n'
    (folder / f"{name}.py").write_text(start + textwrap.dedent(body))


def test_the_list_names_every_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scripts = {each.stem for each in FOLDER.glob("*.py") if "def main(" in each.read_text()} - {"__main__"}
    assert {line.split()[0] for line in lines if not line.startswith(" ")} == scripts
    assert {"paired", "pairs", "with_history"} <= {b.name for b in benchmarks(FOLDER).values() if b.excluded}
    assert "policies" in lines[lines.index(next(line for line in lines if line.startswith("paired "))) + 1]


def test_ratios_reach_the_file_and_a_crash_does_not_stop_the_others(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make(folder, "a_crash", "from ratios import rate\nrate('kept', [1, 2], 'games/s')\nraise RuntimeError('a crash')")
    make(folder, "b_missing", "", "{'programs': ['no-such-engine'], 'packages': ['no_such_package']}")
    body = """
        from ratios import ratio
        assert sys.argv[1:] == ["--given", "--small", "--steps", "3"]
        ratio("ours over theirs", [2.0, 6.0, 2.0], [1.0, 2.0, 2.0], wanted="at most 1.5")
    """
    make(folder, "c_ratio", body, "{'args': ['--given'], 'quick': ['--small'], 'rounds': '--steps'}")
    out = folder / "out.json"
    assert main(["--quick", "--rounds", "3", "--out", str(out)], folder) == 1
    told = json.loads(out.read_text())
    assert {"processor", "cores", "torch", "load"} <= told["machine"].keys()
    crash, missing, done = (told["benchmarks"][name] for name in ("a_crash", "b_missing", "c_ratio"))
    assert crash["outcome"] == "failed: exit status 1"
    assert [figure["name"] for figure in crash["figures"]] == ["kept"]
    assert missing["outcome"] == "skipped, missing: package no_such_package, program no-such-engine"
    (figure,) = done["figures"]
    # Ratios 2, 3 and 1; both sides together were fastest in the first round.
    expected = {"median": 2.0, "low": 1.5, "high": 2.5, "rounds": 3, "quietest": 2.0, "reached": False}
    assert expected.items() <= figure.items()
    assert figure["values"] == [2.0, 3.0, 1.0]
    assert done["outcome"] == "done"
    assert done["load before"]
    printed, errors = capfd.readouterr()
    assert "ours over theirs: 2 (1.5 to 2.5, 3 rounds, quietest 2); wanted at most 1.5: MISSED" in printed
    assert "RuntimeError: a crash" in errors


def test_ctrl_c_keeps_what_was_measured(folder: Path) -> None:
    body = """
        import os, signal, time
        from ratios import times
        times("first", [0.5])
        os.kill(os.getppid(), signal.SIGINT)  # as Ctrl-C in the terminal, which this process does not get itself
        time.sleep(600)
    """
    make(folder, "a_endless", body)
    make(folder, "b_never", "raise RuntimeError('after Ctrl-C')")
    out = folder / "out.json"
    # A shell's background job, such as this test may be, ignores Ctrl-C: the handler makes it an interactive one.
    code = f"""
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from benchmarks.__main__ import main
sys.exit(main(["--out", {str(out)!r}], pathlib.Path({str(folder)!r})))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 130
    assert "a_endless: interrupted, 1 figures" in done.stdout
    told = json.loads(out.read_text())["benchmarks"]
    assert list(told) == ["a_endless"]
    assert told["a_endless"]["figures"][0]["values"] == [500.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smapling"], "there is no benchmark 'smapling'. Did you mean: 'sampling'?"),
        (["paired"], "--help"),
        (["--rounds", "1"], "--rounds must be at least 2"),
        (["--out", "no/such/folder/x.json"], "make it first"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in " ".join(capsys.readouterr().err.split())


def test_an_unknown_key_of_run_is_named(folder: Path) -> None:
    make(folder, "wrong", "", "{'program': ['stockfish']}")
    with pytest.raises(ValueError, match=r"wrong\.py: RUN has the unknown key 'program'"):
        benchmarks(folder)
