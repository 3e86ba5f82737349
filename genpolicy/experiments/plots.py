"""Plots of an experiment: a line for each label of one axis, a point with its interval for each label of another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genpolicy.errors import ConfigError
from genpolicy.experiments.description import Experiment, Plot
from genpolicy.experiments.metrics import FUTURE_STEP, is_share, step_of, title
from genpolicy.experiments.tables import Row

MOST_INSIDE = 4
"""Series whose legend still finds room within the axes."""

Point = tuple[float | str, float, float, float]
"""x, y and the ends of y's interval."""


def draw(experiment: Experiment, rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw every plot of the description as PNG and SVG; the files.

    Raises:
        ConfigError: matplotlib is missing.
    """
    if not experiment.file.plots:
        return []
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib: pip install 'genpolicy[plot]', or take plots out of the file"
        ) from error
    written = []
    for index, plot in enumerate(experiment.file.plots):
        lines = _lines(plot, rows)
        named = [x for points in lines.values() for x, *_ in points if isinstance(x, str)]
        with_legend = bool(plot.by) or plot.x == FUTURE_STEP
        beside = with_legend and len(lines) > MOST_INSIDE
        height = max(4.0, 1.4 + 0.22 * len(set(named)) * (len(lines) + 1)) if named else 4.0
        figure, axes = pyplot.subplots(figsize=(8.6 if beside else 6.4, height), layout="constrained")
        measured = "% of positions" if plot.x == FUTURE_STEP else title(plot.y)
        if named:
            _draw_labels(axes, lines, list(dict.fromkeys(named)))
            axes.set_xlabel(measured)
        else:
            _draw_numbers(axes, lines, plot, plot.x in experiment.file.axes)
            axes.set_xlabel(plot.x.replace("_", " "))
            axes.set_ylabel(measured)
            if plot.x in (*experiment.file.axes, FUTURE_STEP):
                _mark_every_label(axes, {x for points in lines.values() for x, *_ in points})
        axes.set_title(plot.title or experiment.file.title)
        axes.grid(alpha=0.3)
        if beside:
            axes.legend(title=plot.by, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        elif with_legend:
            axes.legend(title=plot.by)
        for suffix in ("png", "svg"):
            path = folder / f"{experiment.name}-{index + 1}.{suffix}"
            figure.savefig(path, dpi=150)
            written.append(path)
        pyplot.close(figure)
    return written


def _draw_labels(axes: Any, lines: Mapping[str, Sequence[Point]], labels: Sequence[str]) -> None:
    """A row for each label, in the file's order from above; nothing joins what has no order between."""
    for index, (name, points) in enumerate(lines.items()):
        shift = (index - (len(lines) - 1) / 2) * 0.7 / len(lines)
        rows = [labels.index(str(x)) + shift for x, *_ in points]
        value = [y for _, y, _, _ in points]
        axes.errorbar(value, rows, xerr=_spread(points), fmt="o", capsize=3, label=name)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def _draw_numbers(axes: Any, lines: Mapping[str, Sequence[Point]], plot: Plot, is_axis: bool) -> None:
    """A line for each series, side by side where they are measured at the same places."""
    if plot.log:
        axes.set_xscale("log", base=2 if is_axis else 10)
    places = [float(x) for points in lines.values() for x, *_ in points]
    width = (max(places) - min(places)) if places else 0.0
    for index, (name, points) in enumerate(lines.items()):
        shift = index - (len(lines) - 1) / 2 if is_axis or plot.x == FUTURE_STEP else 0.0
        x = [float(x) * (1 + 0.02 * shift) if plot.log else float(x) + 0.008 * width * shift for x, *_ in points]
        axes.errorbar(x, [y for _, y, _, _ in points], yerr=_spread(points), marker="o", capsize=3, label=name)


def _spread(points: Sequence[Point]) -> list[list[float]]:
    return [[y - low for _, y, low, _ in points], [high - y for _, y, _, high in points]]


def _mark_every_label(axes: Any, places: set[float | str]) -> None:
    """Put a tick at each number that was measured, written as it is (and not as a power), and nowhere else."""
    numbers = sorted(x for x in places if isinstance(x, float))
    if numbers:
        axes.set_xticks(numbers, [f"{x:.10g}" for x in numbers])
        axes.minorticks_off()


def _lines(plot: Plot, rows: Sequence[Row]) -> dict[str, list[Point]]:
    """Points by label; labels of x that are numbers are drawn to scale."""
    found: dict[str, list[Point]] = {}
    for row in rows:
        if any(row.cell.labels[axis] != label for axis, label in plot.where.items()):
            continue
        own = row.cell.labels[plot.by] if plot.by else ""
        if plot.x == FUTURE_STEP:
            for name in plot.drawn:
                label = f"{own}, {title(name)}" if own and len(plot.drawn) > 1 else own or title(name)
                found.setdefault(label, []).extend(_steps(row, name))
        elif (x := _place(plot, row)) is not None and plot.y in row.means:
            found.setdefault(own or plot.y, []).append(_point(row, plot.y, x))
    for points in found.values():
        if all(isinstance(x, float) for x, *_ in points):
            points.sort(key=lambda point: float(point[0]))
    return {label: points for label, points in found.items() if points}


def _steps(row: Row, name: str) -> list[Point]:
    """What a metric of the imagined future is at each of its steps."""
    metrics = [m for m in row.means if step_of(m) is not None and m.rpartition("_")[0] == name]
    return [_point(row, metric, float(step_of(metric) or 0)) for metric in metrics]


def _place(plot: Plot, row: Row) -> float | str | None:
    if plot.x in row.cell.labels:
        text = row.cell.labels[plot.x]
        return float(text) if _is_number(text) else text
    return row.means[plot.x].value if plot.x in row.means else None


def _point(row: Row, metric: str, x: float | str) -> Point:
    mean, scale = row.means[metric], 100 if is_share(metric) else 1
    low, high = (mean.value if math.isnan(end) else end for end in mean.interval)
    return x, scale * mean.value, scale * low, scale * high


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
