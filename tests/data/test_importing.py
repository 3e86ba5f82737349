"""Imports: what becomes a record, how splits fall, what leaks, and what bad input says."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import chess
import chess.pgn
import pytest

import genpolicy
from genpolicy import cli
from genpolicy.data.records import Dataset, DatasetInfo, Record
from genpolicy.errors import SourceError
from genpolicy_labelling.splits import SplitFractions
from genpolicy_labelling.summary import count
from genpolicy_labelling.writer import DatasetWriter

GAME = genpolicy.load_game("chess")
TIC_TAC_TOE = "connect:rows=3,cols=3,k=3,gravity=false"


def write_pgn(path: Path, num_games: int, first: int = 0, plies: int = 12) -> list[chess.pgn.Game]:
    """Games whose moves follow a fixed rule; the same numbers give the same games."""
    games = []
    for number in range(first, first + num_games):
        board = chess.Board()
        for ply in range(plies):
            moves = sorted(map(str, board.legal_moves))
            board.push_uci(moves[(number * 31 + ply * 7) % len(moves)])
        game = chess.pgn.Game.from_board(board)
        game.headers["Result"] = ("1-0", "0-1", "1/2-1/2", "*")[number % 4]
        games.append(game)
    path.write_text("\n\n".join(map(str, games)) + "\n")
    return games


def import_to(folder: Path, *words: object, game: str = "chess", status: int = 0) -> Dataset:
    assert cli.main(["data", "import", *map(str, words), "--game", game, "--out", str(folder)]) == status
    return Dataset.open(folder)


def test_games_become_records(tmp_path, capsys) -> None:
    games = write_pgn(tmp_path / "g.pgn", 9)
    records = list(import_to(tmp_path / "d", tmp_path / "g.pgn").records())
    expected = []
    for number, game in enumerate(games):
        board = game.board()
        for move in game.mainline_moves():
            expected.append((board.fen(en_passant="legal"), move.uci(), (1.0, -1.0, 0.0, None)[number % 4]))
            board.push(move)
    assert [(r.state, r.played, r.result) for r in records] == expected
    assert [r.ply for r in records] == [ply for _ in games for ply in range(12)]
    assert len({r.game_id for r in records}) == 9
    assert all(r.line is None and r.scores == () and not r.ended for r in records)


def test_splits_are_by_game_and_seeded(tmp_path, capsys) -> None:
    write_pgn(tmp_path / "g.pgn", 150, plies=3)
    splits_of: dict[str, set] = defaultdict(set)
    for record in import_to(tmp_path / "d", tmp_path / "g.pgn", "--split", "0.6/0.2/0.2").records():
        splits_of[record.game_id].add(record.split)
    assert all(len(splits) == 1 for splits in splits_of.values())
    counts = Counter(split for splits in splits_of.values() for split in splits)
    # Means 90, 30, 30 with standard deviations 6, 4.9, 4.9.
    assert abs(counts["train"] - 90) < 24
    assert abs(counts["validation"] - 30) < 20
    assert abs(counts["test"] - 30) < 20
    other = import_to(tmp_path / "e", tmp_path / "g.pgn", "--split", "0.6/0.2/0.2", "--split-seed", 1)
    assert [r.split for r in other.records()] != [r.split for r in Dataset.open(tmp_path / "d").records()]


def test_one_game_in_two_files_falls_into_one_split(tmp_path, capsys) -> None:
    write_pgn(tmp_path / "a.pgn", 40, plies=5)
    write_pgn(tmp_path / "b.pgn", 40, plies=5)
    dataset = import_to(tmp_path / "d", tmp_path / "a.pgn", tmp_path / "b.pgn", "--split", "0.5/0.25/0.25")
    records = list(dataset.records())
    half = len(records) // 2
    assert [r.split for r in records[:half]] == [r.split for r in records[half:]]
    assert not {r.game_id for r in records[:half]} & {r.game_id for r in records[half:]}


def write_table(path: Path, games: list[object]) -> None:
    """A table of positions, one for each game named, each of another pawn endgame."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fens = [f"8/5k2/8/8/3K4/8/{file}P{7 - file}/8 w - - 0 {move}" for file in range(1, 7) for move in range(1, 50)]
    rows = [{"game": game, "ply": row, "fen": fen} for row, (game, fen) in enumerate(zip(games, fens, strict=False))]
    assert len(rows) == len(games)
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_a_game_that_crosses_two_part_files_keeps_its_id_and_its_split(tmp_path, capsys) -> None:
    one, two = tmp_path / "part0.parquet", tmp_path / "part1.parquet"
    write_table(one, [game for game in range(40) for _ in range(2)])
    write_table(two, [game for game in range(40) for _ in range(3)])
    several = list(import_to(tmp_path / "d", one, two, "--split", "0.4/0.3/0.3").records())
    splits_of = defaultdict(set)
    for record in several:
        splits_of[record.game_id].add(record.split)
    assert set(splits_of) == {str(game) for game in range(40)}
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert set.union(*splits_of.values()) == {"train", "validation", "test"}
    # The folder, which is one source, says the same.
    (tmp_path / "parts").mkdir()
    for file in (one, two):
        file.rename(tmp_path / "parts" / file.name)
    together = import_to(tmp_path / "e", tmp_path / "parts", "--split", "0.4/0.3/0.3")
    assert [(r.game_id, r.split) for r in together.records()] == [(r.game_id, r.split) for r in several]


