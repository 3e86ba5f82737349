"""Data sets on the disk: round trips, damage, full disks, kills between any two writes."""

import contextlib
import errno
import os
import sqlite3
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from genpolicy import files as storage
from genpolicy import load_game
from genpolicy.data.records import SCHEMA, Dataset, DatasetInfo, Record
from genpolicy.errors import DatasetError, LockedError, lacks_memory
from genpolicy.files import DiskFullError, write_atomic
from genpolicy_common.store import Store, StoreError
from genpolicy_labelling import writer
from genpolicy_labelling.writer import DatasetWriter
from tests.data.journal_files import old_journal
from tests.data.record_sets import make_info, make_records, write
from tests.small_datasets import CONNECT, solved_connect


def test_round_trip(tmp_path) -> None:
    records = make_records(11)
    dataset = write(tmp_path / "d", records)
    assert list(dataset.records()) == records
    assert [shard["rows"] for shard in dataset.info.shards] == [4, 4, 3]
    assert dataset.num_records == 11
    assert dataset.game_spec == "chess"
    assert dataset.splits == {"test": 5, "none": 1, "train": 5}
    assert list(dataset.records("test")) == [record for record in records if record.split == "test"]
    assert records[0].moves == ("a", "b", "c")
    assert records[0].scored_moves == {"a": "cp:1", "b": "cp:-5"}
    assert records[1].moves == ()
    table = dataset.columns(["state", "ply"], "train")
    assert table.column_names == ["state", "ply"]
    assert table.column("state").to_pylist() == ["s2", "s4", "s6", "s8", "s10"]
    assert pa.Table.from_batches(dataset.batches(batch_rows=3)).to_pylist() == [record.to_row() for record in records]
    # What stands on the disk is plain Parquet with plain columns.
    assert pq.read_table(tmp_path / "d" / "records-00000.parquet").schema.equals(SCHEMA)
    with pytest.raises(DatasetError, match="no column fen"):
        dataset.columns(["fen"])
    with pytest.raises(DatasetError, match="no split 'training'"):
        list(dataset.records("training"))


def test_the_labelled_move_is_best_though_another_is_valued_above_it() -> None:
    game = load_game(CONNECT)
    record = Record(game.format(game.parse()), line="b2 a1", move_values="a1=value:0.2 c1=value:0.2 b2=value:0.1")
    assert record.best_moves(game) == {game.moves.index(move) for move in ("a1", "b2", "c1")}


def test_checksum_is_of_the_records(tmp_path) -> None:
    first, again = write(tmp_path / "a", make_records(9)), write(tmp_path / "b", make_records(9))
    other = write(tmp_path / "c", make_records(10))
    assert first.checksum == again.checksum != other.checksum


def test_batches_have_the_rows_that_were_asked_for(tmp_path) -> None:
    expected = [record.state for record in write(tmp_path, make_records(40)).records()]
    for rows in (1, 3, 40, 100):
        batches = list(Dataset.open(tmp_path).batches(["state"], batch_rows=rows))
        assert [text for batch in batches for text in batch.column("state").to_pylist()] == expected
        assert max(batch.num_rows for batch in batches) <= rows


def test_units_end_in_any_order(tmp_path) -> None:
    records = make_records(40)
    expected = write(tmp_path / "a", records)
    with DatasetWriter(tmp_path / "b", make_info(), 4) as out:
        for unit in sorted(range(40), key=lambda unit: unit * 17 % 40):
            out.add(unit, [records[unit]])
        out.finish()
    assert Dataset.open(tmp_path / "b").checksum == expected.checksum


def test_a_folder_of_other_files_keeps_all_of_them(tmp_path) -> None:
    (tmp_path / ".mine.tmp").write_text("mine")
    with pytest.raises(DatasetError, match=r"holds \.mine\.tmp and no dataset\.yaml"):
        write(tmp_path, make_records(1))
    assert (tmp_path / ".mine.tmp").read_text() == "mine"


class Killed(BaseException):
    """Stands for a kill: nothing after it runs."""


