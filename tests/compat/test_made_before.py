"""What users made with earlier versions still works: policies, data sets, runs, experiments, tournaments, reports.

The fixtures in ``data/`` were made by commit 555b2da (README.md there). They are read through the command line and the
public functions alone, so that this file runs unchanged with the old code and with any later one.
"""

from __future__ import annotations

import csv
import functools
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load

import genpolicy
from genpolicy.cli import main
from tests.compat.made_before import (
    answers,
    contents,
    differences,
    dreams,
    probe,
    read_json,
    rows_digest,
    unpack,
    versions,
)

pytestmark = pytest.mark.usefixtures("warm_start")
WITH_DIFFUSERS = pytest.mark.xdist_group("diffusers")
"""On one worker, so that it is imported once."""

EXPECTED: dict[str, Any] = read_json("expected.json")
CASES: list[dict[str, Any]] = read_json("decisions.json.xz")
CONFIGS: dict[str, dict[str, Any]] = read_json("configs.json.xz")
ACCURACY = ("best", "labelled", "raw_best", "raw_legal", "network_calls")
"""Figures of a report that no clock decides."""
RETRAINED = 2.5e-3
"""Of weights after a few updates: another processor's or version's last bits differ, and every update adds to that. The
largest difference was 0.0014; without the checkpoint's random numbers it is 0.0030, without its optimiser's state
0.0052."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums that several threads share come out in other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def bits() -> bool:
    """Whether numbers must be the same bit for bit.

    Moves, lines and imagined tokens are compared exactly wherever this runs. The digits of probabilities depend on the
    processor and on the builds of torch, NumPy and diffusers: only where a fixed computation, which uses none of our
    code, gives the bits that it gave when the fixtures were made can ours be asked for the same.
    """
    made_with = EXPECTED["made_with"]
    return versions() == made_with["versions"] and probe() == made_with["probe"]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the policies lie as ``policies/NAME``."""
    folder = tmp_path_factory.mktemp("before")
    unpack("policies", folder / "policies")
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in; what was made names the other things by relative paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> None:
    assert main(list(words)) == 0, words


def of_kind(value: Any, name: str) -> Any:
    """A parameter that says whether its policy needs diffusers."""
    return pytest.param(value, id=name, marks=[WITH_DIFFUSERS] * any(kind in name for kind in ("gaussian", "image")))


# Policies.


