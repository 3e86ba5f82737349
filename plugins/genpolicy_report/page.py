"""Writes a page of tables, charts and facts as one self-contained HTML file, or as Markdown with charts beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from genpolicy.files import write_atomic
from genpolicy_report.charts import STYLE, standalone

SUFFIXES = (".html", ".htm", ".md")
_PAGE_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--muted:#59636e;--rule:#d1d9e0;--band:#f6f8fa}
@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--muted:#9198a1;--rule:#3d444d;--band:#151b23}}
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .5rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{margin:.4rem 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th:first-child,td:first-child{text-align:left}thead th{background:var(--band);vertical-align:bottom}
tr.group th{text-align:left;font-weight:600;color:var(--muted);padding-top:1rem}
.interval{display:block;color:var(--muted);font-size:.8rem}
.notes,.facts{color:var(--muted);font-size:.85rem}.notes{padding-left:1.2rem}
.facts td{text-align:left;white-space:normal;overflow-wrap:anywhere}.facts td:first-child{white-space:nowrap}
.charts{display:flex;flex-wrap:wrap;gap:1rem 2rem}figure{margin:0;max-width:100%}
""".strip()


@dataclass
class Table:
    """Rows of text under columns; the first column is flush left."""

    title: str
    columns: list[str]
    groups: list[tuple[str, list[list[str]]]]
    """Rows with a heading above them; "" for none."""
    notes: list[str] = field(default_factory=list)


@dataclass
class Charts:
    """Charts beside each other."""

    title: str
    charts: list[tuple[str, str]]
    """Name of the file, without suffix, and SVG."""


@dataclass
class Facts:
    """A table of facts."""

    title: str
    rows: list[tuple[str, str]]
    """Names and texts."""


Block = Table | Charts | Facts


@dataclass
class Page:
    """A page: a title, paragraphs and blocks."""

    title: str
    lead: list[str]
    """Paragraphs below the title."""
    blocks: list[Block] = field(default_factory=list)


def check_page(path: Path) -> None:
    """Check, before hours of measuring, that a page can be written.

    Raises:
        ValueError: the name has no known suffix, or the folder does not exist.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out {path}: the name must end in one of {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise ValueError(f"--out {path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"--out {path}: no folder {path.parent}; make it first, or name another file")


def side_folder(path: Path) -> Path:
    """The folder of a page's files, which is beside it."""
    return path.with_name(f"{path.stem}_files")


def write_page(page: Page, path: Path) -> None:
    """Write a page in the format of its suffix; the charts of a Markdown page are written to its side folder."""
    if path.suffix.lower() == ".md":
        folder = side_folder(path)
        folder.mkdir(parents=True, exist_ok=True)
        for block in page.blocks:
            for name, svg in block.charts if isinstance(block, Charts) else []:
                write_atomic(folder / f"{name}.svg", standalone(svg).encode())
        write_atomic(path, to_markdown(page, folder.name).encode())
    else:
        write_atomic(path, to_html(page).encode())


def to_html(page: Page) -> str:
    """The page as one self-contained HTML file."""
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{_PAGE_STYLE}\n{STYLE}</style></head><body>"
    )
    lead = "".join(f"<p>{escape(text)}</p>" for text in page.lead)
    body = "\n".join(_html(block) for block in page.blocks)
    return f"{head}<h1>{escape(page.title)}</h1>{lead}\n{body}\n</body></html>\n"


def _html(block: Block) -> str:
    heading = f"<h2>{escape(block.title)}</h2>"
    if isinstance(block, Charts):
        figures = "".join(f"<figure>{svg}</figure>" for _, svg in block.charts)
        return f'<section>{heading}<div class="charts">{figures}</div></section>'
    if isinstance(block, Facts):
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in block.rows)
        return f'<section>{heading}<table class="facts">{rows}</table></section>'
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in block.columns)
    body = "".join(_html_group(name, rows, len(block.columns)) for name, rows in block.groups)
    notes = "".join(f"<li>{escape(note)}</li>" for note in block.notes)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    below = f'<ul class="notes">{notes}</ul>' if notes else ""
    return f'<section>{heading}<div class="scroll">{table}</div>{below}</section>'


def _html_group(name: str, rows: Sequence[Sequence[str]], num_columns: int) -> str:
    head = f'<tr class="group"><th scope="rowgroup" colspan="{num_columns}">{escape(name)}</th></tr>' if name else ""
    return head + "".join("<tr>" + "".join(map(_html_cell, row)) + "</tr>" for row in rows)


def _html_cell(text: str) -> str:
    """A cell with its interval below its number, since side by side they would make tables too wide."""
    value, bracket, interval = text.partition(" [")
    below = f'<span class="interval">{escape(bracket.strip() + interval)}</span>' if bracket else ""
    return f"<td>{escape(value)}{below}</td>"


def to_markdown(page: Page, folder: str) -> str:
    """The page as Markdown; its charts are in ``folder``, relative to it."""
    parts = [f"# {_md(page.title)}", *map(_md, page.lead)]
    for block in page.blocks:
        parts.append(f"## {_md(block.title)}")
        if isinstance(block, Charts):
            parts += [f"![{_md(name)}]({folder}/{name}.svg)" for name, _ in block.charts]
        elif isinstance(block, Facts):
            parts.append(_md_table(["", ""], [[name, text] for name, text in block.rows], ":--"))
        else:
            rows = [
                row
                for name, group in block.groups
                for row in ([[f"**{name}**", *[""] * (len(block.columns) - 1)]] if name else []) + group
            ]
            parts.append(_md_table(block.columns, rows, "--:"))
            parts.append("\n".join(f"- {_md(note)}" for note in block.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def _md_table(columns: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(_md, cells)) + " |"

    return "\n".join([line(columns), "| :-- |" + f" {align} |" * (len(columns) - 1), *map(line, rows)])


def _md(text: str) -> str:
    """Text that Markdown reads as text of one cell; only emphasis with ``*`` keeps its meaning."""
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")
