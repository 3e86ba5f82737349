"""A tree search under the limits of a ``go``: simulations in parts, until a limit is reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from genpolicy.policies.base import Policy
from genpolicy.policies.mcts import MctsPolicy
from genpolicy.policies.seeds import RowSeeds
from genpolicy.search.mcts import Mcts, SearchResult
from genpolicy.search.model import Evaluator, Prior, RulesModel
from genpolicy.search.reuse import KeptTrees
from genpolicy_play.engine.answer import Answer, Variation, answer_of
from genpolicy_play.engine.search import Search
from genpolicy_play.engine.searchers import Publish
from genpolicy_play.engine.watching import restricted, restricted_game, watched

PART_S = 0.02  # how long a part should take: by so much an answer may be late
MAX_NODES = 300_000  # of a tree; some 1 GB of positions with long pasts


class TreeSearcher:
    """Runs the simulations of a ``mcts`` policy in parts.

    Without a limit in ``go`` the policy's own number of simulations is made, under a clock as many as fit.

    Args:
        policy: A ``MctsPolicy``.
        capped: No more simulations than the policy is set to, also under a clock.
    """

    def __init__(self, policy: Policy, *, capped: bool) -> None:
        self.policy = cast(MctsPolicy, policy)
        self._capped = capped
        self._seeds = RowSeeds(self.policy.evaluator.seed)
        self._kept = KeptTrees(policy.game)
        self._simulation_s = 0.0

    def run(self, search: Search, publish: Publish) -> None:
        """See ``Searcher``."""
        policy, go = self.policy, search.go
        (seed,) = self._seeds.draw([policy.game.format(search.state)])
        evaluator: Evaluator = policy.evaluator
        game: Any = policy.game
        if search.restricted:
            evaluator = _at_root(evaluator, search.state, search.allowed)
            game = restricted_game(game, search.state, search.allowed)
        model = RulesModel(game, evaluator)
        tree = self._kept.find(search.state) if policy.reuse and not search.restricted else None
        if search.is_timed:
            self._first_answer(search, publish)
        calls = policy.evaluator.network_calls
        done = 0
        # A ponder hit without a clock leaves the policy's own number of simulations as the limit.
        while done < (target := self._target(search)):
            part = min(self._part(search, done), target - done)
            # Noise is mixed in once; whether the search may end early is for the whole of it to say.
            config = dataclasses.replace(
                policy.config,
                simulations=done + part,
                early_stop=False,
                noise_fraction=policy.config.noise_fraction if done == 0 else 0.0,
            )
            began = search.elapsed_s()
            with watched(policy, search.check):
                (result,) = Mcts(model, config).search([search.state], [seed], [tree])
            tree = result.tree
            added = max(1, result.simulations - done)
            done = result.simulations
            self._measure((search.elapsed_s() - began) / added)
            nodes = policy.evaluator.network_calls - calls or result.evaluations
            over = len(tree) > MAX_NODES or (policy.config.early_stop and tree.decided(target - done))
            over |= go.nodes is not None and nodes >= go.nodes
            over |= go.depth is not None and result.depth >= go.depth
            publish(self._found(result, seed, nodes, search.num_variations))
            if over or search.is_over:
                break
        if policy.reuse and not search.restricted and tree is not None:
            self._kept.add([tree])

    def _first_answer(self, search: Search, publish: Publish) -> None:
        """The prior's own move, by one network call where it has such a way: a search may not get far in its time."""
        prior = self.policy.evaluator.prior
        if prior is None:
            return
        quick = prior.modes().get("one_call", prior)
        chosen = restricted(quick, search.state, search.allowed) if search.restricted else quick
        with watched(quick, search.check_unless_empty):
            decision = chosen.decide([search.state])[0]
        if decision.move in search.allowed:
            publish(answer_of(decision, int(decision.stats.get("network_calls", 0)), search.num_variations))

    def _target(self, search: Search) -> int:
        """Simulations after which the search is over at the latest."""
        if search.is_unlimited or (self._capped and search.is_timed):
            return self.policy.config.simulations
        return 10 * MAX_NODES

    def _part(self, search: Search, done: int) -> int:
        """Simulations of the next part."""
        leaves = self.policy.config.leaves
        remaining = search.remaining_s()
        if not self._simulation_s:
            return leaves if remaining is None else 1
        span = PART_S if remaining is None else min(PART_S, remaining)
        number = max(1, int(span / self._simulation_s))
        if remaining is not None and number < leaves and remaining > 2 * leaves * self._simulation_s:
            return leaves  # slow networks gain most by a full batch, and there is time for one
        if search.go.nodes is not None:
            # A limit in nodes means the same on every machine.
            number = leaves
        elif not search.is_timed and not search.go.infinite and not search.go.ponder:
            number = max(number, leaves)
        return max(leaves if number >= leaves else 1, number // leaves * leaves)

    def _measure(self, simulation_s: float) -> None:
        self._simulation_s += (0.3 if self._simulation_s else 1.0) * (simulation_s - self._simulation_s)

    def _found(self, result: SearchResult, seed: int, nodes: int, multi_pv: int) -> Answer:
        move = result.choice
        if self.policy.temperature > 0:
            shares = result.distribution(self.policy.tau * self.policy.temperature)
            move = int(np.random.default_rng([seed, 1]).choice(list(shares), p=list(shares.values())))
        ranked = sorted(result.q, key=lambda each: (each != move, -result.visits[each], -result.q[each]))
        variations = []
        for choice in ranked[:multi_pv]:
            value = min(1.0, max(-1.0, result.q[choice]))
            variations.append(Variation(result.line_from(choice)[0], value))
        line, states = result.line_from(move)
        texts = tuple(self.policy.game.format(state) for state in states)
        return Answer(tuple(variations), nodes, result.depth, line, texts)


def _at_root(evaluator: Evaluator, root: Any, allowed: Sequence[int]) -> Evaluator:
    """The evaluator with no prior at one position but for some of its moves."""

    def evaluate(states: Sequence[Any]) -> tuple[Sequence[Prior], Sequence[float]]:
        priors, values = evaluator(states)
        return [_only(p, allowed) if s is root else p for s, p in zip(states, priors, strict=True)], values

    return evaluate


def _only(prior: Prior, allowed: Sequence[int]) -> Prior:
    if not isinstance(prior, Mapping):
        return None
    total = sum(prior.get(move, 0.0) for move in allowed)
    return {move: prior.get(move, 0.0) / total for move in allowed} if total > 0 else None
