"""Option: the one declaration of what a user may set of a policy, a sampler, a search or an oracle.

The command line, ``load_policy``, the UCI / USI engine and the web board all render the same list. Nothing here imports
torch: an engine has to name its options before it loads a network. A class whose module imports torch may therefore
declare its options in another module, which the entry-point group ``genpolicy.options`` names by ``GROUP.NAME``, e.g.
``policies.diffusion``.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from genpolicy import registry
from genpolicy.errors import ConfigError, RegistryError, did_you_mean, require_one_of

if TYPE_CHECKING:
    from genpolicy.registry import Group


@dataclass(frozen=True)
class Option:
    """One option: its type, its default and the values that it accepts.

    Raises:
        ValueError: a declaration that contradicts itself.
    """

    name: str
    """As the constructor and ``key=value`` call it."""
    type: type[int] | type[float] | type[bool] | type[str]
    default: Any = None
    """What holds where nothing is set; None leaves it to the owner."""
    low: float = -math.inf
    """Least value of a number."""
    high: float = math.inf
    """Greatest value of a number."""
    choices: tuple[str, ...] = ()
    """The texts that a ``str`` accepts; () accepts every text."""
    help: str = ""
    """One line for people, in lower case and without a full stop."""
    label: str = ""
    """What people call it, and its name in UCI and USI; empty for ``name``."""
    usual_low: float | None = None
    """Lower end of what a program offers; None for ``low``."""
    usual_high: float | None = None
    """Upper end of what a program offers, where ``high`` would take too long; None for ``high``."""
    page_high: float | None = None
    """Upper end where a person waits for the answer, as on a page; None for ``usual_high``."""
    basic: bool = False
    """Whether a page shows it at once, and not among the advanced options."""
    hidden: bool = False
    """Whether a page leaves it out, because it changes the speed or the rules and not the play."""
    fixed: bool = False
    """Whether it is set when the policy is loaded and cannot be changed afterwards (``Policy.with_options``)."""
    needs: tuple[str, tuple[str, ...]] | None = None
    """Another option and its values with which this one can be set; None where it depends on none."""
    forwarded: bool = False
    """Whether a search over the policy accepts it too, and hands it on to the policy."""

    def __post_init__(self) -> None:
        if self.type not in (int, float, bool, str):
            raise ValueError(f"option {self.name!r}: its type must be int, float, bool or str, got {self.type!r}")
        if self.choices and self.type is not str:
            raise ValueError(f"option {self.name!r}: choices are texts, so its type must be str, not {self.type}")
        if not self.low <= self.high:
            raise ValueError(f"option {self.name!r}: its range {self.low} to {self.high} is empty")
        if self.default is not None:
            self.read(self.default)

    @property
    def title(self) -> str:
        """The label, or the name in words: ``Dirichlet alpha``."""
        return self.label or self.name.replace("_", " ").capitalize()

    def read(self, value: Any) -> Any:
        """The value of a text or of a Python object, as the option's type.

        Raises:
            ValueError: of another type, out of range, or not among the choices; the message begins with the name.
        """
        if self.type is bool:
            return _truth(value, self.name)
        if self.type is str:
            if self.choices:
                require_one_of(self.name, str(value), self.choices)
            return str(value)
        number = self._number(value)
        if not self.low <= number <= self.high:
            raise ValueError(f"{self.name} must be {self._range()}, got {value!r}")
        return number

    def _number(self, value: Any) -> int | float:
        number = value
        if isinstance(number, str):
            with contextlib.suppress(ValueError):  # refused below, like every other wrong value
                number = int(number) if self.type is int else float(number)
        with contextlib.suppress(OverflowError):  # a whole number of more than 308 digits
            if isinstance(number, Real) and not isinstance(number, bool) and math.isfinite(number):
                if self.type is float:
                    return float(number)
                if isinstance(number, Integral):
                    return int(number)
                if float(number).is_integer():
                    return int(float(number))
        raise ValueError(f"{self.name} is {'a whole number' if self.type is int else 'a number'}, got {number!r}")

    def _range(self) -> str:
        # Whole numbers in full: the 2.14748e+09 of a seed's greatest value cannot be typed.
        low, high = (f"{end:.0f}" if self.type is int else f"{end:g}" for end in (self.low, self.high))
        if self.low == -math.inf:
            return f"at most {high}"
        if self.high == math.inf:
            return f"at least {low}"
        return f"at least {low} and at most {high}"


@dataclass(frozen=True)
class PolicySpec:
    """What a user wrote to name a policy: a folder, or ``kind[:argument]``, and ``?key=value&...``.

    ``genpolicy.policies.base.policy_spec`` reads it.
    """

    kind: str
    """Entry-point name in group ``genpolicy.policies``."""
    text: str = ""
    """All of it, as it was written."""
    argument: str = ""
    """What stands behind the colon; for a folder its path."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The keys and values behind the question mark, as text or as Python objects."""
    config: Mapping[str, Any] | None = None
    """A folder's ``config.yaml``; None for a policy without a folder."""
    game: str | None = None
    """Specification of its game; None where nothing says it before the policy is loaded."""
    inside: tuple[PolicySpec, ...] = ()
    """The policies' folders that the argument and the settings of a spelling name."""

    @property
    def label(self) -> str:
        """A name for people: the folder's (its run's, if it is called ``policy``), else the text."""
        if self.config is None:
            return self.text
        parent, name = os.path.split(os.path.realpath(self.argument))
        return os.path.basename(parent) if name == "policy" else name

    def section(self, *keys: str) -> dict[str, Any]:
        """A section of the folder's configuration, e.g. ``("learner", "sampler")``; {} where there is none."""
        found: Any = self.config
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return dict(found) if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class Declaration:
    """What is known of a policy without importing its module; an entry of group ``genpolicy.options`` names one.

    It has the names of the class members that it stands for (``genpolicy.policies.base.Policy``).
    """

    options: Callable[[PolicySpec | None], tuple[Option, ...]]
    """As ``Policy.options``."""
    is_prior: bool = True
    """As ``Policy.is_prior``."""
    untrained: Callable[[Any], tuple[str, ...]] = lambda game: ()
    """As ``Policy.untrained``."""


