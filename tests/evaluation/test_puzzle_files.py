"""Files of puzzles, counts by band and theme, and the command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

import genpolicy
from genpolicy.cli import main
from genpolicy.errors import SourceError
from genpolicy.game import Game
from genpolicy_evaluation.puzzle_tables import by_rating, by_theme
from genpolicy_evaluation.puzzles import Attempt, read_puzzle_file
from tests.evaluation.chess_puzzles import HEADER, QUEEN_UP, SCHOLAR, SCHOLAR_MOVES, puzzle
from tests.small_datasets import CONNECT


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return genpolicy.load_game("chess")


# Files.

ROW = f"00abc,{QUEEN_UP},g8h8 f2f8,1234,75,90,10,mate mateIn1 endgame,https://lichess.org/x#1,"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_are_read_with_their_facts(game: Game[Any], tmp_path: Path) -> None:
    other = f'"q,1",{SCHOLAR},{SCHOLAR_MOVES},1500,80,1,2,opening short,u,Italian_Game'
    (first, second) = game.files.open_puzzles(write(tmp_path / "p.csv", HEADER, ROW, "", other))
    assert (first.name, first.rating, first.rating_deviation) == ("00abc", 1234.0, 75.0)
    assert first.themes == ("mate", "mateIn1", "endgame")
    assert (first.mate_in, second.mate_in) == (1, None)
    assert [game.moves[m] for m in (*first.setup, *first.solution)] == ["g8h8", "f2f8"]
    assert (first.where, second.where) == (f"{tmp_path}/p.csv:2", f"{tmp_path}/p.csv:4")
    assert second.name == "q,1"
    assert len(second.solution) == 3


def test_packed_files_other_orders_and_missing_headers_are_read(game: Game[Any], tmp_path: Path) -> None:
    (expected,) = game.files.open_puzzles(write(tmp_path / "p.csv", HEADER, ROW))
    (tmp_path / "g.csv.gz").write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode()))
    (tmp_path / "z.csv.zst").write_bytes(zstandard.compress(f"{HEADER}\r\n{ROW}\r\n".encode()))
    write(tmp_path / "bare.csv", ROW)
    write(tmp_path / "old.csv", ROW.removesuffix(","))  # before OpeningTags were added
    for name in ("g.csv.gz", "z.csv.zst", "bare.csv", "old.csv"):
        (found,) = game.files.open_puzzles(tmp_path / name)
        assert found.solution == expected.solution
        assert (found.name, found.rating, found.themes) == (expected.name, expected.rating, expected.themes)
    (few,) = game.files.open_puzzles(write(tmp_path / "few.csv", "Moves,FEN", f"g8h8 f2f8,{QUEEN_UP}"))
    assert (few.rating, few.themes, few.name) == (None, (), f"{tmp_path}/few.csv:2")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("00abc,nonsense,g8h8 f2f8,1234,75,90,10,mate,u,", "nonsense"),
        (f"00abc,{QUEEN_UP},g8h8 f2e8,1234,75,90,10,mate,u,", "f2e8"),
        (f"00abc,{QUEEN_UP},g8g6 f2f8,1234,75,90,10,mate,u,", "g8g6"),
        (f"00abc,{QUEEN_UP},g8h8 Qf9,1234,75,90,10,mate,u,", "Qf9"),
        (f"00abc,{QUEEN_UP},g8h8,1234,75,90,10,mate,u,", "even number"),
        (f"00abc,{QUEEN_UP},,1234,75,90,10,mate,u,", "even number"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8 h8g8,1234,75,90,10,mate,u,", "f2f8 h8g8"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8 h8g8 f8g8,1234,75,90,10,mate,u,", "h8g8"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8,strong,75,90,10,mate,u,", "strong"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8,nan,75,90,10,mate,u,", "nan"),
        (f"00abc,{QUEEN_UP},g8h8 f2f8", "columns"),
        (ROW + ",more,and more", "columns"),
        ('00abc,"unclosed', "comma-separated"),
    ],
)
def test_bad_row_is_named_and_can_be_left_out(game: Game[Any], tmp_path: Path, row: str, said: str) -> None:
    path = write(tmp_path / "bad.csv", HEADER, ROW, row, ROW)
    with pytest.raises(SourceError) as raised:
        read_puzzle_file(game, path)
    for part in (f"{path}:3", said, "--skip-bad"):
        assert part in str(raised.value)
    found = read_puzzle_file(game, path, skip_bad=True)
    assert (len(found.puzzles), found.num_read, found.num_bad) == (2, 2, 1)
    assert f"{path}:3" in found.shown[0]


def test_line_breaks_within_quotes_belong_to_the_row(game: Game[Any], tmp_path: Path) -> None:
    """RFC 4180 2.6; the row is named by its first line, and the rows after it by theirs."""
    quoted = f'"00\n\nabc",{QUEEN_UP},"g8h8\r\nf2f8",1234,75,90,10,"mate\nmateIn1",https://lichess.org/x#1,'
    path = write(tmp_path / "p.csv", HEADER, quoted, ROW)
    first, second = game.files.open_puzzles(path)
    assert (first.themes, len(first.solution), first.where) == (("mate", "mateIn1"), 1, f"{path}:2")
    assert second.where == f"{path}:7"


def test_a_quote_that_nobody_closed_costs_its_own_row_alone(game: Game[Any], tmp_path: Path) -> None:
    quoted = '"x",' + ROW.partition(",")[2]
    path = write(tmp_path / "p.csv", HEADER, 'a,"open', quoted, ROW, *[ROW] * 100, 'b,"open')
    found = read_puzzle_file(game, path, skip_bad=True)
    assert (len(found.puzzles), found.num_bad) == (102, 2)
    assert f"{path}:2" in found.shown[0]


DIES = """#!/bin/sh
while read -r word rest; do case $word in uci) echo uciok;; isready) echo readyok;; go) exit 3;; quit) exit;; esac; done
"""


def test_a_policy_that_is_given_up_takes_nothing_from_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = tmp_path / "dies"
    engine.write_text(DIES)
    engine.chmod(0o755)
    path = write(tmp_path / "p.csv", HEADER, *[ROW] * 12)
    command = ["evaluate", "puzzles", "--game", "chess", "--puzzles", str(path), "--json", str(tmp_path / "out.json")]
    command += ["--markdown", str(tmp_path / "out.md"), "--policy"]
    assert main([*command, "random", f"engine:{engine}?nodes=1", "random?seed=3"]) == 2
    shown = capsys.readouterr()
    assert "could not be measured" in shown.out
    assert f"genpolicy: not measured: engine:{engine}?nodes=1: " in shown.err
    figures = json.loads((tmp_path / "out.json").read_text())
    assert [row["policy"] for row in figures["policies"]] == ["random", "random?seed=3"]
    assert [row["policy"] for row in figures["not_measured"]] == [f"engine:{engine}?nodes=1"]
    assert "status 3" in figures["not_measured"][0]["reason"]
    assert "| random |" in (tmp_path / "out.md").read_text()
    assert main([*command, f"engine:{engine}?nodes=1"]) == 2
    assert "genpolicy: not measured" in capsys.readouterr().err


def test_files_without_puzzles_are_refused(game: Game[Any], tmp_path: Path) -> None:
    for name, lines, said in [
        ("empty.csv", [HEADER], "no puzzle"),
        ("header.csv", ["PuzzleId,Moves,Rating", "a,e2e4 e7e5,1"], "no column FEN"),
        ("bad.csv", [HEADER, "a,b,c"], "all 1 rows are bad"),
        ("games.pgn", ["1. e4"], "puzzles come as"),
    ]:
        with pytest.raises(SourceError, match=said):
            read_puzzle_file(game, write(tmp_path / name, *lines), skip_bad=True)
    with pytest.raises(SourceError, match="no such file"):
        read_puzzle_file(game, tmp_path / "nowhere.csv")
    damaged = tmp_path / "cut.csv.gz"
    damaged.write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode() * 50)[:60])
    with pytest.raises(SourceError, match="damaged or cut short"):
        read_puzzle_file(game, damaged, skip_bad=True)
    connect = genpolicy.load_game(CONNECT)
    with pytest.raises(SourceError, match="reads no files of puzzles"):
        read_puzzle_file(connect, tmp_path / "bad.csv")


def test_limit_draws_from_the_whole_file(game: Game[Any], tmp_path: Path) -> None:
    rows = [ROW.replace("00abc", f"{i:05}") for i in range(20)]
    path = write(tmp_path / "p.csv", HEADER, *rows)
    drawn = [[p.name for p in read_puzzle_file(game, path, limit=4, seed=seed).puzzles] for seed in range(150)]
    assert all(names == sorted(set(names)) and len(names) == 4 for names in drawn)
    assert drawn[0] == [p.name for p in read_puzzle_file(game, path, limit=4, seed=0).puzzles]
    counts = [sum(f"{i:05}" in names for names in drawn) for i in range(20)]
    assert min(counts) >= 10  # 30 expected of each, with a standard deviation of 4.9
    with pytest.raises(ValueError, match="at least 1 puzzle"):
        read_puzzle_file(game, path, limit=0)


# Counting.


def test_bands_and_themes_count_each_puzzle_where_it_belongs(game: Game[Any]) -> None:
    def attempt(rating: float | None, themes: tuple[str, ...], solved: bool) -> Attempt:
        made = puzzle(game, QUEEN_UP, "g8h8 f2f8", rating=rating, themes=themes)
        return Attempt(made, (), solved, solved, solved)

    attempts = [
        attempt(1399.9, ("fork", "pin", "fork"), True),
        attempt(1400.0, ("pin",), False),
        attempt(799.0, ("pin",), True),
        attempt(None, (), True),
    ]
    bands = by_rating(attempts)
    assert {name: len(group) for name, group in bands.items()} == {
        "600-799": 1,
        "1200-1399": 1,
        "1400-1599": 1,
        "no rating": 1,
    }
    assert list(bands) == ["600-799", "1200-1399", "1400-1599", "no rating"]
    assert {name: sum(a.solved for a in group) for name, group in by_theme(attempts).items()} == {"pin": 2, "fork": 1}


def test_command_measures_and_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.csv", HEADER, ROW, "broken", ROW)
    command = ["evaluate", "puzzles", "--game", "chess", "--policy", "random", "--policy", "random?seed=3"]
    command += ["--puzzles", str(path), "--json", str(tmp_path / "out.json"), "--markdown", str(tmp_path / "out.md")]
    assert main(command) == 2
    assert f"{path}:3" in capsys.readouterr().err
    assert main([*command, "--skip-bad", "--num-steps", "5"]) == 2
    assert "--num-steps: none of these policies has that option" in capsys.readouterr().err
    assert main([*command, "--skip-bad"]) == 0
    shown = capsys.readouterr()
    assert "1 bad rows" in shown.out
    assert f"{path}:3" in shown.err
    figures = json.loads((tmp_path / "out.json").read_text())
    assert (figures["puzzles"]["puzzles"], figures["puzzles"]["bad_rows"]) == (2, 1)
    assert [row["policy"] for row in figures["policies"]] == ["random", "random?seed=3"]
    assert figures["policies"][0]["solved"]["puzzles"] == 2
    assert {a["puzzle"] for a in figures["policies"][0]["attempts"]} == {"00abc"}
    assert "| random |" in (tmp_path / "out.md").read_text()


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--band", "0"], "--band"),
        (["--longer", "-1"], "--longer"),
        (["--limit", "0"], "limit"),
        (["--policy", "nobody"], "nobody"),
    ],
)
def test_command_refuses_nonsense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], said: str
) -> None:
    path = write(tmp_path / "p.csv", HEADER, ROW)
    command = ["evaluate", "puzzles", "--game", "chess", "--policy", "random", "--puzzles", str(path), *extra]
    assert main(command) == 2
    assert said in capsys.readouterr().err


def test_game_must_be_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.csv", HEADER, ROW)
    assert main(["evaluate", "puzzles", "--policy", "random", "--puzzles", str(path)]) == 2
    assert "--game" in capsys.readouterr().err
