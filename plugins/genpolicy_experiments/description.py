"""What an experiment is: axes of settings, seeds, data, a budget and what is measured; and the runs it comes to.

A *cell* is one label of every axis. A *run* is what has to be trained for it: cells that differ only in how the policy
plays (settings that begin with ``play.``) share one. A run is known by a hash of its whole configuration, the records
it is trained on and its seed, so results of other settings or another version of the data are never taken for its own.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from genpolicy.config import Settings, structured
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError, did_you_mean
from genpolicy.training.config import RunConfig
from genpolicy_experiments import checks, leaks, metrics
from genpolicy_experiments.checks import BUDGET, BUDGETS, PLAY, WHOLE, WITHOUT
from genpolicy_experiments.checks import FLOPS as FLOPS


@dataclass
class DataSource:
    """The labelled data set of all runs; a cell that sets ``data.folder`` is trained on that one, measured on this."""

    folder: str = ""
    """Its folder, from where the command is run."""
    make: list[str] = field(default_factory=list)
    """Arguments of ``genpolicy`` that make it where it is missing, one command after the other."""


@dataclass
class Evaluation:
    """What is measured of every trained policy."""

    split: str = "test"
    positions: int | None = None
    """At most so many, drawn once for all runs; null takes all."""
    bound: bool = False
    """Also a column of the metric ``bound``, which is measured always."""
    futures: bool = False
    """Also the shares of ``genpolicy evaluate futures`` by step."""


@dataclass
class Comparison:
    """A paired test: the same positions and seeds, two cells, or two ways of measuring one."""

    a: dict[str, str] = field(default_factory=dict)
    """Label of every axis."""
    b: dict[str, str] = field(default_factory=dict)
    metric: str = "best"
    metric_b: str | None = None
    """Of side b; null is ``metric``. With it, a and b may be the same cell: the sampler against one call."""
    title: str = ""

    @property
    def of_b(self) -> str:
        """The metric of side b."""
        return self.metric if self.metric_b is None else self.metric_b


@dataclass
class Published:
    """Numbers of a paper beside the cells."""

    source: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    """By cell: its labels joined by `` / ``, in the order of the axes. A number is of ``metric``; a mapping gives one
    for each metric that it names."""
    metric: str = "best"
    """What plain numbers stand beside; of shares they are in percent."""


@dataclass
class Plot:
    """A line for each label of ``by`` (or one), a point for each label of ``x``."""

    x: str = ""
    """An axis; or ``records``, ``minutes`` or ``flops``: what was spent; ``calls`` or ``ms``: what a decision takes;
    or ``future_step``: the imagined ply."""
    y: str = "best"
    """A metric, or several shares joined by commas, a line for each; with ``future_step`` metrics of the imagined
    future without their step (``match``)."""
    by: str | None = None
    title: str = ""
    log: bool = False
    """Whether x is drawn in powers."""
    where: dict[str, str] = field(default_factory=dict)
    """Labels of the cells that are drawn; none draws all."""

    @property
    def drawn(self) -> list[str]:
        """The metrics on the y axis."""
        return [name.strip() for name in self.y.split(",")]


@dataclass
class ExperimentFile:
    """The YAML file."""

    name: str = ""
    """Of the files that are written."""
    title: str = ""
    data: DataSource = field(default_factory=DataSource)
    config: list[str] = field(default_factory=list)
    """Training configurations that every run begins with, from this file's folder; later ones override."""
    run: dict[str, Any] = field(default_factory=dict)
    """Settings of every run, as in a training configuration."""
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Axis -> label -> settings: dotted keys of the training configuration, ``play.<option>`` of the policy,
    ``without``: a list of keys that are taken out first, and ``budget.<kind>``: another amount of the file's budget."""
    skip: list[dict[str, str]] = field(default_factory=list)
    """Cells that are left out: labels of some axes; all cells with these labels."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    budget: dict[str, float] = field(default_factory=dict)
    """One of ``records``, ``minutes``, ``steps``, ``epochs``, ``flops``: the same for every run."""
    evaluate: Evaluation = field(default_factory=Evaluation)
    metrics: list[str] = field(default_factory=lambda: ["best", "best_one_call", "records"])
    """Columns of the table."""
    compare: list[Comparison] = field(default_factory=list)
    published: Published = field(default_factory=Published)
    plots: list[Plot] = field(default_factory=list)
    parallel: int | None = None
    """Runs at once; null is as many as the machine has cores for ``threads`` each."""
    threads: int = 1
    """Threads of each run."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader of the table."""


@dataclass(frozen=True)
class Cell:
    """One label of every axis."""

    labels: dict[str, str]
    settings: dict[str, Any]
    """Of the training configuration, dotted keys."""
    without: tuple[str, ...]
    play: dict[str, Any]
    """Options of the policy."""
    budget: float | None = None
    """What its runs may spend, of the kind of the file's budget; None is as much as the file says."""

    @property
    def name(self) -> str:
        """Its labels, joined."""
        return " / ".join(self.labels.values()) or "all"


