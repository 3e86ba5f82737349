"""Alpha-beta as a policy: ``alphabeta?depth=4``, with leaves by the game's heuristic or by another policy."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from genpolicy.control import FREE, Control
from genpolicy.facets import gives_evaluation
from genpolicy.game import Game
from genpolicy.options import Option, PolicySpec, with_defaults
from genpolicy.policies import declared
from genpolicy.policies.base import (
    GENERAL_OPTIONS,
    Decision,
    Policy,
    Variation,
    decide_with,
    legal_of,
    load_policy,
    resolve_game,
)
from genpolicy.policies.thinking import Answer, Limits, Publish
from genpolicy.registry import spelled_pairs
from genpolicy.search.model import Comparator, Evaluator, Prior
from genpolicy_alphabeta.search import DEFAULT_NODES, QUIESCENCE_PLIES, AlphaBeta, SearchResult

OPTIONS = (
    Option(
        "nodes",
        int,
        low=1,
        usual_low=100,
        usual_high=200_000,
        help="positions searched; fewer is faster and weaker",
        basic=True,
    ),
    Option("depth", int, low=1, usual_high=20, help="search depth in plies", basic=True),
    Option("movetime_ms", float, low=1, usual_high=20_000, help="time per move", label="Milliseconds", hidden=True),
    Option(
        "quiescence",
        int,
        QUIESCENCE_PLIES,
        low=0,
        help="plies of forcing moves beyond the depth",
        fixed=True,
        hidden=True,
    ),
    Option("prior", str, help="policy whose probabilities order the moves", fixed=True, hidden=True),
    Option("prior_depth", int, 2, low=1, help="remaining depth from which the prior is used", fixed=True, hidden=True),
    Option("evaluator", str, help="policy that evaluates the leaves", fixed=True, hidden=True),
    Option("comparator", str, help="policy that says which of two leaves is better", fixed=True, hidden=True),
    declared.SEED,
)
LIMITS = ("depth", "nodes", "movetime_ms")
MAX_DEPTH = 1000


class AlphaBetaPolicy(Policy):
    """Plays the best move of an alpha-beta search; each position is searched from empty tables.

    ``Decision.value`` is the score in [-1, 1] (None where a comparator leaves the game undecided), ``line`` and
    ``states`` the best moves of both sides as far as they were searched. Stats: ``nodes``; ``depth`` of the last
    finished iteration; ``exact``, 1 where the search went to the end of the game; ``mate_plies``, where the game is
    decided; ``ms``, wall time.

    Args:
        game: The game.
        depth: Plies of the search. Without any of the three limits it takes 20,000 nodes.
        nodes: Positions searched.
        movetime_ms: Milliseconds for each position.
        quiescence: Most plies of forcing moves beyond the depth; 0: none.
        prior: A policy whose ``Decision.policy`` orders the moves.
        prior_depth: Plies that must be left, at least, for ``prior`` to be asked.
        evaluator: A policy whose ``Decision.value`` values leaves, in place of ``Hints.evaluate``.
        comparator: Says which of two leaves is better, in place of both (``genpolicy.search.model.Comparator``).
        name: Its spelling, which is its label.

    Raises:
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "alphabeta"
    is_prior: ClassVar[bool] = False
    starts_cold: ClassVar[bool] = False
    spelling: ClassVar[str] = "alphabeta[?depth=N&nodes=N&movetime_ms=N&prior=FOLDER&evaluator=FOLDER]"

    def __init__(
        self,
        game: Game[Any],
        *,
        depth: int | None = None,
        nodes: int | None = None,
        movetime_ms: float | None = None,
        quiescence: int = QUIESCENCE_PLIES,
        prior: Policy | None = None,
        prior_depth: int = 2,
        evaluator: Policy | None = None,
        comparator: Comparator | None = None,
        name: str = "alphabeta",
    ) -> None:
        self.game = game
        self._given: dict[str, Any] = {
            "depth": depth,
            "nodes": nodes,
            "movetime_ms": movetime_ms,
            "quiescence": quiescence,
            "prior": prior,
            "prior_depth": prior_depth,
            "evaluator": evaluator,
            "comparator": comparator,
        }
        self._helpers = [policy for policy in (prior, evaluator) if policy is not None]
        self._seed = 0
        self._name = name
        self.search = self.make_search()
        """What it searches with where nothing stops it."""

    def make_search(self, control: Control = FREE) -> AlphaBeta:
        """A search by the policy's own limits, whose policies call ``control.check``."""
        given = dict(self._given)
        if all(given[name] is None for name in LIMITS):
            given["nodes"] = DEFAULT_NODES
        check = Control(control.check)
        if given["prior"] is not None:
            given["prior"] = _prior(given["prior"], check)
        if given["evaluator"] is not None:
            given["evaluator"] = _evaluator(given["evaluator"], check)
        return AlphaBeta(self.game, **given)

    @property
    def label(self) -> str:
        """The spelling, e.g. ``alphabeta?depth=4``."""
        return self._name

    def seed(self, seed: int) -> None:
        """Seed the underlying policies; the search itself draws nothing."""
        self._seed = seed

    def seed_helpers(self) -> None:
        """Seed the underlying policies, before each search, so that an answer depends on its position alone."""
        for policy in self._helpers:
            policy.seed(self._seed)

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """The best move found for each position.

        Raises:
            ValueError: a position without legal moves or without an allowed one, or a game without a heuristic where
                one is needed.
        """
        search = self.make_search(control)
        decisions = []
        for state, allowed in zip(states, legal_of(self.game, states, control), strict=True):
            self.seed_helpers()
            began = time.perf_counter()
            found = search.search(state, only=None if control.restrict is None else allowed, check=control.check)
            decisions.append(self._decision(state, found, 1e3 * (time.perf_counter() - began)))
        return decisions

    def _decision(self, state: Any, found: SearchResult, ms: float) -> Decision:
        texts: list[str | None] = []
        for move in found.line:
            state = self.game.play(state, move)
            texts.append(self.game.format(state))
        stats = {
            "raw_legal": 1.0,
            "nodes": float(found.nodes),
            "depth": float(found.depth),
            "exact": float(found.exact),
            "ms": ms,
        }
        if found.plies_to_end is not None:
            stats["mate_plies"] = float(found.plies_to_end)
        names = self.game.moves.texts
        return Decision(found.move, None, found.value, found.line, tuple(texts), stats=stats, names=names)

    @property
    def imagines(self) -> bool:
        """See ``Policy.imagines``."""
        return False

    def thinker(self) -> DeepeningThinker:
        """See ``Policy.thinker``."""
        return DeepeningThinker(self)

    def close(self) -> None:
        """Close the underlying policies."""
        for policy in self._helpers:
            policy.close()

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """See ``Policy.options``."""
        given = {} if spec is None else spec.settings
        limited = any(given.get(name) is not None for name in LIMITS)
        return with_defaults(OPTIONS, given if limited else {"nodes": DEFAULT_NODES, **given})

    @classmethod
    def untrained(cls, game: Game[Any]) -> tuple[str, ...]:
        """See ``Policy.untrained``."""
        return (f"{cls.kind}?nodes=5000",) if gives_evaluation(game) else ()

    def with_options(self, **changed: Any) -> AlphaBetaPolicy:
        """A search of its own over the same policies, with other options.

        Raises:
            ValueError: an option that it does not take or that names a policy, or one out of range.
        """
        changed = self.read_changes(changed)
        seed = changed.pop("seed", None)
        if not changed and seed is None:
            return self
        kind, _, query = self._name.partition("?")
        made = type(self)(
            self.game, **{**self._given, **changed}, name=_spelled(kind, {**dict(spelled_pairs(query)), **changed})
        )
        made.seed(self._seed if seed is None else seed)
        return made

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> AlphaBetaPolicy:
        """``alphabeta?depth=4``; ``prior``, ``evaluator`` and ``comparator`` name policies by folder or spelling."""
        if argument:
            raise ValueError(f"policy {cls.kind!r} takes no argument, got {argument!r}; write {cls.kind}?depth=4")
        game = resolve_game(options.get("game"), cls.kind)
        own = {k: v for k, v in options.items() if k not in (*GENERAL_OPTIONS, "seed") and v is not None}
        name = _spelled(cls.kind, own)
        asked = {"game": game, **({"device": options["device"]} if "device" in options else {})}
        for key in ("prior", "evaluator"):
            if isinstance(own.get(key), str):
                own[key] = load_policy(own[key], **asked)
        if isinstance(own.get("comparator"), str):
            own["comparator"] = _comparator(load_policy(own["comparator"], **asked))
        made = cls(game, **own, name=name)
        made.seed(options.get("seed") or 0)
        return made


