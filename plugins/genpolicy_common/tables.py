"""Tables of results: on the terminal, as Markdown for a README, as JSON for a script."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from genpolicy.errors import printable
from genpolicy.files import write_atomic


@dataclass
class Report:
    """Rows of text under columns, with a title and notes on what was counted.

    The first ``labels`` columns are flush left, with ``words`` all of them; the others are flush right.
    """

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    words: bool = False
    labels: int = 1

    def _is_left(self, index: int) -> bool:
        return self.words or index < self.labels

    def add(self, *cells: str) -> None:
        """Add a row of texts, which may come from files: see ``printable``.

        Raises:
            ValueError: not one cell for each column.
        """
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns: {cells}")
        self.rows.append([printable(cell) for cell in cells])

    def print(self, console: Console | None = None) -> None:
        """Show the table on the terminal; in a file or a pipe as ``plain``."""
        target = Console() if console is None else console
        if not target.is_terminal:
            target.file.write(self.plain())
            return
        table = Table(title=self.title, title_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if self._is_left(index) else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row))  # a label such as [b] is not markup
        target.print(table)
        for note in self.notes:
            target.print(note, markup=False, highlight=False, soft_wrap=True)

    def plain(self) -> str:
        """The table as columns two spaces apart, however wide; no frame, nothing cut, one line for each row."""
        rows = [self.columns, *self.rows] if any(self.columns) else self.rows
        lines = [[_flat(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        body = []
        for row in lines:
            padded = []
            for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
                space = " " * (width - cell_len(cell))
                padded.append(cell + space if self._is_left(index) else space + cell)
            body.append("  ".join(padded).rstrip())
        return "\n".join([*([_flat(self.title)] if self.title else []), *body, *self.notes]) + "\n"

    def markdown(self) -> str:
        """The table as Markdown; a line break within a cell, the title or a note becomes a space."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(_flat(cell).replace("|", "\\|") for cell in cells) + " |"

        rule = "|" + "".join(" :-- |" if self._is_left(index) else " --: |" for index in range(len(self.columns)))
        body = [line(self.columns), rule, *map(line, self.rows)]
        notes = [f"- {_flat(note)}" for note in self.notes]
        return "\n".join([f"**{_flat(self.title)}**", "", *body, "", *notes]).rstrip() + "\n"


def _flat(text: str) -> str:
    """A text on one line."""
    return " ".join(text.splitlines())


def percent(fraction: float) -> str:
    """``12.3`` for 0.123; a dash for NaN (nothing was counted)."""
    return "-" if math.isnan(fraction) else f"{100 * fraction:.1f}"


def percent_with_interval(fraction: float, interval: tuple[float, float]) -> str:
    """``12.3 [11.0, 13.7]``, or ``12.3`` without an interval; a dash for NaN."""
    return number_with_interval(100 * fraction, (100 * interval[0], 100 * interval[1]), 1)


def number_with_interval(number: float, interval: tuple[float, float], digits: int) -> str:
    """``1.23 [1.10, 1.37]``, or ``1.23`` where the interval's ends are NaN; a dash for NaN."""
    if math.isnan(number):
        return "-"
    shown = "" if math.isnan(interval[0]) else f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
    return f"{number:.{digits}f}{shown}"


def positions_text(num_positions: int, num_games: int) -> str:
    """How many positions of how many games, and where the intervals of shares come from, for the note below a table."""
    intervals = "intervals: 95 %, bootstrap by {}, Wilson's at 0 and 100 %"
    if num_games == num_positions > 1:
        return f"{num_positions} positions, none known to share a game; {intervals.format('position')}"
    if num_games == 1:
        return f"{num_positions} positions from one game, which has no interval: measure on two or more"
    return f"{num_positions} positions from {num_games} games; {intervals.format('game')}"


def write_json(path: Path | None, figures: Any) -> None:
    """Write figures for a script to a file; NaN becomes null. None writes nothing.

    Raises:
        OSError: it cannot be written (no such folder, a full disk, ...); a file that was there is untouched.
    """
    if path is not None:
        _write(path, json.dumps(plain_figures(figures), indent=2, allow_nan=False) + "\n")


def write_markdown(path: Path | None, reports: Sequence[Report]) -> None:
    """Write tables as Markdown to a file. None writes nothing.

    Raises:
        OSError: as ``write_json``.
    """
    if path is not None:
        _write(path, "\n".join(report.markdown() for report in reports))


def publish(reports: Sequence[Report], figures: Any, arguments: argparse.Namespace) -> None:
    """Show tables, and write them and their figures to the files of ``--markdown`` and ``--json``.

    Raises:
        OSError: as ``write_json``.
    """
    for report in reports:
        report.print()
    write_json(arguments.json, figures)
    write_markdown(arguments.markdown, reports)


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # a pipe or a terminal: nothing to replace
        path.write_text(text, encoding="utf-8")
    else:
        write_atomic(path, text.encode())


def plain_figures(figures: Any) -> Any:
    """Figures as JSON holds them: NaN and infinite numbers become None, tuples lists."""
    if isinstance(figures, dict):
        return {key: plain_figures(value) for key, value in figures.items()}
    if isinstance(figures, list | tuple):
        return [plain_figures(value) for value in figures]
    return None if isinstance(figures, float) and not math.isfinite(figures) else figures
