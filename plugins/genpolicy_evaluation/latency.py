"""What a move costs: time, network calls and accuracy against how far a policy looks ahead (Figure 3 of Ye et al. 2025,
arXiv:2502.19805).

Depth is what the policy says of itself: the stat ``depth`` of its decisions where it searches a tree (plies of the
longest line), else the length of its imagined line. Times are wall times of ``Policy.decide``, one call after the other
on otherwise the same machine, after calls that are not counted; a call with a batch of B positions counts 1/B a move.
The calls of networks are those of a move decided alone.

Axes: B positions of one call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from genpolicy.policies.base import Decision, Policy
from genpolicy_common.labelled import LabelledPosition
from genpolicy_common.tables import Report, positions_text
from genpolicy_evaluation.accuracy import Share, hits_of
from genpolicy_evaluation.positions import chunks, progress_bar

BATCHES = (1, 32)
"""Default batch sizes."""
NUM_CALLS = 50
"""Default number of timed calls of a batch size."""
WARM_UP = 3


@dataclass(frozen=True)
class Timing:
    """Timed calls with one batch size."""

    batch: int
    """Positions of one call."""
    ms: tuple[float, ...]
    """Milliseconds a move, one number for each call."""

    @property
    def median(self) -> float:
        """Of the calls."""
        return float(np.median(self.ms))

    @property
    def quartiles(self) -> tuple[float, float]:
        """25 and 75 percentile of the calls."""
        low, high = np.percentile(self.ms, [25, 75])
        return float(low), float(high)

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "batch": self.batch,
            "calls": len(self.ms),
            "median_ms": self.median,
            "quartiles_ms": list(self.quartiles),
            "ms": list(self.ms),
        }

    def __str__(self) -> str:
        low, high = self.quartiles
        return f"{number(self.median)} [{number(low)}, {number(high)}]"


@dataclass(frozen=True)
class LatencyPoint:
    """One policy in one setting, measured."""

    policy: str
    family: str
    """Its kind; the lines of the figure."""
    depth: float
    """Plies, mean over the positions."""
    network_calls: float
    """Of a move decided alone, mean over the positions; 0 where the policy reports none."""
    timings: tuple[Timing, ...]
    """One for each batch size, in the order asked for."""
    labelled: Share
    """How often the labelled move is played."""
    best: Share
    """How often a move is played whose value ties with the best."""

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "policy": self.policy,
            "family": self.family,
            "depth": self.depth,
            "network_calls": self.network_calls,
            "timings": [timing.figures() for timing in self.timings],
            "labelled": self.labelled.figures(),
            "best": self.best.figures(),
        }


def measure_latency(
    policy: Policy,
    positions: Sequence[LabelledPosition],
    *,
    batches: Sequence[int] = BATCHES,
    num_calls: int = NUM_CALLS,
    warm_up: int = WARM_UP,
    seed: int = 0,
    name: str | None = None,
    show: bool = False,
) -> LatencyPoint:
    """Measure one policy in one setting.

    Accuracy is over all positions, decided with the largest batch; of the other batches only ``num_calls`` calls are
    made, and of a batch that does not fill, none is timed.

    Args:
        policy: What is measured; it must take the batches whole (``batch_size`` of network policies).
        positions: At least as many as the largest batch.
        batches: Batch sizes, different ones, at least 1.
        num_calls: Calls that are timed for each batch size, fewer where there are not as many positions.
        warm_up: Calls before them that are not.
        seed: The policy's, set before each batch size.
        name: For the table; the policy's label by default.
        show: Show a progress bar.

    Raises:
        ValueError: an argument out of range, or too few positions.
    """
    _check(positions, batches, num_calls, warm_up)
    largest = max(batches)
    timings: dict[int, Timing] = {}
    decisions: list[Decision] = []
    alone: list[Decision] = []
    with progress_bar(show) as progress:
        task = progress.add_task(name or policy.label, total=len(batches))
        for batch in sorted(batches, reverse=True):
            all_of_them = len(positions) if batch == largest else num_calls * batch
            times, made = _time(policy, positions[:all_of_them], batch, warm_up, seed)
            timings[batch] = Timing(batch, tuple(times[:num_calls]))
            decisions, alone = decisions or made, made
            progress.advance(task)
    if min(batches) > 1:
        _, alone = _time(policy, positions[: min(num_calls, len(positions))], 1, 0, seed)
    clusters = [position.cluster for position in positions]
    hits = hits_of(decisions, positions)
    return LatencyPoint(
        policy=policy.label if name is None else name,
        family=policy.kind,
        depth=float(np.mean([_depth(decision) for decision in decisions])),
        network_calls=float(np.mean([decision.stats.get("network_calls", 0.0) for decision in alone])),
        timings=tuple(timings[batch] for batch in batches),
        labelled=Share.of(hits.labelled, clusters),
        best=Share.of(hits.best, clusters),
    )


def _check(positions: Sequence[LabelledPosition], batches: Sequence[int], num_calls: int, warm_up: int) -> None:
    if not batches or min(batches) < 1 or len(set(batches)) != len(batches):
        raise ValueError(f"batch sizes must be distinct numbers of at least 1, got {list(batches)}")
    if num_calls < 1 or warm_up < 0:
        raise ValueError(f"timed calls must be at least 1 and warm-up calls at least 0, got {num_calls}, {warm_up}")
    if len(positions) < max(batches):
        raise ValueError(
            f"a batch of {max(batches)} needs as many positions, got {len(positions)}; "
            "take more positions or a smaller batch"
        )


def _time(
    policy: Policy, positions: Sequence[LabelledPosition], batch: int, warm_up: int, seed: int
) -> tuple[list[float], list[Decision]]:
    """Milliseconds a move of each full call, and the decisions of all."""
    for _ in range(warm_up):
        policy.decide([position.state for position in positions[:batch]])
    policy.seed(seed)  # a search that keeps its trees forgets them here
    times: list[float] = []
    decisions: list[Decision] = []
    for chunk in chunks(positions, batch):
        states = [position.state for position in chunk]
        began = time.perf_counter()
        # The answer is plain numbers, so a device has finished when it is here.
        decisions += policy.decide(states)
        if len(chunk) == batch:
            times.append(1e3 * (time.perf_counter() - began) / batch)
    return times, decisions


def _depth(decision: Decision) -> float:
    return float(decision.stats.get("depth", max(1, len(decision.line))))


@contextmanager
def limited_threads(threads: int | None) -> Iterator[int]:
    """Run networks on so many cores (None: as they are); how many it is.

    Raises:
        ValueError: below 1.
    """
    import torch

    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def latency_report(points: Sequence[LatencyPoint], source: str, facts: dict[str, Any]) -> Report:
    """The table of some settings on the same positions."""
    batches = [timing.batch for timing in points[0].timings]
    times = [f"ms a move, batch {batch}" for batch in batches]
    columns = ["policy", "kind", "depth", "calls", *times, "labelled move %", "any best move %"]
    report = Report(f"Cost of a move on {source}", columns)
    for point in points:
        report.add(
            point.policy,
            point.family,
            f"{point.depth:.1f}",
            f"{point.network_calls:.1f}" if point.network_calls else "-",
            *map(str, point.timings),
            str(point.labelled),
            str(point.best),
        )
    accuracy = points[0].labelled
    calls = ", ".join(f"{len(timing.ms)} with batch {timing.batch}" for timing in points[0].timings)
    report.notes = [
        f"Times: median [quartiles] of calls timed one by one: {calls}; threads: {facts['threads']}; "
        f"{facts['device']} ({facts['processor']}, {facts['cores']} cores).",
        f"Accuracy: {positions_text(accuracy.trials, accuracy.games)}. Calls: of a move decided alone.",
        "Depth in plies: of the imagined line, or the longest line of a tree search; mean over the positions.",
    ]
    return report


def number(value: float) -> str:
    """Three figures: ``0.123``, ``1.23``, ``12.3``, ``123``, ``1230``."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
