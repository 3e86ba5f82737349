"""Windows drawn from the cache: as recorded, or with the tied labels redrawn and the position turned.

Axes: B batch, N tokens of a sequence, L tokens of a state, V viewers that a state is stored for.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from genpolicy.data.counter_rng import draw
from genpolicy.data.records import Dataset
from genpolicy.data.window_build import build_cache
from genpolicy.data.window_cache import HELD_OUT, WindowCache
from genpolicy.data.windows import TokenBatch, WindowOptions, WindowSource
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.sequence import Layout, Slot

Ints = NDArray[np.int64]
DEFAULTS = WindowOptions()
_CHOICE, _SYMMETRY, _ARM, _FOREIGN = 0, 1 << 32, 1 << 33, 1 << 40  # streams of draws that never meet: plies are small


def build_windows(
    dataset: Dataset, split: str, game: Game[Any], layout: Layout, options: WindowOptions = DEFAULTS
) -> CachedWindows:
    """The labelled lines of a split as token windows, from a cache that is built when it is missing or damaged.

    Raises:
        DatasetError: a damaged data set, one of another game, a record that the rules refuse, or no labelled one.
        ConfigError: ``augment`` in a game without a symmetry that tokens can show.
    """
    return CachedWindows(WindowCache(build_cache(dataset, split, game, layout, options)), game, layout, options)


class CachedWindows(WindowSource):
    """Windows of a cache; see ``build_windows``.

    Where the layout gives the first action (``sa-v``), a window shows a position and one of its valued moves, drawn
    anew each time it is made; the value is that move's.
    """

    def __init__(self, cache: WindowCache, game: Game[Any], layout: Layout, options: WindowOptions) -> None:
        self._cache, self._layout, self._mirrored = cache, layout, game.moves.mirrored
        self._options, self._seed = options, options.seed
        self._given = torch.from_numpy(layout.given)
        self._redraw = options.redraw and cache.has_choices
        self._by_move = any(slot.given and slot.kind == "action" for slot in layout.slots)
        self._symmetries = _symmetries(cache, game) if options.augment else None

    def __len__(self) -> int:
        return len(self._cache)

    def batch(self, indices: Ints, epoch: int) -> TokenBatch:
        """The windows of some indices [B].

        Raises:
            IndexError: one is not in 0..len(self) - 1.
        """
        windows = np.asarray(indices, np.int64)
        if len(windows) and not 0 <= windows.min() <= windows.max() < len(self):
            raise IndexError(f"window indices lie in 0..{len(self) - 1}, got {windows.min()}..{windows.max()}")
        rows = self._cache.gather("tokens", windows).astype(np.int64)
        viewers = self._cache.gather("viewers", windows).astype(np.int64)
        if self._by_move:
            rows = self._with_a_move(rows, windows, epoch)
        if self._redraw:
            rows = self._walk(rows, viewers, windows, epoch)
        if self._symmetries is not None:
            rows = self._turn(rows, viewers, windows, epoch, self._symmetries[0])
        tokens = torch.from_numpy(rows)
        target = ~self._given & (tokens != self._layout.mask)
        if not self._options.train_pad:
            target &= tokens != self._layout.pad
        return TokenBatch(
            tokens, self._given.expand(len(windows), -1).clone(), target, torch.from_numpy(windows.copy())
        )

    def _with_a_move(self, rows: Ints, windows: Ints, epoch: int) -> Ints:
        """Rows [B, N] of positions with one of their valued moves, drawn anew in each epoch, and its value."""
        action, value = self._layout.slot("action", 0), self._layout.slot("value", 0)
        assert action is not None
        assert value is not None
        first, count = self._cache.span("starts", windows)
        drawn = first + draw(self._seed, epoch, windows, _ARM, count)
        rows[:, action.start] = self._cache.gather("arm_move", drawn)
        rows[:, value.start] = self._cache.gather("arm_value", drawn)
        return rows

    def _walk(self, own: Ints, viewers: Ints, windows: Ints, epoch: int) -> Ints:
        """Rows [B, N] of freshly drawn lines; ``own`` are the records' own ones."""
        layout, cache = self._layout, self._cache
        _, num_moves = cache.span("starts", windows)
        walking = num_moves > 0  # a record with a value alone keeps that
        rows = np.where(walking[:, None], layout.mask, own)
        rows[:, : layout.state_length] = own[:, : layout.state_length]
        here = windows.copy()  # the record that each walk stands on
        agrees = np.ones(len(windows), np.bool_)
        for ply in range(layout.horizon):
            at = np.flatnonzero(walking)
            if len(at) == 0:
                break
            first, count = cache.span("starts", here[at])
            chosen = first + draw(self._seed, epoch, windows[at], _CHOICE + ply, count)
            moves = cache.gather("move", chosen).astype(np.int64)
            moves = layout.move_offset + np.where(viewers[at] == 1, self._mirrored[moves], moves)
            if (action := layout.slot("action", ply)) is not None:
                rows[at, action.start] = moves
                agrees[at] &= own[at, action.start] == moves
            if (value := layout.slot("value", ply)) is not None:
                rows[at, value.start] = cache.gather("values", here[at])
            if (state := layout.slot("state", ply + 1)) is not None:
                rows[at, state.start : state.stop] = cache.children(chosen, viewers[at])
            over = cache.gather("over", chosen)
            following = cache.gather("next", chosen)
            for slot in self._after(ply):
                rows[at[over], slot.start : slot.stop] = layout.pad
            follow_own = at[~over & (following < 0) & (following != HELD_OUT) & agrees[at]]
            until = cache.gather("until", windows[follow_own])
            for slot in self._after(ply):
                known = follow_own[slot.ply < until + (slot.kind == "state")]
                rows[known, slot.start : slot.stop] = own[known, slot.start : slot.stop]
            walking[at] = ~over & (following >= 0)
            here[at] = following
        return rows

    def _after(self, ply: int) -> list[Slot]:
        """All that comes after the state that follows ply ``ply``."""
        return [slot for slot in self._layout.slots if slot.ply > ply + (slot.kind == "state")]

    def _turn(self, rows: Ints, viewers: Ints, windows: Ints, epoch: int, places: Ints) -> Ints:
        """The rows seen through a drawn symmetry; PAD and mask stay."""
        layout, pick = self._layout, self._drawn_symmetry(windows, epoch)
        turned = rows.copy()
        for slot in layout.slots:
            if slot.kind == "state":
                source = slot.start + places[pick, viewers if places.shape[1] > 1 else 0]
                turned[:, slot.start : slot.stop] = np.take_along_axis(rows, source, axis=1)
            elif slot.kind == "action":
                turned[:, slot.start] = layout.move_offset + self._images(
                    rows[:, slot.start] - layout.move_offset, viewers, pick
                )
        return turned

    def _drawn_symmetry(self, windows: Ints, epoch: int) -> Ints:
        assert self._symmetries is not None
        return draw(self._seed, epoch, windows, _SYMMETRY, np.full(len(windows), len(self._symmetries[0])))

    def _images(self, ids: Ints, viewers: Ints, pick: Ints) -> Ints:
        """[B] what moves become under symmetries; other ids stay as they are."""
        assert self._symmetries is not None
        images = self._symmetries[1]
        is_move = (ids >= 0) & (ids < images.shape[-1])
        return np.where(is_move, images[pick, viewers, np.where(is_move, ids, 0)], ids)

    def column(self, name: str, indices: Ints, epoch: int) -> NDArray[Any]:
        """A column of the records of some windows, for a learner's own ``WindowSource``.

        Args:
            name: One of ``WindowOptions.columns``.
            indices: [B] windows.
            epoch: As in ``batch``, so that moves are turned as the batch's tokens are.

        Returns:
            ``played``: [B] int64, the move played in the game, as the window shows moves; -1 where none is recorded.
            ``policy``: [B, M] float32, a search's probability of each move, as the window shows moves; 0 where the
            record has none. ``result``: [B] float32, the game's result, 1, 0 or -1 for the player to move at the root.
            ``value``: [B] float32, a search's value in [-1, 1] for the same player. NaN where a number is not recorded.

        Raises:
            ConfigError: the windows were built without this column.
        """
        if name not in self._options.columns:
            raise ConfigError(f"the windows were built without column {name!r}: name it in WindowOptions.columns")
        windows = np.asarray(indices, np.int64)
        if name in ("result", "value"):
            return self._cache.gather(name, windows)
        row, entries = np.arange(len(windows)), windows
        if name == "policy":
            row, entries = self._cache.entries("policy_starts", windows)
        moves = self._cache.gather("policy_move" if name == "policy" else name, entries).astype(np.int64)
        if self._symmetries is not None:
            viewers = self._cache.gather("viewers", windows)
            moves = self._images(moves, viewers[row], self._drawn_symmetry(windows, epoch)[row])
        if name == "played":
            return moves
        table = np.zeros((len(windows), len(self._mirrored)), np.float32)
        table[row, moves] = self._cache.gather("policy_share", entries)
        return table