def test_every_kind_of_policy_is_here() -> None:
    spelled = " ".join(case["spec"] for case in CASES)
    for kind in ("mcts", "alphabeta", "greedy", "random", "oracle"):
        assert kind in spelled
    kinds = {read["read"]["learner"]["kind"] for name, read in CONFIGS.items() if name.startswith("policies/")}
    networks = {"diffusion", "gaussian", "one_step", "direct", "autoregressive", "state_value", "action_value", "image"}
    assert kinds == networks


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", [of_kind(case, case["name"]) for case in CASES])
def test_a_policy_decides_and_dreams_as_before(
    case: dict[str, Any], policies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(policies)
    found = differences(case["answers"], answers(case), bits=bits())
    if "dreamt" in case:
        found += differences(case["dreams"], dreams(case), bits=bits(), where="dreams")
    assert not found, f"{len(found)} differences (bit for bit: {bits()}), the first: " + "; ".join(found[:5])


NAMES = sorted({Path(name).stem for name in CONFIGS if name.startswith("policies/")})


@pytest.mark.parametrize("name", [of_kind(name, name) for name in NAMES])
def test_a_policy_is_saved_again_as_it_was(name: str, policies: Path, tmp_path: Path) -> None:
    old, new = policies / "policies" / name, tmp_path / "again"
    genpolicy.load_policy(str(old)).save_pretrained(new)
    was, now = ({p.name: p.read_bytes() for p in each.iterdir()} for each in (old, new))
    before, after = load(was["model.safetensors"]), load(now["model.safetensors"])
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    config = yaml.safe_load(was["config.yaml"])
    config.pop("weights_sha256")  # the order of the weights within the file is nobody's business
    assert_holds(config, yaml.safe_load(now["config.yaml"]))
    assert json.loads(was["provenance.json"])["dataset"] == json.loads(now["provenance.json"])["dataset"]


def assert_holds(was: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> None:
    """Every key of ``was`` is in ``now`` with the same value; there may be more."""
    for key, value in was.items():
        assert key in now, f"{where}{key}"
        if isinstance(value, Mapping):
            assert_holds(value, now[key], f"{where}{key}.")
        else:
            assert now[key] == value, f"{where}{key}"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_is_read_as_before(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(CONFIGS[name]["text"])
    run("train", "--config", "mine.yaml", "--print-config")
    assert_holds(CONFIGS[name]["read"], yaml.safe_load(capsys.readouterr().out))


# Data sets.


@pytest.mark.parametrize("name", ["imported", "labelled", "played"])
def test_a_finished_data_set_holds_what_it_held(name: str, here: Path) -> None:
    unpack("records", Path("records"))
    before = contents(Path("records", name))
    run("data", "info", f"records/{name}", "--json", "info.json")
    assert_holds(EXPECTED[name]["info"], json.loads(Path("info.json").read_text()))
    assert rows_digest(Path("records", name)) == EXPECTED[name]["rows"]
    command = EXPECTED["labelling"]["command"]
    if name == "labelled":  # the command that made it finds its work done
        run(*command[: command.index("--out")], "--out", f"records/{name}")
    assert contents(Path("records", name)) == before


@pytest.mark.parametrize("name", ["labelling", "playing"])
def test_a_data_set_that_a_kill_left_unfinished_is_finished(name: str, here: Path) -> None:
    unpack("records", Path("records"))
    told = EXPECTED[name]
    whole = EXPECTED[Path(told["as"]).name]
    run(*told["command"], "--json", "info.json")
    info = json.loads(Path("info.json").read_text())
    told_of_work = ("complete", "counts", "game", "oracle", "options")
    assert_holds({key: whole["info"][key] for key in told_of_work if key in whole["info"]}, info)
    assert rows_digest(Path("records", name)) == whole["rows"]
    assert not Path("records", name, "journal.jsonl").exists()


@pytest.mark.parametrize("name", ["labelling", "playing"])
def test_what_an_oracle_had_answered_before_the_kill_is_not_asked_again(name: str, here: Path) -> None:
    """An answer that is changed in the journal comes out in the data set, so it was read and not found anew."""
    unpack("records", Path("records"))
    journal = Path("records", name, "journal.jsonl")
    *whole, torn = journal.read_bytes().split(b"\n")
    lines = [json.loads(line)["entry"] for line in whole]
    unit = next(entry for entry in lines if "rows" in entry)
    unit["rows"][0]["game_id"] = "as the journal has it"
    half = next(entry["answer"] for entry in reversed(lines) if "answer" in entry)
    half["scores"] = ["cp:777", *half["scores"][1:]]
    texts = [json.dumps(entry, separators=(",", ":")).encode() for entry in lines]
    journal.write_bytes(b"".join(b'{"crc32":"%08x","entry":%s}\n' % (zlib.crc32(text), text) for text in texts) + torn)
    run(*EXPECTED[name]["command"])
    import pyarrow.parquet as pq

    rows = [row for shard in sorted(journal.parent.glob("*.parquet")) for row in pq.read_table(shard).to_pylist()]
    assert sum(row["game_id"] == "as the journal has it" for row in rows) == 1
    assert sum("cp:777" in (row["scores"] or []) for row in rows) == 1


# Training.


def test_a_training_run_that_was_killed_ends_with_the_same_weights(here: Path) -> None:
    unpack("training", Path("training"))
    unpack("records", Path("records"))
    told = EXPECTED["training"]
    run(*told["command"])
    weights = Path("training/run/policy/model.safetensors").read_bytes()
    found, whole = load(weights), load(Path("training/uninterrupted.safetensors").read_bytes())
    assert found.keys() == whole.keys()
    for key in whole:
        np.testing.assert_allclose(found[key], whole[key], rtol=RETRAINED, atol=RETRAINED, err_msg=key)
    lines = Path("training/run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == told["steps"]
    genpolicy.load_policy("training/run/policy-best")


def test_a_new_run_takes_an_old_policys_weights(here: Path, policies: Path) -> None:
    unpack("records", Path("records"))
    shutil.copy(policies / "policies/configs/absorbing.yaml", "mine.yaml")
    settings = ["trainer.max_records=16", "optim.lr=1e-30", f"init_from={policies / 'policies/absorbing'}"]
    run("train", "--config", "mine.yaml", *settings, "--out", "new")
    old = load((policies / "policies/absorbing/model.safetensors").read_bytes())
    new = load(Path("new/policy/model.safetensors").read_bytes())
    assert all(np.array_equal(old[key], new[key]) for key in old)


# Experiments.


def table(folder: Path) -> list[dict[str, str]]:
    """The figures of a table but for what the clock says."""
    with (folder / "tiny.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["metric"] not in ("ms", "minutes")]


def test_a_finished_experiment_is_finished(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unpack("experiment", Path("experiment"))
    unpack("records", Path("records"))
    out = Path("experiment/finished")
    command = [*EXPECTED["experiment"]["command"], "--out", str(out)]
    runs = contents(out / "runs")
    written = {name: (out / name).read_text() for name in ("tiny.csv", "tiny.json", "tiny.md")}
    run(*command, "--plan")
    plan = capsys.readouterr().out.splitlines()
    assert len(plan) == 4
    assert all(line.endswith(": finished") for line in plan)
    for name in written:
        (out / name).unlink()
    run(*command)
    assert "4 of 4 runs are finished already" in capsys.readouterr().err
    assert contents(out / "runs") == runs
    assert (out / "tiny.csv").read_text() == written["tiny.csv"]
    assert_holds(json.loads(written["tiny.json"]), json.loads((out / "tiny.json").read_text()))
    # The notes may be worded otherwise, and the columns aligned otherwise.
    was, now = (
        [line for line in text.splitlines() if line.startswith("|") and set(line) - set("|:- ")]
        for text in (written["tiny.md"], (out / "tiny.md").read_text())
    )
    assert len(was) > 4
    assert now == was


@pytest.mark.thorough
def test_an_experiment_that_was_killed_makes_what_is_missing_alone(here: Path) -> None:
    """Three of four runs are finished, the last has a checkpoint; it comes to the figures of the one not killed."""
    unpack("experiment", Path("experiment"))
    unpack("records", Path("records"))
    out = Path("experiment/half")
    finished = {path.parent.name for path in out.glob("runs/*/measured-*.json")}
    (begun,) = {path.name for path in (out / "runs").iterdir() if path.is_dir()} - finished
    before = {name: contents(out / "runs" / name) for name in finished}
    run(*EXPECTED["experiment"]["command"], "--out", str(out))
    assert {name: contents(out / "runs" / name) for name in finished} == before
    assert "resuming from " in (out / "runs" / begun / "log.txt").read_text()
    was, now = table(Path("experiment/finished")), table(out)
    if bits():
        assert now == was
    else:  # a machine with other bits may count some of the last run's positions otherwise
        assert [(row["method"], row["metric"]) for row in now] == [(row["method"], row["metric"]) for row in was]


# Tournaments and reports.


def ratings_of(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Who scored what and has which rating; where the folder lies and what a wall clock says left out."""
    return {key: figures[key] for key in ("crosstable", "ratings", "games", "ended", "forfeits") if key in figures}


@pytest.mark.parametrize("name", ["finished", "half"])
def test_a_tournament_goes_on_where_it_was(name: str, here: Path) -> None:
    unpack("tournaments", Path("tournaments"))
    told, cup = EXPECTED["tournament"], Path("tournaments", name, "cup")
    kept = {path.name: path.read_bytes() for path in cup.iterdir()}
    run(*told["command"], "--out", str(cup), "--json", "cup.json")
    figures = json.loads(Path("cup.json").read_text())
    assert figures["games"] == figures["planned"] == 24
    assert not differences_of(ratings_of(told["figures"]), ratings_of(figures))
    # Lines tell when a game ended: what was played is kept as it was, nothing is played twice or kept elsewhere.
    assert {path.name for path in cup.iterdir()} - {".lock"} == set(kept)
    assert (cup / "games.jsonl").read_bytes().count(b"\n") == 24
    for file, data in kept.items():
        now = (cup / file).read_bytes()
        assert now == data if name == "finished" or file == "tournament.json" else now.startswith(data), file


def test_old_games_have_the_same_ratings(here: Path) -> None:
    unpack("tournaments", Path("tournaments"))
    told = EXPECTED["ratings"]
    run(*told["command"], "--json", "ratings.json")
    assert not differences_of(ratings_of(told["figures"]), ratings_of(json.loads(Path("ratings.json").read_text())))


def differences_of(was: Any, now: Any, where: str = "") -> list[str]:
    """As ``differences``, for JSON with plain numbers; a fit's last digits may be the machine's."""
    if isinstance(was, Mapping):
        return [text for key in was for text in differences_of(was[key], now[key], f"{where}/{key}")]
    if isinstance(was, list):
        assert len(was) == len(now), where
        pairs = enumerate(zip(was, now, strict=True))
        return [text for index, pair in pairs for text in differences_of(*pair, f"{where}/{index}")]
    same = was == pytest.approx(now, rel=1e-6, abs=1e-6) if isinstance(was, float) else was == now
    return [] if same else [f"{where}: {was!r}, now {now!r}"]


def test_a_report_goes_on_where_it_was(here: Path, policies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unpack("report", Path("report"))
    unpack("records", Path("records"))
    os.symlink(policies / "policies", "policies")
    told = EXPECTED["report"]
    parts = Path("report/page_files/parts")
    before = contents(parts)
    assert len(before) == told["kept"]
    run(*told["command"], "--out", "report/page.md", "--json", "figures.json")
    figures = json.loads(Path("figures.json").read_text())
    was, now = (
        {row["policy"]: {key: row["accuracy"][key] for key in ACCURACY} for row in each["policies"]}
        for each in (told["figures"], figures)
    )
    assert not differences_of(was, now)
    after = contents(parts)
    assert {name: after[name] for name in before} == before
    if genpolicy.__version__ == EXPECTED["made_with"]["genpolicy"]:  # else all of it is measured anew, as it should be
        kept = re.search(r"\((\d+) parts were measured before\)", capsys.readouterr().out)
        # Times count again where the machine is the same.
        assert kept
        assert int(kept[1]) >= sum(name.startswith("accuracy-") for name in before)
