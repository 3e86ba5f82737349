"""What OpenSpiel does not say of a game, seen in games of fixed moves, of random ones with a fixed seed, and of moves
that are taken back.

Axes: S positions, C planes, N cells of a plane.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

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

    before: NDArray[np.float32]
    """[S, C, N] what player 0 observes."""
    after: NDArray[np.float32]
    """[S, C, N] the same after the move."""
    actions: NDArray[np.int64]
    """[S] the moves."""
    names: dict[int, str]
    """What OpenSpiel calls each move that was seen."""
    same_names: bool
    """Whether each had one name throughout."""
    chance: NDArray[np.float32]
    """[S, C, N] what player 0 observes before a chance move."""
    texts: tuple[str, ...]
    """What OpenSpiel writes of the positions of ``before``, as far as they were kept."""
    alternates: bool
    """Whether each move gave the turn to the other player; False where there is chance."""


def observed(state: Any, shape: tuple[int, int]) -> NDArray[np.float32]:
    """[C, N] what player 0 observes."""
    return np.array(state.observation_tensor(0), np.float32).reshape(shape)


def moves_made(state: pyspiel.State) -> list[int]:
    """Ids of the moves from the start; those of chance come after the players'."""
    dice = state.get_game().num_distinct_actions()
    return [each.action + dice * (each.player == pyspiel.PlayerId.CHANCE) for each in state.full_history()]


def _distance(one: NDArray[np.float32], other: NDArray[np.float32]) -> int:
    """How many cells differ; of planes that differ everywhere, which count moves or repetitions, none."""
    differing = (one != other).sum(axis=1)
    return int(differing[differing < one.shape[1]].sum())


def _nearest(state: pyspiel.State, wanted: NDArray[np.float32], draw: random.Random) -> int:
    """One of the moves, or outcomes of chance, after which player 0 observes what differs least from ``wanted``."""

    def distance(action: int) -> tuple[int, float]:
        after = state.clone()
        after.apply_action(action)
        return _distance(observed(after, wanted.shape), wanted), draw.random()

    action: int = min(state.legal_actions(), key=distance)
    return action


def survey(game: pyspiel.Game, shape: tuple[int, int]) -> Survey:
    """Play random games and keep some of their positions.

    Args:
        game: The game.
        shape: C and N of its observation.

    Raises:
        ValueError: it is not played to an end, is over before it begins, or writes what is not UTF-8; all happen with
            parameters that it takes and should not.
    """
    draw, stride = random.Random(0), 1 + shape[0] * shape[1] // NUMBERS_PER_PLY
    before, after, actions, chance, texts = [], [], [], [], list[str]()
    names: dict[int, str] = {}
    same_names = alternates = True
    last, repeats = NUM_GAMES + len(SHUFFLES), 0
    shares = [*SHUFFLES, *(number / TAKING_BACK for number in range(TAKING_BACK))]
    for number in range(last + TAKING_BACK):
        state, looks, tried = game.new_initial_state(), list[NDArray[np.float32]](), 0
        for ply in range(MAX_PLIES):
            if state.is_terminal() or tried > TRIED or repeats == ENOUGH:
                break
            legal, player = state.legal_actions(), state.current_player()
            if not legal:
                raise ValueError(f"OpenSpiel knows neither a legal move nor a result after {ply} plies")
            share = shares[number - NUM_GAMES] if number >= NUM_GAMES else draw.random()
            action = legal[int(share * len(legal))]
            if number >= last:
                looks.append(observed(state, shape))
                action = action if len(looks) < 3 else _nearest(state, looks[-3], draw)
                again = len(looks) > 4 and not _distance(looks[-1], looks[-5])
                repeats, tried = repeats + again, TRIED if again else tried + len(legal)
            if state.is_chance_node():
                alternates = False
                chance.append(observed(state, shape))
                state.apply_action(action)
                continue
            name = state.action_to_string(player, action)
            same_names &= names.setdefault(action, name) == name
            kept = (ply + number) % stride == 0 or number >= last
            if kept:
                before.append(observed(state, shape))
                actions.append(action)
                texts += [str(state)] if len(texts) < NUM_TEXTS else []
            state.apply_action(action)
            alternates &= state.is_terminal() or state.current_player() != player
            if kept:
                after.append(observed(state, shape))
    if not before:
        raise ValueError("it is over in its initial position")
    thrown = np.array(chance, np.float32).reshape(-1, *shape)
    return Survey(
        np.stack(before), np.stack(after), np.array(actions), names, same_names, thrown, tuple(texts), alternates
    )
