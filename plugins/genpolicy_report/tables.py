"""The tables and charts of a report page (Table 2 of Ye et al. 2025, arXiv:2502.19805, with intervals and costs)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from genpolicy.game import PublishedResult
from genpolicy_arena.crosstable import end_text
from genpolicy_common.tables import Report, number_with_interval, percent_with_interval, positions_text
from genpolicy_evaluation.latency import number
from genpolicy_evaluation.puzzle_rating import PuzzleRating
from genpolicy_report.charts import Bar, Span, interval_chart, line_chart, scatter_chart
from genpolicy_report.measures import Row
from genpolicy_report.page import Charts, Facts, Table

_Figures = Mapping[str, Any]


def main_table(rows: Sequence[Row], published: Sequence[PublishedResult]) -> Table:
    """The main table: a row for each policy, then published figures. Columns without a measurement are left out."""
    mates = any(_differs(row) for row in rows)
    columns: list[tuple[str, list[str]]] = [
        ("labelled move %", [_share(_of(row, "accuracy", "labelled"), "accuracy") for row in rows]),
        ("any best move %", [_share(_of(row, "accuracy", "best"), "accuracy") for row in rows]),
        ("puzzles solved %", [_share(_of(row, "puzzles", "solved"), "rate") for row in rows]),
        *([("any mate %", [_share(_of(row, "puzzles", "solved_any"), "rate") for row in rows])] if mates else []),
        ("puzzle rating", [_rating(_of(row, "puzzles", "rating")) for row in rows]),
        ("Elo", [_elo(row.elo) for row in rows]),
        ("value's rank correlation", [_judged(row, "value_rank", "value_rank_interval") for row in rows]),
        ("win/draw/loss nats", [_judged(row, "wdl_nats", "wdl_nats_interval") for row in rows]),
        ("plies left, error", [_judged(row, "plies_error", "plies_error_interval", 1) for row in rows]),
        ("ms a move", [_time(row) for row in rows]),
        ("calls a move", [_calls(row) for row in rows]),
    ]
    shown = [(title, cells) for title, cells in columns if any(cell != "-" for cell in cells)]
    groups = [("", [[row.name, *(cells[i] for _, cells in shown)] for i, row in enumerate(rows)])]
    for source, results in _by_source(published).items():
        groups.append((source, [_published_row(each, [title for title, _ in shown]) for each in results]))
    return Table(
        "Table 2: accuracy, puzzles, Elo and cost",
        ["policy", *(title for title, _ in shown)],
        groups,
        _notes(rows, published),
    )


def _differs(row: Row) -> bool:
    """Whether the two ways of counting solved mate puzzles give different numbers."""
    solved, solved_any = _of(row, "puzzles", "solved"), _of(row, "puzzles", "solved_any")
    return solved is not None and solved_any is not None and solved["hits"] != solved_any["hits"]


def _published_row(result: PublishedResult, titles: Sequence[str]) -> list[str]:
    name = f"{result.policy}, {result.training}" if result.training else result.policy
    known = {
        "labelled move %": "-" if result.accuracy is None else f"{result.accuracy:.2f}",
        "puzzles solved %": "-" if result.puzzles is None else f"{result.puzzles:.2f}",
        "Elo": "-" if result.elo is None else f"{result.elo:.0f}",
    }
    return [name, *(known.get(title, "") for title in titles)]


def _by_source(published: Sequence[PublishedResult]) -> dict[str, list[PublishedResult]]:
    return {
        source: [r for r in published if r.source == source] for source in dict.fromkeys(r.source for r in published)
    }


def _notes(rows: Sequence[Row], published: Sequence[PublishedResult]) -> list[str]:
    notes = []
    accuracy, puzzles, latency = (_first(rows, name) for name in ("accuracy", "puzzles", "latency"))
    if accuracy is not None:
        positions, games = (accuracy["labelled"].get(key) for key in ("positions", "games"))
        # Figures of an earlier version have no number of games.
        where = positions_text(positions, games) if games else f"{positions} positions; intervals: 95 %"
        notes.append(
            f"Accuracy: {where}. Labelled: the record's move; any best: a move whose value ties with the best."
        )
    judged = next((figures for row in rows if (figures := _judgement(row))), None)
    if judged is not None and judged.get("value_rank") is not None:
        notes.append(f"Value: Spearman's rank correlation with the record's, {judged['valued']} positions.")
    prior = next((figures["wdl_prior"] for row in rows if (figures := _judgement(row)).get("wdl_prior")), None)
    if prior is not None:
        notes.append(
            f"Win, draw, loss: mean of -log p(result); {prior:.3f} by the results' shares alone. Plies left: "
            "mean error. Intervals as of the accuracy."
        )
    if puzzles is not None:
        notes.append(f"Puzzles: {puzzles['solved']['puzzles']}; 95 % intervals, Wilson.")
        if puzzles["rating"]["puzzles"]:
            notes.append("Puzzle rating: maximum likelihood with each puzzle as an opponent; 95 % by likelihood.")
        if any(_differs(row) for row in rows):
            notes.append("Solved: each move keeps the shortest mate; any mate: each keeps one that is not much longer.")
    games = sorted({row.elo["games"] for row in rows if row.elo is not None})
    if games:
        each = f"{games[0]}" if len(games) == 1 else f"{games[0]} to {games[-1]}"
        notes.append(
            f"Elo: from the tournament below, {each} games a policy; 95 % intervals. Ratings of different pools do not "
            "compare."
        )
    if latency is not None:
        timed = latency["timings"][0]
        notes.append(f"Times: median [quartiles] of {timed['calls']} moves, decided one by one.")
    if published:
        notes.append("The published figures are of other positions, puzzles and opponents, and have no intervals.")
    notes += [f"{row.name} could not be measured in full: {failure}" for row in rows for failure in row.failures]
    return notes


def main_charts(rows: Sequence[Row], published: Sequence[PublishedResult]) -> Charts | None:
    """Charts of accuracy, puzzles, Elo and cost, with published figures drawn hollow; None if nothing was measured."""
    measured: list[tuple[str, str, str, dict[str, Span], dict[str, float | None]]] = [
        (
            "accuracy",
            "Action accuracy, labelled move",
            "%",
            {row.name: _span(f, "accuracy", 100) for row in rows if (f := _of(row, "accuracy", "labelled"))},
            {_published_name(result): result.accuracy for result in published},
        ),
        (
            "puzzles",
            "Puzzles solved",
            "%",
            {row.name: _span(f, "rate", 100) for row in rows if (f := _of(row, "puzzles", "solved"))},
            {_published_name(result): result.puzzles for result in published},
        ),
        (
            "elo",
            "Elo",
            "",
            {row.name: _elo_span(row.elo) for row in rows if row.elo},
            {},  # published ratings are of other pools of players, so they share no axis
        ),
    ]
    charts = []
    for name, title, unit, own, others in measured:
        if own:
            bars = [Bar(policy, span) for policy, span in own.items()]
            bars += [
                Bar(policy, (value, value, value), published=True)
                for policy, value in others.items()
                if value is not None
            ]
            charts.append((name, interval_chart(title, unit, bars)))
    cost = [
        (row.name, _time_span(timed), _span(hits, "accuracy", 100))
        for row in rows
        if (timed := _of(row, "latency", "timings")) and (hits := _of(row, "accuracy", "labelled"))
    ]
    if cost:
        charts.append(
            ("cost", scatter_chart("Accuracy against time", "ms a move (one by one)", "labelled move %", cost))
        )
    return Charts("Charts", charts) if charts else None


def puzzle_blocks(rows: Sequence[Row]) -> list[Table | Charts]:
    """Rates of solved puzzles by rating band (with a chart), by length of the mate and by theme."""
    solved = [row for row in rows if "puzzles" in row.parts]
    if not solved:
        return []
    blocks: list[Table | Charts] = []
    for key, title, few in (
        ("by_rating", "Puzzles by rating", 0),
        ("by_mate_length", "Puzzles by length of the mate", 0),
        ("by_theme", "Puzzles by theme", 10),
    ):
        groups = {row.name: row.parts["puzzles"].figures[key] for row in solved}
        names = [name for name, group in next(iter(groups.values())).items() if group["solved"]["puzzles"] >= few]
        if not names or names == ["no rating"]:
            continue
        counts = next(iter(groups.values()))
        cells = [
            [
                name,
                str(counts[name]["solved"]["puzzles"]),
                *(_share(group[name]["solved"], "rate") for group in groups.values()),
            ]
            for name in names
        ]
        if key == "by_rating" and len(names) > 1:
            series = {
                policy: [_span(group[name]["solved"], "rate", 100) for name in names]
                for policy, group in groups.items()
            }
            blocks.append(Charts(title, [("puzzles-by-rating", line_chart("Puzzles solved", "%", names, series))]))
        notes = [f"Themes of at least {few} puzzles."] if few else []
        blocks.append(Table(f"{title}: solved %", ["", "puzzles", *groups], [("", cells)], notes))
    return blocks


def tournament_tables(reports: Sequence[Report]) -> list[Table]:
    """The tables of a tournament as blocks of the page."""
    return [Table(report.title, report.columns, [("", report.rows)], list(report.notes)) for report in reports]


def provenance(rows: Sequence[Row], facts: Mapping[str, Any]) -> list[Facts]:
    """The provenance of the page and of each policy's figures."""
    page = Facts("Where this comes from", [(name, str(value)) for name, value in facts.items() if value is not None])
    policies = []
    for row in rows:
        parts = "; ".join(
            f"{name}: {part.made['time']}, {part.made['seconds']} s, genpolicy {part.made['version']}"
            + (f", commit {part.made['commit']}" if part.made["commit"] else "")
            for name, part in row.parts.items()
        )
        policies.append((row.name, f"{row.spec} (fingerprint {row.fingerprint}). {parts}"))
    return [page, Facts("Policies", policies)]


