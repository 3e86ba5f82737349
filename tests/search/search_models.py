"""A search model of a table, and what holds of every tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from genpolicy.search.model import Choices, Comparator, Evaluator, Nodes, SearchModel
from genpolicy_mcts.tree import Tree


class Drawn(SearchModel):
    """A tree that is written down: name -> (value, reward, discount, chance, {choice: (prior, name)})."""

    def __init__(self, nodes: dict[str, tuple[float, float, float, bool, dict[int, tuple[float, str]]]]) -> None:
        self.nodes = nodes

    def root(self, states: Sequence[Any]) -> Nodes:
        return self._batch(list(states))

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        return self._batch([self.nodes[e][4][c][1] for e, c in zip(embeddings, choices, strict=True)])

    def _batch(self, names: list[str]) -> Nodes:
        rows = [self.nodes[name] for name in names]
        choices = [
            Choices(np.array(sorted(row[4]), np.int64), np.array([row[4][i][0] for i in sorted(row[4])]))
            for row in rows
        ]
        return Nodes(names, choices, *(list(column) for column in list(zip(*rows, strict=True))[:4]))


def valued(value: Callable[[Any], float]) -> Evaluator:
    """An evaluator of states one by one, without a prior."""
    return lambda states: ([None] * len(states), [value(state) for state in states])


def preferring(prior: Callable[[Any], Mapping[int, float]]) -> Evaluator:
    """An evaluator that knows priors alone."""
    return lambda states: ([prior(state) for state in states], [0.0] * len(states))


def comparing(better: Callable[[Any, Any, int], float]) -> Comparator:
    """A comparator of pairs one by one."""
    return lambda pairs, player: [better(first, second, player) for first, second in pairs]


END: dict[int, tuple[float, str]] = {}


def check_tree(tree: Tree) -> None:
    """The books of a tree whose search has ended."""
    for node in range(len(tree)):
        children = tree.children[node] or []
        assert tree.visits[node] == tree.counts[node], "virtual visits are left"
        below = [tree.visits[child] for child in children]
        if tree.discounts[node] == 0:
            assert not children
        else:
            assert sum(below) == tree.visits[node] - 1
        gathered = sum(tree.q(child) * tree.visits[child] for child in children)
        if tree.discounts[node] != 0:
            assert tree.value_sums[node] == pytest.approx(gathered + tree.values[node], abs=1e-9)
        if node:
            assert tree.returns[node] / tree.visits[node] == pytest.approx(tree.q(node), abs=1e-9)
