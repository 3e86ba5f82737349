"""Finds positions that policies are both measured and trained on, so that the table can say so."""

# pyarrow.compute makes its functions when it is imported.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from genpolicy.data.records import Dataset

if TYPE_CHECKING:
    from genpolicy_experiments.description import Experiment

MAX_NAMED = 3
"""Number of cells that a note names."""


def notes(experiment: Experiment) -> list[str]:
    """A sentence for each training split that holds some of the positions that policies are measured on.

    Two records have the same position if their texts are equal.

    Raises:
        DatasetError: a data set is missing or damaged.
    """
    split, folder = experiment.file.evaluate.split, experiment.file.data.folder
    cells: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for cell in experiment.cells:
        data = experiment.configuration(cell, 0)["data"]
        trained_on = (data["folder"],) if isinstance(data["folder"], str) else tuple(data["folder"])
        cells.setdefault((trained_on, data.get("train", "train")), []).append(cell.name)
    measured = _states(experiment.dataset, split, None)
    among = pa.array(sorted(measured), pa.string())
    sentences = []
    for (folders, train), names in cells.items():
        both = set[str]().union(*(_states(experiment.opened(each), train, among) for each in folders))
        if both:
            named = "; ".join(names[:MAX_NAMED]) + ("; ..." if len(names) > MAX_NAMED else "")
            sentences.append(
                f"NOT HELD OUT: {len(both):,} of the {len(measured):,} measured positions "
                f"(split {split!r} of {folder}) are also in split {train!r} of {' + '.join(folders)}, "
                f"on which these are trained: {named}."
            )
    return sentences


def _states(dataset: Dataset, split: str, among: Any) -> set[str]:
    """Texts of the labelled positions of a split; only those of the array ``among``, if it is given."""
    states: set[str] = set()
    for batch in dataset.batches(["state", "line"], split):
        kept = pc.is_valid(batch.column("line"))
        if among is not None:
            kept = pc.and_(kept, pc.is_in(batch.column("state"), value_set=among))
        states.update(batch.column("state").filter(kept).to_pylist())
    return states


def has_cut_lines(dataset: Dataset, horizon: int) -> bool:
    """Whether some line has ``horizon`` moves and ends before the game does."""
    for batch in dataset.batches(["line", "ended"]):
        for line, ended in zip(batch.column("line").to_pylist(), batch.column("ended").to_pylist(), strict=True):
            if line and not ended and len(line.split()) >= horizon:
                return True
    return False
