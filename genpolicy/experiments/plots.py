"""Plots of an experiment: a line for each label of one axis, a point with its interval for each label of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from genpolicy.errors import ConfigError
from genpolicy.experiments.description import Experiment, Plot
from genpolicy.experiments.tables import TITLES, Row, is_share


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
        figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
        for label, points in _lines(plot, rows).items():
            x, y, low, high = zip(*points, strict=True)
            spread = [[v - a for v, a in zip(y, low, strict=True)], [b - v for v, b in zip(y, high, strict=True)]]
            axes.errorbar(x, y, yerr=spread, marker="o", capsize=3, label=label)
        axes.set_xlabel(plot.x.replace("_", " "))
        axes.set_ylabel(TITLES.get(plot.y, plot.y.replace("_", " ")))
        if plot.log:
            axes.set_xscale("log", base=2 if plot.x in experiment.file.axes else 10)
        axes.set_title(plot.title or experiment.file.title)
        axes.grid(alpha=0.3)
        if plot.by:
            axes.legend(title=plot.by)
        for suffix in ("png", "svg"):
            path = folder / f"{experiment.name}-{index + 1}.{suffix}"
            figure.savefig(path, dpi=150)
            written.append(path)
        pyplot.close(figure)
    return written


def _lines(plot: Plot, rows: Sequence[Row]) -> dict[str, list[tuple[float | str, float, float, float]]]:
    """Points (x, y, low, high) by label; labels of x that are numbers are drawn to scale."""
    found: dict[str, list[tuple[float | str, float, float, float]]] = {}
    scale = 100 if is_share(plot.y) else 1
    for row in rows:
        mean = row.means.get(plot.y)
        if mean is None:
            continue
        if plot.x in row.cell.labels:
            text = row.cell.labels[plot.x]
            x: float | str = float(text) if _is_number(text) else text
        elif plot.x in row.means:
            x = row.means[plot.x].value
        else:
            continue
        low, high = (mean.value if math.isnan(end) else end for end in mean.interval)
        label = row.cell.labels[plot.by] if plot.by else plot.y
        found.setdefault(label, []).append((x, scale * mean.value, scale * low, scale * high))
    for points in found.values():
        if all(isinstance(x, float) for x, *_ in points):
            points.sort(key=lambda point: float(point[0]))
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
