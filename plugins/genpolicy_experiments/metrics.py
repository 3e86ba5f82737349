"""The metrics of experiments: their titles, which of them are shares, and whether a description can use them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from genpolicy.errors import ConfigError

if TYPE_CHECKING:
    from genpolicy_experiments.description import Cell, ExperimentFile, Plot

BY_MOVE = ("best", "raw_best", "best_one_call", "raw_best_one_call", "best_action_0")
"""Shares that can be compared with ``random``, the share of a random legal move."""
BY_POSITION = ("best", "raw_best", "labelled", "legal")
"""Shares that are measured at each position, so that cells can be paired; each also exists as ``NAME_one_call``."""
OF_RUNS = ("calls", "ms", "random", "records", "minutes", "flops", "parameters", "bound")
OF_STEPS = ("valid_action", "best_action", "valid_state", "match", "match_board")
"""Shares of the imagined future, each followed by its ply: ``match_1``."""
OWN = "own:"
"""Begins the name of what a learner measures itself (``Learner.measure``)."""
FUTURE_STEP = "future_step"
"""x of a plot that shows the imagined future ply by ply."""
PLOT_X = ("records", "minutes", "flops", "calls", "ms", FUTURE_STEP)
"""What x of a plot can be besides an axis."""
TITLES = {
    "best": "best move %",
    "best_one_call": "best move, one call %",
    "raw_best": "best move, no fallback %",
    "labelled": "labelled move %",
    "labelled_one_call": "labelled move, one call %",
    "legal": "raw legal %",
    "calls": "network calls",
    "records": "records seen",
    "ms": "ms a move",
    "bound": "-log p bound, nats",
}


def title(metric: str) -> str:
    """Title of a column or of an axis of a plot."""
    return TITLES.get(metric, metric.removeprefix(OWN).replace("_", " "))


def is_share(metric: str) -> bool:
    """Whether a metric is a fraction that tables show in percent."""
    name = metric.removesuffix("_one_call")
    return name in (*BY_POSITION, *OF_STEPS, "random") or step_of(name) is not None


def bounds(metric: str) -> tuple[float, float]:
    """Range of a metric: shares are from 0 to 1, amounts are at least 0; nothing is known of a learner's own."""
    if metric.startswith(OWN):
        return (-math.inf, math.inf)
    return (0.0, 1.0) if is_share(metric) else (0.0, math.inf)


def step_of(metric: str) -> int | None:
    """Ply of a metric of the imagined future, 1 for ``match_1``; None for other metrics."""
    name, _, step = metric.rpartition("_")
    return int(step) if name in OF_STEPS and step.isdecimal() else None


def check(path: Path, file: ExperimentFile) -> None:
    """Check that the metrics of tables, tests and plots exist, before anything is run.

    Raises:
        ConfigError: a metric is not measured, cannot be paired or cannot be drawn in this way.
    """
    if not file.metrics:
        raise ConfigError(f"{path}: metrics is empty, so the table would have no column: write e.g. metrics: [best]")
    for metric in file.metrics:
        _require(path, file, "metrics", metric)
        if file.metrics.count(metric) > 1:
            raise ConfigError(f"{path}: metrics: {metric!r} is listed twice; keep one of them")
    for comparison in file.compare:
        for key, metric in (("metric", comparison.metric), ("metric_b", comparison.of_b)):
            if metric.removesuffix("_one_call") not in BY_POSITION:
                raise ConfigError(
                    f"{path}: compare: {key} {metric!r} is not measured at each position, so it cannot be "
                    f"paired; use one of {', '.join(BY_POSITION)}, or one of them with _one_call"
                )
    for cell, given in file.published.values.items():
        of_metric = given if isinstance(given, Mapping) else {file.published.metric: given}
        for metric, value in of_metric.items():
            _require(path, file, "published", str(metric))
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"{path}: published: the value of cell {cell!r} must be a number, got {value!r}")
            if not math.isfinite(value):
                raise ConfigError(
                    f"{path}: published: the value of cell {cell!r} must be a finite number, got {value!r}; leave out "
                    "what is not published"
                )
    for plot in file.plots:
        _require_axes(path, file, plot)
        for metric in plot.drawn:
            if plot.x != FUTURE_STEP:
                _require(path, file, "plots", metric)
            elif metric not in OF_STEPS or not file.evaluate.futures:
                raise ConfigError(
                    f"{path}: plots: x {FUTURE_STEP} draws {', '.join(OF_STEPS)}, with evaluate.futures true; got y "
                    f"{metric!r} and evaluate.futures {str(file.evaluate.futures).lower()}"
                )
        if len(plot.drawn) > 1 and not all(is_share(metric) or plot.x == FUTURE_STEP for metric in plot.drawn):
            raise ConfigError(
                f"{path}: plots: y {plot.y!r} puts shares and amounts on one axis; name several shares, or one metric"
            )


def _require_axes(path: Path, file: ExperimentFile, plot: Plot) -> None:
    """Check x, by and log of a plot."""
    axes = ", ".join(file.axes) or "none"
    if not plot.x:
        raise ConfigError(f"{path}: plots: a plot needs an x: one of {axes}; or of {', '.join(PLOT_X)}")
    if plot.by is not None and plot.by not in file.axes:
        raise ConfigError(
            f"{path}: plots: by {plot.by!r} is not an axis; a line is drawn for each label of one of: {axes}"
        )
    if plot.log and plot.x in file.axes and not all(_is_positive(label) for label in file.axes[plot.x]):
        raise ConfigError(
            f"{path}: plots: log makes x logarithmic, but not all labels of axis {plot.x!r} are numbers above 0; "
            "remove log"
        )


def check_places(path: Path, plots: Sequence[Plot], cells: Sequence[Cell]) -> None:
    """Check that a line has one cell at each label of its x axis.

    Raises:
        ConfigError: it has two; the message names them.
    """
    for plot in plots:
        if plot.x != FUTURE_STEP and plot.x not in cells[0].labels:
            continue
        placed: dict[tuple[str, str], Cell] = {}
        for cell in cells:
            if any(cell.labels[axis] != label for axis, label in plot.where.items()):
                continue
            other = placed.setdefault((cell.labels.get(plot.x, ""), cell.labels.get(plot.by or "", "")), cell)
            if other is not cell:
                raise ConfigError(
                    f"{path}: plots: cells {other.name!r} and {cell.name!r} would be at the same place of a line; name "
                    "the axis that tells them apart in by, or one of its labels in where"
                )


def _is_positive(label: str) -> bool:
    try:
        return 0 < float(label) < math.inf
    except ValueError:
        return False


def _require(path: Path, file: ExperimentFile, where: str, metric: str) -> None:
    if metric.removesuffix("_one_call") in BY_POSITION or metric in OF_RUNS or metric.startswith(OWN):
        return
    if step_of(metric) is not None:
        if file.evaluate.futures:
            return
        raise ConfigError(f"{path}: {where}: metric {metric!r} is measured with evaluate.futures=true")
    one_call = [f"{name}_one_call" for name in BY_POSITION]
    raise ConfigError(
        f"{path}: {where}: metric {metric!r} was not measured; there are: "
        f"{', '.join((*BY_POSITION, *one_call, *OF_RUNS))}; {OWN}NAME for what a learner measures itself; with "
        f"evaluate.futures also "
        f"{', '.join(f'{name}_1' for name in OF_STEPS)} and so on"
    )
