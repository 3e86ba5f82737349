"""Gumbel search: a policy improvement with few simulations, and the policy that it improves to.

At the root a few choices are drawn without replacement by the Gumbel-top-k trick, and Sequential Halving divides the
simulations among them; below it a node's visits follow its improved policy. A choice that was not visited counts as
the node's mixed value. (Danihelka, Guez, Schrittwieser and Silver 2022, "Policy improvement by planning with Gumbel".
The formulas here were read in the code of mctx, google-deepmind/mctx, by the same authors, and its recorded trees are
reproduced in ``tests/search``.)

With the prior pi, the visits N, the worth q of the visited choices and the node's own value v:

    mixed value      v_mix = (v + sum N * (sum of pi q / sum of pi, over visited choices)) / (1 + sum N)
    completed worth  q^ = q where visited, else v_mix; with ``rescale`` moved to [0, 1] by its least and its greatest
    transformed      sigma(q^) = (maxvisit_init + max N) * value_scale * q^
    improved policy  softmax(log pi + sigma(q^))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from genpolicy_mcts.selection import LEAST_SPAN, MctsConfig
from genpolicy_mcts.tree import Tree

LEAST_PRIOR = 1e-38
"""A choice without prior has this one in logarithms."""


@lru_cache(maxsize=256)
def considered_visits(num_considered: int, simulations: int) -> tuple[int, ...]:
    """How often the choice of each simulation at the root was visited before, by Sequential Halving.

    The choices under consideration are visited in turn, equally often in each round, and each round keeps half of them.

    Args:
        num_considered: Choices that the first round considers, at least 1.
        simulations: Length of the sequence.
    """
    if num_considered <= 1:
        return tuple(range(simulations))
    num_rounds = math.ceil(math.log2(num_considered))
    visits, remaining = [0] * num_considered, num_considered
    sequence: list[int] = []
    while len(sequence) < simulations:
        for _ in range(max(1, simulations // (num_rounds * remaining))):
            sequence += visits[:remaining]
            visits[:remaining] = [count + 1 for count in visits[:remaining]]
        remaining = max(2, remaining // 2)
    return tuple(sequence[:simulations])


def root_noise(ids: Sequence[int], scale: float, seed: int) -> dict[int, float]:
    """Gumbel noise of the root's choices; it depends on the seed and the ids, and not on their order or priors."""
    ids = sorted(ids)
    draws = np.random.default_rng(seed).gumbel(size=len(ids)) if scale > 0 else np.zeros(len(ids))
    return dict(zip(ids, (scale * draws).tolist(), strict=True))


