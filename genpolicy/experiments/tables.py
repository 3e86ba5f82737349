"""The table of an experiment: Markdown for people, CSV for a sheet, JSON for a script."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from genpolicy.errors import ConfigError
from genpolicy.evaluation.intervals import cluster_bootstrap
from genpolicy.evaluation.report import Report
from genpolicy.experiments.description import Cell, Experiment
from genpolicy.experiments.metrics import is_share, title
from genpolicy.experiments.runner import NOT_RUN, Result
from genpolicy.experiments.statistics import Mean, Paired, holm, mean_over_seeds, paired


@dataclass(frozen=True)
class Row:
    """One cell over its seeds."""

    cell: Cell
    means: dict[str, Mean]
    """By metric; one that no seed has is left out."""
    failures: tuple[str, ...]
    """Why seeds are missing."""
    published: dict[str, float]
    """By metric."""
    not_run: int = 0
    """Seeds that were not run yet, or not to the end."""


def rows_of(experiment: Experiment, results: Sequence[Result]) -> list[Row]:
    """The cells with their means over the seeds that finished.

    Raises:
        ConfigError: no run has finished, a metric that no run has, or a budget that no run reached.
    """
    finished = [result for result in results if result.figures is not None]
    if not finished:
        first = next((result.error for result in results if result.error), "not run yet")
        raise ConfigError(
            f"{experiment.path}: no run has finished, so there is no table. The first of {len(results)}: {first}"
        )
    known = sorted({name for result in finished for name in result.figures or {}})
    for metric in (*experiment.file.metrics, *(c.metric for c in experiment.file.compare)):
        if metric not in known:
            raise ConfigError(f"{experiment.path}: metric {metric!r} was not measured; there are: {', '.join(known)}")
    _require_budget(experiment, finished)
    rows = []
    for cell in experiment.cells:
        of_cell = [result for result in results if result.cell == cell]
        figures = [result.figures for result in of_cell if result.figures is not None]
        means = {}
        for metric in known:
            values = [f[metric] for f in figures if isinstance(f.get(metric), int | float)]
            if values:
                means[metric] = mean_over_seeds(values) if len(values) > 1 else _of_one_seed(metric, values[0], of_cell)
        missing = [r for r in of_cell if r.figures is None]
        failures = tuple(f"seed {r.seed}: {r.error} ({r.folder / 'log.txt'})" for r in missing if r.error != NOT_RUN)
        rows.append(Row(cell, means, failures, _published(experiment, cell), len(missing) - len(failures)))
    return rows


def _published(experiment: Experiment, cell: Cell) -> dict[str, float]:
    published = experiment.file.published
    given = published.values.get(cell.name)
    if given is None:
        return {}
    of_metric = given if isinstance(given, Mapping) else {published.metric: given}
    return {str(metric): float(value) for metric, value in of_metric.items()}


def _of_one_seed(metric: str, value: float, results: Sequence[Result]) -> Mean:
    """A number of the only seed; a share of positions has their interval instead of the seeds'."""
    for hits in (result.hits for result in results if result.hits is not None):
        arrays = np.load(hits, allow_pickle=False)
        if metric in arrays:
            return Mean(value, cluster_bootstrap(arrays[metric], arrays["clusters"].tolist()), 1)
    return mean_over_seeds([value])


def _require_budget(experiment: Experiment, finished: Sequence[Result]) -> None:
    ((kind, amount),) = experiment.file.budget.items()
    if kind not in ("records", "minutes", "flops"):
        return
    spent = [(result.figures or {}).get(kind) for result in finished]
    reached = [value for value in spent if value is not None and value >= 0.9 * amount]
    if spent and not reached:
        raise ConfigError(
            f"{experiment.path}: no run reached the budget of {amount:,.0f} {kind} (the largest: "
            f"{max((v for v in spent if v is not None), default=0):,.0f}): take another limit out of the training "
            "configuration, or lower the budget"
        )


def comparisons(experiment: Experiment, results: Sequence[Result]) -> list[tuple[str, Cell, Cell, str, Paired]]:
    """Title, the two cells, the metric and the paired test of each comparison whose runs have finished."""
    found = []
    for comparison in experiment.file.compare:
        a, b = experiment.cell_of(comparison.a), experiment.cell_of(comparison.b)
        hits: list[list[Any]] = [[], []]
        clusters: list[str] = []
        for seed in experiment.file.seeds:
            pair = [next((r for r in results if r.cell == c and r.seed == seed), None) for c in (a, b)]
            loaded = [np.load(r.hits, allow_pickle=False) for r in pair if r is not None and r.hits is not None]
            if len(loaded) < 2 or any(comparison.metric not in x for x in loaded):
                continue
            clusters = loaded[0]["clusters"].tolist()
            for side, arrays in zip(hits, loaded, strict=True):
                side.append(arrays[comparison.metric])
        if clusters:
            title = comparison.title or f"{a.name} against {b.name}"
            found.append((title, a, b, comparison.metric, paired(hits[0], hits[1], clusters)))
    return found


