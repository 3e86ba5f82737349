"""Sequential probability ratio test (SPRT) of two players, on games or on pairs of games with colours changed.

This is the generalised SPRT that fishtest uses for logistic Elo (M. Van den Bergh): the log-likelihood ratio of two
expected scores, each with the distribution of results that is likeliest given that score. Results are those of single
games (trinomial: loss, draw, win) or of pairs of one opening with colours changed (pentanomial: 0, 1/2, 1, 3/2, 2
points). The pentanomial test is right even if the two games of an opening depend on each other, and needs fewer games
if openings are unbalanced. An Elo difference means an expected score of 1 / (1 + 10^(-elo / 400)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_REGULAR = 1e-3
"""Replaces a count of 0, so that no outcome counts as impossible (as in fishtest)."""

MAX_ELO = 2000
"""Further apart, expected scores differ from 0 and 1 by less than a test of this kind can tell."""

Verdict = Literal["H0", "H1"]


@dataclass(frozen=True)
class SprtConfig:
    """The two hypotheses and the risks."""

    elo0: float = 0.0
    """H0: the first player is stronger by at most this."""
    elo1: float = 20.0
    """H1: it is stronger by at least this, which is above ``elo0``."""
    alpha: float = 0.05
    """Probability of accepting H1 although H0 is true."""
    beta: float = 0.05
    """Probability of accepting H0 although H1 is true."""

    def __post_init__(self) -> None:
        if not self.elo0 < self.elo1:
            raise ValueError(f"sprt: elo0 must be below elo1, got {self.elo0:g} and {self.elo1:g}")
        if not (self.elo0 >= -MAX_ELO and self.elo1 <= MAX_ELO):
            raise ValueError(
                f"sprt: elo0 and elo1 must lie within -{MAX_ELO} and {MAX_ELO}, got {self.elo0:g} and {self.elo1:g}"
            )
        if not (0 < self.alpha < 0.5 and 0 < self.beta < 0.5):
            raise ValueError(f"sprt: alpha and beta must lie between 0 and 0.5, got {self.alpha:g} and {self.beta:g}")

    @property
    def bounds(self) -> tuple[float, float]:
        """Log-likelihood ratios at or below which H0, and at or above which H1 is accepted (Wald)."""
        return math.log(self.beta / (1 - self.alpha)), math.log((1 - self.beta) / self.alpha)

    def verdict(self, llr: float) -> Verdict | None:
        """The hypothesis that a log-likelihood ratio accepts; None if more games are needed."""
        low, high = self.bounds
        return "H0" if llr <= low else "H1" if llr >= high else None


@dataclass(frozen=True)
class SprtState:
    """State of a test after some results."""

    llr: float
    """Log-likelihood ratio."""
    verdict: Verdict | None
    counts: tuple[int, ...]
    """Losses, draws, wins of games (3), or pairs by points 0, 1/2, 1, 3/2, 2 (5)."""

    def text(self, config: SprtConfig) -> str:
        """A line for people."""
        low, high = config.bounds
        kind = "pairs by points 0 1/2 1 3/2 2" if len(self.counts) == 5 else "games lost, drawn, won"
        word = {"H0": "H0 accepted", "H1": "H1 accepted", None: "undecided"}[self.verdict]
        return (
            f"SPRT elo0={config.elo0:g} elo1={config.elo1:g}: LLR {self.llr:.2f} ({low:.2f}, {high:.2f}), {word}; "
            f"{kind}: {', '.join(map(str, self.counts))}"
        )


def expected_score(elo: float) -> float:
    """Expected score of a player that is stronger by so many Elo points."""
    return 1 / (1 + math.exp(-elo * math.log(10) / 400))


def log_likelihood_ratio(counts: Sequence[int], elo0: float, elo1: float) -> float:
    """Log-likelihood ratio of ``elo1`` over ``elo0``; 0 without games.

    Args:
        counts: Number of games or pairs with each result, lowest first: 3 for games, 5 for pairs.
        elo0: Elo difference of H0.
        elo1: Elo difference of H1.

    Raises:
        ValueError: there are neither 3 nor 5 counts, or one is negative.
    """
    if len(counts) not in (3, 5) or min(counts) < 0:
        raise ValueError(f"counts must be 3 (games) or 5 (pairs) numbers of at least 0, got {list(counts)}")
    if sum(counts) == 0:
        return 0.0
    weights = [max(float(count), _REGULAR) for count in counts]
    scores = [i / (len(counts) - 1) for i in range(len(counts))]
    zeros, ones = (_log_tilt(weights, scores, elo) for elo in (elo0, elo1))
    return sum(weight * (one - zero) for weight, zero, one in zip(weights, zeros, ones, strict=True))


def _log_tilt(weights: Sequence[float], scores: Sequence[float], elo: float) -> list[float]:
    """ln(q / p) of the likeliest distribution q with the expected score of ``elo``, given weights in proportion to p.

    q_i = p_i / (1 + theta (s_i - s)), where theta makes the mean of q the score s (Owen's empirical likelihood).
    """
    mean = expected_score(elo)
    terms = [(weight * (score - mean), score - mean) for weight, score in zip(weights, scores, strict=True)]
    low, high = -1 / (scores[-1] - mean), 1 / (mean - scores[0])
    for _ in range(60):  # the sum falls in theta, from +infinity to -infinity between the two poles
        theta = (low + high) / 2
        if sum(weighted / (1 + theta * deviation) for weighted, deviation in terms) > 0:
            low = theta
        else:
            high = theta
    theta = (low + high) / 2
    return [-math.log1p(theta * deviation) for _, deviation in terms]


def state_of(config: SprtConfig, counts: Sequence[int]) -> SprtState:
    """State of a test after some results (see ``log_likelihood_ratio``)."""
    llr = log_likelihood_ratio(counts, config.elo0, config.elo1)
    return SprtState(llr, config.verdict(llr), tuple(counts))


def parse_sprt(words: Sequence[str]) -> SprtConfig:
    """Read a test from words such as ``elo0=0 elo1=20 alpha=0.05 beta=0.05``.

    Raises:
        ValueError: an unknown key, a value that is not a number, or one that is out of range.
    """
    known = ("elo0", "elo1", "alpha", "beta")
    values: dict[str, float] = {}
    for word in words:
        key, _, text = word.partition("=")
        try:
            values[key] = float(text)
        except ValueError:
            key = ""
        if key not in known:
            raise ValueError(f"--sprt {word!r}: give any of elo0=0 elo1=20 alpha=0.05 beta=0.05")
    return SprtConfig(**values)