@dataclass(frozen=True)
class Gumbel:
    """The rule by which players choose in one tree (see ``genpolicy_mcts.selection.Rule``).

    Args:
        config: Its constants.
        noise: Of each of the root's choices.
        simulations: Of the whole search: Sequential Halving divides them, so it has to know.
    """

    config: MctsConfig
    noise: Mapping[int, float]
    simulations: int

    @classmethod
    def begin(cls, tree: Tree, config: MctsConfig, simulations: int, seed: int) -> Gumbel:
        """The rule of a tree whose search begins or goes on; its root's choices are put in the order of the noise.

        Raises:
            ValueError: the tree has visits of another search.
        """
        if tree.simulations != tree.visits[0] - 1:
            raise ValueError("root=gumbel plans all visits of a tree, and this one was kept from another search")
        ids = tree.ids[0]
        assert ids is not None
        noise = root_noise(ids.tolist(), config.gumbel_scale, seed)
        tree.sort_root(np.array([noise[choice] for choice in ids.tolist()]) + _logits(tree))
        return cls(config, noise, simulations)

    def __call__(self, tree: Tree, node: int, children: list[int]) -> int:
        """The child that the plan asks for at the root, or that is most behind the improved policy below it."""
        return self._planned(tree, children) if node == 0 else self._improving(tree, node, children)

    def choice(self, tree: Tree) -> int:
        """Of the root's most visited children the one that the search chooses."""
        children = tree.children[0] or []
        most = max(tree.counts[child] for child in children)
        return self._best(tree, children, most)

    def _planned(self, tree: Tree, children: list[int]) -> int:
        ids = tree.ids[0]
        assert ids is not None
        plan = considered_visits(min(self.config.num_considered, len(ids)), self.simulations)
        visits = plan[tree.visits[0] - 1]  # the root's own evaluation is its first visit
        if visits == 0:
            prior = tree.next_prior(0, children)
            assert prior is not None
            return tree.add_child(0, children, prior)
        return self._best(tree, children, visits)

    def _best(self, tree: Tree, children: list[int], visits: float) -> int:
        """The child of the best noisy, improved logit among those with so many visits."""
        transformed, _ = _transformed(tree, 0, children, self.config)
        best, best_score = -1, -math.inf
        for child, sigma in zip(children, transformed, strict=True):
            if tree.counts[child] == visits:
                logit = math.log(max(LEAST_PRIOR, tree.edge_priors[child]))
                score = self.noise[tree.actions[child]] + logit + sigma
                if score > best_score:
                    best, best_score = child, score
        return best

    def _improving(self, tree: Tree, node: int, children: list[int]) -> int:
        """The child of the greatest improved probability less its share of the visits.

        Choices that were not visited have the same transformed worth, so the one of the highest prior stands for them.
        """
        counts, edge_priors = tree.counts, tree.edge_priors
        transformed, other = _transformed(tree, node, children, self.config)
        prior = tree.next_prior(node, children)
        top = max(transformed if prior is None else [*transformed, other])
        weights = [
            max(LEAST_PRIOR, edge_priors[c]) * math.exp(s - top) for c, s in zip(children, transformed, strict=True)
        ]
        rest = 0.0 if prior is None else math.exp(other - top)
        total = sum(weights) + rest * tree.untried_prior(node, children) or 1.0
        visits = 1.0 + sum(counts[child] for child in children)
        best, best_score = -1, -math.inf
        for child, weight in zip(children, weights, strict=True):
            score = weight / total - counts[child] / visits
            if score > best_score:
                best, best_score = child, score
        if prior is not None and rest * max(LEAST_PRIOR, prior) / total > best_score:
            return tree.add_child(node, children, prior)
        return best


def improved_policy(tree: Tree, config: MctsConfig) -> dict[int, float]:
    """The root's improved policy, by id: a target for the prior, whichever rule searched the tree."""
    ids, children = tree.ids[0], tree.children[0]
    assert ids is not None
    assert children is not None
    transformed, other = _transformed(tree, 0, children, config)
    logits = _logits(tree) + other
    logits[: len(children)] += np.array(transformed) - other
    weights = np.exp(logits - logits.max())
    shares = weights / weights.sum()
    return dict(sorted(zip(ids.tolist(), shares.tolist(), strict=True)))


def _logits(tree: Tree) -> NDArray[np.float64]:
    """Logarithms of the root's priors in the order of its ids; all 0 for none."""
    ids, priors = tree.ids[0], tree.priors[0]
    assert ids is not None
    return np.zeros(len(ids)) if priors is None else np.log(np.maximum(priors, LEAST_PRIOR))


def _transformed(tree: Tree, node: int, children: list[int], config: MctsConfig) -> tuple[list[float], float]:
    """sigma(q^) of each visited child, and that of all choices which were not visited."""
    counts, returns, edge_priors = tree.counts, tree.returns, tree.edge_priors
    worths = [returns[child] / counts[child] for child in children]
    mixed, most = tree.values[node], 0.0
    if children:
        priors = [max(LEAST_PRIOR, edge_priors[child]) for child in children]
        visits = sum(counts[child] for child in children)
        most = max(counts[child] for child in children)
        visited = sum(prior * q for prior, q in zip(priors, worths, strict=True)) / sum(priors)
        mixed = (mixed + visits * visited) / (1.0 + visits)
    if config.rescale:
        every = worths if tree.next_prior(node, children) is None else [*worths, mixed]
        low = min(every)
        span = max(LEAST_SPAN, max(every) - low)
        worths, mixed = [(q - low) / span for q in worths], (mixed - low) / span
    scale = (config.maxvisit_init + most) * config.value_scale
    return [scale * q for q in worths], scale * mixed
