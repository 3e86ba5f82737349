"""The settings of a policy: its options as a page shows them, and the policy that a choice of values gives."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from genpolicy.errors import EngineError
from genpolicy.options import Option, PolicySpec, declaration_of, options_of
from genpolicy.policies.base import Policy, load_policy
from genpolicy_play.search_over import search_over
from genpolicy_play.web.requests import MAX_SEED, RequestError, number, quoted, whole_number
from genpolicy_play.web.timing import Timing

SEARCH_OVER = Option(
    "simulations", int, 0, 0, 5000, help="simulations of a tree search over the policy; 0: no search", basic=True
)
"""Of a policy that is not a search."""
MAX_MADE = 32
"""Policies of one offer, with different settings, that are kept."""
MAX_LOADED = 3
"""The same of policies that are loaded again for each choice: they may hold processes."""


class Setting:
    """One option as a page shows it.

    Args:
        option: The option.
        samplers: Values of another option with which it can be set; None if it depends on none.
    """

    def __init__(self, option: Option, samplers: tuple[str, ...] | None = None) -> None:
        self.option, self.samplers = option, samplers
        self.name = option.name
        self.low, self.high = _range(option)

    @property
    def kind(self) -> str:
        """``choice``, ``bool``, ``int``, ``float`` or ``text``."""
        if self.option.choices:
            return "choice"
        return "text" if self.option.type is str else self.option.type.__name__

    def read(self, value: Any) -> Any:
        """The value that a client sent.

        Raises:
            RequestError: of another type, or out of range.
        """
        name, option = f"options.{self.name}", self.option
        if option.type is bool:
            if not isinstance(value, bool):
                raise RequestError(f"{name} must be true or false, got {quoted(value)}")
            return value
        if option.choices:
            if value not in option.choices or not isinstance(value, str):
                raise RequestError(f"{name} must be one of {', '.join(option.choices)}, got {quoted(value)}")
            return value
        low, high = -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high
        return whole_number(value, name, low, high) if option.type is int else number(value, name, low, high)

    def described(self) -> dict[str, Any]:
        """The setting as JSON."""
        option = self.option
        return {
            "name": option.name,
            "label": option.title,
            "kind": self.kind,
            "choices": list(option.choices) or None,
            "min": self.low,
            "max": self.high,
            "default": option.default,
            "help": option.help,
            "advanced": not option.basic,
            "samplers": None if self.samplers is None else list(self.samplers),
        }


def _range(option: Option) -> tuple[float | None, float | None]:
    """The range that a page offers: the usual values, and the default among them; None where there is no bound."""
    if option.type not in (int, float):
        return None, None
    low = option.low if option.usual_low is None else max(option.low, option.usual_low)
    usual_high = option.usual_high if option.page_high is None else option.page_high
    high = option.high if usual_high is None else min(option.high, usual_high)
    if option.default is not None:
        low, high = min(low, option.default), max(high, option.default)
    first, last = (option.type(end) if math.isfinite(end) else None for end in (low, high))
    return first, last


def settings_of(options: Mapping[str, Option]) -> list[Setting]:
    """The settings that a page shows, by name of an option.

    Hidden options are left out, as are those with nothing to choose; so are texts, which nothing could check.
    """
    shown = []
    for option in options.values():
        if option.hidden or (option.type is str and len(option.choices) < 2):
            continue
        samplers = None
        if option.needs is not None:
            other, values = option.needs
            choices = options[other].choices if other in options else ()
            samplers = tuple(value for value in choices if value in values)
            if not samplers:
                continue
            samplers = None if samplers == choices else samplers
        setting = Setting(option, samplers)
        if setting.low is None or setting.low != setting.high:
            shown.append(setting)
    return shown


class Settings:
    """The settings of one policy, and the policies that were made for choices of them.

    Args:
        spec: The policy.
        base: It, as it was loaded.
        device: Where its network is.
    """

    def __init__(self, spec: PolicySpec, base: Policy, device: str) -> None:
        self.spec, self._base, self._device = spec, base, device
        self.timing = Timing()
        self._made: OrderedDict[tuple[tuple[str, Any], ...], Policy] = OrderedDict()
        options = {option.name: option for option in options_of("policies", spec.kind, spec)}
        found = settings_of(options)
        self._loads_again = any(setting.option.fixed for setting in found)
        self._max_made = MAX_LOADED if self._loads_again else MAX_MADE
        # A search over a policy that has nothing to set would be another player than the one it is named after.
        self.takes_search = declaration_of("policies", spec.kind).is_prior and bool(found)
        if self.takes_search:
            found.append(Setting(SEARCH_OVER))
        self.all = tuple(found)

    def read(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """The values that a client sent, checked; null is left out.

        So is the default of a policy over weights, whose other options may depend on whether one was given.

        Raises:
            RequestError: an option that the policy does not have, or a value out of range.
        """
        known = {setting.name: setting for setting in self.all}
        for name in sent:
            if name not in known:
                there = ", ".join(known) or "none"
                raise RequestError(f"policy {self._base.label!r} has no option {quoted(name)}; it has: {there}")
        read = {name: known[name].read(value) for name, value in sent.items() if value is not None}
        return {name: value for name, value in read.items() if self._loads_again or value != known[name].option.default}

    def policy(self, chosen: Mapping[str, Any]) -> Policy:
        """The policy with some options; called by the one thread that works with it.

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
            if self._loads_again:  # the others share what the base holds
                oldest.close()
        return made

    def _make(self, chosen: dict[str, Any]) -> Policy:
        if self._loads_again:
            return load_policy(self.spec.text, defaults={"device": self._device}, **{"game": self._base.game, **chosen})
        simulations = int(chosen.pop("simulations", 0)) if self.takes_search else 0
        policy = self._base.with_options(**chosen) if chosen else self._base
        return search_over(policy, simulations) if simulations else policy

    def close(self) -> None:
        """Close the policies that were loaded again; the base belongs to its owner."""
        for made in self._made.values() if self._loads_again else ():
            made.close()
        self._made.clear()


def drawn_seed(random_bytes: bytes) -> int:
    """A seed in 0..``MAX_SEED`` of four random bytes."""
    return int.from_bytes(random_bytes[:4], "big") & MAX_SEED
