"""S-V: the value of a state, played by one ply of lookahead over all legal moves (Ruoss et al. 2024, arXiv:2402.04494).

Axes: B positions, R successors of a batch, m legal moves of a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from genpolicy.chance import probabilities
from genpolicy.control import FREE, Control
from genpolicy.data.records import Dataset
from genpolicy.game import Game, IntArray
from genpolicy.policies.tokens import NetworkLearner
from genpolicy_policy_baselines.declared import STATE_VALUES
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
    """Plays the move that leaves the opponent the lowest value.

    All positions after all legal moves of a batch go through the network in one call. Where the game is over there
    (mate, stalemate, repetition, and whatever else ``Game.outcome`` knows) its result counts, and the network is not
    asked. Where chance decides after a move, the move is worth the mean over its outcomes by their probabilities.

    Args:
        learner: Holds the weights.
        lookahead: Whether a leaf of a search is worth the best move in it, with a row of a network call for each;
            False: what the network says of it, a row.
        options: Arguments of ``ValuePolicy``.
    """

    kind: ClassVar[str] = "state_value"
    declaration = STATE_VALUES
    learner_class: ClassVar[type[NetworkLearner]] = StateValueLearner

    def __init__(self, learner: NetworkLearner, *, lookahead: bool = True, **options: Any) -> None:
        super().__init__(learner, **options)
        self.lookahead = bool(lookahead)

    def own_options(self) -> dict[str, Any]:
        """The constructor's options as they are."""
        return {**super().own_options(), "lookahead": self.lookahead}

    def evaluate(self, states: Sequence[Any], *, control: Control = FREE) -> tuple[list[float], int] | None:
        """See ``Policy.evaluate``."""
        if self.lookahead:
            return None
        with self._evaluating(control):
            means, modes, calls = self._read(self.learner.roots(states, self.learner.viewers(states)))
        return np.clip(means if self.readout == "mean" else modes, -1.0, 1.0).tolist(), calls

    def _value_moves(
        self, states: Sequence[Any], legal: list[list[int]]
    ) -> tuple[list[FloatArray], list[FloatArray], int]:
        """See ``ValuePolicy``: the values after a move, with the sign changed where the other player is to move."""
        game = self.game
        before = [state for state, moves in zip(states, legal, strict=True) for _ in moves]
        after = [game.play(state, move) for state, moves in zip(states, legal, strict=True) for move in moves]
        owners: IntArray = np.arange(len(after))
        shares: FloatArray = np.ones(len(after))
        while any(game.chance(state) is not None for state in after):
            before, after, owners, shares = _outcomes(game, before, after, owners, shares)
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
        # Sums begin with 0, so a draw is 0, not minus 0.
        summed = [np.zeros(sum(map(len, legal))) for _ in range(2)]
        for total, each in zip(summed, (means, modes), strict=True):
            np.add.at(total, owners, shares * sign * each)
        return np.split(summed[0], ends), np.split(summed[1], ends), calls


def _outcomes(
    game: Game[Any], before: Sequence[Any], after: Sequence[Any], owners: IntArray, shares: FloatArray
) -> tuple[list[Any], list[Any], IntArray, FloatArray]:
    """The same rows, those in which chance decides replaced by one for each of its outcomes."""
    rows: list[tuple[Any, Any, int, float]] = []
    for old, state, owner, share in zip(before, after, owners.tolist(), shares.tolist(), strict=True):
        odds = probabilities(game, state)
        if odds is None:
            rows.append((old, state, owner, share))
        else:
            drawn = [game.play(state, move) for move in game.legal(state).tolist()]
            rows += [(old, each, owner, share * odd) for each, odd in zip(drawn, odds.tolist(), strict=True)]
    olds, states, places, odds_of = (list(column) for column in zip(*rows, strict=True))
    return olds, states, np.array(places), np.array(odds_of)


StateValueLearner.policy_class = StateValuePolicy
