"""The journals of unfinished data sets, read beside the process that writes them, and journals of the old form."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from genpolicy.data.records import DatasetInfo


def entries_of(folder: Path) -> list[tuple[str, str, Any]]:
    """Table, key and value of every entry; [] before there is a journal."""
    if not (folder / "journal.sqlite").exists():
        return []
    database = sqlite3.connect(f"file:{folder / 'journal.sqlite'}?mode=ro", uri=True, timeout=10)
    try:
        rows = database.execute("SELECT name, key, value FROM entries ORDER BY number").fetchall()
    except sqlite3.OperationalError as error:
        if not any(text in str(error) for text in ("no such table", "unable to open", "disk I/O error")):
            raise
        rows = []  # it is being made, or removed
    finally:
        database.close()
    return [(table, key, json.loads(value)) for table, key, value in rows]


def num_answered(folder: Path) -> int:
    """Positions that the journal of a data set holds an answer to."""
    sizes = {"units": lambda value: len(value["rows"]), "answers": lambda value: 1}
    return sum(sizes[table](value) for table, _, value in entries_of(folder) if table in sizes)


def old_line(entry: Any) -> bytes:
    """A line of a journal of genpolicy 0.1, copied from its ``genpolicy/data/journal.py``."""
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b'{"crc32":"%08x","entry":%s}\n' % (zlib.crc32(text), text)


def old_journal(folder: Path, info: DatasetInfo, entries: Iterable[Any]) -> Path:
    """An unfinished folder as genpolicy 0.1 left it; its journal."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset.yaml").write_bytes(info.to_yaml())
    path = folder / "journal.jsonl"
    path.write_bytes(b"".join(map(old_line, entries)))
    return path
