"""``genpolicy.train`` and the public classes: lazily there, the same as the command line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import genpolicy
from genpolicy import cli
from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.training.config import RunConfig
from genpolicy.training.settings import configuration
from tests.small_datasets import solved_connect

SMALL: dict[str, Any] = {
    "learner.kind": "one_step",
    "learner.network": {"num_layers": 1, "width": 16, "num_heads": 2},
    "trainer.device": "cpu",
    "trainer.batch_size": 8,
    "trainer.tensorboard": False,
    "data.validation": None,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"), every=40)


def test_importing_the_package_imports_nothing_that_is_slow() -> None:
    code = (
        "import sys, genpolicy; dir(genpolicy); genpolicy.train, genpolicy.load_policy\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy', 'omegaconf', 'yaml')])\n"
        "from genpolicy import Game, Learner, Policy, Process\n"
        "print(Game.__module__, Learner.__module__, Policy.__module__, Process.__module__)\n"
        "try:\n    genpolicy.Gmae\nexcept AttributeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[]",
        "genpolicy.game genpolicy.policies.learner genpolicy.policies.base genpolicy.diffusion.process",
        "module 'genpolicy' has no attribute 'Gmae'",
    ]
    assert {"Game", "Learner", "Policy", "Process", "train", "load_game", "load_policy"} <= set(dir(genpolicy))


@pytest.mark.parametrize("package", ["genpolicy", "genpolicy.testing"])
def test_names_that_are_loaded_late_are_listed(package: str) -> None:
    code = f"import {package} as package; print(set(package.__all__) - set(dir(package)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_data_set_may_have_a_name_beyond_16_bits(data: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "𠮷"
    shutil.copytree(data.folder, folder)
    settings = {**SMALL, "data.folder": str(folder), "trainer.max_steps": 1}
    assert (genpolicy.train(settings, out=tmp_path / "run") / "config.yaml").is_file()


def test_a_file_with_overrides_trains_as_the_command_does(data: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"data:\n  folder: {data.folder}\ntrainer:\n  max_records: 800\n  seed: 3\n")
    overrides = {**SMALL, "trainer.max_records": 40}
    folder = genpolicy.train(file, overrides, out=tmp_path / "a")
    assert folder == tmp_path / "a" / "policy"
    assert genpolicy.load_policy(folder).kind == "one_step"
    arguments = [f"{key}={'null' if value is None else value}" for key, value in overrides.items()]
    assert cli.main(["train", "--config", str(file), *arguments, "--out", str(tmp_path / "b")]) == 0
    name = "policy/model.safetensors"
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with pytest.raises(CheckpointError, match="holds a run already"):
        genpolicy.train(file, overrides, out=tmp_path / "a")
    longer = genpolicy.train(None, {"trainer.max_records": 56}, resume=True, out=tmp_path / "a")
    assert longer == folder
    genpolicy.train(file, overrides, overwrite=True, out=tmp_path / "a")


def test_settings_themselves_serve_too(data: Dataset, tmp_path: Path) -> None:
    mapping = {"data": {"folder": str(data.folder)}, "trainer": {"max_records": 16}}
    one = genpolicy.train(mapping, SMALL, out=str(tmp_path / "one"))
    settings = [f"data.folder={data.folder}", "trainer.max_records=16", f"out={tmp_path / 'two'}"]
    two = genpolicy.train(compose(RunConfig, overrides=settings), SMALL)
    assert two == tmp_path / "two" / "policy"
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


def test_a_wrong_setting_is_named(data: Dataset, tmp_path: Path) -> None:
    folder = {"data.folder": str(data.folder), "out": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match=r"argument 'trainer.max_record=3': .*Did you mean: 'max_records'"):
        genpolicy.train({**folder, **SMALL, "trainer.max_record": 3})
    with pytest.raises(ConfigError, match=r"argument 'learner.viewr=\"mover\"': .*Did you mean: 'viewer'"):
        genpolicy.train({**folder, **SMALL, "learner.viewr": "mover", "trainer.max_records": 8})
    with pytest.raises(ConfigError, match="nothing to train"):
        genpolicy.train()
    assert not (tmp_path / "run").exists()


def test_a_run_to_resume_is_named_by_either_spelling_of_out(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("game: chess\n")
    for out, arguments in (
        (str(tmp_path), []),
        (None, [f"out={tmp_path}"]),
        ("", [f"out='{tmp_path}'", "data.train=a"]),
    ):
        _, config = configuration([], arguments, out, resume=True)
        assert (config.game, config.out) == ("chess", str(tmp_path))


@pytest.mark.parametrize(
    ("out", "arguments", "said"),
    [
        ("nowhere", ["trainer.max_records=9"], "--resume: no nowhere/config.yaml; name the run to resume"),
        ("", ["out=nowhere"], "--resume: no nowhere/config.yaml; name the run to resume"),
        ("", ["trainer.max_records=9"], "--resume: --out FOLDER is missing; name the run to resume"),
    ],
)
def test_a_run_to_resume_that_is_not_there_is_named(out: str, arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configuration([], arguments, out, resume=True)
