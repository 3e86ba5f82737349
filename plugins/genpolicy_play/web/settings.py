"""Strength settings: what a client may change about a policy, with ranges, and the policy that it gets.

What a policy takes is known from its folder or spelling (``genpolicy_play.engine``); here are the ranges that a page
offers, words for people, and the reading of what it sends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from genpolicy.errors import EngineError
from genpolicy.policies.base import Policy, load_policy
from genpolicy_play.engine.host import Facts, configured
from genpolicy_play.engine.options import NO_PRIOR, POLICY_OPTIONS, policy_options
from genpolicy_play.engine.options import Option as EngineOption
from genpolicy_play.web.requests import MAX_SEED, RequestError, number, quoted, whole_number

Kind = Literal["choice", "int", "float", "bool"]
HIDDEN = ("seed", "batch_size", "legal_mask", "reuse", "leaves", "virtual_loss")
"""Of no use to somebody who plays: the seed has a field of its own, and the others change speed, or the rules."""
BASIC = ("sampler", "scheduler", "num_steps", "temperature", "horizon", "simulations", "nodes", "depth", "movetime_ms")
MOST = {"simulations": 5000, "num_futures": 64, "num_steps": 1000}
"""Upper ends below the engine's: a page waits for the answer."""
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 10.0),
    "prior_temperature": (0.01, 100.0),
    "c_puct": (0.01, 100.0),
    "c_base": (1.0, 1e6),
    "c_init": (0.0, 100.0),
    "first_play_reduction": (0.0, 2.0),
    "first_play_value": (-1.0, 1.0),
    "dirichlet_alpha": (0.001, 100.0),
    "noise_fraction": (0.0, 1.0),
    "tau": (0.01, 10.0),
    "noise": (0.0, 10.0),
    "eta": (0.0, 1.0),
}
"""Of options that are numbers with a fraction."""
LABELS = {
    "movetime_ms": "Milliseconds",
    "num_steps": "Steps",
    "c_puct": "c_puct",
    "c_base": "c_base",
    "c_init": "c_init",
    "tau": "tau",
    "eta": "eta",
    "dirichlet_alpha": "Dirichlet alpha",
}
"""Names for people where they are not the option's own with a capital."""
HELP = {
    "sampler": "how the masked future is filled in",
    "scheduler": "how the noise is taken away",
    "num_steps": "denoising steps, each a network call; fewer are faster and weaker",
    "temperature": "0 plays the likeliest move, more plays more varied and weaker",
    "horizon": "plies imagined",
    "simulations": "of a tree search over the policy; 0 plays without one",
    "num_futures": "futures imagined; the move is the likeliest of their mean (sampler a0_last, temperature above 0)",
    "rate": "how many tokens are filled in at each step",
    "score": "which tokens are filled in first",
    "noise": "chance in the order in which tokens are filled in",
    "commit": "keep what has been filled in",
    "eta": "share of tokens that are masked again",
    "sigma": "how that share depends on the step",
    "imagine": "imagine the whole line, not the move alone",
    "readout": "how a value is read off its bins",
    "prior_temperature": "sharpens (below 1) or flattens the probabilities of moves",
    "c_puct": "weight of the prior in the search",
    "c_base": "from where on that weight grows with the visits",
    "c_init": "that weight at the beginning",
    "first_play": "value of a move that was not tried yet",
    "first_play_reduction": "how much less than its parent such a move is worth",
    "first_play_value": "that value where it is constant",
    "dirichlet_alpha": "of the noise at the root",
    "noise_fraction": "share of the noise at the root",
    "early_stop": "stop when the move can change no more",
    "tau": "exponent of the visits",
    "preset": "settings of a paper",
    "nodes": "positions looked at; fewer are faster and weaker",
    "depth": "plies looked ahead",
    "movetime_ms": "time of a move",
}
SEARCH = EngineOption("Simulations", "spin", 0, 0, MOST["simulations"], key="simulations")
ALPHABETA = (
    EngineOption("Nodes", "spin", 20_000, 100, 200_000, key="nodes"),
    EngineOption("Depth", "spin", 0, 0, 20, key="depth"),
)
"""What an alpha-beta search without policies of its own may be told."""
LIMITS = (
    EngineOption("Nodes", "spin", 0, 1, 10_000_000, key="nodes"),
    EngineOption("Depth", "spin", 0, 1, 40, key="depth"),
    EngineOption("Milliseconds", "spin", 0, 1, 20_000, key="movetime_ms"),
)
"""Of an engine: those that its spelling sets may be set otherwise."""
MAX_MADE = 32
"""Policies of one offer, with different options, that are kept."""
MAX_ENGINES = 3
"""The same of engines, which are processes."""


