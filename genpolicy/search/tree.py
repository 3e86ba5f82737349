"""One search tree of AlphaZero's MCTS: choose by PUCT, hold leaves in flight, back values up, take a subtree over.

A flat arena: one entry a node in each list, and for a node that the search went on from, arrays of its choices. There
is no object for an edge. Choices are kept in the order of their priors, so that under one first-play value the visited
choices are always a prefix and the best unvisited one is the next: choosing looks at the visited children and at one
more, whatever the number of legal moves, and legal moves of leaves that are never visited again are never generated.

The score of a choice (Silver et al. 2018, Science 362:1140): Q + C P sqrt(N) / (1 + n), with the node's visits N (its
own evaluation is one), the child's visits n, the prior P, and C either a constant or log((1 + N + c_base) / c_base) +
c_init. Ties go to the higher prior, then to the lower id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy.options import Option
from genpolicy.search.model import Nodes

FirstPlay = Literal["mean", "value", "constant"]
FIRST_PLAY: tuple[FirstPlay, ...] = ("mean", "value", "constant")
SMALL, LARGE = 1e-6, 1e6
"""Of the constants of a search: beyond them scores become infinite, or visits are lost in rounding."""


@dataclass(frozen=True)
class MctsConfig:
    """How a tree is searched. The defaults are AlphaZero's constants with first-play value from the parent."""

    simulations: int = 100
    """Visits added below the root, at least 1."""
    c_puct: float | None = None
    """Constant C of PUCT, from 0 to 1e6; None takes the growing form of c_base and c_init."""
    c_base: float = 19652.0
    """Visits at which the growing form has grown by log 2, at least 1e-6."""
    c_init: float = 1.25
    """The growing form at no visits, from 0 to 1e6."""
    first_play: FirstPlay = "mean"
    """Q of a choice not visited yet: ``mean``, the mean value of its parent so far; ``value``, the evaluator's value of
    the parent; ``constant``, ``first_play_value``."""
    first_play_reduction: float = 0.0
    """Taken off ``mean`` or ``value``."""
    first_play_value: float = 0.0
    """In [-1, 1] for the player who chooses; -1 counts what was not visited as lost."""
    dirichlet_alpha: float = 0.3
    """Concentration of the noise at the root, from 1e-6 to 1e6."""
    noise_fraction: float = 0.0
    """Share of that noise in the root's prior, in [0, 1]. 0: none (play); 0.25: AlphaZero's self-play."""
    leaves: int = 8
    """Most leaves of one tree in flight. 1 is the sequential search."""
    virtual_loss: float = 1.0
    """Lost visits that a leaf in flight counts for, along its path, from 1e-6 to 1e6. Without effect where leaves is
    1."""
    early_stop: bool = False
    """Stop when the most visited choice cannot be overtaken any more. The move stays, the distribution is cut short."""

    def __post_init__(self) -> None:
        for option in OPTIONS:
            value = getattr(self, option.name)
            if value is not None or option.name != "c_puct":
                option.read(value)


OPTIONS = (
    Option(
        "simulations",
        int,
        100,
        low=1,
        usual_high=1_000_000,
        page_high=5000,
        help="positions looked at for a decision; fewer are faster and weaker",
        label="Simulations",
        basic=True,
    ),
    Option(
        "c_puct",
        float,
        low=0,
        high=LARGE,
        usual_low=0.01,
        usual_high=100,
        help="weight of the prior in the search",
        label="c_puct",
    ),
    Option(
        "c_base",
        float,
        19652.0,
        low=SMALL,
        usual_low=1,
        usual_high=1e6,
        help="from where on that weight grows with the visits",
        label="c_base",
    ),
    Option(
        "c_init", float, 1.25, low=0, high=LARGE, usual_high=100, help="that weight at the beginning", label="c_init"
    ),
    Option("first_play", str, "mean", choices=FIRST_PLAY, help="value of a move that was not tried yet"),
    Option(
        "first_play_reduction",
        float,
        0.0,
        low=-2,
        high=2,
        usual_low=0,
        help="how much less than its parent such a move is worth",
    ),
    Option("first_play_value", float, 0.0, low=-1, high=1, help="that value where it is constant"),
    Option(
        "dirichlet_alpha",
        float,
        0.3,
        low=SMALL,
        high=LARGE,
        usual_low=0.001,
        usual_high=100,
        help="of the noise at the root",
    ),
    Option("noise_fraction", float, 0.0, low=0, high=1, help="share of the noise at the root"),
    Option("leaves", int, 8, low=1, usual_high=4096, help="most leaves of one tree in flight", hidden=True),
    Option(
        "virtual_loss",
        float,
        1.0,
        low=SMALL,
        high=LARGE,
        help="lost visits that a leaf in flight counts for",
        hidden=True,
    ),
    Option("early_stop", bool, False, help="stop when the move can change no more"),
)
"""What may be set of a search: the fields of ``MctsConfig`` with their ranges."""


