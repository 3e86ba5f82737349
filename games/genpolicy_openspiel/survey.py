"""What OpenSpiel does not say of a game, seen in games of fixed moves, of random ones with a fixed seed, and of moves
that are taken back.

Axes: T positions with their texts, S positions, C planes, N cells of a plane.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
import pyspiel
from numpy.typing import NDArray

NUM_GAMES = 20
MAX_PLIES = 300
NUMBERS_PER_PLY = 200
"""A larger observation is looked at once in so many plies more."""
SHUFFLES = (0.0, 0.5, 0.999)
"""Games of always the first, the middle or the last legal move: they soon repeat positions; random ones seldom do."""
TAKING_BACK, TRIED = 20, 300
"""Last games, in which players begin with one move after another and take it back until a position repeats, which may
look like no other; and the moves tried in each of them, at most."""
ENOUGH = 4
"""Repetitions: one may have lost a right, such as castling's, and so be none."""
NUM_TEXTS = 30


@dataclass(frozen=True)
class Survey:
    """Positions of random games and the moves made in them."""

    shape: tuple[int, int, int]
    """C, and rows and columns of the board; one row for a tensor that is not a board."""
    before: NDArray[np.float32]
    """[S, C, N] what player 0 observes."""
    after: NDArray[np.float32]
    """[S, C, N] the same after the move."""
    actions: NDArray[np.int64]
    """[S] the moves."""
    names: dict[int, str]
    """What OpenSpiel calls each move that was seen; empty where one had two names."""
    chance: NDArray[np.float32]
    """[_, C, N] what player 0 observes before a chance move."""
    texts: tuple[str, ...]
    """[T] what OpenSpiel writes of the first positions of ``before``."""
    alternates: bool
    """Whether each move gave the turn to the other player; False where there is chance."""
    first: int
    """OpenSpiel's number of the player who moves first; 0 where dice decide who begins."""


def observed(state: pyspiel.State, num_planes: int) -> NDArray[np.float32]:
    """[C, N] what player 0 observes."""
    return np.array(state.observation_tensor(0), np.float32).reshape(num_planes, -1)


def _board_shape(shape: list[int]) -> tuple[int, int, int]:
    """Planes, rows and columns of an observation; one row for a tensor that is not a board."""
    side = math.isqrt(shape[-1])
    if len(shape) == 2 and side**2 == shape[1]:
        shape = [shape[0], side, side]
    planes, rows, cols = shape if len(shape) == 3 else (1, 1, math.prod(shape))
    return planes, rows, cols


def changes(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.bool_]:
    """[..., C, N] which cells differ; none of planes that differ everywhere, which count moves or name the side."""
    differ = one != other
    return np.where(differ.all(axis=-1, keepdims=True), False, differ)


def _nearest(state: pyspiel.State, wanted: NDArray[np.float32], draw: random.Random) -> int:
    """One of the moves, or outcomes of chance, after which player 0 observes what differs least from ``wanted``."""
    after = ((action, observed(state.child(action), len(wanted))) for action in state.legal_actions())
    return int(min((changes(look, wanted).sum(), draw.random(), action) for action, look in after)[2])


def survey(game: pyspiel.Game) -> Survey:
    """Play random games and keep some of their positions.

    Raises:
        ValueError: it is not played to an end, is over before it begins, or writes what is not UTF-8; all happen with
            parameters that it takes and should not.
    """
    shape = _board_shape(game.observation_tensor_shape())
    draw, stride = random.Random(0), 1 + math.prod(shape) // NUMBERS_PER_PLY
    before, after, actions, chance, texts = [], [], [], [], list[str]()
    names, starters = dict[int, str](), dict[int, int]()
    same_names = alternates = True
    repeats, shares = 0, [*SHUFFLES, *(number / TAKING_BACK for number in range(TAKING_BACK))]
    for number in range(-NUM_GAMES, len(shares)):  # the random ones first
        state, looks, tried, back = game.new_initial_state(), list[NDArray[np.float32]](), 0, number >= len(SHUFFLES)
        for ply in range(MAX_PLIES):
            if state.is_terminal() or tried > TRIED or repeats == ENOUGH:
                break
            legal, player = state.legal_actions(), state.current_player()
            if not legal:
                raise ValueError(f"OpenSpiel knows neither a legal move nor a result after {ply} plies")
            action = legal[int((shares[number] if number >= 0 else draw.random()) * len(legal))]
            if back:
                looks.append(observed(state, shape[0]))
                action = action if len(looks) < 3 else _nearest(state, looks[-3], draw)
                again = len(looks) > 4 and not changes(looks[-1], looks[-5]).any()
                repeats, tried = repeats + again, TRIED if again else tried + len(legal)
            here, state = state, state.child(action)
            if here.is_chance_node():
                chance.append(observed(here, shape[0]))
                continue
            starters.setdefault(number, player)
            name = here.action_to_string(action)
            same_names &= names.setdefault(action, name) == name
            alternates &= state.is_terminal() or state.current_player() != player
            if back or (ply + NUM_GAMES + number) % stride == 0:
                before.append(observed(here, shape[0]))
                after.append(observed(state, shape[0]))
                actions.append(action)
                texts += [str(here)] if len(texts) < NUM_TEXTS else []
    if not before:
        raise ValueError("it is over in its initial position")
    return Survey(
        shape,
        before=np.stack(before),
        after=np.stack(after),
        actions=np.array(actions),
        names=names if same_names else {},
        chance=np.array(chance, np.float32).reshape(-1, *before[0].shape),
        texts=tuple(texts),
        alternates=alternates and not chance,
        first=min(starters.values()),
    )
