"""Means over seeds and paired tests over positions.

Two sources of chance are kept apart. *Seeds* tell what another training run would have given: the 95 % interval is
Student's t over the seeds' means. *Positions* tell what other positions would have given: a paired test takes each
position's difference between two cells, averaged over the seeds, and counts how often signs drawn at random by cluster
(the game that positions come from) give a mean as far from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genpolicy_evaluation.intervals import Z95, cluster_bootstrap

NUM_PERMUTATIONS = 10_000
LEVEL = 0.05
"""A difference is a corrected p below this, with intervals that do not contain 0."""
# 97.5 % points of Student's t distribution for 1, 2, ... degrees of freedom (Abramowitz and Stegun, table 26.10).
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True)
class Mean:
    """A mean over seeds."""

    value: float
    interval: tuple[float, float]
    """95 % interval by Student's t, cut at the ends of the number's range; (nan, nan) with a single seed."""
    seeds: int


def mean_over_seeds(values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf)) -> Mean:
    """The mean of one number per seed, with its interval.

    Args:
        values: One number per seed.
        bounds: Range of the number, for example 0 to 1 for a share. Student's t ignores it, so the interval is cut
            there.

    Raises:
        ValueError: there is no seed.
    """
    if not values:
        raise ValueError("no seed to take a mean over")
    numbers = np.asarray(values, np.float64)
    mean, count = float(numbers.mean()), len(numbers)
    if count == 1:
        return Mean(mean, (math.nan, math.nan), 1)
    spread = _quantile(count - 1) * float(numbers.std(ddof=1)) / math.sqrt(count)
    return Mean(mean, (max(mean - spread, bounds[0]), min(mean + spread, bounds[1])), count)


def _quantile(freedom: int) -> float:
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z = Z95  # the expansion in 1/freedom (Abramowitz and Stegun 26.7.5), which has three correct digits from here on
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


@dataclass(frozen=True)
class PairedTest:
    """Cell a minus cell b on the same positions and seeds."""

    difference: float
    over_seeds: tuple[float, float]
    """95 % interval of the difference over seeds; (nan, nan) with a single seed."""
    over_positions: tuple[float, float]
    """95 % interval over positions, cluster bootstrap of the differences averaged over seeds."""
    p_value: float
    """Two-sided p of the permutation test over positions."""
    seeds: int
    positions: int
    p_corrected: float | None = None
    """p corrected for the number of tests; None if this is the only one."""

    @property
    def verdict(self) -> str:
        """The result in words. A difference needs intervals without 0 and a corrected p below ``LEVEL``."""
        if (self.p_value if self.p_corrected is None else self.p_corrected) >= LEVEL:
            return "no difference seen"
        intervals = [self.over_positions] if self.seeds == 1 else [self.over_positions, self.over_seeds]
        if all(low > 0 for low, _ in intervals):
            return "a is better"
        if all(high < 0 for _, high in intervals):
            return "b is better"
        return "no difference seen"


def paired_test(
    a: Sequence[NDArray[np.float64]], b: Sequence[NDArray[np.float64]], clusters: Sequence[str], seed: int = 0
) -> PairedTest:
    """Compare the hits of two cells.

    Args:
        a: Hits [positions] of each seed.
        b: Hits of the other cell, seeds in the same order.
        clusters: Game of each position.
        seed: Seed of all draws.

    Raises:
        ValueError: seeds or positions do not match.
    """
    if len(a) != len(b) or not a or any(len(x) != len(clusters) for x in (*a, *b)):
        raise ValueError("a paired test needs the same seeds and positions on both sides")
    by_seed = np.stack(a).astype(np.float64) - np.stack(b)
    difference = by_seed.mean(axis=0)
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(cluster, weights=difference)
    draws = np.random.default_rng(seed)
    observed, reached = abs(sums.sum()), 1
    for start in range(0, NUM_PERMUTATIONS, 500):
        signs = draws.integers(0, 2, (min(500, NUM_PERMUTATIONS - start), len(sums))) * 2 - 1
        # Sums of fractions depend on their order in the last digits, so a tie is one to nine digits.
        reached += int((np.abs(signs @ sums) >= observed - 1e-9).sum())
    return PairedTest(
        difference=float(difference.mean()),
        over_seeds=mean_over_seeds(by_seed.mean(axis=1).tolist()).interval,
        over_positions=cluster_bootstrap(difference, clusters, seed=seed),
        p_value=reached / (NUM_PERMUTATIONS + 1),
        seeds=len(a),
        positions=len(clusters),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
