"""The charts of a report page: where values lie, what tells lines apart, and that each is a document."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from genpolicy_report.charts import Bar, interval_chart, line_chart, nice_ticks, scatter_chart, standalone

HOSTILE = """<script>alert("x")</script> & 'a' | b ]]> -->"""
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


# Charts.


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 100), (-53.1, 160.4), (0.001, 0.0012), (1000, 1000), (-3, -1), (0, 1e7), (0, 0)]
)
def test_ticks_are_round_few_and_enclose(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 8
    gaps = {round(b - a, 9) for a, b in itertools.pairwise(ticks)}
    assert len(gaps) == 1
    mantissa = gaps.pop()
    assert round(mantissa / 10 ** math.floor(math.log10(mantissa) + 1e-9), 6) in (1, 2, 5)


def test_interval_chart_puts_values_where_its_axis_says() -> None:
    svg = interval_chart("Accuracy", "%", [Bar("a", (20, 10, 40)), Bar("b", (80, 80, 80), published=True)])
    root = ElementTree.fromstring(svg)
    ticks = {
        float(t.text or "nan"): float(t.get("x") or "nan")
        for t in root.iter(f"{SVG}text")
        if re.fullmatch(r"-?[\d.]+", t.text or "")
    }
    assert min(ticks) <= 10
    assert max(ticks) >= 80
    (tick_a, x_a), (tick_b, x_b), *_ = ticks.items()
    per_unit = (x_b - x_a) / (tick_b - tick_a)
    circles = [float(c.get("cx") or "nan") for c in root.iter(f"{SVG}circle")]
    assert circles == pytest.approx([x_a + per_unit * (20 - tick_a), x_a + per_unit * (80 - tick_a)], abs=0.2)
    # Somebody else's figure is hollow and has no interval.
    fills = [c.get("fill") for c in root.iter(f"{SVG}circle")]
    assert fills == ["currentColor", "none"]
    assert len([g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}line") is not None]) == 1


def test_more_lines_than_colours_are_told_apart() -> None:
    names = [f"policy {number}" for number in range(14)]
    lines = line_chart("Solved", "%", ["800"], {name: [(20, 10, 40)] for name in names})
    points = scatter_chart("Accuracy", "ms", "%", [(name, (2, 1, 3), (20, 10, 40)) for name in names])
    for svg in (lines, points):
        groups = list(ElementTree.fromstring(svg).iter(f"{SVG}g"))
        looks = [(g.get("class"), *(circle.get("fill") for circle in g.iter(f"{SVG}circle"))) for g in groups]
        assert len(set(looks)) == len(names)


def test_labels_that_are_cut_stay_different() -> None:
    """Runs with the same long options differ at the beginning alone, which a chart cuts off."""
    one, other = (f"{run}?sampler=by_ply&num_steps=10&temperature=0.5" for run in ("first", "other"))
    svg = interval_chart("Accuracy", "%", [Bar(one, (20, 10, 40)), Bar(other, (80, 80, 80))])
    assert {one, other} <= set(texts(svg))
    assert float(ElementTree.fromstring(svg).get("width") or 0) > 300 + 5 * len(one)
    alone = interval_chart("Accuracy", "%", [Bar(one, (20, 10, 40))])
    assert "…" + one[-39:] in texts(alone)


def test_all_charts_are_documents_whatever_the_names_are() -> None:
    nan = (math.nan, math.nan, math.nan)
    charts = [
        interval_chart(HOSTILE, "%", [Bar(HOSTILE, (1, -math.inf, math.inf)), Bar("unknown", nan)]),
        line_chart(HOSTILE, "%", ["1000-1199", "1200-1399"], {HOSTILE: [(10, 5, 20), None], "b": [nan, (1, 0, 2)]}),
        scatter_chart(
            HOSTILE, "ms", "%", [(HOSTILE, (0.05, 0.04, 0.06), (8, 4, 11)), ("b", (900, 800, 1000), (50, 40, 60))]
        ),
        scatter_chart("one", "ms", "%", [("b", (1, 1, 1), (0, 0, 0))]),
        interval_chart("none", "", []),
    ]
    for svg in charts:
        for element in ElementTree.fromstring(svg).iter():
            placed = [v for name, v in element.attrib.items() if name not in ("aria-label", "class")]
            assert not any(re.search("nan|inf", value) for value in placed), element.attrib
        ElementTree.fromstring(standalone(svg))
    assert HOSTILE in texts(charts[1])
    assert "<style>" in standalone(charts[0])


# Pages.
