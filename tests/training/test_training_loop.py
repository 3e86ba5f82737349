"""The training loop: resumed runs, checkpoints that are damaged or not ours, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

import genpolicy
from genpolicy.config import compose
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import CheckpointError, ConfigError, DatasetError, TrainingError
from genpolicy.training import checkpoint as checkpoints
from genpolicy.training import loop
from genpolicy.training.checkpoint import _checksum
from genpolicy.training.config import RunConfig
from genpolicy.training.loop import stop_requests, train
from genpolicy.training.measure import _positions
from genpolicy.training.run import Run, _require_free
from tests.small_datasets import CONNECT, solved_connect, write_dataset
from tests.training import toy
from tests.training.run_folders import finished_run, read_metrics, steps, weights

# On one worker, so that what the module trains is trained once.
pytestmark = pytest.mark.xdist_group("training-loop")


def configuration(data: Dataset, out: Path, *overrides: str) -> RunConfig:
    defaults = [
        f"data.folder={data.folder}",
        "data.validation=test",
        "learner.kind=toy",
        "optim.ema=0.9",
        "trainer.device=cpu",
        "trainer.batch_size=16",
        "trainer.max_steps=12",
        "trainer.checkpoint_every=4",
        "trainer.eval_every=5",
        "trainer.accuracy_records=8",
        "trainer.log_every=2",
        "trainer.tensorboard=false",
        f"out={out}",
    ]
    return compose(RunConfig, overrides=[*defaults, *overrides])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=10)


@pytest.fixture
def toy_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = toy.register(tmp_path / "site")
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture(scope="module")
def finished_once(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(partial(configuration, data), tmp_path_factory.mktemp("finished"))


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_once, tmp_path / "finished"))


def test_accuracy_is_of_positions_spread_over_the_labelled_ones_of_a_split(tmp_path: Path) -> None:
    game = genpolicy.load_game(CONNECT)
    states = [state for state in game.positions() if game.outcome(state) is None][:20]
    records = [
        Record(state=game.format(s), line=game.moves[int(game.legal(s)[0])] if row % 2 else None, split="test")
        for row, s in enumerate(states)
    ]
    made = write_dataset(tmp_path, CONNECT, records)
    for count, rows in ((6, [1, 3, 7, 11, 15, 19]), (10, range(1, 20, 2)), (99, range(1, 20, 2)), (0, [])):
        assert [state for state, _ in _positions(made, "test", game, count)] == [states[row] for row in rows]


@pytest.mark.usefixtures("toy_path")
class TestInProcess:
    def test_a_run_leaves_a_policy_its_provenance_and_its_numbers(self, data: Dataset, tmp_path: Path) -> None:
        folder = train(configuration(data, tmp_path / "run"))
        assert folder == tmp_path / "run" / "policy"
        game = genpolicy.load_game(data.game_spec)
        assert genpolicy.load_policy(folder).decide([game.parse()])[0].move in game.legal(game.parse())
        facts = json.loads((folder / "provenance.json").read_text())
        assert facts["records_seen"] == 12 * 16
        assert facts["dataset"]["checksum"] == data.checksum
        assert facts["config"]["trainer"]["max_steps"] == 12
        assert facts["config"]["learner"] == {"kind": "toy", "width": 16, "dropout": 0.2, "poison_at": 0}
        assert {"genpolicy", "torch", "python"} <= set(facts["versions"])
        lines = read_metrics(tmp_path / "run")
        assert [line["step"] for line in lines if "train/loss" in line] == [2, 4, 6, 8, 10, 12]
        measured = [line for line in lines if "validation/loss" in line]
        assert [line["step"] for line in measured] == [5, 10, 12]
        assert all(0 <= line["validation/accuracy"] <= 1 for line in measured)
        assert "validation/elbo_nats" not in measured[0]  # the toy has none

    def test_newest_checkpoints_and_the_best_are_kept(self, data: Dataset, tmp_path: Path) -> None:
        out = tmp_path / "run"
        train(configuration(data, out, "trainer.checkpoint_every=1", "trainer.keep=3", "trainer.max_steps=11"))
        measured = {line["step"]: line["validation/loss"] for line in read_metrics(out) if "validation/loss" in line}
        best = min(measured, key=lambda step: measured[step])
        assert steps(out) == sorted({9, 10, 11, best})
        assert (out / "policy-best" / "config.yaml").is_file()

    def test_resuming_from_any_checkpoint_ends_the_same(self, data: Dataset, tmp_path: Path) -> None:
        out = tmp_path / "run"
        often = ("optim.name=muon", "trainer.keep=99", "trainer.checkpoint_every=1")
        whole = weights(train(configuration(data, out, *often)))
        for stop in (7, 1):
            for step in steps(out):
                if step > stop:
                    shutil.rmtree(out / "checkpoints" / f"step-{step:08d}")
            assert weights(train(configuration(data, out, *often), resume=True)) == whole

    def test_parts_prefetching_and_measuring_change_nothing(self, data: Dataset, tmp_path: Path) -> None:
        plain = weights(train(configuration(data, tmp_path / "plain")))
        for i, override in enumerate(["trainer.prefetch=0", "trainer.eval_every=1", "trainer.log_every=1"]):
            assert weights(train(configuration(data, tmp_path / str(i), override))) == plain

    def test_accumulated_parts_make_the_same_update(self, data: Dataset, tmp_path: Path) -> None:
        one, many = (
            load_file(
                train(
                    configuration(
                        data, tmp_path / str(parts), "learner.dropout=0", "trainer.max_steps=1", f"trainer.{parts}"
                    )
                )
                / "model.safetensors"
            )
            for parts in ("accumulate=1", "accumulate=4")
        )
        # The noise is drawn per part and so the same; means of four means differ from one mean by rounding. Adam's
        # first update is lr times the sign of the gradient, so what is compared is the sign (tiny gradients aside).
        for name, tensor in one.items():
            torch.testing.assert_close(tensor, many[name], atol=3e-5, rtol=0)

    def test_more_budget_goes_on_and_training_leaves_the_callers_generators_alone(
        self, data: Dataset, tmp_path: Path
    ) -> None:
        torch.manual_seed(5)
        random.seed(5)
        expected = (torch.rand(1).item(), random.random())
        torch.manual_seed(5)
        random.seed(5)
        train(configuration(data, tmp_path / "run"))
        assert (torch.rand(1).item(), random.random()) == expected
        train(configuration(data, tmp_path / "run", "trainer.max_steps=14"), resume=True)
        assert max(steps(tmp_path / "run")) == 14
        lines = [line["step"] for line in read_metrics(tmp_path / "run") if "train/loss" in line]
        assert lines == sorted(set(lines))

    def test_averaged_weights_are_the_formula(self, data: Dataset, tmp_path: Path) -> None:
        """Two updates: average = w0, then d w + (1 - d) w' with d = min(0.9, (1 + n) / (10 + n))."""
        options = ("trainer.checkpoint_every=1", "trainer.keep=9", "trainer.max_steps=2", "trainer.eval_every=0")
        folder = train(configuration(data, tmp_path / "run", *options))
        first, second = (
            load_file(tmp_path / "run" / "checkpoints" / f"step-0000000{i}" / "model.safetensors") for i in (1, 2)
        )
        averages = [
            load_file(tmp_path / "run" / "checkpoints" / f"step-0000000{i}" / "ema.safetensors") for i in (1, 2)
        ]
        for name in first:
            expected = 2 / 11 * averages[0][name] + 9 / 11 * second[name]
            torch.testing.assert_close(averages[1][name], expected)
            assert torch.equal(load_file(folder / "model.safetensors")[name], averages[1][name])

    def test_it_learns(self, data: Dataset, tmp_path: Path) -> None:
        train(
            configuration(
                data,
                tmp_path / "run",
                "trainer.max_steps=150",
                "trainer.eval_every=0",
                "trainer.checkpoint_every=0",
                "optim.lr=1e-2",
                "learner.dropout=0",
            )
        )
        losses = [line["train/loss"] for line in read_metrics(tmp_path / "run") if "train/loss" in line]
        assert losses[-1] < 0.8 * losses[0]

    def test_init_from(self, data: Dataset, tmp_path: Path) -> None:
        source = train(configuration(data, tmp_path / "a"))
        tiny = ("optim.lr=1e-12", "optim.weight_decay=0", "trainer.max_steps=1", f"init_from={source}")
        started = load_file(train(configuration(data, tmp_path / "b", *tiny)) / "model.safetensors")
        for name, tensor in load_file(source / "model.safetensors").items():
            torch.testing.assert_close(started[name], tensor)
        with pytest.raises(CheckpointError, match=r"init_from.*differ in"):
            train(configuration(data, tmp_path / "c", *tiny, "learner.width=8"))

    def test_only_what_is_named_learns(self, data: Dataset, tmp_path: Path) -> None:
        source = train(configuration(data, tmp_path / "a"))
        options = (f"init_from={source}", "optim.only=[head,hidden.bias]", "optim.ema=0", "optim.weight_decay=0.1")
        learned = load_file(train(configuration(data, tmp_path / "b", *options)) / "model.safetensors")
        before = load_file(source / "model.safetensors")
        moved = {name for name in learned if not torch.equal(learned[name], before[name])}
        assert moved == {"head.weight", "head.bias", "hidden.bias"}
        for wrong in ("haed", "hea", "head.weights"):
            with pytest.raises(ConfigError, match=rf"optim\.only: .* no parameters '{wrong}'.* Did you mean: 'head"):
                train(configuration(data, tmp_path / "c", f"optim.only=[{wrong}]"))

    def test_no_number_stops_with_the_update_and_the_last_good_checkpoint(self, data: Dataset, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match=r"update 7: .*step-00000004"):
            train(configuration(data, tmp_path / "run", "learner.poison_at=7", "trainer.eval_every=0"))
        assert max(steps(tmp_path / "run")) == 4

    @pytest.mark.sampled(5)
    @pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"])
    @pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
    def test_a_damaged_checkpoint_gives_way_to_the_one_before(
        self, data: Dataset, finished: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, whole = finished, weights(finished / "policy")
        file = out / "checkpoints" / "step-00000012" / name
        content = bytearray(file.read_bytes())
        if damage == "gone":
            file.unlink()
        else:
            content[len(content) // 2] ^= 255
            file.write_bytes(content if damage == "flip" else content[: len(content) // 2])
        assert weights(train(configuration(data, out), resume=True)) == whole
        said = capsys.readouterr().err
        assert "step-00000012" in said
        assert "damaged" in said
        assert re.search(r"resuming from .*step-0000000[58]|step-00000010", said.replace("\n", ""))

    def test_all_damaged_is_an_error(self, data: Dataset, finished: Path) -> None:
        whole = weights(finished / "policy")
        for folder in (finished / "checkpoints").iterdir():
            (folder / "state.json").write_text("{")
        with pytest.raises(CheckpointError, match=r"no intact checkpoint .* delete this folder, and the same command"):
            train(configuration(data, finished), resume=True)
        shutil.rmtree(finished / "checkpoints")
        assert weights(train(configuration(data, finished), resume=True)) == whole

    def test_a_newer_checkpoint_is_refused(self, data: Dataset, finished: Path) -> None:
        file = finished / "checkpoints" / "step-00000012" / "state.json"
        state = json.loads(file.read_text())
        del state["sha256"]
        state["format"] += 1
        file.write_text(json.dumps({**state, "sha256": _checksum(state)}))
        with pytest.raises(CheckpointError, match="upgrade genpolicy"):
            train(configuration(data, finished), resume=True)

    @pytest.mark.parametrize(
        ("override", "named"),
        [("learner.width=8", "config.learner.width was 16 and is 8"), ("trainer.seed=1", "config.trainer.seed")],
    )
    def test_another_configuration_is_refused_by_name(
        self, data: Dataset, finished: Path, override: str, named: str
    ) -> None:
        with pytest.raises(CheckpointError, match=re.escape(named)):
            train(configuration(data, finished, override), resume=True)

    def test_an_average_that_the_run_did_not_keep_is_another_configuration(self, data: Dataset, tmp_path: Path) -> None:
        out = tmp_path / "run"
        train(configuration(data, out, "optim.ema=0", "trainer.max_steps=1"))
        with pytest.raises(CheckpointError, match=r"belongs to another run: config\.optim\.ema was 0\.0 and is 0\.9"):
            train(configuration(data, out), resume=True)

    def test_a_checkpoint_from_before_a_key_existed_is_resumed(self, data: Dataset, finished: Path) -> None:
        whole = weights(finished / "policy")
        shutil.rmtree(finished / "checkpoints" / "step-00000012")
        for file in (finished / "checkpoints").glob("*/state.json"):
            state = json.loads(file.read_text())
            del state["sha256"], state["commits"]  # commits are newer than checksums
            config = state["identity"]["config"]
            assert config["learner"].pop("poison_at") is not None
            assert config["optim"].pop("momentum")
            file.write_text(json.dumps(state))
        assert weights(train(configuration(data, finished), resume=True)) == whole
        with pytest.raises(CheckpointError, match=r"config\.optim\.momentum was 0\.95 and is 0\.5"):
            train(configuration(data, finished, "optim.momentum=0.5"), resume=True)

    def test_other_data_and_another_game_are_refused_by_name(
        self, data: Dataset, finished: Path, tmp_path: Path
    ) -> None:
        fewer = write_dataset(tmp_path / "fewer", data.game_spec, list(data.records())[1:])
        with pytest.raises(CheckpointError, match="dataset was"):
            train(configuration(fewer, finished), resume=True)
        other = genpolicy.load_game("connect:rows=3,cols=4,k=3,gravity=false")
        record = genpolicy.data.records.Record(state=other.format(other.parse()), line=other.moves[0], split="train")
        elsewhere = write_dataset(tmp_path / "other", other.spec, [record])
        with pytest.raises(CheckpointError, match=r"config.game was .*cols=3.* and is .*cols=4.*tokenizer was"):
            train(configuration(elsewhere, finished), resume=True)
        with pytest.raises(DatasetError, match="the configuration says"):
            train(configuration(data, tmp_path / "new", f"game='{other.spec}'"))

    def test_a_run_is_not_overwritten_unasked(self, data: Dataset, finished: Path) -> None:
        with pytest.raises(CheckpointError, match=r"--resume.*--overwrite"):
            train(configuration(data, finished))
        train(configuration(data, finished, "trainer.max_steps=3"), overwrite=True)
        assert max(steps(finished)) == 3

    def test_a_full_disk_leaves_the_checkpoint_before(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = checkpoints.write_durably

        def full(path: Path, content: bytes) -> None:
            if "step-00000008" in str(path) and path.name == "optimizer.safetensors":
                path.write_bytes(content[:100])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            write(path, content)

        monkeypatch.setattr(checkpoints, "write_durably", full)
        out = tmp_path / "run"
        with pytest.raises(CheckpointError, match=r"step-00000008: .*No space left.*untouched.*--resume"):
            train(configuration(data, out))
        assert max(steps(out)) == 5  # the best so far, after the first measurement
        monkeypatch.undo()
        toy_path = str(tmp_path / "site")
        monkeypatch.syspath_prepend(toy_path)
        assert weights(train(configuration(data, out), resume=True)) == weights(
            train(configuration(data, tmp_path / "undisturbed"))
        )

    def test_what_cannot_be_run_is_said(self, data: Dataset, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no end"):
            train(configuration(data, tmp_path / "a", "trainer.max_steps=null"))
        with pytest.raises(ConfigError, match=r"learner\.widht.*Did you mean: 'width'"):
            train(configuration(data, tmp_path / "b", "learner.widht=3"))
        with pytest.raises(ConfigError, match=r"optim\.lrr.*Did you mean: 'lr'"):
            configuration(data, tmp_path / "c", "optim.lrr=3")
        with pytest.raises(ConfigError, match="accumulate"):
            configuration(data, tmp_path / "d", "trainer.accumulate=3")
        with pytest.raises(DatasetError, match=r"no record in split 'training'.*train"):
            train(configuration(data, tmp_path / "e", "data.train=training"))


def test_what_the_shell_has_ignored_stays_ignored() -> None:
    """``nohup genpolicy train`` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as request:
            signal.raise_signal(signal.SIGHUP)
            assert request.signal is None
            signal.raise_signal(signal.SIGTERM)
            assert request.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_overwrite_touches_nothing_that_no_run_made(tmp_path: Path) -> None:
    notes = tmp_path / "mine" / "policy" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("years of work")
    with pytest.raises(CheckpointError, match="not a run of genpolicy train"):
        _require_free(tmp_path / "mine", resume=False, overwrite=True)
    assert notes.read_text() == "years of work"


def test_a_run_that_was_killed_before_it_had_a_configuration_is_begun_again(tmp_path: Path) -> None:
    """As by a kill between writing ``config.yaml`` under another name and giving it its own."""
    for name in (".lock", ".config.yaml.tmp"):
        (tmp_path / name).touch()
    _require_free(tmp_path, resume=True, overwrite=False)
    (tmp_path / ".profile").touch()
    with pytest.raises(CheckpointError, match="not a run of genpolicy train"):
        _require_free(tmp_path, resume=True, overwrite=False)


@pytest.mark.usefixtures("toy_path")
def test_a_run_of_hours_says_so_after_the_first_part(
    data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LONG_S", 0.0)
    monkeypatch.setattr(loop, "MANY_WEIGHTS", 0)
    train(configuration(data, tmp_path / "run", "trainer.max_steps=2", "trainer.eval_every=0"))
    shown = capsys.readouterr().err
    assert shown.count("this takes about 0.0 hours on cpu; trainer.max_minutes=N ends it earlier") == 1
    assert shown.count("a network of this size is meant for a GPU") == 1


@pytest.mark.usefixtures("toy_path")
def test_processes_of_two_runs_share_no_draws(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds 0 to 9 are compared as if they were independent, on one device or on many."""

    def drawn(seed: int, process: int) -> float:
        monkeypatch.setattr(Accelerator, "process_index", process)
        monkeypatch.setattr(Accelerator, "num_processes", 2)
        with ExitStack() as held:
            settings = configuration(data, tmp_path / f"{seed}-{process}", f"trainer.seed={seed}")
            run = Run(settings, held, resume=False, overwrite=False)
            return float(torch.rand((), generator=run.generator))

    assert len({drawn(seed, process) for seed in (0, 1) for process in (0, 1)}) == 4
