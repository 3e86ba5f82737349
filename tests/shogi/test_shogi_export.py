"""``genpolicy data export``: what an import took in goes out again."""

from __future__ import annotations

from pathlib import Path

import pytest

import genpolicy
from genpolicy.cli import main
from genpolicy.game import PlayedGame
from genpolicy_shogi import binary
from genpolicy_shogi.packed import HCP, PSFEN, move16_of_usi, pack, yaneura_of_usi

GAME = genpolicy.load_game("shogi")
LINE = ["7g7f", "3c3d", "8h2b+", "3a2b", "B*4e"]


def texts() -> list[str]:
    """The positions before each move of the line."""
    state, found = GAME.parse(), []
    for usi in LINE:
        found.append(GAME.format(state))
        state = GAME.play(state, GAME.moves.index(usi))
    return found


def run(*arguments: object) -> int:
    return main(["data", *map(str, arguments)])


def round_trip(folder: Path, name: str) -> Path:
    assert run("import", folder / name, "--game", "shogi", "--out", folder / "set") == 0
    out = folder / f"again{Path(name).suffix}"
    assert run("export", folder / "set", "--out", out) == 0
    return out


def test_hcpe_comes_back_byte_for_byte(tmp_path) -> None:
    path = tmp_path / "a.hcpe"
    records = [
        binary.Hcpe(pack(HCP, text), 10 * i - 20, move16_of_usi(usi), i % 3)
        for i, (text, usi) in enumerate(zip(texts(), LINE, strict=True))
    ]
    binary.write(path, records)
    assert round_trip(tmp_path, path.name).read_bytes() == path.read_bytes()


def test_psv_comes_back_byte_for_byte(tmp_path) -> None:
    path = tmp_path / "a.psv"
    records = [
        binary.Psv(pack(PSFEN, text), 10 * i - 20, yaneura_of_usi(usi), i + 1, i % 3 - 1)
        for i, (text, usi) in enumerate(zip(texts(), LINE, strict=True))
    ]
    binary.write(path, records)
    assert round_trip(tmp_path, path.name).read_bytes() == path.read_bytes()


def test_hcpe3_keeps_games_moves_scores_and_policies(tmp_path) -> None:
    path = tmp_path / "a.hcpe3"
    moves = [binary.Hcpe3Move(move16_of_usi(usi), 7, ((move16_of_usi(usi), 10_000),)) for usi in LINE]
    start = pack(HCP, texts()[0])
    binary.write(path, [binary.Hcpe3Game(start, 1, 0, tuple(moves)), binary.Hcpe3Game(start, 2, 0, tuple(moves[:2]))])
    assert round_trip(tmp_path, path.name).read_bytes() == path.read_bytes()


def test_games_for_people(tmp_path) -> None:
    ids = tuple(GAME.moves.index(usi) for usi in LINE)
    for result in (1.0, -1.0):
        GAME.write_game(tmp_path / "a.csa", PlayedGame("x", texts()[0], ids, result))
    assert run("import", tmp_path / "a.csa", "--game", "shogi", "--out", tmp_path / "set") == 0
    out = tmp_path / "b.kifu"
    assert run("export", tmp_path / "set", "--games", "--out", out) == 0
    assert [(game.moves, game.result) for game in GAME.open_games(out)] == [(ids, 1.0), (ids, -1.0)]
    assert "２二角成(88)" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x.kif"], r"positions are written as \.hcpe"),
        (["--games", "--out", "x.pgn"], r"games are written as \.csa"),
        (["--out", "a.csa"], r"exists already"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(tmp_path, monkeypatch, capsys, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    GAME.write_game(Path("a.csa"), PlayedGame("x", texts()[0], (GAME.moves.index(LINE[0]),), 1.0))
    before = Path("a.csa").read_bytes()
    assert run("import", "a.csa", "--game", "shogi", "--out", "set") == 0
    assert run("export", "set", *arguments) == 2
    import re

    assert re.search(message, capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csa", "set"]
    assert Path("a.csa").read_bytes() == before
