"""What ``genpolicy data`` says of options, files and data sets that are wrong, and of signals."""

import argparse
import gzip
import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import chess.pgn
import pytest
import yaml
import zstandard

from genpolicy import cli
from genpolicy.data.records import Dataset, DatasetInfo, Record
from genpolicy.errors import DatasetError, LockedError
from genpolicy_labelling import commands, importing, writer
from genpolicy_labelling.writer import DatasetWriter
from tests.data.journal_files import num_answered

pytestmark = pytest.mark.usefixtures("warm_start")

TIC_TAC_TOE = "connect:rows=3,cols=3,k=3,gravity=false"


def fails(capsys: Any, *words: object) -> str:
    """What a command says that ends with status 2, as one line."""
    assert cli.main(["data", *map(str, words)]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return " ".join((said.err + said.out).split())


@pytest.fixture
def labelled(tmp_path, capsys) -> Path:
    """A small complete data set with every count."""
    assert (
        cli.main(
            [
                "data",
                "selfplay",
                "--game",
                TIC_TAC_TOE,
                "--oracle",
                "solver",
                "--games",
                "6",
                "--split",
                "0.4/0.3/0.3",
                "--random-plies",
                "0:2",
                "--out",
                str(tmp_path / "labelled"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    return tmp_path / "labelled"


SELFPLAY = ["selfplay", "--game", TIC_TAC_TOE, "--oracle", "solver", "--games", 1, "--out", "never"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [*SELFPLAY, "--error-rate", "abc/2"],
            "--error-rate: takes LOW:HIGH with 0 <= LOW <= HIGH <= 1, such as 0.05:0.30, got 'abc/2'",
        ),
        ([*SELFPLAY, "--error-rate", "0.5:0.2"], "--error-rate: takes LOW:HIGH"),
        ([*SELFPLAY, "--error-rate", "nan"], "--error-rate: takes LOW:HIGH"),
        (
            [*SELFPLAY, "--random-plies", "4-12"],
            "--random-plies: takes LOW:HIGH with 0 <= LOW <= HIGH, such as 4:12, got '4-12'",
        ),
        (
            [*SELFPLAY, "--adjudicate", "5"],
            "--adjudicate: takes VALUE:PLIES with 0 < VALUE <= 1 and PLIES at least 1, such as 0.95:8, got '5'",
        ),
        ([*SELFPLAY, "--adjudicate", "0.9:0"], "--adjudicate: takes VALUE:PLIES"),
        ([*SELFPLAY, "--max-plies", "0"], "--max-plies: takes a whole number of at least 1, got '0'"),
        ([*SELFPLAY, "--horizon", "many"], "--horizon: takes a whole number of at least 1, got 'many'"),
        ([*SELFPLAY, "--seed", "x"], "--seed: takes a whole number, got 'x'"),
        (
            [*SELFPLAY, "--split", "0.9/0.1"],
            "--split: split must be train/validation/test such as 0.9/0.05/0.05, got '0.9/0.1'",
        ),
        ([*SELFPLAY, "--json", "."], "--json .: is a folder; name a file in it"),
        ([*SELFPLAY, "--json", "no/where.json"], "--json no/where.json: there is no folder no; make it first"),
        ([*SELFPLAY, "--processes", "2"], "oracle 'solver' works in one process: omit processes (--parallel)"),
        (["info", "x", "--rows", "-1"], "--rows: takes a whole number of at least 0, got '-1'"),
        (["label", "x", "--oracle", "stockfish?nodes=1&timeout_s=abc", "--out", "never"], "x: no such folder"),
    ],
)
def test_an_option_says_what_it_takes(tmp_path, capsys, monkeypatch, words, message) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, *words)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--openings", "--oracle", "--game", "--out", "FOLDER", "SOURCE"])
def test_an_empty_argument_is_named(capsys, option) -> None:
    words = {
        "FOLDER": ["info", ""],
        "SOURCE": ["import", "a.pgn", "", "--game", "chess", "--out", "never"],
    }.get(option, [*map(str, SELFPLAY), option, ""])
    parser = argparse.ArgumentParser()
    commands.add_parser(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["data", *words])
    assert f"argument {option}: takes a text that is not empty, got ''" in capsys.readouterr().err
    fails(capsys, *words)


def test_a_file_is_no_folder(tmp_path, capsys, labelled) -> None:
    file = tmp_path / "thesis.tex"
    file.write_text("dear")
    for words in ([*SELFPLAY[:-1], file], ["label", labelled, "--oracle", "solver", "--out", file]):
        assert f"--out: takes a folder; {file} is a file" in fails(capsys, *words)
    assert file.read_text() == "dear"
    shard = labelled / "records-00000.parquet"
    assert f"takes the folder of a data set; {shard} is a file (it lies in {labelled})" in fails(capsys, "info", shard)
    with pytest.raises(DatasetError, match="is a file; give the folder of a data set"):
        Dataset.open(shard)
    with pytest.raises(DatasetError, match="is a file; a data set is a folder"):
        DatasetWriter(file, DatasetInfo(game="chess", made_by="import"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": None}, "key counts must be a mapping, got nothing"),
        ({"counts": {}}, "key counts.games is missing"),
        (
            {"counts": {"games": 2, "labelled": "many"}},
            "key counts.labelled must be a whole number of at least 0, got 'many'",
        ),
        (
            {"counts": {"games": 2, "labelled": 3, "duplicates": 1, "leakage": 7}},
            "key counts.leakage must be a mapping",
        ),
        (
            {"counts": {"leakage": {"test": {"records": 1}}}},
            "key counts.leakage.test.in_training must be a whole number",
        ),
        ({"counts": {"splits": {"train": -1}}}, "key counts.splits.train must be a whole number of at least 0, got -1"),
        ({"counts": {"skipped": []}}, "key counts.skipped must be a mapping, got []"),
        ({"complete": "yes please"}, "key complete must be true or false, got 'yes please'"),
        ({"complete": 1}, "key complete must be true or false, got 1"),
        ({"game": 7}, "key game must be text, got 7"),
        ({"game": None}, "key game must be text, got nothing"),
        ({"game": ["chess"]}, "key game must be text"),
        ({"made_by": {}}, "key made_by must be text"),
        ({"command": 3}, "key command must be text"),
        ({"oracle": "stockfish"}, "key oracle must be a mapping, got 'stockfish'"),
        ({"options": []}, "key options must be a mapping"),
        ({"sources": "a.pgn"}, "key sources must be a list"),
        ({"sources": ["a.pgn"]}, "key sources[0] must be a mapping, got 'a.pgn'"),
        ({"units": -1}, "key units must be a whole number of at least 0, got -1"),
        ({"units": "2"}, "key units must be a whole number"),
        ({"format": True}, "no key 'format'"),
        ({"shards": {}}, "key shards must be a list"),
        ({"shards": ["x"]}, "key shards[0] must be a mapping"),
        ({"shards": [{"file": "records-00000.parquet", "rows": 3}]}, "key shards[0].sha256 must be text, got nothing"),
        ({"shards": [{"file": 3, "rows": 3, "sha256": ""}]}, "key shards[0].file must be text, got 3"),
        (
            {"shards": [{"file": "../x", "rows": 3, "sha256": ""}]},
            "key shards[0].file must be the name of a file in the folder",
        ),
        ({"shards": [{"file": "x", "rows": "3", "sha256": ""}]}, "key shards[0].rows must be a whole number"),
    ],
)
def test_a_damaged_description_names_file_and_key(tmp_path, capsys, labelled, change, message) -> None:
    path = labelled / "dataset.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **change}))
    said = fails(capsys, "info", labelled)
    assert f"{path}: " in said
    assert message in said
    assert "restore" in said
    if "missing" not in message:  # labelling needs no counts
        said = fails(capsys, "label", labelled, "--oracle", "solver", "--out", tmp_path / "again")
        assert f"{path}: " in said
        assert message in said
        assert not (tmp_path / "again").exists()


def test_a_description_without_a_key_names_it(capsys, labelled) -> None:
    path = labelled / "dataset.yaml"
    whole = yaml.safe_load(path.read_text())
    for key in ("game", "made_by", "shards"):
        path.write_text(yaml.safe_dump({name: value for name, value in whole.items() if name != key}))
        assert f"{path}: keys missing or unknown: {key}" in fails(capsys, "info", labelled)
    path.write_text(yaml.safe_dump({name: value for name, value in whole.items() if name != "counts"}))
    assert f"{path}: key counts.games is missing" in fails(capsys, "info", labelled)


# Imports.


def pgn(num_games: int, first: int = 0) -> bytes:
    out = io.StringIO()
    for number in range(first, first + num_games):
        board = chess.Board()
        for ply in range(10):
            moves = sorted(map(str, board.legal_moves))
            board.push_uci(moves[(number * 37 + ply * 11) % len(moves)])
        print(chess.pgn.Game.from_board(board), file=out, end="\n\n")
    return out.getvalue().encode()


@pytest.mark.parametrize(
    ("packing", "as_folder"),
    [
        ("gz", True),
        ("zst", False),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in (("gz", False), ("zst", True))),
    ],
)
def test_a_cut_archive_among_several_is_skipped_from_there_on(tmp_path, capsys, packing, as_folder) -> None:
    pack = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}[packing]
    folder = tmp_path / "games"
    folder.mkdir()
    files = [folder / f"{name}.pgn.{packing}" for name in "abc"]
    for number, file in enumerate(files):
        file.write_bytes(pack(pgn(40, 40 * number)))
    files[1].write_bytes(files[1].read_bytes()[:-500])
    words = ["import", *([folder] if as_folder else files), "--game", "chess", "--out", tmp_path / "d"]
    said = fails(capsys, *words)
    assert f"{files[1]}:" in said
    assert "damaged or cut short" in said
    assert "(--skip-bad skips such entries)" in said
    assert not (tmp_path / "d").exists()
    assert cli.main(["data", *map(str, words), "--skip-bad"]) == 0
    dataset = Dataset.open(tmp_path / "d")
    assert dataset.info.counts["skipped"] == {"unreadable": 1}
    assert 80 <= dataset.info.counts["games"] < 120
    from_file = [0, 0, 0]
    for record in dataset.records():
        name = (record.game_id or "").rpartition("/")[2]
        from_file["abc".index(name[0])] += record.ply == 0
    assert (from_file[0], from_file[2]) == (40, 40)
    # Zstandard unpacks so short a text all at once or not at all.
    assert (0 if packing == "zst" else 1) <= from_file[1] < 40
    assert f"skipped: {files[1]}:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "game", "entry"),
    [
        ("a.csa.gz", "shogi", "V2.2\nN+{}\nPI\n+\n+7776FU\n%TORYO\n/\n"),
        ("a.games.gz", "connect:rows=3,cols=3,k=3", '-; a; *; {{"X": "{}"}}\n'),
    ],
)
def test_the_rest_of_a_cut_archive_alone_is_skipped(tmp_path, capsys, name, game, entry) -> None:
    file = tmp_path / name
    packed = gzip.compress("".join(entry.format(number * 7919 % 1000) for number in range(500)).encode())
    file.write_bytes(packed[: len(packed) * 2 // 3])
    words = ["import", file, "--game", game, "--out", tmp_path / "d"]
    assert f"{file}: " in fails(capsys, *words)
    assert cli.main(["data", *map(str, words), "--skip-bad"]) == 0
    counts = Dataset.open(tmp_path / "d").info.counts
    assert counts["skipped"] == {"unreadable": 1}
    assert 100 < counts["games"] < 500
    assert f"skipped: {file}: " in capsys.readouterr().err
    file.write_bytes(packed[:20])  # nothing can be read
    assert f"{file}: " in fails(capsys, *words[:-1], tmp_path / "e", "--skip-bad")


@pytest.mark.parametrize(
    ("suffix", "game", "entry"),
    [
        (".pgn", "chess", '[Event "x"]\n\n1. e4 *\n'),
        (".epd", "chess", "8/5k2/8/8/3K4/8/4P3/8 w - - 0 1\n"),
        (".csa", "shogi", "V2.2\nPI\n+\n+7776FU\n%TORYO\n"),
        (".games", "connect:rows=3,cols=3,k=3", "-; a; *; {}\n"),
        (".txt", "connect:rows=3,cols=3,k=3", ".../.../X.. O\n"),
    ],
)
@pytest.mark.parametrize("others", [[], ["other"]])
def test_an_empty_file_of_a_folder_costs_no_other(tmp_path, capsys, suffix, game, entry, others) -> None:
    for name, content in (("in/a", entry), ("in/b", ""), ("in/c", entry), ("other", entry)):
        path = (tmp_path / name).with_suffix(suffix)
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    sources = [tmp_path / "in", *((tmp_path / name).with_suffix(suffix) for name in others)]
    words = ["import", *sources, "--game", game, "--out", tmp_path / "d"]
    said = fails(capsys, *words)
    assert f"b{suffix}: holds no " in said
    assert said.rstrip().endswith("(--skip-bad skips such entries)")
    assert cli.main(["data", *map(str, words), "--skip-bad"]) == 0
    dataset = Dataset.open(tmp_path / "d")
    assert (dataset.num_records, dataset.info.counts["skipped"]) == (2 + len(others), {"unreadable": 1})


def test_a_failed_import_leaves_nothing_behind(tmp_path, capsys) -> None:
    file = tmp_path / "p.epd"
    file.write_text("8/5k2/8/8/3K4/8/4P3/8 w - - 0 1\nno position\n")
    words = ["import", file, "--game", "chess", "--out", tmp_path / "d"]
    fails(capsys, *words)
    assert not (tmp_path / "d").exists()
    (tmp_path / "d").mkdir()  # an empty folder of the user's stays
    fails(capsys, *words)
    assert not (tmp_path / "d" / "dataset.yaml").exists()
    file.write_text("8/5k2/8/8/3K4/8/4P3/8 w - - 0 1\n")
    assert cli.main(["data", *map(str, words)]) == 0
    assert Dataset.open(tmp_path / "d").num_records == 1


def test_what_a_kill_left_before_anything_was_finished_is_no_obstacle(tmp_path, capsys) -> None:
    for journal in (None, "journal.jsonl", "journal.sqlite"):
        (tmp_path / "d").mkdir()
        info = DatasetInfo(game="chess", made_by="label", options={"horizon": 3})
        (tmp_path / "d" / "dataset.yaml").write_bytes(info.to_yaml())
        if journal is not None:
            (tmp_path / "d" / journal).write_bytes(b"")
        assert cli.main(["data", *map(str, SELFPLAY[:-1]), str(tmp_path / "d")]) == 0
        for path in (tmp_path / "d").iterdir():
            path.unlink()
        (tmp_path / "d").rmdir()


def test_other_work_in_an_unfinished_folder_names_both_ways_out(tmp_path) -> None:
    with DatasetWriter(tmp_path / "d", DatasetInfo(game="chess", made_by="import"), 1) as out:
        out.add(0, [Record(state="x")])
    with pytest.raises(DatasetError, match=r"choose another folder.*or delete this one, of which 1 rows were made"):
        DatasetWriter(tmp_path / "d", DatasetInfo(game="connect", made_by="import"))


def test_an_interrupted_import_tells_what_is_kept(tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / "g.pgn").write_bytes(pgn(40))
    words = ["data", "import", str(tmp_path / "g.pgn"), "--game", "chess", "--out", str(tmp_path / "d")]
    monkeypatch.setattr(writer.DatasetWriter.__init__, "__defaults__", (100,))  # rows a shard
    records, seen = importing._game_records, 0

    def stopping(*arguments):
        nonlocal seen
        seen += 1
        if seen == 25:
            raise KeyboardInterrupt
        return records(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(importing, "_game_records", stopping)
        assert cli.main(words) == 130
    said = capsys.readouterr().err
    assert "interrupted; 200 positions in finished shards are kept, the rest is read again" in said
    assert "Resume with:" in said
    cli.main(["evaluate", "accuracy", "--policy", "random", "--data", str(tmp_path / "d")])
    assert f"{tmp_path / 'd'}: unfinished, 200 records so far; resume it with: " in capsys.readouterr().err
    assert cli.main(words) == 0
    assert Dataset.open(tmp_path / "d").num_records == 400
    assert [shard["rows"] for shard in Dataset.open(tmp_path / "d").info.shards] == [100] * 4


# Signals.


@pytest.mark.parametrize(
    ("verb", "number", "status"),
    [
        *(("selfplay", signal.SIGTERM, 143), ("label", signal.SIGHUP, 129), ("label", signal.SIGINT, 130)),
        pytest.param("label", signal.SIGTERM, 143, marks=pytest.mark.thorough),
        pytest.param("selfplay", signal.SIGHUP, 129, marks=pytest.mark.thorough),
        pytest.param("selfplay", signal.SIGINT, 130, marks=pytest.mark.thorough),
    ],
)
def test_a_signal_ends_the_work_and_says_how_to_go_on(tmp_path, fake_engine, number, status, verb) -> None:
    engine = fake_engine(sleep_s=0.05)
    source = tmp_path / "p.epd"
    source.write_text("".join(f"8/5k2/8/8/3K4/8/4P3/8 w - - 0 {move}\n" for move in range(1, 200)))
    words = ["selfplay", "--game", "chess", "--games", "40"]
    if verb == "label":
        assert cli.main(["data", "import", str(source), "--game", "chess", "--out", str(tmp_path / "p")]) == 0
        words = ["label", str(tmp_path / "p")]
    words = [
        sys.executable,
        "-m",
        "genpolicy",
        "data",
        *words,
        "--oracle",
        f"{engine}?nodes=5",
        "--out",
        str(tmp_path / "d"),
    ]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not num_answered(tmp_path / "d"):
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == status
    assert "what is finished is safe. Resume with:" in said
    assert f"genpolicy data {verb}" in said
    assert "Traceback" not in said
    if number != signal.SIGINT:
        assert f"stopped by {signal.Signals(number).name}" in said
    assert num_answered(tmp_path / "d")
    for pid in (engine.parent / "starts").read_text().split():
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.thorough
def test_nohup_stays_in_force(tmp_path, fake_engine) -> None:
    engine = fake_engine(sleep_s=0.02)
    words = ["data", "selfplay", "--game", "chess", "--games", "1", "--max-plies", "20", "--horizon", "1"]
    words = [sys.executable, "-m", "genpolicy", *words, "--oracle", f"{engine}?nodes=5", "--out", str(tmp_path / "d")]
    process = subprocess.Popen(["nohup", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not num_answered(tmp_path / "d"):
        time.sleep(0.01)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0


def test_selfplay_gives_up_an_oracle_that_labels_nothing(tmp_path, capsys, fake_engine) -> None:
    broken = fake_engine("always dies")
    words = ["selfplay", "--game", "chess", "--oracle", f"{broken}?nodes=5", "--games", 3, "--max-plies", 12]
    words += ["--horizon", 1, "--out", tmp_path / "d"]
    assert "none of the first 8 positions could be labelled" in fails(capsys, *words)
    assert len((broken.parent / "searches").read_text().splitlines()) <= 3 * 9
    broken.write_text(broken.read_text().replace("MODE = 'always dies'", "MODE = 'good'"))
    assert cli.main(["data", *map(str, words)]) == 0  # mended, the same command plays the games
    assert all(record.line for record in Dataset.open(tmp_path / "d").records())


WRITTEN = DatasetInfo(game="chess", made_by="import")
RECORD = Record(state="8/8/8/8/8/8/8/K1k5 w - - 0 1", line="a1b1")


def test_a_data_set_whose_lock_was_lost_is_left_to_who_has_it(tmp_path) -> None:
    """As a network file system does: the first one notices when it finishes something, and clears nothing away."""
    others = []

    def lose() -> None:
        with DatasetWriter(tmp_path, WRITTEN, 1) as first:
            first.add(1, [RECORD])
            (tmp_path / ".lock").unlink()
            others.append(DatasetWriter(tmp_path, WRITTEN, 1))
            first.add(0, [RECORD])

    with pytest.raises(LockedError, match="its lock was lost"):
        lose()
    with others[0] as second:
        assert second.is_done(1)
        second.add(0, [RECORD])
        second.finish()
    made = Dataset.open(tmp_path)
    assert (made.info.complete, made.num_records) == (True, 2)


def test_what_lost_its_lock_before_it_had_finished_anything_clears_nothing_away(tmp_path) -> None:
    others = []

    def lose() -> None:
        with DatasetWriter(tmp_path, WRITTEN) as first:
            (tmp_path / ".lock").unlink()
            others.append(DatasetWriter(tmp_path, WRITTEN))
            first.finish()

    with pytest.raises(LockedError, match="its lock was lost"):
        lose()
    with others[0] as second:
        second.add(0, [RECORD])
        second.finish()
    assert Dataset.open(tmp_path).info.complete
