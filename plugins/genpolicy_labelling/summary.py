"""Counts what a data set holds: records, games, splits, repeated positions, test positions that occur in training."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.data.records import SPLITS, Dataset
from genpolicy.game import Game


def count(dataset: Dataset, game: Game[Any], progress: Callable[[int], None] = lambda rows: None) -> dict[str, Any]:
    """Counts for ``dataset.yaml``, from one pass over the records.

    Two positions are the same if ``game.key`` is (move counters do not matter). Eight bytes per record are kept in
    memory, 16 in a game with symmetries.

    Args:
        dataset: The records.
        game: Game of the records.
        progress: Called with the number of rows of each batch.

    Returns:
        ``records``; ``games``; ``labelled``; ``splits`` (records of each); ``duplicates`` (records whose position is
        also that of an earlier record, in any split); ``leakage`` (for validation and test, the number of all
        records, of those whose position occurs in training, and, in a game with symmetries, of those whose position
        or a symmetric copy does, which training with ``learner.augment`` shows).
    """
    ways = {"in_training": False, **({"in_training_turned": True} if game.symmetries else {})}
    keys: dict[str, list[NDArray[np.uint64]]] = {}
    games: set[bytes] = set()
    splits: Counter[str] = Counter()
    num_labelled = 0
    for batch in dataset.batches(["state", "game_id", "split", "line"]):
        rows = batch.to_pydict()
        by_split: dict[str, list[list[int]]] = {}
        for text, split in zip(rows["state"], rows["split"], strict=True):
            state = game.parse(text)
            both = [position_hash(game, state, turned=turned) for turned in ways.values()]
            by_split.setdefault(split or "none", []).append(both)
        for split, hashes in by_split.items():
            keys.setdefault(split, []).append(np.array(hashes, dtype=np.uint64))
            splits[split] += len(hashes)
        games.update(_digest(name) for name in rows["game_id"] if name is not None)
        num_labelled += sum(line is not None for line in rows["line"])
        progress(batch.num_rows)
    whole = {split: np.concatenate(parts) for split, parts in keys.items()}
    num_records = sum(splits.values())
    distinct = len(np.unique(np.concatenate([part[:, 0] for part in whole.values()]))) if whole else 0
    training = whole.get("train", np.empty((0, len(ways)), np.uint64))
    leakage = {
        split: {
            "records": len(whole[split]),
            **{name: int(np.isin(whole[split][:, way], training[:, way]).sum()) for way, name in enumerate(ways)},
        }
        for split in SPLITS[1:]
        if split in whole
    }
    return {
        "records": num_records,
        "games": len(games),
        "labelled": num_labelled,
        "splits": {split: splits[split] for split in (*SPLITS, "none") if splits[split]},
        "duplicates": num_records - distinct,
        "leakage": leakage,
    }


def position_hash(game: Game[Any], state: Any, *, turned: bool = False) -> int:
    """64-bit digest of a position; among ten million positions two share it with a probability of 3 in a million.

    With ``turned`` its symmetric copies have the same.
    """
    key = game.canonical_key(state) if turned else game.key(state)
    return int.from_bytes(_digest(key if isinstance(key, bytes) else str(key)), "big")


def _digest(key: str | bytes) -> bytes:
    return hashlib.blake2b(key.encode() if isinstance(key, str) else key, digest_size=8).digest()