@dataclass(frozen=True)
class PlannedRun:
    """What is trained once."""

    key: str
    """Hash of settings, records and seed."""
    name: str
    """For people: the first cell that needs it, and the seed."""
    seed: int
    config: dict[str, Any]
    """A whole training configuration but for ``out``."""
    budget: dict[str, float]
    """Kind and amount."""


class Experiment:
    """A description that was read and checked.

    Args:
        path: The YAML file.
        overrides: ``key=value`` settings.

    Raises:
        ConfigError: a key, axis, label, budget or metric that does not exist, with the way out.
    """

    def __init__(self, path: Path, overrides: list[str] | None = None) -> None:
        self.path = path
        self._opened: dict[str, Dataset] = {}
        settings = Settings([path], overrides or [])
        axes = settings.data.get("axes")
        if isinstance(axes, dict):  # YAML reads the label 4 as a number
            for axis, labels in axes.items():
                if not isinstance(labels, dict):
                    wrong = f"key 'axes.{axis}' holds labels with settings, e.g. {{deep: {{learner.horizon: 4}}}}"
                    raise settings.located(ConfigError(f"{wrong}; got {labels!r}"))
                axes[axis] = {str(label): value for label, value in labels.items()}
                if len(axes[axis]) < len(labels):
                    raise settings.located(ConfigError(f"key 'axes.{axis}' has a label twice, as number and as text"))
        self.file = settings.fill(ExperimentFile)
        self.name = self.file.name or path.stem
        self._check()
        if self.file.evaluate.bound:
            # It is a column and no other measurement, so the measurement's hash is the same with it and without.
            self.file.evaluate.bound = False
            self.file.metrics += [] if "bound" in self.file.metrics else ["bound"]
        base = Settings([path.parent / name for name in self.file.config], []).data if self.file.config else {}
        self._base = _merged(base, self.file.run)
        self.cells = [cell for cell in self._all_cells() if not self._is_skipped(cell)]
        if not self.cells:
            raise ConfigError(f"{path}: skip leaves no cell of {_count(self._all_cells())}; take a line out of it")
        for comparison in self.file.compare:
            a, b = self.cell_of(comparison.a), self.cell_of(comparison.b)
            if a == b and comparison.metric == comparison.of_b:
                raise ConfigError(
                    f"{path}: compare: cell {a.name!r} stands on both sides with the same metric {comparison.metric!r}"
                    f"; name another cell, or give metric_b, as {comparison.metric.removesuffix('_one_call')}_one_call"
                )
        names = [cell.name for cell in self._all_cells()]
        for name in self.file.published.values:
            if name not in names:
                hint = did_you_mean(name, names)
                raise ConfigError(f"{path}: published: cell {name!r} does not exist.{hint} Cells: {'; '.join(names)}")

    def _check(self) -> None:
        file, path = self.file, self.path
        checks.check(path, file, self.name)
        for labels in file.skip:
            self._require_labels("skip", labels)
        metrics.check(path, file)
        for plot in file.plots:
            for axis in filter(None, (plot.x, plot.by)):
                if axis not in file.axes and (axis != plot.x or axis not in metrics.PLOT_X):
                    raise ConfigError(
                        f"{path}: plots: axis {axis!r} does not exist; there are: {', '.join(file.axes)}; x can also "
                        f"be {', '.join(metrics.PLOT_X)}"
                    )
            self._require_labels("plots: where", plot.where)

    def _require_labels(self, what: str, labels: Mapping[str, str]) -> None:
        for axis, label in labels.items():
            if axis not in self.file.axes:
                raise ConfigError(
                    f"{self.path}: {what}: axis {axis!r} does not exist; there are: {', '.join(self.file.axes)}"
                )
            if label not in self.file.axes[axis]:
                raise ConfigError(
                    f"{self.path}: {what}: axis {axis!r} has no label {label!r}; it has: "
                    f"{', '.join(self.file.axes[axis])}"
                )

    def _all_cells(self) -> Iterator[Cell]:
        axes = self.file.axes
        for choice in itertools.product(*(labels.items() for labels in axes.values())):
            settings: dict[str, Any] = {}
            play: dict[str, Any] = {}
            without: list[str] = []
            budget: float | None = None
            for _, chosen in choice:
                for key, value in (chosen or {}).items():
                    if key == WITHOUT:
                        without += list(value)
                    elif key.startswith(PLAY):
                        play[key.removeprefix(PLAY)] = value
                    elif key.startswith(BUDGET):
                        budget = float(value)
                    else:
                        settings[key] = value
            labels = dict(zip(axes, (label for label, _ in choice), strict=True))
            yield Cell(labels, settings, tuple(without), play, budget)

    def _is_skipped(self, cell: Cell) -> bool:
        return any(all(cell.labels[axis] == label for axis, label in skip.items()) for skip in self.file.skip)

    def cell_of(self, labels: Mapping[str, str]) -> Cell:
        """The cell of some labels.

        Raises:
            ConfigError: an axis or label that does not exist, or labels that fit several cells or none.
        """
        self._require_labels("compare", labels)
        found = [cell for cell in self.cells if all(cell.labels[axis] == label for axis, label in labels.items())]
        if len(found) != 1:
            raise ConfigError(
                f"{self.path}: compare: {dict(labels)} fits {len(found)} cells; give a label of each axis that is not "
                f"skipped: {', '.join(self.file.axes)}"
            )
        return found[0]

    @cached_property
    def dataset(self) -> Dataset:
        """The data set that is measured on, which must be there."""
        return Dataset.open(self.file.data.folder)

    def data_folders(self) -> list[str]:
        """The data set that is measured on, then those that cells are trained on."""
        found = [self.file.data.folder]
        for cell in self.cells:
            folder = self.configuration(cell, 0)["data"]["folder"]
            if folder not in found:
                found.append(folder)
        return found

    def checksum(self, folder: str) -> str:
        """Checksum of a data set as it was when it was first asked for, which is what the runs are keyed by.

        Raises:
            DatasetError: it is missing or damaged.
        """
        return self.opened(folder).checksum

    def opened(self, folder: str) -> Dataset:
        """The data set of a folder, read once.

        Raises:
            DatasetError: it is missing or damaged.
        """
        if folder == self.file.data.folder:
            return self.dataset
        if folder not in self._opened:
            self._opened[folder] = Dataset.open(folder)
        return self._opened[folder]

    @cached_property
    def data_notes(self) -> list[str]:
        """What a reader of the table has to know of the data sets, which must be there."""
        return leaks.notes(self)

    def budget_of(self, cell: Cell) -> dict[str, float]:
        """Kind and amount of what a cell's runs may spend."""
        return {kind: amount if cell.budget is None else cell.budget for kind, amount in self.file.budget.items()}

    def configuration(self, cell: Cell, seed: int) -> dict[str, Any]:
        """The training configuration of a cell, but for ``out``.

        Raises:
            ConfigError: settings that no training configuration has; the message names the cell.
        """
        data = copy.deepcopy(self._base)
        for key in dict.fromkeys(cell.without):
            if not _remove(data, key):
                raise ConfigError(
                    f"{self.path}: cell {cell.name!r}: without: key {key!r} is set neither in config nor in run, so "
                    "there is nothing to take out"
                )
        for key, value in cell.settings.items():
            _set(data, key, value)
        trainer = data.setdefault("trainer", {})
        for limit in BUDGETS.values():
            trainer.pop(limit, None)
        ((kind, amount),) = self.budget_of(cell).items()
        if kind in BUDGETS:
            trainer[BUDGETS[kind]] = int(amount) if kind in WHOLE else float(amount)
        trainer["seed"] = seed
        folder = data.setdefault("data", {}).setdefault("folder", "") or self.file.data.folder
        data["data"]["folder"] = folder
        where = f"{self.path}: cell {cell.name!r}"
        if not isinstance(folder, str):
            raise ConfigError(
                f"{where}: data.folder {folder!r}: the runs of a cell are keyed by one data set; name one"
            )
        structured(RunConfig, data, where=where)
        return data

    def planned(self, cell: Cell, seed: int) -> PlannedRun:
        """What is trained for a cell; the data sets must be there.

        Raises:
            ConfigError: as ``configuration``.
            DatasetError: a data set is missing or damaged.
        """
        data = self.configuration(cell, seed)
        identity = {
            "config": {**data, "data": {**data["data"], "folder": ""}},
            "budget": self.budget_of(cell),
            "records": self.checksum(data["data"]["folder"]),
            "measured_on": self.checksum(self.file.data.folder),
            "seed": seed,
        }
        return PlannedRun(digest(identity), f"{cell.name}, seed {seed}", seed, data, self.budget_of(cell))


def digest(value: Any) -> str:
    """Sixteen hex digits of plain values."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings, the second one winning; dotted keys of it are paths."""
    data = copy.deepcopy(dict(base))
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(data.get(key), Mapping):
            data[key] = _merged(data[key], value)
        else:
            _set(data, key, copy.deepcopy(value))
    return data


def _set(data: dict[str, Any], path: str, value: Any) -> None:
    *sections, name = path.split(".")
    for section in sections:
        if not isinstance(data.get(section), dict):
            data[section] = {}
        data = data[section]
    data[name] = value


def _remove(data: dict[str, Any], path: str) -> bool:
    *sections, name = path.split(".")
    for section in sections:
        if not isinstance(data.get(section), dict):
            return False
        data = data[section]
    return data.pop(name, None) is not None


def _count(cells: Iterator[Cell]) -> int:
    return sum(1 for _ in cells)
