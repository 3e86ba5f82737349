"""``genpolicy experiment``: from a file to a table, through failures and kills."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from genpolicy.cli import main

# On one worker, so that what the module trains is trained once.
pytestmark = [pytest.mark.usefixtures("warm_start"), pytest.mark.xdist_group("experiment-command")]

GAME = "connect:rows=3,cols=3,k=3"
NETWORK = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment") / "ttt"
    assert main(["data", "import", "all", "--game", GAME, "--out", f"{folder}-raw"]) == 0
    assert main(["data", "label", f"{folder}-raw", "--oracle", "solver", "--horizon", "2", "--out", str(folder)]) == 0
    return folder


def describe(folder: Path, data: Path, **changes: Any) -> Path:
    description: dict[str, Any] = {
        "name": "small",
        "title": "A small experiment",
        "data": {"folder": str(data)},
        "run": {
            "learner": {"network": NETWORK},
            "trainer": {"batch_size": 32, "eval_records": 0, "accuracy_records": 0, "tensorboard": False},
        },
        "axes": {
            "method": {
                "S-A": {"learner.kind": "one_step"},
                "direct": {"learner.kind": "direct", "learner.horizon": 2},
            }
        },
        "seeds": [0],
        "budget": {"records": 640},
        "evaluate": {"positions": 40, "bound": True},
        "compare": [{"a": {"method": "S-A"}, "b": {"method": "direct"}}],
        "published": {"source": "a paper", "values": {"S-A": 22.1}},
        "plots": [{"x": "method", "y": "best"}],
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**description, **changes}, sort_keys=False))
    return path


def test_runs_skips_what_is_finished_and_adds_what_is_new(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path, out = describe(tmp_path, data), tmp_path / "out"
    assert main(["experiment", str(path), "--out", str(out)]) == 0
    figures = json.loads((out / "small.json").read_text())
    assert [cell["labels"] for cell in figures["cells"]] == [{"method": "S-A"}, {"method": "direct"}]
    for cell in figures["cells"]:
        best = [seed["best"] for seed in cell["seeds"].values()]
        assert cell["means"]["best"]["value"] == pytest.approx(sum(best) / len(best))
        assert all(seed["records"] == 640 for seed in cell["seeds"].values())
    markdown = (out / "small.md").read_text()
    assert "| S-A | 1 |" in markdown
    assert "22.1" in markdown
    assert "Paired tests" in markdown
    assert (out / "small-1.png").stat().st_size > 1000
    rows = list(csv.DictReader((out / "small.csv").open()))
    assert {row["method"] for row in rows} == {"S-A", "direct"}
    written = {file: file.stat().st_mtime_ns for file in out.glob("runs/*/measured-*.json")}
    assert len(written) == 2
    describe(tmp_path, data, seeds=[0, 1])
    capsys.readouterr()
    assert main(["experiment", str(path), "--out", str(out)]) == 0
    assert "2 of 4 runs are finished already" in capsys.readouterr().err
    assert all(file.stat().st_mtime_ns == then for file, then in written.items())
    assert len(list(out.glob("runs/*/measured-*.json"))) == 4
    for cell in json.loads((out / "small.json").read_text())["cells"]:
        best = [seed["best"] for seed in cell["seeds"].values()]
        assert len(best) == 2
        assert cell["means"]["best"]["value"] == pytest.approx(sum(best) / 2)


@pytest.mark.thorough
def test_ways_of_playing_share_a_run(tmp_path: Path, data: Path) -> None:
    sampler = {
        "learner.kind": "diffusion",
        "learner.horizon": 2,
        "learner.process": {"kind": "absorbing", "num_timesteps": 4},
    }
    axes = {"method": {"d": sampler}, "steps": {str(n): {"play.num_steps": n} for n in (1, 2, 4)}}
    path = describe(tmp_path, data, axes=axes, seeds=[0], compare=[], published={}, plots=[])
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1
    cells = json.loads((tmp_path / "out" / "small.json").read_text())["cells"]
    assert [cell["means"]["calls"]["value"] for cell in cells] == [1, 2, 4]


def test_a_failed_run_is_shown_and_the_rest_goes_on(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    axes = {"lr": {"fine": {"optim.lr": 1e-3}, "wild": {"optim.lr": 1e18}}}
    run = {
        "learner": {"kind": "one_step", "network": NETWORK},
        "trainer": {"batch_size": 32, "eval_records": 0, "accuracy_records": 0, "tensorboard": False},
    }
    compare = [{"title": "does it matter", "a": {"lr": "fine"}, "b": {"lr": "wild"}}]
    path = describe(tmp_path, data, axes=axes, run=run, seeds=[0], compare=compare, published={}, plots=[])
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 1
    markdown = (tmp_path / "out" / "small.md").read_text()
    assert "| wild | 0 | failed |" in markdown
    assert "FAILED wild, seed 0" in markdown
    assert "log.txt" in markdown
    assert "1 of 1 paired tests are missing, since no seed has finished on both sides: does it matter." in markdown
    assert "| fine | 1 |" in markdown


@pytest.mark.thorough
def test_a_killed_experiment_goes_on(tmp_path: Path, data: Path) -> None:
    """Killed hard in the middle of training: its runs end with it, and the next call ends with the same figures."""
    run = {
        "learner": {"kind": "one_step", "network": NETWORK},
        "trainer": {
            "batch_size": 32,
            "eval_records": 0,
            "accuracy_records": 0,
            "tensorboard": False,
            "checkpoint_every": 20,
        },
    }
    options: dict[str, Any] = {"axes": {}, "run": run, "seeds": [0], "compare": [], "published": {}, "plots": []}
    path = describe(tmp_path, data, budget={"records": 1_920}, **options)
    call = [
        sys.executable,
        "-c",
        "import sys; from genpolicy.cli import main; sys.exit(main())",
        "experiment",
        str(path),
    ]
    killed = tmp_path / "killed"
    process = subprocess.Popen([*call, "--out", str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(killed.glob("runs/*/run/checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(killed.glob("runs/*/measured-*.json"))
    while any("experiments.worker" in _command(pid) and str(killed) in _command(pid) for pid in _processes()):
        assert time.monotonic() < deadline, "a run outlives the experiment that started it"
        time.sleep(0.2)
    assert main(["experiment", str(path), "--out", str(killed)]) == 0
    assert main(["experiment", str(path), "--out", str(tmp_path / "whole")]) == 0
    ours, whole = (json.loads((folder / "small.json").read_text()) for folder in (killed, tmp_path / "whole"))
    assert ours["cells"][0]["means"]["best"] == whole["cells"][0]["means"]["best"]
    assert ours["cells"][0]["means"]["bound"] == whole["cells"][0]["means"]["bound"]


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()] if Path("/proc").is_dir() else []


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.thorough
def test_a_third_partys_process_takes_part_through_its_entry_point(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module and its metadata on the path, nothing of it in this project."""
    package = tmp_path / "theirs"
    (package / "theirs-1.0.dist-info").mkdir(parents=True)
    (package / "theirs.py").write_text(
        "from genpolicy.diffusion import Absorbing\n\n\n"
        "class Hasty(Absorbing):\n    kind = 'hasty'\n\n"
        "    def _weight(self, t):\n        return 1 / t.double() ** 2\n"
    )
    metadata = package / "theirs-1.0.dist-info"
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[genpolicy.processes]\nhasty = theirs:Hasty\n")
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setenv("PYTHONPATH", f"{package}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    common = {"learner.kind": "diffusion", "learner.horizon": 2}
    axes = {"noise": {"hasty": {**common, "learner.process": {"kind": "hasty", "num_timesteps": 4}}}}
    path = describe(tmp_path, data, axes=axes, seeds=[0], compare=[], published={}, plots=[])
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 0
    assert "| hasty | 1 |" in (tmp_path / "out" / "small.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"skip": [{"methd": "S-A"}]}, "axis 'methd' does not exist; there are: method"),
        ({"skip": [{"method": "S-B"}]}, "axis 'method' has no label 'S-B'; it has: S-A, direct"),
        ({"skip": [{"method": "S-A"}, {"method": "direct"}], "compare": []}, "skip leaves no cell"),
        ({"budget": {}}, "budget must hold exactly one of records, minutes"),
        ({"budget": {"records": 1, "minutes": 1}}, "budget must hold exactly one of"),
        ({"seeds": [1, 1]}, "different whole numbers"),
        ({"axes": {"method": {"S-A": {"lerner.kind": "one_step"}}}, "compare": []}, "lerner"),
        ({"axes": {"method": {}}, "compare": []}, "axis 'method' has no labels"),
        ({"plots": [{"x": "deep"}]}, "axis 'deep' does not exist"),
        ({"metrics": ["bets"]}, "metric 'bets' was not measured; there are: best"),
        (
            {
                "axes": {
                    "paradigm": {"s-v": {"learner.kind": "direct", "learner.paradigm": "s-v", "learner.horizon": 1}}
                },
                "compare": [],
                "plots": [],
                "published": {},
            },
            "cell 's-v': learner.paradigm 's-v' imagines no action",
        ),
        ({"axes": {"method": {"S-A": {"learner.kind": "one_stp"}, "direct": None}}}, "Did you mean: 'one_step'?"),
        ({"axes": {"method": {"S-A": {"without": "learner"}, "direct": None}}}, "without must be a list of keys"),
        (
            {"axes": {"method": {"S-A": {"without": ["learner.horizn"]}, "direct": None}}},
            "'learner.horizn' is set neither in config nor in run",
        ),
        (
            {"axes": {"method": {"S-A": {"learner.kind": "one_step", "play.num_steps": 3}, "direct": None}}},
            "cell 'S-A': policy 'one_step' takes no option 'num_steps'",
        ),
        ({"evaluate": {"split": "tst"}}, "evaluate.split 'tst' holds no record of"),
        ({"plots": [{"x": "method", "y": "bets"}]}, "plots: metric 'bets' was not measured"),
        ({"plots": [{"x": "method", "where": {"method": "S-B"}}]}, "plots: where: axis 'method' has no label 'S-B'"),
        ({"plots": [{"x": "future_step", "y": "match"}]}, "got y 'match' and evaluate.futures false"),
        ({"metrics": ["match_1"]}, "metric 'match_1' is measured with evaluate.futures=true"),
        (
            {"compare": [{"a": {"method": "S-A"}, "b": {"method": "direct"}, "metric": "calls"}]},
            "metric 'calls' is not measured at each position",
        ),
        ({"published": {"values": {"S-B": 1.0}}}, "cell 'S-B' does not exist. Did you mean: 'S-A'?"),
        ({"published": {"values": {"S-A": "high"}}}, "the value of cell 'S-A' must be a number"),
    ],
)
def test_what_cannot_be_run_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = {"budget": {"records": 64}, "seeds": [0], "plots": []}
    path = describe(tmp_path, data, **{**short, **changes})
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_a_data_set_that_nothing_makes_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = describe(tmp_path, tmp_path / "nowhere")
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "data.make has no commands" in capsys.readouterr().err


