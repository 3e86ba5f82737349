"""Finds games, learners, policies and other plugins by entry point or by registration, ours and third parties' alike.

A package names its plugins in the entry-point groups ``genpolicy.games``, ``genpolicy.learners`` and so on; a notebook
or a script registers them with the decorator ``register``. A plugin is imported when it is loaded, not before, and
importing this module imports neither torch nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from genpolicy.errors import RegistryError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from genpolicy.game import Game

Group = Literal[
    "games",
    "learners",
    "policies",
    "processes",
    "oracles",
    "oracle_fallbacks",
    "samplers",
    "biases",
    "commands",
    "options",
]
ONE_OF: Mapping[str, str] = {
    "games": "game",
    "learners": "learner",
    "policies": "policy",
    "processes": "process",
    "oracles": "oracle",
    "oracle_fallbacks": "fallback for oracles",
    "samplers": "sampler",
    "biases": "attention bias",
    "commands": "subcommand",
    "options": "list of options of",
}
"""What a member of each group is called."""
ThingT = TypeVar("ThingT")


@dataclass(frozen=True)
class Registered:
    """What ``register`` keeps; it is loaded like an ``EntryPoint``."""

    name: str
    thing: Any
    dist = None

    @property
    def value(self) -> str:
        """Where it was defined."""
        return f"{self.thing.__module__}:{getattr(self.thing, '__qualname__', self.name)}"

    def load(self) -> Any:
        """The object itself."""
        return self.thing


_registered: dict[str, dict[str, Registered]] = {}


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
        unregister(group, name)
        _registered.setdefault(group, {})[name] = Registered(name, thing)
        return thing

    return keep


def unregister(group: Group, name: str) -> None:
    """Forget what ``register`` kept; nothing happens where there is nothing of this name."""
    _registered.get(group, {}).pop(name, None)
    load_game.cache_clear()  # it may have made a game of an earlier class


def entry_points(*, group: str) -> Iterable[EntryPoint]:
    """The installed entry points of a group."""
    from importlib.metadata import entry_points as installed  # it takes as long to import as all else here

    return installed(group=group)


def _installed(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"genpolicy.{group}")}


def available(group: Group) -> dict[str, EntryPoint | Registered]:
    """Entry points and registered objects of a group by name, in alphabetical order; nothing is imported."""
    found: dict[str, EntryPoint | Registered] = {**_installed(group), **_registered.get(group, {})}
    return dict(sorted(found.items()))


def origin(group: Group, name: str) -> str:
    """Where an available entry comes from, for messages: its entry point and its package."""
    return _origin(group, available(group)[name])


def _origin(group: str, point: EntryPoint | Registered) -> str:
    where = f"{point.name} = {point.value!r} in group 'genpolicy.{group}'"
    return f"{where} of {point.dist.name} {point.dist.version}" if point.dist is not None else where


def load(group: Group, name: str) -> Any:
    """The object that an entry point names.

    Raises:
        RegistryError: no such entry, or it cannot be imported; the message names the package and the way out.
    """
    points = available(group)
    if name not in points:
        hint = did_you_mean(name, points)
        known = ", ".join(points) or "none; is genpolicy installed (pip install -e .)?"
        raise RegistryError(f"no entry {name!r} in group 'genpolicy.{group}'.{hint} Installed: {known}")
    return load_point(group, points[name])


def load_point(group: Group, point: EntryPoint | Registered) -> Any:
    """The object that one of ``available(group)`` names.

    Raises:
        RegistryError: it cannot be imported; the message names the package and the way out.
    """
    name = point.name
    try:
        return point.load()
    except ModuleNotFoundError as error:
        dist = point.dist
        extras = dist.metadata.get_all("Provides-Extra") or [] if dist else []
        way_out = f"pip install '{dist.name}[{name}]'" if dist and name in extras else f"install {error.name!r}"
        raise RegistryError(
            f"{ONE_OF[group]} {name!r} needs the module {error.name!r}: {way_out} ({_origin(group, point)})"
        ) from error
    except Exception as error:  # a stranger's module may raise anything while it is imported
        raise RegistryError(
            f"{ONE_OF[group]} {name!r} cannot be imported ({_origin(group, point)}): {type(error).__name__}: {error}"
        ) from error


def wrong_thing(group: Group, name: str, thing: Any, expected: str) -> RegistryError:
    """The error of an entry that is, or that made, something else than its group asks for."""
    got = f"is the class {thing.__name__}" if isinstance(thing, type) else f"made a {type(thing).__name__}"
    return RegistryError(f"{ONE_OF[group]} {name!r} ({origin(group, name)}) {got}, not {expected}")


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Name and arguments of ``"name:key=value,key=value"``.

    A value in square brackets may hold commas, and so another specification: ``coded:game=[connect:rows=3,cols=3]``.
    The outermost pair of brackets is taken off.

    Raises:
        ValueError: an argument without ``=``, a key given twice, or brackets that do not match.
    """
    name, _, rest = spec.partition(":")
    arguments: dict[str, str] = {}
    for part in filter(None, _split_outside_brackets(spec, rest)):
        key, equals, value = part.partition("=")
        if not equals or key.strip() in arguments:
            raise ValueError(f"in {spec!r}: {part!r} is not one key=value (each key once)")
        value = value.strip()
        nested = value.startswith("[") and value.endswith("]")
        arguments[key.strip()] = value[1:-1] if nested else value
    return name.strip(), arguments


def _split_outside_brackets(spec: str, text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth != 0:
        raise ValueError(f"in {spec!r}: the square brackets do not match")
    return parts


def spelled_pairs(query: str) -> list[tuple[str, str]]:
    """The keys and values of ``key=value&...`` as text, ``%26`` and the like decoded; a plus is a plus."""
    from urllib.parse import unquote

    pairs = (part.partition("=") for part in query.split("&") if part)
    return [(unquote(key), unquote(value)) for key, _, value in pairs]


@lru_cache(maxsize=32)
def load_game(spec: str) -> Game[Any]:
    """The game of a specification ``name[:key=value,...]``; arguments go to the game's constructor as text.

    Raises:
        RegistryError: no such game, its library is not installed, or it was written for an older ``Game``.
        ValueError: an argument that the game does not take, or out of range.
    """
    from genpolicy.facets import misplaced_members
    from genpolicy.game import Game

    name, arguments = split_spec(spec)
    game = load("games", name)
    try:
        made = game(**arguments)
    except TypeError as error:
        _check_arguments(spec, game, arguments)
        raise ValueError(f"game {spec!r}: {error}; see the documentation of {game.__module__}") from error
    if not isinstance(made, Game):
        raise wrong_thing("games", name, made, "a Game")
    if misplaced := misplaced_members(made):
        raise RegistryError(f"game {name!r} ({origin('games', name)}): {misplaced}")
    return made


def _check_arguments(spec: str, game: Any, arguments: Mapping[str, str]) -> None:
    """See that a game's constructor has every argument.

    Raises:
        ValueError: one that it does not take; the message names the near one, and all.
    """
    import inspect

    parameters = inspect.signature(game).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    takes = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in arguments:
        if name not in takes:
            hint = did_you_mean(name, takes)
            raise ValueError(f"game {spec!r}: no argument {name!r}.{hint} It takes: {', '.join(takes) or 'none'}")
