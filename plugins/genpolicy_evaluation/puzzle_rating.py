"""A policy's rating by the puzzles it solved: each puzzle an opponent of known rating, each attempt a drawless game.

The chance to solve puzzle i is 1 / (1 + 10^((r_i - R) / 400)) (Elo's logistic curve, as Lichess rates its puzzles). R
is fitted by maximum likelihood, which is where the expected number of solved puzzles is the number that was solved. The
interval holds every R whose log-likelihood is within 1.92 of the best: half the 95 % point of chi-square with one
degree of freedom. The puzzles' ratings are taken as exact.

Axes: P puzzles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SLOPE = math.log(10) / 400
_HALF_CHI2_95 = 3.841458820694124 / 2
_REACH = 4000.0  # Elo beyond the hardest and easiest puzzle: there a single result's likelihood moves by 1e-10
_TAIL = 0.05  # of the one-sided bound

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class PuzzleRating:
    """A fitted rating, on the puzzles' scale."""

    value: float
    """Infinite where all were solved, minus infinite where none was; NaN without rated puzzles."""
    interval: tuple[float, float]
    """95 %. Where all (or none) were solved one end is infinite and the other a one-sided 95 % bound: at it the chance
    of such a result is 5 %."""
    trials: int
    """Rated puzzles."""

    @property
    def bound(self) -> str | None:
        """``"lower"`` where all were solved, ``"upper"`` where none was; None where the rating is a number."""
        if math.isinf(self.value):
            return "lower" if self.value > 0 else "upper"
        return None

    def figures(self) -> dict[str, Any]:
        """For JSON, where infinite and unknown numbers become null and ``bound`` says which end stands."""
        return {"rating": self.value, "interval": list(self.interval), "bound": self.bound, "puzzles": self.trials}

    def __str__(self) -> str:
        if not self.trials:
            return "-"
        if self.bound == "lower":
            return f"> {self.interval[0]:.0f} (all solved)"
        if self.bound == "upper":
            return f"< {self.interval[1]:.0f} (none solved)"
        return f"{self.value:.0f} [{self.interval[0]:.0f}, {self.interval[1]:.0f}]"


def fit_puzzle_rating(
    ratings: Sequence[float] | FloatArray, solved: Sequence[bool] | NDArray[np.bool_]
) -> PuzzleRating:
    """The rating that explains best which puzzles were solved.

    Args:
        ratings: [P] of the puzzles, finite.
        solved: [P] whether each was.

    Raises:
        ValueError: lengths differ, or a rating that is not a finite number.
    """
    opponents = np.asarray(ratings, np.float64)
    won = np.asarray(solved, np.bool_)
    if opponents.shape != won.shape:
        raise ValueError(f"{len(opponents)} ratings and {len(won)} results: the counts must match")
    if not np.isfinite(opponents).all():
        raise ValueError(f"puzzle ratings must be finite, got {opponents[~np.isfinite(opponents)][0]}")
    if len(won) == 0:
        return PuzzleRating(math.nan, (math.nan, math.nan), 0)
    low, high = float(opponents.min()) - _REACH, float(opponents.max()) + _REACH

    def likelihood(rating: float) -> float:
        """Log-likelihood of the results at a rating."""
        advantage = _SLOPE * (rating - opponents)
        return -float(np.logaddexp(0.0, np.where(won, -advantage, advantage)).sum())

    if won.all():
        bound = _crossing(lambda rating: likelihood(rating) - math.log(_TAIL), low, high)
        return PuzzleRating(math.inf, (bound, math.inf), len(won))
    if not won.any():
        bound = _crossing(lambda rating: math.log(_TAIL) - likelihood(rating), low, high)
        return PuzzleRating(-math.inf, (-math.inf, bound), len(won))

    def surplus(rating: float) -> float:
        """Puzzles that the rating is expected to solve beyond those that were; it rises with the rating."""
        return float((1 / (1 + np.exp(_SLOPE * (opponents - rating)))).sum()) - int(won.sum())

    best = _crossing(surplus, low, high)
    worst = likelihood(best) - _HALF_CHI2_95
    ends = (
        _crossing(lambda rating: likelihood(rating) - worst, low, best),
        _crossing(lambda rating: worst - likelihood(rating), best, high),
    )
    return PuzzleRating(best, ends, len(won))


def _crossing(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises from below 0 at ``low`` to above 0 at ``high`` crosses it, by halving."""
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