class _AnswerSuffices(Exception):
    """The opponent has moved as expected, there is no clock, and an answer was found meanwhile."""


class DeepeningThinker:
    """Searches one ply deeper at a time; where only the policy's own limits hold, once and by those.

    Args:
        policy: The policy. Its limit in plies holds always, the others only where there is no other limit.
    """

    def __init__(self, policy: AlphaBetaPolicy) -> None:
        self._policy = policy

    def think(self, state: Any, limits: Limits, publish: Publish, *, control: Control = FREE) -> None:
        """See ``Thinker``."""
        num_published = 0

        def check() -> None:
            # The search keeps the time itself: what it has found when the time is over counts.
            if limits.remaining_s() != 0.0:
                control.check()
            if num_published and limits.is_own:
                raise _AnswerSuffices

        (allowed,) = legal_of(self._policy.game, [state], control)
        only = None if control.restrict is None else allowed
        search = self._policy.make_search(Control(check))
        self._policy.seed_helpers()
        if limits.is_own:
            if (remaining := limits.remaining_s()) is not None:
                search.movetime_ms = min(search.movetime_ms or math.inf, max(1.0, 1e3 * remaining))
            found = search.search(state, only=only, check=check)
            publish(self._answer(found, found.nodes))
            return
        most = min(limits.depth or MAX_DEPTH, search.depth or MAX_DEPTH)
        search.nodes = search.movetime_ms = None
        nodes, reached = 0, -1
        for depth in range(most if search.to_end else 1, most + 1):
            search.depth = depth
            if limits.nodes is not None:
                search.nodes = limits.nodes - nodes
            if (remaining := limits.remaining_s()) is not None:
                search.movetime_ms = max(1.0, 1e3 * remaining)
            try:
                check()
                found = search.search(state, only=only, fresh=nodes == 0, check=check)
            except _AnswerSuffices:
                return
            nodes += found.nodes
            if found.depth >= reached:
                reached = found.depth
                publish(self._answer(found, nodes))
                num_published += 1
            is_over = limits.remaining_s() == 0.0 or (limits.nodes is not None and nodes >= limits.nodes)
            if found.exact or found.depth < depth or is_over:
                return

    @staticmethod
    def _answer(found: SearchResult, nodes: int) -> Answer:
        plies = found.plies_to_end
        mate = None if not plies else plies if (found.value or 0.0) > 0 else -plies
        return Answer((Variation(found.line, found.value, mate),), nodes, max(1, found.depth))


