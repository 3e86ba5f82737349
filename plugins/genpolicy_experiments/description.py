"""The description of an experiment: axes of settings, seeds, data, a budget and what is measured; and its runs.

A *cell* is one label of every axis. A *run* is what has to be trained for a cell; cells that differ only in how the
policy plays (settings that begin with ``play.``) share one. A run is identified by a hash of its whole configuration,
the records it is trained on and its seed, so results of other settings or of another version of the data are never
mistaken for its own.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from genpolicy.config import Settings, structured
from genpolicy.data.records import Dataset
from genpolicy.errors import ConfigError, did_you_mean
from genpolicy.shipped import config_file
from genpolicy.training.config import RunConfig
from genpolicy_common.shipping import checksum
from genpolicy_experiments import checks, leaks, metrics
from genpolicy_experiments.checks import BUDGET, BUDGETS, PLAY, WHOLE, WITHOUT
from genpolicy_experiments.checks import FLOPS as FLOPS


@dataclass
class DataSource:
    """The labelled data set of all runs; a cell that sets ``data.folder``, perhaps to several, is trained on those and
    measured on this."""

    folder: str = ""
    """Its folder, relative to where the command is run, or ``sample:GAME``."""
    make: list[str] = field(default_factory=list)
    """Commands, as arguments of ``genpolicy``, that make it if it is missing."""


@dataclass
class Evaluation:
    """What is measured of every trained policy."""

    split: str = "test"
    positions: int | None = None
    """Most positions, drawn once for all runs; null takes all."""
    bound: bool = False
    """Add a column of the metric ``bound``, which is always measured."""
    futures: bool = False
    """Also measure the shares of ``genpolicy evaluate futures`` by ply."""


@dataclass
class Comparison:
    """A paired test of two cells, or of two metrics of one cell, on the same positions and seeds."""

    a: dict[str, str] = field(default_factory=dict)
    """Label of every axis."""
    b: dict[str, str] = field(default_factory=dict)
    metric: str = "best"
    metric_b: str | None = None
    """Metric of side b; null is ``metric``. With it a and b may be the same cell: the sampler against one call."""
    title: str = ""

    @property
    def of_b(self) -> str:
        """The metric of side b."""
        return self.metric if self.metric_b is None else self.metric_b


@dataclass
class PublishedFigures:
    """Figures of a paper, which stand beside the cells."""

    source: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    """Cell -> number of ``metric``, or mapping of metrics to numbers. A cell is named by its labels, joined by `` / ``
    in the order of the axes."""
    metric: str = "best"
    """Metric of plain numbers. Shares are in percent."""


@dataclass
class Plot:
    """A line for each label of ``by`` (or one), a point for each label of ``x``."""

    x: str = ""
    """An axis; or ``records``, ``minutes`` or ``flops``, which a run has spent; ``calls`` or ``ms``, which a decision
    takes; or ``future_step``, the imagined ply."""
    y: str = "best"
    """A metric, or several shares joined by commas, which get a line each; with ``future_step`` metrics of the imagined
    future without their ply (``match``)."""
    by: str | None = None
    title: str = ""
    log: bool = False
    """Use a logarithmic x axis."""
    where: dict[str, str] = field(default_factory=dict)
    """Labels of the cells to draw; empty draws all."""

    @property
    def drawn(self) -> list[str]:
        """The metrics on the y axis."""
        return [name.strip() for name in self.y.split(",")]


@dataclass
class ExperimentFile:
    """The YAML file."""

    name: str = ""
    """Name of the files that are written; by default that of this file."""
    title: str = ""
    data: DataSource = field(default_factory=DataSource)
    config: list[str] = field(default_factory=list)
    """Training configurations that every run begins with, relative to this file; later ones override earlier ones."""
    run: dict[str, Any] = field(default_factory=dict)
    """Settings of every run, as in a training configuration."""
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Axis -> label -> settings: dotted keys of the training configuration, ``play.<option>`` for the policy,
    ``without`` with a list of keys to remove first, and ``budget.<kind>`` for another amount of the file's budget."""
    skip: list[dict[str, str]] = field(default_factory=list)
    """Labels of some axes each; all cells with these labels are left out."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    budget: dict[str, float] = field(default_factory=dict)
    """One of ``records``, ``minutes``, ``steps``, ``epochs``, ``flops``: the same for every run."""
    evaluate: Evaluation = field(default_factory=Evaluation)
    metrics: list[str] = field(default_factory=lambda: ["best", "best_one_call", "records"])
    """Columns of the table."""
    compare: list[Comparison] = field(default_factory=list)
    published: PublishedFigures = field(default_factory=PublishedFigures)
    plots: list[Plot] = field(default_factory=list)
    parallel: int | None = None
    """Runs at once; null is as many as there are cores for, with ``threads`` each."""
    threads: int = 1
    """Threads of each run."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader of the table."""


