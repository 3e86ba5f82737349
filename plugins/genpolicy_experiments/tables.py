"""The table of an experiment: Markdown for people, CSV for spreadsheets, JSON for scripts."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from genpolicy.errors import ConfigError
from genpolicy.policies.base import spelled_options
from genpolicy_common.tables import Report
from genpolicy_evaluation.intervals import share_interval
from genpolicy_experiments.description import Cell, Experiment
from genpolicy_experiments.metrics import OWN, bounds, is_share, title
from genpolicy_experiments.plays import FOLDER, SPELLING
from genpolicy_experiments.runner import NOT_RUN, Result
from genpolicy_experiments.statistics import LEVEL, Mean, PairedTest, holm, mean_over_seeds, paired_test


@dataclass(frozen=True)
class Row:
    """One cell over its seeds."""

    cell: Cell
    means: dict[str, Mean]
    """Means by metric, of the metrics that some seed has."""
    failures: tuple[str, ...]
    """Texts on seeds that failed."""
    published: dict[str, float]
    """Published figures by metric; shares are in percent."""
    not_run: int = 0
    """Number of seeds that have not finished and not failed."""

    @property
    def published_plain(self) -> dict[str, float]:
        """Published figures in the units of the means: shares are fractions."""
        return {name: value / 100 if is_share(name) else value for name, value in self.published.items()}


@dataclass(frozen=True)
class ComparisonResult:
    """The paired test of two cells, or of two metrics of one cell."""

    title: str
    a: Cell
    b: Cell
    metric: str
    metric_b: str
    test: PairedTest

    @property
    def sides(self) -> tuple[str, str]:
        """Names of a and b, with the metric unless it is ``best`` on both sides."""
        if self.metric == self.metric_b == "best":
            return self.a.name, self.b.name
        return f"{self.a.name} ({_quantity(self.metric)})", f"{self.b.name} ({_quantity(self.metric_b)})"


def _quantity(metric: str) -> str:
    return title(metric).removesuffix(" %")


def num_futures(experiment: Experiment, cell: Cell) -> int:
    """Number of futures that a decision of a cell averages over, which are rows of each of its network calls.

    A search averages over none.
    """
    learner = experiment.configuration(cell, experiment.file.seeds[0]).get("learner") or {}
    sampler = learner.get("sampler") or {}
    head, _, query = str(cell.play.get(SPELLING, "")).partition("?")
    play = spelled_options(query) if head == FOLDER else cell.play
    if int(play.get("candidates") or 0):
        return 1
    # Another sampler does not use the options of the configured one.
    same = play.get("sampler") in (None, sampler.get("name"))
    return int(play.get("num_futures") or (same and sampler.get("num_futures")) or 1)


def figures_of(experiment: Experiment, result: Result) -> dict[str, Any] | None:
    """Figures of a cell and seed, with ``calls`` counted once for each future that is a row of a call.

    A run's own file holds the number of calls, whatever their numbers of rows.
    """
    if result.figures is None or result.figures.get("calls") is None:
        return result.figures
    return {**result.figures, "calls": result.figures["calls"] * num_futures(experiment, result.cell)}


def measured(results: Sequence[Result]) -> list[str]:
    """The metrics that a finished run has, in alphabetical order."""
    return sorted({name for result in results for name in result.figures or {}})


def rows_of(experiment: Experiment, results: Sequence[Result]) -> list[Row]:
    """The cells with their means over the finished seeds.

    Raises:
        ConfigError: no run has a metric that is compared, or no run reached its budget.
    """
    known = measured(results)
    for metric in (metric for c in experiment.file.compare for metric in (c.metric, c.of_b)):
        if metric not in known:
            raise ConfigError(f"{experiment.path}: metric {metric!r} was not measured; there are: {', '.join(known)}")
    _require_budget(experiment, [result for result in results if result.figures is not None])
    rows = []
    for cell in experiment.cells:
        of_cell = [result for result in results if result.cell == cell]
        figures = [f for result in of_cell if (f := figures_of(experiment, result)) is not None]
        means = {}
        for metric in known:
            values = [f[metric] for f in figures if isinstance(f.get(metric), int | float)]
            if values:
                one = len(values) == 1
                means[metric] = (
                    _of_one_seed(metric, values[0], of_cell) if one else mean_over_seeds(values, bounds(metric))
                )
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
    """The number of the only seed; a share of positions has an interval over positions instead of seeds."""
    for hits in (result.hits for result in results if result.hits is not None):
        arrays = np.load(hits, allow_pickle=False)
        if metric in arrays:
            return Mean(value, share_interval(arrays[metric], arrays["clusters"].tolist()), 1)
    return mean_over_seeds([value])


def _require_budget(experiment: Experiment, finished: Sequence[Result]) -> None:
    (kind,) = experiment.file.budget
    if kind not in ("records", "minutes", "flops"):
        return
    spent = [(result.figures or {}).get(kind) for result in finished]
    amounts = [experiment.budget_of(result.cell)[kind] for result in finished]
    amount = min(amounts)
    reached = [value for value, all_ in zip(spent, amounts, strict=True) if value is not None and value >= 0.9 * all_]
    if spent and not reached:
        raise ConfigError(
            f"{experiment.path}: no run reached the budget of {amount:,.0f} {kind} (the largest: "
            f"{max((v for v in spent if v is not None), default=0):,.0f}): remove another limit from the training "
            "configuration, or lower the budget"
        )


def comparisons(experiment: Experiment, results: Sequence[Result]) -> list[ComparisonResult]:
    """The paired tests of the comparisons whose runs have finished, with p corrected for the number of all."""
    tests = []
    for comparison in experiment.file.compare:
        cells = experiment.cell_of(comparison.a), experiment.cell_of(comparison.b)
        metrics = comparison.metric, comparison.of_b
        hits: list[list[Any]] = [[], []]
        clusters: list[str] = []
        for seed in experiment.file.seeds:
            pair = [next((r for r in results if r.cell == c and r.seed == seed), None) for c in cells]
            loaded = [np.load(r.hits, allow_pickle=False) for r in pair if r is not None and r.hits is not None]
            if len(loaded) < 2 or any(metric not in x for metric, x in zip(metrics, loaded, strict=True)):
                continue
            clusters = loaded[0]["clusters"].tolist()
            for side, metric, arrays in zip(hits, metrics, loaded, strict=True):
                side.append(arrays[metric])
        if clusters:
            test = paired_test(hits[0], hits[1], clusters)
            tests.append(ComparisonResult(comparison.title, *cells, *metrics, test))
    # A test that is missing may turn out to have any p: the largest leaves room for all of them.
    missing = [1.0] * (len(experiment.file.compare) - len(tests))
    corrected = holm([*(each.test.p_value for each in tests), *missing])[: len(tests)]
    return [
        replace(
            each,
            title=each.title or "{} against {}".format(*each.sides),
            test=replace(each.test, p_corrected=p),
        )
        for each, p in zip(tests, corrected, strict=True)
    ]


def untested(experiment: Experiment, tests: Sequence[ComparisonResult]) -> list[str]:
    """A sentence that names the comparisons of the description without a test."""
    made = [(each.a, each.b, each.metric, each.metric_b) for each in tests]
    missing = []
    for each in experiment.file.compare:
        a, b = experiment.cell_of(each.a), experiment.cell_of(each.b)
        if (a, b, each.metric, each.of_b) not in made:
            missing.append(each.title or f"{a.name} against {b.name}")
    if not missing:
        return []
    return [
        f"{len(missing)} of {len(experiment.file.compare)} paired tests are missing, since no seed has finished on "
        f"both sides: {'; '.join(missing)}."
    ]


def number(metric: str, mean: Mean) -> str:
    """``97.1 [96.0, 98.2]``, or the mean alone if it has no interval or no spread."""
    scale, digits = (100, 1) if is_share(metric) else (1, 3 if metric.startswith(OWN) else _digits(mean.value))
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
    # One long heading can be read, eight cannot.
    published = f"published ({file.published.source})" if len(beside) == 1 else "published"
    columns = [*(file.axes or ["run"]), "seeds"]
    for metric in file.metrics:
        columns.append(title(metric))
        if metric in beside:
            columns.append(published)
    report = Report(file.title or experiment.name, columns, labels=max(1, len(file.axes)))
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
    (kind,) = file.budget
    amounts = sorted({experiment.budget_of(row.cell)[kind] for row in rows})
    budget = ", ".join(f"{amount:,.10g}" for amount in amounts)
    report.notes = [
        f"Mean over the seeds with the 95 % interval over seeds (Student's t), with a single seed over positions "
        f"(bootstrap by game, Wilson's at 0 and 100 %); intervals are clipped to the valid range: shares at 0 and 100 "
        f"%, amounts at 0; budget of each run: {budget} {kind}.",
        *_note_on_futures(experiment, rows),
        *([f"Published: {file.published.source}."] if len(beside) > 1 else []),
        *file.notes,
    ]
    for row in rows:
        report.notes += [f"FAILED {row.cell.name}, {failure}" for failure in row.failures]
    if not_run := sum(row.not_run for row in rows):
        report.notes.append(f"{not_run} runs are missing; the same command makes them.")
    return report


def _note_on_futures(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """A note on what a call is, if calls of cells that average over futures are shown."""
    if "calls" not in (*experiment.file.metrics, *(plot.x for plot in experiment.file.plots)):
        return []
    if all(num_futures(experiment, row.cell) == 1 for row in rows):
        return []
    return ["Network calls count each future that a decision averages over; one call takes all of them as its rows."]


def comparison_report(tests: Sequence[ComparisonResult]) -> Report:
    """The table of paired tests."""
    with_seeds = any(each.test.seeds > 1 for each in tests)
    over_seeds = ["95 % over seeds"] if with_seeds else []
    columns = ["claim", "a", "b", "a - b, points", "95 % over positions", *over_seeds, "p", "p (Holm)", "verdict"]
    report = Report("Paired tests", columns, words=True)
    for each in tests:
        test = each.test
        intervals = [test.over_positions, test.over_seeds] if with_seeds else [test.over_positions]
        corrected = test.p_value if test.p_corrected is None else test.p_corrected
        report.add(
            each.title,
            *each.sides,
            f"{100 * test.difference:+.1f}",
            *(_ends(interval) for interval in intervals),
            f"{test.p_value:.4f}",
            f"{corrected:.4f}",
            test.verdict,
        )
    if tests:
        neither = "neither interval contains 0" if with_seeds else "the interval does not contain 0"
        report.notes = [
            f"{_range(each.test.positions for each in tests)} positions, "
            f"{_counted(_range(each.test.seeds for each in tests), 'seed')}; a - b is positive where a is higher; p by "
            "sign permutation over the positions' games, with Holm's correction for the number of tests; a difference "
            f"counts as seen if {neither} and the corrected p is below {LEVEL}."
        ]
    return report


def _ends(interval: tuple[float, float]) -> str:
    low, high = interval
    return "-" if math.isnan(low) else f"[{100 * low:.1f}, {100 * high:.1f}]"


def _range(numbers: Iterable[int]) -> str:
    known = sorted(set(numbers))
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"


def _counted(number: str, what: str) -> str:
    return f"{number} {what}" if number == "1" else f"{number} {what}s"


def as_csv(rows: Sequence[Row]) -> str:
    """One line for each cell and metric."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    axes = list(rows[0].cell.labels)
    writer.writerow([*axes, "metric", "mean", "low", "high", "seeds", "published", "failed"])
    for row in rows:
        for metric, mean in row.means.items():
            ends = ["" if math.isnan(end) else end for end in mean.interval]
            published = row.published_plain.get(metric, "")
            writer.writerow([*row.cell.labels.values(), metric, mean.value, *ends, mean.seeds, published, ""])
        for failure in row.failures:
            writer.writerow([*row.cell.labels.values(), "", "", "", "", "", "", failure])
    return stream.getvalue()


