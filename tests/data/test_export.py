"""``genpolicy data export``: its file is there when it is whole, and not before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genpolicy import cli, load_game
from genpolicy.data.records import Record
from genpolicy_labelling import export
from tests.small_datasets import CONNECT, write_dataset


def test_a_file_that_a_kill_leaves_does_not_look_like_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game, out = load_game(CONNECT), tmp_path / "out.games"
    record = Record(state=game.format(game.parse()), game_id="a", ply=0, played="b2", split="train")
    write_dataset(tmp_path / "data", CONNECT, [record])
    seen: list[list[str]] = []
    read = export._game

    def look(*arguments: Any) -> Any:
        seen.append([path.name for path in tmp_path.iterdir() if path.name != "data"])
        return read(*arguments)

    monkeypatch.setattr(export, "_game", look)
    (tmp_path / ".unfinished-out.games").write_text("of a killed command")
    assert cli.main(["data", "export", "--games", "--data", str(tmp_path / "data"), "--out", str(out)]) == 0
    assert seen == [[".unfinished-out.games"]]
    assert "b2" in out.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name != "data"] == ["out.games"]
