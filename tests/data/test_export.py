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
        seen.append(sorted(path.name for path in tmp_path.iterdir() if path.name != "data"))
        return read(*arguments)

    monkeypatch.setattr(export, "_game", look)
    (tmp_path / ".unfinished-out.games").write_text("of a killed command")
    assert cli.main(["data", "export", "--games", "--data", str(tmp_path / "data"), "--out", str(out)]) == 0
    assert seen == [[".unfinished-out.games", ".unfinished-out.games.lock"]]
    assert "b2" in out.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name != "data"] == ["out.games"]


def test_two_commands_that_write_one_file_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.pgn"
    command = ["data", "export", "--games", "--data", "sample:chess", "--split", "test", "--out", str(out)]
    read, statuses = export._game, []

    def second(*arguments: Any) -> Any:
        monkeypatch.setattr(export, "_game", read)
        statuses.append(cli.main(command))
        return read(*arguments)

    monkeypatch.setattr(export, "_game", second)
    assert cli.main(command) == 0
    assert statuses == [2]
    assert "out.pgn: another process writes it" in capsys.readouterr().err
    assert out.read_text().count("[Event ") == 58
    assert [path.name for path in tmp_path.iterdir()] == ["out.pgn"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.xyz", "--out out.xyz: games are written as .pgn"),
        ("no/out.pgn", "--out no/out.pgn: there is no folder no; make it first"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_as_it_was_given(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["data", "export", "--games", "--data", "sample:chess", "--split", "test", "--out", name]) == 2
    assert message in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
