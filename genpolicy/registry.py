"""Finds games, learners, policies, processes and oracles by entry point, ours and third parties' alike.

Nothing is imported until it is asked for, and importing this module imports no plugin.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal
from urllib.parse import unquote

from genpolicy.errors import RegistryError, did_you_mean
from genpolicy.game import Game

Group = Literal["games", "learners", "policies", "processes", "oracles"]
ONE_OF = {"games": "game", "learners": "learner", "policies": "policy", "processes": "process", "oracles": "oracle"}


def available(group: Group) -> dict[str, EntryPoint]:
    """Entry points of a group by name, in alphabetical order; nothing is imported."""
    return {point.name: point for point in sorted(entry_points(group=f"genpolicy.{group}"), key=lambda p: p.name)}


def load(group: Group, name: str) -> Any:
    """The object that an entry point names.

    Raises:
        RegistryError: no such entry point, or what it needs is not installed; the message names the way out.
    """
    points = available(group)
    if name not in points:
        hint = did_you_mean(name, points)
        known = ", ".join(points) or "none; is genpolicy installed (pip install -e .)?"
        raise RegistryError(f"no entry {name!r} in group 'genpolicy.{group}'.{hint} Installed: {known}")
    try:
        return points[name].load()
    except ModuleNotFoundError as error:
        dist = points[name].dist
        extras = dist.metadata.get_all("Provides-Extra") or [] if dist else []
        way_out = f"pip install '{dist.name}[{name}]'" if dist and name in extras else f"install {error.name!r}"
        raise RegistryError(f"{ONE_OF[group]} {name!r} needs the module {error.name!r}: {way_out}") from error


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Name and arguments of ``"name:key=value,key=value"``.

    Raises:
        ValueError: an argument without ``=`` or a key given twice.
    """
    name, _, rest = spec.partition(":")
    arguments: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key in arguments:
            raise ValueError(f"in {spec!r}: {part!r} is not one key=value (each key once)")
        arguments[key.strip()] = value.strip()
    return name.strip(), arguments


def spelled_pairs(query: str) -> list[tuple[str, str]]:
    """The keys and values of ``key=value&...`` as text, ``%26`` and the like decoded; a plus is a plus."""
    pairs = (part.partition("=") for part in query.split("&") if part)
    return [(unquote(key), unquote(value)) for key, _, value in pairs]


@lru_cache(maxsize=32)
def load_game(spec: str) -> Game[Any]:
    """The game of a specification ``name[:key=value,...]``; arguments go to the game's constructor as text.

    Raises:
        RegistryError: no such game, or its library is not installed.
        ValueError: an argument that the game does not take, or out of range.
    """
    name, arguments = split_spec(spec)
    game = load("games", name)
    try:
        made = game(**arguments)
    except TypeError as error:
        _check_arguments(spec, game, arguments)
        raise ValueError(f"game {spec!r}: {error}; see the documentation of {game.__module__}") from error
    if not isinstance(made, Game):
        raise RegistryError(f"entry {name!r} of group 'genpolicy.games' made a {type(made).__name__}, not a Game")
    return made


def _check_arguments(spec: str, game: Any, arguments: Mapping[str, str]) -> None:
    """See that a game's constructor has every argument.

    Raises:
        ValueError: one that it does not take; the message names the near one, and all.
    """
    parameters = inspect.signature(game).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    takes = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in arguments:
        if name not in takes:
            hint = did_you_mean(name, takes)
            raise ValueError(f"game {spec!r}: no argument {name!r}.{hint} It takes: {', '.join(takes) or 'none'}")
