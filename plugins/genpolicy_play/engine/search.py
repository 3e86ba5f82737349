"""One ``go``: how long it may take, whether it has to stop, and the best answer so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from genpolicy.control import Control
from genpolicy.policies.thinking import Answer, Limits
from genpolicy_play.engine.protocol import Go

DEFAULT_OVERHEAD_MS = 30
MOVES_AHEAD = 30
"""Moves that a clock without movestogo is shared out over."""
MAX_SHARE = 0.5
"""Of the time on the clock for one move."""
INCREMENT_SHARE = 0.8
WIND_UP = 0.25
"""Share of a short time kept for what comes after the search: on a busy machine both sides wait for their turn."""
WIND_UP_EMPTY = 0.15
"""The same while there is no answer: a move that the policy has not seen is the greater risk."""
LATENESS_S = 0.15
"""Where lateness loses no clock and there is no answer yet: one call of a small network on a busy machine."""


@dataclass(frozen=True)
class Budget:
    """Seconds from ``go`` (from ``ponderhit`` while pondering)."""

    soft_s: float
    """When the search should be over."""
    hard_s: float
    """When the answer goes out, if there is one."""
    last_s: float
    """When an answer goes out in any case."""


def make_budget(go: Go, player: int, overhead_ms: float) -> Budget | None:
    """The time for a move; None where ``go`` sets none.

    Args:
        go: The limits.
        player: Who moves, 0 or 1.
        overhead_ms: Longest time that a line takes between the GUI and the engine.
    """
    if go.movetime is not None:
        found = _within(go.movetime, go.movetime, overhead_ms)
        # A late move loses no clock here; a move that the policy has not seen may lose the game.
        return replace(found, last_s=found.hard_s + LATENESS_S)
    left, byoyomi = go.time_left[player], go.byoyomi or 0
    if left is None and go.byoyomi is None:
        return None
    left = left or 0
    increment = go.increment[player]
    # With nothing left on the clock, an increment or byoyomi is all there is.
    most = left + byoyomi if byoyomi or left else increment
    shares = MOVES_AHEAD if go.moves_to_go is None else min(go.moves_to_go, MOVES_AHEAD)
    wanted = left / shares + INCREMENT_SHARE * increment
    if left > 0:
        # The last move before the time control may use all that is left; any other leaves something for the next ones.
        wanted = min(wanted, left if shares == 1 else MAX_SHARE * left)
    found = _within(min(most, wanted + byoyomi) if most else 0.0, most, overhead_ms)
    # With no time at all the GUI evidently plays on regardless: as with movetime.
    return found if most else replace(found, last_s=LATENESS_S)


def _within(wanted_ms: float, most_ms: float, overhead_ms: float) -> Budget:
    """A budget whose answer arrives before ``most_ms`` are over."""
    hard = most_ms - min(overhead_ms, WIND_UP * most_ms)
    # Each move pays for its lines; where only the last of the clock did, a short increment left no reserve.
    soft = min(wanted_ms - min(overhead_ms, WIND_UP * wanted_ms), hard - min(overhead_ms, WIND_UP * most_ms) / 2)
    last = most_ms - min(overhead_ms, WIND_UP_EMPTY * most_ms)
    # A move that takes far longer than planned is not worth the rest of the clock.
    hard, last = (max(0.0, min(each, 4 * wanted_ms + 100.0)) for each in (hard, last))
    return Budget(max(0.0, soft) / 1e3, hard / 1e3, last / 1e3)


class SearchStopped(Exception):
    """The search has to end: it was stopped, or its time is over."""


class Search(Limits):
    """The state of one ``go``, shared by the thread that reads and the one that searches.

    Args:
        state: The position.
        allowed: Absolute ids of the moves to choose from, at least one unless there is a ``reply``.
        restricted: Whether they are fewer than all legal ones.
        go: The limits.
        budget: Time for the move, from now on; None sets no limit.
        num_variations: How many ``info`` reports.
    """

    def __init__(
        self,
        state: Any,
        allowed: Sequence[int],
        *,
        restricted: bool = False,
        go: Go,
        budget: Budget | None = None,
        num_variations: int = 1,
    ) -> None:
        super().__init__(nodes=go.nodes, depth=go.depth, num_variations=num_variations)
        self.state, self.allowed, self.restricted, self.go = state, list(allowed), restricted, go
        self.budget = budget
        self.began = time.perf_counter()
        self.held = go.infinite or go.ponder
        """Whether the answer waits for ``stop`` or ``ponderhit``."""
        self.pondering = go.ponder
        """Whether the move that is pondered on has not been played yet."""
        self.best: Answer | None = None
        self.reply: str | None = None
        """The whole answer, where it takes no search."""
        self.failure: str | None = None
        """What the policy raised last."""
        self.reported: Answer | None = None
        """The answer that the last ``info`` reported, ``reported_s`` after the beginning."""
        self.reported_s = 0.0
        self.answered = False
        self.released = False
        """Whether the worker has left it."""
        self.changed = threading.Condition(threading.RLock())
        """Guards all that changes here; notified when it does."""
        self._stopped = False
        self._deadline: float | None = None
        self.hard_deadline: float | None = None
        """When the answer goes out, if there is one; of ``time.perf_counter``."""
        self.last_deadline: float | None = None
        """When an answer goes out in any case."""
        if budget is not None and not go.ponder:
            self._start_clock()

    def _start_clock(self) -> None:
        assert self.budget is not None
        now = time.perf_counter()
        self._deadline, self.hard_deadline = now + self.budget.soft_s, now + self.budget.hard_s
        self.last_deadline = now + self.budget.last_s

    def restart_clock(self) -> None:
        """Count the time from now on, because the search could not begin before."""
        with self.changed:
            self.began = time.perf_counter()
            if self._deadline is not None:
                self._start_clock()

    def stop(self) -> None:
        """Request the answer now."""
        with self.changed:
            self._stopped, self.held = True, False
            self.changed.notify_all()

    def ponder_hit(self, budget: Budget | None = None) -> None:
        """Start the clock: the move that is pondered on has been played.

        Args:
            budget: Where the GUI sends the clock only now; None keeps that of ``go``.
        """
        with self.changed:
            self.held, self.pondering = self.go.infinite, False
            self.budget = budget or self.budget
            if self.budget is not None:
                self._start_clock()
            self.changed.notify_all()

    @property
    def is_timed(self) -> bool:
        """Whether a clock runs, now or after ``ponderhit``."""
        return self.budget is not None

    @property
    def is_endless(self) -> bool:
        """Whether it continues until ``stop`` or ``ponderhit``."""
        return self.held

    @property
    def is_over(self) -> bool:
        """Whether to end: it was stopped, or its time is over (all of it, as long as there is no answer)."""
        return self._stopped or self._is_late()

    def _is_late(self) -> bool:
        limit = self.last_deadline if self.best is None else self._deadline
        return limit is not None and time.perf_counter() >= limit

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped; for a search that keeps the time itself."""
        return self._stopped

    def check(self) -> None:
        """End the search where it has to.

        Raises:
            SearchStopped: it has to end.
        """
        if self.is_over:
            raise SearchStopped

    def control(self, *, patient: bool = False) -> Control:
        """Stops and restricts a policy's decision.

        Args:
            patient: Stop by ``check_unless_empty``.
        """
        restrict = (lambda state: self.allowed) if self.restricted else None
        return Control(self.check_unless_empty if patient else self.check, restrict)

    def check_unless_empty(self) -> None:
        """As ``check``; but without a clock, a search that has no answer yet continues after ``stop``.

        Raises:
            SearchStopped: it has to end.
        """
        if self.is_over and (self.best is not None or self.is_timed or self.pondering):
            raise SearchStopped

    def remaining_s(self) -> float | None:
        """Seconds until it should be over; None while no clock runs."""
        return None if self._deadline is None else max(0.0, self._deadline - time.perf_counter())

    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self.began

    def wait_for_release(self) -> None:
        """Wait while the answer is held."""
        with self.changed:
            while self.held:
                self.changed.wait()
