"""What a run writes while it trains."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from genpolicy.training.metrics_log import METRICS_FILE, MetricsLog


def test_without_tensorboard_the_numbers_are_written_and_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # Python's way to say that it cannot be imported
    with MetricsLog(tmp_path, 0, tensorboard=True, also=lambda values, step: None) as log:
        log.write(1, {"loss": 2.5})
    assert json.loads((tmp_path / METRICS_FILE).read_text()) == {"step": 1, "loss": 2.5}
    assert "pip install 'genpolicy[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "tensorboard").exists()
