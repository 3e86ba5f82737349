"""The labelled positions of a data set, and the moves that count as right in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from genpolicy.data.records import Dataset, Record
from genpolicy.errors import DatasetError
from genpolicy.game import Game


@dataclass(frozen=True)
class LabelledPosition:
    """One position and its label."""

    state: Any
    line: tuple[int, ...]
    """The oracle's moves from here, absolute ids, at least one."""
    best: frozenset[int]
    """Every move whose value ties with the best, where the record values the moves; else the label alone."""
    num_legal: int
    cluster: str
    """The game that it comes from; a unique name where the record has none."""

    @property
    def label(self) -> int:
        """The labelled move."""
        return self.line[0]


def labelled_positions(
    dataset: Dataset, game: Game[Any], split: str, *, limit: int | None = None, seed: int = 0
) -> list[LabelledPosition]:
    """The labelled positions of a split.

    Args:
        dataset: The records.
        game: Their game.
        split: Which of its splits.
        limit: At most so many, drawn without replacement from the whole split and kept in its order; None takes all.
        seed: Seed of that draw.

    Raises:
        DatasetError: no labelled position in the split, or a record that the game cannot read.
        ValueError: ``limit`` below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 position, got {limit}")
    lines = (line for batch in dataset.batches(["line"], split) for line in batch.column("line").to_pylist())
    labelled = np.array([row for row, line in enumerate(lines) if line], np.int64)
    if len(labelled) == 0:
        counts = ", ".join(f"{name} {number}" for name, number in dataset.splits.items())
        raise DatasetError(f"{dataset.label}: no labelled position in split {split!r}; its splits: {counts}")
    if limit is not None and limit < len(labelled):
        labelled = np.sort(np.random.default_rng(seed).choice(labelled, limit, replace=False))
    chosen = set(labelled.tolist())
    return [
        _labelled(record, game, f"{dataset.label}: {split} record {row}", row)
        for row, record in enumerate(dataset.records(split))
        if row in chosen
    ]


def _labelled(record: Record, game: Game[Any], where: str, row: int) -> LabelledPosition:
    try:
        state = game.parse(record.state)
        legal = set(game.legal(state).tolist())
        line = tuple(game.moves.index(move) for move in record.moves)
        valued = {game.moves.index(move) for move in record.scored_moves}
        best = record.best_moves(game)
    except ValueError as error:
        raise DatasetError(f"{where}: {error}; label the data set again or take the record out") from error
    if line[0] not in legal or not legal.issuperset(valued):
        raise DatasetError(f"{where}: {record.moves[0]!r} or a move it values is illegal in {record.state!r}")
    cluster = record.game_id if record.game_id is not None else f"record {row}"
    return LabelledPosition(state, line, best, len(legal), cluster)
