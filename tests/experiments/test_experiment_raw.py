"""What a table says of draws without a legal mask, and of a single seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genpolicy
from genpolicy.policies.base import Decision, Policy
from genpolicy_common.labelled import LabelledPosition
from genpolicy_experiments import tables, worker
from genpolicy_experiments.runner import Result

GAME: Any = genpolicy.load_game("connect:rows=3,cols=3,k=3,gravity=false")


class Lines(Policy):
    """Plays move 0, having imagined what it was told."""

    kind = "lines"

    def __init__(self, *lines: tuple[int, ...]) -> None:
        self.game, self.lines = GAME, lines

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        return [Decision(0, line=line, stats={"raw_legal": 1.0}) for line in self.lines]


def test_an_illegal_first_action_is_a_miss_however_good_the_move_in_its_place() -> None:
    position = LabelledPosition(GAME.parse(), (0,), frozenset([0]), 9, "game")
    policy = Lines((0,), (-1,), (4, 0), ())
    figures, hits = worker.measure(policy, [position] * 4, {})
    assert figures["best"] == 1.0
    assert hits["raw_best"].tolist() == [1.0, 0.0, 0.0, 1.0]  # without a line the move is all there is
    assert figures["raw_best_one_call"] == figures["raw_best"] == 0.5


def test_a_share_of_one_seed_has_the_interval_of_its_positions(tmp_path: Path) -> None:
    hits = np.array([1.0, 0, 0, 0] * 100)
    np.savez(tmp_path / "hits.npz", clusters=np.array([str(i) for i in range(400)]), best=hits)
    result = Result(None, 0, tmp_path, {}, tmp_path / "hits.npz", None)  # type: ignore[arg-type]
    mean = tables._of_one_seed("best", 0.25, [result])
    # 1.96 standard errors of a fraction of 400 independent positions are 0.042.
    assert mean.interval == pytest.approx((0.25 - 0.042, 0.25 + 0.042), abs=0.01)
    assert (mean.value, mean.seeds) == (0.25, 1)
    assert all(math.isnan(end) for end in tables._of_one_seed("ms", 3.0, [result]).interval)