@dataclass(frozen=True)
class Cell:
    """One label of every axis."""

    labels: dict[str, str]
    settings: tuple[dict[str, Any], ...]
    """Settings of the training configuration by dotted key, of each axis; later ones win."""
    without: tuple[str, ...]
    play: dict[str, Any]
    """Options of the policy."""
    budget: float | None = None
    """Amount of the file's kind of budget for its runs; None is the file's amount."""

    @property
    def name(self) -> str:
        """Its labels, joined."""
        return " / ".join(self.labels.values()) or "all"


@dataclass(frozen=True)
class PlannedRun:
    """A training run."""

    key: str
    """Hash of settings, records and seed."""
    name: str
    """Name for people: the first cell that needs it, and the seed."""
    seed: int
    config: dict[str, Any]
    """The whole training configuration except ``out``."""
    budget: dict[str, float]
    """Kind and amount."""


class Experiment:
    """An experiment that was read from its description and checked.

    Args:
        path: The YAML file.
        overrides: ``key=value`` settings.

    Raises:
        ConfigError: a key, axis, label, budget or metric does not exist; the message gives the way out.
    """

    def __init__(self, path: Path, overrides: list[str] | None = None) -> None:
        self.path = path = config_file(path)
        self._opened: dict[str | tuple[str, ...], Dataset] = {}
        settings = Settings([path], overrides or [])
        axes = settings.data.get("axes")
        if isinstance(axes, dict):  # YAML reads the label 4 as a number
            for axis, labels in axes.items():
                if not isinstance(labels, dict):
                    rule = f"key 'axes.{axis}' must hold labels with settings, e.g. {{deep: {{learner.horizon: 4}}}}"
                    raise settings.located(ConfigError(f"{rule}; got {labels!r}"))
                axes[axis] = {str(label): value for label, value in labels.items()}
                if len(axes[axis]) < len(labels):
                    raise settings.located(ConfigError(f"key 'axes.{axis}' has a label twice, as number and as text"))
        published = settings.data.get("published")
        if isinstance(published, dict) and isinstance(values := published.get("values"), dict):
            published["values"] = {str(label): value for label, value in values.items()}
        self.file = settings.fill(ExperimentFile)
        self.name = self.file.name or path.stem
        self._check()
        if self.file.evaluate.bound:
            # It is a column and changes no measurement, so the measurement's hash must not depend on it.
            self.file.evaluate.bound = False
            self.file.metrics += [] if "bound" in self.file.metrics else ["bound"]
        files = [config_file(name, path.parent) for name in self.file.config]
        base = Settings(files).data if files else {}
        self._base = _merged(base, self.file.run)
        self.cells = [cell for cell in self._all_cells() if not self._is_skipped(cell)]
        if not self.cells:
            raise ConfigError(f"{path}: skip leaves no cell of {_count(self._all_cells())}; remove a line of it")
        metrics.check_places(path, self.file.plots, self.cells)
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
            settings: list[dict[str, Any]] = []
            play: dict[str, Any] = {}
            without: list[str] = []
            budget: float | None = None
            for _, chosen in choice:
                settings.append({})
                for key, value in (chosen or {}).items():
                    if key == WITHOUT:
                        without += list(value)
                    elif key.startswith(PLAY):
                        play[key.removeprefix(PLAY)] = value
                    elif key.startswith(BUDGET):
                        budget = float(value)
                    else:
                        settings[-1][key] = value
            labels = dict(zip(axes, (label for label, _ in choice), strict=True))
            yield Cell(labels, tuple(settings), tuple(without), play, budget)

    def _is_skipped(self, cell: Cell) -> bool:
        return any(all(cell.labels[axis] == label for axis, label in skip.items()) for skip in self.file.skip)

    def cell_of(self, labels: Mapping[str, str]) -> Cell:
        """The cell of some labels.

        Raises:
            ConfigError: an axis or label does not exist, or the labels fit several cells or none.
        """
        self._require_labels("compare", labels)
        cells = [cell for cell in self.cells if all(cell.labels[axis] == label for axis, label in labels.items())]
        if len(cells) != 1:
            raise ConfigError(
                f"{self.path}: compare: {dict(labels)} fits {len(cells)} cells; give a label of each axis that is not "
                f"skipped: {', '.join(self.file.axes)}"
            )
        return cells[0]

    @cached_property
    def dataset(self) -> Dataset:
        """The data set that policies are measured on, which must exist."""
        return Dataset.open(self.file.data.folder)

    def data_folders(self) -> list[str]:
        """The folder of the data set that policies are measured on, then those that they are trained on."""
        folders = [self.file.data.folder]
        for cell in self.cells:
            trained_on = self.configuration(cell, 0)["data"]["folder"]
            folders += [trained_on] if isinstance(trained_on, str) else trained_on
        return list(dict.fromkeys(folders))

    def checksum(self, folder: str | list[str]) -> str:
        """Checksum of a data set, or of a union, when it was first opened, which is part of the runs' keys.

        Raises:
            DatasetError: the data set is missing or damaged.
        """
        return self.opened(folder).checksum

    def opened(self, folder: str | Sequence[str]) -> Dataset:
        """The data set of a folder, or the union of several, opened once.

        Raises:
            DatasetError: the data set is missing or damaged.
        """
        if folder == self.file.data.folder:
            return self.dataset
        known = folder if isinstance(folder, str) else tuple(folder)
        if known not in self._opened:
            self._opened[known] = Dataset.open(folder)
        return self._opened[known]

    @cached_property
    def data_notes(self) -> list[str]:
        """Notes on the data sets, which must exist, for readers of the table."""
        return leaks.notes(self)

    def budget_of(self, cell: Cell) -> dict[str, float]:
        """Kind and amount of the budget of a cell's runs."""
        return {kind: amount if cell.budget is None else cell.budget for kind, amount in self.file.budget.items()}

    def configuration(self, cell: Cell, seed: int) -> dict[str, Any]:
        """The training configuration of a cell, except ``out``.

        Raises:
            ConfigError: a training configuration does not have these settings; the message names the cell.
        """
        data = copy.deepcopy(self._base)
        for key in dict.fromkeys(cell.without):
            if not _remove(data, key):
                raise ConfigError(
                    f"{self.path}: cell {cell.name!r}: without: key {key!r} is set neither in config nor in run, so "
                    "there is nothing to remove"
                )
        for settings in cell.settings:
            data = _merged(data, settings)
        for section in ("trainer", "data"):
            if not isinstance(data.setdefault(section, {}) or {}, dict):
                rule = f"key {section!r} holds settings, got {data[section]!r}"
                raise ConfigError(f"{self.path}: cell {cell.name!r}: {rule}")
            data[section] = data[section] or {}
        trainer = data["trainer"]
        for limit in BUDGETS.values():
            trainer.pop(limit, None)
        ((kind, amount),) = self.budget_of(cell).items()
        if kind in BUDGETS:
            trainer[BUDGETS[kind]] = int(amount) if kind in WHOLE else float(amount)
        trainer["seed"] = seed
        folder = data["data"].setdefault("folder", "") or self.file.data.folder
        data["data"]["folder"] = folder
        structured(RunConfig, data, where=f"{self.path}: cell {cell.name!r}")
        return data

    def planned(self, cell: Cell, seed: int) -> PlannedRun:
        """The training run of a cell; the data sets must exist.

        Raises:
            ConfigError: as ``configuration``.
            DatasetError: a data set is missing or damaged.
        """
        data = self.configuration(cell, seed)
        folder = data["data"]["folder"]
        # In the order of the folders, as data.shares is.
        records = self.checksum(folder) if isinstance(folder, str) else [self.checksum(each) for each in folder]
        identity: dict[str, Any] = {
            "config": {**data, "data": {**data["data"], "folder": ""}},
            "budget": self.budget_of(cell),
            "records": records,
            "measured_on": self.checksum(self.file.data.folder),
            "seed": seed,
        }
        if begins_with := data.get("init_from"):
            identity["init_from"] = checksum(str(begins_with))
        return PlannedRun(digest(identity), f"{cell.name}, seed {seed}", seed, data, self.budget_of(cell))


def digest(value: Any) -> str:
    """Hash of plain values, 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings merged; the second one wins, and its dotted keys are paths."""
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
    return data.pop(name, data) is not data


def _count(cells: Iterator[Cell]) -> int:
    return sum(1 for _ in cells)