def killed_after(monkeypatch, number: int) -> None:
    """Let the writer die at its n-th write of any kind, half of the bytes on the disk."""
    count = 0

    def die(data: bytes, put) -> None:
        nonlocal count
        count += 1
        if count == number:
            put(data[: len(data) // 2])
            raise Killed

    def dying_atomic(path: Path, data: bytes) -> None:
        die(data, path.with_name(f".{path.name}.tmp").write_bytes)
        write_atomic(path, data)
        die(b"", lambda data: None)

    def dying(method):
        def changed(self, *arguments) -> None:
            die(b"", lambda data: None)
            method(self, *arguments)
            die(b"", lambda data: None)

        return changed

    monkeypatch.setattr(writer, "write_atomic", dying_atomic)
    for name in ("put", "delete"):
        monkeypatch.setattr(Store, name, dying(getattr(Store, name)))


def test_a_kill_at_any_write_loses_and_repeats_nothing(tmp_path, monkeypatch) -> None:
    records = make_records(6)
    expected = write(tmp_path / "expected", records, rows_per_shard=2)
    order = sorted(range(6), key=lambda unit: unit * 5 % 6)
    num_killed = 0
    for number in range(1, 150):
        folder = tmp_path / f"killed {number}"
        finished: list[int] = []
        with monkeypatch.context() as patch:
            killed_after(patch, number)
            try:
                with DatasetWriter(folder, make_info(), 2) as out:
                    for unit in order:
                        out.add(unit, [records[unit]])
                        finished.append(unit)
                    out.finish()
            except Killed:
                num_killed += 1
        if len(finished) == 6 and num_killed < number:
            break
        with DatasetWriter(folder, make_info(), 2) as out:
            missing = [unit for unit in order if not out.is_done(unit)]
            assert not set(missing) & set(finished), "a finished unit was lost"
            assert out.num_rows == out.num_units == 6 - len(missing)
            for unit in missing:
                out.add(unit, [records[unit]])
            out.finish()
        assert Dataset.open(folder).checksum == expected.checksum
        assert sorted(p.name for p in folder.iterdir()) == sorted(
            [".lock", "dataset.yaml", *(f"records-{i:05d}.parquet" for i in range(3))]
        )
    else:
        pytest.fail("the loop did not cover every write")
    assert num_killed > 12


def test_answers_live_until_their_unit_is_finished(tmp_path) -> None:
    records = make_records(6)
    with DatasetWriter(tmp_path / "d", make_info(), 2) as out:
        out.add_answer(1, 0, 0, {"a": 1})
        out.add_answer(3, 2, 0, "b")
        out.add_answer(1, 0, 1, ["c"])
        out.add(0, records[:2])  # a full shard: the journal is written anew
        out.add_answer(3, 2, 1, "d")
    with DatasetWriter(tmp_path / "d", make_info(), 2) as out:
        assert [out.answer(1, 0, 0), out.answer(1, 0, 1), out.answer(3, 2, 0), out.answer(3, 2, 1)] == [
            {"a": 1},
            ["c"],
            "b",
            "d",
        ]
        assert out.answer(1, 0, 2) is out.answer(0, 0, 0) is None
        out.add(1, records[1:3])
        assert out.answer(1, 0, 0) is None
        out.drop_answers(lambda answer: answer == "d")
    with DatasetWriter(tmp_path / "d", make_info(), 2) as out:
        assert out.answer(1, 0, 0) is None
        assert (out.answer(3, 2, 0), out.answer(3, 2, 1)) == ("b", None)


def test_what_follows_a_dropped_answer_goes_with_it(tmp_path) -> None:
    with DatasetWriter(tmp_path / "d", make_info()) as out:
        for task in range(2):
            for question in range(4):
                out.add_answer(0, task, question, [task, question])
        out.drop_answers(lambda answer: answer == [1, 2])
        kept = [(task, question) for task in range(2) for question in range(4) if out.answer(0, task, question)]
    assert kept == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


@pytest.mark.parametrize("order", [(3, 0, 2, 1), (0, 1, 2, 3)])
@pytest.mark.parametrize("rows_per_shard", [2, 50])
def test_max_rows_keeps_whole_games_and_drops_later_ones(tmp_path, order, rows_per_shard) -> None:
    """Units of two games of two and three records."""
    records = [Record(state=f"s{i}", game_id=f"g{i // 5 * 2 + (i % 5 >= 2)}") for i in range(20)]
    for max_rows, num_kept in [(5, 5), (6, 7), (7, 7), (8, 10), (20, 20)]:
        folder = tmp_path / f"d{max_rows}"
        with DatasetWriter(folder, make_info(), rows_per_shard, max_rows=max_rows) as out:
            for unit in order:
                out.add(unit, records[5 * unit : 5 * unit + 5])
            out.finish()
        assert list(Dataset.open(folder).records()) == records[:num_kept]


def test_other_data_sets_are_never_mixed(tmp_path) -> None:
    write(tmp_path / "d", make_records(4))
    for changes, message in [
        ({"game": "connect"}, "game is 'chess', not 'connect'"),
        ({"oracle": {"name": "none", "nodes": 6}}, "oracle is"),
        ({"options": {"horizon": 8}}, "option horizon is 4, not 8"),
        ({"sources": [{"file": "x", "sha256": "y"}]}, "sources is"),
        ({"made_by": "selfplay"}, "made_by is"),
    ]:
        with pytest.raises(DatasetError, match=message):
            DatasetWriter(tmp_path / "d", make_info(**changes))
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "thesis.tex").write_text("dear")
    with pytest.raises(DatasetError, match=r"holds thesis\.tex"):
        DatasetWriter(tmp_path / "e", make_info())


def test_two_writers_at_once(tmp_path) -> None:
    with DatasetWriter(tmp_path / "d", make_info()), pytest.raises(LockedError, match="another process"):
        DatasetWriter(tmp_path / "d", make_info())


def test_a_damaged_shard_stops_the_resuming(tmp_path) -> None:
    with DatasetWriter(tmp_path / "d", make_info(), 2) as out:
        for unit, record in enumerate(make_records(4)):
            out.add(unit, [record])
    shard = tmp_path / "d" / "records-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(DatasetError, match=r"records-00000\.parquet: damaged"):
        DatasetWriter(tmp_path / "d", make_info(), 2)


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowMemoryError("malloc of size 110336 failed"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_too_little_memory_is_not_called_damage(tmp_path, monkeypatch, error: Exception) -> None:
    dataset = write(tmp_path / "d", make_records(4))

    def fail(*_: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(pq, "ParquetFile", fail)
    with pytest.raises(type(error), match=str(error.args[-1])):
        list(dataset.batches())
    assert lacks_memory(error)


def test_a_damaged_journal_is_named_with_the_way_out(tmp_path) -> None:
    records = make_records(7)
    with DatasetWriter(tmp_path / "d", make_info(), 4) as out:
        for unit, record in enumerate(records[:6]):
            out.add(unit, [record])
    path = tmp_path / "d" / "journal.sqlite"
    path.write_bytes(path.read_bytes().replace(b'"s4"', b'"s9"'))
    with pytest.raises(
        StoreError, match=r"journal\.sqlite: damaged .*units '4'.*; delete it to have its work done again"
    ):
        DatasetWriter(tmp_path / "d", make_info(), 4)
    path.unlink()
    with DatasetWriter(tmp_path / "d", make_info(), 4) as out:
        assert [out.is_done(unit) for unit in range(7)] == [True] * 4 + [False] * 3
        for unit in range(4, 7):
            out.add(unit, [records[unit]])
        out.finish()
    assert list(Dataset.open(tmp_path / "d").records()) == records


def test_a_journal_of_newer_code_is_refused(tmp_path) -> None:
    with DatasetWriter(tmp_path / "d", make_info()) as out:
        out.add(0, make_records(2))
    with contextlib.closing(sqlite3.connect(tmp_path / "d" / "journal.sqlite")) as database:
        database.execute("PRAGMA user_version = 9")
    before = (tmp_path / "d" / "journal.sqlite").read_bytes()
    with pytest.raises(StoreError, match=r"journal\.sqlite: is of a newer form .*update genpolicy"):
        DatasetWriter(tmp_path / "d", make_info())
    assert (tmp_path / "d" / "journal.sqlite").read_bytes() == before


def test_a_journal_of_another_data_set_is_refused(tmp_path) -> None:
    for name, nodes in (("d", 5), ("e", 6)):
        with DatasetWriter(tmp_path / name, make_info(oracle={"name": "none", "nodes": nodes})) as out:
            out.add_answer(0, 0, 0, name)
    (tmp_path / "e" / "journal.sqlite").replace(tmp_path / "d" / "journal.sqlite")
    with pytest.raises(DatasetError, match=r"journal\.sqlite: belongs to another data set; delete it"):
        DatasetWriter(tmp_path / "d", make_info(oracle={"name": "none", "nodes": 5}))


# Journals of genpolicy 0.1: JSON lines.


def old_entries(records: list[Record], order: Iterable[int]) -> list[dict]:
    return [{"unit": unit, "rows": [records[unit].to_row()], "tallies": {"odd": unit % 2}} for unit in order]


def test_work_of_the_old_form_is_resumed(tmp_path) -> None:
    """Two shards, finished units with a gap, answers; what a kill left behind of units in shards is passed over."""
    records = make_records(9)
    expected = write(tmp_path / "expected", records)
    with DatasetWriter(tmp_path / "d", make_info(), 4, journal=False) as out:
        for unit in range(4):
            out.add(unit, [records[unit]])
    info = DatasetInfo.read(tmp_path / "d")
    answers = [{"unit": unit, "task": 0, "question": 1, "answer": f"a{unit}"} for unit in (2, 4, 5, 7)]
    path = old_journal(tmp_path / "d", info, [*answers, *old_entries(records, (2, 5, 6))])
    whole = path.read_bytes()
    for _ in range(3):
        with DatasetWriter(tmp_path / "d", make_info(), 4) as out:
            assert [out.is_done(unit) for unit in range(9)] == [True] * 4 + [False, True, True, False, False]
            assert [out.answer(unit, 0, 1) for unit in (2, 4, 5, 7)] == [None, "a4", None, "a7"]
            assert out.num_rows == 6
        assert not path.exists()
        path.write_bytes(whole)  # as if killed before it was deleted
    with DatasetWriter(tmp_path / "d", make_info(), 4) as out:
        for unit in (8, 7, 4):
            out.add(unit, [records[unit]])
        out.finish()
        assert out.tallies == {"odd": 1}
    assert Dataset.open(tmp_path / "d").checksum == expected.checksum
    assert not path.exists()


@pytest.mark.parametrize("cut", [1, 7, 20, 60])
@pytest.mark.parametrize("more", [b"", b"\0" * 100 + b"\n"], ids=["", "zeros"])
def test_a_torn_last_line_of_the_old_form_is_ignored(tmp_path, cut, more) -> None:
    entries = [{"unit": 0, "task": 0, "question": question, "answer": "x" * 50} for question in range(3)]
    path = old_journal(tmp_path / "d", make_info(), entries)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + (more or lines[2][:-cut]))
    for _ in range(2):
        with DatasetWriter(tmp_path / "d", make_info()) as out:
            assert [out.answer(0, 0, question) is None for question in range(3)] == [False, False, True]


def test_any_changed_byte_of_the_old_form_is_noticed(tmp_path) -> None:
    entries = [{"unit": 0, "task": 0, "question": question, "answer": {"line": "e2e4"}} for question in range(2)]
    path = old_journal(tmp_path / "d", make_info(), entries)
    whole = path.read_bytes()
    for at in range(whole.index(b"\n")):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DatasetError, match=r"journal\.jsonl:1: damaged"):
            DatasetWriter(tmp_path / "d", make_info())
    path.write_bytes(whole)
    with DatasetWriter(tmp_path / "d", make_info()) as out:
        assert out.answer(0, 0, 1) == {"line": "e2e4"}


def test_damage_inside_a_journal_of_the_old_form_is_named_by_line(tmp_path) -> None:
    path = old_journal(tmp_path / "d", make_info(), old_entries(make_records(4), range(4)))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-5], *lines[2:]]) + "\n")
    with pytest.raises(DatasetError, match=r"journal\.jsonl:2: damaged.*delete the line"):
        DatasetWriter(tmp_path / "d", make_info())


