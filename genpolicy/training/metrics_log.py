"""What a run says while it goes: a progress bar, ``metrics.jsonl`` and TensorBoard."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from genpolicy.files import write_atomic

METRICS_FILE = "metrics.jsonl"


class Journal:
    """Writes down numbers by update; silent in all processes but the first.

    Args:
        folder: Of the run; None writes and shows nothing.
        step: Updates made before; lines of later ones (from before a resume) are dropped.
        tensorboard: Also write for TensorBoard.
    """

    def __init__(self, folder: Path | None, step: int, *, tensorboard: bool) -> None:
        self._file = None
        self._board: Any = None
        self._console = Console(stderr=True, quiet=folder is None)
        if folder is not None:
            path = folder / METRICS_FILE
            kept = [line for line in _lines(path) if line["step"] <= step]
            write_atomic(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
            self._file = path.open("a", buffering=1)
            if tensorboard:
                from torch.utils.tensorboard import SummaryWriter

                self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        # Without a terminal there is no bar; the measurements are printed as lines instead.
        show = folder is not None and self._console.is_terminal
        self._progress = Progress(*columns, console=self._console, disable=not show)
        self._task = self._progress.add_task("training", total=1.0, numbers="")

    def __enter__(self) -> Journal:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # as in ``say``
            self._progress.stop()
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()

    def say(self, text: str) -> None:
        """A line for the person who waits (stderr)."""
        # A terminal that was closed takes no message; training does not end for that.
        with suppress(OSError):
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, progress: float, numbers: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=min(1.0, progress), numbers=numbers)

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """A line of ``metrics.jsonl``; numbers that are none are left out.

        Raises:
            OSError: it cannot be written (a full disk, ...).
        """
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        if self._file is not None:
            try:
                self._file.write(json.dumps({"step": step, **finite}) + "\n")
            except OSError as error:
                text = f"{error.strerror}; the checkpoints are safe: make room, then go on with --resume"
                raise OSError(error.errno, text, self._file.name) from error
        if self._board is not None:
            for name, value in finite.items():
                self._board.add_scalar(name, value, step)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's ``metrics.jsonl`` in order; [] where there is none."""
    return _lines(folder / METRICS_FILE)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole: a kill can cut the last one."""
    found = []
    for text in path.read_text().splitlines() if path.is_file() else []:
        try:
            line = json.loads(text)
        except ValueError:
            break
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            break
        found.append(line)
    return found
