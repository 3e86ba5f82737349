"""The labelled positions of a data set, and the moves that count as right in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.data.records import Dataset, Record
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy.values import score_to_value


@dataclass(frozen=True)
class LabelledPosition:
    """One position and its label."""

    state: Any
    line: tuple[int, ...]
    """The oracle's moves from here, absolute ids, at least one."""
    best: frozenset[int]
    """The label and, where the record values the moves, every move whose value ties with the best."""
    num_legal: int
    cluster: str
    """The game that it comes from, in a union with the number of its data set; a unique name where the record has
    none."""
    value: float | None = None
    """In [-1, 1] for the player to move: a search's value, else the first score's; None where there is neither."""
    result: float | None = None
    """Of the game, for the player to move: 1, 0 or -1; None where it is not known."""
    plies_left: int | None = None
    """To the move after the game's last recorded position; None where its result is not known."""
    ended: bool = False
    """Whether the game ends after ``line``."""

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
        other = "name another one with --split; data import --split gives the shares of all three"
        why = "genpolicy data label makes labels" if dataset.splits.get(split) else other
        raise DatasetError(f"{dataset.label}: no labelled position in split {split!r}; its splits: {counts} ({why})")
    chosen = set(drawn(labelled, limit, seed).tolist())
    positions, row, scale = [], 0, dataset.centipawn_scale
    for number, part in enumerate(dataset.parts):  # two data sets may give games the same names
        prefix, last = f"{number} " if len(dataset.parts) > 1 else "", _last_plies(part)
        for record in part.records(split):
            if row in chosen:
                where = f"{dataset.label}: {split} record {row}"
                cluster = f"record {row}" if record.game_id is None else f"{prefix}{record.game_id}"
                positions.append(_labelled(record, game, where, cluster, last, scale))
            row += 1
    return positions


def drawn(rows: NDArray[np.int64], limit: int | None, seed: int = 0) -> NDArray[np.int64]:
    """At most ``limit`` of the rows, drawn without replacement and kept in their order; None takes all."""
    if limit is None or limit >= len(rows):
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))


def _last_plies(dataset: Dataset) -> dict[str, int]:
    """The last recorded ply of each game of one folder."""
    ends = dataset.columns(["game_id", "ply"]).group_by("game_id").aggregate([("ply", "max")])
    pairs = zip(ends["game_id"].to_pylist(), ends["ply_max"].to_pylist(), strict=True)
    return {game: ply for game, ply in pairs if game is not None and ply is not None}


def _value(record: Record, scale: float) -> float | None:
    """A record's value for the player to move."""
    if record.value is not None:
        return record.value
    scores = [score for score in record.scores[:1] if score is not None] or list(record.scored_moves.values())
    return max((score_to_value(score, scale) for score in scores), default=None)


def _labelled(
    record: Record, game: Game[Any], where: str, cluster: str, last: Mapping[str, int], scale: float
) -> LabelledPosition:
    try:
        state = game.parse(record.state)
        legal = set(game.legal(state).tolist())
        line = tuple(game.moves.index(move) for move in record.moves)
        valued = {game.moves.index(move) for move in record.scored_moves}
        best = record.best_moves(game)
        value = _value(record, scale)
    except ValueError as error:
        raise DatasetError(f"{where}: {error}; label the data set again or remove the record") from error
    if line[0] not in legal or not legal.issuperset(valued):
        raise DatasetError(f"{where}: {record.moves[0]!r} or a move it values is illegal in {record.state!r}")
    result = left = None
    if record.result is not None:
        result = record.result if game.player(state) == 0 else 0.0 - record.result
        if record.game_id is not None and record.ply is not None:
            left = last[record.game_id] + 1 - record.ply
    return LabelledPosition(state, line, best, len(legal), cluster, value, result, left, record.ended)
