"""Scores of an alpha-beta search: heuristic values, decided games by their length, and leaves that are only compared.

A float in [-1, 1] is a value for the player to move. A won game is ``DECIDED`` minus the plies to its end, a lost one
the negative, so that the quicker win and the later loss are better. A ``Leaf`` is a position without a number: two
leaves are told apart by a comparator, and a decided game beats or loses to every leaf.
"""

from __future__ import annotations

from typing import Any

from genpolicy.search.model import Comparator

DECIDED = 10_000.0
"""Above every value, and above the length of any game."""


class Leaf:
    """A position at the end of a line as one player sees it; greater is better for that player.

    Args:
        state: The position.
        player: Whose view it is.
        comparator: Tells two positions apart.
    """

    __slots__ = ("_comparator", "player", "state")

    def __init__(self, state: Any, player: int, comparator: Comparator) -> None:
        self.state, self.player, self._comparator = state, player, comparator

    def __neg__(self) -> Leaf:
        return Leaf(self.state, 1 - self.player, self._comparator)

    def __gt__(self, other: Score) -> bool:
        return self._against(other) > 0

    def __lt__(self, other: Score) -> bool:
        return self._against(other) < 0

    def __ge__(self, other: Score) -> bool:
        return self._against(other) >= 0

    def __le__(self, other: Score) -> bool:
        return self._against(other) <= 0

    def _against(self, other: Score) -> float:
        if isinstance(other, Leaf):
            return self._comparator([(self.state, other.state)], self.player)[0]
        return -other  # a decided game, or the infinite end of a window


Score = float | Leaf


def decided(won: bool, plies: int) -> float:
    """The score of a game that ends after so many plies."""
    return DECIDED - plies if won else plies - DECIDED


def plies_to_end(score: Score) -> int | None:
    """Plies to the end of a decided game; None where it is not decided."""
    return None if isinstance(score, Leaf) or abs(score) <= 1.0 else round(DECIDED - abs(score))


def later(score: Score, plies: int) -> Score:
    """The score seen from so many plies before (negative: after)."""
    if isinstance(score, Leaf) or -1.0 <= score <= 1.0:
        return score
    return score - plies if score > 0 else score + plies


def score_value(score: Score) -> float | None:
    """Value in [-1, 1]; None for a leaf, which has none."""
    return None if isinstance(score, Leaf) else max(-1.0, min(1.0, score)) + 0.0  # no minus zero


def score_text(score: Score) -> str | None:
    """Score text of ``genpolicy.values``: ``mate:N`` in moves of the winner, else ``value:X``; None for a leaf."""
    value, plies = score_value(score), plies_to_end(score)
    if value is None:
        return None
    if plies is None:
        return f"value:{value:.6g}"
    # The winner makes the last ply: it needs (plies + 1) / 2 moves, and loses in plies / 2.
    return f"mate:{(plies + 1) // 2}" if value > 0 else f"mate:-{plies // 2}"
