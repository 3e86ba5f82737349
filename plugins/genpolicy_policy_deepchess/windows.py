"""Pairs of positions of which one is better.

Positions are read once, as tokens seen by either player: 4 bytes a token and record in memory.

Axes: B batch, R positions, L tokens of a state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.data.counter_rng import draw
from genpolicy.data.records import SPLITS, Dataset
from genpolicy.data.windows import Batch, WindowSource
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.game import Game
from genpolicy.values import score_to_value
from genpolicy_policy_deepchess.config import ComparatorConfig

SHARES = (0.8, 0.1, 0.1)
"""Parts of the positions that are train, validation and test where positions are split, not games."""
ROUNDING = 1e-9
_PARTNER, _ORDER = 101, 102


@dataclass(frozen=True)
class PairBatch(Batch):
    """Some pairs: [B, 2, L] int64 state tokens of each position as player 0 and as player 1 see it, [B] float32 whether
    the first is better for player 0, and [B] int64 index of the pair in its source."""

    first: Tensor
    second: Tensor
    first_better: Tensor
    indices: Tensor


@dataclass(frozen=True)
class Positions:
    """[R, 2, L] positions as both players see them, [R] values in [-1, 1] for player 0, and [R] their games."""

    tokens: NDArray[np.int16]
    value: NDArray[np.float64]
    games: NDArray[np.str_]

    @staticmethod
    def read(records: Dataset, split: str, game: Game[Any], config: ComparatorConfig) -> Positions:
        """The positions of a split that can be used, in the order of the records.

        Raises:
            DatasetError: there are none, or all are worth the same.
        """
        found = list(_usable(records, split, game, config))
        states, values, games = zip(*found, strict=True) if found else ((), (), ())
        if len(found) < 2 or (config.stage == "compare" and np.ptp(values) < config.gap):
            what = {"result": "results: import decisive games", "score": "scores: label it"}[config.pairs]
            raise DatasetError(
                f"{records.label}: split {split!r} has no two positions from ply {config.min_ply} on that differ by "
                f"their {what} (genpolicy data import|label), or lower learner.min_ply or learner.min_gap"
            )
        views = [game.tokens.encode(states, np.full(len(states), viewer)) for viewer in (0, 1)]
        return Positions(np.stack(views, axis=1), np.array(values), np.array(games))


def _usable(
    records: Dataset, split: str, game: Game[Any], config: ComparatorConfig
) -> Iterator[tuple[Any, float, str]]:
    """Each position's state, value for player 0 and game."""
    if config.quiet and game.hints is None:
        raise ConfigError(f"learner.quiet=true: {game.spec} does not say which positions are quiet; leave it out")
    names = ["game_id", "ply", "state", "result", "scores"]
    chosen = None if config.split_by == "position" else split
    for row in (row for batch in records.batches(names, chosen) for row in batch.to_pylist()):
        if (row["ply"] or 0) < config.min_ply or (chosen is None and _split_of(row["state"]) != split):
            continue
        label: Any = row["result"] if config.pairs == "result" else (row["scores"] or [None])[0]
        if config.stage == "compare" and not label:
            continue  # a draw, or not labelled
        state, value = game.parse(row["state"]), 0.0
        if config.quiet and game.hints is not None and not game.hints.is_quiet(state):
            continue
        if config.stage == "compare":
            is_score, sign = config.pairs == "score", 1 - 2 * game.player(state)
            value = sign * score_to_value(label, records.centipawn_scale) if is_score else float(label)
        yield state, value, row["game_id"] or row["state"]


def _split_of(state: str) -> str:
    share = int.from_bytes(hashlib.sha256(state.encode()).digest()[:4], "big") / 2**32
    return SPLITS[int(np.searchsorted(np.cumsum(SHARES), share, side="right"))]


class Pairs(WindowSource):
    """A pair for each position that has a partner, drawn anew in every epoch, in an order that is drawn, too.

    Args:
        positions: The positions.
        gap: Least difference of the two values; 0 takes any partner.
        seed: Draws depend on it, the epoch and the index alone.
    """

    def __init__(self, positions: Positions, gap: float, seed: int) -> None:
        self.positions, self._seed = positions, seed
        self._by_value = np.argsort(positions.value, kind="stable")
        ordered, own = positions.value[self._by_value], positions.value
        self._below = np.searchsorted(ordered, own - gap + ROUNDING, side="right")
        self._above = np.searchsorted(ordered, own + gap - ROUNDING, side="left")
        self._count = self._below + len(own) - self._above
        self._used = np.flatnonzero(self._count > 0)

    def __len__(self) -> int:
        return len(self._used)

    def pairs(self, indices: NDArray[np.int64], epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[B] first and [B] second position of some pairs."""
        own = self._used[np.asarray(indices, np.int64)]
        rank = draw(self._seed, epoch, own, _PARTNER, self._count[own])
        rank = np.where(rank < self._below[own], rank, rank - self._below[own] + self._above[own])
        other = self._by_value[rank]
        swapped = draw(self._seed, epoch, own, _ORDER, np.full(len(own), 2)) == 1
        return np.where(swapped, other, own), np.where(swapped, own, other)

    def batch(self, indices: NDArray[np.int64], epoch: int) -> PairBatch:
        """The pairs of some indices [B]."""
        first, second = self.pairs(indices, epoch)
        tokens, value = self.positions.tokens, self.positions.value
        better = (value[first] > value[second]).astype(np.float32)
        columns = tokens[first].astype(np.int64), tokens[second].astype(np.int64), better, np.array(indices, np.int64)
        return PairBatch(*map(torch.from_numpy, columns))
