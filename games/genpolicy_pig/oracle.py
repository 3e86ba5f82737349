"""The exact solution of Pig, as an oracle: value iteration over all positions of a turn.

With w(i, j, k) the probability that the player whose turn it is wins, whose score is i, the other's j and the turn's
total k (Neller and Presser 2004, UMAP Journal 25, treat it so):

    roll(i, j, k) = (1 - w(j, i, 0) + sum over the other faces r of w(i, j, k + r)) / faces,  w = 1 from the goal on
    hold(i, j, k) = 1 - w(j, i + k, 0),  for k > 0
    w = max(roll, hold)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.data.oracle import Line, Oracle
from genpolicy.game import Game
from genpolicy_pig.game import HOLD, ROLL, Pig, PigGame

VERSION = "1"
TOLERANCE = 1e-13
MAX_ROUNDS = 100_000
MAX_GOAL = 200
"""goal^3 numbers are kept."""


class PigOracle(Oracle):
    """Exact values of ``roll`` and ``hold``; where both are as good, ``roll``.

    Args:
        game: A ``PigGame`` with a goal of at most 200.

    Raises:
        ValueError: another game, or a larger goal.
    """

    def __init__(self, game: Game[Any]) -> None:
        if not isinstance(game, PigGame):
            raise ValueError(f"the oracle pig solves Pig (pig:goal=20), not {game.spec!r}")
        if game.goal > MAX_GOAL:
            raise ValueError(f"the oracle pig solves goals up to {MAX_GOAL}, got {game.spec!r}")
        self.game: PigGame = game

    def describe(self) -> dict[str, Any]:
        """What ``dataset.yaml`` records."""
        return {"name": "pig", "version": VERSION, "game": self.game.spec, "score_scale": "value"}

    def win_probability(self, state: Pig) -> float:
        """That the player whose turn it is wins, also while the die is in the air."""
        if self.game.outcome(state) is not None:
            return 1.0
        mine, theirs = state.scores[state.player], state.scores[1 - state.player]
        table = self._rolls if state.rolling else self._wins
        return float(table[mine, theirs, state.turn])

    def analyse(self, states: Sequence[Pig], horizon: int, *, move_values: bool = False) -> list[Line]:
        """The best move of each position; a line ends before the die falls. Positions of chance have no label."""
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        return [self._line(state, horizon) for state in states]

    def _line(self, state: Pig, horizon: int) -> Line:
        game = self.game
        if game.outcome(state) is not None:
            return Line((), error=f"{game.format(state)!r}: the game is over")
        if state.rolling:
            return Line((), error=f"{game.format(state)!r}: the die is in the air, so chance decides")
        by_move = {move: f"value:{value:.17g}" for move, value in self._values(state).items()}
        moves: list[int] = []
        scores: list[str] = []
        while len(moves) < horizon and not state.rolling:
            values = self._values(state)
            moves.append(max(values, key=lambda move: values[move]))  # the first of equals is to roll
            scores.append(f"value:{values[moves[-1]]:.17g}")
            state = game.play(state, moves[-1])
        return Line(tuple(moves), tuple(scores), move_values=by_move)

    def _values(self, state: Pig) -> dict[int, float]:
        """Value in [-1, 1] of each move, for the player who makes it."""
        after = {ROLL: self.win_probability(self.game.play(state, ROLL))}
        if state.turn:
            after[HOLD] = 1.0 - self.win_probability(self.game.play(state, HOLD))
        return {move: max(-1.0, min(1.0, 2.0 * chance - 1.0)) for move, chance in after.items()}

    @cached_property
    def _rolls(self) -> NDArray[np.float64]:
        """[goal, goal, goal] own score, the other's, the turn's total: probability to win by rolling."""
        return self._rolled(self._wins)

    @cached_property
    def _wins(self) -> NDArray[np.float64]:
        """The same with the better move."""
        goal = self.game.goal
        own, other, turn = np.ogrid[:goal, :goal, :goal]
        kept = np.minimum(own + turn, goal - 1)
        wins = np.full((goal, goal, goal), 0.5)
        for _ in range(MAX_ROUNDS):
            hold = np.where(turn > 0, 1.0 - wins[other, kept, 0], 0.0)
            better = np.maximum(self._rolled(wins), hold)
            better[np.broadcast_to(own + turn >= goal, better.shape)] = 1.0
            change, wins = float(np.abs(better - wins).max()), better
            if change < TOLERANCE:
                return wins
        raise RuntimeError(f"value iteration did not come to rest in {MAX_ROUNDS} rounds for {self.game.spec}")

    def _rolled(self, wins: NDArray[np.float64]) -> NDArray[np.float64]:
        goal, faces, bust = self.game.goal, self.game.faces, self.game.bust
        total = np.broadcast_to(1.0 - wins[:, :, 0].T[:, :, None], wins.shape).copy()
        for face in range(1, faces + 1):
            if face != bust:
                reached = np.ones_like(wins)
                reached[:, :, : max(0, goal - face)] = wins[:, :, face:]
                total += reached
        return total / faces
