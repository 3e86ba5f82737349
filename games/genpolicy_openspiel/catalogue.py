"""Which games of OpenSpiel fit, and how one is made of a specification's text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pyspiel
from pyspiel import GameType

from genpolicy.errors import did_you_mean
from genpolicy.options import Option, read_options

MOST = 20_000
"""Moves, and numbers of an observation; hive has 6,647."""
SMALLER = {"hive": "hive,board_size=4"}
"""Games whose usual board makes too many tokens, with one that fits."""
CONDITIONS: tuple[tuple[Callable[[GameType], bool], str], ...] = (
    (lambda kind: kind.default_loadable, "it is made of other games or of files"),
    (lambda kind: kind.min_num_players <= 2 <= kind.max_num_players, "it is not for two players"),
    (lambda kind: kind.dynamics == GameType.Dynamics.SEQUENTIAL, "players do not move one after the other"),
    (lambda kind: kind.chance_mode != GameType.ChanceMode.SAMPLED_STOCHASTIC, "it hides what its dice may show"),
    (lambda kind: kind.information == GameType.Information.PERFECT_INFORMATION, "players do not see everything"),
    (lambda kind: kind.utility == GameType.Utility.ZERO_SUM, "what one player wins the other does not lose"),
    (lambda kind: kind.reward_model == GameType.RewardModel.TERMINAL, "it gives rewards before the end"),
    (lambda kind: kind.provides_observation_tensor, "it has no observation tensor"),
)
"""What a game must be, with what is said of one that is not."""
LARGEST = 1_000_000
"""The largest number that a parameter may be: OpenSpiel reads 32 bits, and multiplies."""


def unfit(kind: GameType) -> str:
    """Why a registered game cannot be played here; "" where it can."""
    return "; ".join(text for holds, text in CONDITIONS if not holds(kind))


def kinds() -> dict[str, GameType]:
    """The registered games by name, in alphabetical order."""
    return dict(sorted((kind.short_name, kind) for kind in pyspiel.registered_games()))


def unplayed(game: pyspiel.Game) -> str:
    """What of a game's size or players is not played here; "" where nothing."""
    shape = game.observation_tensor_shape()
    numbers = math.prod(shape) if min(shape) > 0 else 0  # two negative sides make a positive number
    moves = game.num_distinct_actions() + game.max_chance_outcomes()
    for what, count in (("moves", moves), ("numbers", numbers)):
        if not 1 <= count <= MOST:
            return f"has {count:,} {what}; 1 to {MOST:,} are played here"
    return "" if game.num_players() == 2 else f"is for {game.num_players()} players, not two"


def load(name: str, parameters: Mapping[str, str]) -> pyspiel.Game:
    """The game of a name and its parameters as text.

    Raises:
        ValueError: no such game, one that does not fit, parameters that it or OpenSpiel refuses, or a size that is not
            played here.
    """
    known = kinds()
    ours = ", ".join(each for each, kind in known.items() if not unfit(kind))
    if not name:
        example = "openspiel:breakthrough or openspiel:breakthrough,rows=5"
        raise ValueError(f"say which game of OpenSpiel, e.g. {example}; there are: {ours}")
    if name not in known:
        raise ValueError(f"OpenSpiel has no game {name!r}.{did_you_mean(name, known)} There are: {ours}")
    if why := unfit(known[name]):
        raise ValueError(f"game {name!r} of OpenSpiel cannot be played here: {why}; there are: {ours}")
    defaults = known[name].parameter_specification.items()
    options = [Option(key, type(default), low=-LARGEST, high=LARGEST) for key, default in defaults]
    values = read_options(f"game {name!r} of OpenSpiel", parameters, options)
    spec = _spelled(name, values)
    try:
        game = pyspiel.load_game(name, values)
        if not (why := unplayed(game)):
            game.new_initial_state().legal_actions()  # some refuse their parameters only when a game begins
    except (ValueError, TypeError, RuntimeError, MemoryError) as error:
        raise ValueError(f"OpenSpiel refuses {spec!r}: {str(error).strip()}") from error
    if why:
        raise ValueError(f"{spec!r} {why}")
    return game


def specification(game: pyspiel.Game) -> str:
    """What ``genpolicy.load_game`` takes to make a game again: every parameter, by name."""
    kind = game.get_type()
    return _spelled(kind.short_name, {**kind.parameter_specification, **game.get_parameters()})


def _spelled(name: str, parameters: Mapping[str, object]) -> str:
    said = {key: str(value).lower() if isinstance(value, bool) else value for key, value in parameters.items()}
    return ",".join([f"openspiel:{name}", *(f"{key}={value}" for key, value in sorted(said.items()) if value != "")])
