"""Finds games, learners, policies and other plugins by entry point or by registration, ours and third parties' alike.

A package names its plugins in the entry-point groups ``genpolicy.games``, ``genpolicy.learners`` and so on; a notebook
or a script registers them with the decorator ``register``. A plugin is imported when it is loaded, not before.

Every start of the command reads the entry points, so this module imports nothing that is slow to import: neither torch
nor numpy, and not ``importlib.metadata``, which takes as long as all the rest of ``genpolicy --help``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate

from genpolicy.errors import NotInstalledError, RegistryError, did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import Distribution
    from inspect import Parameter
    from typing import Any, Literal, TypeVar

    from genpolicy.game import Game

    ThingT = TypeVar("ThingT")
    Group = Literal[
        "games",
        "learners",
        "policies",
        "policy_sources",
        "processes",
        "oracles",
        "oracle_fallbacks",
        "samplers",
        "biases",
        "clusters",
        "commands",
        "options",
    ]
else:
    Group = str  # importing typing takes as long as reading all entry points

ONE_OF: Mapping[str, str] = {
    "games": "game",
    "learners": "learner",
    "policies": "policy",
    "policy_sources": "source of policies",
    "processes": "process",
    "oracles": "oracle",
    "oracle_fallbacks": "fallback for oracles",
    "samplers": "sampler",
    "biases": "attention bias",
    "clusters": "kind of cluster",
    "commands": "subcommand",
    "options": "list of options of",
}
"""What a member of each group is called."""
_BASES: Mapping[str, str] = {
    "learners": "genpolicy.policies.learner:Learner",
    "policies": "genpolicy.policies.base:Policy",
    "samplers": "genpolicy.diffusion:Sampler",
    "biases": "genpolicy.networks:AttentionBias",
}
"""The class of which every member of a group is a subclass."""


class Entry:
    """A plugin that can be loaded: a line of a package's ``entry_points.txt``, or what ``register`` keeps.

    Args:
        name: What configurations and the command line call it.
        value: ``module:object``.
        metadata: Folder of the package's metadata; "" for what was registered in this process.
        thing: What was registered; None for an installed one, which ``load`` imports.
    """

    def __init__(self, name: str, value: str, metadata: str = "", thing: Any = None) -> None:
        self.name, self.value, self._metadata, self._thing = name, value, metadata, thing

    @property
    def dist(self) -> Distribution | None:
        """The package that it comes from; None for what was registered in this process."""
        from importlib.metadata import Distribution

        return Distribution.at(self._metadata) if self._metadata else None

    def load(self) -> Any:
        """The object itself."""
        if self._thing is not None:
            return self._thing
        module, _, attributes = self.value.partition("[")[0].strip().partition(":")
        thing = importlib.import_module(module)
        for attribute in filter(None, attributes.split(".")):
            thing = getattr(thing, attribute)
        return thing


_registered: dict[str, dict[str, Entry]] = {}


def register(group: Group, name: str) -> Callable[[ThingT], ThingT]:
    """A decorator that registers a class or function in this process, in place of an entry point.

    A later registration of the same name replaces the earlier one, so that a notebook's cell may be run again.

    Args:
        group: What it is, e.g. ``"samplers"``.
        name: What configurations and the command line call it.

    Raises:
        RegistryError: no such group, or an installed package has an entry point of this name.
    """
    if group not in ONE_OF:
        raise RegistryError(f"there is no group {group!r}; there are: {', '.join(ONE_OF)}")
    if name in _installed(group):
        raise RegistryError(f"{ONE_OF[group]} {name!r} is installed already ({origin(group, name)}); take another name")

    def keep(thing: ThingT) -> ThingT:
        qualified = getattr(thing, "__qualname__", "")  # an instance has none
        defined = f"{thing.__module__}:{qualified}" if qualified else ""
        unregister(group, name)
        _registered.setdefault(group, {})[name] = Entry(name, defined, thing=thing)
        return thing

    return keep


def unregister(group: Group, name: str) -> None:
    """Forget what ``register`` kept; nothing happens where there is nothing of this name."""
    _registered.get(group, {}).pop(name, None)
    load_game.cache_clear()  # it may hold a game of an earlier class


def entry_points(*, group: str) -> Iterable[Entry]:
    """The installed entry points of a group; of two packages of one name the first on the path counts."""
    if any(os.path.isfile(path) for path in sys.path):  # a zip of packages
        from importlib.metadata import entry_points as installed

        return installed(group=group)  # type: ignore[return-value]  # the same attributes
    folders = tuple(path or "." for path in sys.path if os.path.isdir(path or "."))
    return _read_path(tuple((path, os.stat(path).st_mtime_ns) for path in folders)).get(group, ())


@lru_cache(maxsize=4)
def _read_path(folders: tuple[tuple[str, int], ...]) -> Mapping[str, list[Entry]]:
    """Entry points by group of the packages in some folders, whose times of change make the answer outdated.

    It reads the format of the Python packaging guide's "Entry points specification", as ``importlib.metadata`` does.
    """
    groups: dict[str, list[Entry]] = {}
    seen: set[str] = set()
    for folder, _ in folders:
        for name in sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))):
            key = name.rpartition(".")[0].partition("-")[0].replace("_", "-").replace(".", "-").lower()
            if key in seen:
                continue
            seen.add(key)
            _read_package(os.path.join(folder, name), groups)
    return groups


def _read_package(metadata: str, groups: dict[str, list[Entry]]) -> None:
    try:
        with open(os.path.join(metadata, "entry_points.txt"), "rb", buffering=0) as file:
            content = file.read()
    except OSError:  # most packages have none
        return
    if b"genpolicy." not in content:  # nor do most of the others have any of ours
        return
    group = ""
    for line in map(str.strip, content.decode().splitlines()):
        if line.startswith("["):
            group = line.strip("[]")
        elif "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            groups.setdefault(group, []).append(Entry(name.strip(), value.strip(), metadata))


_rivals: dict[tuple[str, str], list[Entry]] = {}
"""Entry points that are not taken because another package's has their name, by group and name."""


