"""MCTS over any search model: many trees at once, their leaves in one call of the model.

Each tree chooses its leaves by its own contents alone, so it does not depend on the trees that share its calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from genpolicy.control import FREE, Control
from genpolicy.search.model import SearchModel
from genpolicy_mcts.gumbel import Gumbel, improved_policy
from genpolicy_mcts.selection import MctsConfig, Rule, chance_rule, player_rule
from genpolicy_mcts.tree import Rules, Tree, most_visited

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Ye et al. 2025 (arXiv:2502.19805), the MCTS baseline: c_puct 0.1, tau 1, 100 simulations. Theirs is
    # sequential and plays the most visited move. Its value of a mate, its win probabilities as values and its zero for
    # unvisited moves are mistakes, and not kept.
    "diffusearch": {"simulations": 100, "c_puct": 0.1, "tau": 1.0, "leaves": 1},
    # Silver et al. 2018, self-play: the growing constant, noise at the root, moves drawn by their visits.
    "alphazero": {
        "simulations": 800,
        "c_base": 19652.0,
        "c_init": 1.25,
        "noise_fraction": 0.25,
        "dirichlet_alpha": 0.3,
        "tau": 1.0,
        "temperature": 1.0,
    },
}
"""Named settings of ``MctsConfig`` and of the policy ``mcts`` (``tau``, ``temperature``)."""


@dataclass(frozen=True)
class SearchResult:
    """What a search found at one root."""

    visits: dict[int, int]
    """Visits of every choice of the root, by id; those below the root only."""
    q: dict[int, float]
    """Mean return of every visited choice for the player to move at the root, in the range of the model's values."""
    improved: dict[int, float]
    """The improved policy with completed worths (``genpolicy_mcts.gumbel``), by id: a target for the prior. It contains
    the noise of the root's prior (``noise_fraction``)."""
    choice: int
    """The most visited choice; ties by q, then by prior; for Gumbel's search by noise, prior and q together."""
    value: float
    """Mean of all values backed up, for the player to move at the root."""
    line: tuple[int, ...]
    """Principal variation: the most visited choices from the root on."""
    embeddings: tuple[Any, ...]
    """Embedding of the node after each choice of ``line``."""
    simulations: int
    """Visits that this search added; ``sum(visits.values())`` has those of a kept tree too."""
    evaluations: int
    """Positions that the model evaluated for it, the root included (unless it was kept)."""
    depth: int
    """Longest line that this search visited, in choices."""
    tree: Tree
    """Its ``subtree(node)`` may begin the next search."""

    def line_from(self, choice: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """The most visited line that begins with a visited choice, and the embedding after each of its choices."""
        children = self.tree.children[0] or []
        (first,) = (child for child in children if self.tree.actions[child] == choice)
        line = self.tree.principal_variation(first)
        return tuple(self.tree.actions[n] for n in line), tuple(self.tree.embeddings[n] for n in line)

    def best_first(self, first: int) -> list[int]:
        """The visited choices: this one, then the others by their visits and, of equal ones, their values."""
        return sorted(self.q, key=lambda each: (each != first, -self.visits[each], -self.q[each]))

    def distribution(self, tau: float = 1.0) -> dict[int, float]:
        """Probability of each choice, in proportion to visits^(1 / tau); 0 for one without visits.

        Args:
            tau: At least 0; towards 0 the most visited choices share all.
        """
        return sharpened(self.visits, tau)


def sharpened(weights: Mapping[int, float], tau: float) -> dict[int, float]:
    """Probabilities in proportion to weights^(1 / tau), as in ``SearchResult.distribution``."""
    counts = np.array(list(weights.values()), np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = np.log(counts / counts.max()) / tau
    # A product of two small temperatures may be 0, and that of two large ones infinite: 0 / 0 and -inf / inf.
    logs = np.where(counts == counts.max(), 0.0, np.where(counts == 0, -np.inf, logs))
    shares = np.exp(logs)
    shares /= shares.sum()
    return {choice: float(share) for choice, share in zip(weights, shares, strict=True)}


class Mcts:
    """Searches many roots at once.

    Args:
        model: Rules and evaluator, or a learned model.
        config: Settings shared by all trees.
        rule: How players choose; None for what ``config`` says.
        chance: How outcomes of chance are drawn; None for what ``config`` says.
    """

    def __init__(
        self,
        model: SearchModel,
        config: MctsConfig | None = None,
        *,
        rule: Rule | None = None,
        chance: Rule | None = None,
    ) -> None:
        self.model, self.config = model, config or MctsConfig()
        self._is_gumbel = rule is None and self.config.root == "gumbel"
        self._rule = rule or player_rule(self.config, bounded=model.bounded)
        self._chance = chance or chance_rule(self.config, bounded=model.bounded)

    def search(
        self,
        states: Sequence[Any],
        seeds: Sequence[int] | None = None,
        kept: Sequence[Tree | None] | None = None,
        *,
        planned: int | None = None,
        until: int | None = None,
        control: Control = FREE,
    ) -> list[SearchResult]:
        """Search every state.

        Args:
            states: Roots, each with at least one choice.
            seeds: Seed of each root's noise; needed where ``noise_fraction`` is above 0, and by Gumbel's search.
            kept: For each state a tree that has it as its root (see ``Tree.subtree``), which is extended in
                place; None begins a new one. ``simulations`` visits are added to it. Gumbel's search continues only
                its own trees.
            planned: Simulations of the whole search of which this is a part, for Gumbel's; None for ``simulations``.
            until: Simulations of a tree from which on this part of its search ends, with the batch under way, so that a
                search in parts makes the batches of the whole; None for ``simulations``.
            control: Checked before every batch of leaves. Restricts the choices at the roots of new trees; a kept one
                has its choices already.

        Raises:
            ValueError: a state without choices; no seeds for the noise; an invalid prior or value.
        """
        config = self.config
        trees = self._roots(states, kept, control)
        is_noisy = config.gumbel_scale > 0 if self._is_gumbel else config.noise_fraction > 0
        if seeds is None and not is_noisy:
            seeds = [0] * len(states)
        if seeds is None or len(seeds) != len(states):
            raise ValueError(f"noise at the root needs one seed for each of {len(states)} states, got {seeds}")
        rules = [
            self._begin(tree, seed, planned or config.simulations) for tree, seed in zip(trees, seeds, strict=True)
        ]
        running = list(zip(trees, rules, strict=True))
        while running:
            waiting = [(tree, path) for tree, rule in running for path in tree.gather(config, rule, config.simulations)]
            control.check()
            if waiting:
                requests = [tree.request(path) for tree, path in waiting]
                nodes = self.model.expand([embedding for embedding, _ in requests], [choice for _, choice in requests])
                for row, (tree, path) in enumerate(waiting):
                    tree.receive(config, path, nodes, row)
            running = [(tree, rule) for tree, rule in running if not self._is_over(tree, until)]
        return [_result(tree, config, rule.choice(tree)) for tree, rule in zip(trees, rules, strict=True)]

    def _begin(self, tree: Tree, seed: int, planned: int) -> Rules:
        """The rules of one tree, whose root gets its noise."""
        if self._is_gumbel:
            gumbel = Gumbel.begin(tree, self.config, planned, seed)
            return Rules(gumbel, self._chance, gumbel.choice)
        if self.config.noise_fraction > 0:
            tree.add_noise(self.config, np.random.default_rng(seed))
        return Rules(self._rule, self._chance, most_visited)

    def _roots(self, states: Sequence[Any], kept: Sequence[Tree | None] | None, control: Control) -> list[Tree]:
        if kept is None:
            kept = [None] * len(states)
        if len(kept) != len(states):
            raise ValueError(f"{len(kept)} kept trees for {len(states)} states")
        fresh = [state for state, tree in zip(states, kept, strict=True) if tree is None]
        if not fresh:
            return [tree for tree in kept if tree is not None]
        control.check()
        nodes, rows = self.model.root(fresh), iter(range(len(fresh)))
        return [
            Tree(nodes, next(rows), partial(control.allowed, state), bounded=self.model.bounded)
            if tree is None
            else tree
            for state, tree in zip(states, kept, strict=True)
        ]

    def _is_over(self, tree: Tree, until: int | None) -> bool:
        remaining = self.config.simulations - tree.simulations
        if remaining <= 0 or (until is not None and tree.simulations >= until):
            return True
        return self.config.early_stop and tree.decided(remaining)


def _result(tree: Tree, config: MctsConfig, first: int) -> SearchResult:
    ids, children = tree.ids[0], tree.children[0]
    assert ids is not None
    assert children is not None
    visits = dict.fromkeys(sorted(ids.tolist()), 0)
    visits.update({tree.actions[child]: tree.visits[child] for child in children})
    line = [] if tree.chance[0] else tree.principal_variation(first)
    return SearchResult(
        visits=visits,
        q={tree.actions[child]: tree.q(child) for child in children},
        improved=improved_policy(tree, config),
        choice=tree.actions[first],
        value=tree.value,
        line=tuple(tree.actions[node] for node in line),
        embeddings=tuple(tree.embeddings[node] for node in line),
        simulations=tree.simulations,
        evaluations=tree.evaluations,
        depth=tree.depth,
        tree=tree,
    )