def test_a_full_disk_by_a_failing_write(tmp_path, monkeypatch) -> None:
    def full(path: Path, data: bytes) -> None:
        with storage.full_disk_named(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    records = make_records(8)
    with DatasetWriter(tmp_path / "d", make_info(), 4) as out:
        for unit in range(3):
            out.add(unit, [records[unit]])
        with monkeypatch.context() as patch:
            patch.setattr(writer, "write_atomic", full)
            with pytest.raises(DiskFullError, match="free some space"):
                out.add(3, [records[3]])
    with DatasetWriter(tmp_path / "d", make_info(), 4) as out:
        assert [out.is_done(unit) for unit in range(5)] == [True] * 4 + [False]
        for unit in range(4, 8):
            out.add(unit, [records[unit]])
        out.finish()
    assert list(Dataset.open(tmp_path / "d").records()) == records


def test_an_error_of_a_disk_names_the_file(tmp_path, monkeypatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))  # the system names no file where one is open

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match=r"Input/output error: .*dataset\.yaml"):
        write_atomic(tmp_path / "dataset.yaml", b"new")


def test_a_disk_that_is_full(tiny_disk) -> None:
    records = [Record(state=os.urandom(2000).hex(), line=str(i)) for i in range(400)]
    finished = -1
    with DatasetWriter(tiny_disk / "d", make_info(), 20) as out:
        try:
            for unit, record in enumerate(records):
                out.add(unit, [record])
                finished = unit
        except DiskFullError as error:
            assert "free some space" in str(error)  # noqa: PT017
    assert 20 < finished < 399
    (tiny_disk / "d" / "records-00000.parquet").read_bytes()
    subprocess.run(["mount", "-o", "remount,size=64m", tiny_disk], check=True)
    continue_here(tiny_disk / "d", records, finished)


