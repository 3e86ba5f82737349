"""SA-V: the value of every legal move of a state, no lookahead (Ruoss et al. 2024, arXiv:2402.04494).

Axes: B positions, R moves of a batch, m legal moves of a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from genpolicy.data.records import Dataset
from genpolicy.policies.tokens import NetworkLearner
from genpolicy_policy_baselines.value import FloatArray, ValueLearner, ValuePolicy, missing_labels


class ActionValueLearner(ValueLearner):
    """Learns ``s a | v`` from the oracle's value of every legal move.

    A window is a record with one of its moves, drawn uniformly and anew each time the window is made (outside training
    always the same one).
    """

    paradigm: ClassVar[str] = "sa-v"

    def check_labels(self, records: Dataset, split: str) -> None:
        """See that some record of the split has move values."""
        for batch in records.batches(["move_values"], split):
            if batch.column("move_values").null_count < batch.num_rows:
                return
        raise missing_labels(
            records,
            split,
            "move values, which SA-V learns from",
            f"genpolicy data label {records.folder} --oracle 'alphabeta?depth=3' --move-values --out NEW_FOLDER",
        )


class ActionValuePolicy(ValuePolicy):
    """Plays the legal move with the highest value.

    Options are those of ``ValuePolicy``.

    All legal moves of a batch go through the network in one call. The rules are not asked what a move leads to.
    """

    kind: ClassVar[str] = "action_value"
    learner_class: ClassVar[type[NetworkLearner]] = ActionValueLearner

    def _value_moves(
        self, states: Sequence[Any], legal: list[list[int]]
    ) -> tuple[list[FloatArray], list[FloatArray], int]:
        """See ``ValuePolicy``."""
        counts = [len(moves) for moves in legal]
        viewers = self.learner.viewers(states)
        tokens = self.learner.roots(states, viewers).repeat_interleave(torch.tensor(counts), dim=0)
        seen = self.game.moves.seen_by(np.concatenate([np.array(moves) for moves in legal]), np.repeat(viewers, counts))
        action = self.layout.slot("action", 0)
        assert action is not None
        tokens[:, action.start] = self.layout.move_offset + torch.from_numpy(seen)
        means, modes, calls = self._read(tokens)
        ends = np.cumsum(counts)[:-1]
        return np.split(means, ends), np.split(modes, ends), calls


ActionValueLearner.policy_class = ActionValuePolicy