@dataclass(frozen=True)
class Setting:
    """One option as a page shows it."""

    name: str
    kind: Kind
    default: Any
    """None: the policy's own."""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    samplers: tuple[str, ...] | None = None
    """Samplers that take it; None: it depends on none."""

    def read(self, value: Any) -> Any:
        """The value that a client sent.

        Raises:
            RequestError: of another type, or out of range.
        """
        name = f"options.{self.name}"
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise RequestError(f"{name} must be true or false, got {quoted(value)}")
            return value
        if self.kind == "choice":
            if value not in self.choices or not isinstance(value, str):
                raise RequestError(f"{name} must be one of {', '.join(self.choices)}, got {quoted(value)}")
            return value
        assert self.low is not None
        assert self.high is not None
        if self.kind == "int":
            return whole_number(value, name, int(self.low), int(self.high))
        return number(value, name, self.low, self.high)

    def described(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            "name": self.name,
            "label": LABELS.get(self.name, self.name.replace("_", " ").capitalize()),
            "kind": self.kind,
            "choices": list(self.choices) or None,
            "min": self.low,
            "max": self.high,
            "default": self.default,
            "help": HELP.get(self.name, ""),
            "advanced": self.name not in BASIC,
            "samplers": None if self.samplers is None else list(self.samplers),
        }


def _setting(option: EngineOption) -> Setting | None:
    """An option of the engine as a page shows it; None for those that people have no use for or nothing is known of."""
    name = option.key or ""
    if name in HIDDEN:
        return None
    if option.kind == "check":
        return Setting(name, "bool", bool(option.default))
    if option.kind == "combo":
        return Setting(name, "choice", option.default, choices=option.members) if len(option.members) > 1 else None
    if option.kind == "spin":
        number_now = int(option.default)
        most = max(min(option.high, MOST.get(name, option.high)), number_now)
        return Setting(name, "int", number_now, option.low, most) if option.low < most else None
    if name not in RANGES:
        return None
    low, high = RANGES[name]
    default = option.default if isinstance(option.default, int | float) else None
    return Setting(name, "float", None if default is None else float(default), low, high)


