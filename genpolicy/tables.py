"""Rows of comma-separated files, whose quoted fields may hold line breaks (RFC 4180, section 2.6)."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator

MAX_BREAKS = 50
"""Line breaks that a row may hold: a quote that nobody closed must not swallow the rest of a file."""


def csv_rows(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    r"""Number of its first line and text of each row; the line breaks within it are ``\n``.

    A line whose quotes stay open is joined with those that follow until they are closed. Where that makes no row, the
    line stands alone, broken as it is, and the following ones are rows of their own.

    Args:
        lines: Number and text of each line, without its end.
    """
    source = iter(lines)
    waiting: deque[tuple[int, str]] = deque()

    def following() -> tuple[int, str] | None:
        return waiting.popleft() if waiting else next(source, None)

    while (entry := following()) is not None:
        number, text = entry
        taken: list[tuple[int, str]] = []
        row = text
        while row.count('"') % 2 and len(taken) < MAX_BREAKS and (entry := following()) is not None:
            taken.append(entry)
            row += "\n" + entry[1]
        if taken and not _is_row(row):
            waiting.extendleft(reversed(taken))
            row = text
        yield number, row


def _is_row(text: str) -> bool:
    try:
        return len(list(csv.reader([text], strict=True))) == 1
    except csv.Error:  # an open quote at the end, or a line break outside quotes
        return False
