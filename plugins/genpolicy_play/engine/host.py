"""The policy behind the engine: what can be told of it before it is loaded, loading it, and setting its options.

What a folder or a spelling says is read without torch, so that an engine can greet its GUI at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genpolicy import registry
from genpolicy.errors import RegistryError
from genpolicy.game import Game
from genpolicy.options import options_of
from genpolicy.policies.base import Policy, load_policy, read_policy_config, spelled_options
from genpolicy_play.engine.options import (
    NO_PRIOR,
    POLICY_OPTIONS,
    SAMPLERS_WITHOUT_MASK,
    SEARCH_OVER,
    SEED,
    Option,
    own_options,
    policy_options,
)

BUILT_IN_SEARCHES = ("uniform", "heuristic", "rollout")  # arguments of mcts that are no policy
INNER = ("num_steps", "sampler", "scheduler")
"""Options of the policies inside a search that the search itself does not take."""
COMPILER = "torch._dynamo"
"""The module of torch's compiler, which ``light_imports`` hides."""


@dataclass(frozen=True)
class Facts:
    """What is known of a policy before it is loaded."""

    kind: str
    """Entry-point name."""
    name: str
    """For people."""
    game: str | None
    """Specification of its game; None where only loading tells."""
    keys: tuple[str, ...]
    """Options that it takes, and ``INNER`` ones of the policies inside it."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What is set by the folder or the spelling, by option."""
    highest: Mapping[str, int] = field(default_factory=dict)
    """Upper ends of ranges."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names that options may take, where not all of ``options.py`` fit."""


def read_facts(spec: str, game: str | None) -> Facts:
    """What a folder's ``config.yaml`` or a spelling tells.

    Args:
        spec: As for ``load_policy``.
        game: Specification of the game where the user gave one.

    Raises:
        RegistryError: neither a policy's folder nor the spelling of an installed policy.
        CheckpointError: a damaged folder, or one of newer code.
    """
    head, _, query = spec.partition("?")
    spelled = spelled_options(query)
    game = game or spelled.get("game")
    path = Path(head)
    if not head or path.is_dir() or (path / "config.yaml").is_file():
        if not head:
            raise RegistryError("the policy is empty: name its folder, or write a spelling such as random")
        return _of_folder(path, spelled)
    kind, _, argument = head.partition(":")
    if kind not in registry.available("policies"):
        if "/" in head or path.suffix:
            raise RegistryError(f"{head}: no such folder")
        registry.load("policies", kind)  # it says what there is
    inside = [spelled.get("prior"), spelled.get("value"), argument] if kind == "mcts" else []
    keys, values, highest, choices = list(_keys_of(kind)), dict(spelled), {}, dict(_choices_of(kind))
    for part in inside:
        folder = Path(str(part).partition("?")[0]) if part and part not in BUILT_IN_SEARCHES else None
        if folder is not None and (folder / "config.yaml").is_file():
            inner = _of_folder(folder, spelled_options(str(part).partition("?")[2]))
            game = game or inner.game
            for key in INNER:
                if key in inner.keys and key not in keys:
                    keys.append(key)
                    values.setdefault(key, inner.values.get(key))
                    highest.update({k: v for k, v in inner.highest.items() if k == key})
                    choices.update({k: v for k, v in inner.choices.items() if k == key})
    return Facts(kind, spec, game, tuple(keys), values, highest, choices)


def _of_folder(path: Path, spelled: Mapping[str, Any]) -> Facts:
    if not (path / "config.yaml").is_file():
        load_policy(path)  # it says what is wrong
    config = read_policy_config(path)
    learner = _section(config, "learner")
    sampler, process = _section(learner, "sampler"), _section(learner, "process")
    highest = {}
    for key, number in (("num_steps", process.get("num_timesteps")), ("horizon", learner.get("horizon"))):
        if isinstance(number, int) and number >= 1:
            highest[key] = number
    if "scheduler" in learner:  # those of diffusers thin out a grid of their own
        highest.pop("num_steps", None)
    values = {
        "sampler": sampler.get("name"),
        "scheduler": learner.get("scheduler"),
        "num_steps": sampler.get("num_steps") or learner.get("num_steps") or highest.get("num_steps"),
        "temperature": sampler.get("temperature"),
        "horizon": sampler.get("horizon") or highest.get("horizon"),
        **_section(sampler, "options"),
        **_section(config, "play"),
        **spelled,
    }
    folder = path.resolve()
    name = folder.parent.name if folder.name == "policy" else folder.name
    kind = config["policy"]
    choices = _choices_of(kind)
    if process.get("kind") == "multinomial":
        choices = {**choices, "sampler": SAMPLERS_WITHOUT_MASK}
    return Facts(kind, name, config.get("game"), _keys_of(kind), values, highest, choices)


