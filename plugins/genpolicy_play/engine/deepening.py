"""Alpha-beta under the limits of a ``go``: one ply deeper at a time, until a limit is reached."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

from genpolicy.policies.alphabeta import AlphaBetaPolicy
from genpolicy.policies.base import Policy
from genpolicy.search.alphabeta import AlphaBeta, SearchResult
from genpolicy_play.engine.answer import Answer, Variation
from genpolicy_play.engine.search import Search, SearchStopped
from genpolicy_play.engine.searchers import Publish


class DeepeningSearcher:
    """Runs an ``alphabeta`` policy's search depth by depth; a bare ``go`` is one search under the policy's own limits.

    Args:
        policy: An ``AlphaBetaPolicy``.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = cast(AlphaBetaPolicy, policy)

    def run(self, job: Search, publish: Publish) -> None:
        """See ``Searcher``."""
        go = job.go
        only = job.allowed if job.restricted else None
        search = self._watched(job)
        if job.is_unlimited:
            found = search.search(job.state, only=only)
            publish(self._found(found, found.nodes))
            return
        # A limit of the spelling stays one; the 20,000 nodes without any are for a search without another limit.
        search.nodes = search.movetime_ms = None
        most = min(go.depth or 1000, self.policy.search.depth or 1000)
        nodes, reached = 0, -1
        for depth in range(1, most + 1):
            search.depth = depth
            if go.nodes is not None:
                if nodes >= go.nodes:
                    return
                search.nodes = go.nodes - nodes
            if (remaining := job.remaining_s()) is not None:
                search.movetime_ms = max(1.0, 1e3 * remaining)
            found = search.search(job.state, only=only, fresh=depth == 1)
            nodes += found.nodes
            if found.depth >= reached:
                reached = found.depth
                publish(self._found(found, nodes))
            if found.exact or found.depth < depth or job.is_over or job.is_unlimited:
                return

    def _watched(self, job: Search) -> AlphaBeta:
        """A search of its own that ends when the job is stopped."""
        search = copy.copy(self.policy.search)
        search.evaluator = _checked(search.evaluator, job)
        if search.comparator is not None:
            search.comparator = _checked(search.comparator, job)
        return search

    @staticmethod
    def _found(found: SearchResult, nodes: int) -> Answer:
        plies = found.plies_to_end
        mate = None if not plies else plies if (found.value or 0.0) > 0 else -plies
        return Answer((Variation(found.line, found.value, mate),), nodes, max(1, found.depth))


def _checked(call: Callable[..., Any], job: Search) -> Callable[..., Any]:
    def checked(*arguments: Any) -> Any:
        if job.is_stopped:
            job.check()
        if job.is_unlimited and job.best is not None:
            raise SearchStopped  # a ponder hit without a clock: what was found while pondering is enough
        return call(*arguments)

    return checked
