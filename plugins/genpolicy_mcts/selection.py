"""How a search descends a tree: its options, PUCT, and the outcomes of chance.

A ``Rule`` picks the child that a simulation follows. The score of a choice by ``Puct`` (Silver et al. 2018, Science
362:1140) is Q + C P sqrt(N) / (1 + n), with the node's visits N (its own evaluation is one), the child's visits n, the
prior P, and C either a constant or log((1 + N + c_base) / c_base) + c_init. Ties go to the higher prior, then to the
lower id.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from genpolicy.options import Option

if TYPE_CHECKING:
    from genpolicy_mcts.tree import Tree

FirstPlay = Literal["mean", "value", "constant"]
FIRST_PLAY: tuple[FirstPlay, ...] = ("mean", "value", "constant")
SMALL, LARGE = 1e-6, 1e6
"""Range of the constants of a search: beyond them scores become infinite, or visits are lost in rounding."""


def _option(default: Any, help: str, **more: Any) -> Any:
    """A field of ``MctsConfig`` with the rest of its ``Option``."""
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True)
class MctsConfig:
    """How a tree is searched. The defaults are AlphaZero's constants with first-play value from the parent.

    Raises:
        ValueError: a value out of the range that its option gives below.
    """

    simulations: int = _option(
        100,
        "positions looked at for a decision; fewer are faster and weaker",
        low=1,
        usual_high=1_000_000,
        page_high=5000,
        label="Simulations",
        basic=True,
    )
    """Visits added below the root."""
    c_puct: float | None = _option(
        None, "weight of the prior in the search", low=0, high=LARGE, usual_low=0.01, usual_high=100, label="c_puct"
    )
    """Constant C of PUCT; None takes the growing form of c_base and c_init."""
    c_base: float = _option(
        19652.0,
        "from where on that weight grows with the visits",
        low=SMALL,
        usual_low=1,
        usual_high=1e6,
        label="c_base",
    )
    """Visits at which the growing form has grown by log 2."""
    c_init: float = _option(1.25, "that weight at the beginning", low=0, high=LARGE, usual_high=100, label="c_init")
    """The growing form at no visits."""
    first_play: FirstPlay = _option(  # noqa: RUF009 (a field)
        "mean", "value of a move that was not tried yet", choices=FIRST_PLAY
    )
    """Q of a choice not visited yet: ``mean``, the mean value of its parent so far; ``value``, the evaluator's value of
    the parent; ``constant``, ``first_play_value``."""
    first_play_reduction: float = _option(
        0.0, "how much less than its parent such a move is worth", low=-2, high=2, usual_low=0
    )
    """Taken off ``mean`` or ``value``."""
    first_play_value: float = _option(0.0, "that value where it is constant", low=-1, high=1)
    """For the player who chooses; -1 counts what was not visited as lost."""
    dirichlet_alpha: float = _option(
        0.3, "of the noise at the root", low=SMALL, high=LARGE, usual_low=0.001, usual_high=100
    )
    """Concentration of the noise at the root."""
    noise_fraction: float = _option(0.0, "share of the noise at the root", low=0, high=1)
    """Share of that noise in the root's prior. 0: none (play); 0.25: AlphaZero's self-play."""
    leaves: int = _option(8, "most leaves of one tree in flight", low=1, usual_high=4096, hidden=True)
    """Most leaves of one tree in flight. 1 is the sequential search."""
    virtual_loss: float = _option(
        1.0, "lost visits that a leaf in flight counts for", low=SMALL, high=LARGE, hidden=True
    )
    """Lost visits that a leaf in flight counts for, along its path. Without effect where leaves is 1."""
    early_stop: bool = _option(False, "stop when the move can change no more")
    """Stop when the most visited choice cannot be overtaken any more. The move stays, the distribution is cut short."""

    def __post_init__(self) -> None:
        for option in OPTIONS:
            value = getattr(self, option.name)
            if value is not None or option.default is not None:
                option.read(value)


_TYPES = {"int": int, "bool": bool, "float": float, "float | None": float, "FirstPlay": str}
OPTIONS = tuple(Option(each.name, _TYPES[str(each.type)], each.default, **each.metadata) for each in fields(MctsConfig))
"""The options of a search: the fields of ``MctsConfig``."""


Rule: TypeAlias = "Callable[[Tree, int, list[int]], int]"
"""A tree, a node and the node's visited children -> the child that a simulation follows: one of them, or a new one
(``Tree.add_child``)."""
Unit: TypeAlias = "Callable[[Tree, int, list[int]], float]"
"""A tree, a node and its visited children -> the scale of values there, above 0."""


@dataclass(frozen=True)
class Puct:
    """The rule by which a player chooses.

    Args:
        config: Its constants.
        unit: Scales the weight of the prior for values of another range than [-1, 1]; None for 1.
    """

    config: MctsConfig
    unit: Unit | None = None

    def __call__(self, tree: Tree, node: int, children: list[int]) -> int:
        """The child of the best score, made if it is new."""
        counts, returns, edge_priors, config = tree.counts, tree.returns, tree.edge_priors, self.config
        visits = counts[node]
        constant = config.c_puct
        if constant is None:
            constant = math.log((1.0 + visits + config.c_base) / config.c_base) + config.c_init
        factor = constant * math.sqrt(visits)
        if self.unit is not None:
            factor *= self.unit(tree, node, children)
        best, best_score = -1, -math.inf
        for child in children:
            count = counts[child]
            score = returns[child] / count + factor * edge_priors[child] / (1.0 + count)
            if score > best_score:
                best, best_score = child, score
        prior = tree.next_prior(node, children)
        if prior is not None and self._first_play(tree, node) + factor * prior > best_score:
            return tree.add_child(node, children, prior)
        return best

    def _first_play(self, tree: Tree, node: int) -> float:
        """Q of a choice that was not visited yet."""
        config = self.config
        if config.first_play == "mean":
            return tree.value_sums[node] / tree.visits[node] - config.first_play_reduction
        if config.first_play == "value":
            return tree.values[node] - config.first_play_reduction
        return config.first_play_value


def spread(tree: Tree, node: int, children: list[int]) -> float:
    """A ``Unit`` for values of any range: from the worst to the best of a node's mean value and its children's."""
    values = [tree.returns[child] / tree.counts[child] for child in children]
    values.append(tree.value_sums[node] / tree.visits[node])
    return max(values) - min(values) or 1.0


def expected(tree: Tree, node: int, children: list[int]) -> int:
    """The rule of a chance node: the outcome that is most behind its probability.

    Nothing is random: after n visits every outcome has been taken close to n times its probability, so the mean over
    the visits is the expectation with less noise than draws would give.
    """
    counts, edge_priors = tree.counts, tree.edge_priors
    total = counts[node]  # its own evaluation stands for the visit that is on its way
    best, best_lag = -1, -math.inf
    for child in children:
        lag = edge_priors[child] * total - counts[child]
        if lag > best_lag:
            best, best_lag = child, lag
    prior = tree.next_prior(node, children)
    if prior is not None and prior * total > best_lag:
        return tree.add_child(node, children, prior)
    return best
