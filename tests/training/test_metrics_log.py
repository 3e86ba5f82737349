"""What a run writes while it trains."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from genpolicy.training import metrics_log
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file whose disk is full")
def test_a_full_disk_is_named_with_the_way_out_also_when_the_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_log, "write_atomic", lambda path, data: path.symlink_to("/dev/full"))
    with (
        pytest.raises(OSError, match="the checkpoints are safe: make room, then resume with --resume"),
        MetricsLog(tmp_path, 0, tensorboard=False, also=lambda values, step: None) as log,
    ):
        log.write(1, {"loss": 2.5})


@pytest.mark.parametrize("when", ["add_scalar", "close"])
def test_a_full_disk_below_tensorboard_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    board = {"SummaryWriter": lambda *_, **__: SimpleNamespace(**{"add_scalar": print, "close": print, when: full})}
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(**board))
    with (
        pytest.raises(OSError, match="the checkpoints are safe: make room, then resume with --resume"),
        MetricsLog(tmp_path, 0, tensorboard=True, also=lambda values, step: None) as log,
    ):
        log.write(1, {"loss": 2.5})


def test_a_damaged_line_costs_itself_alone_and_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = ['{"step": 2, "lo', "[3]", '{"step": "4"}', "[" * 100_000]
    (tmp_path / METRICS_FILE).write_text("\n".join(['{"step": 1}', *damaged, '{"step": 5}', '{"step": 6, "lo']))
    with MetricsLog(tmp_path, 6, tensorboard=False, also=lambda values, step: None) as log:
        log.write(6, {"loss": 2.5})
    lines = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
    assert lines == [{"step": 1}, {"step": 5}, {"step": 6, "loss": 2.5}]
    said = capsys.readouterr().err
    assert [f"{METRICS_FILE}:{number}: damaged" in said for number in range(1, 8)] == [False, *[True] * 4, False, False]
