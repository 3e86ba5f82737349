"""Small data sets of records of every kind."""

from __future__ import annotations

from pathlib import Path

from genpolicy.data.records import Dataset, DatasetInfo, Record
from genpolicy_labelling.writer import DatasetWriter


def make_info(**changes) -> DatasetInfo:
    fields = {"game": "chess", "made_by": "label", "oracle": {"name": "none", "nodes": 5}, "options": {"horizon": 4}}
    return DatasetInfo(**{**fields, "command": "genpolicy data label x", **changes})


def make_records(number: int) -> list[Record]:
    full = Record(
        state="text 1",
        game_id="g",
        ply=3,
        line="a b c",
        ended=True,
        scores=("cp:1", None, "mate:-2"),
        move_values="a=cp:1 b=cp:-5",
        played="b",
        result=-1.0,
        split="test",
        policy="a=0.5 b=0.5",
        value=0.25,
    )
    bare = Record(state="text é")
    return [full, bare, *(Record(state=f"s{i}", split=("train", "test")[i % 2]) for i in range(2, number))]


def write(folder: Path, records: list[Record], rows_per_shard: int = 4, **options) -> Dataset:
    with DatasetWriter(folder, make_info(), rows_per_shard, **options) as out:
        for unit, record in enumerate(records):
            out.add(unit, [record])
        out.finish({"records": len(records)})
    return Dataset.open(folder)