def _installed(group: str) -> dict[str, Entry]:
    """Entry points by name; of two packages genpolicy's own counts, else the first on the path (``_require_one``)."""
    points: dict[str, Entry] = {}
    for point in entry_points(group=f"genpolicy.{group}"):
        first = points.setdefault(point.name, point)
        if first is point:
            _rivals.pop((group, point.name), None)
            continue
        other = point
        if point.dist is not None and point.dist.name == "genpolicy":
            points[point.name], other = point, first
        _rivals.setdefault((group, point.name), []).append(other)
    return points


def _require_one(group: str, point: Entry) -> None:
    """See that no other package has an entry point of this name.

    Raises:
        RegistryError: another has, and neither is genpolicy; one that has the name of genpolicy's own is a warning.
    """
    others = _rivals.get((group, point.name), [])
    if point.name in _registered.get(group, {}) or not others:
        return
    names = "; ".join(_origin(group, each) for each in others)
    if point.dist is None or point.dist.name != "genpolicy":
        own = _origin(group, point)
        raise RegistryError(f"{ONE_OF[group]} {point.name!r} is installed twice: {own}; {names}; uninstall one of them")
    import warnings

    warnings.warn(f"genpolicy's own {ONE_OF[group]} {point.name!r} is used, not {names}", stacklevel=3)


def available(group: Group) -> dict[str, Entry]:
    """Installed and registered plugins of a group by name, in alphabetical order; nothing is imported."""
    return dict(sorted({**_installed(group), **_registered.get(group, {})}.items()))


def origin(group: Group, name: str) -> str:
    """Where an available entry comes from, for messages: its entry point and its package."""
    return _origin(group, available(group)[name])


def _origin(group: str, point: Entry) -> str:
    if point.dist is None:
        return f"{point.value!r}, registered in this process" if point.value else "registered in this process"
    return f"{point.name} = {point.value!r} in group 'genpolicy.{group}' of {point.dist.name} {point.dist.version}"


def load(group: Group, name: str) -> Any:
    """The object that an entry point names.

    Raises:
        RegistryError: no such entry, it cannot be imported, or it is not what its group asks for; the message names
            the package and the way out. ``NotInstalledError``: an extra of its package is not installed.
    """
    points = available(group)
    if name not in points:
        hint = did_you_mean(name, points)
        known = ", ".join(points) or "none; is genpolicy installed (pip install -e .)?"
        raise RegistryError(f"no entry {name!r} in group 'genpolicy.{group}'.{hint} Installed: {known}")
    return load_point(group, points[name])


