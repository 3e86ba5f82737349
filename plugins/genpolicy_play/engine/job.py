"""One ``go``: its limits, its clock, whether it shall stop, and the best answer so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from genpolicy_play.engine.answer import Found
from genpolicy_play.engine.clock import Budget
from genpolicy_play.engine.protocol import Go


class SearchStopped(Exception):
    """The search was told to stop, or its time is over; raised inside it between two parts of its work."""


class Job:
    """A search that was asked for.

    Args:
        state: The position.
        allowed: Absolute ids of the moves to choose from, at least one unless there is a ``reply``.
        restricted: Whether they are fewer than all legal ones.
        go: The limits.
        time_limit: Of the move, from now on; None: no limit of time.
        multi_pv: How many variations to tell.
    """

    def __init__(
        self, state: Any, allowed: Sequence[int], *, restricted: bool, go: Go, time_limit: Budget | None, multi_pv: int
    ) -> None:
        self.state, self.allowed, self.restricted, self.go = state, list(allowed), restricted, go
        self.multi_pv = multi_pv
        self.time_limit = time_limit
        self.began = time.perf_counter()
        self.held = go.infinite or go.ponder
        """The answer waits for ``stop`` or ``ponderhit``."""
        self.pondering = go.ponder
        """The move that is pondered on has not been played yet."""
        self.best: Found | None = None
        self.reply: str | None = None
        """The answer, where it needs no search."""
        self.failure: str | None = None
        """What the policy raised last."""
        self.told: Found | None = None
        """What was told last, and when (``told_s`` after the beginning)."""
        self.told_s = 0.0
        self.answered = False
        self.released = False
        """The worker has left it."""
        self.changed = threading.Condition(threading.RLock())
        """Guards all that changes here; notified when it does."""
        self._stopped = False
        self._deadline: float | None = None
        self.hard_deadline: float | None = None
        """When the answer goes out, if there is one."""
        self.last_deadline: float | None = None
        """When an answer goes out, whatever has been found."""
        if time_limit is not None and not go.ponder:
            self._start_clock()

    def _start_clock(self) -> None:
        assert self.time_limit is not None
        now = time.perf_counter()
        limit = self.time_limit
        self._deadline, self.hard_deadline = now + limit.soft_s, now + limit.hard_s
        self.last_deadline = now + limit.last_s

    def restart_clock(self) -> None:
        """Count the time from now on: what came before was not the search's."""
        with self.changed:
            self.began = time.perf_counter()
            if self._deadline is not None:
                self._start_clock()

    def stop(self) -> None:
        """Ask for the answer now."""
        with self.changed:
            self._stopped, self.held = True, False
            self.changed.notify_all()

    def ponder_hit(self, time_limit: Budget | None = None) -> None:
        """The move that was pondered on has come: the clock runs from now on.

        Args:
            time_limit: Where the clock was told only now; None: that of ``go``.
        """
        with self.changed:
            self.held, self.pondering = self.go.infinite, False
            self.time_limit = time_limit or self.time_limit
            if self.time_limit is not None:
                self._start_clock()
            self.changed.notify_all()

    @property
    def is_timed(self) -> bool:
        """Whether a clock runs for it, now or after ``ponderhit``."""
        return self.time_limit is not None

    @property
    def is_unlimited(self) -> bool:
        """Whether the policy's own limits are the only ones: nobody will say stop, and no other limit was given."""
        return not (self.held or self.is_timed or self.go.nodes or self.go.depth)

    @property
    def is_over(self) -> bool:
        """Whether to stop: it was told to, or the time is over (with nothing in hand, all of it)."""
        return self._stopped or self._late()

    def _late(self) -> bool:
        limit = self.last_deadline if self.best is None else self._deadline
        return limit is not None and time.perf_counter() >= limit

    @property
    def stop_asked(self) -> bool:
        """Whether it was told to stop; a search that keeps the time itself asks no more."""
        return self._stopped

    def check(self) -> None:
        """Let a search go on, or not.

        Raises:
            SearchStopped: it shall stop.
        """
        if self.is_over:
            raise SearchStopped

    def check_in_hand(self) -> None:
        """As ``check``, but where no clock runs a search that has found nothing yet may go on after ``stop``.

        Raises:
            SearchStopped: it shall stop.
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
