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
from genpolicy_mcts.selection import MctsConfig, Puct, Rule, expected, spread
from genpolicy_mcts.tree import Tree

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
    choice: int
    """The most visited choice; ties by q, then by prior."""
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

    def distribution(self, tau: float = 1.0) -> dict[int, float]:
        """Probability of each choice, in proportion to visits^(1 / tau); 0 for one without visits.

        Args:
            tau: At least 0; towards 0 the most visited choices share all.
        """
        counts = np.array(list(self.visits.values()), np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logs = np.log(counts / counts.max()) / tau
        # A product of two small temperatures may be 0, and that of two large ones infinite: 0 / 0 and -inf / inf.
        logs = np.where(counts == counts.max(), 0.0, np.where(counts == 0, -np.inf, logs))
        weights = np.exp(logs)
        weights /= weights.sum()
        return {choice: float(weight) for choice, weight in zip(self.visits, weights, strict=True)}


class Mcts:
    """Searches many roots at once.

    Args:
        model: Rules and evaluator, or a learned model.
        config: Settings shared by all trees.
        rule: How players choose; None for PUCT by ``config``, in units of ``spread`` where values have any range.
        chance: How outcomes of chance are drawn.
    """

    def __init__(
        self, model: SearchModel, config: MctsConfig | None = None, *, rule: Rule | None = None, chance: Rule = expected
    ) -> None:
        self.model, self.config = model, config or MctsConfig()
        self._rules = (rule or Puct(self.config, None if model.bounded else spread), chance)

    def search(
        self,
        states: Sequence[Any],
        seeds: Sequence[int] | None = None,
        kept: Sequence[Tree | None] | None = None,
        *,
        control: Control = FREE,
    ) -> list[SearchResult]:
        """Search every state.

        Args:
            states: Roots, each with at least one choice.
            seeds: Seed of each root's noise; needed where ``noise_fraction`` is above 0.
            kept: For each state a tree that has it as its root (see ``Tree.subtree``), which is extended in
                place; None begins a new one. ``simulations`` visits are added to it.
            control: Checked before every call of the model. Restricts the choices at the roots of new trees; a kept one
                has its choices already.

        Raises:
            ValueError: a state without choices; no seeds for the noise; an invalid prior or value.
        """
        config = self.config
        trees = self._roots(states, kept, control)
        if config.noise_fraction > 0:
            if seeds is None or len(seeds) != len(states):
                raise ValueError(f"noise at the root needs one seed for each of {len(states)} states, got {seeds}")
            for tree, seed in zip(trees, seeds, strict=True):
                tree.add_noise(config, np.random.default_rng(seed))
        running = trees
        while running:
            waiting = [
                (tree, path) for tree in running for path in tree.gather(config, self._rules, config.simulations)
            ]
            if waiting:
                control.check()
                requests = [tree.request(path) for tree, path in waiting]
                nodes = self.model.expand([embedding for embedding, _ in requests], [choice for _, choice in requests])
                for row, (tree, path) in enumerate(waiting):
                    tree.receive(config, path, nodes, row)
            running = [tree for tree in running if not self._is_over(tree)]
        return [_result(tree) for tree in trees]

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

    def _is_over(self, tree: Tree) -> bool:
        remaining = self.config.simulations - tree.simulations
        return remaining <= 0 or (self.config.early_stop and tree.decided(remaining))


def _result(tree: Tree) -> SearchResult:
    ids, children = tree.ids[0], tree.children[0]
    assert ids is not None
    assert children is not None
    visits = dict.fromkeys(sorted(ids.tolist()), 0)
    visits.update({tree.actions[child]: tree.visits[child] for child in children})
    line = tree.principal_variation()
    return SearchResult(
        visits=visits,
        q={tree.actions[child]: tree.q(child) for child in children},
        choice=tree.actions[tree.ranked(0)[0]],
        value=tree.value,
        line=tuple(tree.actions[node] for node in line),
        embeddings=tuple(tree.embeddings[node] for node in line),
        simulations=tree.simulations,
        evaluations=tree.evaluations,
        depth=tree.depth,
        tree=tree,
    )
