"""Plots of an experiment: a line for each label of one axis, a point with its interval for each label of another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from genpolicy_evaluation.matplotlib_style import COLOURS, load_pyplot, save_figure
from genpolicy_experiments.description import Experiment, Plot
from genpolicy_experiments.metrics import BY_MOVE, FUTURE_STEP, is_share, step_of, title
from genpolicy_experiments.tables import Row

MAX_BELOW = 4
"""Most series for which the legend is below the axes; with more it is beside them. It is never within."""
MAX_TICKS = 7
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", ">", "*")
DASHES = ("-", "--", "-.", ":")
TITLES = {"flops": "FLOPs", "calls": "network calls, counting each future of a decision"}

Point = tuple[float | str, float, float, float]
"""x, y and the ends of y's interval."""


def draw(experiment: Experiment, rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw every plot of the description as PNG and SVG, and return the files.

    Raises:
        ConfigError: matplotlib is missing.
        OSError: as ``save_figure``.
    """
    if not experiment.file.plots:
        return []
    pyplot, written = load_pyplot(), list[Path]()
    for index, plot in enumerate(experiment.file.plots):
        lines = _lines(plot, rows)
        named = [x for points in lines.values() for x, *_ in points if isinstance(x, str)]
        beside = len(lines) > MAX_BELOW
        height = 4.4
        if named:
            height = max(height, 2.0 + 0.22 * len(set(named)) * (len(lines) + 1))
        elif beside:
            height = 5.6
        figure, axes = pyplot.subplots(figsize=(10.0 if beside else 6.4, height), layout="constrained")
        if named:
            _draw_labels(axes, lines, list(dict.fromkeys(named)))
            axes.set_xlabel(_value_title(plot))
        else:
            _draw_numbers(axes, lines, plot, plot.x in experiment.file.axes)
            axes.set_xlabel(TITLES.get(plot.x, title(plot.x).replace("_", " ")))
            axes.set_ylabel(_value_title(plot))
            _set_ticks(axes, {float(x) for points in lines.values() for x, *_ in points}, plot, experiment.file.axes)
        level = _random_level(plot, rows)
        if level is not None:
            mark = axes.axvline if named else axes.axhline
            mark(level, color="0.35", linestyle=(0, (6, 3)), linewidth=1, zorder=1, label="a random legal move")
        axes.set_title(_plain(plot.title or experiment.file.title), wrap=True)
        axes.grid(alpha=0.25)
        _add_legend(figure, axes, plot, beside, only_random=not _has_names(plot))
        paths = [folder / f"{experiment.name}-{index + 1}.{suffix}" for suffix in ("png", "svg")]
        save_figure(figure, paths)
        written += paths
    return written


def _value_title(plot: Plot) -> str:
    """Title of the axis of values."""
    if plot.x == FUTURE_STEP or len(plot.drawn) > 1:
        return "% of positions"
    return title(plot.drawn[0])


def _has_names(plot: Plot) -> bool:
    """Whether series have names that the axes do not give already."""
    return bool(plot.by) or plot.x == FUTURE_STEP or len(plot.drawn) > 1


def _add_legend(figure: Any, axes: Any, plot: Plot, beside: bool, *, only_random: bool) -> None:
    handles, labels = axes.get_legend_handles_labels()
    random = [handle for handle, label in zip(handles, labels, strict=True) if label == "a random legal move"]
    if only_random:
        handles, labels = random, ["a random legal move"] * len(random)
    elif random:  # the level stands after the series that are compared with it
        handles = [h for h in handles if h is not random[0]] + random
        labels = [label for label in labels if label != "a random legal move"] + ["a random legal move"]
    if not handles:
        return
    heading = None if only_random else _plain(plot.by or "") or None
    if beside:
        figure.legend(handles, labels, title=heading, loc="outside right center", frameon=False, handlelength=3.2)
    else:
        figure.legend(
            handles,
            labels,
            title=heading,
            loc="outside lower center",
            ncols=len(handles) if sum(len(label) + 7 for label in labels) <= 64 else 2,
            frameon=False,
            handlelength=3.2,
        )


def _random_level(plot: Plot, rows: Sequence[Row]) -> float | None:
    """Share of a random legal move on the positions of these cells, in percent; None if it cannot be compared."""
    if plot.x == FUTURE_STEP or not set(plot.drawn) <= set(BY_MOVE):
        return None
    levels = {round(row.means["random"].value, 9) for row in _rows_of(plot, rows) if "random" in row.means}
    return 100 * levels.pop() if len(levels) == 1 else None


def _style(index: int) -> dict[str, Any]:
    """Colour, marker and line of a series; 70 of them differ."""
    looks = {"color": COLOURS, "marker": MARKERS, "linestyle": DASHES}
    return {name: values[index % len(values)] for name, values in looks.items()}


def _draw_labels(axes: Any, lines: Mapping[str, Sequence[Point]], labels: Sequence[str]) -> None:
    """Draw a row for each label, from above in the file's order; points are not joined, since labels have no order."""
    for index, (name, points) in enumerate(lines.items()):
        shift = (index - (len(lines) - 1) / 2) * 0.7 / len(lines)
        rows = [labels.index(str(x)) + shift for x, *_ in points]
        value = [y for _, y, _, _ in points]
        style = {**_style(index), "linestyle": "none"}
        axes.errorbar(value, rows, xerr=_spread(points), fmt="none", ecolor=style["color"], alpha=0.5, capsize=3)
        axes.plot(value, rows, **style, label=_plain(name))
    axes.set_yticks(range(len(labels)), [_plain(label) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    if len(lines) > 1:
        for row in range(1, len(labels)):
            axes.axhline(row - 0.5, color="0.85", linewidth=0.8)


def _draw_numbers(axes: Any, lines: Mapping[str, Sequence[Point]], plot: Plot, is_axis: bool) -> None:
    """Draw a line for each series; points of several series at the same x are drawn side by side."""
    if plot.log:
        axes.set_xscale("log", base=2 if is_axis else 10)
    places = [float(x) for points in lines.values() for x, *_ in points]
    width = (max(places) - min(places)) if places else 0.0
    shared = len(set(places)) < len(places)
    many = len(lines) > MAX_BELOW
    for index, (name, points) in enumerate(lines.items()):
        # Ten series fit between neighbours such as 4 and 5.
        shift = (index - (len(lines) - 1) / 2) * min(1.0, 9 / len(lines)) if shared else 0.0
        x = [float(x) * (1 + 0.02 * shift) if plot.log else float(x) + 0.008 * width * shift for x, *_ in points]
        y = [value for _, value, _, _ in points]
        style = _style(index)
        look = {"alpha": 0.3 if many else 0.45, "elinewidth": 1, "capsize": 0 if many else 3, "zorder": 1.5}
        axes.errorbar(x, y, yerr=_spread(points), fmt="none", ecolor=style["color"], **look)
        axes.plot(x, y, **style, linewidth=1.6, markersize=5.5, label=_plain(name))


def _spread(points: Sequence[Point]) -> list[list[float]]:
    return [[y - low for _, y, low, _ in points], [high - y for _, y, _, high in points]]


def _set_ticks(axes: Any, places: set[float], plot: Plot, labels: Iterable[str]) -> None:
    """Put a tick at each label that is a number, or at a few round numbers if x was measured."""
    if plot.x in (*labels, FUTURE_STEP):
        numbers = sorted(places)
        axes.set_xticks(numbers, [f"{x:.10g}" for x in numbers])
        axes.minorticks_off()
    elif plot.log and places and min(places) > 0:
        numbers = round_numbers(min(places), max(places))
        axes.set_xticks(numbers, [_short(x) for x in numbers])
        axes.minorticks_off()


def round_numbers(low: float, high: float) -> list[float]:
    """At most ``MAX_TICKS`` round numbers from low to high, both above 0, about evenly spaced on a logarithmic axis."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        # The tick of a point near the end of the axis may be a little beyond it.
        ticks = [s * 10.0**e for e in exponents for s in steps if 0.93 * low <= s * 10.0**e <= 1.07 * high]
        if len(ticks) <= MAX_TICKS:
            break
    else:
        ticks = ticks[:: math.ceil(len(ticks) / MAX_TICKS)]
    return ticks if len(ticks) > 1 else sorted({float(f"{low:.2g}"), float(f"{high:.2g}")})


def _short(number: float) -> str:
    """``2,000`` or, from 100,000, a power."""
    if number < 1e5:
        return f"{number:,.4g}" if number < 1000 else f"{number:,.0f}"
    mantissa, exponent = f"{number:.1e}".split("e")
    power = f"10^{{{int(exponent)}}}"
    return f"${power}$" if float(mantissa) == 1 else f"${float(mantissa):g}\\cdot {power}$"


def _plain(text: str) -> str:
    """A label that matplotlib neither reads as a formula nor hides from the legend."""
    flat = " ".join(text.split()).replace("$", r"\$")
    return f" {flat}" if flat.startswith("_") else flat


def _rows_of(plot: Plot, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if all(row.cell.labels[axis] == label for axis, label in plot.where.items())]


def _lines(plot: Plot, rows: Sequence[Row]) -> dict[str, list[Point]]:
    """Points by series; labels of x that are numbers are drawn to scale."""
    series: dict[str, list[Point]] = {}
    for row in _rows_of(plot, rows):
        own = row.cell.labels[plot.by] if plot.by else ""
        for name in plot.drawn:
            metric = title(name).removesuffix(" %")
            label = f"{own}, {metric}" if own and len(plot.drawn) > 1 else own or metric
            if plot.x == FUTURE_STEP:
                series.setdefault(label, []).extend(_steps(row, name))
            elif (x := _place(plot, row)) is not None and name in row.means:
                series.setdefault(label, []).append(_point(row, name, x))
    if len({type(x) for points in series.values() for x, *_ in points}) > 1:  # 1, 2 and "all" are all names
        series = {label: [(_as_label(p[0]), *p[1:]) for p in points] for label, points in series.items()}
    for points in series.values():
        if all(isinstance(x, float) for x, *_ in points):
            points.sort(key=lambda point: float(point[0]))
    return {label: points for label, points in series.items() if points}


def _as_label(place: float | str) -> str:
    return place if isinstance(place, str) else f"{place:.10g}"


def _steps(row: Row, name: str) -> list[Point]:
    """Points of a metric of the imagined future at each of its plies."""
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
        return math.isfinite(float(text))
    except ValueError:
        return False
