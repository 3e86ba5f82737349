"""Paces a policy that decides in one go: a quick answer first where time is short, then as much effort as fits."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

from genpolicy.control import FREE, Control
from genpolicy.policies.base import Policy
from genpolicy.policies.thinking import Answer, Limits, Publish
from genpolicy_common.decisions import decided
from genpolicy_play.engine.search import Search, SearchStopped

CALL_MARGIN = 1.1
"""Of the measured time of a network call."""
SPREADS = 2.0
"""Mean deviations of a call's time that are kept free; on a shared machine they are as large as that time."""
LEARNING_RATE = 0.3
"""Of the measured time of a call and of its deviation."""
FORGETS = 0.97
"""Factor on the measured time of a call, and on its deviation, at each move without one."""
MAX_MADE = 256
"""Policies of other efforts that are kept."""


class _Pace:
    """Wall time of a network call with all that belongs to it, and its mean deviation; 0 before the first one."""

    def __init__(self) -> None:
        self.call_s = self.spread_s = 0.0

    def learn(self, took_s: float) -> None:
        """Adjust both to a call that took so long."""
        if self.call_s:
            self.spread_s += LEARNING_RATE * (abs(took_s - self.call_s) - self.spread_s)
        self.call_s += (LEARNING_RATE if self.call_s else 1.0) * (took_s - self.call_s)

    def forget(self) -> None:
        """Expect a little less, where no call was made: the machine may be faster again."""
        self.call_s, self.spread_s = FORGETS * self.call_s, FORGETS * self.spread_s

    def num_fitting(self, remaining_s: float) -> int:
        """Calls that can be made in so many seconds."""
        return int(max(0.0, remaining_s - SPREADS * self.spread_s) / (CALL_MARGIN * self.call_s))


class Pacer:
    """A thinker for a policy that has none of its own; it measures network calls and makes as many as fit.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        quick = policy.with_effort(calls=1)
        self._quick = None if quick is policy else quick
        self._scales = policy.num_calls > 1 and policy.with_effort(calls=2) is not policy
        self._made: dict[tuple[int | None, int | None], Policy] = {}
        # A quick call has one row; those of a search or of several futures have many, and take several times as long.
        self._quick_pace, self._pace = _Pace(), _Pace()

    def think(self, state: Any, limits: Limits, publish: Publish, *, control: Control = FREE) -> None:
        """See ``Thinker``; the limits are the engine's, and so is the control."""
        search = cast(Search, limits)
        calls = limits.nodes
        nodes = 0
        if self._quick is not None and (limits.is_timed or calls == 1):
            nodes = self._decide(self._quick, search, publish, search.control(patient=True))
            if calls == 1:
                return
        remaining = limits.remaining_s()
        pace = self._pace if self._pace.call_s else self._quick_pace
        if remaining is not None and pace.call_s and self._scales:
            fitting = pace.num_fitting(remaining)
            if fitting < (calls or self._policy.num_calls):
                calls = max(1, fitting)
                if search.best is not None and self._is_quick(self._with_effort(calls, limits.depth)):
                    self._pace.forget()
                    return
        policy = self._with_effort(calls, limits.depth)
        try:
            self._decide(policy, search, publish, search.control(patient=self._quick is None), nodes)
        except SearchStopped:
            if search.best is not None or self._quick is None or limits.is_timed or search.pondering:
                raise
            # Stopped without an answer: one call takes no noticeable time.
            self._decide(self._quick, search, publish, Control(restrict=control.restrict))

    def _with_effort(self, calls: int | None, plies: int | None) -> Policy:
        if (calls, plies) not in self._made:
            if len(self._made) > MAX_MADE:
                self._made.clear()
            self._made[calls, plies] = self._policy.with_effort(calls=calls, plies=plies)
        return self._made[calls, plies]

    def _is_quick(self, policy: Policy) -> bool:
        """Whether a policy makes no more calls than the quick one."""
        return self._quick is not None and policy.num_calls <= self._quick.num_calls

    def _decide(self, policy: Policy, search: Search, publish: Publish, control: Control, nodes: int = 0) -> int:
        """Decide and publish.

        Args:
            policy: The policy, or what it is with another effort.
            search: The position and its limits.
            publish: Receives the answer.
            control: Control of the decision.
            nodes: Network calls before.

        Returns:
            The network calls that it took.
        """
        began = time.perf_counter()
        pace = self._quick_pace if self._is_quick(policy) else self._pace
        try:
            decision = decided(policy, search.state, control)
        except SearchStopped:
            least = (time.perf_counter() - began) / policy.num_calls
            if least > max(self._pace.call_s, self._quick_pace.call_s):  # to its end it would have taken longer still
                pace.call_s = least
            raise
        calls = int(decision.stats.get("network_calls", 0))
        if calls:
            pace.learn((time.perf_counter() - began) / calls)
        nodes += calls or int(decision.stats.get("nodes", 0))
        answer = Answer.of(decision, nodes, search.num_variations)
        # Without a network nothing is imagined: the boards of an engine's line are the rules' own.
        publish(answer if calls else replace(answer, imagined=(), states=()))
        return calls