def _section(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A part of a configuration; empty where there is none (loading says what is wrong with it)."""
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def _keys_of(kind: str) -> tuple[str, ...]:
    """Options of a kind of policy; one that comes from elsewhere is asked, for which it is imported."""
    if kind in POLICY_OPTIONS:
        return POLICY_OPTIONS[kind]
    names: tuple[str, ...] = registry.load("policies", kind).option_names()
    return names


def _choices_of(kind: str) -> Mapping[str, tuple[str, ...]]:
    """As ``_keys_of``: what options of a policy from elsewhere may be."""
    if kind in POLICY_OPTIONS:
        return {}
    return {option.name: option.choices for option in options_of("policies", kind) if option.choices}


class Host:
    """Holds the policy that is served, and makes it again when an option changes.

    Args:
        spec: As for ``load_policy``.
        game: The game, where the user named one or the facts tell it.
        device: Where the network lies at first.
        facts: Of ``spec``.
    """

    def __init__(self, spec: str, game: Game[Any], device: str, facts: Facts) -> None:
        self.spec, self.game, self.facts = spec, game, facts
        self._device, self._device_now = device, device
        self._base: Policy | None = None
        self._policy: Policy | None = None
        self._set: dict[str, Any] = {}
        self._made_of: dict[str, Any] | None = None
        wdl = game.protocol == "uci"
        own = own_options(device, wdl=wdl)
        taken = policy_options(facts.keys, facts.values, facts.highest, facts.choices)
        if facts.kind not in NO_PRIOR:
            taken.append(SEARCH_OVER)
        if not any(option.key == "seed" for option in taken):
            taken.append(SEED)
        names = {option.name.lower() for option in own}
        self.options = [*(option for option in taken if option.name.lower() not in names), *own]
        self._by_name = {option.name: option for option in self.options}

    def load(self) -> None:
        """Load the policy; takes seconds, and imports torch where the policy needs it.

        Raises:
            ValueError: as ``load_policy``.
            LookupError: as ``load_policy``.
            EngineError: an engine behind it does not start.
        """
        base = load_lightly(self.spec, self.facts.kind, device=self._device, game=self.game)
        if self._base is not None:
            self._base.close()
        self._base, self._device_now, self._made_of = base, self._device, None

    @property
    def policy(self) -> Policy:
        """The policy as it is set; ``apply`` made it."""
        assert self._policy is not None
        return self._policy

    def was_set(self, key: str) -> bool:
        """Whether an option of the policy was set by the GUI or by the spelling, and is no default."""
        return key in self._set or key in spelled_options(self.spec.partition("?")[2])

    def apply(self, settings: dict[str, Any]) -> list[str]:
        """Make the policy again where settings changed.

        Args:
            settings: Values by the names of ``options``, only what was set; what the policy refuses is put back in it.

        Returns:
            What was refused, for people.

        Raises:
            ValueError: the policy refuses what it was loaded with.
        """
        self._set_threads(settings)
        refused = self._move(settings)
        changed = self._of_policy(settings)
        if self._policy is not None and changed == self._made_of:
            return refused
        try:
            self._policy = self._make(changed)
            self._made_of = changed
            return refused
        except (ValueError, LookupError):
            if not changed:
                raise
        # One at a time, from what was good: the culprit is named, and the others count.
        good = dict(self._made_of or {})
        for name, value in changed.items():
            if good.get(name) == value:
                continue
            try:
                self._policy = self._make({**good, name: value})
                good[name] = value
            except (ValueError, LookupError) as error:
                refused.append(f"option {name} stays as it was: {error}")
                if name in good:
                    settings[name] = good[name]
                else:
                    del settings[name]
        self._policy, self._made_of = self._make(good), good
        return refused

    def _set_threads(self, settings: Mapping[str, Any]) -> None:
        if "Threads" in settings and "torch" in sys.modules:
            import torch

            torch.set_num_threads(int(settings["Threads"]))

    def _move(self, settings: dict[str, Any]) -> list[str]:
        """Load the policy anew where another device was set."""
        device = str(settings.get("Device", self._device_now))
        if device == self._device_now:
            return []
        self._device = device
        try:
            self.load()
        except Exception as error:  # whatever a device's library raises; the network that is loaded still plays
            self._device = settings["Device"] = self._device_now
            return [f"Device {device} cannot be used: {error}"]
        return []

    def _of_policy(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if self._is_policys(self._by_name[name])}

    @staticmethod
    def _is_policys(option: Option) -> bool:
        return option.key is not None or option in (SEARCH_OVER, SEED)

    def _make(self, changed: Mapping[str, Any]) -> Policy:
        assert self._base is not None
        by_name = self._by_name
        keyed = {by_name[name].key: value for name, value in changed.items() if by_name[name].key}
        own = {key: value for key, value in keyed.items() if key and value is not None and value != "none"}
        number = changed.get(SEARCH_OVER.name) if by_name.get(SEARCH_OVER.name) == SEARCH_OVER else None
        policy = configured(self._base, own, int(number or 0))
        if by_name["Seed"] == SEED and "Seed" in changed:
            policy.seed(int(changed["Seed"]))
        self._set = {key: value for key, value in keyed.items() if key}
        if number:
            self._set["simulations"] = number
        return policy

    def reseed(self, settings: Mapping[str, Any]) -> None:
        """Seed the policy as at the beginning of a game, by the option that was set or else as it was loaded."""
        self.policy.seed(int(settings.get("Seed", self.facts.values.get("seed", 0)) or 0))

    def close(self) -> None:
        """End what the policy holds."""
        if self._base is not None:
            self._base.close()


def load_lightly(spec: str, kind: str, **options: Any) -> Policy:
    """``load_policy`` without importing torch's compiler, where the policy does without it.

    Args:
        spec: As for ``load_policy``.
        kind: The policy's entry-point name.
        options: As for ``load_policy``.
    """
    # A policy from elsewhere may need what is hidden; so may one that only loading finds inside a search.
    if kind not in POLICY_OPTIONS:
        return load_policy(spec, **options)
    try:
        with light_imports():
            return load_policy(spec, **options)
    except (ImportError, RuntimeError) as error:  # diffusers hands on a failed import as a RuntimeError
        if not _misses_compiler(error):
            raise
    return load_policy(spec, **options)


def configured(base: Policy, options: Mapping[str, Any], simulations: int = 0) -> Policy:
    """A policy with other options (weights shared), those of ``INNER`` also of the policies inside a search.

    Args:
        base: The policy as it was loaded.
        options: By the policy's own names.
        simulations: Above 0: of a tree search with the policy as its prior.

    Raises:
        ValueError: an option that it does not take or one out of range, or no search can be laid over it.
    """
    own = dict(options)
    names = type(base).option_names()
    inner = {key: own.pop(key) for key in INNER if key in own and key not in names}
    policy = base.with_options(**own) if own else base
    if own or inner:
        policy = _with_inner(policy, inner)
    return search_over(policy, simulations) if simulations else policy


def _with_inner(policy: Policy, changed: Mapping[str, Any]) -> Policy:
    """A search over the same policies with other options of those."""
    evaluator = getattr(policy, "evaluator", None)
    if not changed or evaluator is None:
        return policy
    same = evaluator.value is evaluator.prior
    for name in ("prior", "value"):
        inner = getattr(evaluator, name)
        if isinstance(inner, Policy):
            taken = {key: value for key, value in changed.items() if key in type(inner).option_names()}
            setattr(evaluator, name, inner.with_options(**taken))
    if same:
        evaluator.value = evaluator.prior
    return policy


def search_over(policy: Policy, simulations: int) -> Policy:
    """A tree search with a policy as its prior, and its values where it has some, else the game's own heuristic.

    Raises:
        ValueError: the policy gives no probabilities, or neither it nor the game a value.
    """
    from genpolicy.policies.mcts import MctsPolicy, PolicyEvaluator
    from genpolicy.search.leaf import Heuristic
    from genpolicy.search.tree import MctsConfig

    # By the first call alone where there are many: a search asks often.
    prior = policy.modes().get("one_call", policy)
    game = policy.game
    start = game.parse()
    decision = prior.decide([start])[0]
    if decision.policy is None:
        raise ValueError(f"policy {policy.label!r} gives no probabilities of its moves, which a search needs")
    value = prior if decision.value is not None else Heuristic(game)
    return MctsPolicy(game, PolicyEvaluator(prior, value), MctsConfig(simulations=simulations), name=policy.label)


@contextmanager
def light_imports() -> Iterator[None]:
    """While modules are imported, pretend that torch has no compiler.

    diffusers imports the compiler for one decorator, which it does without where there is none; that import takes as
    long as torch itself, and an engine compiles nothing.
    """
    hidden = COMPILER not in sys.modules
    if hidden:
        sys.modules[COMPILER] = None  # type: ignore[assignment]  # Python's own way to say that a module is missing
    try:
        yield
    finally:
        if hidden and sys.modules.get(COMPILER, "absent") is None:
            del sys.modules[COMPILER]


def _misses_compiler(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is the import of what ``light_imports`` hides."""
    while error is not None:
        if isinstance(error, ImportError) and (error.name or "").startswith(COMPILER):
            return True
        error = error.__cause__ or error.__context__
    return False
