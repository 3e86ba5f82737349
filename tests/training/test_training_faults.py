"""Training after kills, with weights that diverge, beside another run, and with damaged checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock
import pytest
import torch
from safetensors.torch import load_file, save_file

import genpolicy
from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.errors import CheckpointError, LockedError, TrainingError
from genpolicy.folder_lock import FolderLock
from genpolicy.training import loop
from genpolicy.training.config import RunConfig
from genpolicy.training.loop import train
from genpolicy.training.run import Run
from tests.small_datasets import solved_connect

pytestmark = pytest.mark.usefixtures("warm_start")

SMALL = [
    "learner.kind=diffusion",
    "learner.horizon=1",
    "learner.network.num_layers=1",
    "learner.network.width=16",
    "learner.network.num_heads=2",
    "trainer.device=cpu",
    "trainer.batch_size=8",
    "trainer.tensorboard=false",
    "trainer.eval_records=16",
    "trainer.accuracy_records=4",
]
DIVERGING = ["optim.lr=1e20", "optim.warmup=0", "optim.schedule=constant"]
ZIGZAG = [
    "data.validation=test",
    "optim.lr=0.1",
    "optim.schedule=constant",
    "optim.warmup=0",
    "optim.grad_clip=0",
    "trainer.max_steps=14",
    "trainer.eval_every=2",
    "trainer.checkpoint_every=100",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=20)


def configuration(data: Dataset, out: Path, *overrides: str) -> RunConfig:
    return compose(RunConfig, overrides=[*SMALL, f"data.folder={data.folder}", f"out={out}", *overrides])


def weights(policy: Path) -> bytes:
    return (policy / "model.safetensors").read_bytes()


def update_of(policy: Path) -> int:
    return int(json.loads((policy / "provenance.json").read_text())["step"])


def metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


class TestKilled:
    def test_the_best_policy_is_that_of_an_undisturbed_run(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        train(configuration(data, tmp_path / "a", *ZIGZAG))
        best = update_of(tmp_path / "a" / "policy-best")
        assert 2 < best < 14, "the settings should make the best neither the first nor the last"
        save = Run.save_policy

        def kill_before_best(run: Run, name: str) -> Path:
            if name == "policy-best" and run.num_updates == best:
                raise Killed
            return save(run, name)

        monkeypatch.setattr(Run, "save_policy", kill_before_best)
        with pytest.raises(Killed):
            train(configuration(data, tmp_path / "b", *ZIGZAG))
        monkeypatch.undo()
        train(configuration(data, tmp_path / "b", *ZIGZAG), resume=True)
        assert update_of(tmp_path / "b" / "policy-best") == best
        for name in ("policy", "policy-best"):
            assert weights(tmp_path / "b" / name) == weights(tmp_path / "a" / name)

    def test_a_kill_at_the_end_leaves_neither_a_line_twice_nor_unfinished_folders(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = ("data.validation=test", "trainer.max_steps=4", "trainer.eval_every=2", "trainer.checkpoint_every=4")
        out = tmp_path / "run"

        def kill(run: Run, name: str) -> Path:
            if name == "policy":
                raise Killed
            return save(run, name)

        save = Run.save_policy
        monkeypatch.setattr(Run, "save_policy", kill)
        with pytest.raises(Killed):
            train(configuration(data, out, *options))
        monkeypatch.undo()
        for leftover in (".unfinished-policy-best", ".replaced-policy-best", ".unfinished-policy"):
            (out / leftover).mkdir(exist_ok=True)
            (out / leftover / "model.safetensors").write_bytes(b"half")
        train(configuration(data, out, *options), resume=True)
        measured = [line["step"] for line in metrics(out) if "validation/loss" in line]
        assert measured == [2, 4]
        assert not [path.name for path in out.iterdir() if path.name.startswith((".unfinished", ".replaced"))]

    @pytest.mark.parametrize("moved", [".unfinished-step-00000004", ".unfinished-policy"])
    def test_a_kill_while_one_folder_gives_way_to_another_loses_neither(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: str
    ) -> None:
        options = ("data.validation=null", "trainer.max_steps=4", "trainer.checkpoint_every=4", "trainer.keep=1")
        out = tmp_path / "run"
        before = weights(train(configuration(data, out, *options)))
        rename = Path.rename

        def killed(path: Path, target: Path) -> Path:
            if path.name == moved:
                raise Killed
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", killed)
        with pytest.raises(Killed):
            train(configuration(data, out, *options), resume=True)
        monkeypatch.undo()
        monkeypatch.setattr(loop.Loop, "_update", lambda *_: pytest.fail("an update was made again"))
        assert weights(train(configuration(data, out, *options), resume=True)) == before
        assert not [path for path in out.rglob(".*") if path.name.startswith((".unfinished", ".replaced"))]

    def test_what_gave_way_does_not_come_back_into_a_run_that_begins_anew(self, data: Dataset, tmp_path: Path) -> None:
        options, out = ("data.validation=null", "trainer.max_steps=1"), tmp_path / "run"
        folder = train(configuration(data, out, *options))
        folder.rename(out / ".replaced-policy")
        with pytest.raises(TrainingError):
            train(configuration(data, out, *options, *DIVERGING), overwrite=True)
        assert not folder.exists()

    def test_a_run_whose_parts_are_links_begins_anew_and_what_they_lead_to_stays(
        self, data: Dataset, tmp_path: Path
    ) -> None:
        options, out = ("data.validation=null", "trainer.max_steps=1"), tmp_path / "run"
        before = weights(train(configuration(data, out, *options)))
        for name in ("checkpoints", "policy"):
            (out / name).rename(tmp_path / name)
            (out / name).symlink_to(tmp_path / name, target_is_directory=True)
        train(configuration(data, out, *options, "trainer.seed=1"), overwrite=True)
        assert not (out / "checkpoints").is_symlink()
        assert weights(tmp_path / "policy") == before != weights(out / "policy")

    def test_what_else_lies_among_checkpoints_is_left_alone_and_a_broken_log_begins_anew(
        self, data: Dataset, tmp_path: Path
    ) -> None:
        out, options = tmp_path / "run", ("trainer.checkpoint_every=1", "trainer.keep=2")
        train(configuration(data, out, *options, "trainer.max_steps=4"))
        there = out / "checkpoints"
        shutil.copytree(there / "step-00000004", there / "step-00000004-mine")
        (there / "step-²").mkdir()
        shutil.copytree(there / "step-00000004", tmp_path / "elsewhere")
        (there / "step-00000003").rename(tmp_path / "three")
        (there / "step-00000003").symlink_to(tmp_path / "three", target_is_directory=True)
        (there / ".unfinished-step-00000006").write_text("a file")
        (out / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2, "x": "\xe2')
        train(configuration(data, out, *options, "trainer.max_steps=7"), resume=True)
        names = {path.name for path in there.iterdir()}
        assert names == {"step-00000006", "step-00000007", "step-00000004-mine", "step-²"}
        assert any((tmp_path / "three").iterdir())  # what a link leads to stays
        assert metrics(out)[0] == {"step": 1}


class TestDiverged:
    def test_a_batch_that_no_memory_holds_is_refused_at_once(self, data: Dataset, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"trainer\.batch_size must be at most 1,048,576 records an update"):
            configuration(data, tmp_path / "run", "trainer.batch_size=1000000000")

    @pytest.mark.parametrize("lr", ["inf", "nan", "1e38", "1" + 400 * "0"])
    def test_a_learning_rate_is_finite(self, data: Dataset, tmp_path: Path, lr: str) -> None:
        with pytest.raises(ValueError, match=r"optim\.lr"):
            configuration(data, tmp_path / "run", f"optim.lr={lr}")

    @pytest.mark.parametrize("measured", ["data.validation=test", "data.validation=null"])
    def test_diverged_weights_are_not_saved(self, data: Dataset, tmp_path: Path, measured: str) -> None:
        with pytest.raises(TrainingError, match=r"update 1: .*not .*finite.*there is no checkpoint yet"):
            train(configuration(data, tmp_path / "run", *DIVERGING, measured, "trainer.max_steps=1"))
        assert not (tmp_path / "run" / "policy").exists()
        assert not (tmp_path / "run" / "policy-best").exists()

    def test_the_last_good_checkpoint_is_good(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "run"
        factor = loop.optim.learning_rate_factor
        monkeypatch.setattr(  # diverges in the third update
            loop.optim, "learning_rate_factor", lambda used, config: factor(used, config) * (1e23 if used > 0.25 else 1)
        )
        options = ("data.validation=null", "trainer.max_steps=9", "trainer.checkpoint_every=1", "trainer.keep=1")
        with pytest.raises(TrainingError, match=r"update 3: .*the last good checkpoint is .*step-00000002"):
            train(configuration(data, out, *options))
        assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000002"]
        monkeypatch.undo()
        train(configuration(data, out, *options), resume=True)

    def test_saved_weights_that_are_not_finite_are_refused(self, data: Dataset, tmp_path: Path) -> None:
        folder = train(configuration(data, tmp_path / "run", "trainer.max_steps=1", "data.validation=null"))
        tensors = load_file(folder / "model.safetensors")
        name = next(name for name in tensors if name.endswith("weight"))
        tensors[name].view(-1)[0] = float("nan")
        save_file(tensors, folder / "model.safetensors")
        config = [s for s in (folder / "config.yaml").read_text().splitlines() if not s.startswith("weights_sha256")]
        (folder / "config.yaml").write_text("\n".join(config) + "\n")
        with pytest.raises(CheckpointError, match=rf"{name} holds .*not finite"):
            genpolicy.load_policy(str(folder))

    def test_a_network_without_numbers_does_not_decide(self, data: Dataset, tmp_path: Path) -> None:
        folder = train(configuration(data, tmp_path / "run", "trainer.max_steps=1", "data.validation=null"))
        policy = genpolicy.load_policy(str(folder))
        assert policy.learner is not None
        with torch.no_grad():
            for parameter in policy.learner.parameters():
                parameter.mul_(1e25)
        with pytest.raises(ValueError, match="not a number"):
            policy.decide([policy.game.parse()])


class TestStateFile:
    @pytest.fixture(scope="class")
    def whole(self, data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
        out = tmp_path_factory.mktemp("whole") / "run"
        train(configuration(data, out, "data.validation=null", "trainer.max_steps=4", "trainer.checkpoint_every=2"))
        return out

    def resume(self, data: Dataset, out: Path) -> Path:
        shutil.rmtree(out / "policy")
        options = ("data.validation=null", "trainer.max_steps=4", "trainer.checkpoint_every=2")
        return train(configuration(data, out, *options), resume=True)

    def test_one_flipped_digit_is_noticed(
        self, data: Dataset, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = Path(shutil.copytree(whole, tmp_path / "run"))
        file = out / "checkpoints" / "step-00000004" / "state.json"
        text = file.read_text()
        assert text.count("0.999") >= 1
        file.write_text(text.replace("0.999", "0.199", 1))
        assert weights(self.resume(data, out)) == weights(whole / "policy")
        assert "state.json is damaged" in capsys.readouterr().err.replace("\n", "")

    def test_a_checkpoint_without_a_checksum_is_read(self, data: Dataset, whole: Path, tmp_path: Path) -> None:
        out = Path(shutil.copytree(whole, tmp_path / "run"))
        shutil.rmtree(out / "checkpoints" / "step-00000004")
        file = out / "checkpoints" / "step-00000002" / "state.json"
        state = json.loads(file.read_text())
        del state["sha256"], state["commits"]  # commits are newer than checksums
        file.write_text(json.dumps(state, indent=1))
        assert weights(self.resume(data, out)) == weights(whole / "policy")


class TestTwoRuns:
    OPTIONS = ("data.validation=null", "trainer.max_steps=2", "trainer.checkpoint_every=1")

    def test_a_second_run_in_the_folder_is_refused(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "run"
        refused: list[str] = []
        save = Run.save

        def second(run: Run) -> None:
            for flags in ({"resume": True}, {"overwrite": True}):
                with pytest.raises(LockedError, match="another process trains there") as error:
                    train(configuration(data, out, *self.OPTIONS, "trainer.seed=1"), **flags)
                refused.append(str(error.value))
            save(run)

        monkeypatch.setattr(Run, "save", second)
        train(configuration(data, out, *self.OPTIONS))
        monkeypatch.undo()
        assert len(refused) == 4
        assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-00000001", "step-00000002"]
        assert compose(RunConfig, [out / "config.yaml"]).trainer.seed == 0
        train(configuration(data, out, *self.OPTIONS), resume=True)  # the folder is free again

    def test_a_new_folder_is_locked_before_anything_is_written(self, data: Dataset, tmp_path: Path) -> None:
        out = tmp_path / "run"
        out.mkdir()
        with filelock.FileLock(out / ".lock"), pytest.raises(LockedError):
            train(configuration(data, out, *self.OPTIONS))
        assert {path.name for path in out.iterdir()} <= {".lock"}
        train(configuration(data, out, *self.OPTIONS))

    def test_a_lock_that_a_file_system_lost_ends_the_run_before_it_saves(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "run"
        save = Run.save
        others: list[FolderLock] = []

        def lose(run: Run) -> None:
            if run.num_updates == 2:
                (out / ".lock").unlink()  # another process can have one now, as when a server forgets who has it
                others.append(FolderLock(out, "trains", "wait"))
            save(run)

        monkeypatch.setattr(Run, "save", lose)
        with pytest.raises(LockedError, match=r"its lock was lost.*\(process \d+ on .*run the same command again"):
            train(configuration(data, out, *self.OPTIONS))
        monkeypatch.undo()
        assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000001"]
        assert not (out / "policy").exists()
        with pytest.raises(LockedError, match="another process trains there"):
            train(configuration(data, out, *self.OPTIONS), resume=True)
        others.pop().release()
        train(configuration(data, out, *self.OPTIONS), resume=True)

    def test_a_policy_names_the_commits_under_which_it_was_trained(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number, (name, expected) in enumerate([("a1", "a1"), ("b2", "a1, b2"), ("b2", "a1, b2")], 1):
            monkeypatch.setattr("genpolicy.training.run.commit", lambda name=name: name)
            options = (*self.OPTIONS, f"trainer.max_steps={2 * number}")
            policy = train(configuration(data, tmp_path / "run", *options), resume=number > 1)
            assert json.loads((policy / "provenance.json").read_text())["commit"] == expected

    def test_of_two_processes_one_is_refused(self, data: Dataset, tmp_path: Path) -> None:
        out = tmp_path / "run"
        command = [sys.executable, "-m", "genpolicy", "train", *SMALL, *self.OPTIONS, f"data.folder={data.folder}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        runs = [
            subprocess.Popen(
                [*command, f"trainer.seed={seed}", "--out", str(out)],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for seed in (1, 2)
        ]
        said = [run.communicate(timeout=120)[1] for run in runs]
        assert sorted(run.returncode for run in runs) == [0, 2], said
        winner = 1 + [run.returncode for run in runs].index(0)
        assert "another process trains there" in said[2 - winner] or "holds a run already" in said[2 - winner]
        assert compose(RunConfig, [out / "config.yaml"]).trainer.seed == winner
        facts = json.loads((out / "policy" / "provenance.json").read_text())
        assert facts["config"]["trainer"]["seed"] == winner
