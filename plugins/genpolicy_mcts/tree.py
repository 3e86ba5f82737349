"""One search tree of AlphaZero's MCTS: go down by a rule, hold leaves in flight, back values up, take a subtree over.

A flat arena: one entry a node in each list, and for an expanded node arrays of its choices. Edges are not objects.
Choices are kept in the order of their priors, so that under one first-play value the visited choices are always a
prefix and the best unvisited one is the next: choosing looks at the visited children and at one more, whatever the
number of legal moves, and legal moves of leaves that are never visited again are never generated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genpolicy.search.model import Nodes
from genpolicy_mcts.selection import MctsConfig, Rule

MAX_ENDS = 1000
"""Visits to ended games in one batch at most, so that a search without a leaf can be stopped."""


class Rules(NamedTuple):
    """How one tree is searched."""

    player: Rule
    chance: Rule
    choice: Callable[[Tree], int]
    """The child of the root that a search chooses."""


def most_visited(tree: Tree) -> int:
    """The most visited child of the root; ties by q, then by prior."""
    return tree.ranked(0)[0]


class Tree:
    """One root and what was searched below it. Node 0 is the root.

    Args:
        nodes: A batch that holds the root.
        row: Its row there.
        allowed: Ids of the root's choices -> those that may be chosen, in the same order; None allows all.
        bounded: As in ``SearchModel``.

    Raises:
        ValueError: the root has no choices, or its value is out of range.
    """

    def __init__(
        self,
        nodes: Nodes,
        row: int,
        allowed: Callable[[Sequence[int]], Sequence[int]] | None = None,
        *,
        bounded: bool = True,
    ) -> None:
        self.bounded = bounded
        self.embeddings: list[Any] = []
        """The model's own, opaque here; None also while a node waits for its evaluation (see ``visits``)."""
        self.actions: list[int] = []
        """The choice that led to each node; -1 at the root."""
        self.rewards: list[float] = []
        self.discounts: list[float] = []
        self.chance: list[bool] = []
        self.values: list[float] = []
        """The model's own value, for the player to move there."""
        self.edge_priors: list[float] = []
        """Prior of the choice that led to the node."""
        self.visits: list[int] = []
        """Backed-up visits; the node's own evaluation is the first, so 0 says that the node waits for it."""
        self.value_sums: list[float] = []
        """Sum of the values backed up, for the player to move there."""
        self.counts: list[float] = []
        """Visits and virtual visits: what a rule sees."""
        self.returns: list[float] = []
        """Sum of reward + discount * value, less virtual losses, for the player who chose."""
        self.children: list[list[int] | None] = []
        """Visited children in the order of ``ids``; None where the node has not been expanded."""
        self.ids: list[NDArray[np.int64] | None] = []
        self.priors: list[NDArray[np.float64] | None] = []
        self._sources: list[tuple[Nodes, int] | None] = []  # where the choices are read, until they are
        self.simulations = self.evaluations = self.depth = 0
        """Visits added, positions evaluated and longest line (in choices) of the searches of this tree object."""
        self._add(-1, 1.0)
        self._fill(0, nodes, row)
        self.counts[0], self.visits[0], self.value_sums[0] = 1.0, 1, self.values[0]
        self.evaluations = 1
        self._open(0, allowed)

    def __len__(self) -> int:
        return len(self.actions)

    # Growing the arena.

    def _add(self, action: int, edge_prior: float) -> int:
        self.embeddings.append(None)
        self.actions.append(action)
        self.rewards.append(0.0)
        self.discounts.append(1.0)
        self.chance.append(False)
        self.values.append(0.0)
        self.edge_priors.append(edge_prior)
        self.visits.append(0)
        self.value_sums.append(0.0)
        self.counts.append(0.0)
        self.returns.append(0.0)
        self.children.append(None)
        self.ids.append(None)
        self.priors.append(None)
        self._sources.append(None)
        return len(self.actions) - 1

    def _fill(self, node: int, nodes: Nodes, row: int) -> None:
        value, reward, discount = nodes.values[row], nodes.rewards[row], nodes.discounts[row]
        most = 1.0 if self.bounded else sys.float_info.max
        # So written, NaN fails too.
        if not (-most <= value <= most and -most <= reward <= most and -1.0 <= discount <= 1.0):
            allowed = "all in [-1, 1]" if self.bounded else "all finite, the discount in [-1, 1]"
            raise ValueError(f"a search model gave value {value}, reward {reward}, discount {discount}; {allowed}")
        self.embeddings[node] = nodes.embeddings[row]
        self.values[node], self.rewards[node], self.discounts[node] = value, reward, discount
        self.chance[node] = nodes.chance[row]
        self._sources[node] = (nodes, row)

    def _open(self, node: int, allowed: Callable[[Sequence[int]], Sequence[int]] | None = None) -> list[int]:
        """Read a node's choices, leave out those that are not allowed and put the rest in the order of their priors."""
        source = self._sources[node]
        assert source is not None
        nodes, row = source
        ids, priors = nodes.choices[row]
        if len(ids) == 0:
            raise ValueError("a search model gave a node without choices that is not the game's end (discount 0)")
        if allowed is not None and len(left := allowed(ids.tolist())) < len(ids):
            ids, priors = _among(left, ids, priors)
        if priors is not None:
            order = np.argsort(-priors, kind="stable")
            ids, priors = ids[order], priors[order]
        self.ids[node], self.priors[node], self._sources[node] = ids, priors, None
        children: list[int] = []
        self.children[node] = children
        return children

    # Going down.

    def gather(self, config: MctsConfig, rules: Rules, target: int) -> list[list[int]]:
        """Paths (root first) to leaves that wait for ``receive``, at most ``config.num_leaves``.

        A game's end is backed up at once. A leaf that is in flight already ends the batch, and so do ``MAX_ENDS`` ends
        of games: the tree may have no leaf left.

        Args:
            config: How many leaves, and what each counts meanwhile.
            rules: Selection rules.
            target: ``simulations`` at which the search is over.
        """
        paths: list[list[int]] = []
        leaves, most = config.num_leaves, self.simulations + MAX_ENDS
        while self.simulations + len(paths) < target and len(paths) < leaves and self.simulations < most:
            path = self._descend(rules)
            if path is None:
                break
            if self.visits[path[-1]]:
                self._back_up(path, 0.0)  # the end of a game: all is in the reward
                continue
            paths.append(path)
            if leaves > 1:
                self._count_virtual(config, path, config.virtual_loss)
        return paths

    def receive(self, config: MctsConfig, path: list[int], nodes: Nodes, row: int) -> None:
        """The evaluation of a gathered leaf."""
        leaf = path[-1]
        self._fill(leaf, nodes, row)
        if config.num_leaves > 1:
            self._count_virtual(config, path, -config.virtual_loss)
        if nodes.discounts[row] != 0.0:
            self.evaluations += 1
        self._back_up(path, self.values[leaf])

    def request(self, path: Sequence[int]) -> tuple[Any, int]:
        """The arguments of ``SearchModel.expand`` for a gathered leaf: its parent's embedding and the choice."""
        return self.embeddings[path[-2]], self.actions[path[-1]]

    def _descend(self, rules: Rules) -> list[int] | None:
        """Path to a new leaf or to an end of the game; None if the leaf is in flight."""
        node, path = 0, [0]
        player, chance, _ = rules
        children_of, discounts, visits = self.children, self.discounts, self.visits
        while True:
            children = children_of[node]
            if children is None:
                children = self._open(node)
            known = len(self.actions)
            node = (chance if self.chance[node] else player)(self, node, children)
            path.append(node)
            if node == known or discounts[node] == 0.0:
                return path
            if not visits[node]:
                return None

    def next_prior(self, node: int, children: list[int]) -> float | None:
        """Prior of the likeliest choice that was not visited yet; None where all were."""
        ids, priors, tried = self.ids[node], self.priors[node], len(children)
        assert ids is not None
        if tried == len(ids):
            return None
        return 1.0 / len(ids) if priors is None else float(priors.item(tried))

    def untried_prior(self, node: int, children: list[int]) -> float:
        """Sum of the priors of the choices that were not visited yet."""
        ids, priors, tried = self.ids[node], self.priors[node], len(children)
        assert ids is not None
        return 1.0 - tried / len(ids) if priors is None else float(priors[tried:].sum())

    def add_child(self, node: int, children: list[int], prior: float) -> int:
        """Add the likeliest choice that was not visited yet to a node's children; ``prior`` is ``next_prior``."""
        ids = self.ids[node]
        assert ids is not None
        child = self._add(ids.item(len(children)), prior)
        children.append(child)
        return child

    # Coming back.

    def _count_virtual(self, config: MctsConfig, path: list[int], losses: float) -> None:
        for node in path:
            self.counts[node] += losses
            self.returns[node] -= losses
        if config.chance == "adversarial":  # who chooses there wants low returns
            for parent, node in pairwise(path):
                if self.chance[parent]:
                    self.returns[node] += 2.0 * losses

    def _back_up(self, path: list[int], value: float) -> None:
        """Count a visit along a path; ``value`` is the leaf's, for the player to move there."""
        counts, returns, visits, sums = self.counts, self.returns, self.visits, self.value_sums
        for node in reversed(path):
            visits[node] += 1
            counts[node] += 1.0
            sums[node] += value
            value = self.rewards[node] + self.discounts[node] * value
            returns[node] += value
        self.simulations += 1
        self.depth = max(self.depth, len(path) - 1)

    # Reading results.

    @property
    def value(self) -> float:
        """Mean of all values backed up to the root for the player to move there, in [-1, 1] where they are bounded."""
        mean = self.value_sums[0] / self.visits[0]
        return min(1.0, max(-1.0, mean)) if self.bounded else mean

    def q(self, node: int) -> float:
        """What the choice that led to a node is worth to the player who made it, by the search so far."""
        return self.rewards[node] + self.discounts[node] * self.value_sums[node] / self.visits[node]

    def ranked(self, node: int) -> list[int]:
        """Visited children, the most visited first; ties by q, then by prior."""
        return sorted(self.children[node] or (), key=lambda child: (-self.visits[child], -self.q(child)))

    def principal_variation(self, first: int | None = None) -> list[int]:
        """Nodes of the line of most visited choices, the root left out; it ends before a chance node's outcome.

        Args:
            first: The child of the root that it begins with; None: the most visited.
        """
        line: list[int] = [] if first is None else [first]
        node = 0 if first is None else first
        while not self.chance[node] and (ranked := self.ranked(node)):
            node = ranked[0]
            line.append(node)
        return line

    def decided(self, remaining: int) -> bool:
        """Whether the most visited choice at the root stays so, however the remaining visits fall."""
        visits = sorted((self.visits[child] for child in self.children[0] or ()), reverse=True)
        if not visits:
            return False
        ids = self.ids[0]
        assert ids is not None
        second = visits[1] if len(visits) > 1 else 0
        return len(ids) == 1 or visits[0] > second + remaining

    # The root's noise and order, and the next root.

    def add_noise(self, config: MctsConfig, generator: np.random.Generator) -> None:
        """Mix Dirichlet noise into the root's prior; visited choices stay where they are."""
        ids, children = self.ids[0], self.children[0]
        assert ids is not None
        assert children is not None
        priors = self.priors[0]
        if priors is None:
            priors = np.full(len(ids), 1.0 / len(ids))
        # Drawn by id, so that it does not depend on the order of the priors.
        noise = np.empty(len(ids))
        noise[np.argsort(ids)] = generator.dirichlet(np.full(len(ids), config.dirichlet_alpha))
        mixed = (1.0 - config.noise_fraction) * priors + config.noise_fraction * noise
        self.priors[0] = mixed
        self.sort_root(mixed)
        for place, child in enumerate(children):
            self.edge_priors[child] = float(mixed[place])

    def sort_root(self, keys: NDArray[np.float64]) -> None:
        """Put the root's choices that were not visited yet in the order of their keys, the highest first."""
        ids, priors, children = self.ids[0], self.priors[0], self.children[0]
        assert ids is not None
        assert children is not None
        tried = len(children)
        order = np.concatenate([np.arange(tried), tried + np.argsort(-keys[tried:], kind="stable")])
        self.ids[0], self.priors[0] = ids[order], None if priors is None else priors[order]

    def subtree(self, node: int) -> Tree | None:
        """A copy of the tree below a node, with its visits; None where the game has ended."""
        if self.discounts[node] == 0.0 or self.visits[node] < 1:
            return None
        order = [node]
        for old in order:  # grows on the way: breadth first
            order += self.children[old] or ()
        new = {old: i for i, old in enumerate(order)}
        made = Tree.__new__(Tree)
        for name, column in vars(self).items():
            setattr(made, name, [column[old] for old in order] if isinstance(column, list) else 0)
        made.bounded = self.bounded
        made.children = [None if c is None else [new[old] for old in c] for c in made.children]
        made.actions[0], made.edge_priors[0], made.rewards[0], made.discounts[0] = -1, 1.0, 0.0, 1.0
        if made.children[0] is None:
            made._open(0)
        return made


def _among(
    left: Sequence[int], ids: NDArray[np.int64], priors: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Some of the choices; their priors sum to 1 again, or are all the same where they were all 0."""
    stays = np.isin(ids, left)
    if priors is None or not (total := float(priors[stays].sum())) > 0:
        return ids[stays], None
    return ids[stays], priors[stays] / total
