"""How well policies judge positions: the figures by hand, whose view labels have, and the report's columns."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import genpolicy
from genpolicy.data.records import Dataset, Record
from genpolicy.policies.base import Decision
from genpolicy_common.labelled import LabelledPosition, labelled_positions
from genpolicy_evaluation.judgement import Judgement, judge
from genpolicy_report.measures import Part, Row
from genpolicy_report.tables import main_table
from tests.small_datasets import CONNECT, write_dataset


def position(
    value: float | None, result: float | None = None, left: int | None = None, game: str = "g"
) -> LabelledPosition:
    return LabelledPosition(None, (0,), frozenset({0}), 1, game, value, result, left)


def test_labels_are_of_the_player_to_move(tmp_path: Path) -> None:
    x, o = ".../.../... X", "X../.../... O"
    records = [
        Record(state=x, line="b2", game_id="g", ply=0, result=1.0, scores=("value:0.5",), split="test"),
        Record(state=o, line="b2", game_id="g", ply=1, result=1.0, value=-0.25, scores=("value:1",), split="test"),
        Record(state=x, line="b2", game_id="h", ply=4, move_values="b2=value:0.75 a1=value:0", split="test"),
        Record(state=o, line="b2", result=0.0, split="test"),
    ]
    data = write_dataset(tmp_path / "a", CONNECT, records)
    rows = labelled_positions(data, genpolicy.load_game(CONNECT), "test")
    assert [(row.value, row.result, row.plies_left) for row in rows] == [
        (0.5, 1.0, 2),
        (-0.25, -1.0, 1),
        (0.75, None, None),
        (None, 0.0, None),
    ]


def test_games_of_a_union_may_have_equal_names(tmp_path: Path) -> None:
    x, o = ".../.../... X", "X../.../... O"
    first = Record(state=x, line="b2", game_id="g", ply=0, result=1.0, split="test")
    second = Record(state=o, line="b2", game_id="g", ply=1, result=1.0, split="test")
    write_dataset(tmp_path / "a", CONNECT, [first, second])
    write_dataset(tmp_path / "b", CONNECT, [first])
    union = Dataset.open([tmp_path / "a", tmp_path / "b"])
    rows = labelled_positions(union, genpolicy.load_game(CONNECT), "test")
    left: dict[str, list[int | None]] = {}
    for row in rows:
        left.setdefault(row.cluster, []).append(row.plies_left)
    assert sorted(left.values()) == [[1], [2, 1]]
    assert {row.cluster for row in labelled_positions(union.parts[0], genpolicy.load_game(CONNECT), "test")} == {"g"}


def test_a_judgement_by_hand() -> None:
    shares = [(0.5, 0.3, 0.2), (0.1, 0.2, 0.7), (0.25, 0.5, 0.25)]
    decisions = [
        Decision(0, value=w - loss, wdl=(w, d, loss), stats={"plies_left": left})
        for (w, d, loss), left in zip(shares, [10.0, 20.0, 30.0], strict=True)
    ]
    positions = [position(0.5, 1.0, 12, "a"), position(-1.0, 0.0, 17, "b"), position(0.0, None, None, "c")]
    made = judge(decisions, positions)
    assert made is not None
    assert made.value_rank == pytest.approx(1.0)
    assert made.valued == 3
    assert made.wdl_nats == pytest.approx(-(math.log(0.5) + math.log(0.2)) / 2)
    assert made.wdl_prior == pytest.approx(math.log(2))  # a win and a draw
    assert made.plies_error == pytest.approx((2 + 3) / 2)
    # Of two games, a quarter of the draws has the first alone, a quarter the second.
    assert made.plies_error_interval == pytest.approx((2, 3))
    assert made.wdl_nats_interval == pytest.approx((-math.log(0.5), -math.log(0.2)))
    assert made.wdl_gain_interval is not None
    low, high = made.wdl_gain_interval
    assert low <= math.log(2) + (math.log(0.5) + math.log(0.2)) / 2 <= high


def test_a_value_alone_and_no_value() -> None:
    positions = [position(0.5, 1.0), position(-0.5, -1.0)]
    made = judge([Decision(0, value=0.9), Decision(0, value=-0.2)], positions)
    assert made is not None
    assert made.value_rank == pytest.approx(1.0)
    assert (made.wdl_nats, made.plies_error) == (None, None)
    assert judge([Decision(0), Decision(0)], positions) is None
    same = judge([Decision(0, value=0.1)] * 2, positions)
    assert same is not None
    assert same.value_rank is None


def test_there_is_no_interval_of_one_game() -> None:
    made = judge([Decision(0, value=value) for value in (0.1, 0.5, 0.3)], [position(v) for v in (0.0, 0.4, 0.8)])
    assert made is not None
    assert made.value_rank_interval == pytest.approx((math.nan, math.nan), nan_ok=True)


def test_the_interval_of_a_rank_correlation_covers_it_and_narrows() -> None:
    random = np.random.default_rng(0)
    widths = []
    for count in (60, 600):
        true = random.uniform(-1, 1, count)
        values = np.tanh(true + random.normal(0, 0.7, count))
        decisions = [Decision(0, value=float(value)) for value in values]
        made = judge(decisions, [position(float(v), game=str(i // 3)) for i, v in enumerate(true)])
        assert made is not None
        assert made.value_rank is not None
        assert made.value_rank_interval is not None
        low, high = made.value_rank_interval
        assert low < made.value_rank < high
        widths.append(high - low)
    assert widths[1] < 0.6 * widths[0]


def test_the_report_has_columns_where_there_is_something_to_say() -> None:
    share = {"accuracy": 0.25, "interval": [0.2, 0.3], "wilson": [0.2, 0.3], "positions": 10}
    old = {"labelled": share, "best": share}  # a part that was measured before there were judgements
    full = Judgement(0.7, (0.6, 0.8), 10, 0.9, (0.8, 1.0), 1.05, (0.1, 0.2), 12.34, (11.0, 13.66))
    rows = [
        Row(name, name, name, {"accuracy": Part(figures, {})})
        for name, figures in [("old", old), ("new", {**old, "judgement": full.figures()})]
    ]
    table = main_table(rows, [])
    cells = dict(zip(table.columns, table.groups[0][1][1], strict=True))
    assert cells["value's rank correlation"] == "0.700 [0.600, 0.800]"
    assert (cells["win/draw/loss nats"], cells["plies left, error"]) == ("0.900 [0.800, 1.000]", "12.3 [11.0, 13.7]")
    assert dict(zip(table.columns, table.groups[0][1][0], strict=True))["win/draw/loss nats"] == "-"
    assert any("1.050 by the results' shares alone" in note for note in table.notes)
    assert not any("nats" in title for title in main_table(rows[:1], []).columns)