def declaration_of(group: Group, name: str) -> Any:
    """What declares an entry's options: what ``genpolicy.options`` names for it, else the entry itself, imported.

    Raises:
        RegistryError: no such entry, or one that cannot be imported; the message names its package.
    """
    point = registry.available("options").get(f"{group}.{name}")
    return registry.load(group, name) if point is None else registry.load_point("options", point)


def options_of(group: Group, name: str, spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """The options that an entry declares, without importing torch where the entry provides for that.

    Args:
        group: ``"policies"``, ``"samplers"``, ...
        name: The entry's name.
        spec: What is known of one particular policy, which may narrow ranges and change defaults; None for the class.

    Raises:
        RegistryError: no such entry, one that cannot be imported, or one whose options are not ``Option``
            objects with different names; the message names its package.
    """
    declared = declaration_of(group, name)
    if f"{group}.{name}" in registry.available("options"):  # then that entry is to blame for what is wrong
        group, name = "options", f"{group}.{name}"
    if not isinstance(declared, tuple | list):
        declared = getattr(declared, "options", None)
        if callable(declared):
            try:
                declared = declared(spec)
            except Exception as error:  # a third party's code may raise anything
                owner = registry.named(group, name, declared)
                raise RegistryError(f"{owner} cannot declare its options: {type(error).__name__}: {error}") from error
    if not isinstance(declared, tuple | list):
        raise registry.wrong_thing(group, name, declared, "a list of options")
    options = tuple(declared)
    if wrong := next((each for each in options if not isinstance(each, Option)), None):
        raise registry.wrong_thing(group, name, wrong, "a genpolicy.options.Option in its options")
    names = [option.name for option in options]
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise RegistryError(f"{registry.named(group, name, declared)} declares the option {twice!r} twice")
    return options


def with_defaults(options: Iterable[Option], values: Mapping[str, Any]) -> tuple[Option, ...]:
    """Options with other defaults.

    Args:
        options: What is declared.
        values: Defaults by option. None, and a value that the option does not accept, leave a default as it is:
            loading refuses the value.
    """
    changed = []
    for option in options:
        with contextlib.suppress(ValueError):
            if values.get(option.name) is not None:
                option = replace(option, default=option.read(values[option.name]))
        changed.append(option)
    return tuple(changed)


def read_options(
    owner: str, values: Mapping[str, Any], options: Iterable[Option], *, others: bool = False
) -> dict[str, Any]:
    """Values as their options' types; None stays None.

    Args:
        owner: Who takes them, for messages: ``policy 'random'``.
        values: By option.
        options: What the owner declares.
        others: Whether the owner accepts options that it does not declare; they stay as they are.

    Raises:
        ConfigError: an option that is not declared (the message names the near one, and all), or a value that it does
            not accept.
    """
    known = {option.name: option for option in options}
    for key in values:
        if key not in known and not others:
            hint = did_you_mean(key, known)
            raise ConfigError(f"{owner} takes no option {key!r}.{hint} It takes: {', '.join(sorted(known)) or 'none'}")
    read: dict[str, Any] = {}
    for key, value in values.items():
        try:
            read[key] = value if value is None or key not in known else known[key].read(value)
        except ValueError as error:
            raise ConfigError(f"{owner}: option {error}") from error
    return read


def _truth(value: Any, name: str) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError(f"{name} must be true or false (or yes, no, on, off, 1, 0), got {value!r}")
