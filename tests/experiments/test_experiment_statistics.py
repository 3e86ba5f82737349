"""Intervals and paired tests, against their definitions and by simulation."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from genpolicy_experiments import statistics
from genpolicy_experiments.statistics import PairedTest, holm, mean_over_seeds, paired_test


def test_students_interval_by_hand() -> None:
    """1, 2, 3: mean 2, deviation 1, 4.303 / sqrt(3)."""
    mean = mean_over_seeds([1.0, 2.0, 3.0])
    assert mean.value == 2.0
    assert mean.interval == pytest.approx((2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)))


def test_one_seed_has_no_interval() -> None:
    assert all(math.isnan(end) for end in mean_over_seeds([0.5]).interval)
    with pytest.raises(ValueError, match="no seed"):
        mean_over_seeds([])


@pytest.mark.parametrize("seeds", [3, 5, 20])
def test_students_interval_covers_95_percent(seeds: int) -> None:
    """4,000 samples of a normal: 95 % +- 5 standard errors of 0.34 points."""
    draws = np.random.default_rng(0).normal(3.0, 2.0, (4000, seeds))
    held = [low <= 3.0 <= high for low, high in (mean_over_seeds(row.tolist()).interval for row in draws)]
    assert abs(np.mean(held) - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 4000)


def test_the_permutation_test_is_the_enumeration_of_signs() -> None:
    """Eight clusters have 256 signs; 10,000 draws come near their exact share."""
    differences = np.array([1.0, 0.0, 1.0, 1.0, -1.0, 1.0, 0.0, 1.0])
    signs = itertools.product((-1, 1), repeat=8)
    exact = np.mean([abs(np.dot(s, differences)) >= differences.sum() - 1e-9 for s in signs])
    test = paired_test([differences], [np.zeros(8)], [str(i) for i in range(8)])
    assert test.difference == pytest.approx(0.5)
    assert abs(test.p_value - exact) < 5 * math.sqrt(exact * (1 - exact) / 10_000) + 1e-4


def test_no_difference_is_seen_5_times_in_100(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 comparisons of two equal cells: p below 0.05 in about 5 %, positions of one game alike."""
    monkeypatch.setattr(statistics, "NUM_PERMUTATIONS", 1_000)
    monkeypatch.setattr(statistics, "cluster_bootstrap", lambda *_, **__: (0.0, 0.0))  # the intervals, not the p-value
    draws = np.random.default_rng(1)
    clusters = [str(i // 4) for i in range(160)]
    below = 0
    for _ in range(100):
        hits = [(draws.random(40).repeat(4) < 0.5).astype(float) for _ in "ab"]
        below += paired_test(hits[:1], hits[1:], clusters).p_value < 0.05
    assert 1 <= below <= 13  # 5 expected, deviation 2.2


def test_a_real_difference_is_seen_from_both_sides() -> None:
    draws = np.random.default_rng(2)
    better = [(draws.random(400) < 0.9).astype(float) for _ in range(3)]
    worse = [(draws.random(400) < 0.6).astype(float) for _ in range(3)]
    clusters = [str(i) for i in range(400)]
    forward, backward = paired_test(better, worse, clusters), paired_test(worse, better, clusters)
    assert (forward.verdict, backward.verdict) == ("a is better", "b is better")
    assert forward.p_value == backward.p_value == pytest.approx(1 / 10_001)
    assert paired_test(better, better, clusters).verdict == "no difference seen"


def test_a_corrected_p_of_5_percent_is_no_difference() -> None:
    """p = 0.02 alone is seen; of five tests Holm makes it 0.1, and it is not, whatever its intervals."""
    alone = PairedTest(0.1, (0.01, 0.2), (0.02, 0.2), 0.02, seeds=3, positions=100)
    assert alone.verdict == "a is better"
    assert replace(alone, p_corrected=0.1).verdict == "no difference seen"
    assert replace(alone, p_corrected=0.05).verdict == "no difference seen"
    assert replace(alone, p_corrected=0.049).verdict == "a is better"
    assert replace(alone, over_seeds=(-0.1, 0.3)).verdict == "no difference seen"


def test_students_interval_is_cut_at_the_bounds() -> None:
    assert mean_over_seeds([0.9, 1.0, 1.0], (0.0, 1.0)).interval[1] == 1.0
    assert mean_over_seeds([0.0, 0.1, 0.0], (0.0, 1.0)).interval[0] == 0.0
    inside = [0.5, 0.51, 0.52]
    assert mean_over_seeds(inside, (0.0, 1.0)) == mean_over_seeds(inside)


def test_seeds_must_match() -> None:
    with pytest.raises(ValueError, match="same seeds and positions"):
        paired_test([np.zeros(3)], [np.zeros(3), np.zeros(3)], ["a", "b", "c"])


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
