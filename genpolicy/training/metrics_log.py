"""What a run reports while it trains: a progress bar, ``metrics.jsonl`` and TensorBoard."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from genpolicy.files import write_atomic

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """Writes numbers by update; silent in all processes but the first.

    Args:
        folder: Folder of the run; None writes and shows nothing.
        num_updates: Updates made before; lines of later ones (from before a resume) are dropped.
        tensorboard: Also write for TensorBoard, where it is installed.
        also: Gets the metrics and the number of updates of every line, too.
    """

    def __init__(
        self, folder: Path | None, num_updates: int, *, tensorboard: bool, also: Callable[[Any, int], None]
    ) -> None:
        self._also = also
        self._folder = folder
        self._file = None
        self._earlier: list[dict[str, Any]] = []
        self._board: Any = None
        self._console = Console(stderr=True, quiet=folder is None)
        if folder is not None:
            path = folder / METRICS_FILE
            earlier = [line for line in _whole_lines(path, self.say) if line["step"] <= num_updates]
            write_atomic(path, "".join(json.dumps(line) + "\n" for line in earlier).encode())
            self._earlier = [line for line in earlier if line["step"] == num_updates]
            self._file = path.open("a", buffering=1, encoding="utf-8")
            if tensorboard:
                try:
                    from torch.utils.tensorboard import SummaryWriter

                    self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=num_updates + 1)
                except ModuleNotFoundError:
                    self.say(f"nothing is written for TensorBoard (pip install 'genpolicy[tensorboard]'), only {path}")
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

    def __enter__(self) -> MetricsLog:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        with suppress(OSError):  # as in ``say``
            self._progress.stop()
        if self._file is not None:
            with suppress(OSError):  # each line was flushed: only what ``write`` has failed with fails here again
                self._file.close()
        if self._board is not None:
            with self._errors_named() if kind is None else suppress(OSError):
                self._board.close()

    def say(self, text: str) -> None:
        """Print a line on stderr."""
        # Printing fails in a terminal that was closed; training does not end for that.
        with suppress(OSError):
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, progress: float, numbers: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=min(1.0, progress), numbers=numbers)

    def write(self, num_updates: int, metrics: dict[str, float]) -> None:
        """Add a line to ``metrics.jsonl``, without the numbers that are not finite.

        Raises:
            OSError: it cannot be written (a full disk, ...).
        """
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        line = {"step": num_updates, **finite}
        with self._errors_named():
            if self._file is not None and line not in self._earlier:  # a resumed run may measure once more
                self._file.write(json.dumps(line) + "\n")
            if self._board is not None:
                for name, value in finite.items():
                    self._board.add_scalar(name, value, num_updates)
        self._also(finite, num_updates)

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"the metrics cannot be written ({error.strerror}); the checkpoints are safe: make room, then resume"
            raise OSError(error.errno, f"{text} with --resume", str(self._folder)) from error


def _whole_lines(path: Path, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The lines of a file without those that are damaged; each of these but the last, which a kill may have cut, is
    said."""
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    lines = []
    for number, text in enumerate(texts, 1):
        line = None
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
        elif number < len(texts):
            say(f"{path}:{number}: damaged, and left out")
    return lines


class RunningMeans:
    """Means over the updates since the last line of the log, summed on the device, so that a GPU need not wait."""

    def __init__(self, device: torch.device) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._records = 0
        self._since = time.perf_counter()
        self._first_not_finite = torch.tensor(-1, device=device)

    def add_part(self, loss: Tensor, metrics: dict[str, Tensor], num_records: int) -> None:
        """Add one part of an update."""
        for name, value in {"loss": loss, **metrics}.items():
            self._add(name, value.detach().float())
        self._records += num_records

    def end_update(self, number: int, norm: Tensor) -> None:
        """Add an update's gradient norm, and note whether it or a loss since the last line is not finite."""
        self._add("grad_norm", norm.detach())
        is_bad = ~(torch.isfinite(norm) & torch.isfinite(self._sums["loss"]))
        first = self._first_not_finite
        self._first_not_finite = torch.where((first < 0) & is_bad, torch.full_like(first, number), first)

    def _add(self, name: str, value: Tensor) -> None:
        self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._counts[name] = self._counts.get(name, 0) + 1

    def first_not_finite(self) -> int:
        """The first update whose loss or gradient was not a finite number; -1 where there was none."""
        return int(self._first_not_finite)

    def state(self) -> dict[str, Any]:
        """The sums since the last line, as plain values, for a checkpoint."""
        sums = {name: float(total) for name, total in self._sums.items()}
        return {"sums": sums, "counts": dict(self._counts), "records": self._records}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the sums of a checkpoint."""
        device = self._first_not_finite.device
        self._sums = {name: torch.tensor(total, device=device) for name, total in state["sums"].items()}
        self._counts, self._records = dict(state["counts"]), int(state["records"])

    def take(self) -> tuple[dict[str, float], float]:
        """Means since the last call, and records per second."""
        now = time.perf_counter()
        means = {f"train/{name}": float(total) / self._counts[name] for name, total in self._sums.items()}
        speed = self._records / max(now - self._since, 1e-9)
        self._sums, self._counts, self._records, self._since = {}, {}, 0, now
        return means, speed
