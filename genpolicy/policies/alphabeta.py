"""Alpha-beta as a policy: ``alphabeta?depth=4``, with leaves by the game's heuristic or by another policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy, load_policy, resolve_game
from genpolicy.policies.seeds import check_options
from genpolicy.policies.simple import legal_of
from genpolicy.search.alphabeta import QUIESCENCE_PLIES, AlphaBeta, SearchResult
from genpolicy.search.alphabeta_oracle import DEFAULT_NODES
from genpolicy.search.scores import Comparator

OPTIONS = ("depth", "nodes", "movetime_ms", "quiescence", "prior", "prior_depth", "evaluator", "comparator")


class AlphaBetaPolicy(Policy):
    """Plays the best move of an alpha-beta search; each position is searched from empty tables.

    ``Decision.value`` is the score in [-1, 1] (None where a comparator leaves the game undecided), ``line`` and
    ``states`` the best moves of both sides as far as they were searched. Stats: ``nodes``; ``depth`` of the last
    finished iteration; ``exact``, 1 where the search went to the end of the game; ``mate_plies``, where the game is
    decided; ``ms``, wall time.

    Args:
        game: The game.
        depth: Plies of the search. Without any of the three limits it is 20,000 nodes.
        nodes: Positions looked at.
        movetime_ms: Milliseconds a position.
        quiescence: Most plies of forcing moves beyond the depth; 0: none.
        prior: A policy whose ``Decision.policy`` orders the moves.
        prior_depth: Plies to go at which it is asked, or more.
        evaluator: A policy whose ``Decision.value`` values leaves, in place of ``Hints.evaluate``.
        comparator: Says which of two leaves is better, in place of both (``genpolicy.search.scores.Comparator``).

    Raises:
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "alphabeta"
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
        if depth is None and nodes is None and movetime_ms is None:
            nodes = DEFAULT_NODES
        self._helpers = [policy for policy in (prior, evaluator) if policy is not None]
        self._seed = 0
        self._name = name
        self.search = AlphaBeta(
            game,
            depth=depth,
            nodes=nodes,
            movetime_ms=movetime_ms,
            quiescence=quiescence,
            prior=None if prior is None else _prior(prior),
            prior_depth=prior_depth,
            evaluator=None if evaluator is None else _evaluator(evaluator),
            comparator=comparator,
        )

    @property
    def label(self) -> str:
        """The spelling, e.g. ``alphabeta?depth=4``."""
        return self._name

    def seed(self, seed: int) -> None:
        """Seed the policies that are asked; the search itself draws nothing."""
        self._seed = seed

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        """The best move found for each position.

        Raises:
            ValueError: a position without legal moves, or a game without a heuristic where one is needed.
        """
        legal_of(self.game, states)
        decisions = []
        for state in states:
            for policy in self._helpers:
                policy.seed(self._seed)  # so that an answer depends on its position alone
            began = time.perf_counter()
            found = self.search.search(state)
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
        return Decision(found.move, value=found.value, line=found.line, states=tuple(texts), stats=stats)

    def close(self) -> None:
        """Close the policies that are asked."""
        for policy in self._helpers:
            policy.close()

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> AlphaBetaPolicy:
        """``alphabeta?depth=4``; ``prior``, ``evaluator`` and ``comparator`` name policies by folder or spelling."""
        check_options(cls.kind, options, ("device", "game", "seed", *OPTIONS))
        if argument:
            raise ValueError(f"policy {cls.kind!r} takes no argument, got {argument!r}; write {cls.kind}?depth=4")
        game = resolve_game(options.get("game"), cls.kind)
        own = {key: value for key, value in options.items() if key in OPTIONS and value is not None}
        name = cls.kind + "?" * bool(own) + "&".join(f"{key}={value}" for key, value in own.items())
        asked = {"game": game, **({"device": options["device"]} if "device" in options else {})}
        for key in ("prior", "evaluator"):
            if isinstance(own.get(key), str):
                own[key] = load_policy(own[key], **asked)
        if isinstance(own.get("comparator"), str):
            own["comparator"] = _comparator(load_policy(own["comparator"], **asked), own["comparator"])
        made = cls(game, **own, name=name)
        made.seed(int(options.get("seed", 0)))
        return made


def _prior(policy: Policy) -> Callable[[Any], Mapping[int, float]]:
    def ask(state: Any) -> Mapping[int, float]:
        found = policy.decide([state])[0].policy
        if found is None:
            raise ValueError(f"prior: policy {policy.label!r} gives no probabilities of its moves; take another one")
        return found

    return ask


def _evaluator(policy: Policy) -> Callable[[Any], float]:
    def ask(state: Any) -> float:
        found = policy.decide([state])[0].value
        if found is None:
            raise ValueError(f"evaluator: policy {policy.label!r} gives no value (S-V and SA-V do); take another one")
        return found

    return ask


def _comparator(policy: Policy, spelling: str) -> Comparator:
    compare: Comparator | None = getattr(policy, "compare", None)
    if compare is None:
        raise ValueError(
            f"comparator: policy {spelling!r} compares no positions: it has no method compare(a, b, player)"
        )
    return compare