def test_a_disk_that_is_full_for_a_while(tiny_disk) -> None:
    records = [Record(state=os.urandom(2000).hex(), line=str(i)) for i in range(400)]
    finished = -1
    with DatasetWriter(tiny_disk / "d", make_info(), 1000) as out:  # the journal alone fills the disk
        try:
            for unit, record in enumerate(records):
                out.add(unit, [record])
                finished = unit
        except DiskFullError:
            subprocess.run(["mount", "-o", "remount,size=64m", tiny_disk], check=True)
            out.add(finished + 1, [records[finished + 1]])
    assert 20 < finished < 399
    continue_here(tiny_disk / "d", records, finished + 1)


def continue_here(folder: Path, records: list[Record], finished: int) -> None:
    with DatasetWriter(folder, make_info(), 20) as out:
        assert all(out.is_done(unit) for unit in range(finished + 1))
        for unit, record in enumerate(records):
            if not out.is_done(unit):
                out.add(unit, [record])
        out.finish()
    assert list(Dataset.open(folder).records()) == records


def test_counts_of_splits_that_the_records_cannot_have_are_refused(tmp_path: Path) -> None:
    dataset = solved_connect(tmp_path / "data", every=40)
    file, splits = dataset.folder / "dataset.yaml", dataset.splits
    facts = yaml.safe_load(file.read_text())

    def write(**counts: int) -> None:
        file.write_text(yaml.safe_dump({**facts, "complete": True, "counts": {"splits": counts}}))

    write(**splits)
    assert Dataset.open(dataset.folder).splits == splits
    rest = {name: number for name, number in splits.items() if name != "train"}
    for wrong in ({**rest, "trajn": splits["train"]}, {**rest, "train": splits["train"] + 1}, rest):
        write(**wrong)
        with pytest.raises(DatasetError, match=r"counts\.splits"):
            Dataset.open(dataset.folder)


def test_a_deeply_nested_description_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dataset.yaml").write_text("format: " + 5000 * "[" + 5000 * "]" + "\n")
    with pytest.raises(DatasetError, match=r"dataset\.yaml: unreadable"):
        Dataset.open(tmp_path)
