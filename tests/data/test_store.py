"""``genpolicy_common.store``: entries through kills, damage, full disks and other processes; who holds a lock."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genpolicy.errors import LockedError
from genpolicy.files import DiskFullError
from genpolicy.folder_lock import FolderLock
from genpolicy_common import store as stores
from genpolicy_common.store import Store, StoreError, remove_store

pytestmark = pytest.mark.usefixtures("warm_start")


def value(number: int) -> dict[str, Any]:
    return {"n": number, "text": "é" * (number * 37 % 3000)}


def open_store(folder: Path) -> Store:
    return Store(folder / "s.sqlite", "a test")


def test_the_log_needs_little_room(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(4000):
            store.put("numbers", str(number % 10), "x" * 3000)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 6 << 20


def test_what_was_put_is_read_in_order(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in (5, 3, 9):
            store.put("numbers", str(number), value(number))
        store.put("bytes", "5", b"\0\xff")
        store.put("numbers", "3", None)  # replaced, in its place
        store.put("numbers", "4", 4.5)
        store.delete("numbers", ["9", "no such key"])
        with pytest.raises(TypeError):
            store.put("numbers", "6", object())
    with open_store(tmp_path) as store:
        assert list(store.items("numbers")) == [("5", value(5)), ("3", None), ("4", 4.5)]
        assert store.keys("numbers") == ["5", "3", "4"]
        assert (store.get("bytes", "5"), store.get("bytes", "3"), store.get("bytes", "3", 7)) == (b"\0\xff", None, 7)
        assert store.keys("nothing") == []
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite"]


def test_a_transaction_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put("t", "a", 1)
        with contextlib.suppress(KeyError), store.transaction():
            store.put("t", "b", 2)
            store.delete("t", ["a"])
            raise KeyError
        assert dict(store.items("t")) == {"a": 1}
        with store.transaction():
            store.put("t", "c", 3)
            store.delete("t", ["a"])
        assert dict(store.items("t")) == {"c": 3}


WRITER = """
import sys
from pathlib import Path
from genpolicy_common.store import Store

path, table, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Store(path, "a test") as store:
    while number < int(sys.argv[4]):
        with store.transaction():
            store.put(table, str(number), {"n": number, "text": "é" * (number * 37 % 3000)})
            store.put(table + " twin", str(number), number)
        print(number, flush=True)
        number += 1
"""


def start_writer(path: Path, table: str, first: int, end: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, str(path), table, str(first), str(end)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kills", [8, pytest.param(20, marks=pytest.mark.thorough)])
def test_kills_lose_and_double_nothing(tmp_path: Path, kills: int) -> None:
    draw, path, known = random.Random(0), tmp_path / "s.sqlite", 0
    for _ in range(kills):
        process = start_writer(path, "t", known, 1 << 30)
        assert process.stdout is not None
        said = -1
        for _ in range(draw.randint(0, 60)):
            said = int(process.stdout.readline())
        time.sleep(draw.random() * 0.01)  # anywhere between two entries
        process.kill()
        rest = process.stdout.read().split()
        process.wait()
        finished = int(rest[-1]) if rest else said
        with Store(path, "a test") as store:
            entries = list(store.items("t"))
            known = len(entries)
            assert finished < known or known == 0
            assert known <= max(finished, said) + 2 or finished == -1
            assert entries == [(str(n), value(n)) for n in range(known)]
            assert list(store.items("t twin")) == [(str(n), n) for n in range(known)]
    assert known > 5 * kills


def test_two_processes_write_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    writers = [start_writer(path, name, 0, 200) for name in ("one", "two")]
    for process in writers:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with Store(path, "a test") as store:
        for name in ("one", "two"):
            assert list(store.items(name)) == [(str(n), value(n)) for n in range(200)]


def test_the_disk_is_told_every_two_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut costs: the file itself, without its log, has what was put before the last write-back."""
    now = 100.0
    monkeypatch.setattr(stores.time, "monotonic", lambda: now)
    path = tmp_path / "s.sqlite"
    with open_store(tmp_path) as store:
        store.put("t", "a", 1)
        assert path.with_name("s.sqlite-wal").stat().st_size
        now = 101.9
        store.put("t", "b", 2)
        (tmp_path / "early").mkdir()
        (tmp_path / "early" / "s.sqlite").write_bytes(path.read_bytes())
        now = 102.1
        store.put("t", "c", 3)
        (tmp_path / "late").mkdir()
        (tmp_path / "late" / "s.sqlite").write_bytes(path.read_bytes())
    with open_store(tmp_path / "early") as early, open_store(tmp_path / "late") as late:
        assert early.keys("t") == []
        assert late.keys("t") == ["a", "b", "c"]


# Files that cannot be used.


def spoil(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)
    database.close()