class Settings:
    """The options of one policy.

    Args:
        spec: As for ``load_policy``.
        facts: What is known of it.
        base: The policy as it was loaded.
        device: Where it lies.
    """

    def __init__(self, spec: str, facts: Facts, base: Policy, device: str) -> None:
        self._spec, self._base, self._device = spec, base, device
        self._made: OrderedDict[tuple[tuple[str, Any], ...], Policy] = OrderedDict()
        anew = _limits(base.kind, facts.values)
        self._made_anew = anew is not None
        self._max_made = MAX_ENGINES if base.kind == "engine" else MAX_MADE
        options = policy_options(facts.keys, facts.values, facts.highest) if anew is None else anew
        # A network alone can be made the prior of a search; over what draws at random that would be another player.
        self.takes_search = base.kind not in NO_PRIOR and bool(POLICY_OPTIONS.get(base.kind))
        found = [setting for option in options if (setting := _setting(option)) is not None]
        if self.takes_search:
            search = _setting(SEARCH)
            assert search is not None
            found.append(search)
        self.all = tuple(self._tried(found))

    def _tried(self, found: list[Setting]) -> list[Setting]:
        """The settings without samplers that the policy refuses, each with the samplers that take it."""
        sampler = next((setting for setting in found if setting.name == "sampler"), None)
        if sampler is None:
            return found
        taken = tuple(name for name in sampler.choices if self._takes({"sampler": name}))
        tried = []
        for setting in found:
            if setting.name == "sampler":
                if len(taken) > 1:
                    tried.append(replace(setting, choices=taken))
                continue
            if setting.name in ("simulations", "horizon"):
                tried.append(setting)
                continue
            probe = {setting.name: _probe(setting), **({"temperature": 1.0} if setting.name == "num_futures" else {})}
            takers = tuple(name for name in taken if self._takes({"sampler": name, **probe}))
            if takers:
                tried.append(setting if takers == taken else replace(setting, samplers=takers))
        return tried

    def _takes(self, options: Mapping[str, Any]) -> bool:
        try:
            self._base.with_options(**options)
        except (ValueError, LookupError, TypeError):
            return False
        return True

    def read(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """What a client sent, checked; null is left out.

        Raises:
            RequestError: an option that the policy does not have, or a value out of range.
        """
        known = {setting.name: setting for setting in self.all}
        for name in sent:
            if name not in known:
                there = ", ".join(known) or "none"
                raise RequestError(f"policy {self._base.label!r} has no option {quoted(name)}; it has: {there}")
        return {name: known[name].read(value) for name, value in sent.items() if value is not None}

    def policy(self, chosen: Mapping[str, Any]) -> Policy:
        """The policy with some options; only the thread that works with it may ask.

        Raises:
            RequestError: options that do not go together.
        """
        key = tuple(sorted(chosen.items()))
        if not key:
            return self._base
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        try:
            made = self._make(dict(chosen))
        except (ValueError, LookupError) as error:
            raise RequestError(str(error)) from error
        except EngineError as error:
            raise RequestError(str(error), 502) from error
        self._made[key] = made
        if len(self._made) > self._max_made:
            _, oldest = self._made.popitem(last=False)
            if self._made_anew:  # the others share what the base holds
                oldest.close()
        return made

    def close(self) -> None:
        """Close the policies that were made anew; the base is its owner's."""
        for made in self._made.values() if self._made_anew else ():
            made.close()
        self._made.clear()

    def _make(self, chosen: dict[str, Any]) -> Policy:
        if self._made_anew:
            options = {name: value for name, value in chosen.items() if value}
            return load_policy(self._spec, **{"game": self._base.game, "device": self._device, **options})
        simulations = int(chosen.pop("simulations", 0)) if self.takes_search else 0
        options = {name: value for name, value in chosen.items() if value != "none"}
        return configured(self._base, options, simulations)


def _limits(kind: str, values: Mapping[str, Any]) -> list[EngineOption] | None:
    """The limits of a search that is made anew for other ones; None for policies that take options."""
    if kind == "alphabeta" and not {"prior", "evaluator", "comparator"} & values.keys():
        return [replace(option, default=_whole(values.get(option.key or "")) or option.default) for option in ALPHABETA]
    if kind == "engine":
        told = [(option, _whole(values.get(option.key or ""))) for option in LIMITS]
        return [replace(option, default=value, high=max(value, option.high)) for option, value in told if value]
    return None


def _whole(value: Any) -> int:
    return value if type(value) is int else 0


def _probe(setting: Setting) -> Any:
    """A value that the setting admits and that is not its usual one where it can be."""
    if setting.kind == "bool":
        return True
    if setting.kind == "choice":
        return setting.choices[-1]
    assert setting.low is not None
    assert setting.high is not None
    return min(2, int(setting.high)) if setting.kind == "int" else min(max(0.5, setting.low), setting.high)


def drawn_seed(random_bytes: bytes) -> int:
    """A seed in 0..``MAX_SEED`` of four random bytes."""
    return int.from_bytes(random_bytes[:4], "big") & MAX_SEED
