"""An oracle whose lines continue at random after the best first move: the true world under a random policy.

It shows how much of a future's worth lies in good moves, and how much in the rules alone (Ye et al. 2025, Table 4).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from genpolicy.data.oracle import Line, Oracle, analysed, make_oracle
from genpolicy.game import Game


class RandomFutureOracle(Oracle):
    """Another oracle's best move, then random legal moves of both sides.

    Args:
        game: The game.
        oracle: Name of the oracle that gives the first move.
        seed: Seed of the random moves, which depend on it and on the position's text alone.
        options: Options of that oracle (``nodes``, ``processes``, ...).

    Raises:
        ValueError: the oracle does not accept an option, or the seed is not a whole number.
    """

    def __init__(self, game: Game[Any], oracle: str = "solver", seed: int | str = 0, **options: Any) -> None:
        try:
            self.seed = int(seed)
        except ValueError:
            raise ValueError(f"seed must be a whole number, got {seed!r}") from None
        self.game = game
        self.first = make_oracle(oracle, game, **options)
        self.scale = self.first.scale

    def describe(self) -> dict[str, Any]:
        """The first move's oracle, and the seed of the others."""
        first = self.first.describe()
        scale = {"centipawn_scale": self.scale} if "centipawn_scale" in first else {}
        return {"name": "random_future", "seed": self.seed, "first": first, **scale}

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        """One line for each state; see ``Oracle``."""
        firsts = analysed(self.first, states, 1, move_values=move_values)
        return [self._continue(state, line, horizon) for state, line in zip(states, firsts, strict=True)]

    def _continue(self, state: Any, line: Line, horizon: int) -> Line:
        if line.error is not None or not line.moves:
            return line
        text = f"{self.seed}\n{self.game.format(state)}".encode()
        draws = np.random.default_rng(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big"))
        moves = [line.moves[0]]
        state = self.game.play(state, moves[0])
        while len(moves) < horizon and self.game.outcome(state) is None and self.game.chance(state) is None:
            moves.append(int(draws.choice(self.game.legal(state))))
            state = self.game.play(state, moves[-1])
        ended = self.game.outcome(state) is not None
        return dataclasses.replace(line, moves=tuple(moves), scores=line.scores[:1], ended=ended)

    def close(self) -> None:
        """Close the first move's oracle."""
        self.first.close()
