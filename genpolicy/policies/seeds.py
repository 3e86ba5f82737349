"""Where a policy's random draws come from: one seed for each row, made of the policy's seed and the position alone.

A row's draw does not depend on the other rows of its batch, nor on how positions are cut into batches: it is a hash of
the policy's seed, the position's text and how often this position was decided on since the seed was set. The count
makes two visits to one position (or one position many times in a batch) independent draws, and the same seed the same
game.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence


class RowSeeds:
    """Gives each position that is decided on a 63-bit seed."""

    def __init__(self, seed: int = 0) -> None:
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Start over: the draws that follow are those of any other reset to this seed."""
        self.seed = int(seed)
        self._counts: Counter[bytes] = Counter()

    def draw(self, texts: Sequence[str]) -> list[int]:
        """A seed in 0..2^63 - 1 for each position's text."""
        seeds = []
        for text in texts:
            # The counter holds digests, not texts, so that a long evaluation stays small.
            position = hashlib.blake2b(text.encode(), digest_size=8).digest()
            count = self._counts[position]
            self._counts[position] += 1
            mixed = hashlib.blake2b(f"{self.seed}\n{count}\n{text}".encode(), digest_size=8).digest()
            seeds.append(int.from_bytes(mixed, "big") >> 1)
        return seeds
