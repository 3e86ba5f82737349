"""Nature's moves: read with a check, and drawn, where ``Game.chance`` gives their probabilities."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.game import Game

TOLERANCE = 1e-9
"""How far the sum of the probabilities may be from 1."""


def probabilities(game: Game[Any], state: Any) -> NDArray[np.float64] | None:
    """``Game.chance``, checked; None where a player moves.

    Raises:
        ValueError: not a distribution over the outcomes, or none that can happen.
    """
    shares = game.chance(state) if game.has_chance else None
    if shares is None:
        return None
    count, total = len(game.legal(state)), float(np.sum(shares))
    # So written, NaN fails too.
    if not (count > 0 and np.shape(shares) == (count,) and abs(total - 1.0) <= TOLERANCE and np.min(shares) >= 0):
        raise ValueError(
            f"chance decides in {game.format(state)!r} between {count} outcomes with probabilities of sum {total:g}; "
            "Game.chance gives one probability for each legal move, at least one of them, and their sum is 1"
        )
    return shares


def drawn(game: Game[Any], state: Any, draw: random.Random) -> int:
    """A legal move at random: by its probability where chance decides, else all alike."""
    shares, legal = probabilities(game, state), game.legal(state).tolist()
    return int(draw.choice(legal) if shares is None else draw.choices(legal, shares.tolist())[0])


def settled(game: Game[Any], state: Any, draw: random.Random) -> tuple[Any, list[int]]:
    """The state after nature's moves, in which a player is to move or the game has ended, and those moves."""
    moves: list[int] = []
    while game.has_chance and game.outcome(state) is None and game.chance(state) is not None:
        moves.append(drawn(game, state, draw))
        state = game.play(state, moves[-1])
    return state, moves
