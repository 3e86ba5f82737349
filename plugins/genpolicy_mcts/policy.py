"""MCTS as a policy: a prior from one policy, a value from another (or the same), or from nothing but the rules.

``mcts:FOLDER?value=OTHER`` takes FOLDER's ``Decision.policy`` as the prior and OTHER's ``Decision.value`` as the value;
``mcts:uniform``, ``mcts:heuristic`` and ``mcts:rollout`` need no weights. An option that holds ``&`` is written with
``%26``. See ``docs/search.md``.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from genpolicy.chance import settled
from genpolicy.control import FREE, Control
from genpolicy.facets import gives_evaluation
from genpolicy.game import Game
from genpolicy.options import Option, PolicySpec, options_of, read_options, with_defaults
from genpolicy.policies import declared
from genpolicy.policies.base import Decision, Policy, Variation, decide_with, legal_of, load_policy, resolve_game
from genpolicy.policies.seeds import RowSeeds
from genpolicy.search.model import Evaluator, Prior, SearchModel
from genpolicy_mcts.evaluators import Heuristic, Rollout
from genpolicy_mcts.mcts import PRESETS, Mcts, SearchResult, sharpened
from genpolicy_mcts.reuse import KeptTrees
from genpolicy_mcts.rules import RulesModel, even
from genpolicy_mcts.selection import OPTIONS, MctsConfig
from genpolicy_mcts.thinking import TreeThinker

BUILT_IN = {"uniform": "even", "heuristic": "heuristic", "rollout": "rollout"}
"""Arguments that are not policies, with the value that each selects; their prior is uniform."""
VALUES = ("even", "heuristic", "rollout")
NUM_VARIATIONS = 8
"""Most of ``Decision.variations``: the candidates of a search in the imagination, by default."""
OWN_OPTIONS = (
    *OPTIONS,
    Option("tau", float, 1.0, low=0, usual_low=0.01, usual_high=10, help="exponent of the visits", label="tau"),
    declared.TEMPERATURE,
    Option("reuse", bool, False, help="keep the tree from move to move", hidden=True),
    declared.SEED,
    Option("preset", str, "none", choices=("none", *PRESETS), help="a paper's settings"),
    Option("prior", str, help="policy whose probabilities of moves are the prior", fixed=True, hidden=True),
    Option("value", str, help="policy that evaluates positions", fixed=True, hidden=True),
    Option("model", str, help="the policy's own model to search instead of the rules", fixed=True, hidden=True),
)


class PolicyModel(RulesModel):
    """The rules of a game, judged by policies: a prior from one, a value from another (or the same).

    Args:
        game: The rules.
        prior: Its ``Decision.policy`` is the prior; None for a uniform one.
        value: Its ``Decision.value``, or an evaluator's.
        seed: Policies that draw are reseeded with it before every call, so that an answer depends on its position (and,
            for a position that stands twice in one call, on which of the two it is).
        check: Handed to the policies (``genpolicy.control.Control``).
    """

    def __init__(
        self,
        game: Game[Any],
        prior: Policy | None,
        value: Policy | Evaluator,
        seed: int = 0,
        check: Callable[[], None] = FREE.check,
    ) -> None:
        super().__init__(game, self.judge)
        self.prior, self.value = prior, value
        self._seed, self._control = seed, Control(check)

    def judge(self, states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        """Priors and values of some states; see ``genpolicy.search.model.Evaluator``.

        Raises:
            ValueError: a policy without probabilities, or without a value, where they are needed.
        """
        by_prior = [] if self.prior is None else self._ask(self.prior, states)
        priors: list[Prior] = [None] * len(states)
        for row, decision in enumerate(by_prior):
            if decision.policy is None:
                raise ValueError(
                    f"policy {_label(self.prior)} gives no move probabilities, which a search needs as its "
                    "prior: add prior=uniform, or prior=FOLDER of a policy that has them"
                )
            priors[row] = decision.policy
        if not isinstance(self.value, Policy):
            return priors, list(self.value(states)[1])
        if self.value is not self.prior and (found := self.value.evaluate(states, control=self._control)) is not None:
            self.network_calls += found[1]
            return priors, found[0]
        values = []
        for decision in by_prior if self.value is self.prior else self._ask(self.value, states):
            if decision.value is None:
                raise ValueError(
                    f"policy {_label(self.value)} gives no value (it only predicts moves), which a search needs: "
                    "add value=FOLDER of one that has (S-V, SA-V), or value=heuristic, value=rollout or value=even"
                )
            values.append(decision.value)
        return priors, values

    def _ask(self, policy: Policy, states: Sequence[Any]) -> list[Decision]:
        policy.seed(self._seed)
        decisions = decide_with(policy, states, self._control)
        # Each decision counts the calls of its whole part of the batch.
        size = policy.positions_a_call or len(states)
        self.network_calls += int(sum(d.stats.get("network_calls", 0) for d in decisions[::size]))
        return decisions

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies that judge, each once."""
        return tuple(dict.fromkeys(each for each in (self.prior, self.value) if isinstance(each, Policy)))

    def for_search(self, seed: int, check: Callable[[], None]) -> PolicyModel:
        """The same policies, asked with this seed; network calls are counted from 0."""
        return PolicyModel(self.game, self.prior, self.value, seed, check)

    def options(self) -> tuple[Option, ...]:
        """The forwarded options of the policies."""
        return tuple({o.name: o for each in self.policies for o in each.options() if o.forwarded}.values())

    def with_options(self, **changed: Any) -> PolicyModel:
        """The same policies, each with those of some options that it takes."""
        made: dict[Any, Policy] = {}
        for policy in self.policies:
            names = [option.name for option in policy.options() if option.forwarded]
            made[policy] = policy.with_options(**{key: value for key, value in changed.items() if key in names})
        prior = None if self.prior is None else made[self.prior]
        value = made[self.value] if isinstance(self.value, Policy) else self.value
        return PolicyModel(self.game, prior, value)

    def close(self) -> None:
        """Close the policies."""
        for policy in self.policies:
            policy.close()