def number(metric: str, mean: Mean) -> str:
    """``97.1 [96.0, 98.2]``, or the mean alone where it has no interval or no spread."""
    scale, digits = (100, 1) if is_share(metric) else (1, _digits(mean.value))
    value = f"{scale * mean.value:,.{digits}f}"
    low, high = mean.interval
    if math.isnan(low) or metric in ("records", "calls", "flops", "parameters", "random"):
        return value
    return f"{value} [{scale * low:,.{digits}f}, {scale * high:,.{digits}f}]"


def _digits(value: float) -> int:
    return 0 if abs(value) >= 100 or value == int(value) else 2


def report_of(experiment: Experiment, rows: Sequence[Row]) -> Report:
    """The table."""
    file = experiment.file
    beside = {metric for row in rows for metric in row.published if metric in file.metrics}
    # One long heading is read; eight of them are not.
    published = f"published ({file.published.source})" if len(beside) == 1 else "published"
    columns = [*(file.axes or ["run"]), "seeds"]
    for metric in file.metrics:
        columns.append(title(metric))
        if metric in beside:
            columns.append(published)
    report = Report(file.title or experiment.name, columns)
    for row in rows:
        shown = []
        for metric in file.metrics:
            mean = row.means.get(metric)
            missing = "failed" if row.failures else "not run" if row.not_run else "-"
            shown.append(missing if mean is None else number(metric, mean))
            if metric in beside:
                shown.append(f"{row.published[metric]:g}" if metric in row.published else "-")
        seeds = max((mean.seeds for mean in row.means.values()), default=0)
        report.add(*(row.cell.labels.values() or ["all"]), str(seeds), *shown)
    ((kind, amount),) = file.budget.items()
    report.notes = [
        f"Mean over the seeds with the 95 % interval over seeds (Student's t), with a single seed over positions "
        f"(bootstrap by game); budget of each run: {amount:,.10g} {kind}.",
        *([f"Published: {file.published.source}."] if len(beside) > 1 else []),
        *file.notes,
    ]
    for row in rows:
        report.notes += [f"FAILED {row.cell.name}, {failure}" for failure in row.failures]
    if not_run := sum(row.not_run for row in rows):
        report.notes.append(f"Not all runs are there yet: {not_run} are missing; the same command makes them.")
    return report


def comparison_report(found: Sequence[tuple[str, Cell, Cell, str, Paired]]) -> Report:
    """The paired tests."""
    columns = ["claim", "a", "b", "a - b, points", "95 % over positions", "95 % over seeds", "p", "p (Holm)", "verdict"]
    report = Report("Paired tests", columns, words=True)
    corrected = holm([test.p_value for *_, test in found])
    for (claim, a, b, _, test), p in zip(found, corrected, strict=True):
        ends = [f"[{100 * low:.1f}, {100 * high:.1f}]" for low, high in (test.over_positions, test.over_seeds)]
        report.add(
            claim,
            a.name,
            b.name,
            f"{100 * test.difference:+.1f}",
            *ends,
            f"{test.p_value:.4f}",
            f"{p:.4f}",
            test.verdict,
        )
    if found:
        test = found[0][-1]
        report.notes = [
            f"{test.positions} positions, {test.seeds} seeds; p by sign permutation over positions' clusters, "
            "corrected for the number of tests by Holm; a difference is called seen where neither interval holds 0."
        ]
    return report


def as_csv(rows: Sequence[Row]) -> str:
    """One line a cell and metric."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    axes = list(rows[0].cell.labels)
    writer.writerow([*axes, "metric", "mean", "low", "high", "seeds", "published", "failed"])
    for row in rows:
        for metric, mean in row.means.items():
            ends = ["" if math.isnan(end) else end for end in mean.interval]
            published = row.published.get(metric, "")
            writer.writerow([*row.cell.labels.values(), metric, mean.value, *ends, mean.seeds, published, ""])
        for failure in row.failures:
            writer.writerow([*row.cell.labels.values(), "", "", "", "", "", "", failure])
    return stream.getvalue()


def as_json(
    experiment: Experiment,
    rows: Sequence[Row],
    found: Sequence[tuple[str, Cell, Cell, str, Paired]],
    results: Sequence[Result],
) -> dict[str, Any]:
    """Everything, seed by seed too."""
    commits = sorted({str(r.figures["commit"]) for r in results if r.figures and r.figures.get("commit")})
    return {
        "name": experiment.name,
        "budget": dict(experiment.file.budget),
        "records": experiment.dataset.checksum,
        "commits": commits,
        "cells": [
            {
                "labels": row.cell.labels,
                "means": {metric: asdict(mean) for metric, mean in row.means.items()},
                "published": row.published,
                "failures": list(row.failures),
                "not_run": row.not_run,
                "seeds": {str(r.seed): r.figures for r in results if r.cell == row.cell and r.figures},
            }
            for row in rows
        ],
        "comparisons": [
            {"title": title, "a": a.labels, "b": b.labels, "metric": metric, **asdict(test), "verdict": test.verdict}
            for title, a, b, metric, test in found
        ],
    }
