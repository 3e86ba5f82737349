"""Journals of unfinished data sets whose entries have right checksums and hold what no command writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genpolicy.data.oracle import make_oracle
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import DatasetError
from genpolicy.registry import load_game
from genpolicy_common.store import Store
from genpolicy_labelling.journal import ANSWERS, PURPOSE, UNITS
from genpolicy_labelling.label import label
from genpolicy_labelling.writer import DatasetWriter
from tests.data.record_sets import make_info, make_records, write
from tests.small_datasets import CONNECT

GAME = load_game(CONNECT)
Change = Callable[[Any], Any]


def change(folder: Path, table: str, key: str, changed: Change) -> None:
    with Store(folder / "journal.sqlite", PURPOSE) as store:
        store.put(table, key, changed(store.get(table, key)))


@pytest.mark.parametrize(
    "changed",
    [
        lambda unit: None,
        lambda unit: [unit],
        lambda unit: {**unit, "rows": [{**unit["rows"][0], "policy": 1.5}]},
        lambda unit: {**unit, "rows": [{**unit["rows"][0], "played": {}}]},
        lambda unit: {**unit, "rows": [{**unit["rows"][0], "ply": 10**30}]},
        lambda unit: {**unit, "rows": [{**unit["rows"][0], "more": 1}]},
        lambda unit: {**unit, "tallies": {"a": "x"}},
        lambda unit: {**unit, "tallies": [["a", 1]]},
    ],
)
def test_a_unit_that_no_shard_can_hold_is_named(changed: Change, tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, make_info(), 9) as out:
        for unit, record in enumerate(make_records(3)):
            out.add(unit, [record])
    change(tmp_path, UNITS, "1", changed)
    with pytest.raises(DatasetError, match=r"journal\.sqlite: unit 1 cannot be read \(.*delete it to have its work"):
        DatasetWriter(tmp_path, make_info(), 9)


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_an_old_journal_is_named_and_not_waited_for(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, make_info(), 9) as out:
        out.add(0, make_records(1))
    os.mkfifo(tmp_path / "journal.jsonl")
    with pytest.raises(DatasetError, match=r"journal\.jsonl: is a pipe"):
        DatasetWriter(tmp_path, make_info(), 9)


def test_an_answer_to_no_question_is_named(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, make_info(), 9) as out:
        out.add_answer(0, 0, 0, "a")
    with Store(tmp_path / "journal.sqlite", PURPOSE) as store:
        store.put(ANSWERS, "0 x", "a")
    with pytest.raises(DatasetError, match=r"journal\.sqlite: answer 0 x cannot be read \(.*delete it to have"):
        DatasetWriter(tmp_path, make_info(), 9)


@pytest.mark.parametrize(
    "changed",
    [
        lambda answer: "text",
        lambda answer: [answer],
        lambda answer: {key: each for key, each in answer.items() if key != "position"},
        lambda answer: {**answer, "line": None},
        lambda answer: {**answer, "line": "nonsense"},
        lambda answer: {**answer, "scores": [1.5]},
        lambda answer: {**answer, "scores": 1},
        lambda answer: {**answer, "error": 1},
        lambda answer: {**answer, "move_values": []},
        lambda answer: {**answer, "policy": {"a1": "x"}},
        lambda answer: {**answer, "value": 10**400},
    ],
)
def test_an_answer_that_is_none_is_named(changed: Change, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    class Stopping(DatasetWriter):
        def add(self, *arguments: Any) -> None:
            raise Stopped

    source = Dataset.open(write_positions(tmp_path / "positions"))
    out = tmp_path / "out"
    with make_oracle("solver", GAME) as oracle:
        with pytest.raises(Stopped), Stopping(out, make_info()) as writer:
            label(source, writer, GAME, oracle, 1)
        change(out, ANSWERS, "0 1 0", changed)
        named = r"journal\.sqlite: the answer to question 0 of task 1 in unit 0 cannot be read \(.*delete it to have"
        with pytest.raises(DatasetError, match=named), DatasetWriter(out, make_info()) as writer:
            label(source, writer, GAME, oracle, 1)


def write_positions(folder: Path) -> Path:
    """Records of three positions."""
    first = GAME.parse()
    states = [first, *(GAME.play(first, move) for move in GAME.legal(first).tolist()[:2])]
    write(folder, [Record(GAME.format(state)) for state in states])
    return folder
