"""Scores and values: how an engine's centipawns and mates become values in [-1, 1] and win probabilities in [0, 1].

Inside the program a value lies in [-1, 1] for the player to move, so that changing sides is a change of sign. Reports
and the 128 bins use a win probability in [0, 1]. Only the two functions below convert between them.

A score is text, so that a person can read a record: ``"cp:31"`` (centipawns, 100 = one pawn), ``"mate:3"`` (the player
to move mates in three of their moves), ``"mate:-2"`` (is mated in two), ``"mate:0"`` (is mated), ``"value:-1"`` (an
exact value of a solved game). Always for the player to move in the position that was searched.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Lichess's fit of win probability to centipawns, as used by Ruoss et al. 2024 (arXiv:2402.04494) and Ye et al. 2025.
CENTIPAWN_SCALE = 0.00368208


def value_to_probability(value: float) -> float:
    """Win probability in [0, 1] of a value in [-1, 1]."""
    return 0.5 + 0.5 * value


def probability_to_value(probability: float) -> float:
    """Value in [-1, 1] of a win probability in [0, 1]."""
    return 2.0 * probability - 1.0


def centipawns_to_probability(centipawns: float, scale: float = CENTIPAWN_SCALE) -> float:
    """Win probability in [0, 1]: 0.5 + 0.5 (2 / (1 + exp(-scale cp)) - 1)."""
    # exp overflows a float64 beyond 709; such a score is decided.
    return 0.5 + 0.5 * (2.0 / (1.0 + math.exp(min(700.0, -scale * centipawns))) - 1.0)


def parse_score(text: str) -> tuple[str, float]:
    """Kind (``"cp"``, ``"mate"`` or ``"value"``) and number of a score text.

    Raises:
        ValueError: not a score.
    """
    kind, _, number = text.partition(":")
    message = f"{text!r} is not a score; write cp:31, mate:-2 or value:0.5 (a value lies in [-1, 1])"
    try:
        parsed = int(number) if kind in ("cp", "mate") else float(number)
    except ValueError:
        raise ValueError(message) from None
    if kind not in ("cp", "mate") and not (kind == "value" and -1.0 <= parsed <= 1.0):
        raise ValueError(message)
    return kind, parsed


def score_to_value(text: str, scale: float = CENTIPAWN_SCALE) -> float:
    """Value in [-1, 1] for the player to move; a mate is 1 or -1 (``mate:0``: the player to move is mated).

    Raises:
        ValueError: not a score.
    """
    kind, number = parse_score(text)
    if kind == "cp":
        return probability_to_value(centipawns_to_probability(number, scale))
    if kind == "mate":
        return 1.0 if number > 0 else -1.0
    return number


def probability_to_bin(probability: float, num_bins: int = 128) -> int:
    """Index of the uniform bin of [0, 1] that holds a win probability; an inner edge belongs to the bin below it.

    Ruoss et al. 2024 put centipawn 0 (probability 0.5) in bin 63 of 128, so bins are closed on the right.

    Raises:
        ValueError: the probability lies outside [0, 1].
    """
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"a win probability lies in [0, 1], got {probability}; values in [-1, 1] convert first")
    return max(0, math.ceil(probability * num_bins) - 1)


def bin_to_probability(index: int, num_bins: int = 128) -> float:
    """Centre of a bin."""
    return (index + 0.5) / num_bins


def rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Spearman's rank correlation of two columns, equal values sharing their mean rank; NaN where one is constant."""
    if min(len(np.unique(one)), len(np.unique(other))) < 2:
        return math.nan
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(column: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place.reshape(-1)], np.float64)