def _symmetries(cache: WindowCache, game: Game[Any]) -> tuple[Ints, Ints]:
    """Where tokens come from [G, V, L] and what moves become [G, 2, M], by symmetry and viewer."""
    stored = cache.array("symmetries")
    which, places = stored[:, 0, 0], stored[:, :, 1:]
    if len(which) == 1:
        raise ConfigError(
            f"augment: game {game.spec!r} has no symmetry that its tokens can represent; set augment=false"
        )
    identity, mirrored = np.arange(len(game.moves)), game.moves.mirrored
    absolute = [identity if index < 0 else game.symmetries[index].moves for index in which]
    # Player 1 sees move m as mirrored[m], and mirrored is its own inverse.
    return places, np.stack([np.stack([image, mirrored[image[mirrored]]]) for image in absolute])


class UnrelatedFutures(WindowSource):
    """Windows whose ``foreign`` tokens ([N] bool) come from other windows: a future without information.

    Which window that is depends on seed, epoch and index alone.
    """

    def __init__(self, source: CachedWindows, foreign: NDArray[np.bool_], seed: int) -> None:
        self.source, self.seed = source, seed
        self._foreign = torch.from_numpy(foreign.copy())

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, indices: Ints, epoch: int) -> TokenBatch:
        """The windows of some indices."""
        own = self.source.batch(indices, epoch)
        count = np.full(len(indices), len(self.source))
        others = self.source.batch(draw(self.seed, epoch, indices, _FOREIGN, count), epoch)
        return dataclasses.replace(
            own,
            tokens=torch.where(self._foreign, others.tokens, own.tokens),
            target=torch.where(self._foreign, others.target, own.target),
        )
