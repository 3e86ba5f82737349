"""``data info --with``: data sets that a policy learns from together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from genpolicy import cli

GAME = "connect:rows=3,cols=3,k=3,gravity=true"


def made(folder: Path, seed: int) -> str:
    """All positions, split in half by a seed."""
    command = ["data", "import", "all", "--game", GAME, "--split", "0.5/0/0.5", "--split-seed", str(seed)]
    assert cli.main([*command, "--out", str(folder)]) == 0
    return str(folder)


def counts(folder: Path, *names: str) -> dict[str, Any]:
    assert cli.main(["data", "info", *names, "--json", str(folder / "info.json")]) == 0
    counted: dict[str, Any] = json.loads((folder / "info.json").read_text())["counts"]
    return counted


def test_splits_that_contradict_each_other_are_counted(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one", 0), made(tmp_path / "other", 1)
    alone = counts(tmp_path, one)
    assert alone["leakage"]["test"]["in_training"] == 0
    both = counts(tmp_path, one, "--with", other)
    tested = both["leakage"]["test"]
    assert both["records"] == 2 * alone["records"]
    assert both["duplicates"] == alone["records"]
    assert 0.3 < tested["in_training"] / tested["records"] < 0.7
    assert counts(tmp_path, one) == alone
