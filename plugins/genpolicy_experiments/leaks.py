"""Finds positions that policies are both measured and trained on, so that the table can say so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genpolicy import registry
from genpolicy.data.array_cache import ArrayFiles, cached
from genpolicy.data.records import Dataset
from genpolicy.game import Game
from genpolicy_common.labelled import drawn
from genpolicy_evaluation.positions import progress_bar
from genpolicy_labelling.summary import position_hash

if TYPE_CHECKING:
    from genpolicy_experiments.description import Experiment

MAX_NAMED = 3
"""Number of cells that a note names."""
CACHE_FORMAT = 1
"""To be increased when the cached hashes of the same records change."""
_AT_ONCE = 1 << 20


def notes(experiment: Experiment) -> list[str]:
    """A sentence for each training split that holds some of the positions that policies are measured on.

    Another one names each policy whose weights cells begin with: what it was trained on is not known.

    Two records have the same position, as for ``genpolicy data info``, if ``game.key`` is equal, or, where training
    turns positions (``learner.augment``), the canonical key; those that are trained on need no line. The hashes of
    a split are computed once and cached; eight bytes per record are kept in memory.

    Raises:
        DatasetError: a data set is missing or damaged.
    """
    split, folder = experiment.file.evaluate.split, experiment.file.data.folder
    cells: dict[tuple[tuple[str, ...], str, bool], list[str]] = {}
    begun: dict[str, list[str]] = {}
    for cell in experiment.cells:
        settings = experiment.configuration(cell, 0)
        data = settings["data"]
        if policy := settings.get("init_from"):
            begun.setdefault(policy, []).append(cell.name)
        trained_on = (data["folder"],) if isinstance(data["folder"], str) else tuple(data["folder"])
        turned = bool((settings.get("learner") or {}).get("augment"))
        cells.setdefault((trained_on, data.get("train", "train"), turned), []).append(cell.name)
    game = registry.load_game(experiment.dataset.game_spec)
    sentences = []
    for (folders, train, turned), names in cells.items():
        positions, labelled = _hashes(experiment.dataset, split, game, turned)
        measured = positions[drawn(np.flatnonzero(labelled), experiment.file.evaluate.positions)]
        trained = [_shared(measured, experiment.opened(each), train, game, turned) for each in folders]
        if both := int(np.isin(measured, np.concatenate(trained)).sum()):
            sentences.append(
                f"NOT HELD OUT: {both:,} of the {len(measured):,} measured positions "
                f"(split {split!r} of {folder}) are also in split {train!r} of {' + '.join(folders)}, "
                f"{'as they are or turned, ' if turned else ''}on which these are trained: {_named(names)}."
            )
    for policy, names in begun.items():
        sentences.append(
            f"NOT CHECKED: whether measured positions are among those that {policy} was trained on, with whose weights "
            f"these begin: {_named(names)}."
        )
    return sentences


def _named(cells: list[str]) -> str:
    return "; ".join(cells[:MAX_NAMED]) + ("; ..." if len(cells) > MAX_NAMED else "")


def _shared(
    measured: NDArray[np.uint64], dataset: Dataset, split: str, game: Game[Any], turned: bool
) -> NDArray[np.uint64]:
    """The hashes of a split that are among those of the measured positions."""
    positions, _ = _hashes(dataset, split, game, turned)
    parts = np.array_split(positions, 1 + len(positions) // _AT_ONCE)
    return np.concatenate([part[np.isin(part, measured)] for part in parts])


def _hashes(
    dataset: Dataset, split: str, game: Game[Any], turned: bool
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Hash of the position of each record of a split, and whether it has a line."""

    def write(folder: Path) -> Mapping[str, Any]:
        files = ArrayFiles(folder)
        files.append({"position": np.empty(0, np.uint64), "labelled": np.empty(0, np.bool_)})
        with progress_bar() as bar:
            task = bar.add_task(f"positions of {dataset.folder}", total=dataset.splits.get(split, 0))
            for batch in dataset.batches(["state", "line"], split):
                rows = batch.to_pydict()
                hashes = [position_hash(game, game.parse(text), turned=turned) for text in rows["state"]]
                has_line = [bool(line) for line in rows["line"]]
                files.append({"position": np.array(hashes, np.uint64), "labelled": np.array(has_line, np.bool_)})
                bar.advance(task, batch.num_rows)
        return files.close()

    identity = {"positions": CACHE_FORMAT, "data": dataset.checksum, "split": split, "game": game.spec}
    identity |= {"turned": True} if turned else {}
    folder = cached(dataset, identity, write)
    return np.fromfile(folder / "position.bin", np.uint64), np.fromfile(folder / "labelled.bin", np.bool_)


def has_cut_lines(dataset: Dataset, horizon: int) -> bool:
    """Whether some line has ``horizon`` moves and ends before the game does."""
    for batch in dataset.batches(["line", "ended"]):
        for line, ended in zip(batch.column("line").to_pylist(), batch.column("ended").to_pylist(), strict=True):
            if line and not ended and len(line.split()) >= horizon:
                return True
    return False
