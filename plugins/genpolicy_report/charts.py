"""Draws charts as SVG that adapt to the page around them (light and dark, any width) without a library.

Colours come from the classes ``s0`` to ``s6`` and the custom properties of ``STYLE``: an SVG within a page uses the
page's, and one in a file of its own (``standalone``) its own. All text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
.chart{--ink:#1f2328;--muted:#59636e;--rule:#d1d9e0;font:12px system-ui,sans-serif;max-width:100%;height:auto}
.chart text{fill:var(--ink)}.chart .muted{fill:var(--muted)}.chart .rule{stroke:var(--rule)}
.chart .title{font-weight:600;font-size:13px}
.s0{color:#0072b2}.s1{color:#c04f00}.s2{color:#007f5f}.s3{color:#a8518a}.s4{color:#2b8cbe}.s5{color:#9a6b00}.s6{color:#555}
@media (prefers-color-scheme:dark){.chart{--ink:#e6edf3;--muted:#9198a1;--rule:#3d444d}
.s0{color:#58a6ff}.s1{color:#ff9b50}.s2{color:#3fd6a8}.s3{color:#e59ccb}.s4{color:#8fd3ff}.s5{color:#e3b341}.s6{color:#b1bac4}}
""".strip()
NUM_COLOURS = 7
_CHAR = 6.7  # most pixels of a character at 12 px
_MAX_LABEL = 40
Span = tuple[float, float, float]
"""Value, lower and upper end of its interval; the ends may be infinite."""


@dataclass(frozen=True)
class Bar:
    """A row of an interval chart."""

    label: str
    span: Span
    published: bool = False
    """A published figure, which is drawn hollow."""


