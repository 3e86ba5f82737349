"""Confidence intervals of a fraction of hits, for positions that come in games.

Positions of one game resemble each other, so the interval of an accuracy must not treat them as independent. The
interval reported everywhere is the *cluster bootstrap*: whole games are drawn with replacement, and the 2.5 and 97.5
percentiles of the pooled fraction are its ends. A single game has none, and where few are there, it says little; the
Wilson interval, which takes positions as independent, stands beside it in the JSON. It also takes its place where all
positions are hits, or none: whichever games are drawn, the fraction is then the same, and the interval would be empty.

A pair of positions depends on both its games: a draw that has the one twice and the other three times has the pair six
times (as in the pigeonhole bootstrap of Owen 2007, arXiv:0712.1111). Such an interval is wide rather than narrow.

Axes: G games.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Games = Sequence[str] | Sequence[tuple[str, str]]
NUM_RESAMPLES = 2000
Z95 = 1.959963984540054
"""97.5 percentile of the standard normal distribution."""


def wilson(hits: float, trials: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a fraction; (nan, nan) without trials.

    Wilson 1927, z = 1.96: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).

    Raises:
        ValueError: hits outside 0..trials.
    """
    if not 0 <= hits <= trials:
        raise ValueError(f"hits must lie in 0..{trials}, got {hits}")
    if trials == 0:
        return math.nan, math.nan
    share, z = hits / trials, Z95
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def share_interval(hits: Sequence[float] | NDArray[np.floating], games: Games) -> tuple[float, float]:
    """95 % interval of a share: by ``cluster_bootstrap``, or Wilson's where all positions are hits, or none.

    Args:
        hits: What each position scored, 0 to 1.
        games: The game each position comes from, as many; of pairs of positions both games.

    Returns:
        Lower and upper end; (nan, nan) without positions, or with those of one game.

    Raises:
        ValueError: lengths differ.
    """
    interval, total = cluster_bootstrap(hits, games), float(np.sum(hits))
    return interval if math.isnan(interval[0]) or 0 < total < len(games) else wilson(total, len(games))


def cluster_bootstrap(
    hits: Sequence[float] | NDArray[np.floating],
    games: Games,
    weights: Sequence[float] | NDArray[np.floating] | None = None,
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> tuple[float, float]:
    """95 % percentile interval of sum(hits) / sum(weights), games drawn with replacement.

    Args:
        hits: What each position scored.
        games: The game each position comes from, as many; of pairs of positions both games.
        weights: What each position counts in the denominator; 1 each by default.
        seed: Same seed, same interval.
        num_resamples: Draws of all G games.

    Returns:
        Lower and upper end; (nan, nan) without positions, with those of one game, or where every weight is 0.

    Raises:
        ValueError: lengths differ.
    """
    numerator = np.asarray(hits, np.float64)
    denominator = np.ones(len(numerator)) if weights is None else np.asarray(weights, np.float64)
    if not len(numerator) == len(denominator) == len(games):
        raise ValueError(
            f"{len(numerator)} hits, {len(denominator)} weights and {len(games)} games: the counts must match"
        )
    names, cluster = np.unique(np.asarray(games), return_inverse=True)
    num_games = len(names)
    if num_games < 2 or denominator.sum() == 0:
        return math.nan, math.nan
    origins, origin = np.unique(cluster.reshape(len(games), -1), axis=0, return_inverse=True)
    first, second = origins[:, 0], origins[:, -1]
    hits_of_origin = np.bincount(origin.reshape(-1), weights=numerator)
    weight_of_origin = np.bincount(origin.reshape(-1), weights=denominator)
    random = np.random.default_rng(seed)
    ratios = []
    for _ in range(num_resamples):
        # Counts of each game in a draw of G games with replacement.
        drawn = np.bincount(random.integers(0, num_games, num_games), minlength=num_games)
        counts = np.where(first == second, drawn[first], drawn[first] * drawn[second])
        total = counts @ weight_of_origin
        if total > 0:
            ratios.append((counts @ hits_of_origin) / total)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)