def load_point(group: Group, point: Entry) -> Any:
    """The object that one of ``available(group)`` names. Errors as ``load``."""
    name = point.name
    _require_one(group, point)
    try:
        thing = point.load()
    except ModuleNotFoundError as error:
        dist = point.dist
        extras = dist.metadata.get_all("Provides-Extra") or [] if dist else []
        extra = next((each for each in (name, error.name) if each in extras), None)
        way_out = f"pip install '{dist.name}[{extra}]'" if dist and extra else f"install {error.name!r}"
        said = f"{ONE_OF[group]} {name!r} needs the module {error.name!r}: {way_out} ({_origin(group, point)})"
        raise (NotInstalledError(said, way_out) if extra else RegistryError(said)) from error
    except (Exception, SystemExit) as error:  # a third party's module may raise anything while it is imported
        raise RegistryError(
            f"{ONE_OF[group]} {name!r} cannot be imported ({_origin(group, point)}): {type(error).__name__}: {error}"
        ) from error
    if group in _BASES:
        module, _, base = _BASES[group].partition(":")
        if not (isinstance(thing, type) and issubclass(thing, getattr(importlib.import_module(module), base))):
            got = f"the class {thing.__name__}" if isinstance(thing, type) else repr(thing)
            raise RegistryError(
                f"{ONE_OF[group]} {name!r} ({_origin(group, point)}) is {got}, not a subclass of {module}.{base}"
            )
    return thing


def wrong_thing(group: Group, name: str, thing: Any, expected: str) -> RegistryError:
    """The error of an entry that is, or that made, something else than its group asks for."""
    got = f"is the class {thing.__name__}" if isinstance(thing, type) else f"made a {type(thing).__name__}"
    return RegistryError(f"{ONE_OF[group]} {name!r} ({origin(group, name)}) {got}, not {expected}")


def named(group: Group, name: str, thing: object) -> str:
    """What to call a thing in messages: its entry and package, or its class where ``name`` is not available."""
    if name in available(group):
        return f"{ONE_OF[group]} {name!r} ({origin(group, name)})"
    return f"{ONE_OF[group]} {type(thing).__name__}"


