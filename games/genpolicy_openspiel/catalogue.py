"""Which games of OpenSpiel fit, and how one is made of a specification's text."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping

import pyspiel
from pyspiel import GameType

from genpolicy.errors import did_you_mean

MAX_MOVES = 20_000
MAX_NUMBERS = 20_000  # of an observation; hive has 6,647
SMALLER = {"hive": "hive,board_size=4"}
"""Games whose usual board makes too many tokens, with one that fits."""
MAX_WHOLE = 1_000_000  # of a parameter: OpenSpiel reads 32 bits, and multiplies
NUM_STARTS = 32
"""Beginnings that show who moves first: dice that decide it between two give all of them to one in 1 of 2^31 cases."""
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


def unfit(kind: GameType) -> str:
    """Why a registered game cannot be played here; "" where it can."""
    return "; ".join(text for holds, text in CONDITIONS if not holds(kind))


def kinds() -> dict[str, GameType]:
    """The registered games by name, in alphabetical order."""
    return dict(sorted((kind.short_name, kind) for kind in pyspiel.registered_games()))


def load(name: str, parameters: Mapping[str, str]) -> pyspiel.Game:
    """The game of a name and its parameters as text.

    Raises:
        ValueError: no such game, one that does not fit, or parameters that it or OpenSpiel refuses.
    """
    known = kinds()
    ours = [each for each, kind in known.items() if not unfit(kind)]
    if not name:
        raise ValueError(
            "say which game of OpenSpiel, e.g. openspiel:breakthrough or openspiel:breakthrough,rows=5; there are: "
            f"{', '.join(ours)}"
        )
    if name not in known:
        raise ValueError(f"OpenSpiel has no game {name!r}.{did_you_mean(name, known)} There are: {', '.join(ours)}")
    if why := unfit(known[name]):
        raise ValueError(f"game {name!r} of OpenSpiel cannot be played here: {why}; there are: {', '.join(ours)}")
    values = {key: _value(name, key, text, known[name].parameter_specification) for key, text in parameters.items()}
    try:
        game = pyspiel.load_game(name, values)
    except (pyspiel.SpielError, ValueError, TypeError, RuntimeError, MemoryError) as error:
        raise ValueError(f"OpenSpiel refuses {_spelled(name, values)!r}: {str(error).strip()}") from error
    return _checked(game, _spelled(name, values))


def _checked(game: pyspiel.Game, spec: str) -> pyspiel.Game:
    """A game of a size that is played here, for two; some refuse their parameters only when a game begins."""
    shape = game.observation_tensor_shape()
    numbers = math.prod(shape) if min(shape) > 0 else 0  # two negative sides make a positive number
    moves = game.num_distinct_actions() + game.max_chance_outcomes()
    for what, count, most in (("moves", moves, MAX_MOVES), ("numbers", numbers, MAX_NUMBERS)):
        if not 1 <= count <= most:
            raise ValueError(f"{spec!r} has {count:,} {what}; 1 to {most:,} are played here")
    if game.num_players() != 2:
        raise ValueError(f"{spec!r} is for {game.num_players()} players, not two")
    try:
        state = game.new_initial_state()
        goes_on = state.is_terminal() or len(state.legal_actions()) > 0
    except pyspiel.SpielError as error:
        raise ValueError(f"OpenSpiel refuses {spec!r}: {str(error).strip()}") from error
    if not goes_on:
        raise ValueError(f"{spec!r}: OpenSpiel knows neither a legal move nor a result in the initial position")
    return game


def first_player(game: pyspiel.Game) -> int:
    """OpenSpiel's number of the player who moves first; 0 where dice decide who begins."""
    draw, movers = random.Random(0), set[int]()
    for _ in range(NUM_STARTS):
        state = game.new_initial_state()
        while state.is_chance_node():
            state.apply_action(draw.choice(state.legal_actions()))
        movers.add(max(state.current_player(), 0))
    return movers.pop() if len(movers) == 1 else 0


def specification(game: pyspiel.Game) -> str:
    """What ``genpolicy.load_game`` takes to make a game again: every parameter, by name."""
    kind = game.get_type()
    return _spelled(kind.short_name, {**kind.parameter_specification, **game.get_parameters()})


def _spelled(name: str, parameters: Mapping[str, object]) -> str:
    pairs = [f"{key}={_text(value)}" for key, value in sorted(parameters.items()) if value != ""]
    return ",".join([f"openspiel:{name}", *pairs])


def _text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"[{text}]" if set(text) & set(",[]") else text


def _value(name: str, key: str, text: str, defaults: Mapping[str, object]) -> bool | int | float | str:
    """A parameter's value, of the type of its default."""
    if key not in defaults:
        hint = did_you_mean(key, defaults)
        raise ValueError(f"game {name!r} of OpenSpiel has no parameter {key!r}.{hint} It has: {', '.join(defaults)}")
    default, said = defaults[key], str(text).lower()
    if isinstance(default, bool):
        if said not in ("true", "yes", "1", "false", "no", "0"):
            raise ValueError(f"{name}: {key} must be true or false (yes, no, 1, 0), got {text!r}")
        return said in ("true", "yes", "1")
    if isinstance(default, int):
        if not re.fullmatch(r"-?\d{1,7}", said) or abs(int(said)) > MAX_WHOLE:
            raise ValueError(f"{name}: {key} must be a whole number of at most {MAX_WHOLE:,}, got {text!r}")
        return int(said)
    if isinstance(default, float):
        if not re.fullmatch(r"-?\d{1,6}(\.\d{1,6})?", said):
            raise ValueError(f"{name}: {key} must be a number such as {default}, got {text!r}")
        return float(said)
    return str(text)
