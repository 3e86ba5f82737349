"""Writes a data set so that a kill at any moment loses no finished unit and repeats none.

A unit is what is finished at once: a few positions that were labelled, a few games that were played. Units end in any
order; shards hold them in order, so the records do not depend on the number of processes nor on interruptions. What is
finished but in no shard yet stands in a journal, which the next run reads, and so do the answers that an oracle has
given to the units in work (``genpolicy_labelling.answers``).
"""

from __future__ import annotations

import fcntl
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from genpolicy.data.records import INFO_FILE, SCHEMA, DatasetInfo, Record, check_shard
from genpolicy.errors import DatasetError
from genpolicy.files import full_disk_named, write_atomic
from genpolicy_labelling.journal import Journal, damaged

JOURNAL_FILE = "journal.jsonl"
LOCK_FILE = ".lock"
ROWS_PER_SHARD = 50_000
ZSTD_LEVEL = 12


@dataclass
class _Unit:
    rows: list[dict[str, Any]]
    tallies: dict[str, int] = field(default_factory=dict)


class DatasetWriter:
    """One data set that is being made; a context manager. Leaving it early keeps what is finished.

    Args:
        folder: New, empty, or holding the unfinished part of the same data set.
        info: Identity of the data set; ``self.info`` is the one on the disk where there is one.
        rows_per_shard: A shard is written when so many rows are finished in order.
        max_rows: The game that reaches so many rows is the last one that is kept.
        journal: Keep a journal. Without one, units after the last shard are done again after a kill.

    Raises:
        DatasetError: the folder holds something else, another data set, a damaged shard, or somebody writes there.
    """

    def __init__(
        self,
        folder: Path,
        info: DatasetInfo,
        rows_per_shard: int = ROWS_PER_SHARD,
        *,
        max_rows: int | None = None,
        journal: bool = True,
    ) -> None:
        self.folder = folder
        self._rows_per_shard = rows_per_shard
        self._max_rows = max_rows
        self._pending: dict[int, _Unit] = {}
        self._answers: dict[int, dict[tuple[int, int], Any]] = {}
        """Unit -> (task, question) -> answer, of units in work."""
        self._journal: Journal | None = None
        if folder.exists() and not folder.is_dir():
            raise DatasetError(f"{folder}: is a file; a data set is a folder, so name another")
        self._is_new = not folder.exists()
        """The folder was made by this run."""
        with full_disk_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        try:
            self.info = self._resume(info)
            self.tallies: Counter[str] = Counter(self.info.counts.get("tallies", {}))
            self._num_committed = sum(int(shard["rows"]) for shard in self.info.shards)
            self._num_pending = self._ready_rows = 0
            self._ready_to = self.info.units
            if journal and not self.info.complete:
                self._open_journal()
        except BaseException:
            self.close()
            raise

    @property
    def complete(self) -> bool:
        """Nothing is left to do."""
        return self.info.complete

    @property
    def num_units(self) -> int:
        """Finished units, in shards or in the journal."""
        return self.info.units + len(self._pending)

    @property
    def num_committed(self) -> int:
        """Rows in shards."""
        return self._num_committed

    @property
    def num_rows(self) -> int:
        """Rows of finished units, in shards or in the journal."""
        return self._num_committed + self._num_pending

    @property
    def is_full(self) -> bool:
        """So many rows as ``max_rows`` are finished in order; what comes later would be dropped."""
        return self._max_rows is not None and self._num_committed + self._ready_rows >= self._max_rows

    def is_done(self, unit: int) -> bool:
        """Whether a unit is finished."""
        return unit < self.info.units or unit in self._pending

    def answer(self, unit: int, task: int, question: int) -> Any:
        """What ``add_answer`` kept for a question of a unit in work, in this run or an earlier one; None: nothing."""
        return self._answers.get(unit, {}).get((task, question))

    def add_answer(self, unit: int, task: int, question: int, answer: Any) -> None:
        """Keep an answer until its unit is finished, so that the question need not be asked again.

        Args:
            unit: The unit in work.
            task: Which task of the unit asked.
            question: Which of the task's questions it is.
            answer: Anything JSON can hold but None.

        Raises:
            DiskFullError: no space; what was kept before is safe.
        """
        self._note({"unit": unit, "task": task, "question": question, "answer": answer})
        self._answers.setdefault(unit, {})[task, question] = answer

    def drop_answers(self, is_wrong: Callable[[Any], bool]) -> None:
        """Forget, of each task, the first wrong answer and all that came after it.

        Raises:
            DiskFullError: no space; nothing is forgotten on the disk.
        """
        for unit, answers in self._answers.items():
            end: dict[int, int] = {}
            for (task, question), answer in answers.items():
                if is_wrong(answer):
                    end[task] = min(question, end.get(task, question))
            self._answers[unit] = {
                (task, question): answer
                for (task, question), answer in answers.items()
                if task not in end or question < end[task]
            }
        if self._journal is not None:
            self._journal.rewrite(self._entries())

    def add(self, unit: int, records: Sequence[Record], tallies: Mapping[str, int] | None = None) -> None:
        """Finish a unit.

        Args:
            unit: Its number, counted from 0 without gaps over the whole work; units may end in any order.
            records: Its rows; may be none.
            tallies: What to count for it in ``dataset.yaml``.

        Raises:
            DiskFullError: no space; what was finished before is safe.
        """
        done = _Unit([record.to_row() for record in records], dict(tallies or {}))
        self._note({"unit": unit, "rows": done.rows, "tallies": done.tallies})
        self._keep(unit, done)
        self._commit(last=False)

    def commit_all(self) -> None:
        """Write all units that are finished in order into shards.

        Raises:
            DiskFullError: no space; what was finished before is safe.
        """
        self._commit(last=True)

    def finish(self, counts: Mapping[str, Any] | None = None) -> None:
        """Write what is left, with the final counts, and mark the data set complete.

        Raises:
            DiskFullError: no space; call it again, or start the work again, which goes on here.
        """
        self._commit(last=True)
        self.info.complete = True
        self.set_counts(counts or {})
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        (self.folder / JOURNAL_FILE).unlink(missing_ok=True)

    def set_counts(self, counts: Mapping[str, Any]) -> None:
        """Replace the counts of ``dataset.yaml``."""
        self.info.counts = {"tallies": dict(self.tallies), **counts}
        write_atomic(self.folder / INFO_FILE, self.info.to_yaml())

    def close(self) -> None:
        """Close the files; safe to call twice."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if not self._lock.closed:
            self._lock.close()

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._clear_away()
        self.close()

    def _clear_away(self) -> None:
        """Leave nothing behind where nothing was finished, so that any other work may begin here."""
        journal = self.folder / JOURNAL_FILE
        if self.info.shards or self.info.complete or _size(journal):
            return
        for path in (journal, self.folder / INFO_FILE):
            path.unlink(missing_ok=True)
        if self._is_new:
            (self.folder / LOCK_FILE).unlink(missing_ok=True)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _resume(self, info: DatasetInfo) -> DatasetInfo:
        path = self.folder / INFO_FILE
        for torn in self.folder.glob(".*.tmp"):
            torn.unlink()
        if not path.exists():
            strangers = [p.name for p in self.folder.iterdir() if p.name != LOCK_FILE]
            if strangers:
                raise DatasetError(
                    f"{self.folder}: holds {', '.join(sorted(strangers)[:3])} and no {INFO_FILE}; choose a new folder"
                )
            write_atomic(path, info.to_yaml())
            return info
        old = DatasetInfo.read(self.folder)
        if not old.shards and not old.complete and not _size(self.folder / JOURNAL_FILE):
            write_atomic(path, info.to_yaml())  # begun and given up before anything was finished
            return info
        mine, theirs = info.identity(), old.identity()
        or_delete = f"; or delete this one, of which {sum(shard['rows'] for shard in old.shards)} rows were made"
        for key in [*theirs, *(key for key in mine if key not in theirs)]:
            if mine.get(key) != theirs.get(key):
                raise DatasetError(
                    f"{self.folder}: holds a data set whose {key} is {theirs.get(key)!r}, not {mine.get(key)!r}; "
                    f"choose another folder, or the same settings to go on{'' if old.complete else or_delete}"
                )
        if old.complete:
            (self.folder / JOURNAL_FILE).unlink(missing_ok=True)
        listed = {str(shard["file"]) for shard in old.shards}
        for stray in self.folder.glob("*.parquet"):
            if stray.name not in listed:
                stray.unlink()  # killed between writing a shard and listing it; the journal still has its rows
        for shard in old.shards:
            check_shard(self.folder / shard["file"], shard, verify=True)
        return old

    def _open_journal(self) -> None:
        self._journal = Journal(self.folder / JOURNAL_FILE)
        for number, entry in self._journal.entries():
            try:
                self._read_entry(entry)
            except (ValueError, KeyError, TypeError) as error:
                raise damaged(self._journal.path, number, error) from error
        self._commit(last=False)

    def _read_entry(self, entry: Mapping[str, Any]) -> None:
        unit = int(entry["unit"])
        if self.is_done(unit):
            return
        if "answer" in entry:
            key = int(entry["task"]), int(entry["question"])
            self._answers.setdefault(unit, {})[key] = entry["answer"]
        else:
            rows = [Record.from_row(row).to_row() for row in entry["rows"]]
            self._keep(unit, _Unit(rows, dict(entry["tallies"])))

    def _keep(self, unit: int, done: _Unit) -> None:
        self._pending[unit] = done
        self._num_pending += len(done.rows)
        self._answers.pop(unit, None)

    def _note(self, entry: Mapping[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(entry)

    def _commit(self, *, last: bool) -> None:
        """Write shards of the units that are finished without a gap."""
        while True:
            while self._ready_to in self._pending and self._ready_rows < self._rows_per_shard and not self.is_full:
                self._ready_rows += len(self._pending[self._ready_to].rows)
                self._ready_to += 1
            if self._ready_to == self.info.units or (self._ready_rows < self._rows_per_shard and not last):
                return
            self._write_shard([self._pending[number] for number in range(self.info.units, self._ready_to)])

    def _up_to_max(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self._max_rows is None or self._num_committed + len(rows) <= self._max_rows:
            return rows
        end = self._max_rows - self._num_committed
        while (
            0 < end < len(rows)
            and rows[end]["game_id"] is not None
            and rows[end]["game_id"] == rows[end - 1]["game_id"]
        ):
            end += 1
        return rows[:end]

    def _write_shard(self, units: Sequence[_Unit]) -> None:
        rows = self._up_to_max([row for unit in units for row in unit.rows])
        tallies = Counter(self.tallies)
        for unit in units:
            tallies.update(unit.tallies)
        shards = list(self.info.shards)
        if rows:
            name = f"records-{len(shards):05d}.parquet"
            data = to_parquet(rows)
            write_atomic(self.folder / name, data)
            shards.append({"file": name, "rows": len(rows), "sha256": hashlib.sha256(data).hexdigest()})
        updated = DatasetInfo(**{**vars(self.info), "shards": shards, "units": self.info.units + len(units)})
        updated.counts = {**self.info.counts, "tallies": dict(tallies)}
        write_atomic(self.folder / INFO_FILE, updated.to_yaml())
        self.info, self.tallies = updated, tallies
        self._num_committed += len(rows)
        self._num_pending -= sum(len(unit.rows) for unit in units)
        self._ready_rows = 0
        for number in range(self.info.units - len(units), self.info.units):
            del self._pending[number]
        if self._journal is not None:
            self._journal.rewrite(self._entries())

    def _entries(self) -> Iterator[dict[str, Any]]:
        """What the journal must hold: all that is in no shard."""
        for number, unit in self._pending.items():
            yield {"unit": number, "rows": unit.rows, "tallies": unit.tallies}
        for number, answers in self._answers.items():
            for (task, question), answer in answers.items():
                yield {"unit": number, "task": task, "question": question, "answer": answer}


def to_parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A shard's bytes; the same rows give the same bytes with the same pyarrow."""
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    pq.write_table(table, buffer, compression="zstd", compression_level=ZSTD_LEVEL)
    return buffer.getvalue()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _lock(folder: Path) -> IO[bytes]:
    """Hold the folder for this process; a kill frees it."""
    file = (folder / LOCK_FILE).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise DatasetError(
            f"{folder}: another process is writing there; wait for it, or choose another folder"
        ) from None
    return file