def test_symmetric_positions_fall_into_one_split(tmp_path, capsys) -> None:
    dataset = import_to(tmp_path / "d", "all", "--split", "0.5/0.25/0.25", game=TIC_TAC_TOE)
    game = genpolicy.load_game(TIC_TAC_TOE)
    splits_of: dict[str, set] = defaultdict(set)
    for record in dataset.records():
        state = game.parse(record.state)
        for symmetry in game.symmetries:
            splits_of[game.format(symmetry.state(state))].add(record.split)
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert dataset.num_records == 4520
    assert set(dataset.splits) == {"train", "validation", "test"}


def test_a_source_keeps_its_own_split_where_there_are_no_games(tmp_path, capsys) -> None:
    for name, fen in [("mine_test.epd", chess.STARTING_FEN), ("mine_train.epd", "8/5k2/8/8/3K4/8/4P3/8 w - - 0 1")]:
        (tmp_path / name).write_text(fen + "\n")
    dataset = import_to(tmp_path / "d", tmp_path / "mine_test.epd", tmp_path / "mine_train.epd")
    assert [record.split for record in dataset.records()] == ["test", "train"]


def test_labelled_tables_keep_their_labels(tmp_path, capsys) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fen = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"
    rows = [
        {"game": 7, "ply": 0, "fen": chess.STARTING_FEN, "line": "e2e4 e7e5", "cp": 31, "mate": None},
        {"game": 8, "ply": 4, "fen": fen, "line": "a1a8", "cp": None, "mate": 1},
        {"game": 8, "ply": 5, "fen": "8/5k2/8/8/3K4/8/4P3/8 w - - 0 1", "line": None, "cp": None, "mate": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    first, second, third = import_to(tmp_path / "d", tmp_path / "t.parquet").records()
    assert (first.game_id, first.ply, first.line, first.ended, first.scores) == ("7", 0, "e2e4 e7e5", False, ("cp:31",))
    assert (second.line, second.ended, second.scores) == ("a1a8", True, ("mate:1",))
    assert (third.line, third.ended, third.scores) == (None, False, ())
    assert second.split == third.split
    assert (first.played, first.result, first.value) == (None, None, None)


def test_leakage_is_counted_as_brute_force_counts_it(tmp_path, capsys) -> None:
    write_pgn(tmp_path / "g.pgn", 60, plies=6)
    dataset = import_to(tmp_path / "d", tmp_path / "g.pgn", "--split", "0.5/0.25/0.25")

    def position(record: Record) -> str:
        return " ".join(record.state.split()[:4])  # without the move counters

    records = list(dataset.records())
    training = {position(r) for r in records if r.split == "train"}
    for split in ("validation", "test"):
        mine = [r for r in records if r.split == split]
        leaked = sum(position(r) in training for r in mine)
        assert 0 < leaked < len(mine)
        counted = dataset.info.counts["leakage"][split]
        assert (counted["records"], counted["in_training"]) == (len(mine), leaked)
        assert leaked <= counted["in_training_turned"] < len(mine)
    assert dataset.info.counts["duplicates"] == len(records) - len({position(r) for r in records})
    assert dataset.info.counts["records"] == len(records) == 360
    assert dataset.info.counts["games"] == 60
    assert f"{leaked} of {len(mine)}" in capsys.readouterr().out


def test_symmetric_copies_in_training_are_counted_apart(tmp_path, capsys) -> None:
    """Trained turned (``learner.augment``), a policy has seen every corner where training holds one."""
    game = genpolicy.load_game(TIC_TAC_TOE)
    texts = [game.format(game.play(game.parse(), square)) for square in (0, 0, 8, 1, 4)]
    splits = ("train", "test", "test", "test", "validation")
    with DatasetWriter(tmp_path / "d", DatasetInfo(game=game.spec, made_by="import")) as out:
        out.add(0, [Record(state=text, split=split) for text, split in zip(texts, splits, strict=True)])
        out.commit_all()
        out.finish(count(Dataset(out.folder, out.info), game))
    assert Dataset.open(tmp_path / "d").info.counts["leakage"] == {
        "validation": {"records": 1, "in_training": 0, "in_training_turned": 0},
        "test": {"records": 3, "in_training": 1, "in_training_turned": 2},
    }
    assert cli.main(["data", "info", str(tmp_path / "d")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"test positions that occur in training +1 of 3 \(33.3 %\)", shown)
    assert re.search(r"test positions that occur in training, as they are or turned +2 of 3 \(66.7 %\)", shown)


def test_counts_without_any_training_record(tmp_path) -> None:
    info = DatasetInfo(game="chess", made_by="import")
    with DatasetWriter(tmp_path / "d", info) as out:
        later = chess.STARTING_FEN.replace("0 1", "4 3")  # the same position, other move counters
        out.add(0, [Record(state=chess.STARTING_FEN, split="test"), Record(state=later)])
        out.finish()
    found = count(Dataset.open(tmp_path / "d"), GAME)
    assert found["splits"] == {"test": 1, "none": 1}
    assert found["leakage"] == {"test": {"records": 1, "in_training": 0, "in_training_turned": 0}}
    assert found["duplicates"] == 1


def test_positions_in_which_the_game_is_over_are_left_out(tmp_path, capsys) -> None:
    file = tmp_path / "p.epd"
    stalemate, drawn_by_rule = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "8/8/4k3/8/8/8/8/4K3 w - - 0 1"
    file.write_text(f"{stalemate}\n{drawn_by_rule}\n8/5k2/8/8/3K4/8/4P3/8 w - - 0 1\n")
    dataset = import_to(tmp_path / "d", file)
    assert dataset.num_records == 1
    assert dataset.info.counts["skipped"] == {"game over": 2}


def test_skipping_all_that_is_bad_says_why(tmp_path, capsys) -> None:
    file = tmp_path / "p.pgn"
    file.write_text('[Event "x"]\n[Variant "Chess960"]\n\n1. e4 *\n\n[Event "y"]\n\n1. e5 *\n')
    words = ["data", "import", str(file), "--game", "chess", "--skip-bad", "--out", str(tmp_path / "d")]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert "left out: 2 unreadable, the first: " in error
    assert "variant 'Chess960' is not standard chess" in error


def test_best_moves_beside_the_first_are_counted(tmp_path, capsys) -> None:
    file = tmp_path / "p.epd"
    file.write_text("8/8/4k3/8/8/3K4/R7/8 w - - bm Kd4 Ra6+ Ke4;\n8/8/4k3/8/8/3K4/R7/8 w - - bm Kd4;\n")
    dataset = import_to(tmp_path / "d", file)
    assert [record.line for record in dataset.records()] == ["d3d4", "d3d4"]
    assert dataset.info.counts["skipped"] == {"further best moves": 2}
    assert "2 further best moves" in capsys.readouterr().out


def test_bad_entries_are_fatal_or_counted(tmp_path, capsys) -> None:
    file = tmp_path / "p.epd"
    good = ["8/5k2/8/8/3K4/8/4P3/8 w - - 0 1", chess.STARTING_FEN]
    file.write_text("\n".join([good[0], *["8/8/8/9/8/8/8/8 w - - 0 1"] * 7, good[1]]) + "\n")
    words = ["data", "import", str(file), "--game", "chess", "--out", str(tmp_path / "d")]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert f"{file}:2: " in error
    assert "8/8/8/9/8/8/8/8" in error
    assert error.rstrip().endswith("(--skip-bad skips such entries)")
    assert "Traceback" not in error
    assert cli.main([*words, "--skip-bad", "--json", str(tmp_path / "j.json")]) == 0
    error = capsys.readouterr().err
    assert error.count("skipped: ") == 6  # five shown, one line for the rest
    assert "2 more" in error
    facts = json.loads((tmp_path / "j.json").read_text())
    assert facts["counts"]["skipped"] == {"unreadable": 7}
    assert facts["records"] == 2


def test_a_split_of_no_known_name_is_a_bad_entry(tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / "p.epd").write_text("8/5k2/8/8/3K4/8/4P3/8 w - - 0 1\n8/5k2/8/8/3K4/8/4P3/8 w - - 0 2\n")
    read = type(GAME.files).open_positions

    def other_split_first(self, path, on_bad=None):
        for number, position in enumerate(read(self, path, on_bad)):
            yield replace(position, split=("holdout", "dev")[number])

    monkeypatch.setattr(type(GAME.files), "open_positions", other_split_first)
    words = ["data", "import", str(tmp_path / "p.epd"), "--game", "chess", "--out", str(tmp_path / "d")]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'p.epd'}:1: split 'holdout' is none of train, validation, test" in error
    assert error.rstrip().endswith("(--skip-bad skips such entries)")
    assert cli.main([*words, "--skip-bad"]) == 0
    dataset = Dataset.open(tmp_path / "d")
    assert dataset.info.counts["skipped"] == {"unreadable": 1}
    assert [record.split for record in dataset.records()] == ["validation"]


def test_an_illegal_move_names_file_line_and_move(tmp_path, capsys) -> None:
    write_pgn(tmp_path / "g.pgn", 2)
    with (tmp_path / "g.pgn").open("a") as file:
        file.write('\n[Event "x"]\n\n1. e4 e5 2. Ke3 *\n')
    words = ["data", "import", str(tmp_path / "g.pgn"), "--game", "chess", "--out", str(tmp_path / "d")]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert "g.pgn:" in error
    assert "Ke3" in error
    assert error.rstrip().endswith("(--skip-bad skips such entries)")
    assert cli.main([*words, "--skip-bad"]) == 0
    assert Dataset.open(tmp_path / "d").info.counts["games"] == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.pgn", None, "no such file, or no file in it; give a file, a folder or a glob"),
        ("empty.pgn", "", "empty.pgn: holds no game; expected PGN text"),
        ("empty.epd", "", "empty.epd: holds no position; expected"),
        ("over.epd", "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "(left out: 1 game over); give a source with"),
        ("notes.docx", "hello", "notes.docx"),
    ],
)
def test_sources_that_hold_nothing(tmp_path, capsys, name, content, message) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    words = ["data", "import", str(tmp_path / name), "--game", "chess", "--out", str(tmp_path / "d")]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "--skip-bad" not in error  # it would not help
    assert "Traceback" not in error


def test_games_of_a_source_given_twice_do_not_count_twice(tmp_path, capsys) -> None:
    write_pgn(tmp_path / "g.pgn", 2)
    (tmp_path / "x").mkdir()
    again = tmp_path / "x" / ".." / "g.pgn"
    words = ["data", "import", str(tmp_path / "g.pgn"), str(again), "--game", "chess", "--out", str(tmp_path / "d")]
    assert cli.main(words) == 2
    assert f"{again}: given twice, and its games count once; leave one of them out" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_limits(tmp_path, capsys) -> None:
    write_pgn(tmp_path / "g.pgn", 9)
    assert import_to(tmp_path / "a", tmp_path / "g.pgn", "--max-games", 4).info.counts["games"] == 4
    assert import_to(tmp_path / "b", tmp_path / "g.pgn", "--max-positions", 30).num_records == 36  # three whole games


def test_max_games_counts_the_games_of_a_table(tmp_path, capsys) -> None:
    games = [None, 7, 7, 7, None, 8, 9, 9, 10]
    write_table(tmp_path / "t.parquet", games)
    for number, expected in [(1, games[:5]), (2, games[:6]), (3, games[:8]), (4, games), (5, games)]:
        dataset = import_to(tmp_path / str(number), tmp_path / "t.parquet", "--max-games", number)
        assert [r.game_id for r in dataset.records()] == [game and str(game) for game in expected]
    # A game that goes on in the next file is one game.
    write_table(tmp_path / "u.parquet", [10, 10, 11])
    both = import_to(tmp_path / "both", tmp_path / "t.parquet", tmp_path / "u.parquet", "--max-games", 4)
    assert both.num_records == len(games) + 2
    assert both.info.counts["games"] == 4


def test_openings_from_a_file(tmp_path, capsys) -> None:
    openings = tmp_path / "o.txt"
    openings.write_text("X../.O./... X\nXOX/.../... O\n")
    words = ["data", "selfplay", "--game", TIC_TAC_TOE, "--oracle", "solver", "--games", "12", "--random-plies", "0:0"]
    assert cli.main([*words, "--openings", str(openings), "--out", str(tmp_path / "d")]) == 0
    firsts = {record.state for record in Dataset.open(tmp_path / "d").records() if record.ply == 0}
    assert firsts == {"X../.O./... X", "XOX/.../... O"}


def test_changed_settings_do_not_mix(tmp_path, capsys) -> None:
    write_pgn(tmp_path / "g.pgn", 3)
    import_to(tmp_path / "d", tmp_path / "g.pgn")
    write_pgn(tmp_path / "g.pgn", 4)
    words = ["data", "import", str(tmp_path / "g.pgn"), "--game", "chess", "--out", str(tmp_path / "d")]
    assert cli.main(words) == 2
    assert "choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0.9/0.1", "a/b/c", "0.5/0.5/0.5", "1.2/-0.1/-0.1"])
def test_bad_split_fractions(text) -> None:
    with pytest.raises(ValueError, match="split"):
        SplitFractions.parse(text)


def test_an_unknown_split_of_a_source_is_named(tmp_path) -> None:
    from genpolicy_labelling.splits import checked_split

    assert checked_split("valid") == "validation"
    with pytest.raises(ValueError, match="'other'"):
        checked_split("other")
    assert issubclass(SourceError, ValueError)
