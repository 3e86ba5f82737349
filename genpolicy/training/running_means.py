"""Numbers of the updates since the last line of the journal, summed where they were computed, so that no GPU waits."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor


class Recent:
    """Running sums over some updates.

    Args:
        device: Where the losses lie.
    """

    def __init__(self, device: torch.device) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._records = 0
        self._since = time.perf_counter()
        self._first_nonsense = torch.tensor(-1, device=device)

    def add_part(self, loss: Tensor, metrics: dict[str, Tensor], num_records: int) -> None:
        """Note one part of an update."""
        for name, value in {"loss": loss, **metrics}.items():
            detached = value.detach().float()
            self._sums[name] = self._sums[name] + detached if name in self._sums else detached
            self._counts[name] = self._counts.get(name, 0) + 1
        self._records += num_records

    def end_update(self, step: int, norm: Tensor) -> None:
        """Note an update's gradient norm, and whether the norm or a loss since the last line is no finite number."""
        self._sums["grad_norm"] = self._sums.get("grad_norm", torch.zeros_like(norm)) + norm.detach()
        self._counts["grad_norm"] = self._counts.get("grad_norm", 0) + 1
        nonsense = ~(torch.isfinite(norm) & torch.isfinite(self._sums["loss"]))
        self._first_nonsense = torch.where(
            (self._first_nonsense < 0) & nonsense, torch.full_like(self._first_nonsense, step), self._first_nonsense
        )

    def first_nonsense(self) -> int:
        """The first update whose loss or gradient was no finite number; -1 where there was none."""
        return int(self._first_nonsense)

    def state(self) -> dict[str, Any]:
        """What was summed since the last line, as plain values, for a checkpoint."""
        sums = {name: float(total) for name, total in self._sums.items()}
        return {"sums": sums, "counts": dict(self._counts), "records": self._records}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint holds."""
        device = self._first_nonsense.device
        self._sums = {name: torch.tensor(total, device=device) for name, total in state["sums"].items()}
        self._counts, self._records = dict(state["counts"]), int(state["records"])

    def take(self) -> tuple[dict[str, float], float]:
        """Means since the last call, and records per second."""
        now = time.perf_counter()
        means = {f"train/{name}": float(total) / self._counts[name] for name, total in self._sums.items()}
        speed = self._records / max(now - self._since, 1e-9)
        self._sums, self._counts, self._records, self._since = {}, {}, 0, now
        return means, speed
