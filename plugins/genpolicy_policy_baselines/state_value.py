"""S-V: the value of a state, played by one ply of lookahead over all legal moves (Ruoss et al. 2024, arXiv:2402.04494).

Axes: B positions, R successors of a batch, m legal moves of a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from genpolicy.data.records import Dataset
from genpolicy.policies.tokens import NetworkLearner
from genpolicy_policy_baselines.value import FloatArray, ValueLearner, ValuePolicy, missing_labels


class StateValueLearner(ValueLearner):
    """Learns ``s | v`` from the first score of each record (its best move's, where it has move values alone)."""

    paradigm: ClassVar[str] = "s-v"

    def check_labels(self, records: Dataset, split: str) -> None:
        """See that some record of the split has a score."""
        for batch in records.batches(["scores", "move_values"], split):
            rows = batch.to_pylist()
            if any(row["move_values"] or (row["scores"] and row["scores"][0] is not None) for row in rows):
                return
        raise missing_labels(
            records,
            split,
            "scores, which S-V learns from",
            f"genpolicy data label {records.folder} --oracle 'alphabeta?depth=3' --out NEW_FOLDER",
        )


class StateValuePolicy(ValuePolicy):
    """Plays the move after which the other side's position is valued lowest.

    Options are those of ``ValuePolicy``.

    All positions after all legal moves of a batch go through the network in one call. Where the game is over there
    (mate, stalemate, repetition, and whatever else ``Game.outcome`` knows) its result counts, and the network is not
    asked.
    """

    kind: ClassVar[str] = "state_value"
    learner_class: ClassVar[type[NetworkLearner]] = StateValueLearner

    def _value_moves(
        self, states: Sequence[Any], legal: list[list[int]]
    ) -> tuple[list[FloatArray], list[FloatArray], int]:
        """See ``ValuePolicy``: the values after a move, with the sign changed where the other player is to move."""
        game = self.game
        before = [state for state, moves in zip(states, legal, strict=True) for _ in moves]
        after = [game.play(state, move) for state, moves in zip(states, legal, strict=True) for move in moves]
        sign = np.array([2 * (game.player(a) == game.player(b)) - 1 for a, b in zip(before, after, strict=True)])
        results = [game.outcome(state) for state in after]
        running = [state for state, result in zip(after, results, strict=True) if result is None]
        known = np.array([0.0 if result is None else float(result) for result in results])
        means, modes, calls = known, known.copy(), 0
        if running:
            is_open = np.array([result is None for result in results])
            tokens = self.learner.roots(running, self.learner.viewers(running))
            means[is_open], modes[is_open], calls = self._read(tokens)
        ends = np.cumsum([len(moves) for moves in legal])[:-1]
        # A draw is 0, not minus 0.
        return np.split(0.0 + sign * means, ends), np.split(0.0 + sign * modes, ends), calls


StateValueLearner.policy_class = StateValuePolicy
