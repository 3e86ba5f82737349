"""Tree search under limits: simulations in parts, until a limit is reached."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from genpolicy.control import FREE, Control
from genpolicy.policies.base import decide_with
from genpolicy.policies.seeds import RowSeeds
from genpolicy.policies.thinking import Answer, Limits, Publish
from genpolicy_mcts.mcts import Mcts, SearchResult
from genpolicy_mcts.reuse import KeptTrees
from genpolicy_mcts.rules import RulesModel

if TYPE_CHECKING:
    from genpolicy_mcts.policy import MctsPolicy

PART_S = 0.02
"""Length of a part, by which an answer may be late."""
MAX_NODES = 300_000
"""Of a tree, some 1 GB of positions with long histories."""
MAX_REVISITS = 10
"""Simulations per node asked for, or of the tree, after which a search that visits ended games alone is over."""
LEARNING_RATE = 0.3
"""Of the measured time of a simulation."""


class TreeThinker:
    """Runs a ``MctsPolicy``'s simulations in parts: the configured number, or under a clock as many as fit.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: MctsPolicy) -> None:
        self._policy = policy
        self._seeds = RowSeeds(policy.seeds.seed)
        self._kept = KeptTrees(policy.game, policy.model)
        self._simulation_s = 0.0

    def think(self, state: Any, limits: Limits, publish: Publish, *, control: Control = FREE) -> None:
        """See ``Thinker``."""
        policy = self._policy
        (seed,) = self._seeds.draw([policy.game.format(state)])
        model = policy.model.for_search(policy.seeds.seed, control.check)
        num_calls = model.network_calls
        reuse = policy.reuse and control.restrict is None
        tree = self._kept.find(state) if reuse else None
        if limits.is_timed or limits.is_endless:
            self._answer_first(state, limits, publish, control)
        whole = None  # the tree, while no part of its search is under way
        done = 0
        try:
            # The target may change while it runs: once the opponent has moved, the policy's own number may hold.
            while done < (target := self._target(limits)):
                control.check()
                part = min(self._part(limits, done), target - done)
                config = dataclasses.replace(
                    policy.config,
                    simulations=target,
                    noise_fraction=policy.config.noise_fraction if done == 0 else 0.0,  # mixed in once
                )
                began, whole = time.perf_counter(), None
                search, planned = Mcts(model, config), policy.config.simulations
                (result,) = search.search([state], [seed], [tree], planned=planned, until=done + part, control=control)
                whole = tree = result.tree
                added = max(1, result.simulations - done)
                done = result.simulations
                self._measure((time.perf_counter() - began) / added)
                nodes = model.network_calls - num_calls or result.evaluations
                is_over = len(tree) > MAX_NODES or (policy.config.early_stop and tree.decided(target - done))
                is_over |= limits.nodes is not None and nodes >= limits.nodes
                if limits.depth is not None:
                    is_over |= result.depth >= limits.depth
                    is_over |= done >= MAX_REVISITS * max(policy.config.simulations, len(tree))
                publish(self._answer(result, seed, nodes, limits.num_variations))
                if is_over:
                    break
        finally:
            if reuse and whole is not None:
                self._kept.add([whole])

    def _answer_first(self, state: Any, limits: Limits, publish: Publish, control: Control) -> None:
        """Publish the prior's own move, by one network call where it can: the search may end before it gets far."""
        prior = self._policy.prior
        if prior is not None:
            decision = decide_with(prior.with_effort(calls=1), [state], control)[0]
            publish(Answer.of(decision, int(decision.stats.get("network_calls", 0)), limits.num_variations))

    def _target(self, limits: Limits) -> int:
        """Simulations after which the search is over at the latest."""
        policy = self._policy
        # Gumbel's search divides its simulations beforehand.
        if limits.is_own or (policy.capped and limits.is_timed) or policy.config.root == "gumbel":
            return policy.config.simulations
        most = 10 * MAX_NODES
        if limits.nodes is not None:
            most = min(most, max(policy.config.simulations, MAX_REVISITS * limits.nodes * policy.config.num_leaves))
        return most

    def _part(self, limits: Limits, done: int) -> int:
        """Simulations of the next part."""
        leaves = self._policy.config.num_leaves
        remaining = limits.remaining_s()
        if not self._simulation_s:
            return leaves if remaining is None else 1
        span = PART_S if remaining is None else min(PART_S, remaining)
        number = max(1, int(span / self._simulation_s))
        if remaining is not None and number < leaves and remaining > 2 * leaves * self._simulation_s:
            return leaves  # slow networks gain most by a full batch, and there is time for one
        if limits.nodes is not None or limits.depth is not None:
            number = leaves  # these limits mean the same on every machine
        elif not limits.is_timed and not limits.is_endless:
            number = max(number, leaves)
        return max(leaves if number >= leaves else 1, number // leaves * leaves)

    def _measure(self, simulation_s: float) -> None:
        self._simulation_s += (LEARNING_RATE if self._simulation_s else 1.0) * (simulation_s - self._simulation_s)

    def _answer(self, result: SearchResult, seed: int, nodes: int, num_variations: int) -> Answer:
        move = self._policy.chosen(result, seed)
        variations = self._policy.variations(result, move, num_variations)
        if isinstance(self._policy.model, RulesModel):
            return Answer(variations, nodes, result.depth)
        line, states = result.line_from(move)
        return Answer(variations, nodes, result.depth, line, self._policy.texts(result, states))
