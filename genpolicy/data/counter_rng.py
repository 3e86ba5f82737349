"""Random numbers by counting: each is a function of counters such as seed, epoch and window, so no state is saved.

Axes: B batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8


def splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 well-mixed bits of each number: the step and finaliser of splitmix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def bits(*counters: int | NDArray[Any]) -> NDArray[np.uint64]:
    """[B] 64 bits that depend on every counter and on their order."""
    mixed = np.zeros(1, np.uint64)
    for counter in counters:
        mixed = splitmix64(mixed ^ np.asarray(counter, np.uint64))
    return mixed


def draw(seed: int, epoch: int, windows: NDArray[np.int64], stream: int, count: NDArray[Any]) -> NDArray[np.int64]:
    """Uniform draws in 0..count-1.

    Args:
        seed: Seed of the run, 0..2**64-1.
        epoch: Passes over the data so far.
        windows: [B] window indices.
        stream: Which of the draws of a window.
        count: [B] numbers of outcomes, at least 1 and below 2**31.
    """
    high = bits(seed, epoch, windows, stream) >> np.uint64(32)
    chosen: NDArray[np.int64] = ((high * count.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    return chosen


class Shuffle:
    """A permutation of 0..n-1 for each epoch that needs no memory: where a position goes is computed.

    A Feistel network permutes the next power of four; an image beyond n-1 is sent through again (cycle walking, Black
    and Rogaway 2002).
    """

    def __init__(self, n: int, seed: int) -> None:
        if n < 1:
            raise ValueError(f"there must be something to shuffle, got n={n}")
        self.n, self.seed = n, seed
        self._half = np.uint64(max(1, (max(n - 1, 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half)) - 1)

    def __call__(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """[B] the images of some positions [B], each in 0..n-1.

        Raises:
            IndexError: a position outside 0..n-1, which cycle walking would never bring back.
        """
        positions = np.asarray(positions)
        if len(positions) and not 0 <= positions.min() <= positions.max() < self.n:
            raise IndexError(f"positions lie in 0..{self.n - 1}, got {positions.min()}..{positions.max()}")
        keys = bits(self.seed, epoch, np.arange(_ROUNDS))
        image = self._permute(positions.astype(np.uint64), keys)
        while (outside := image >= self.n).any():
            image[outside] = self._permute(image[outside], keys)
        return image.astype(np.int64)

    def _permute(self, x: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = x >> self._half, x & self._mask
        for key in keys:
            left, right = right, left ^ (splitmix64(right ^ key) & self._mask)
        return (left << self._half) | right