class MctsPolicy(Policy):
    """Plays the most visited move of a tree search, or draws one by visits.

    ``Decision.policy`` is what a prior should learn of the search: the visit distribution, in proportion to
    visits^(1 / tau), or with ``root=gumbel`` the improved policy; ``value`` the mean of the tree; ``line`` and
    ``states`` its principal variation; ``variations`` the most visited moves with their lines, their values and the
    first position of each. Stats: ``simulations`` (added by this search), ``kept`` (visits taken over from
    the search before), ``evaluations`` (positions), ``depth`` (plies of the longest line), ``network_calls`` (shared by
    the positions of a batch) and ``ms`` (wall time of the batch over its rows).

    Args:
        game: The game.
        model: What is searched: the rules judged by policies (``PolicyModel``), or a learned model.
        config: The search's numbers.
        tau: The visit distribution is visits^(1 / tau), above 0.
        temperature: The move is drawn from that policy to the power 1 / temperature, among the visited moves; 0 plays
            the search's choice.
        reuse: Continue from the subtree of the moves played since an earlier decision. ``simulations`` are added to
            it, so a decision then depends on those before it; ``seed`` forgets them.
        seed: Seed of noise and drawn moves; same seed, same game (see ``genpolicy.policies.seeds``).
        capped: Make no more simulations than ``config`` says under a clock either.
        name: Label of the model, for tables.

    Raises:
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "mcts"
    is_prior: ClassVar[bool] = False
    starts_cold: ClassVar[bool] = False
    spelling: ClassVar[str] = "mcts:FOLDER|uniform|heuristic|rollout[?simulations=N&value=FOLDER&key=value&...]"

    def __init__(
        self,
        game: Game[Any],
        model: SearchModel,
        config: MctsConfig | None = None,
        *,
        tau: float = 1.0,
        temperature: float = 0.0,
        reuse: bool = False,
        seed: int = 0,
        capped: bool = False,
        name: str = "",
    ) -> None:
        if not 0 < tau < math.inf:
            raise ValueError(f"tau must be above 0, got {tau}")
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature must be at least 0 (0 plays the most visited move), got {temperature}")
        if reuse and config is not None and config.root == "gumbel":
            raise ValueError("reuse=true with root=gumbel, which plans all visits of a new tree: omit reuse")
        if reuse and not model.reusable:
            raise ValueError(
                "reuse=true: this search model does not say which positions its nodes stand for and what is legal "
                "there; leave it out"
            )
        self.game, self.model, self.config = game, model, config or MctsConfig()
        self.tau, self.temperature, self.reuse, self._name = float(tau), float(temperature), reuse, name
        self.capped = capped
        self._kept = KeptTrees(game, model)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Make the draws that follow the same as those after any other call with this seed; forget kept trees."""
        self.seeds = RowSeeds(seed)
        """Seeds of noise and drawn moves, one for each position."""
        self._kept.clear()

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """One search for each position, their leaves evaluated together.

        Kept trees have all legal moves at their roots, so a restricted search neither takes one over nor leaves one.

        Raises:
            ValueError: a position without legal moves or without an allowed one, or an invalid prior or value.
        """
        began = time.perf_counter()
        legal_of(self.game, states, control)
        seeds = self.seeds.draw([self.game.format(state) for state in states])
        reuse = self.reuse and control.restrict is None
        kept = [self._kept.find(state) if reuse else None for state in states]
        num_kept = [0 if tree is None else tree.visits[0] - 1 for tree in kept]
        model = self.model.for_search(self.seeds.seed, control.check)
        calls = model.network_calls
        results = Mcts(model, self.config).search(states, seeds, kept, control=control)
        if reuse:
            self._kept.add([result.tree for result in results])
        shared = {
            "network_calls": float(model.network_calls - calls),
            "ms": 1e3 * (time.perf_counter() - began) / max(1, len(states)),
            **model.stats(),
        }
        return [
            self._decision(result, seed, {"kept": float(visits), **shared})
            for result, seed, visits in zip(results, seeds, num_kept, strict=True)
        ]

    def _decision(self, result: SearchResult, seed: int, stats: Mapping[str, float]) -> Decision:
        move = self.chosen(result, seed)
        line, states = result.line_from(move)
        return Decision(
            move,
            policy=self.target(result),
            value=result.value if self.model.bounded else None,
            line=line,
            states=self.texts(result, states),
            variations=self.variations(result, move),
            stats={
                "raw_legal": 1.0,
                "simulations": float(result.simulations),
                "evaluations": float(result.evaluations),
                "depth": float(result.depth),
                **stats,
            },
            names=self.game.moves.texts,
        )

    def variations(self, result: SearchResult, move: int, num: int = NUM_VARIATIONS) -> tuple[Variation, ...]:
        """What a search found of ``num`` moves, the played one first; each has the text of its first position alone."""
        found = []
        for each in result.best_first(move)[:num]:
            line, states = result.line_from(each)
            value = min(1.0, max(-1.0, result.q[each])) if self.model.bounded else None
            found.append(Variation(line, value, states=self.texts(result, states[:1])))
        return tuple(found)

    def target(self, result: SearchResult) -> dict[int, float]:
        """What a prior should learn of a search, by move: ``Decision.policy``."""
        return result.improved if self.config.root == "gumbel" else result.distribution(self.tau)

    def chosen(self, result: SearchResult, seed: int) -> int:
        """The move that a search of this policy's plays: its choice, or one drawn."""
        if self.temperature == 0:
            return result.choice
        generator = np.random.default_rng([seed, 1])  # the seed itself has drawn the noise
        if self.config.root == "gumbel":
            shares = sharpened({move: result.improved[move] for move in result.q}, self.temperature)
        else:
            shares = result.distribution(self.tau * self.temperature)
        return int(generator.choice(list(shares), p=list(shares.values())))

    def texts(self, result: SearchResult, embeddings: Sequence[Any]) -> tuple[str | None, ...]:
        """Text of the position that each embedding of a search stands for, None for one that stands for none; empty
        where the model knows no positions, not even the root's."""
        if self.model.position(result.tree.embeddings[0]) is None:
            return ()
        positions = [self.model.position(embedding) for embedding in embeddings]
        return tuple(None if position is None else self.game.format(position) for position in positions)

    @property
    def prior(self) -> Policy | None:
        """The policy whose probabilities are the prior; None for a uniform prior or a model's own."""
        return self.model.prior if isinstance(self.model, PolicyModel) else None

    @property
    def imagines(self) -> bool:
        """See ``Policy.imagines``."""
        return not isinstance(self.model, RulesModel)

    def thinker(self) -> TreeThinker:
        """See ``Policy.thinker``."""
        return TreeThinker(self)

    @property
    def label(self) -> str:
        """Simulations and what is searched with, e.g. ``mcts-100:uniform``."""
        return f"{self.kind}-{self.config.simulations}" + (f":{self._name}" if self._name else "")

    def close(self) -> None:
        """Close the model, and forget kept trees."""
        self._kept.clear()
        self.model.close()

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """See ``Policy.options``; those of the policies inside that ``forwarded`` says are among them."""
        inside = () if spec is None else spec.inside
        options = {option.name: option for option in OWN_OPTIONS}
        for each in inside:
            for option in options_of("policies", each.kind, each):
                if option.forwarded:
                    options.setdefault(option.name, option)
        return with_defaults(options.values(), {} if spec is None else spec.settings)

    @classmethod
    def untrained(cls, game: Game[Any]) -> tuple[str, ...]:
        """See ``Policy.untrained``."""
        return (f"{cls.kind}:heuristic?simulations=200",) if gives_evaluation(game) else ()

    def with_options(self, **changed: Any) -> MctsPolicy:
        """A search of the same model (weights shared) with other options, the model's own among them.

        Raises:
            ValueError: an option that neither the search nor its model takes, or one out of range.
        """
        own = {option.name: option for option in OWN_OPTIONS if not option.fixed}
        known = {**{option.name: option for option in self.model.options()}, **own}
        read = read_options(f"policy {self.kind!r}", changed, known.values())
        forwarded = {key: value for key, value in read.items() if key not in own}
        mine = _with_preset({key: value for key, value in read.items() if key in own})
        rest = {"tau": self.tau, "temperature": self.temperature, "reuse": self.reuse, "seed": self.seeds.seed}
        options = {**dataclasses.asdict(self.config), **rest, **mine}
        config = MctsConfig(**{option.name: options.pop(option.name) for option in OPTIONS})
        model = self.model.with_options(**forwarded) if forwarded else self.model
        capped = self.capped or "simulations" in changed  # a number that was set is a limit under a clock too
        return type(self)(self.game, model, config, capped=capped, name=self._name, **options)

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> MctsPolicy:
        """``mcts:FOLDER?simulations=100&value=OTHER``, ``mcts:uniform``, ``mcts:heuristic``, ``mcts:rollout``.

        Raises:
            ValueError: an option that it does not take or one out of range, or a policy without what is needed of it.
            RegistryError: no such folder or policy.
        """
        options = dict(options)
        inner = {key: options.pop(key) for key in ("device", "game") if options.get(key) is not None}
        prior_spec, value_spec = options.pop("prior", None), options.pop("value", None)
        if not argument and (prior_spec is None or value_spec is None):
            raise ValueError(
                f"policy 'mcts' needs something to search with: {cls.spelling}; got neither a FOLDER nor both "
                "prior= and value="
            )
        prior_spec = str(prior_spec or ("uniform" if argument in BUILT_IN else argument))
        value_spec = str(value_spec or BUILT_IN.get(argument, argument))
        policies = {
            spec: load_policy(spec, **inner)
            for spec in dict.fromkeys((prior_spec, value_spec))
            if spec not in ("uniform", *VALUES)
        }
        game = _common_game(policies, inner.get("game"))
        whole = policies.get(argument) if {prior_spec, value_spec} == {argument} else None
        name = options.pop("model", None)
        if name not in (None, "rules") and whole is None and policies:
            raise ValueError(
                f"model={name} with prior= or value=, which judge positions of the rules: a policy's own model judges "
                "itself, so leave them out"
            )
        model = _model_of(whole, argument, name)
        if model is None:
            prior = _prior_of(prior_spec, policies)
            value = policies.get(value_spec) or _value_of(value_spec, game, options.get("seed") or 0)
            model = PolicyModel(game, prior, value)
        policy = cls(game, model, name=_name_of(argument, prior_spec, value_spec, policies)).with_options(**options)
        if policies:
            # A policy without priors or values should fail now, and not in the middle of a tournament.
            try:
                first, _ = settled(game, game.parse(), random.Random(0))
                policy.model.for_search(0, FREE.check).root([first])
            except ValueError:
                policy.close()
                raise
        return policy


