"""Control: what may stop a decision while it is being made, and what restricts the moves that it may choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Control:
    """Passed to ``Policy.decide`` and ``Policy.dream``; policies hand it on to what they ask.

    A policy calls ``check`` before every network call and, in a tree search, before every round of leaves; it asks
    ``allowed`` for the moves at the root of each decision. Positions inside a search are not restricted.
    """

    check: Callable[[], None] = lambda: None
    """Raises an exception of the caller's own to end the decision; the exception passes through ``decide``."""
    restrict: Callable[[Any], Sequence[int] | None] | None = None
    """State -> absolute ids of the legal moves that may be chosen there, at least one; None for all legal moves."""

    def allowed(self, state: Any, legal: Sequence[int]) -> list[int]:
        """The moves that a decision may choose in a state, of its ``legal`` ones (absolute ids) and in their order.

        Raises:
            ValueError: ``restrict`` leaves no legal move.
        """
        wanted = None if self.restrict is None else self.restrict(state)
        if wanted is None:
            return list(legal)
        kept = [move for move in legal if move in set(wanted)]
        if not kept:
            raise ValueError(f"no legal move is left: {sorted(wanted)} of {list(legal)} were allowed")
        return kept


FREE = Control()
"""Stops nothing and restricts nothing."""
