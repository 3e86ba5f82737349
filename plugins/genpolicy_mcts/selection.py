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
RootRule = Literal["puct", "gumbel"]
ChanceRule = Literal["neutral", "adversarial", "cooperative"]
Normalise = Literal["none", "siblings"]
LEAST_SPAN = 1e-8
"""Values that lie closer together are not spread over [0, 1]."""
SMALL, LARGE = 1e-6, 1e6
"""Range of the constants of a search: beyond them scores become infinite, or visits are lost in rounding."""


def _option(value: Any, help: str, /, **more: Any) -> Any:
    """A field of ``MctsConfig`` with the rest of its ``Option``."""
    return field(default=value, metadata={"default": value, "help": help, **more})


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
    root: RootRule = _option(  # noqa: RUF009 (a field)
        "puct", "how the search chooses moves; gumbel is better with few simulations", choices=("puct", "gumbel")
    )
    """``puct``, or ``gumbel``: a policy improvement with few simulations (``genpolicy_mcts.gumbel``), which has its own
    rule for the nodes below the root, too."""
    num_considered: int = _option(16, "moves that Gumbel's search considers", low=1, usual_high=512)
    """Choices at the root among which Gumbel's search divides its simulations."""
    gumbel_scale: float = _option(
        1.0, "of its noise at the root; 0 plays the same each time", low=0, high=LARGE, usual_high=10
    )
    """Factor of the Gumbel noise. 1 draws choices by the prior (self-play); 0 takes the likeliest (play)."""
    value_scale: float = _option(0.1, "weight of values in its improved policy", low=0, high=LARGE, hidden=True)
    """Factor of a choice's worth in the improved policy."""
    maxvisit_init: float = _option(50.0, "visits that add to that weight", low=0, high=LARGE, hidden=True)
    """Added to the visits of the most visited choice, which that worth is multiplied with."""
    rescale: bool = _option(True, "rescale the worth of a node's moves to [0, 1] there", hidden=True)
    """Whether the worth of a node's choices is first moved to [0, 1] by its least and greatest."""
    chance: ChanceRule = _option(  # noqa: RUF009 (a field)
        "neutral", "how chance is searched", choices=("neutral", "adversarial", "cooperative"), hidden=True
    )
    """``neutral`` visits outcomes by their probabilities; ``adversarial`` and ``cooperative`` choose them by PUCT,
    against and for the player who moved before, with the probabilities as the prior."""
    normalise: Normalise = _option(  # noqa: RUF009 (a field)
        "none", "scale of values in PUCT", choices=("none", "siblings"), hidden=True
    )
    """``siblings`` moves the worth of a node's choices to [0, 1] by the least and greatest of theirs and the node's
    own; what was not visited counts as the least. ``none`` compares values as they are. Gumbel's has ``rescale``."""
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
    leaves: int | None = _option(
        None, "most leaves of one tree in flight", default=8, low=1, usual_high=4096, hidden=True
    )
    """Most leaves of one tree in flight. 1 is the sequential search, which Gumbel's is; None is 8 for PUCT."""
    virtual_loss: float = _option(
        1.0, "lost visits that a leaf in flight counts for", low=SMALL, high=LARGE, hidden=True
    )
    """Lost visits that a leaf in flight counts for, along its path. Without effect where leaves is 1."""
    early_stop: bool = _option(False, "stop when the move can change no more")
    """Stop when the most visited choice cannot be overtaken any more. The move stays, the distribution is cut short."""

    def __post_init__(self) -> None:
        for each, option in zip(fields(self), OPTIONS, strict=True):
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                option.read(value)
        if self.root == "gumbel" and self.num_leaves > 1:
            raise ValueError(
                f"leaves={self.leaves} with root=gumbel: its simulations depend on each other; omit leaves, and "
                "search many positions at once (a batch over games), which share their network calls"
            )
        if self.root == "gumbel" and self.noise_fraction > 0:
            raise ValueError(
                f"noise_fraction={self.noise_fraction} with root=gumbel, which has its own exploration noise: set "
                "noise_fraction=0 (gumbel_scale=1 explores, 0 does not)"
            )

    @property
    def num_leaves(self) -> int:
        """Most leaves of one tree in flight."""
        return self.leaves or (8 if self.root == "puct" else 1)


