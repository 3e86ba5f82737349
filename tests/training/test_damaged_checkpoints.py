"""A resumed run whose newest checkpoint was damaged, renamed, or measured otherwise."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.errors import CheckpointError
from genpolicy.training.checkpoint import _checksum
from genpolicy.training.config import RunConfig
from genpolicy.training.loop import train
from tests.fuzz.mutation import mutant
from tests.small_datasets import solved_connect
from tests.training import toy
from tests.training.run_folders import finished_run, read_metrics, steps, weights

# On one worker, so that what the module trains is trained once.
pytestmark = pytest.mark.xdist_group("damaged-checkpoints")

LAST = "step-00000006"


def configuration(data: Dataset, out: Path, *overrides: str) -> RunConfig:
    defaults = [
        f"data.folder={data.folder}",
        "data.validation=test",
        "learner.kind=toy",
        "optim.name=muon",
        "optim.ema=0.9",
        "trainer.device=cpu",
        "trainer.batch_size=16",
        "trainer.max_steps=6",
        "trainer.checkpoint_every=2",
        "trainer.eval_every=2",
        "trainer.eval_records=16",
        "trainer.accuracy_records=0",
        "trainer.log_every=4",
        "trainer.tensorboard=false",
        f"out={out}",
    ]
    return compose(RunConfig, overrides=[*defaults, *overrides])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=20)


@pytest.fixture(autouse=True)
def toy_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(toy.register(tmp_path / "site")))


@pytest.fixture(scope="module")
def finished_once(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(partial(configuration, data), tmp_path_factory.mktemp("finished"))


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_once, tmp_path / "finished"))


def read_state(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return state


def as_before_checksums(folder: Path) -> str:
    """What ``state.json`` was before it had a checksum."""
    state = read_state(folder)
    del state["sha256"], state["commits"]
    return json.dumps(state, indent=1, sort_keys=True) + "\n"


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("left", [None, "game: connect\n", "learner: {kind"], ids=["missing", "cut", "unreadable"])
def test_a_run_resumes_without_its_own_configuration(data: Dataset, finished: Path, left: str | None) -> None:
    before = weights(finished / "policy")
    shutil.rmtree(finished / "policy")
    (finished / "config.yaml").unlink()
    if left is not None:
        (finished / "config.yaml").write_text(left)
    train(configuration(data, finished), resume=True)
    assert weights(finished / "policy") == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
@pytest.mark.parametrize("name", ["state.json", "model.safetensors"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    data: Dataset, finished: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, path = weights(finished / "policy"), finished / "checkpoints" / LAST / name
    path.unlink()
    os.mkfifo(path)
    keeper = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # who opens it is not left hanging
    os.write(keeper, b"{}")
    threading.Timer(0.2, os.close, [keeper]).start()
    assert weights(train(configuration(data, finished), resume=True)) == whole
    assert f"{LAST}: {name} is damaged (it is a pipe, not a file)" in said(capsys)


def test_links_to_nothing_are_named_before_training_or_give_way(data: Dataset, finished: Path, tmp_path: Path) -> None:
    whole = weights(finished / "policy")
    shutil.rmtree(finished / "policy")
    (finished / "policy").symlink_to(tmp_path / "gone")
    assert weights(train(configuration(data, finished), resume=True)) == whole
    shutil.rmtree(finished / "checkpoints")
    (finished / "checkpoints").symlink_to(tmp_path / "gone")
    with pytest.raises(CheckpointError, match="checkpoints: is a link to nothing; change that"):
        train(configuration(data, finished), resume=True)


class TestState:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            "null",
            '{"format": 1, "step": "x", "files": []}',
            '{"format": 1, "step": 6, "files": []}',
            '{"format": 1, "step": 6, "files": {}}',
            '{"format": null, "step": 6, "files": {}}',
            '{"format": 1, "step": 6, "files": {"\\u0000": {}}}',
            '{"format": 1, "step": 6, "files": {"model.safetensors": 1}}',
            "[" * 200_000,
            '{"format": ' * 200_000,
        ],
        ids=lambda text: text[:40],
    )
    def test_other_contents_give_way_to_the_checkpoint_before(
        self, data: Dataset, finished: Path, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        whole = weights(finished / "policy")
        (finished / "checkpoints" / LAST / "state.json").write_text(text)
        assert weights(train(configuration(data, finished), resume=True)) == whole
        message = said(capsys)
        assert f"{LAST}: state.json is damaged" in message or f"{LAST}: model.safetensors is damaged" in message
        assert "resuming from" in message

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "changed",
        [
            {"identity": {}},
            {"identity": {"config": {"learner": {"kind": []}}}},
            {"optimizer": {"adamw": None}},
            {"optimizer": {"adamw": {"groups": [], "values": {}}, "muon": {"groups": [{}], "values": {}}}},
            {"seconds": "long"},
            {"seconds": float("nan")},
            {"seconds": 10**400},
            {"best": 3},
            {"best": {"loss": None, "step": 1}},
            {"num_processes": "one"},
            {"recent": []},
            {"recent": {"sums": {"loss": 1.0}, "counts": {"loss": 0}, "records": 1}},
            {"streams": 1},
        ],
        ids=str,
    )
    def test_an_old_state_without_checksum_is_checked_by_its_form(
        self, data: Dataset, finished: Path, changed: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        whole, folder = weights(finished / "policy"), finished / "checkpoints" / LAST
        (folder / "state.json").write_text(json.dumps(json.loads(as_before_checksums(folder)) | changed))
        assert weights(train(configuration(data, finished), resume=True)) == whole
        assert f"{LAST}: state.json is damaged" in said(capsys)

    def test_options_of_an_optimizer_that_are_no_numbers_are_damage(
        self, data: Dataset, finished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = finished / "checkpoints" / LAST
        for key, value in (("peak_lr", "high"), ("betas", [0.9]), ("params", None), ("eps", [])):
            state = json.loads(as_before_checksums(finished / "checkpoints" / "step-00000004"))
            state["optimizer"]["adamw"]["groups"][0][key] = value
            shutil.copytree(finished / "checkpoints" / "step-00000004", folder, dirs_exist_ok=True)
            (folder / "state.json").write_text(json.dumps(state | {"step": 6}))
            train(configuration(data, finished), resume=True)
            assert f"{LAST}: state.json is damaged" in said(capsys), key

    def test_an_old_state_is_read_and_a_newer_one_without_its_checksum_is_damaged(
        self, data: Dataset, finished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = finished / "checkpoints" / LAST
        state = read_state(folder)
        (folder / "state.json").write_text(as_before_checksums(folder))
        train(configuration(data, finished), resume=True)
        assert f"resuming from {folder}" in said(capsys)
        flipped = {"sha257" if key == "sha256" else key: value for key, value in state.items()}
        (folder / "state.json").write_text(json.dumps(flipped))
        train(configuration(data, finished), resume=True)
        assert f"{LAST}: state.json is damaged (its checksum is missing)" in said(capsys)

    @pytest.mark.parametrize(
        "checked", [pytest.param(True, marks=pytest.mark.thorough), False], ids=["with checksum", "without"]
    )
    @pytest.mark.parametrize("number", [4, pytest.param(12, marks=pytest.mark.thorough)])
    def test_mutants_give_way_or_are_refused_with_a_message(
        self, data: Dataset, finished: Path, number: int, checked: bool
    ) -> None:
        folder, whole = finished / "checkpoints" / LAST, weights(finished / "policy")
        good = (folder / "state.json").read_text() if checked else as_before_checksums(folder)
        generator = random.Random(0)
        for _ in range(number):
            (folder / "state.json").write_bytes(mutant((good.encode(),), generator))
            refusal = ""
            try:
                resumed = weights(train(configuration(data, finished), resume=True))
            except CheckpointError as error:
                refusal = str(error)
            if checked:
                assert not refusal
                assert resumed == whole
            elif refusal:  # another value in place of one of the run's, which only a checksum tells from a setting
                assert "belongs to another run" in refusal or "upgrade genpolicy" in refusal


class TestRenamed:
    @pytest.mark.parametrize("checked", [True, False], ids=["with checksum", "without"])
    def test_a_renamed_checkpoint_is_named_and_not_believed(
        self, data: Dataset, finished: Path, checked: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        there, whole = finished / "checkpoints", weights(finished / "policy")
        copied = Path(shutil.copytree(there / "step-00000004", there / "step-00009999"))
        if not checked:
            (copied / "state.json").write_text(as_before_checksums(copied))
        assert weights(train(configuration(data, finished), resume=True)) == whole
        message = said(capsys)
        assert "step-00009999: was renamed" in message
        assert "of update 4, the folder's name says 9999" in message
        assert f"resuming from {there / LAST}" in message

    def test_what_was_passed_over_does_not_push_out_what_the_run_saves(self, data: Dataset, finished: Path) -> None:
        there = finished / "checkpoints"
        (there / LAST).rename(there / "step-00009999")
        keep_one = ("trainer.keep=1", "trainer.checkpoint_every=1", "trainer.eval_records=0", "trainer.max_steps=8")
        train(configuration(data, finished, *keep_one), resume=True)
        assert 8 in steps(finished)
        assert {step for step in steps(finished) if step > 8} == {9999}
        train(configuration(data, finished, *keep_one), resume=True)  # from 8


class TestBest:
    """The lowest loss so far in the state file is made lower than any, so that nothing measured alike can beat it."""

    def lowered(self, finished: Path) -> None:
        for folder in (finished / "checkpoints").iterdir():
            state = read_state(folder)
            del state["sha256"]
            state["best"] = {**(state["best"] or {}), "loss": -1.0, "step": 2}
            (folder / "state.json").write_text(json.dumps({**state, "sha256": _checksum(state)}))

    def test_losses_of_other_windows_are_not_compared(
        self, data: Dataset, finished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.lowered(finished)
        before = weights(finished / "policy-best")
        train(configuration(data, finished, "trainer.max_steps=8"), resume=True)
        assert weights(finished / "policy-best") == before
        assert read_state(finished / "checkpoints" / "step-00000008")["best"]["loss"] == -1.0
        assert "do not compare" not in said(capsys)

        train(configuration(data, finished, "trainer.max_steps=10", "trainer.eval_records=1"), resume=True)
        assert "so far was averaged over 16 windows, and later ones are over 1 (trainer.eval_records)" in said(capsys)
        lines = [line for line in read_metrics(finished) if "validation/loss" in line]
        measured = {line["step"]: line["validation/loss"] for line in lines}
        best = read_state(finished / "checkpoints" / "step-00000010")["best"]
        assert best == {"loss": measured[best["step"]], "step": best["step"], "windows": 1}
        assert best["step"] > 6
        assert weights(finished / "policy-best") != before

    def test_the_best_stays_while_nothing_is_measured(self, data: Dataset, finished: Path) -> None:
        self.lowered(finished)
        train(configuration(data, finished, "trainer.max_steps=8", "trainer.eval_records=0"), resume=True)
        best = read_state(finished / "checkpoints" / "step-00000008")["best"]
        assert (best["loss"], best["step"]) == (-1.0, 2)

    def test_more_windows_than_there_are_is_the_same_measurement(
        self, data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "run"
        train(configuration(data, out, "trainer.eval_records=100000"))
        train(configuration(data, out, "trainer.eval_records=200000", "trainer.max_steps=8"), resume=True)
        assert "do not compare" not in said(capsys)
