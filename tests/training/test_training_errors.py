"""``genpolicy train`` given something wrong: one message with the place and the way out, and nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from genpolicy import cli, load_game
from genpolicy.cli import main
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import ConfigError
from genpolicy.training.loop import Loop
from genpolicy.training.run import _choose_gpu
from tests.small_datasets import solved_connect, write_dataset

# On one worker, so that what the module trains is trained once.
pytestmark = pytest.mark.xdist_group("training-errors")

SMALL = [
    "learner.kind=diffusion",
    "learner.horizon=1",
    "learner.network.num_layers=1",
    "learner.network.width=16",
    "learner.network.num_heads=2",
    "trainer.device=cpu",
    "trainer.batch_size=8",
    "trainer.max_steps=4",
    "trainer.checkpoint_every=2",
    "trainer.tensorboard=false",
    "data.validation=null",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=40)


@pytest.fixture(scope="module")
def finished_once(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    assert cli.main(["train", *SMALL, f"data.folder={data.folder}", "--out", str(out)]) == 0
    return out


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_once, tmp_path / "finished"))


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Exit status 2, nothing on stdout, and the one message, which is returned."""
    capsys.readouterr()
    assert cli.main(["train", *arguments]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    messages = [line for line in out.err.splitlines() if line.startswith("genpolicy: error: ")]
    assert len(messages) == 1, out.err
    return messages[0]


@pytest.mark.parametrize("extra", [[], ["learner.widht=3"], ["widht=3"]])
def test_a_learner_that_is_a_list_is_refused(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, "learner.kind=[one_step]", *extra, "trainer.max_steps=1", "--out", "unused")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("device=cuda", "argument 'device=cuda': key 'device' does not exist. Did you mean: 'trainer.device'?"),
        ("horizon=4", "'horizon' does not exist. Did you mean: 'learner.horizon'"),
        ("learner.netwrok.width=4", "argument 'learner.netwrok.width=4': key 'learner.netwrok' does not exist."),
        ("learner.network.widht=4", "key 'learner.network.widht' does not exist. Did you mean: 'width'? Keys here: "),
        ("learner.network.width=wide", "argument 'learner.network.width=wide': key 'learner.network.width': "),
        ("learner.network.num_layers=1001", "num_layers must be at least 1 and at most 1,000, got 1,001"),
        ("learner.process.num_timesteps=x", "key 'learner.process.num_timesteps' is a value such as 20, got 'x'"),
        ("learner.process.timesteps=3", "Did you mean: 'num_timesteps'?"),
        ("learner.sampler.name=easy_frst", "argument 'learner.sampler.name=easy_frst': sampler 'easy_frst' does not"),
        ("learner.sampler.num_steps=99", "num_steps must be 1..20"),
        ("trainer.max_steps=0", "argument 'trainer.max_steps=0': trainer.max_steps must be above 0 and finite, got 0"),
        ("trainer.max_epochs=inf", "trainer.max_epochs must be above 0 and finite, got inf"),
        ("optim.grad_clip=nan", "argument 'optim.grad_clip=nan': optim.grad_clip must be at least 0, got nan"),
        ("optim.weight_decay=nan", "optim.weight_decay must be at least 0, got nan"),
        ("trainer.max_steps=null", "the run has no end"),
        ("trainer.prefetch=1001", "trainer.prefetch must be at most 1,000 updates, got 1,001"),
        ("trainer.device=cpu:3", "trainer.device is auto, cpu, cuda, cuda:1 or mps; got 'cpu:3'"),
        ("data.folder=gone", "gone"),
        ("data.train=training", "no record in split 'training'; it has: train"),
        ("init_from=gone", "init_from: no policy 'gone'"),
        ("init_from=runs/gone", "init_from: runs/gone: no such folder"),
        ("init_from=random", "init_from: the policy random has no weights to start from"),
        ("data.train=", "argument 'data.train=': key 'data.train': it has no value, and needs one"),
        ("data.train={own}", "key 'data.train': braces make a mapping; quote text that has them: "),
        ("game=connect", "records of 'connect:rows=3"),
        ("configs/connect/s-a-3x3.yaml", "a file is given by --config configs/connect/s-a-3x3.yaml"),
        ("out=elsewhere", "two folders for one run: --out"),
    ],
)
def test_a_wrong_setting_is_named_and_costs_no_run(
    override: str, message: str, data: Dataset, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even with --overwrite: all is seen to be right before an earlier run is deleted."""
    before = contents(finished)
    process = [] if "process" not in override else ["learner.process.kind=absorbing"]
    settings = [*SMALL, *process, f"data.folder={data.folder}", override]
    assert message in fails(capsys, *settings, "--overwrite", "--out", str(finished))
    assert contents(finished) == before


def test_the_line_of_a_learners_key_is_named(data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"data:\n  folder: {data.folder}\nlearner:\n  kind: one_step\n  viewr: mover\n")
    message = fails(capsys, "--config", str(file), "--out", str(tmp_path / "run"))
    assert f"{file}:5: key 'learner.viewr' does not exist. Did you mean: 'viewer'?" in message
    file.write_text(f"data:\n  folder: {data.folder}\nlearner:\n  kind: one_step\n\n  viewer: nobody\n")
    message = fails(capsys, "--config", str(file), "trainer.max_steps=1", "--out", str(tmp_path / "run"))
    assert f"{file}:6: viewer must be one of" in message
    assert not (tmp_path / "run").exists()


def test_an_argument_given_twice_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", *SMALL, "trainer.max_steps=7", "--print-config"]) == 0
    out = capsys.readouterr()
    assert "max_steps: 7" in out.out
    assert "trainer.max_steps=4 is given again further on; the last one counts" in out.err


def test_data_of_another_game_and_without_a_split(
    data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = load_game("connect:rows=3,cols=4,k=3,gravity=no")
    record = Record(state=other.format(other.parse()), line=other.moves[0], split="test")
    elsewhere = write_dataset(tmp_path / "other", other.spec, [record])
    out = ["--out", str(tmp_path / "run")]
    message = fails(capsys, *SMALL, f"data.folder={elsewhere.folder}", f"game='{data.game_spec}'", *out)
    assert f"{elsewhere.folder}: records of {other.spec!r}; the configuration says {data.game_spec!r}" in message
    assert "no record in split 'train'; it has: " in fails(capsys, *SMALL, f"data.folder={elsewhere.folder}", *out)
    assert not (tmp_path / "run").exists()


def test_more_records_of_an_update_than_there_are_are_told(
    data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = write_dataset(tmp_path / "few", data.game_spec, list(data.records("train"))[:5])
    assert cli.main(["train", *SMALL, f"data.folder={few.folder}", "--out", str(tmp_path / "run")]) == 0
    assert "trainer.batch_size=8 is more than the 5 windows of split 'train'" in capsys.readouterr().err


def test_folders_that_cannot_hold_a_run(
    data: Dataset, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*SMALL, f"data.folder={data.folder}"]
    (tmp_path / "notes.txt").write_text("mine")
    at_file, below = tmp_path / "notes.txt", tmp_path / "notes.txt" / "run"
    assert f"{at_file}: exists already and is not a run" in fails(capsys, *settings, "--out", str(at_file))
    assert f"{at_file}: is a file, not a folder" in fails(capsys, *settings, "--out", str(below))
    # Root may write anywhere, so the answer of the system is made up.
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: access(path, mode) and Path(path).name != "checkpoints")
    message = fails(capsys, *settings, "trainer.max_steps=6", "--resume", "--out", str(finished))
    assert f"{finished / 'checkpoints'}: may not be written to; change that, or name another folder" in message


def test_a_disk_that_takes_no_more_costs_one_checkpoint(
    data: Dataset, finished: Path, tmp_path: Path, warm_start: None
) -> None:
    """A limit on the size of files, set at the start, stops the write in the middle as a full disk does."""
    arguments = ["train", *SMALL, f"data.folder={data.folder}", "trainer.max_steps=6", "--resume", "--out"]
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (int(sys.argv.pop(1)),))\n"
        "from genpolicy.cli import main\n"
        "raise SystemExit(main())"
    )
    whole = Path(shutil.copytree(finished, tmp_path / "whole"))
    model = finished / "checkpoints" / "step-00000004" / "model.safetensors"
    start = [sys.executable, "-c", code, str(model.stat().st_size // 2)]
    before = contents(model.parent)
    done = subprocess.run([*start, *arguments, str(finished)], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    final = finished / "checkpoints" / "step-00000006"
    assert f"genpolicy: error: {final}: the checkpoint cannot be written (File too large)" in done.stderr
    assert f"the last one, {model.parent}, is untouched" in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(model.parent) == before
    assert not final.exists()
    assert not list(final.parent.glob(".*"))
    for folder in (finished, whole):
        assert main([*arguments, str(folder)]) == 0
    assert contents(finished / "policy")["model.safetensors"] == contents(whole / "policy")["model.safetensors"]


def test_a_sampler_is_tried_before_training(
    data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loop, "go", lambda self: pytest.fail("training began"))
    settings = [*SMALL, f"data.folder={data.folder}", "learner.sampler.name=foo", "--out", str(tmp_path / "run")]
    assert "sampler 'foo' does not exist" in fails(capsys, *settings)


def test_a_gpu_is_chosen_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    _choose_gpu(1)
    assert chosen == [1]
    with pytest.raises(ConfigError, match=r"trainer\.device=cuda:2: torch sees 2 here, cuda:0 to cuda:1"):
        _choose_gpu(2)
