"""What a policy's judgement of positions is worth: its value against the oracle's, win, draw and loss, plies left.

A policy's decisions say what it judges; nothing is asked of it a second time. Intervals: 95 %, games drawn with
replacement (``genpolicy_evaluation.intervals``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.policies.base import Decision
from genpolicy.values import rank_correlation
from genpolicy_common.labelled import LabelledPosition
from genpolicy_evaluation.intervals import cluster_bootstrap

NUM_RESAMPLES = 500
"""Draws of all games for the interval of a rank correlation."""


@dataclass(frozen=True)
class Judgement:
    """Figures of a policy that gives values; None where it or the records do not say."""

    value_rank: float | None = None
    """Rank correlation (Spearman) of the value with the record's: a search's value, or the first score."""
    value_rank_interval: tuple[float, float] | None = None
    valued: int = 0
    """Positions with both values."""
    wdl_nats: float | None = None
    """Mean of -log p(result) of win, draw and loss."""
    wdl_nats_interval: tuple[float, float] | None = None
    wdl_prior: float | None = None
    """The same of the results' shares among these positions, which a judge who sees no board reaches."""
    wdl_gain_interval: tuple[float, float] | None = None
    """Interval of ``wdl_prior`` less ``wdl_nats``, the prior's shares held fixed."""
    plies_error: float | None = None
    """Mean error of the plies left, without its sign."""
    plies_error_interval: tuple[float, float] | None = None

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def judge(decisions: Sequence[Decision], positions: Sequence[LabelledPosition]) -> Judgement | None:
    """How well some decisions judge their positions; None where they give no value."""
    figures: dict[str, Any] = {}
    both = [(d, p) for d, p in zip(decisions, positions, strict=True) if d.value is not None]
    if not both:
        return None
    valued = [(d.value, p.value, p.cluster) for d, p in both if p.value is not None]
    if valued:
        own, true = (np.array([row[i] for row in valued], np.float64) for i in (0, 1))
        figures["valued"] = len(valued)
        rank = rank_correlation(own, true)
        if not math.isnan(rank):
            figures["value_rank"] = rank
            figures["value_rank_interval"] = _rank_interval(own, true, [row[2] for row in valued])
    ended = [(d.wdl, p.result, p.cluster) for d, p in both if d.wdl is not None and p.result is not None]
    if ended:
        # Win, draw and loss stand for the results 1, 0 and -1.
        index = np.array([1 - round(result) for _, result, _ in ended])
        nats = -np.log([max(wdl[i], 1e-300) for (wdl, *_), i in zip(ended, index, strict=True)])
        prior = -np.log((np.bincount(index, minlength=3) / len(index))[index])
        games = [row[2] for row in ended]
        figures |= {"wdl_nats": float(nats.mean()), "wdl_nats_interval": cluster_bootstrap(nats, games)}
        figures |= {"wdl_prior": float(prior.mean()), "wdl_gain_interval": cluster_bootstrap(prior - nats, games)}
    errors = [
        (abs(d.stats["plies_left"] - p.plies_left), p.cluster)
        for d, p in both
        if "plies_left" in d.stats and p.plies_left is not None
    ]
    if errors:
        amounts, games = (list(column) for column in zip(*errors, strict=True))
        figures |= {"plies_error": float(np.mean(amounts)), "plies_error_interval": cluster_bootstrap(amounts, games)}
    return Judgement(**figures)


def _rank_interval(own: NDArray[np.float64], true: NDArray[np.float64], games: Sequence[str]) -> tuple[float, float]:
    """Percentiles 2.5 and 97.5 of the rank correlation over draws of games; NaN with fewer than two."""
    if len(set(games)) < 2:
        return math.nan, math.nan
    _, cluster = np.unique(np.asarray(games), return_inverse=True)
    rows = [np.flatnonzero(cluster == game) for game in range(cluster.max() + 1)]
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(NUM_RESAMPLES):
        chosen = np.concatenate([rows[game] for game in random.integers(len(rows), size=len(rows))])
        drawn.append(rank_correlation(own[chosen], true[chosen]))
    low, high = np.nanpercentile(drawn, [2.5, 97.5]) if not np.isnan(drawn).all() else (math.nan, math.nan)
    return float(low), float(high)
