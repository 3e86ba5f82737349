"""``genpolicy experiment`` and the commands of ``data.make``, which run as processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from genpolicy.errors import ConfigError
from genpolicy_experiments.description import Experiment
from genpolicy_experiments.making import make_data


def made_by(script: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment without data; the command that makes it runs a shell script instead."""
    if sys.platform == "win32":
        pytest.skip("runs a shell script")
    interpreter = tmp_path / "interpreter"
    interpreter.write_text(f"#!/bin/sh\ncd '{tmp_path}'\n{script}\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    path = tmp_path / "made.yaml"
    data = {"folder": str(folder), "make": ["data import x --out {folder}-positions"]}
    path.write_text(yaml.safe_dump({"name": "made", "data": data, "budget": {"records": 64}}))
    return Experiment(path)


def test_the_folder_of_the_data_may_have_a_space_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = made_by('shift 3; echo "$@" > words; exit 3', tmp_path / "my data", tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match="ended with status 3"):
        make_data(experiment, lambda text: None)
    assert (tmp_path / "words").read_text() == f"import x --out {tmp_path / 'my data'}-positions\n"


def test_ctrl_c_waits_until_the_command_that_makes_the_data_has_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed a quarter of a second later: a training with longer updates lost all since its last checkpoint."""
    script = "trap 'sleep 1; touch saved; exit 0' TERM\ntouch begun; while :; do sleep 0.1; done"
    experiment = made_by(script, tmp_path / "data", tmp_path, monkeypatch)

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        make_data(experiment, lambda text: None)
    thread.join()
    assert (tmp_path / "saved").exists()
