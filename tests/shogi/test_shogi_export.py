"""``genpolicy data export``: what an import took in goes out again."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import genpolicy
from genpolicy.cli import main
from genpolicy.data.records import Dataset, Record
from genpolicy.game import PlayedGame, Position
from genpolicy.values import score_to_value
from genpolicy_shogi import binary
from genpolicy_shogi.packed import HCP, PSFEN, move16_of_usi, pack, yaneura_of_usi
from tests.small_datasets import write_dataset

GAME = genpolicy.load_game("shogi")
LINE = ["7g7f", "3c3d", "8h2b+", "3a2b", "B*4e"]
MATE_PROBLEM = "8k/9/8P/9/9/9/9/9/9 b G2r2b3g4s4n4l17p 1"


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
        GAME.files.write_game(tmp_path / "a.csa", PlayedGame("x", texts()[0], ids, result))
    assert run("import", tmp_path / "a.csa", "--game", "shogi", "--out", tmp_path / "set") == 0
    out = tmp_path / "b.kifu"
    assert run("export", tmp_path / "set", "--games", "--out", out) == 0
    assert [(game.moves, game.result) for game in GAME.files.open_games(out)] == [(ids, 1.0), (ids, -1.0)]
    assert "２二角成(88)" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x.kif"], r"positions are written as \.hcpe"),
        (["--split", "validation", "--out", "x.hcpe"], r"holds no record of split validation"),
        (["--out", "x.hcpe"], r"can hold none of the 1 positions"),
        (["--out", "x.hcpe3"], r"can hold none of the 1 positions"),
        (["--games", "--out", "x.hcpe3"], r"can hold none of the 1 games"),
        (["--games", "--out", "x.pgn"], r"games are written as \.csa"),
        (["--out", "a.csa"], r"exists already"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(tmp_path, monkeypatch, capsys, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    GAME.files.write_game(Path("a.csa"), PlayedGame("x", texts()[0], (GAME.moves.index(LINE[0]),), None))
    before = Path("a.csa").read_bytes()
    assert run("import", "a.csa", "--game", "shogi", "--out", "set") == 0
    assert run("export", "set", *arguments) == 2
    import re

    assert re.search(message, capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csa", "set"]
    assert Path("a.csa").read_bytes() == before


def game_bytes(ids: tuple[int, ...], result: int) -> bytes:
    """A game that nobody searched: no candidates ("not a sample") and no score."""
    moves = b"".join(struct.pack("<HhH", move16_of_usi(GAME.moves[i]), 0, 0) for i in ids)
    return pack(HCP, texts()[0]) + struct.pack("<HBB", len(ids), result, 0) + moves


def test_files_of_one_name_in_two_sources_hold_games_of_their_own(tmp_path) -> None:
    ids = tuple(GAME.moves.index(usi) for usi in LINE)
    sources = []
    for folder, moves in (("a", ids[:2]), ("b", ids[:3])):
        sources.append(tmp_path / folder / "x.hcpe3")
        sources[-1].parent.mkdir()
        sources[-1].write_bytes(game_bytes(moves, 1))
    assert run("import", *sources, "--game", "shogi", "--out", tmp_path / "set") == 0
    assert [record.game_id for record in Dataset.open(tmp_path / "set").records()] == [
        *["0/x.hcpe3:1"] * 2,
        *["1/x.hcpe3:1"] * 3,
    ]
    assert run("export", tmp_path / "set", "--games", "--out", tmp_path / "all.usi") == 0
    assert [len(game.moves) for game in GAME.files.open_games(tmp_path / "all.usi")] == [2, 3]
    assert run("import", *sources, "--game", "shogi", "--max-games", 1, "--out", tmp_path / "one") == 0
    assert Dataset.open(tmp_path / "one").num_records == 2


def test_games_that_nobody_searched_have_no_labels(tmp_path, capsys) -> None:
    ids = tuple(GAME.moves.index(usi) for usi in LINE)
    for number, result in enumerate((1.0, None, -1.0, 0.0)):
        GAME.files.write_game(tmp_path / "a.csa", PlayedGame(str(number), texts()[0], ids, result))
    GAME.files.write_game(tmp_path / "a.csa", PlayedGame("4", MATE_PROBLEM, (GAME.moves.index("G*1b"),), 1.0))
    assert run("import", tmp_path / "a.csa", "--game", "shogi", "--out", tmp_path / "set") == 0
    for number, options in enumerate((["--games"], [])):
        out = tmp_path / f"{number}.hcpe3"
        assert run("export", tmp_path / "set", *options, "--out", out) == 0
        said = capsys.readouterr().out
        assert ("wrote 3 of 5 games" if options else "wrote 15 of 21 positions") in said
        assert "no place for the other" in said
        assert out.read_bytes() == game_bytes(ids, 1) + game_bytes(ids, 2) + game_bytes(ids, 0)
    assert [game.result for game in GAME.files.open_games(out)] == [1.0, -1.0, 0.0]
    assert {(p.line, p.scores, p.policy) for p in GAME.files.open_positions(out)} == {((), (), None)}


@pytest.mark.parametrize("name", ["a.hcpe3", "a.hcpe3.gz"])
def test_one_game_that_hcpe3_cannot_hold_is_refused(tmp_path, name) -> None:
    with pytest.raises(ValueError, match="result is unknown"):
        GAME.files.write_game(tmp_path / name, PlayedGame("x", texts()[0], (), None))
    with pytest.raises(ValueError, match="one king"):
        GAME.files.write_game(tmp_path / name, PlayedGame("x", MATE_PROBLEM, (), 1.0))
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("suffix", [".hcpe", ".psv", ".hcpe3"])
def test_a_mate_problem_is_left_out(tmp_path, suffix) -> None:
    known = {"game_id": "g", "ply": 0, "result": 1.0}
    whole = Position(texts()[0], "1", ("7g7f",), ("cp:1",), played="7g7f", **known)
    problem = Position(MATE_PROBLEM, "2", ("G*1b",), ("mate:1",), played="G*1b", **known)
    path = tmp_path / f"a{suffix}"
    assert GAME.files.write_positions(path, [problem, whole, problem]) == 1
    assert [position.text for position in GAME.files.open_positions(path)] == [texts()[0]]


def test_scores_are_kept_up_to_16_bits_and_without_candidates(tmp_path) -> None:
    evals = (32_600, -32_768, 32_767, 30_001, 0)
    numbers = [move16_of_usi(usi) for usi in LINE]
    records = [
        binary.Hcpe(pack(HCP, text), value, number, 1)
        for text, value, number in zip(texts(), evals, numbers, strict=True)
    ]
    moves = tuple(binary.Hcpe3Move(number, value) for value, number in zip(evals, numbers, strict=True))
    binary.write(tmp_path / "a.hcpe", records)
    binary.write(tmp_path / "a.hcpe3", [binary.Hcpe3Game(pack(HCP, texts()[0]), 2, 0, moves)])
    for name in ("a.hcpe", "a.hcpe3"):
        (tmp_path / name[2:]).mkdir()
        (tmp_path / name).rename(tmp_path / name[2:] / name)
        assert round_trip(tmp_path / name[2:], name).read_bytes() == (tmp_path / name[2:] / name).read_bytes()


def test_a_score_beyond_16_bits_is_cut_off(tmp_path) -> None:
    positions = [Position(texts()[0], "1", ("7g7f",), (score,), result=1.0) for score in ("cp:99999", "cp:-99999")]
    GAME.files.write_positions(tmp_path / "a.hcpe", positions)
    assert [record.eval for _, record in binary.HCPE.read(tmp_path / "a.hcpe")] == [32_767, -32_768]


@pytest.mark.parametrize("suffix", [".hcpe", ".psv", ".hcpe3"])
def test_values_become_the_centipawns_of_the_scale_of_the_data_set(tmp_path, suffix) -> None:
    values, scale = (0.1, -0.5, 0.999, 1.0, -1.0), 0.0012
    records = [
        Record(text, "g", ply, line=usi, scores=(f"value:{value:g}",), played=usi, result=1.0)
        for ply, (text, usi, value) in enumerate(zip(texts(), LINE, values, strict=True))
    ]
    info = write_dataset(tmp_path / "set", "shogi", records).info
    info.oracle = {"centipawn_scale": scale}
    (tmp_path / "set" / "dataset.yaml").write_bytes(info.to_yaml())
    out = tmp_path / f"a{suffix}"
    assert run("export", tmp_path / "set", "--out", out) == 0
    scores = [position.scores[0] for position in GAME.files.open_positions(out)]
    assert scores[3:] == ["cp:30000", "cp:-30000"]
    assert [score_to_value(score, scale) for score in scores] == pytest.approx(values, abs=0.001)