@pytest.mark.thorough
def test_every_data_set_that_cells_train_on_is_made(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another experiment has made the first of them already."""
    first, other = tmp_path / "first", tmp_path / "first-other"
    label = f"data label {data}-raw --oracle solver --horizon"
    assert main([*f"{label} 2".split(), "--out", str(first)]) == 0
    axes = {"data": {"own": None, "other": {"data.folder": str(other)}}}
    options: dict[str, Any] = {"axes": axes, "compare": [], "plots": [], "published": {}, "budget": {"records": 64}}
    run = {
        "learner": {"kind": "one_step", "network": NETWORK},
        "trainer": {"batch_size": 32, "eval_records": 0, "accuracy_records": 0, "tensorboard": False},
    }
    making = {"folder": str(first), "make": [f"{label} 2 --out {{folder}}", f"{label} 3 --out {{folder}}-other"]}
    path = describe(tmp_path, data, **options, run=run)
    description = {**yaml.safe_load(path.read_text()), "data": {"folder": str(first), "make": making["make"][:1]}}
    path.write_text(yaml.safe_dump(description, sort_keys=False))
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 2
    assert f"the commands of data.make do not make {str(other)!r}" in capsys.readouterr().err
    path.write_text(yaml.safe_dump({**description, "data": making}, sort_keys=False))
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 0
    assert len(json.loads((tmp_path / "out" / "small.json").read_text())["cells"]) == 2


@pytest.mark.thorough
def test_published_numbers_stand_beside_their_metric_and_futures_are_drawn(tmp_path: Path, data: Path) -> None:
    pytest.importorskip("matplotlib")
    learner = {"learner.kind": "diffusion", "learner.horizon": 2, "learner.process": {"kind": "absorbing"}}
    path = describe(
        tmp_path,
        data,
        axes={"method": {"d": learner, "e": {**learner, "learner.process": {"kind": "absorbing", "num_timesteps": 4}}}},
        budget={"records": 64},
        evaluate={"positions": 10, "futures": True},
        metrics=["best", "valid_action_1", "records"],
        published={"source": "a paper", "values": {"d": {"best": 41.31, "valid_action_1": 79.33}, "e": 20}},
        compare=[],
        plots=[{"x": "future_step", "y": "valid_action, match", "where": {"method": "d"}}],
    )
    assert main(["experiment", str(path), "--out", str(tmp_path / "out"), "skip=[{method: e}]"]) == 0
    columns, _, row = (tmp_path / "out" / "small.md").read_text().splitlines()[2:5]
    names = [name.strip() for name in columns.split("|")]
    assert names[3:8] == ["best move %", "published", "valid action 1", "published", "records seen"]
    assert "- Published: a paper." in (tmp_path / "out" / "small.md").read_text()
    assert [cell.strip() for cell in row.split("|")][4:7:2] == ["41.31", "79.33"]
    rows = {row["metric"]: row for row in csv.DictReader((tmp_path / "out" / "small.csv").open())}
    assert (rows["valid_action_1"]["published"], rows["records"]["published"]) == ("0.7933", "")
    svg = (tmp_path / "out" / "small-1.svg").read_text()
    assert "<!-- valid action -->" in svg
    assert "<!-- future step -->" in svg
    # The table of what there is, while the other cell is still to do, does not call it failed.
    assert main(["experiment", str(path), "--out", str(tmp_path / "out"), "--table-only"]) == 0
    markdown = (tmp_path / "out" / "small.md").read_text()
    assert "| e | 0 | not run | 20 | not run | - | not run |" in markdown
    assert "FAILED" not in markdown
    assert "1 runs are missing; the same command makes them" in markdown


def test_no_finished_run_is_no_table(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = describe(tmp_path, data)
    assert main(["experiment", str(path), "--out", str(tmp_path / "out"), "--table-only"]) == 2
    assert "no run has finished, so there is no table" in capsys.readouterr().err


def test_a_budget_that_no_run_reached_is_said(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axes = {"method": {"S-A": {"learner.kind": "one_step"}}}
    path = describe(tmp_path, data, budget={"minutes": 0.02}, axes=axes, compare=[], plots=[])
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 0
    for facts in (tmp_path / "out").glob("runs/*/measured-*.json"):
        figures = json.loads(facts.read_text())
        facts.write_text(json.dumps({**figures, "minutes": 0.001}))
    capsys.readouterr()
    assert main(["experiment", str(path), "--out", str(tmp_path / "out"), "--table-only"]) == 2
    assert "no run reached the budget" in capsys.readouterr().err


@pytest.mark.thorough
def test_other_data_is_not_mixed_in(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axes = {"method": {"S-A": {"learner.kind": "one_step"}}}
    options: dict[str, Any] = {"axes": axes, "compare": [], "plots": [], "published": {}}
    path = describe(tmp_path, data, **options)
    assert main(["experiment", str(path), "--out", str(tmp_path / "out")]) == 0
    other = tmp_path / "other"
    raw = f"{data}-raw"
    assert main(["data", "label", raw, "--oracle", "solver", "--horizon", "3", "--out", str(other)]) == 0
    describe(tmp_path, other, **options)
    capsys.readouterr()
    assert main(["experiment", str(path), "--out", str(tmp_path / "out"), "--table-only"]) == 2
    said = capsys.readouterr().err
    assert "another version of the data" in said
    assert "no run has finished" in said


@pytest.mark.thorough
def test_experiments_that_share_a_folder_share_runs(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = describe(tmp_path, data, plots=[])
    runs = tmp_path / "runs"
    assert main(["experiment", str(both), "--out", str(tmp_path / "both"), "--runs", str(runs)]) == 0
    trained = {path: path.stat().st_mtime_ns for path in runs.glob("*/trained.json")}
    assert len(trained) == 2
    one = {"method": {"S-A again": {"learner.kind": "one_step"}}}
    path = describe(tmp_path, data, axes=one, compare=[], published={}, plots=[], metrics=["best"])
    capsys.readouterr()
    assert main(["experiment", str(path), "--out", str(tmp_path / "one"), "--runs", str(runs)]) == 0
    told = capsys.readouterr()
    assert "1 of 1 runs are finished already" in told.err
    assert "other settings" not in told.err  # the other experiment's runs are not leftovers
    assert {path: path.stat().st_mtime_ns for path in runs.glob("*/trained.json")} == trained
    assert not (tmp_path / "one" / "runs").exists()