def _published_name(result: PublishedResult) -> str:
    return f"published: {result.policy}" + (f", {result.training}" if result.training else "")


def _of(row: Row, part: str, name: str) -> Any:
    """A figure of a part; None if the part was not measured."""
    measured = row.parts.get(part)
    return None if measured is None else measured.figures.get(name)


def _first(rows: Sequence[Row], part: str) -> _Figures | None:
    return next((row.parts[part].figures for row in rows if part in row.parts), None)


def _share(figures: _Figures | None, key: str) -> str:
    if figures is None or figures[key] is None:
        return "-"
    low, high = figures["interval"]
    return percent_with_interval(figures[key], (_known(low), _known(high)))


def _rating(figures: _Figures | None) -> str:
    if figures is None or not figures["puzzles"]:
        return "-"
    low, high = figures["interval"]
    value = figures["rating"]
    if value is None:
        value = math.inf if figures["bound"] == "lower" else -math.inf
    return str(PuzzleRating(value, (_known(low), _known(high)), figures["puzzles"]))


def _elo(elo: _Figures | None) -> str:
    if elo is None:
        return "-"
    value, low, high = _elo_span(elo)
    return f"{value:.0f} [{end_text(low, 0)}, {end_text(high, 0)}]"


def _judged(row: Row, key: str, interval: str, digits: int = 3) -> str:
    """A figure of how well a policy judges positions; parts that were measured by older versions have none."""
    figures = _judgement(row)
    if figures.get(key) is None:
        return "-"
    low, high = figures.get(interval) or (None, None)
    return number_with_interval(figures[key], (_known(low), _known(high)), digits)


def _judgement(row: Row) -> _Figures:
    return _of(row, "accuracy", "judgement") or {}


def _time(row: Row) -> str:
    timings = _of(row, "latency", "timings")
    if not timings:
        return "-"
    low, high = timings[0]["quartiles_ms"]
    return f"{number(timings[0]['median_ms'])} [{number(low)}, {number(high)}]"


def _time_span(timings: Sequence[_Figures]) -> Span:
    low, high = timings[0]["quartiles_ms"]
    return timings[0]["median_ms"], low, high


def _calls(row: Row) -> str:
    calls = _of(row, "latency", "network_calls")
    return "-" if not calls else f"{calls:.1f}"


def _span(figures: _Figures, key: str, factor: float) -> Span:
    value, (low, high) = figures[key], figures["interval"]
    ends = (value, value) if low is None else (low, high)  # of one game there is no interval
    return factor * _known(value), factor * _known(ends[0]), factor * _known(ends[1])


def _known(value: float | None, otherwise: float = math.nan) -> float:
    return otherwise if value is None else float(value)


def _elo_span(elo: _Figures) -> Span:
    """An end that nothing bounds is infinite, and None in the figures."""
    return _known(elo["elo"]), _known(elo["low"], -math.inf), _known(elo["high"], math.inf)
