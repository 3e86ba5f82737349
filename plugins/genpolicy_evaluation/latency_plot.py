"""Figure 3: time, network calls and accuracy against depth, and accuracy against time, one line for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genpolicy_evaluation.latency import LatencyPoint
from genpolicy_evaluation.matplotlib_style import (
    COLOURS,
    MARKERS,
    draw_shares,
    load_pyplot,
    save_figure,
    set_log_scale,
)

_DASHES = ("-", "--", ":", "-.")


def series_of(points: Sequence[LatencyPoint]) -> dict[str, list[LatencyPoint]]:
    """The lines of the figure, each in order of depth.

    One for each kind of policy. Where several of a kind look equally far (a sampler with more or fewer steps), those
    with equally many network calls belong together.
    """
    lines: dict[str, list[LatencyPoint]] = {}
    for family in dict.fromkeys(point.family for point in points):
        own = [point for point in points if point.family == family]
        clash = len({round(point.depth, 6) for point in own}) < len(own)
        for point in own:
            calls = f"{point.network_calls:.0f} call{'' if round(point.network_calls) == 1 else 's'}"
            name = f"{family}, {calls}" if clash and point.network_calls else family
            lines.setdefault(name, []).append(point)
    return {name: sorted(line, key=lambda p: (p.depth, p.network_calls)) for name, line in lines.items()}


def plot_latency(points: Sequence[LatencyPoint], paths: Sequence[Path]) -> None:
    """Draw the figure to ``.png``, ``.svg`` or ``.pdf`` files.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    pyplot = load_pyplot()
    figure, ((time_axis, calls_axis), (accuracy_axis, cost_axis)) = pyplot.subplots(2, 2, figsize=(10, 7.5))
    lines = series_of(points)
    families = list(dict.fromkeys(point.family for point in points))
    for index, line in enumerate(lines.values()):
        # One marker for a kind of policy, one colour for a line.
        style = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": MARKERS[families.index(line[0].family) % len(MARKERS)],
        }
        _draw_times(time_axis, line, style)
        depths = [point.depth for point in line]
        if any(point.network_calls for point in line):
            calls_axis.plot(depths, [point.network_calls for point in line], **style)
        shares, medians = [point.best for point in line], [point.timings[0].median for point in line]
        draw_shares(accuracy_axis, depths, shares, **style)
        draw_shares(cost_axis, medians, shares, **style, linestyle="none")
    batch = points[0].timings[0].batch
    for axis, x, y in [
        (time_axis, "depth (plies)", "ms a move"),
        (calls_axis, "depth (plies)", "network calls a move"),
        (accuracy_axis, "depth (plies)", "any best move (%)"),
        (cost_axis, f"ms a move, batch {batch}", "any best move (%)"),
    ]:
        axis.set_xlabel(x)
        axis.set_ylabel(y)
        axis.grid(True, alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    set_log_scale(time_axis, "y")
    set_log_scale(cost_axis, "x")
    if calls_axis.lines:
        set_log_scale(calls_axis, "y")
    else:
        calls_axis.text(0.5, 0.5, "no networks", ha="center", va="center", transform=calls_axis.transAxes)
    for axis in (accuracy_axis, cost_axis):
        axis.set_ylim(bottom=0)
    for axis in (time_axis, calls_axis, accuracy_axis):
        axis.xaxis.get_major_locator().set_params(integer=True)
    _add_legends(pyplot, figure, time_axis, lines, families, points)
    save_figure(figure, paths)


def _draw_times(axis: Any, line: Sequence[LatencyPoint], style: dict[str, Any]) -> None:
    for number, timing in enumerate(line[0].timings):
        medians = [point.timings[number].median for point in line]
        spread = [point.timings[number].quartiles for point in line]
        axis.errorbar(
            [point.depth for point in line],
            medians,
            yerr=[
                [median - low for median, (low, _) in zip(medians, spread, strict=True)],
                [high - median for median, (_, high) in zip(medians, spread, strict=True)],
            ],
            linestyle=_DASHES[number % len(_DASHES)],
            fillstyle="full" if number == 0 else "none",
            capsize=2,
            label=f"batch {timing.batch}",
            **style,
        )


def _add_legends(
    pyplot: Any, figure: Any, axis: Any, lines: Any, families: list[str], points: Sequence[LatencyPoint]
) -> None:
    """One legend for the lines above all panels, and one for the batch sizes where the times are."""
    handles = [
        pyplot.Line2D(
            [],
            [],
            color=COLOURS[index % len(COLOURS)],
            marker=MARKERS[families.index(line[0].family) % len(MARKERS)],
            label=name,
        )
        for index, (name, line) in enumerate(lines.items())
    ]
    columns = min(4, len(handles))
    rows = -(-len(handles) // columns)
    figure.legend(handles=handles, loc="upper center", ncols=columns, frameon=False)
    batches = [
        pyplot.Line2D([], [], color="gray", linestyle=_DASHES[i % len(_DASHES)], label=f"batch {timing.batch}")
        for i, timing in enumerate(points[0].timings)
    ]
    axis.legend(handles=batches, fontsize="small")
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.035 * rows))