def test_a_newer_and_an_older_form_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put("t", "a", 1)
    path = tmp_path / "s.sqlite"
    spoil(path, "PRAGMA user_version = 2", "UPDATE about SET genpolicy = '7.3'")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"s\.sqlite: is of a newer form \(2, by genpolicy 7\.3\).*update genpolicy"):
        open_store(tmp_path)
    assert path.read_bytes() == before
    spoil(path, "PRAGMA user_version = 0", "UPDATE about SET genpolicy = '0.0.1'")
    with pytest.raises(
        StoreError, match=r"an older form \(0, by genpolicy 0\.0\.1\).*finish it with genpolicy 0\.0\.1"
    ):
        open_store(tmp_path)


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite", "another work"):
        pass
    with pytest.raises(StoreError, match="holds 'another work', not 'a test'; choose another folder"):
        open_store(tmp_path)
    (tmp_path / "s.sqlite").unlink()
    spoil(tmp_path / "s.sqlite", "CREATE TABLE mine (x)")
    before = (tmp_path / "s.sqlite").read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_store(tmp_path)
    assert (tmp_path / "s.sqlite").read_bytes() == before


def test_a_file_whose_making_was_killed_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    for begun in (lambda: path.write_bytes(b""), lambda: spoil(path, "PRAGMA journal_mode = WAL")):
        begun()
        with open_store(tmp_path) as store:
            store.put("t", "a", 1)
        with open_store(tmp_path) as store:
            assert list(store.items("t")) == [("a", 1)]
        remove_store(path)


def test_any_changed_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with open_store(tmp_path) as store:
        for number in range(40):
            store.put("t", str(number), {"n": number, "text": "x" * 60})
        store.put("b", "k", b"bytes")
    whole, named, harmless = path.read_bytes(), 0, 0
    places = {*range(100), *range(0, len(whole), 41)}  # all of the header, and places in every page
    for at in sorted(places):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            with open_store(tmp_path) as store:
                assert list(store.items("t")) == [(str(n), {"n": n, "text": "x" * 60}) for n in range(40)], at
                assert store.get("b", "k") == b"bytes"
        except StoreError as error:
            named += str(path) in str(error)
        else:
            harmless += 1
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    assert named > 50
    assert named + harmless == len(places)


@pytest.mark.parametrize("cut", [5000, 9000, 50_000])
def test_a_cut_file_is_named_with_the_way_out(tmp_path: Path, cut: int) -> None:
    with open_store(tmp_path) as store:
        for number in range(100):
            store.put("t", str(number), value(number))
    path = tmp_path / "s.sqlite"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(StoreError, match=r"s\.sqlite: damaged \(.*\); delete it to have its work done again"):
        open_store(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000], ids=["empty", "cut", "deep"])