def _spelled(kind: str, options: Mapping[str, Any]) -> str:
    texts = (f"{key}={f'{value:g}' if isinstance(value, float) else value}" for key, value in options.items())
    return kind + "?" * bool(options) + "&".join(texts)


def _prior(policy: Policy, control: Control) -> Evaluator:
    """An evaluator that gives a policy's move probabilities and no values."""

    def ask(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        priors: list[Prior] = []
        for decision in decide_with(policy, states, control):
            if decision.policy is None:
                raise ValueError(f"prior: policy {policy.label!r} gives no move probabilities; use another one")
            priors.append(decision.policy)
        return priors, [0.0] * len(priors)

    return ask


def _evaluator(policy: Policy, control: Control) -> Evaluator:
    """A policy's values; priors are not asked for."""

    def ask(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        if (found := policy.evaluate(states, control=control)) is not None:
            return [None] * len(states), found[0]
        values = []
        for decision in decide_with(policy, states, control):
            if decision.value is None:
                raise ValueError(
                    f"evaluator: policy {policy.label!r} gives no value (S-V and SA-V do); use another one"
                )
            values.append(decision.value)
        return [None] * len(values), values

    return ask


def _comparator(policy: Policy) -> Comparator:
    comparator = policy.comparator()
    if comparator is None:
        raise ValueError(f"comparator: policy {policy.label!r} cannot compare positions")
    return comparator
