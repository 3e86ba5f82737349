"""Keeps what is finished but in no shard yet: units of work, and an oracle's answers to those still in work.

With a store (``genpolicy_common.store``) it survives a kill at any moment; without one it is kept in memory alone.
Folders of genpolicy 0.1 have a journal of JSON lines instead, which is read into the store when the work is resumed.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from genpolicy.data.records import SCHEMA, Record
from genpolicy.errors import DatasetError
from genpolicy_common.store import Store, remove_store

JOURNAL_FILE = "journal.sqlite"
OLD_JOURNAL_FILE = "journal.jsonl"
PURPOSE = "an unfinished data set"
UNITS, ANSWERS, ABOUT, IDENTITY = "units", "answers", "about", "identity"


@dataclass
class Unit:
    """A finished unit: its rows, and what is counted for it in ``dataset.yaml``."""

    rows: list[dict[str, Any]]
    tallies: dict[str, int] = field(default_factory=dict)


class Journal:
    """The units and answers of a folder, read at once.

    Args:
        folder: Folder of the data set; None keeps nothing on the disk.
        identity: What the data set must be for the entries to be of use (``DatasetInfo.identity``).
        num_in_shards: Units below this number are in shards; what the journal still has of them is dropped.

    Raises:
        DatasetError: the entries are of other work, or one cannot be read.
        StoreError: the store is damaged or of another form.
        DiskFullError: no space.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any] | None = None, num_in_shards: int = 0) -> None:
        self.units: dict[int, Unit] = {}
        """Finished units by number, in the order in which they were finished."""
        self._answers: dict[int, dict[tuple[int, int], Any]] = {}
        """Unit in work -> (task, question) -> answer."""
        self._old_answers: list[str] = []
        """Keys in the store of answers to finished units; they are deleted with the units, at once."""
        self._store: Store | None = None
        if folder is None:
            return
        self._store = Store(folder / JOURNAL_FILE, PURPOSE)
        try:
            self._check_identity(json.loads(json.dumps(identity)))
            self._take_over(folder / OLD_JOURNAL_FILE)
            self._read(num_in_shards)
        except BaseException:
            self.close()
            raise

    @property
    def is_empty(self) -> bool:
        """Nothing is kept on the disk."""
        return self._store is None or not (self.units or any(self._answers.values()))

    def add_unit(self, number: int, unit: Unit) -> None:
        """Keep a finished unit; its answers are of no use any more.

        Raises:
            DiskFullError: no space; what was kept before is safe.
        """
        if self._store is not None:
            self._store.put(UNITS, str(number), {"rows": unit.rows, "tallies": unit.tallies})
        self.units[number] = unit
        self._old_answers += [f"{number} {task} {question}" for task, question in self._answers.pop(number, {})]

    def drop_units(self, numbers: range) -> None:
        """Forget units, which are in shards now.

        Raises:
            DiskFullError: no space; they are forgotten when the folder is opened again.
        """
        for number in numbers:
            del self.units[number]
        if self._store is not None:
            with self._store.transaction():
                self._store.delete(UNITS, map(str, numbers))
                self._store.delete(ANSWERS, self._old_answers)
            self._old_answers.clear()

    def answer(self, unit: int, task: int, question: int) -> Any:
        """The answer to a question of a unit in work; None if there is none."""
        return self._answers.get(unit, {}).get((task, question))

    def add_answer(self, unit: int, task: int, question: int, answer: Any) -> None:
        """Keep an answer until its unit is finished.

        Raises:
            DiskFullError: no space; what was kept before is safe.
        """
        if self._store is not None:
            self._store.put(ANSWERS, f"{unit} {task} {question}", answer)
        self._answers.setdefault(unit, {})[task, question] = answer

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep all that the block adds on the disk, or none of it.

        Raises:
            DiskFullError: no space.
        """
        with self._store.transaction() if self._store is not None else nullcontext():
            yield

    def drop_answers(self, is_wrong: Callable[[Any], bool]) -> None:
        """Forget the first wrong answer of each task, and all later ones of that task.

        Raises:
            DiskFullError: no space; nothing is forgotten on the disk.
        """
        dropped = []
        for unit, answers in self._answers.items():
            first_wrong: dict[int, int] = {}
            for (task, question), answer in answers.items():
                if is_wrong(answer):
                    first_wrong[task] = min(question, first_wrong.get(task, question))
            dropped += [(unit, *key) for key in answers if key[1] >= first_wrong.get(key[0], sys.maxsize)]
        if self._store is not None:
            self._store.delete(ANSWERS, (f"{unit} {task} {question}" for unit, task, question in dropped))
        for unit, task, question in dropped:
            del self._answers[unit][task, question]

    def close(self) -> None:
        """Close the store; safe to call twice."""
        if self._store is not None:
            self._store.close()

    def _check_identity(self, identity: Any) -> None:
        assert self._store is not None
        if self._store.get(ABOUT, IDENTITY) == identity:
            return
        if _holds_work(self._store):
            raise DatasetError(f"{self._store.path}: belongs to another data set; delete it, or choose another folder")
        self._store.put(ABOUT, IDENTITY, identity)

    def _take_over(self, path: Path) -> None:
        """Read an old journal into the store and delete it."""
        if not path.exists():
            return
        assert self._store is not None
        with self._store.transaction():
            for number, entry in _old_entries(path):
                try:
                    unit = int(entry["unit"])
                    if "answer" in entry:
                        key = f"{unit} {int(entry['task'])} {int(entry['question'])}"
                        self._store.put(ANSWERS, key, entry["answer"])
                    else:
                        self._store.put(UNITS, str(unit), {"rows": entry["rows"], "tallies": entry["tallies"]})
                except (ValueError, KeyError, TypeError) as error:
                    raise _old_damaged(path, number, error) from error
        path.unlink()

    def _read(self, num_in_shards: int) -> None:
        assert self._store is not None
        stale = []
        for key, value in self._store.items(UNITS):
            try:
                if int(key) < num_in_shards:
                    stale.append(key)
                    continue
                rows = [Record.from_row(row).to_row() for row in value["rows"]]
                pa.Table.from_pylist(rows, schema=SCHEMA)  # else a shard could not be written of them
                self.units[int(key)] = Unit(rows, {name: int(count) for name, count in value["tallies"].items()})
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                raise self._unreadable(f"unit {key}", error) from error
        self._store.delete(UNITS, stale)
        for key, answer in self._store.items(ANSWERS):
            try:
                unit, task, question = map(int, key.split())
            except ValueError as error:
                raise self._unreadable(f"answer {key}", error) from error
            if unit < num_in_shards or unit in self.units:
                self._old_answers.append(key)
            else:
                self._answers.setdefault(unit, {})[task, question] = answer

    def _unreadable(self, what: str, error: Exception) -> DatasetError:
        assert self._store is not None
        way_out = "delete it to have its work done again"
        return DatasetError(f"{self._store.path}: {what} cannot be read ({error}); {way_out}")


def is_empty(folder: Path) -> bool:
    """Whether a folder's journal, of either form, holds nothing."""
    old = folder / OLD_JOURNAL_FILE
    if old.exists() and old.stat().st_size:
        return False
    if not (folder / JOURNAL_FILE).exists():
        return True
    with Store(folder / JOURNAL_FILE, PURPOSE) as store:
        return not _holds_work(store)


def _holds_work(store: Store) -> bool:
    return bool(store.keys(UNITS) or store.keys(ANSWERS))


def remove(folder: Path) -> None:
    """Delete a folder's journal, of either form."""
    remove_store(folder / JOURNAL_FILE)
    (folder / OLD_JOURNAL_FILE).unlink(missing_ok=True)


# The old form: a line of JSON with its checksum for each entry.

_HEAD, _TAIL = len(b'{"crc32":"01234567","entry":'), len(b"}\n")


def _old_entries(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Number of the line, from 1, and entry; a last line that a kill tore is passed over."""
    if path.is_fifo():
        raise DatasetError(f"{path}: is a pipe, and nothing may be waiting at its other end; delete it")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line[_HEAD:-_TAIL]
            if line != b'{"crc32":"%08x","entry":%s}\n' % (zlib.crc32(text), text):
                if file.read(1):
                    raise _old_damaged(path, number, "its checksum is wrong")
                return
            yield number, json.loads(text)


def _old_damaged(path: Path, number: int, what: object) -> DatasetError:
    return DatasetError(f"{path}:{number}: damaged journal entry ({what}); delete the line to have its work done again")
