"""The fitted puzzle rating: closed forms where there is one, and how often the interval holds the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genpolicy_evaluation.puzzle_rating import fit_puzzle_rating


def elo_of(chance: float) -> float:
    return 400 * math.log10(chance / (1 - chance))


@pytest.mark.parametrize(("solved", "trials"), [(1, 2), (1, 40), (39, 40), (250, 500)])
def test_equal_puzzles_give_the_odds(solved: int, trials: int) -> None:
    found = fit_puzzle_rating([1500.0] * trials, [i < solved for i in range(trials)])
    assert found.value == pytest.approx(1500 + elo_of(solved / trials), abs=1e-6)
    # Of equal puzzles the likelihood is the binomial's: its ends by a grid over the chance itself.
    grid = np.linspace(1e-6, 1 - 1e-6, 2_000_001)
    likelihood = solved * np.log(grid) + (trials - solved) * np.log1p(-grid)
    inside = grid[likelihood >= likelihood.max() - 1.9207294103470616]
    assert found.interval == pytest.approx((1500 + elo_of(inside[0]), 1500 + elo_of(inside[-1])), abs=0.2)
    assert found.bound is None


def test_rating_is_where_as_many_are_expected_as_were_solved() -> None:
    draws = np.random.default_rng(0)
    ratings, solved = draws.uniform(800, 2400, 300), draws.random(300) < 0.4
    found = fit_puzzle_rating(ratings, solved)
    expected = sum(1 / (1 + 10 ** ((rating - found.value) / 400)) for rating in ratings)
    assert expected == pytest.approx(solved.sum(), abs=1e-6)


@pytest.mark.parametrize("trials", [1, 20, 500])
def test_all_or_none_solved_is_a_one_sided_bound_that_says_so(trials: int) -> None:
    chance = 0.05 ** (1 / trials)  # of solving each of them, where all of them are solved one time in twenty
    best = fit_puzzle_rating([1500.0] * trials, [True] * trials)
    assert (best.value, best.interval[1], best.bound) == (math.inf, math.inf, "lower")
    assert best.interval[0] == pytest.approx(1500 + elo_of(chance), abs=1e-6)
    assert str(best) == f"> {best.interval[0]:.0f} (all solved)"
    worst = fit_puzzle_rating([1500.0] * trials, [False] * trials)
    assert (worst.value, worst.interval[0], worst.bound) == (-math.inf, -math.inf, "upper")
    assert worst.interval[1] == pytest.approx(1500 - elo_of(chance), abs=1e-6)
    assert str(worst) == f"< {worst.interval[1]:.0f} (none solved)"


def test_without_rated_puzzles_there_is_no_rating() -> None:
    found = fit_puzzle_rating([], [])
    assert math.isnan(found.value)
    assert str(found) == "-"


@pytest.mark.parametrize(("ratings", "solved"), [([1500.0], [True, False]), ([math.nan], [True])])
def test_nonsense_is_refused(ratings: list[float], solved: list[bool]) -> None:
    with pytest.raises(ValueError, match=r"must (be finite|match)"):
        fit_puzzle_rating(ratings, solved)


@pytest.mark.parametrize(
    ("truth", "trials"),
    [(1200.0, 60), *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((1550.0, 60), (1900.0, 200)))],
)
def test_interval_holds_the_truth_19_times_of_20(truth: float, trials: int) -> None:
    draws = np.random.default_rng(1)
    held, errors = 0, []
    num_simulations = 800
    for _ in range(num_simulations):
        ratings = draws.normal(1550, 250, trials)
        solved = draws.random(trials) < 1 / (1 + 10 ** ((ratings - truth) / 400))
        found = fit_puzzle_rating(ratings, solved)
        held += found.interval[0] <= truth <= found.interval[1]
        errors.append(found.value - truth)
    # Four standard errors of a share of 0.95 among 800, and 0.005 for the likelihood's curvature.
    assert held / num_simulations == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / num_simulations) + 0.005)
    assert np.median(errors) == pytest.approx(0, abs=15)
