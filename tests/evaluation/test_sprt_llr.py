"""The sequential test against published log-likelihood ratios and its own promises."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from genpolicy_arena.sprt import SprtConfig, SprtState, expected_score, log_likelihood_ratio, parse_sprt, state_of

FISHTEST = [
    # elo0, elo1, pairs by points, LLR as fishtest printed it; pull requests of official-stockfish/Stockfish.
    (-0.25, 1.25, (491, 7345, 29693, 7670, 465), 2.96),  # 3098
    (0.25, 1.25, (53, 2220, 21459, 2445, 47), 2.97),  # 3098
    (-0.25, 1.25, (253, 4282, 17604, 4431, 286), 2.94),  # 3209
    (0.25, 1.25, (58, 3302, 33130, 3518, 84), 2.97),  # 3209
    (-0.5, 1.5, (17, 253, 1042, 337, 39), 2.96),  # 2971
    (0.25, 1.75, (11, 407, 3238, 513, 11), 2.93),  # 2971
    (-1.0, 3.0, (424, 2948, 5832, 3045, 460), 2.94),  # 2493
    (0.0, 2.0, (1284, 17437, 55536, 18085, 1292), 2.94),  # 2493
    (-0.5, 1.5, (133, 1751, 5094, 1849, 165), 2.94),  # 2950
    (0.25, 1.75, (149, 4748, 32785, 5063, 159), 2.95),  # 2950
    (-0.5, 1.5, (59, 754, 2467, 865, 75), 2.95),  # 2951
]


def run_in_order(config: SprtConfig, points: Sequence[float], *, paired: bool) -> SprtState:
    """Run a test over results in order, up to its end.

    Args:
        config: Hypotheses and risks.
        points: Points of the first player: 0, 1/2, 1 for a game, 0 to 2 for a pair.
        paired: Whether they are points of pairs.
    """
    counts = [0] * (5 if paired else 3)
    state = state_of(config, counts)
    for point in points:
        counts[round(2 * point)] += 1
        state = state_of(config, counts)
        if state.verdict is not None:
            return state
    return state


@pytest.mark.parametrize(("elo0", "elo1", "counts", "llr"), FISHTEST)
def test_ratios_are_those_that_fishtest_printed(elo0: float, elo1: float, counts: tuple[int, ...], llr: float) -> None:
    """Tests of 2020, with bounds in logistic Elo on the pentanomial of pairs; printed to two digits."""
    assert log_likelihood_ratio(counts, elo0, elo1) == pytest.approx(llr, abs=0.0051)


def test_ratio_is_near_its_normal_approximation() -> None:
    """N (s1 - s0) (2 s - s0 - s1) / (2 var), s the mean score: what many programs compute instead."""
    losses, draws, wins = 4063, 8620, 4307
    number = losses + draws + wins
    mean = (wins + draws / 2) / number
    variance = (wins + draws / 4) / number - mean**2
    low, high = expected_score(0), expected_score(3)
    approximate = number * (high - low) * (2 * mean - low - high) / (2 * variance)
    assert log_likelihood_ratio((losses, draws, wins), 0, 3) == pytest.approx(approximate, rel=0.01)


def test_bounds_are_walds() -> None:
    assert SprtConfig(alpha=0.05, beta=0.05).bounds == pytest.approx((-math.log(19), math.log(19)))  # (-2.94, 2.94)
    low, high = SprtConfig(alpha=0.01, beta=0.1).bounds
    assert (low, high) == pytest.approx((math.log(0.1 / 0.99), math.log(0.9 / 0.01)))


@pytest.mark.parametrize(
    ("elo", "wrong", "paired"),
    [
        *((0.0, "H1", True), (80.0, "H0", False)),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((0.0, "H1", False), (80.0, "H0", True))),
    ],
)
def test_errors_are_no_more_frequent_than_promised(elo: float, wrong: str, paired: bool) -> None:
    """120 tests at each hypothesis; 5 % promised, and three standard errors of that are 6 points."""
    config = SprtConfig(elo0=0, elo1=80)
    random = np.random.default_rng(7)
    draws = 0.3
    score = expected_score(elo)
    chances = np.array([1 - score - draws / 2, draws, score - draws / 2])
    wrongs = undecided = 0
    for _ in range(120):
        points = random.choice([0.0, 0.5, 1.0], p=chances, size=800)
        state = run_in_order(config, points.reshape(-1, 2).sum(axis=1) if paired else points, paired=paired)
        wrongs += state.verdict == wrong
        undecided += state.verdict is None
    assert undecided <= 1
    assert wrongs / 120 <= 0.05 + 0.06


def test_pairs_that_cancel_out_say_more_than_their_games() -> None:
    """Unbalanced openings: White wins both games of most pairs. Games look noisy, pairs do not."""
    pairs = (0, 2, 90, 8, 0)
    games = (2 * 0 + 2 + 90 + 0, 2 + 8, 90 + 8)  # the pairs of one point are a win and a loss each
    assert log_likelihood_ratio(pairs, 0, 20) > 2 * log_likelihood_ratio(games, 0, 20) > 0


def test_words_are_read_and_wrong_ones_named() -> None:
    assert parse_sprt(["elo0=-1", "elo1=5", "alpha=0.1"]) == SprtConfig(-1, 5, 0.1, 0.05)
    for words, message in (
        (["elo2=1"], "elo2=1"),
        (["elo0"], "give any of"),
        (["elo0=x"], "elo0=x"),
        (["elo0=5", "elo1=5"], "below elo1"),
        (["elo1=inf"], "within -2000 and 2000, got 0 and inf"),
        (["elo0=-1e5"], "within -2000 and 2000"),
        (["alpha=0.6"], "between 0 and 0.5"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_sprt(words)
    with pytest.raises(ValueError, match="3 \\(games\\) or 5"):
        log_likelihood_ratio((1, 2), 0, 5)
    assert log_likelihood_ratio((0, 0, 0), 0, 5) == 0.0
