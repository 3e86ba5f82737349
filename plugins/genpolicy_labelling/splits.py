"""Decides which records train, validate and test: by game, or by position for records without a game."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from genpolicy.data.records import SPLITS
from genpolicy.game import Game


@dataclass(frozen=True)
class SplitFractions:
    """Fractions of the data that train, validate and test; they sum to 1."""

    train: float = 0.9
    validation: float = 0.05
    test: float = 0.05
    seed: int = 0
    """Another seed gives another split."""

    def __post_init__(self) -> None:
        parts = (self.train, self.validation, self.test)
        # In this form a NaN fails the check.
        if not (min(parts) >= 0 and abs(sum(parts) - 1) <= 1e-6):
            raise ValueError(
                f"split fractions must be at least 0 and sum to 1, got {'/'.join(f'{p:g}' for p in parts)}"
            )

    @staticmethod
    def parse(text: str, seed: int = 0) -> SplitFractions:
        """Fractions as ``"0.9/0.05/0.05"`` (train, validation, test).

        Raises:
            ValueError: not three numbers that sum to 1.
        """
        try:
            train, validation, test = (float(part) for part in text.split("/"))
        except ValueError:
            raise ValueError(f"split must be train/validation/test such as 0.9/0.05/0.05, got {text!r}") from None
        return SplitFractions(train, validation, test, seed)

    def of(self, name: str) -> str:
        """The split of a name: all records that share a name are in the same split."""
        digest = hashlib.blake2b(f"{self.seed}|{name}".encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "big") / 2**64
        if place < self.train:
            return SPLITS[0]
        # The last split takes what rounding leaves.
        return SPLITS[1] if place < self.train + self.validation or self.test == 0 else SPLITS[2]

    def of_position(self, game: Game[Any], state: Any) -> str:
        """The split of a position without a game, which its symmetric copies share."""
        return self.of(f"position|{game.canonical_key(state)}")

    def options(self) -> dict[str, Any]:
        """The fractions as options of a data set's identity."""
        return {"split": f"{self.train:g}/{self.validation:g}/{self.test:g}", "split_seed": self.seed}


def checked_split(name: str | None) -> str | None:
    """A source's own split by our names (``valid``, ``val``, ``dev`` and ``eval`` are ``validation``).

    Raises:
        ValueError: the name is unknown.
    """
    if name is None:
        return None
    synonyms = {"valid": "validation", "val": "validation", "dev": "validation", "eval": "validation"}
    split = synonyms.get(name.lower(), name.lower())
    if split not in SPLITS:
        raise ValueError(f"split {name!r} is none of {', '.join(SPLITS)}")
    return split
