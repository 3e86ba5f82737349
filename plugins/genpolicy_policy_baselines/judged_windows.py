"""Windows of positions with all that records say of them: a move or a distribution, a value, plies to the game's end.

Axes: B batch, M moves of the vocabulary, K = 3: win, draw, loss.
"""

# pyarrow.compute makes its functions when it is imported.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.data.windows import TokenBatch, WindowOptions, WindowSource
from genpolicy.game import Game
from genpolicy.networks.value_heads import WIN_DRAW_LOSS, two_hot
from genpolicy.sequence import Layout
from genpolicy_policy_baselines.value import missing_labels

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset
    from genpolicy.data.window_source import CachedWindows

VALUE_BINS = 1001
"""Bins in which the cache keeps scores; an odd number, so that a draw has one of its own. Half a bin is 0.001."""


@dataclass(frozen=True)
class JudgedBatch(TokenBatch):
    """Windows of ``s | a`` with labels; NaN where a record has none."""

    move: Tensor
    """[B] int64, the labelled move as the viewer sees it; -1 for none."""
    policy: Tensor
    """[B, M] float32, a search's probabilities of the moves, all 0 for none; [B, 0] where no record has them."""
    wdl: Tensor
    """[B, K] float32, probabilities of win, draw and loss for the player to move."""
    plies_left: Tensor
    """[B] float32, plies to the end of the game, at least 1."""


class JudgedWindows(WindowSource):
    """Labels over cached windows.

    Args:
        windows: Windows of ``labels`` with the columns ``result`` and ``value``, and ``policy`` where records have it.
        labels: A layout of a position, a move and its value.
        layout: ``s | a`` of the network.
        plies_left: Of each window; NaN for unknown.
        result_share: As in ``PolicyValueConfig``.
        has_policy: Whether the windows have the column ``policy``.
    """

    def __init__(
        self,
        windows: CachedWindows,
        labels: Layout,
        layout: Layout,
        plies_left: NDArray[np.float32],
        *,
        result_share: float,
        has_policy: bool,
    ) -> None:
        assert len(plies_left) == len(windows), "a window for each labelled record"
        self._windows, self._labels, self._layout = windows, labels, layout
        self._plies_left, self._result_share, self._has_policy = plies_left, result_share, has_policy

    @property
    def has_plies(self) -> bool:
        """Whether the plies left are known for any window."""
        return not np.isnan(self._plies_left).all()

    def __len__(self) -> int:
        return len(self._windows)

    def batch(self, indices: NDArray[np.int64], epoch: int) -> JudgedBatch:
        """The windows of some indices."""
        own, layout = self._windows.batch(indices, epoch), self._layout
        tokens = own.tokens[:, : layout.length].clone()
        move = tokens[:, layout.first_action] - layout.move_offset
        known = (move >= 0) & (move < len(layout.moves))
        tokens[:, layout.first_action] = tokens[:, layout.first_action].where(known, layout.mask)
        target = torch.zeros_like(tokens, dtype=torch.bool)
        target[:, layout.first_action] = known
        policy = torch.zeros(len(own), 0)
        if self._has_policy:
            policy = torch.from_numpy(self._windows.column("policy", indices, epoch))
        return JudgedBatch(
            tokens,
            own.frozen[:, : layout.length].clone(),
            target,
            own.indices,
            move=move.where(known, -1),
            policy=policy,
            wdl=self._wdl(own.tokens[:, layout.length], indices, epoch),
            plies_left=torch.from_numpy(self._plies_left[indices]),
        )

    def _wdl(self, value_tokens: Tensor, indices: NDArray[np.int64], epoch: int) -> Tensor:
        """[B, K] targets: of the search's value or of the score, mixed with the result's."""
        value, result = (
            torch.from_numpy(self._windows.column(name, indices, epoch).copy()) for name in ("value", "result")
        )
        place = value_tokens - self._labels.value_offset
        scored = (place >= 0) & (place < VALUE_BINS)
        score = (2.0 * place / (VALUE_BINS - 1) - 1.0).float().where(scored, torch.nan)
        value = value.where(~value.isnan(), score)
        share = torch.full_like(value, self._result_share)
        share = share.where(~value.isnan(), 1.0).where(~result.isnan(), 0.0)[:, None]
        support = torch.tensor(WIN_DRAW_LOSS)
        # What has no share may be NaN; a row without value and result keeps the value's NaN.
        of_value = torch.where(share < 1, (1 - share) * two_hot(value, support), 0.0)
        return of_value + torch.where(share > 0, share * two_hot(result, support), 0.0)


def judged_windows(
    records: Dataset, split: str, layout: Layout, game: Game[Any], options: WindowOptions, result_share: float
) -> JudgedWindows:
    """The labelled positions of a split.

    Args:
        records: The data set.
        split: Which of its splits.
        layout: ``s | a`` of the network.
        game: Its rules.
        options: How windows show the records.
        result_share: As in ``PolicyValueConfig``.

    Raises:
        DatasetError: no record of the split has a value; the message says which command adds them.
    """
    from genpolicy.data.window_source import build_windows

    check_values(records, split)
    labels = Layout(game, "s-avav", 1, num_value_bins=VALUE_BINS)
    has_policy = any(batch.column(0).null_count < len(batch) for batch in records.batches(["policy"], split))
    columns = ("policy", "result", "value") if has_policy else ("result", "value")
    windows = build_windows(records, split, game, labels, dataclasses.replace(options, columns=columns))
    left = plies_to_the_end(records, split)[has_window(records, split, game)]
    return JudgedWindows(windows, labels, layout, left, result_share=result_share, has_policy=has_policy)


def check_values(records: Dataset, split: str) -> None:
    """See that some record of a split has a value, a score or a result.

    Raises:
        DatasetError: none has.
    """
    for batch in records.batches(["value", "result", "move_values", "scores"], split):
        numbers, scores = (batch.column(i) for i in range(3)), batch.column(3).to_pylist()
        if any(column.null_count < len(column) for column in numbers) or any(row and row[0] for row in scores):
            return
    raise missing_labels(
        records,
        split,
        "values, scores or results, which policy_value learns from",
        f"genpolicy data label {records.folder} --oracle 'alphabeta?depth=3' --out NEW_FOLDER",
    )


def plies_to_the_end(records: Dataset, split: str) -> NDArray[np.float32]:
    """Of each record of a split, plies to the end of its game: to the move after the last recorded position.

    NaN where the game, the ply or the game's result is not recorded.
    """
    names = ["game_id", "ply", "result"]
    parts = [np.zeros(0, np.float32)]
    for part in records.parts:  # two data sets may give games the same names
        ends = part.columns(names).group_by("game_id").aggregate([("ply", "max")])
        own = part.columns(names, split)
        last = ends["ply_max"].take(pc.index_in(own["game_id"], value_set=ends["game_id"]))
        left = pc.add(pc.subtract(last, own["ply"]), 1)
        known = pc.and_(pc.is_valid(own["game_id"]), pc.is_valid(own["result"]))
        parts.append(pc.if_else(known, left, None).to_numpy().astype(np.float32))
    return np.concatenate(parts)


def has_window(records: Dataset, split: str, game: Game[Any]) -> NDArray[np.bool_]:
    """Which records of a split the cache makes windows of: those with a move or a score, or where the game is over."""
    found = []
    for batch in records.batches(["line", "scores", "move_values", "ended", "state"], split):
        for line, scores, moves, ended, state in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            labelled = bool((line and line.strip()) or (scores and scores[0] is not None) or moves or ended)
            found.append(labelled or len(game.legal(game.parse(state))) == 0)
    return np.array(found, np.bool_)