def _model_of(policy: Policy | None, spec: str, name: str | None) -> SearchModel | None:
    """The policy's own model; None for the rules.

    Raises:
        ValueError: it has no model of this name.
    """
    if name is None or name == "rules":
        return None if policy is None or name else policy.search_model()
    model = None if policy is None else policy.search_model(name)
    if model is None:
        raise ValueError(
            f"model={name}: {spec or 'prior= and value='} has no such model; model=rules searches the rules"
        )
    return model


def _prior_of(spec: str, policies: Mapping[str, Policy]) -> Policy | None:
    if spec in VALUES:
        raise ValueError(f"prior={spec}: not a prior; use prior=uniform or prior=FOLDER (value={spec} is a value)")
    return policies.get(spec)


def _value_of(spec: str, game: Game[Any], seed: int) -> Evaluator:
    if spec == "uniform":
        raise ValueError(f"value=uniform: not a value; use one of {', '.join(VALUES)}, or a policy's folder")
    if spec == "heuristic":
        return Heuristic(game)
    return Rollout(game, seed=seed) if spec == "rollout" else even


def _common_game(policies: Mapping[str, Policy], wanted: Game[Any] | str | None) -> Game[Any]:
    """The game that all policies play.

    Raises:
        ValueError: they play different games, or no game is given.
    """
    games = {policy.game.spec: policy.game for policy in policies.values()}
    if len(games) > 1:
        pairs = ", ".join(f"{name} plays {policy.game.spec}" for name, policy in policies.items())
        raise ValueError(f"prior and value are of different games: {pairs}")
    return next(iter(games.values())) if games else resolve_game(wanted, "mcts")


def _name_of(argument: str, prior: str, value: str, policies: Mapping[str, Policy]) -> str:
    """The argument's name, or prior and value where they are not both of it."""
    if argument in BUILT_IN and (prior, value) == ("uniform", BUILT_IN[argument]):
        return argument
    names = [policies[spec].label if spec in policies else spec for spec in dict.fromkeys((prior, value))]
    return "+".join(names)


def _label(policy: Policy | None) -> str:
    return repr("" if policy is None else policy.label)


def _with_preset(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options over those of the named setting."""
    options = dict(options)
    return {**PRESETS.get(options.pop("preset", None) or "none", {}), **options}