def test_an_entry_that_is_not_json_is_named_though_its_checksum_is_right(text: str, tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put("t", "a", 1)
    database = sqlite3.connect(tmp_path / "s.sqlite")
    with contextlib.closing(database), database:
        database.execute("UPDATE entries SET value = ?, crc32 = ?", (text, stores._crc32("t", "a", text)))
    with open_store(tmp_path) as store, pytest.raises(StoreError, match=r"s\.sqlite: damaged \(t 'a': .*delete it"):
        store.get("t", "a")


def test_a_torn_log_keeps_what_was_before_the_tear(tmp_path: Path) -> None:
    """A power cut may leave the end of the log torn or full of zeros."""
    (tmp_path / "cut").mkdir()
    with open_store(tmp_path) as store:
        for number in range(50):
            store.put("t", str(number), number)
        file, log = ((tmp_path / f"s.sqlite{suffix}").read_bytes() for suffix in ("", "-wal"))
    for torn in (log[:-100], log[:-6000], log[:-3000] + bytes(3000), log + bytes(5000)):
        (tmp_path / "cut" / "s.sqlite").write_bytes(file)
        (tmp_path / "cut" / "s.sqlite-wal").write_bytes(torn)
        with open_store(tmp_path / "cut") as store:
            known = store.keys("t")
            assert known == [str(number) for number in range(len(known))]
            assert len(known) >= 46
            store.put("t", "x", 0)
        remove_store(tmp_path / "cut" / "s.sqlite")


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot be written to.*choose another folder") as caught:
        Store(tmp_path / "nowhere" / "s.sqlite", "a test")
    assert caught.value.filename == str(tmp_path / "nowhere" / "s.sqlite")


def test_a_disk_that_became_read_only_is_named(tiny_disk: Path) -> None:
    with open_store(tiny_disk) as store:
        store.put("t", "a", 1)
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    with pytest.raises(OSError, match="cannot be written to"):
        open_store(tiny_disk)
    subprocess.run(["mount", "-o", "remount,rw", tiny_disk], check=True)
    with open_store(tiny_disk) as store:
        assert store.get("t", "a") == 1


# Full disks.


def fill(store: Store) -> int:
    """Put entries until the disk is full; how many were put."""
    for number in range(10_000):
        try:
            store.put("t", str(number), value(number))
        except DiskFullError as error:
            assert "free some space" in str(error)  # noqa: PT017
            return number
    raise AssertionError("the disk has no end")


def test_a_full_file_keeps_what_was_put(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store._db.execute("PRAGMA max_page_count = 60")
        number = fill(store)
        with contextlib.suppress(DiskFullError), store.transaction():
            store.delete("t", ["0"])
            store.put("t", "x", "x" * 1_000_000)
        assert store.keys("t") == [str(n) for n in range(number)]
        store._db.execute("PRAGMA max_page_count = 10000")
        store.put("t", str(number), value(number))
    with open_store(tmp_path) as store:
        assert list(store.items("t")) == [(str(n), value(n)) for n in range(number + 1)]


def test_a_full_disk_keeps_what_was_put(tiny_disk: Path) -> None:
    store = open_store(tiny_disk)
    number = fill(store)
    store.close()
    subprocess.run(["mount", "-o", "remount,size=4m", tiny_disk], check=True)
    with open_store(tiny_disk) as store:
        assert number > 5
        assert list(store.items("t")) == [(str(n), value(n)) for n in range(number)]
        store.put("t", str(number), value(number))


def test_a_disk_without_room_for_a_store_is_named(tiny_disk: Path) -> None:
    (tiny_disk / "filler").write_bytes(bytes(1018 * 1024))
    with pytest.raises(DiskFullError, match="no space left"):
        fill(open_store(tiny_disk))


# Locks.

HOLDER = """
import sys, time
from pathlib import Path
from genpolicy.folder_lock import FolderLock

with FolderLock(Path(sys.argv[1]), "tests", "give up"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def held_elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", HOLDER, str(folder)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_live_process_keeps_others_out_and_is_named(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path) as process:
        wanted = rf"{tmp_path}: another process tests there \(process {process.pid} on .* since 20\d\d-.*: -c "
        with pytest.raises(LockedError, match=wanted + r".*\); wait for it, end it, or look elsewhere"):
            FolderLock(tmp_path, "tests", "look elsewhere")
        (tmp_path / ".lock.json").write_text("{")  # not written in full yet
        with pytest.raises(LockedError, match="another process tests there; wait"):
            FolderLock(tmp_path, "tests", "look elsewhere")


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert json.loads((tmp_path / ".lock.json").read_text())["pid"] == process.pid
        with FolderLock(tmp_path, "tests", "look elsewhere"):
            assert json.loads((tmp_path / ".lock.json").read_text())["pid"] == os.getpid()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_the_holders_file_gives_way(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock.json")
    with FolderLock(tmp_path, "tests", "look elsewhere") as lock:
        lock.require()
        assert json.loads((tmp_path / ".lock.json").read_text())["pid"] == os.getpid()


def test_a_lock_that_waits_is_given_when_the_other_ends(tmp_path: Path) -> None:
    got = threading.Event()

    def wait() -> None:
        with FolderLock(tmp_path, "tests", "give up", wait=True):
            got.set()

    with held_elsewhere(tmp_path) as process:
        thread = threading.Thread(target=wait)
        thread.start()
        assert not got.wait(0.3)
        process.kill()
        assert got.wait(30)
        thread.join()


def test_a_lock_that_a_file_system_lost_is_noticed(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "tests", "give up")
    lock.require()
    (tmp_path / ".lock").unlink()  # another process can have one now, as when a server forgets who has it
    with held_elsewhere(tmp_path) as process:
        with pytest.raises(LockedError, match=rf"its lock was lost.*\(process {process.pid} on .*local disk"):
            lock.require()
        lock.release()
        assert json.loads((tmp_path / ".lock.json").read_text())["pid"] == process.pid
        with pytest.raises(LockedError, match="another process tests there"):
            FolderLock(tmp_path, "tests", "give up")


def test_one_process_holds_a_folder_once(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "tests", "give up")
    with pytest.raises(LockedError):
        FolderLock(tmp_path, "tests", "give up")
    lock.release()
    lock.release()
    with FolderLock(tmp_path, "tests", "give up"):
        pass


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_folder_that_was_deleted_or_moved_is_said_to_be(tmp_path: Path, is_moved: bool) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    with FolderLock(folder, "writes", "choose another folder") as lock:
        lock.require()
        folder.rename(tmp_path / "b") if is_moved else shutil.rmtree(folder)
        with pytest.raises(LockedError, match=r"was deleted or moved while this command wrote there.*put it back"):
            lock.require()