def keys_of(made: Callable[..., Any], num_given: int) -> dict[str, Parameter]:
    """What may be set of a plugin by name: the parameters of its constructor, or of a function that makes it.

    Those that a constructor passes on as ``**rest`` are its base's.

    Args:
        made: The class or function.
        num_given: How many arguments the library gives it, by place; they are left out.
    """
    from inspect import Parameter, signature

    keys: dict[str, Parameter] = {}
    bases = made.__mro__ if isinstance(made, type) else ()
    num_given += bool(bases)  # self
    for constructor in [vars(each)["__init__"] for each in bases if "__init__" in vars(each)] or [made]:
        parameters = signature(constructor).parameters.values()
        named = [p for p in parameters if p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
        given = [p for p in named if p.kind is not Parameter.KEYWORD_ONLY][:num_given]
        keys |= {p.name: p for p in named if p not in given and p.name not in keys}
        if all(p.kind is not Parameter.VAR_KEYWORD for p in parameters):
            break
    return keys


def unknown_arguments(made: Callable[..., Any], keys: Iterable[str], num_given: int = 0) -> Iterator[tuple[str, str]]:
    """Each of some keys that a function does not take, and for messages the near one and all that it takes.

    A function that takes ``**rest`` takes every key; ``num_given`` is as in ``keys_of``.
    """
    from inspect import signature

    parameters = list(signature(made).parameters.values())[num_given:]
    takes = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for key in keys if all(p.kind is not p.VAR_KEYWORD for p in parameters) else ():
        if key not in takes:
            yield key, f"{did_you_mean(key, takes)} It takes: {', '.join(takes) or 'none'}"


@contextmanager
def making(group: Group, name: str, *meant: type[Exception]) -> Iterator[None]:
    """Turn what an entry raises while it is called, other than the errors ``meant``, into an error that names it."""
    try:
        yield
    except Exception as error:
        # That memory is short is not the entry's fault.
        if isinstance(error, (RegistryError, MemoryError, *meant)):
            raise
        raise RegistryError(
            f"{ONE_OF[group]} {name!r} cannot be made ({origin(group, name)}): {type(error).__name__}: {error}"
        ) from error


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Name and arguments of ``"name:key=value,key=value"``.

    A value in square brackets may hold commas, and so another specification: ``coded:game=[connect:rows=3,cols=3]``.
    The outermost pair of brackets is taken off. A first word without ``=`` is the value of ``game``:
    ``openspiel:breakthrough,rows=5``.

    Raises:
        ValueError: another argument without ``=``, a key given twice, or brackets that do not match.
    """
    name, _, rest = spec.partition(":")
    if not _is_balanced(rest):
        raise ValueError(f"in {spec!r}: the square brackets do not match")
    arguments: dict[str, str] = {}
    for number, part in enumerate(filter(None, _split_outside_brackets(rest, ","))):
        key, equals, value = part.partition("=")
        if not equals and number == 0:
            key, equals, value = "game", "=", part
        if not equals or key.strip() in arguments:
            raise ValueError(f"in {spec!r}: {part!r} is not one key=value (each key once)")
        value = value.strip()
        nested = value.startswith("[") and value.endswith("]") and _is_balanced(value[1:-1])
        arguments[key.strip()] = value[1:-1] if nested else value
    return name.strip(), arguments


def spelled_pairs(query: str) -> list[tuple[str, str]]:
    """The keys and values of ``key=value&...`` as text, ``%26`` and the like decoded; a plus is a plus.

    Within square brackets that match, ``&`` separates nothing: ``game=coded:book=[runs/book?top=8&device=cpu]``.
    """
    from urllib.parse import unquote

    parts = _split_outside_brackets(query, "&") if _is_balanced(query) else query.split("&")
    pairs = (part.partition("=") for part in parts if part)
    return [(unquote(key), unquote(value)) for key, _, value in pairs]


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    parts = [""]
    for character, depth in zip(text, _depths(text), strict=True):
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _is_balanced(text: str) -> bool:
    depths = _depths(text)
    return min(depths, default=0) >= 0 and depths[-1:] in ([], [0])


def _depths(text: str) -> list[int]:
    """How many brackets are open behind each character."""
    return list(accumulate((character == "[") - (character == "]") for character in text))


@lru_cache(maxsize=32)
def load_game(spec: str) -> Game[Any]:
    """The game of a specification such as ``"chess"`` or ``"connect:rows=3,cols=3,k=3,gravity=false"``.

    Its arguments go to the game's constructor as text.

    Raises:
        RegistryError: no game of that name is installed (the message names the near ones and the extra to install), or
            it does not supply what a ``Game`` must.
        ValueError: an argument that the game does not take, or out of range.
    """
    from genpolicy.facets import misplaced_members
    from genpolicy.game import Game, Hints, MoveVocabulary, StateTokenizer

    name, arguments = split_spec(spec)
    game = load("games", name)
    try:
        with making("games", name, ValueError, LookupError, TypeError):
            made = game(**arguments)
    except TypeError as error:
        for key, hint in unknown_arguments(game, arguments):
            said = f"no argument {key!r}" if f"{key}=" in spec else f"{arguments[key]!r} is not one key=value"
            raise ValueError(f"game {spec!r}: {said}.{hint}") from error
        raise ValueError(f"game {spec!r}: {error}; see the documentation of {game.__module__}") from error
    if not isinstance(made, Game):
        raise wrong_thing("games", name, made, "a Game")
    needed = ("name", "spec", "moves", "tokens", "protocol", "players")
    kinds = {"moves": MoveVocabulary, "tokens": StateTokenizer, "hints": Hints}
    parts = {member: getattr(made, member, None) for member in (*needed, *kinds)}
    wrong = [f"{type(made).__name__} does not set {member}" for member in needed if parts[member] is None]
    for member, kind in kinds.items():
        part = parts[member]
        if part is not None and not isinstance(part, kind):
            is_class = isinstance(part, type)
            got = f"the class {part.__name__}" if is_class else f"a {type(part).__name__}"
            way_out = f": call it, {member} = {part.__name__}()" if is_class else ""
            wrong.append(f"{type(made).__name__}.{member} is {got}, not a {kind.__name__}{way_out}")
    if misplaced := misplaced_members(made):
        wrong.append(misplaced)
    if wrong:
        raise RegistryError(f"game {name!r} ({origin('games', name)}): {'; '.join(wrong)}")
    return made
