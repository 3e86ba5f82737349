"""``genpolicy env``: enough for a report, and nothing that is nobody's business."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from genpolicy.cli import main


def test_it_says_what_runs_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["env", "--json", str(tmp_path / "env.json")]) == 0
    facts = json.loads((tmp_path / "env.json").read_text())
    assert facts["torch"] == torch.__version__
    assert facts["OMP_NUM_THREADS"] == "1"
    assert facts["cores"] >= 1
    printed = capsys.readouterr().out
    assert facts["python"] in printed
    assert "hf_secret" not in printed + str(facts)
    assert str(Path.home()) not in printed + str(facts)


def test_a_torch_that_cannot_be_imported_is_what_it_reports(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["env"]) == 0
    assert "import of torch" in capsys.readouterr().out
