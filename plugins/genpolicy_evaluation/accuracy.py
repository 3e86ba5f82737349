"""Action accuracy: how often a policy plays the oracle's move, and how that compares with a random legal move.

Two counts of a hit: *labelled*, the one move of the record (Ye et al. 2025, arXiv:2502.19805), and *best*, any move
whose value ties with the best where the record values the moves (Ruoss et al. 2024, arXiv:2402.04494). Two ways of
playing: with the first action restricted to legal moves, as in play, and *raw*, without it, where an illegal first
action is a miss. The random row is not played but computed: 1 / (legal moves) and (best moves) / (legal moves),
averaged over the same positions.

Intervals: 95 %, cluster bootstrap by game, Wilson's at 0 and 100 % (``genpolicy_evaluation.intervals``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.policies.base import Decision, Policy
from genpolicy_common.labelled import LabelledPosition
from genpolicy_common.tables import Report, number_with_interval, percent, percent_with_interval, positions_text
from genpolicy_evaluation.intervals import cluster_bootstrap, share_interval, wilson
from genpolicy_evaluation.judgement import Judgement, judge
from genpolicy_evaluation.positions import ask

HitArray = NDArray[np.float64]

ALONE = 4
"""Positions decided alone, to count the calls of a search."""


@dataclass(frozen=True)
class Hits:
    """What some decisions score, 0 or 1 for each position."""

    labelled: HitArray
    """Whether the move is the labelled one."""
    best: HitArray
    raw_labelled: HitArray
    """The same of the first imagined action, which is the move where nothing was imagined."""
    raw_best: HitArray
    raw_legal: HitArray
    """Whether that action is legal: as the policy says, else whether it is the move."""


def hits_of(decisions: Sequence[Decision], positions: Sequence[LabelledPosition]) -> Hits:
    """What each decision scores in its position."""
    both = [(d, (d.line or (d.move,))[0], p) for d, p in zip(decisions, positions, strict=True)]
    return Hits(
        labelled=np.array([float(d.move == p.label) for d, _, p in both]),
        best=np.array([float(d.move in p.best) for d, _, p in both]),
        raw_labelled=np.array([float(raw == p.label) for _, raw, p in both]),
        raw_best=np.array([float(raw in p.best) for _, raw, p in both]),
        raw_legal=np.array([d.stats.get("raw_legal", float(raw == d.move)) for d, raw, _ in both]),
    )


@dataclass(frozen=True)
class Share:
    """A fraction of positions with its 95 % interval."""

    value: float
    interval: tuple[float, float]
    """Cluster bootstrap by game; ``wilson`` where all positions are hits, or none."""
    wilson: tuple[float, float]
    """Positions taken as independent."""
    trials: int
    games: int
    """Number of clusters."""

    @staticmethod
    def of(hits: HitArray, clusters: Sequence[str]) -> Share:
        """The share of 1 among hits (0 or 1 each) of positions that come from ``clusters``."""
        if len(hits) == 0:
            nowhere = (float("nan"), float("nan"))
            return Share(float("nan"), nowhere, nowhere, 0, 0)
        independent = wilson(float(hits.sum()), len(hits))
        return Share(
            float(hits.mean()), share_interval(hits, clusters), independent, len(hits), games=len(set(clusters))
        )

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "accuracy": self.value,
            "interval": list(self.interval),
            "wilson": list(self.wilson),
            "positions": self.trials,
            "games": self.games,
        }

    def __str__(self) -> str:
        return percent_with_interval(self.value, self.interval)


@dataclass(frozen=True)
class Accuracy:
    """One way of playing, measured."""

    policy: str
    mode: str
    """Which of ``Policy.modes``; empty where a policy has one only."""
    labelled: Share
    best: Share
    times_random: float
    """``best`` over what a random legal move is expected to reach on the same positions."""
    times_random_interval: tuple[float, float]
    raw_labelled: Share | None
    """None where there is no legal mask, or where it was not asked for."""
    raw_best: Share | None
    raw_legal: Share | None
    network_calls: float
    """Mean over the positions; 0 where the policy reports none."""
    ms: float
    """Wall time of a position with the legal mask, in milliseconds."""
    judgement: Judgement | None = None
    """How well its values judge the positions; None for a policy without values."""

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        shares = {
            "labelled": self.labelled,
            "best": self.best,
            "raw_labelled": self.raw_labelled,
            "raw_best": self.raw_best,
            "raw_legal": self.raw_legal,
        }
        return {
            "policy": self.policy,
            "mode": self.mode,
            **{name: None if share is None else share.figures() for name, share in shares.items()},
            "times_random": self.times_random,
            "times_random_interval": list(self.times_random_interval),
            "network_calls": self.network_calls,
            "ms_per_position": self.ms,
            "judgement": None if self.judgement is None else self.judgement.figures(),
        }


def random_chances(positions: Sequence[LabelledPosition]) -> tuple[HitArray, HitArray]:
    """For each position the chance that a random legal move is the labelled one, and that it is a best one."""
    labelled = np.array([1 / position.num_legal for position in positions])
    best = np.array([len(position.best) / position.num_legal for position in positions])
    return labelled, best


def measure_accuracy(
    policy: Policy,
    positions: Sequence[LabelledPosition],
    *,
    name: str | None = None,
    mode: str = "",
    raw: bool = True,
    show: bool = False,
) -> Accuracy:
    """Measure one way of playing.

    Args:
        policy: Asked with its legal mask, and without where it has one.
        positions: From ``labelled_positions``, at least one.
        name: For the table; the policy's label by default.
        mode: For the table.
        raw: Whether to measure without the legal mask too (a second run, where a sampler continues from the move).
        show: Show a progress bar.

    Raises:
        ValueError: no positions.
    """
    if not positions:
        raise ValueError("no positions to measure on")
    name = policy.label if name is None else name
    what = f"{name} {mode}".strip()
    unmasked = policy.unmasked()
    began = time.perf_counter()
    if unmasked is not None and policy.mask_only_filters:
        decisions = raw_decisions = ask(unmasked, positions, what, show=show)
        ms = 1e3 * (time.perf_counter() - began) / len(positions)
    else:
        decisions = ask(policy, positions, what, show=show)
        ms = 1e3 * (time.perf_counter() - began) / len(positions)
        raw_decisions = [] if unmasked is None or not raw else ask(unmasked, positions, f"{what} raw", show=show)
    clusters = [position.cluster for position in positions]
    hits = hits_of(decisions, positions)
    raw_hits = hits_of(raw_decisions, positions) if raw_decisions else None
    _, chance = random_chances(positions)
    return Accuracy(
        policy=name,
        mode=mode,
        labelled=Share.of(hits.labelled, clusters),
        best=Share.of(hits.best, clusters),
        times_random=float(hits.best.sum() / chance.sum()),
        times_random_interval=cluster_bootstrap(hits.best, clusters, chance),
        raw_labelled=None if raw_hits is None else Share.of(raw_hits.raw_labelled, clusters),
        raw_best=None if raw_hits is None else Share.of(raw_hits.raw_best, clusters),
        raw_legal=None if raw_hits is None else Share.of(raw_hits.raw_legal, clusters),
        network_calls=calls_of(policy, decisions, positions),
        ms=ms,
        judgement=judge(decisions, positions),
    )


def calls_of(policy: Policy, decisions: Sequence[Decision], positions: Sequence[LabelledPosition]) -> float:
    """Network calls of a decision; of a few decided alone, where a search shares its calls between positions."""
    if policy.thinker() is not None:
        decisions = [decision for position in positions[:ALONE] for decision in policy.decide([position.state])]
    return float(np.mean([decision.stats.get("network_calls", 0.0) for decision in decisions]))


def accuracy_report(rows: Sequence[Accuracy], positions: Sequence[LabelledPosition], source: str) -> Report:
    """The table of some policies on the same positions."""
    columns = ["policy", "calls", "labelled move %", "any best move %", "x random", "raw labelled %", "raw best %"]
    report = Report(f"Action accuracy on {source}", [*columns, "raw legal %", "ms"])
    labelled, best = random_chances(positions)
    report.add("random legal move", "-", percent(labelled.mean()), percent(best.mean()), "1.00", "-", "-", "-", "-")
    for row in rows:
        raw = [
            "-" if share is None else percent(share.value) for share in (row.raw_labelled, row.raw_best, row.raw_legal)
        ]
        report.add(
            f"{row.policy} ({row.mode})" if row.mode else row.policy,
            f"{row.network_calls:.0f}" if row.network_calls else "-",
            str(row.labelled),
            str(row.best),
            number_with_interval(row.times_random, row.times_random_interval, 2),
            *raw,
            f"{row.ms:.1f}",
        )
    games = len({position.cluster for position in positions})
    report.notes = [
        f"{positions_text(len(positions), games)}. Legal moves only, except in the raw columns.",
        "x random: the share of best moves, divided by that of a random legal move on the same positions.",
    ]
    return report