def interval_chart(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """A dot with its interval for each row."""
    labels = _shortened([bar.label for bar in bars])
    left = 24 + int(_CHAR * max(map(len, labels), default=0))
    width, row, top = left + 300, 22, 34
    bottom = top + row * len(bars)
    ends = [end for bar in bars for end in bar.span if math.isfinite(end)]
    ticks = nice_ticks(min(ends, default=0.0), max(ends, default=1.0))
    scale = _Scale(ticks[0], ticks[-1], left, width - 20)
    parts = [_text(8, 16, f"{title} ({unit})" if unit else title, "title")]
    for tick in ticks:
        x = scale(tick)
        parts.append(_line(x, top - 4, x, bottom, "rule"))
        parts.append(_text(x, bottom + 15, f"{tick:g}", "muted", "middle"))
    for index, bar in enumerate(bars):
        y = top + row * index + row / 2
        value, low, high = bar.span
        words = f"{bar.label}: {value:g}" + (f" [{low:g}, {high:g}]" if low < high else "")
        marks = [f"<title>{escape(words)}</title>"]
        if low < high:
            marks.append(_line(scale(low), y, scale(high), y, width=2))
        if math.isfinite(value):
            marks.append(_marker(scale(value), y, hollow=bar.published))
        parts.append(_text(left - 8, y + 4, labels[index], "muted" if bar.published else "", "end"))
        parts.append(f'<g class="s{6 if bar.published else 0}">{"".join(marks)}</g>')
    return _svg(width, bottom + 24, title, parts)


def line_chart(title: str, unit: str, x_labels: Sequence[str], series: Mapping[str, Sequence[Span | None]]) -> str:
    """Lines over categories, each point with its interval; None is a gap."""
    width, top, height = 640, 34 + 18 * len(series), 220
    left, bottom = 48, top + height
    ends = [end for line in series.values() for span in line if span is not None for end in span if math.isfinite(end)]
    ticks = nice_ticks(0.0, max(ends, default=1.0))
    scale = _Scale(ticks[0], ticks[-1], bottom, top)
    step = (width - left - 20) / max(1, len(x_labels))
    parts = [_text(8, 16, f"{title} ({unit})", "title")]
    for tick in ticks:
        parts.append(_line(left, scale(tick), width - 20, scale(tick), "rule"))
        parts.append(_text(left - 6, scale(tick) + 4, f"{tick:g}", "muted", "end"))
    for index, label in enumerate(x_labels):
        parts.append(_text(left + step * (index + 0.5), bottom + 16, label, "muted", "middle"))
    for number, (name, line) in enumerate(series.items()):
        y = 34 + 18 * number
        # Intervals of the same category are drawn beside each other.
        shift = (number - (len(series) - 1) / 2) * min(6.0, step / (len(series) + 1))
        hollow = _is_hollow(number)
        marks = [_line(left, y, left + 18, y, width=2), _marker(left + 9, y, hollow=hollow)]
        known = [(i, span) for i, span in enumerate(line) if span is not None and not math.isnan(span[0])]
        points = [(left + step * (i + 0.5) + shift, span) for i, span in known]
        path = " ".join(f"{x:.1f},{scale(span[0]):.1f}" for x, span in points)
        marks.append(f'<polyline points="{path}" fill="none" stroke="currentColor" stroke-width="2"/>')
        for x, (value, low, high) in points:
            marks += [_line(x, scale(low), x, scale(high)), _marker(x, scale(value), hollow=hollow)]
        parts.append(f'<g class="s{number % NUM_COLOURS}">{"".join(marks)}</g>')
        parts.append(_text(left + 26, y + 4, name))
    return _svg(width, bottom + 26, title, parts)


def scatter_chart(title: str, x_unit: str, y_unit: str, points: Sequence[tuple[str, Span, Span]]) -> str:
    """Points (label, x, y) with both intervals over a logarithmic x axis."""
    width, top, height = 640, 34 + 18 * len(points), 220
    left, bottom = 48, top + height
    xs = [end for _, x, _ in points for end in x if 0 < end < math.inf]
    ys = [end for _, _, y in points for end in y if math.isfinite(end)]
    decades = range(math.floor(math.log10(min(xs, default=1.0))), math.ceil(math.log10(max(xs, default=10.0))) + 1)
    low = decades[0]
    high = max(decades[-1], low + 1)
    across = _Scale(low, high, left, width - 30)
    ticks = nice_ticks(0.0, max(ys, default=1.0))
    up = _Scale(ticks[0], ticks[-1], bottom, top)
    parts = [_text(8, 16, f"{title} ({y_unit})", "title")]
    for tick in ticks:
        parts.append(_line(left, up(tick), width - 30, up(tick), "rule"))
        parts.append(_text(left - 6, up(tick) + 4, f"{tick:g}", "muted", "end"))
    for power in range(low, high + 1):
        parts.append(_line(across(power), top, across(power), bottom, "rule"))
        parts.append(_text(across(power), bottom + 16, f"{10.0**power:g}", "muted", "middle"))
    parts.append(_text(width - 30, bottom + 32, x_unit, "muted", "end"))
    for number, (label, x, y) in enumerate(points):
        row = 34 + 18 * number
        at = [across(math.log10(end)) if end > 0 else left for end in x]
        hollow = _is_hollow(number)
        marks = [f"<title>{escape(label)}</title>", _marker(left + 9, row, hollow=hollow)]
        marks += [_line(at[1], up(y[0]), at[2], up(y[0])), _line(at[0], up(y[1]), at[0], up(y[2]))]
        marks.append(_marker(at[0], up(y[0]), hollow=hollow))
        parts.append(f'<g class="s{number % NUM_COLOURS}">{"".join(marks)}</g>')
        parts.append(_text(left + 26, row + 4, label))
    return _svg(width, bottom + 40, title, parts)


def standalone(svg: str) -> str:
    """The chart as a file of its own."""
    head, rest = svg.split(">", 1)
    return f"{head}><style>{STYLE}</style>{rest}\n"


def nice_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """At most ``most`` round numbers, 1, 2 or 5 times a power of ten apart, that enclose low and high."""
    if not low < high:
        low, high = low - 1, high + 1
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 5, 10, 20):
        gap = factor * size
        first, last = math.floor(low / gap + 1e-9), math.ceil(high / gap - 1e-9)
        if last - first < most:
            break
    return [round(gap * number, 10) for number in range(first, last + 1)]


@dataclass(frozen=True)
class _Scale:
    """Maps numbers to pixels, and those beyond its ends to the ends."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def _shortened(labels: Sequence[str]) -> list[str]:
    """The ends of long labels; of those that end alike, the whole."""
    short = [label if len(label) <= _MAX_LABEL else "…" + label[1 - _MAX_LABEL :] for label in labels]
    return [each if short.count(each) == 1 else label for label, each in zip(labels, short, strict=True)]


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{escape(title)}" '
        f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str = "", width: float = 1) -> str:
    ink = f'class="{style}"' if style else 'stroke="currentColor"'
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {ink} stroke-width="{width:g}"/>'


def _is_hollow(number: int) -> bool:
    """Whether a line's markers are hollow: every other time that the colours begin anew."""
    return number // NUM_COLOURS % 2 == 1


def _marker(x: float, y: float, *, hollow: bool = False) -> str:
    fill = 'fill="none" stroke="currentColor" stroke-width="2"' if hollow else 'fill="currentColor"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {fill}/>'
