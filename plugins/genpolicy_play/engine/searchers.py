"""How each family of policies searches under the limits of a ``go``: in parts that can be stopped and timed.

A searcher publishes what it found as soon as there is something to play, then something better; whoever waits for the
answer takes what was published last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from genpolicy.policies.base import Decision, Policy
from genpolicy_play.engine.answer import Answer, answer_of
from genpolicy_play.engine.search import Search, SearchStopped
from genpolicy_play.engine.watching import restricted, watched

Publish = Callable[[Answer], None]
STEP_MARGIN = 1.1  # of the measured time of a network call
SPREADS = 2.0  # kept free: mean deviations of a call's time, which on a shared machine are as large as that time
LEARNING_RATE = 0.3  # of the time of a call and of its deviation, as they are measured anew


class Searcher(Protocol):
    """Answers a search."""

    @property
    def policy(self) -> Policy:
        """Whose answers they are."""
        ...

    def run(self, search: Search, publish: Publish) -> None:
        """Publish at least one answer, unless it is stopped before.

        Raises:
            SearchStopped: the search was stopped, or its time is over.
            ValueError: the policy cannot decide here.
        """


def make_searcher(policy: Policy, *, capped: bool) -> Searcher:
    """The searcher of a policy's family.

    Args:
        policy: What plays.
        capped: A tree search makes no more simulations than it is set to, also under a clock.
    """
    if policy.kind == "mcts":
        from genpolicy_play.engine.tree_search import TreeSearcher

        return TreeSearcher(policy, capped=capped)
    if policy.kind == "alphabeta":
        from genpolicy_play.engine.deepening import DeepeningSearcher

        return DeepeningSearcher(policy)
    return DecisionSearcher(policy)


class DecisionSearcher:
    """A policy that decides by one call of ``decide``: a quick answer first where time is short, then the full one.

    The time of a network call is measured, and as many of them are made as fit.

    Args:
        policy: What plays.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._names = type(policy).option_names()
        modes = policy.modes()
        quick = modes.get("one_call")
        self._quick: Policy | None = None if len(modes) < 2 else quick
        self._fewer: dict[tuple[tuple[str, int], ...], Policy] = {(): policy}
        self._call_s = self._spread_s = 0.0
        """Wall time of a network call with all that belongs to it, and its mean deviation."""

    def run(self, search: Search, publish: Publish) -> None:
        """See ``Searcher``."""
        nodes = 0
        wanted = self._wanted(search)
        if self._quick is not None and (search.is_timed or wanted.get("num_steps") == 1):
            with watched(self._quick, search.check_unless_empty):
                nodes += self._decide(self._quick, search, publish, nodes)
            if wanted.get("num_steps") == 1:
                return
        remaining = search.remaining_s()
        if remaining is not None and self._call_s:
            fitting = int(max(0.0, remaining - SPREADS * self._spread_s) / (STEP_MARGIN * self._call_s))
            full = wanted.get("num_steps") or self._num_steps(self.policy)
            if "num_steps" in self._names and fitting < full:
                if fitting < 2 and search.best is not None:
                    return
                wanted["num_steps"] = max(1, fitting)
        policy = self._made(wanted)
        try:
            with watched(policy, search.check_unless_empty if self._quick is None else search.check):
                self._decide(policy, search, publish, nodes)
        except SearchStopped:
            if search.best is None and self._quick is not None and not (search.is_timed or search.pondering):
                self._decide(self._quick, search, publish, nodes)  # stopped with nothing in hand: one call is no delay
                return
            raise

    def _wanted(self, search: Search) -> dict[str, int]:
        """Options that the limits ask for."""
        wanted = {}
        if search.go.nodes is not None and (
            "num_steps" in self._names or (self._quick is not None and search.go.nodes == 1)
        ):
            wanted["num_steps"] = search.go.nodes
        if search.go.depth is not None and "horizon" in self._names:
            wanted["horizon"] = search.go.depth
        return wanted

    def _made(self, wanted: dict[str, int]) -> Policy:
        """The policy with other options, kept; a limit beyond what it takes is the most that it takes."""
        if "num_steps" not in self._names:
            wanted.pop("num_steps", None)
        key = tuple(sorted(wanted.items()))
        if key in self._fewer:
            return self._fewer[key]
        fitting = dict(wanted)
        learner: Any = getattr(self.policy, "learner", None)
        if "horizon" in fitting and learner is not None:
            fitting["horizon"] = min(fitting["horizon"], int(getattr(learner.config, "horizon", fitting["horizon"])))
        most = getattr(getattr(learner, "process", None), "num_timesteps", None)
        if "num_steps" in fitting and most is not None:
            fitting["num_steps"] = min(fitting["num_steps"], int(most))
        made = self.policy.with_options(**fitting)
        if len(self._fewer) > 256:
            self._fewer = {(): self.policy}
        self._fewer[key] = made
        return made

    @staticmethod
    def _num_steps(policy: Policy) -> int:
        """Network calls of a decision as it is set; 1 where the policy does not say."""
        number = getattr(policy, "num_calls", None) or getattr(policy, "num_steps", None)
        return int(number) if number else 1

    def _decide(self, policy: Policy, search: Search, publish: Publish, nodes: int) -> int:
        """Decide and publish; the network calls that it took."""
        began = time.perf_counter()
        chosen = restricted(policy, search.state, search.allowed) if search.restricted else policy
        decision = chosen.decide([search.state])[0]
        if decision.move not in search.allowed:  # a policy that asks no game for its legal moves
            decision = self._best_after(policy, search, decision)
        calls = int(decision.stats.get("network_calls", 0))
        if calls:
            took = (time.perf_counter() - began) / calls
            if self._call_s:
                self._spread_s += LEARNING_RATE * (abs(took - self._call_s) - self._spread_s)
            self._call_s += (LEARNING_RATE if self._call_s else 1.0) * (took - self._call_s)
        publish(answer_of(decision, nodes + (calls or int(decision.stats.get("nodes", 0))), search.num_variations))
        return calls

    def _best_after(self, policy: Policy, search: Search, decision: Decision) -> Decision:
        """The allowed move that is best by the policy's probabilities, else by its value of what follows."""
        allowed = search.allowed
        if decision.policy is not None and any(decision.policy.get(move, 0.0) > 0 for move in allowed):
            chances = {move: decision.policy.get(move, 0.0) for move in allowed}
            return Decision(max(allowed, key=lambda move: chances[move]), policy=chances, stats=decision.stats)
        game = policy.game
        worth: dict[int, float] = {}
        for move in allowed:
            search.check()
            after = game.play(search.state, move)
            result = game.outcome(after)
            if result is None:
                result = policy.decide([after])[0].value
            worth[move] = 0.0 if result is None else -result
        best = max(allowed, key=lambda move: worth[move])
        return Decision(best, value=worth[best], line=(best,), stats=decision.stats)
