"""Files of played games of k-in-a-row."""

from __future__ import annotations

from pathlib import Path

import pytest

from genpolicy.errors import SourceError
from genpolicy.game import PlayedGame
from genpolicy.registry import load_game

GAME = load_game("connect:rows=3,cols=3,k=3,gravity=false")


@pytest.mark.parametrize("name", ["a.games", "a.games.gz"])
def test_games_come_back_as_they_were_written(name: str, tmp_path: Path) -> None:
    moves = tuple(GAME.moves.index(text) for text in ["b2", "a1", "c3"])
    games = [
        PlayedGame("1", GAME.format(GAME.parse()), moves, None, {"X": 'a "quoted"; name', "O": "b"}),
        PlayedGame("2", ".../.X./... O", moves[1:], -1.0, {}),
        PlayedGame("3", GAME.format(GAME.parse()), (), 0.0, {"Round": "1.2"}),
    ]
    for game in games:
        GAME.files.write_game(tmp_path / name, game)
    found = list(GAME.files.open_games(tmp_path / name))
    keys = [(game.start, game.moves, game.result, game.headers) for game in games]
    assert [(game.start, game.moves, game.result, game.headers) for game in found] == keys
    assert GAME.files.source_kind(tmp_path / name) == "games"
    assert GAME.files.source_kind(tmp_path / "a.txt") == "positions"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-; b2 b2; *", "b2"),
        ("-; b2 z9; *", "z9"),
        ("-; b2; 2-0", "start; moves; result"),
        ("-; b2", "start; moves; result"),
        ("XX./.../... X; b2; *", "XX./"),
        ("-; b2; *; [1]", "JSON object"),
        ("-; b2; *; {", "a.games:2"),
    ],
)
def test_a_bad_game_is_named_and_survived(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.games"
    path.write_text(f"-; a1; *\n{line}\n-; a2; 1-0; {{}}\n")
    with pytest.raises(SourceError, match=r"a\.games:2: "):
        list(GAME.files.open_games(path))
    bad: list[SourceError] = []
    assert [game.result for game in GAME.files.open_games(path, bad.append)] == [None, 1.0]
    assert len(bad) == 1
    assert message in str(bad[0])


def test_a_file_without_a_game_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.games").write_text("# nothing\n")
    with pytest.raises(SourceError, match="holds no game"):
        list(GAME.files.open_games(tmp_path / "a.games"))


def test_a_folder_or_glob_stands_for_its_files(tmp_path: Path) -> None:
    for name, line in {"b/a.games": "-; a1; *", "b/b.games": "-; a2; 1-0", "c/a.games": "-; a3; *"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{line}\n")
    (tmp_path / "b" / "README.txt").write_text("no position\n")
    files = GAME.files
    for path in (tmp_path / "b", tmp_path / "b" / "*.games"):
        assert files.source_kind(path) == "games"
        assert [game.game_id for game in files.open_games(path)] == ["a.games:1", "b.games:1"]
    alike = [tmp_path / name for name in ("b/a.games", "b/b.games", "c/a.games")]
    assert [game.game_id for game in files.open_games(tmp_path)] == [f"{path}:1" for path in alike]
    texts = [".../.X./... O", ".../.../X.. O"]
    for name, text in zip(("p.txt", "q.txt"), texts, strict=True):
        (tmp_path / name).write_text(f"{text}\n")
    assert files.source_kind(tmp_path / "*.txt") == "positions"
    assert [position.text for position in files.open_positions(tmp_path / "*.txt")] == texts


@pytest.mark.parametrize("name", ["a.games", "a.txt"])
def test_a_byte_order_mark_is_dropped(name: str, tmp_path: Path) -> None:
    start = GAME.format(GAME.parse())
    (tmp_path / name).write_text(f"{start}; a1; *\n" if name == "a.games" else f"{start}\n", encoding="utf-8-sig")
    found = GAME.files.open_games(tmp_path / name) if name == "a.games" else GAME.files.open_positions(tmp_path / name)
    assert len(list(found)) == 1
