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
MAX_MADE = 256
"""Policies of other efforts that are kept."""


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
        self._call_s = self._spread_s = 0.0
        """Wall time of a network call with all that belongs to it, and its mean deviation."""

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
        if remaining is not None and self._call_s and self._scales:
            fitting = int(max(0.0, remaining - SPREADS * self._spread_s) / (CALL_MARGIN * self._call_s))
            if fitting < (calls or self._policy.num_calls):
                if fitting < 2 and search.best is not None:
                    return
                calls = max(1, fitting)
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
        decision = decided(policy, search.state, control)
        calls = int(decision.stats.get("network_calls", 0))
        if calls:
            took = (time.perf_counter() - began) / calls
            if self._call_s:
                self._spread_s += LEARNING_RATE * (abs(took - self._call_s) - self._spread_s)
            self._call_s += (LEARNING_RATE if self._call_s else 1.0) * (took - self._call_s)
        nodes += calls or int(decision.stats.get("nodes", 0))
        answer = Answer.of(decision, nodes, search.num_variations)
        # Without a network nothing is imagined: the boards of an engine's line are the rules' own.
        publish(answer if calls else replace(answer, imagined=(), states=()))
        return calls
