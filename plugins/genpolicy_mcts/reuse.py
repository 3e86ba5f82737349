"""Trees kept from one move to the next: finds the subtree of the moves that were played since.

A subtree is taken over only for the very same state: the same first position, counters included, and the same moves
since (``Game.history``), because a repetition that begins before the root is counted inside the tree. ``Game.key`` only
finds the candidates.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from genpolicy.game import Game
from genpolicy.search.model import SearchModel
from genpolicy_mcts.tree import Tree

MAX_KEPT_NODES = 100_000  # some 300 MB of chess positions; the oldest trees go first
MAX_PLIES = 2  # our move and the answer; one where a policy plays both sides


class KeptTrees:
    """Trees of earlier searches, found by the positions that the search model says its embeddings stand for.

    Args:
        game: Compares positions.
        model: Model shared by all searches; ``reusable``, if anything is kept.
    """

    def __init__(self, game: Game[Any], model: SearchModel) -> None:
        self.game, self._model = game, model
        self._trees: list[tuple[Tree, dict[Hashable, list[int]]]] = []

    def clear(self) -> None:
        """Forget every tree."""
        self._trees.clear()

    def add(self, trees: Sequence[Tree]) -> None:
        """Keep trees whose searches have ended."""
        for tree in trees:
            found: dict[Hashable, list[int]] = {}
            level = [0]
            for _ in range(MAX_PLIES):
                level = [child for node in level for child in tree.children[node] or ()]
                for node in level:
                    position = self._model.position(tree.embeddings[node])
                    found.setdefault(self.game.key(position), []).append(node)
            self._trees.append((tree, found))
        total = sum(len(tree) for tree, _ in self._trees)
        while total > MAX_KEPT_NODES and len(self._trees) > 1:
            total -= len(self._trees.pop(0)[0])

    def find(self, state: Any) -> Tree | None:
        """A copy of the kept subtree with ``state`` at its root that has most visits; None where there is none."""
        key, best, most = self.game.key(state), None, 0
        for tree, nodes in self._trees:
            for node in nodes.get(key, ()):
                if tree.visits[node] > most and self._history(tree, node) == self.game.history(state):
                    best, most = (tree, node), tree.visits[node]
        return None if best is None else best[0].subtree(best[1])

    def _history(self, tree: Tree, node: int) -> Any:
        return self.game.history(self._model.position(tree.embeddings[node]))
