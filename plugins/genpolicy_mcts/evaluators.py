"""Evaluators that need no network: the game's own heuristic, and random play. Each has a uniform prior."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from genpolicy.chance import drawn
from genpolicy.facets import evaluation
from genpolicy.game import Game
from genpolicy.search.model import Prior


class Heuristic:
    """Uniform prior, the game's own heuristic evaluation.

    Args:
        game: A game whose ``hints`` give one.

    Raises:
        ValueError: it gives none; the message names alternatives.
    """

    def __init__(self, game: Game[Any]) -> None:
        self._evaluate = evaluation(game)

    def __call__(self, states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        """See ``Evaluator``."""
        return [None] * len(states), [self._evaluate(state) for state in states]


class Rollout:
    """Uniform prior, the mean result of games that uniformly random moves play out.

    A position's games depend on the seed and on its text alone, so neither the batch nor the order of a search matters.

    Args:
        game: The rules.
        num_games: Games from each position.
        max_plies: A longer game counts as drawn.
        seed: Seed of the moves.

    Raises:
        ValueError: a number below 1.
    """

    def __init__(self, game: Game[Any], num_games: int = 1, max_plies: int = 512, seed: int = 0) -> None:
        if num_games < 1 or max_plies < 1:
            raise ValueError(f"num_games and max_plies must be at least 1, got {num_games} and {max_plies}")
        self.game, self.num_games, self.max_plies, self.seed = game, num_games, max_plies, seed

    def __call__(self, states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
        """See ``Evaluator``."""
        return [None] * len(states), [self._mean(state) for state in states]

    def _mean(self, state: Any) -> float:
        digest = hashlib.blake2b(f"{self.seed}\n{self.game.format(state)}".encode(), digest_size=8).digest()
        draw = random.Random(int.from_bytes(digest, "big"))
        return sum(self._result(state, draw) for _ in range(self.num_games)) / self.num_games

    def _result(self, state: Any, draw: random.Random) -> float:
        """Result of one random game for the player to move in ``state``."""
        game, mover = self.game, self.game.player(state)
        for _ in range(self.max_plies):
            result = game.outcome(state)
            if result is not None:
                return result if game.player(state) == mover else -result
            state = game.play(state, drawn(game, state, draw))
        return 0.0
