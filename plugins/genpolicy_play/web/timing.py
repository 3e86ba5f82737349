"""Decisions under a clock: as the policy is set where its time allows that, else with less effort.

The page is the arbiter: it alone knows when a person's turn begins, and the server keeps no games. A request says what
the clock shows, and the policy's share of it is the one that the UCI and USI server takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from genpolicy.control import Control
from genpolicy.policies.base import Decision, Policy
from genpolicy.policies.dream import Dream, OnStep
from genpolicy.policies.thinking import Answer, Thinker
from genpolicy_play.engine.protocol import Go
from genpolicy_play.engine.search import DEFAULT_OVERHEAD_MS, Budget, Search, SearchStopped, make_budget
from genpolicy_play.web.requests import Fields, RequestError

MAX_CLOCK_MS = 24 * 3600 * 1000
FORGETS = 0.9
"""Factor on the time that a whole decision took, at each one with less effort: the machine may be faster again."""


class _TimeIsOver(Exception):
    """The decision as set does not fit into its time."""


class _AsSet(Search):
    """A search under a clock for which the policy's own settings are the most effort."""

    @property
    def is_own(self) -> bool:
        """Always."""
        return True


def read_clock(fields: Fields) -> Go | None:
    """What the clock of a request shows: ``{"left": ms, "increment": ms, "byoyomi": ms}`` for the player to move.

    Returns:
        None where the game has no clock.

    Raises:
        RequestError: malformed, or out of range.
    """
    sent = fields.mapping("clock")
    if not sent:
        return None
    clock = Fields(sent, ("left", "increment", "byoyomi"))
    left, increment, byoyomi = (clock.whole(name, 0, MAX_CLOCK_MS) for name in ("left", "increment", "byoyomi"))
    if left is None:
        raise RequestError("field 'clock' needs 'left', the milliseconds that the player to move has")
    return Go(time_left=(left, left), increment=(increment or 0, increment or 0), byoyomi=byoyomi or None)


class Timing:
    """What the decisions of a policy took, and those that have to fit into a clock.

    Args:
        now: Seconds, of a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._took: WeakKeyDictionary[Policy, float] = WeakKeyDictionary()
        """Seconds of the last whole decision, or an estimate from the part of it that was made."""

    def dream(
        self, policy: Policy, state: Any, go: Go, on_step: OnStep, check: Callable[[], None], began: float | None = None
    ) -> Dream:
        """The policy's decision within its time.

        A policy that improves its answer for as long as it is given (a search) does so, until it is as good as it is
        set to or its share of the clock is over. Another decides as it is set where that took less than the share
        before, and otherwise with as many network calls as fit, or as it is set if it can do neither.

        Args:
            policy: The policy.
            state: A position in which the player to move has a legal move.
            go: What the clock shows.
            on_step: Receives the steps.
            check: Ends the decision for other reasons.
            began: When the time began; None takes now.
        """
        began = self._now() if began is None else began
        budget = make_budget(go, 0, DEFAULT_OVERHEAD_MS)
        thinker, quick = policy.thinker(), policy.with_effort(calls=1)
        if budget is None or (thinker is None and quick is policy):
            return policy.dream(state, on_step, control=Control(check))
        if thinker is not None:
            return self._thought(policy, thinker, state, go, check, _rest(budget, self._now() - began))
        end = began + budget.soft_s
        expected, left = self._took.get(policy, 0.0), end - self._now()
        if expected < left:
            return self._whole(policy, state, on_step, check, end)
        self._took[policy] = FORGETS * expected
        calls = max(1, int(policy.num_calls * left / expected)) if left > 0 else 1
        return policy.with_effort(calls=calls).dream(state, on_step, control=Control(check))

    def _whole(self, policy: Policy, state: Any, on_step: OnStep, check: Callable[[], None], end: float) -> Dream:
        """The policy's decision as it is set; where that is not made by ``end``, the one of the least effort."""
        began, num_checks, num_quick_checks = self._now(), 0, 0

        def check_time() -> None:
            nonlocal num_checks
            check()
            if self._now() >= end:
                raise _TimeIsOver
            num_checks += 1

        def count() -> None:
            nonlocal num_quick_checks
            check()
            num_quick_checks += 1

        with suppress(_TimeIsOver):
            dream = policy.dream(state, on_step, control=Control(check_time))
            self._took[policy] = self._now() - began
            return dream
        spent = self._now() - began
        quick = policy.with_effort(calls=1)
        dream = quick.dream(state, on_step, control=Control(count))
        # A call makes as many checks as its network has parts: how many, the quick decision tells.
        of_all = policy.num_calls * num_quick_checks / quick.num_calls
        self._took[policy] = spent * max(1.0, of_all / max(1, num_checks))
        return dream

    def _thought(
        self, policy: Policy, thinker: Thinker, state: Any, go: Go, check: Callable[[], None], budget: Budget
    ) -> Dream:
        game = policy.game
        legal = [int(move) for move in game.legal(state)]
        search: Search = _AsSet(state, legal, go=go, budget=budget)

        def check_both() -> None:
            check()
            search.check()

        def publish(answer: Answer) -> None:
            search.best = answer

        with suppress(SearchStopped):
            thinker.think(state, search, publish, control=Control(check_both))
        if search.best is None:  # no time at all, or a policy that stops before its first answer
            search = Search(state, legal, go=Go(nodes=1))
            thinker.think(state, search, publish, control=Control(check))
        if search.best is None:
            return policy.with_effort(calls=1).dream(state, control=Control(check))
        return Dream(state, game.player(state), None, (), decision_of(search.best))


def _rest(budget: Budget, spent_s: float) -> Budget:
    """What is left of a budget."""
    return Budget(*(max(0.0, each - spent_s) for each in (budget.soft_s, budget.hard_s, budget.last_s)))


def decision_of(answer: Answer) -> Decision:
    """The decision that an answer stands for."""
    first = answer.variations[0]
    stats = {"nodes": float(answer.nodes), **({} if answer.depth is None else {"depth": float(answer.depth)})}
    return Decision(
        answer.move,
        value=first.value,
        line=first.line,
        states=answer.states if answer.imagined[:1] == first.line[:1] else (),
        variations=answer.variations,
        stats=stats,
        wdl=first.wdl,
    )
