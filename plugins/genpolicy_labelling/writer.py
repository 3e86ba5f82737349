"""Writes a data set so that a kill at any moment loses no finished unit and repeats none.

A unit is what is finished at once: a few positions that were labelled, a few games that were played. Units are finished
in any order, and shards hold them in order, so the records depend neither on the number of processes nor on
interruptions. Units that are finished but in no shard yet stand in a journal (``genpolicy_labelling.journal``), and so
do the answers that an oracle has given to the units in work (``genpolicy_labelling.answers``).
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from genpolicy.data.records import INFO_FILE, SCHEMA, DatasetInfo, Record, check_shard
from genpolicy.errors import DatasetError, LockedError
from genpolicy.files import full_disk_named, temporary_of, write_atomic
from genpolicy.folder_lock import LOCK_FILE, FolderLock
from genpolicy_labelling import journal as journals
from genpolicy_labelling.journal import Journal, Unit

ROWS_PER_SHARD = 50_000
ZSTD_LEVEL = 12


class DatasetWriter:
    """One data set that is being made; a context manager. Leaving it early keeps what is finished.

    Args:
        folder: New, empty, or holding the unfinished part of the same data set.
        info: Identity of the data set. If the folder has one already, ``self.info`` is that one.
        rows_per_shard: A shard is written when this many rows are finished in order.
        max_rows: The game that reaches this many rows is the last one that is kept.
        journal: Keep a journal. Without one, units after the last shard are done again after a kill.

    Raises:
        DatasetError: the folder holds something else, another data set, or a damaged shard.
        StoreError: the journal is damaged or of another form.
        LockedError: another process writes there.
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
        if folder.exists() and not folder.is_dir():
            raise DatasetError(f"{folder}: is a file; a data set is a folder, so name another")
        self._is_new = not folder.exists()
        """The folder was made by this run."""
        with full_disk_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._journal = Journal(None)
        self._lock = FolderLock(folder, "writes a data set", "choose another folder")
        try:
            self.info = self._resume(info)
            self.tallies: Counter[str] = Counter(self.info.counts.get("tallies", {}))
            self.num_committed = sum(int(shard["rows"]) for shard in self.info.shards)
            """Rows in shards."""
            self._ready_rows = 0
            """Rows of the units that the next shard takes, which end before unit ``_ready_to``."""
            self._ready_to = self.info.units
            if journal and not self.info.complete:
                self._journal = Journal(folder, self.info.identity(), self.info.units)
            self._num_pending = sum(len(unit.rows) for unit in self._journal.units.values())
            self._commit(last=False)
        except BaseException:
            self.close()
            raise

    @property
    def complete(self) -> bool:
        """Nothing is left to do."""
        return self.info.complete

    @property
    def num_units(self) -> int:
        """Finished units, in shards or not yet."""
        return self.info.units + len(self._journal.units)

    @property
    def num_rows(self) -> int:
        """Rows of finished units, in shards or not yet."""
        return self.num_committed + self._num_pending

    @property
    def is_full(self) -> bool:
        """``max_rows`` rows are finished in order, so later ones would be dropped."""
        return self._max_rows is not None and self.num_committed + self._ready_rows >= self._max_rows

    def is_done(self, unit: int) -> bool:
        """Whether a unit is finished."""
        return unit < self.info.units or unit in self._journal.units

    def answer(self, unit: int, task: int, question: int) -> Any:
        """What ``add_answer`` kept for a question of a unit in work, in this run or an earlier one; else None."""
        return self._journal.answer(unit, task, question)

    def add_answer(self, unit: int, task: int, question: int, answer: Any) -> None:
        """Keep an answer until its unit is finished, so that the oracle need not answer it again after a kill.

        Args:
            unit: The unit in work.
            task: The task of the unit that put the question.
            question: Number of the question within the task.
            answer: Anything JSON can hold but None.

        Raises:
            DiskFullError: no space; what was kept before is safe.
        """
        self._journal.add_answer(unit, task, question, answer)

    def add_answers(self, answers: Sequence[tuple[int, int, int, Any]]) -> None:
        """``add_answer`` for several (unit, task, question, answer): after a kill all are there, or none.

        Raises:
            DiskFullError: no space; what was kept before is safe.
        """
        # One is kept at once by itself; a transaction would be three calls of the journal for each answer.
        with self._journal.transaction() if len(answers) > 1 else nullcontext():
            for answer in answers:
                self._journal.add_answer(*answer)

    def drop_answers(self, is_wrong: Callable[[Any], bool]) -> None:
        """Forget the first wrong answer of each task, and all later ones of that task.

        Raises:
            DiskFullError: no space; nothing is forgotten on the disk.
        """
        self._journal.drop_answers(is_wrong)

    def add(self, unit: int, records: Sequence[Record], tallies: Mapping[str, int] | None = None) -> None:
        """Finish a unit.

        Args:
            unit: Its number, counted from 0 without gaps over the whole work; units may be finished in any order.
            records: Its rows, if any.
            tallies: What to count for it in ``dataset.yaml``.

        Raises:
            DiskFullError: no space; what was finished before is safe.
            LockedError: another process writes there, since the lock was lost.
        """
        self._lock.require()
        finished = Unit([record.to_row() for record in records], dict(tallies or {}))
        self._journal.add_unit(unit, finished)
        self._num_pending += len(finished.rows)
        self._commit(last=False)

    def commit_all(self) -> None:
        """Write all units that are finished in order to shards.

        Raises:
            DiskFullError: no space; what was finished before is safe.
        """
        self._commit(last=True)

    def finish(self, counts: Mapping[str, Any] | None = None) -> None:
        """Write what is left, with the final counts, and mark the data set complete.

        Raises:
            DiskFullError: no space; call it again, or start the work again, which resumes here.
            LockedError: as ``add``.
        """
        self._lock.require()
        self._commit(last=True)
        self.info.complete = True
        self.set_counts(counts or {})
        self._journal.close()
        journals.remove(self.folder)

    def set_counts(self, counts: Mapping[str, Any]) -> None:
        """Replace the counts of ``dataset.yaml``."""
        self.info.counts = {"tallies": dict(self.tallies), **counts}
        write_atomic(self.folder / INFO_FILE, self.info.to_yaml())

    def close(self) -> None:
        """Close the journal and let other processes in; safe to call twice."""
        self._journal.close()
        self._lock.release()

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        nothing_kept = not self.info.shards and not self.info.complete and self._journal.is_empty
        if error is not None and nothing_kept and not isinstance(error, LockedError):
            self._clear_away()
        self.close()

    def _clear_away(self) -> None:
        """Leave nothing behind, so that any other work may begin here."""
        self._journal.close()
        journals.remove(self.folder)
        (self.folder / INFO_FILE).unlink(missing_ok=True)
        for stray in self.folder.glob("records-*.parquet"):
            stray.unlink()  # written, but not listed: the disk failed in between
        self._lock.release(remove=self._is_new)
        if self._is_new and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _resume(self, info: DatasetInfo) -> DatasetInfo:
        path = self.folder / INFO_FILE
        torn = [temporary_of(path), *self.folder.glob(temporary_of(Path("records-*.parquet")).name)]
        if not path.exists():
            others = [p.name for p in self.folder.iterdir() if p not in torn and not p.name.startswith(LOCK_FILE)]
            if others:
                raise DatasetError(
                    f"{self.folder}: holds {', '.join(sorted(others)[:3])} and no {INFO_FILE}; choose a new folder"
                )
            write_atomic(path, info.to_yaml())
            return info
        for left in torn:
            left.unlink(missing_ok=True)
        old = DatasetInfo.read(self.folder)
        if not old.shards and not old.complete and journals.is_empty(self.folder):
            write_atomic(path, info.to_yaml())  # begun and given up before anything was finished
            return info
        mine, theirs = info.identity(), old.identity()
        or_delete = f"; or delete this one, of which {sum(shard['rows'] for shard in old.shards)} rows were made"
        for key in [*theirs, *(key for key in mine if key not in theirs)]:
            if mine.get(key) != theirs.get(key):
                raise DatasetError(
                    f"{self.folder}: holds a data set whose {key} is {theirs.get(key)!r}, not {mine.get(key)!r}; "
                    f"choose another folder, or the same settings to resume{'' if old.complete else or_delete}"
                )
        if old.complete:
            journals.remove(self.folder)
        listed = {str(shard["file"]) for shard in old.shards}
        for stray in self.folder.glob("records-*.parquet"):
            if stray.name not in listed and not old.complete:
                stray.unlink()  # killed between writing a shard and listing it; the journal still has its rows
        for shard in old.shards:
            check_shard(self.folder / shard["file"], shard, verify=True)
        return old

    def _commit(self, *, last: bool) -> None:
        """Write shards of the units that are finished without a gap."""
        while True:
            units = self._journal.units
            while self._ready_to in units and self._ready_rows < self._rows_per_shard and not self.is_full:
                self._ready_rows += len(units[self._ready_to].rows)
                self._ready_to += 1
            if self._ready_to == self.info.units or (self._ready_rows < self._rows_per_shard and not last):
                return
            self._write_shard([units[number] for number in range(self.info.units, self._ready_to)])

    def _up_to_max(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self._max_rows is None or self.num_committed + len(rows) <= self._max_rows:
            return rows
        end = self._max_rows - self.num_committed
        while (
            0 < end < len(rows)
            and rows[end]["game_id"] is not None
            and rows[end]["game_id"] == rows[end - 1]["game_id"]
        ):
            end += 1
        return rows[:end]

    def _write_shard(self, units: Sequence[Unit]) -> None:
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
        self.num_committed += len(rows)
        self._num_pending -= sum(len(unit.rows) for unit in units)
        self._ready_rows = 0
        self._journal.drop_units(range(updated.units - len(units), updated.units))


def to_parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A shard's bytes; the same rows give the same bytes with the same pyarrow."""
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    pq.write_table(table, buffer, compression="zstd", compression_level=ZSTD_LEVEL)
    return buffer.getvalue()
