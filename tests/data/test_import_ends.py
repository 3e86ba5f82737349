"""What an import takes over: lines up to the end of the game, counters at their limit, the files that were read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import yaml

import genpolicy
from genpolicy.cli import main
from genpolicy.data.oracle import Line
from genpolicy.data.records import INFO_FILE, Dataset
from genpolicy_labelling import writer
from genpolicy_labelling.label import make_record

pytest.importorskip("chess")
PGN = '[Event "x"]\n[Result "1-0"]\n\n1. e4 e5 1-0\n'


def imported(folder: Path, *sources: Path) -> Dataset:
    out = folder / "out"
    assert main(["data", "import", *map(str, sources), "--game", "chess", "--out", str(out)]) == 0
    return Dataset.open(out)


@pytest.mark.parametrize(
    ("epd", "line", "ended"),
    [
        ("8/8/8/3k4/8/8/3pK3/8 w - - pv e2d2;", "e2d2", True),  # two kings are left
        ("8/8/8/3k4/8/8/3pK3/8 w - - pv e2d2 d5d4 d2c2;", "e2d2", True),  # and what is played on says nothing
        ("7k/8/8/8/8/1q6/8/K7 w - - 99 80 pv a1a2;", None, None),  # illegal: refused
        ("7k/8/8/8/8/8/1q6/7K w - - 10 80 ;", "", False),
        ("7k/8/8/8/8/8/3q4/K7 w - - 99 80 pv a1b1;", "a1b1", True),  # 50 moves
        ("7k/8/8/8/8/8/3q4/K7 w - - 90 80 pv a1b1 d2e1;", "a1b1 d2e1", False),  # cut
    ],
)
def test_a_line_ends_where_the_game_does(epd: str, line: str | None, ended: bool | None, tmp_path: Path) -> None:
    source = tmp_path / "a.epd"
    source.write_text(epd + "\n")
    if line is None:
        assert main(["data", "import", str(source), "--game", "chess", "--out", str(tmp_path / "out")]) == 2
        return
    (record,) = imported(tmp_path, source).records()
    assert (record.line or "", record.ended) == (line, ended)


def test_an_import_and_a_label_agree_on_the_end(tmp_path: Path) -> None:
    """The same line, once from a file and once from an oracle."""
    game = genpolicy.load_game("chess")
    source = tmp_path / "a.epd"
    source.write_text("8/8/8/3k4/8/8/3pK3/8 w - - pv e2d2;\n")
    (record,) = imported(tmp_path, source).records()
    state = game.parse(record.state)
    move = game.moves.index("e2d2")
    labelled = make_record(game, state, Line((move,), ended=game.outcome(game.play(state, move)) is not None))
    assert (record.line, record.ended) == (labelled.line, labelled.ended)


def test_the_full_move_number_stays_at_its_largest(tmp_path: Path) -> None:
    source = tmp_path / "a.pgn"
    source.write_text(
        '[Event "x"]\n[FEN "8/P7/8/8/8/8/k7/7K w - - 98 999999"]\n[SetUp "1"]\n[Result "*"]\n\n'
        "999999. a8=Q+ Kb1 1000000. Qb8+ Kc1 *\n"
    )
    game = genpolicy.load_game("chess")
    for record in imported(tmp_path, source).records():
        state = game.parse(record.state)
        row = game.tokens.encode([state])[0]
        assert game.format(game.tokens.decode(row)) == record.state


MATED = '[Event "x"]\n[Result "{0}"]\n\n1. f3 e5 2. g4 Qh4# {0}\n\n'
STALEMATED = '[Event "x"]\n[FEN "k7/8/8/1Q6/8/8/8/7K w - - 0 1"]\n[SetUp "1"]\n[Result "{0}"]\n\n1. Qb6 {0}\n\n'
REPEATED = '[Event "x"]\n[Result "1-0"]\n\n1. Nf3 Nf6 2. Ng1 Ng8 3. Nf3 Nf6 4. Ng1 Ng8 5. Nf3 1-0\n\n'


@pytest.mark.parametrize(
    ("text", "ruled"),
    [(MATED.format("1-0"), "-1"), (MATED.format("1/2-1/2"), "-1"), (STALEMATED.format("1-0"), "0")],
)
def test_a_result_that_contradicts_the_board_is_a_bad_game(
    text: str, ruled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.pgn"
    source.write_text(PGN + text + MATED.format("0-1") + MATED.format("*") + STALEMATED.format("1/2-1/2") + REPEATED)
    command = ["data", "import", str(source), "--game", "chess", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    message = capsys.readouterr().err
    assert f"{source}:5: game 2: the result" in message
    assert f"contradicts the end of the game ({ruled} by the rules)" in message
    assert main([*command, "--skip-bad"]) == 0
    data = Dataset.open(tmp_path / "out")
    assert (data.info.counts["games"], data.info.counts["skipped"]) == (5, {"unreadable": 1})
    assert [record.result for record in data.records() if record.ply == 0] == [1.0, -1.0, None, 0.0, 1.0]


@pytest.mark.parametrize("pattern", ["tree/**/*.pgn", "tree"])
def test_the_sources_are_the_files_that_were_read(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tree/a.pgn", "tree/x/b.pgn", "tree/x/y/c.pgn"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(PGN.replace("x", name))
    data = imported(tmp_path, Path(pattern))
    assert len({record.game_id for record in data.records()}) == 3
    info = yaml.safe_load((tmp_path / "out" / "dataset.yaml").read_text())
    assert [Path(source["file"]).name for source in info["sources"]] == ["a.pgn", "b.pgn", "c.pgn"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_between_shard_and_list_leaves_a_folder_that_can_be_used(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.pgn"
    source.write_text(PGN)
    write = writer.write_atomic

    def failing(path: Path, data: bytes) -> None:
        if path.name == INFO_FILE and list(path.parent.glob("*.parquet")):
            raise OSError(number, os.strerror(number), str(path))
        write(path, data)

    monkeypatch.setattr(writer, "write_atomic", failing)
    out = tmp_path / "out"
    command = ["data", "import", str(source), "--game", "chess", "--out", str(out)]
    assert main(command) == 2
    assert os.strerror(number) in capsys.readouterr().err
    assert not list(tmp_path.glob("out/*.parquet"))
    monkeypatch.undo()
    assert main(command) == 0  # as its message advises
    assert Dataset.open(out).num_records == 2
