"""Small data sets for tests, written without the labelling commands."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from genpolicy import load_game
from genpolicy.data.records import SCHEMA, Dataset, DatasetInfo, Record
from genpolicy.files import sha256_of
from genpolicy.game import Game
from genpolicy.registry import load

CONNECT = "connect:rows=3,cols=3,k=3,gravity=false"


def write_dataset(folder: Path, game: str, records: Sequence[Record]) -> Dataset:
    """One shard of records and the ``dataset.yaml`` that goes with it."""
    folder.mkdir(parents=True, exist_ok=True)
    shard = folder / "records-00000.parquet"
    pq.write_table(pa.Table.from_pylist([record.to_row() for record in records], schema=SCHEMA), shard)
    info = DatasetInfo(game=game, made_by="label", complete=True, units=len(records))
    info.shards = [{"file": shard.name, "rows": len(records), "sha256": sha256_of(shard)}]
    (folder / "dataset.yaml").write_bytes(info.to_yaml())
    return Dataset.open(folder)


def solved_connect(folder: Path, horizon: int = 4, every: int = 1) -> Dataset:
    """Positions of 3x3x3 with the solver's lines and values; a fifth, symmetric copies with it, is the test set."""
    return write_dataset(folder, load_game(CONNECT).spec, _solved(horizon, every))


@functools.cache
def _solved(horizon: int, every: int) -> list[Record]:
    """Solved once by each process that runs tests: many modules want the same."""
    game: Game[Any] = load_game(CONNECT)
    solver = load("oracles", "solver")(game)
    states = [s for s in game.positions() if game.outcome(s) is None and len(game.legal(s))][::every]
    records = []
    for state, line in zip(states, solver.analyse(states, horizon, move_values=True), strict=True):
        group = hashlib.sha256(game.canonical_key(state).encode()).digest()[0]
        records.append(
            Record(
                state=game.format(state),
                game_id=None,
                line=" ".join(game.moves[move] for move in line.moves),
                ended=line.ended,
                move_values=" ".join(f"{game.moves[move]}={score}" for move, score in line.move_values.items()),
                split="test" if group < 51 else "train",
            )
        )
    return records