class Tree:
    """One root and what was searched below it. Node 0 is the root.

    Args:
        nodes: A batch that holds the root.
        row: Its row there.
        allowed: Ids of the root's choices -> those that may be chosen, in the same order; None allows all.

    Raises:
        ValueError: the root has no choices, or its value is not one.
    """

    def __init__(self, nodes: Nodes, row: int, allowed: Callable[[Sequence[int]], Sequence[int]] | None = None) -> None:
        self.embeddings: list[Any] = []
        """The model's own, never looked into; None also while a node waits for its evaluation (see ``visits``)."""
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
        self._counts: list[float] = []  # visits and virtual visits: what PUCT sees
        self._returns: list[float] = []  # sum of reward + discount * value, less virtual losses: the chooser's view
        self.children: list[list[int] | None] = []
        """Visited children in the order of ``ids``; None where the search has not gone on yet."""
        self.ids: list[NDArray[np.int64] | None] = []
        self.priors: list[NDArray[np.float64] | None] = []
        self._sources: list[tuple[Nodes, int] | None] = []  # where the choices are read, until they are
        self.simulations = self.evaluations = self.depth = 0
        """Visits added, positions evaluated and longest line (in choices) of the searches of this tree object."""
        self._add(-1, 1.0)
        self._fill(0, nodes, row)
        self._counts[0], self.visits[0], self.value_sums[0] = 1.0, 1, self.values[0]
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
        self._counts.append(0.0)
        self._returns.append(0.0)
        self.children.append(None)
        self.ids.append(None)
        self.priors.append(None)
        self._sources.append(None)
        return len(self.actions) - 1

    def _fill(self, node: int, nodes: Nodes, row: int) -> None:
        value, reward, discount = nodes.values[row], nodes.rewards[row], nodes.discounts[row]
        # So written, NaN fails too.
        if not (-1.0 <= value <= 1.0 and -1.0 <= reward <= 1.0 and -1.0 <= discount <= 1.0):
            raise ValueError(f"a search model gave value {value}, reward {reward}, discount {discount}; all in [-1, 1]")
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

    def gather(self, config: MctsConfig, target: int) -> list[list[int]]:
        """Paths (root first) to leaves that wait for ``receive``, at most ``config.leaves``.

        A game's end is backed up at once. A leaf that is in flight already ends the batch.

        Args:
            config: How choices are scored.
            target: ``simulations`` at which the search is over.
        """
        paths: list[list[int]] = []
        while self.simulations + len(paths) < target and len(paths) < config.leaves:
            path = self._descend(config)
            if path is None:
                break
            if self.visits[path[-1]]:
                self._back_up(path, 0.0)  # the end of a game: all is in the reward
                continue
            paths.append(path)
            if config.leaves > 1:
                self._count_virtual(path, config.virtual_loss)
        return paths

    def receive(self, config: MctsConfig, path: list[int], nodes: Nodes, row: int) -> None:
        """The evaluation of a gathered leaf."""
        leaf = path[-1]
        self._fill(leaf, nodes, row)
        if config.leaves > 1:
            self._count_virtual(path, -config.virtual_loss)
        if nodes.discounts[row] != 0.0:
            self.evaluations += 1
        self._back_up(path, self.values[leaf])

    def request(self, path: Sequence[int]) -> tuple[Any, int]:
        """What the model is asked for a gathered leaf: its parent's embedding and the choice."""
        return self.embeddings[path[-2]], self.actions[path[-1]]

    def _descend(self, config: MctsConfig) -> list[int] | None:
        """Path to a new leaf or to an end of the game; None if the leaf is in flight."""
        node, path = 0, [0]
        children_of, discounts, visits = self.children, self.discounts, self.visits
        while True:
            children = children_of[node]
            if children is None:
                children = self._open(node)
            known = len(self.actions)
            node = self._draw(node, children) if self.chance[node] else self._choose(node, children, config)
            path.append(node)
            if node == known or discounts[node] == 0.0:
                return path
            if not visits[node]:
                return None

    def _choose(self, node: int, children: list[int], config: MctsConfig) -> int:
        """The child of the best PUCT score, made if it is new."""
        counts, returns, edge_priors = self._counts, self._returns, self.edge_priors
        visits = counts[node]
        constant = config.c_puct
        if constant is None:
            constant = math.log((1.0 + visits + config.c_base) / config.c_base) + config.c_init
        factor = constant * math.sqrt(visits)
        best, best_score = -1, -math.inf
        for child in children:
            count = counts[child]
            score = returns[child] / count + factor * edge_priors[child] / (1.0 + count)
            if score > best_score:
                best, best_score = child, score
        ids, tried = self.ids[node], len(children)
        assert ids is not None
        if tried < len(ids):
            prior = self._prior(node, tried)
            if self._first_play(node, config) + factor * prior > best_score:
                best = self._add(ids.item(tried), prior)
                children.append(best)
        return best

    def _draw(self, node: int, children: list[int]) -> int:
        """The outcome of a chance node that is most behind its probability.

        Nothing is random: after n visits every outcome has been taken close to n times its probability, so the mean
        over the visits is the expectation with less noise than draws would give.
        """
        counts, edge_priors = self._counts, self.edge_priors
        total = counts[node]  # its own evaluation stands for the visit that is on its way
        best, best_lag = -1, -math.inf
        for child in children:
            lag = edge_priors[child] * total - counts[child]
            if lag > best_lag:
                best, best_lag = child, lag
        ids, tried = self.ids[node], len(children)
        assert ids is not None
        if tried < len(ids):
            prior = self._prior(node, tried)
            if prior * total > best_lag:
                best = self._add(ids.item(tried), prior)
                children.append(best)
        return best

    def _prior(self, node: int, place: int) -> float:
        priors, ids = self.priors[node], self.ids[node]
        assert ids is not None
        return 1.0 / len(ids) if priors is None else float(priors.item(place))

    def _first_play(self, node: int, config: MctsConfig) -> float:
        if config.first_play == "mean":
            return self.value_sums[node] / self.visits[node] - config.first_play_reduction
        if config.first_play == "value":
            return self.values[node] - config.first_play_reduction
        return config.first_play_value

    # Coming back.

    def _count_virtual(self, path: list[int], losses: float) -> None:
        for node in path:
            self._counts[node] += losses
            self._returns[node] -= losses

    def _back_up(self, path: list[int], value: float) -> None:
        """Count a visit along a path; ``value`` is the leaf's, for the player to move there."""
        counts, returns, visits, sums = self._counts, self._returns, self.visits, self.value_sums
        for node in reversed(path):
            visits[node] += 1
            counts[node] += 1.0
            sums[node] += value
            value = self.rewards[node] + self.discounts[node] * value
            returns[node] += value
        self.simulations += 1
        self.depth = max(self.depth, len(path) - 1)

    # Asking.

    @property
    def value(self) -> float:
        """Mean of all values backed up to the root, in [-1, 1] for the player to move there."""
        return min(1.0, max(-1.0, self.value_sums[0] / self.visits[0]))

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

    # The root's noise, and the next root.

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
        tried = len(children)
        order = np.concatenate([np.arange(tried), tried + np.argsort(-mixed[tried:], kind="stable")])
        self.ids[0], self.priors[0] = ids[order], mixed[order]
        for place, child in enumerate(children):
            self.edge_priors[child] = float(mixed[place])

    def subtree(self, node: int) -> Tree | None:
        """A tree of its own below a node, with its visits; None where the game has ended. This tree stays as it is."""
        if self.discounts[node] == 0.0 or self.visits[node] < 1:
            return None
        order = [node]
        for old in order:  # grows on the way: breadth first
            order += self.children[old] or ()
        new = {old: i for i, old in enumerate(order)}
        made = Tree.__new__(Tree)
        for name, column in vars(self).items():
            setattr(made, name, [column[old] for old in order] if isinstance(column, list) else 0)
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
