"""What a run's folder holds, as tests read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genpolicy.training.config import RunConfig
from genpolicy.training.loop import train
from tests.training import toy


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The whole lines of ``metrics.jsonl``; the last one may be in the middle of being written."""
    file = out / "metrics.jsonl"
    return (
        [json.loads(line) for line in file.read_text().splitlines(True) if line[-1] == "\n"] if file.is_file() else []
    )


def weights(policy: Path) -> bytes:
    return (policy / "model.safetensors").read_bytes()


def steps(out: Path) -> list[int]:
    return sorted(int(p.name.removeprefix("step-")) for p in (out / "checkpoints").iterdir())


def finished_run(configuration: Callable[[Path], RunConfig], folder: Path) -> Path:
    """A run of the toy learner in a folder, finished; tests change copies of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(toy.register(folder / "site")))
        train(configuration(folder / "run"))
    return folder / "run"