def commits_of(results: Sequence[Result]) -> list[str]:
    """The commits that trained the runs; a resumed run names several."""
    named = (str(r.figures["commit"]) for r in results if r.figures and r.figures.get("commit"))
    return sorted({commit for several in named for commit in several.split(", ")})


def as_json(
    experiment: Experiment,
    rows: Sequence[Row],
    tests: Sequence[ComparisonResult],
    results: Sequence[Result],
) -> dict[str, Any]:
    """All figures, also seed by seed."""
    return {
        "name": experiment.name,
        "budget": dict(experiment.file.budget),
        "records": experiment.dataset.checksum,
        "commits": commits_of(results),
        "cells": [
            {
                "labels": row.cell.labels,
                "budget": experiment.budget_of(row.cell),
                "means": {metric: asdict(mean) for metric, mean in row.means.items()},
                "published": row.published_plain,
                "failures": list(row.failures),
                "not_run": row.not_run,
                "seeds": {str(r.seed): figures_of(experiment, r) for r in results if r.cell == row.cell and r.figures},
            }
            for row in rows
        ],
        "comparisons": [
            {
                "title": each.title,
                "a": each.a.labels,
                "b": each.b.labels,
                "metric": each.metric,
                "metric_b": each.metric_b,
                **asdict(each.test),
                "verdict": each.test.verdict,
            }
            for each in tests
        ],
    }
