"""Tables, paired tests and plots of figures that are written down here, without any run."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from genpolicy.errors import ConfigError
from genpolicy_experiments import tables
from genpolicy_experiments.description import Experiment
from genpolicy_experiments.runner import Result
from tests.pictures import kill_half_way

DRAWS = np.random.default_rng(0)
GOOD = [(DRAWS.random(300) < 0.9).astype(float) for _ in range(3)]
WEAK = [(DRAWS.random(300) < 0.6).astype(float) for _ in range(3)]


def experiment_of(folder: Path, **changes: Any) -> Experiment:
    description: dict[str, Any] = {
        "name": "small",
        "data": {"folder": "data"},
        "axes": {"way": {"plain": {}, "many": {"play.num_futures": 8, "play.sampler": "a0_last"}}},
        "seeds": [0, 1, 2],
        "budget": {"steps": 10},
        "metrics": ["best", "calls"],
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**description, **changes}, sort_keys=False))
    return Experiment(path)


def results_of(experiment: Experiment, folder: Path, **figures: Any) -> list[Result]:
    """Cells of one worth: ``best`` as GOOD, ``best_one_call`` as WEAK."""
    found = []
    for cell in experiment.cells:
        for seed in experiment.file.seeds:
            path = folder / f"{seed}.npz"
            np.savez(path, clusters=np.arange(300).astype(str), best=GOOD[seed], best_one_call=WEAK[seed])
            of_seed = {name: row[seed] if isinstance(row, list) else row for name, row in figures.items()}
            means = {"best": GOOD[seed].mean(), "best_one_call": WEAK[seed].mean(), "random": 0.5, "calls": 20.0}
            found.append(Result(cell, seed, folder, {**means, **of_seed}, path, None))
    return found


def test_the_sampler_against_one_call_of_the_same_cell(tmp_path: Path) -> None:
    cell = {"way": "plain"}
    compare = [{"a": cell, "b": cell, "metric": "best", "metric_b": "best_one_call"}]
    experiment = experiment_of(tmp_path, compare=compare)
    (tested,) = tables.comparisons(experiment, results_of(experiment, tmp_path))
    assert tested.test.difference == pytest.approx(np.mean(GOOD) - np.mean(WEAK))
    assert (tested.test.positions, tested.test.seeds, tested.test.verdict) == (300, 3, "a is better")
    row = tables.comparison_report([tested]).rows[0]
    assert row[1:3] == ["plain (best move)", "plain (best move, one call)"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric_b": "calls"}, "metric_b 'calls' is not measured at each position"),
        ({"metric": "calls", "metric_b": "best"}, "metric 'calls' is not measured at each position"),
        ({"metric_b": "best"}, "on both sides with the same metric 'best'"),
        ({}, "on both sides with the same metric 'best'"),
    ],
)
def test_what_cannot_be_paired_is_refused(tmp_path: Path, change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        experiment_of(tmp_path, compare=[{"a": {"way": "plain"}, "b": {"way": "plain"}, **change}])


def test_intervals_end_where_the_number_does(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path)
    results = results_of(experiment, tmp_path, best=[0.9, 1.0, 1.0], best_one_call=[0.0, 0.2, 0.0], ms=[0.1, 9.0, 0.1])
    rows = tables.rows_of(experiment, results)
    means = rows[0].means
    assert means["best"].interval[1] == 1.0
    assert means["best_one_call"].interval[0] == means["ms"].interval[0] == 0.0
    assert means["ms"].interval[1] > 9
    report = tables.report_of(experiment, rows)
    assert report.rows[0][2].endswith("100.0]")
    assert "shares at 0 and 100 %, amounts at 0" in report.notes[0]
    written = {line["metric"]: line for line in csv.DictReader(io.StringIO(tables.as_csv(rows)))}
    assert (float(written["best"]["high"]), float(written["best_one_call"]["low"])) == (1.0, 0.0)


@pytest.mark.parametrize(
    "play",
    [
        {"play.num_futures": 8, "play.sampler": "a0_last"},
        {"play.policy": "{policy}?sampler=a0_last&num_steps=2&temperature=1.0&num_futures=8"},
    ],
)
def test_calls_count_the_futures_that_a_decision_averages_over(tmp_path: Path, play: dict[str, Any]) -> None:
    experiment = experiment_of(tmp_path, axes={"way": {"plain": {}, "many": play}})
    results = results_of(experiment, tmp_path)
    plain, many = tables.rows_of(experiment, results)
    assert (plain.means["calls"].value, many.means["calls"].value) == (20, 160)
    assert "each future" in " ".join(tables.report_of(experiment, [plain, many]).notes)
    assert tables.figures_of(experiment, results[-1]) == {**(results[-1].figures or {}), "calls": 160}


def test_a_search_averages_over_no_futures(tmp_path: Path) -> None:
    play = {"play.candidates": 4, "play.sampler": "a0_last", "play.num_futures": 8}
    experiment = experiment_of(tmp_path, axes={"way": {"many": play}})
    (row,) = tables.rows_of(experiment, results_of(experiment, tmp_path))
    assert row.means["calls"].value == 20


def test_a_metric_that_no_run_measured_is_left_empty_unless_it_is_compared(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path, metrics=["best", "own:rebiult"])
    results = results_of(experiment, tmp_path)
    report = tables.report_of(experiment, tables.rows_of(experiment, results))
    assert report.rows[0][-1] == "-"
    cell = {"way": "plain"}
    compare = [{"a": cell, "b": {"way": "many"}, "metric": "raw_best"}]
    experiment = experiment_of(tmp_path, compare=compare)
    with pytest.raises(ConfigError, match="metric 'raw_best' was not measured; there are: best"):
        tables.rows_of(experiment, results)


def test_published_shares_are_fractions_in_the_file_as_means_are(tmp_path: Path) -> None:
    published = {"source": "a paper", "values": {"plain": {"best": 41.3, "calls": 20}}}
    experiment = experiment_of(tmp_path, published=published)
    rows = tables.rows_of(experiment, results_of(experiment, tmp_path))
    written = {line["metric"]: line for line in csv.DictReader(io.StringIO(tables.as_csv(rows[:1])))}
    assert (float(written["best"]["published"]), float(written["calls"]["published"])) == (0.413, 20)
    assert tables.report_of(experiment, rows).rows[0][3] == "41.3"


def test_p_is_corrected_for_the_tests_whose_runs_are_missing_too(tmp_path: Path) -> None:
    cells = [{"way": "plain"}, {"way": "many"}]
    more = [{"a": cells[0], "b": cells[1]}, {"a": cells[1], "b": cells[0]}]
    same = {"a": cells[0], "b": cells[0], "metric_b": "best_one_call"}
    experiment = experiment_of(tmp_path, compare=[same, *more])
    results = [result for result in results_of(experiment, tmp_path) if result.cell.name == "plain"]
    (made,) = tables.comparisons(experiment, results)
    assert made.test.p_corrected == pytest.approx(3 * made.test.p_value)
    (note,) = tables.untested(experiment, [made])
    assert note.startswith("2 of 3 paired tests are missing")
    assert note.endswith("plain against many; many against plain.")
    assert tables.untested(experiment, tables.comparisons(experiment, results_of(experiment, tmp_path))) == []


def test_one_seed_has_no_column_of_seeds(tmp_path: Path) -> None:
    compare = [{"a": {"way": "plain"}, "b": {"way": "many"}}]
    experiment = experiment_of(tmp_path, seeds=[0], compare=compare)
    report = tables.comparison_report(tables.comparisons(experiment, results_of(experiment, tmp_path)))
    assert "95 % over seeds" not in report.columns
    assert "nan" not in report.markdown()
    assert "1 seed;" in report.notes[0]


def test_labels_break_no_row(tmp_path: Path) -> None:
    odd = {"a | b [/red]": {}, "$x_1": {}}
    experiment = experiment_of(tmp_path, axes={"way": odd}, notes=["one\ntwo"])
    report = tables.report_of(experiment, tables.rows_of(experiment, results_of(experiment, tmp_path)))
    body = [line for line in report.markdown().splitlines() if line.startswith("|")]
    assert len(body) == 4
    assert body[2].startswith(r"| a \| b [/red] | 3 |")
    assert "- one two" in report.markdown()
    report.print()


def test_random_level_and_several_shares_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from genpolicy_experiments import plots

    wanted = [
        {"x": "way", "y": "best, best_one_call", "where": {"size": "1"}},
        {"x": "calls", "y": "best", "by": "way", "log": True},
        {"x": "way", "y": "ms", "where": {"size": "1"}},
        {"x": "size", "y": "legal", "by": "way"},
    ]
    axes = {"way": {"$x_1": {}, "_b": {"play.num_futures": 8}}, "size": {"1": {}, "2": {}, "all": {}}}
    experiment = experiment_of(tmp_path, axes=axes, plots=wanted)
    rows = tables.rows_of(experiment, results_of(experiment, tmp_path, ms=1.0, legal=1.0))
    written = [path.read_text() for path in plots.draw(experiment, rows, tmp_path) if path.suffix == ".svg"]
    shown = ["<!-- a random legal move -->" in text for text in written]
    assert shown == [True, True, False, False]
    assert "<!-- best move, one call -->" in written[0]
    assert "<!-- all -->" in written[3]


def test_the_same_figures_are_drawn_in_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from genpolicy_experiments import plots

    experiment = experiment_of(tmp_path, plots=[{"x": "way"}])
    rows = tables.rows_of(experiment, results_of(experiment, tmp_path))
    before = {path: path.read_bytes() for path in plots.draw(experiment, rows, tmp_path)}
    assert {path: path.read_bytes() for path in plots.draw(experiment, rows, tmp_path)} == before


def test_a_kill_while_a_plot_is_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from genpolicy_experiments import plots

    experiment = experiment_of(tmp_path, plots=[{"x": "way"}])
    rows = tables.rows_of(experiment, results_of(experiment, tmp_path))
    before = {path: path.read_bytes() for path in plots.draw(experiment, rows, tmp_path)}

    kill_half_way(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        plots.draw(experiment, rows, tmp_path)
    assert {path: path.read_bytes() for path in before} == before


def test_shares_and_amounts_share_no_axis(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shares and amounts on one axis"):
        experiment_of(tmp_path, plots=[{"x": "way", "y": "best, ms"}])


@pytest.mark.parametrize(("low", "high"), [(2.2e11, 8e12), (3.1e11, 3.9e11), (1, 160), (7, 7), (1e3, 1e12)])
def test_round_ticks_are_few_and_within(low: float, high: float) -> None:
    plots = pytest.importorskip("genpolicy_experiments.plots")
    ticks = plots.round_numbers(low, high)
    assert 1 <= len(ticks) <= 7
    assert all(0.9 * low <= tick <= 1.1 * high for tick in ticks)
    assert all(math.isclose(tick, float(f"{tick:.2g}")) for tick in ticks)


def test_a_commit_that_several_runs_name_is_told_once(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path)
    results = results_of(experiment, tmp_path, commit=["aaa", "bbb", "aaa, bbb"])
    assert tables.commits_of(results) == ["aaa", "bbb"]