_TYPES = {"int": int, "int | None": int, "bool": bool, "float": float, "float | None": float}
OPTIONS = tuple(Option(each.name, _TYPES.get(str(each.type), str), **each.metadata) for each in fields(MctsConfig))
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
        sign: 1 for the player whose values they are, -1 against that player.
    """

    config: MctsConfig
    unit: Unit | None = None
    sign: float = 1.0

    def __call__(self, tree: Tree, node: int, children: list[int]) -> int:
        """The child of the best score, made if it is new."""
        counts, edge_priors = tree.counts, tree.edge_priors
        returns: list[float] | dict[int, float] = tree.returns
        if self.sign < 0:
            returns = {child: -returns[child] for child in children}
        factor = prior_weight(self.config, counts[node])
        if self.unit is not None:
            factor *= self.unit(tree, node, children)
        best, best_score = -1, -math.inf
        for child in children:  # by far the most frequent step of a search
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
            return self.sign * tree.value_sums[node] / tree.visits[node] - config.first_play_reduction
        if config.first_play == "value":
            return self.sign * tree.values[node] - config.first_play_reduction
        return config.first_play_value


def prior_weight(config: MctsConfig, visits: float) -> float:
    """C sqrt(N) of PUCT at a node."""
    constant = config.c_puct
    if constant is None:
        constant = math.log((1.0 + visits + config.c_base) / config.c_base) + config.c_init
    return constant * math.sqrt(visits)


@dataclass(frozen=True)
class AmongSiblings:
    """PUCT over values that are moved to [0, 1] at each node (``normalise=siblings``).

    The range of a node is from the least to the greatest of its mean value and the worths of its visited choices; what
    was not visited counts as the least, 0. (As mctx normalises for MuZero, ``qtransform_by_parent_and_siblings``.)

    Args:
        config: The constants of PUCT.
        sign: As in ``Puct``.
    """

    config: MctsConfig
    sign: float = 1.0

    def __call__(self, tree: Tree, node: int, children: list[int]) -> int:
        """The child of the best score, made if it is new."""
        counts, edge_priors = tree.counts, tree.edge_priors
        factor = prior_weight(self.config, counts[node])
        own = self.sign * tree.value_sums[node] / tree.visits[node]
        worths = [self.sign * tree.returns[child] / counts[child] for child in children]
        low = min([own, *worths])
        span = max(max([own, *worths]) - low, LEAST_SPAN)
        best, best_score = -1, -math.inf
        for child, worth in zip(children, worths, strict=True):
            score = (worth - low) / span + factor * edge_priors[child] / (1.0 + counts[child])
            if score > best_score:
                best, best_score = child, score
        prior = tree.next_prior(node, children)
        if prior is not None and factor * prior > best_score:
            return tree.add_child(node, children, prior)
        return best


def spread(tree: Tree, node: int, children: list[int]) -> float:
    """A ``Unit`` for values of any range: from the worst to the best of a node's mean value and its children's."""
    values = [tree.returns[child] / tree.counts[child] for child in children]
    values.append(tree.value_sums[node] / tree.visits[node])
    return max(values) - min(values) or 1.0


@dataclass(frozen=True)
class Expected:
    """The rule of a chance node: of the outcomes behind their probability, the one that is due first.

    Nothing is random: after n visits every outcome has been taken n times its probability, give or take less than one
    (Tijdeman 1980, "The chairman assignment problem"), so the mean over the visits is the expectation with less noise
    than draws would give. Taking the outcome that is most behind would let others fall behind by more than one visit.

    Args:
        virtual_loss: Of ``MctsConfig``. A leaf in flight counts for as much along its path; here it is one visit.
    """

    virtual_loss: float = 1.0

    def __call__(self, tree: Tree, node: int, children: list[int]) -> int:
        """The child of the outcome that is due, made if it is new."""
        edge_priors = tree.edge_priors
        total = self._visits(tree, node)  # its own evaluation stands for the visit that is on its way
        best, best_key = -1, (True, math.inf)
        for child in children:
            prior, count = edge_priors[child], self._visits(tree, child)
            key = (prior * total <= count, (count + 1) / prior if prior > 0 else math.inf)
            if best < 0 or key < best_key:
                best, best_key = child, key
        unvisited = tree.next_prior(node, children)
        if unvisited is not None and (best < 0 or (unvisited > 0 and (False, 1 / unvisited) < best_key)):
            return tree.add_child(node, children, unvisited)
        return best

    def _visits(self, tree: Tree, node: int) -> int:
        """Visits of a node, those in flight among them."""
        visits = tree.visits[node]
        return visits + round((tree.counts[node] - visits) / self.virtual_loss)


def player_rule(config: MctsConfig, *, bounded: bool, sign: float = 1.0) -> Rule:
    """PUCT as some options say; in units of ``spread`` where values have any range.

    Args:
        config: The options.
        bounded: As in ``SearchModel``.
        sign: As in ``Puct``.
    """
    if config.normalise == "siblings":
        return AmongSiblings(config, sign)
    return Puct(config, None if bounded else spread, sign)


def chance_rule(config: MctsConfig, *, bounded: bool) -> Rule:
    """How chance nodes are searched, as some options say."""
    if config.chance == "neutral":
        return Expected(config.virtual_loss)
    return player_rule(config, bounded=bounded, sign=1.0 if config.chance == "cooperative" else -1.0)
