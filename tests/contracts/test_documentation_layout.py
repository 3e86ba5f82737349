"""Tables, lists and paragraphs of the documentation stand on lines of their own: a reflowed page can lose them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
RULE = re.compile(r" *\|[\s:|-]*-[\s:|-]*\| *")
"""The line below the head of a table."""
JOINED = re.compile(r"\S {2,}\S|[.;:)`] - [A-Z`*a-z]|[.;:] \d\. [A-Z*]|(?<!\d)[.:)`]( |\n)\*\*[A-Z][^*]*[.:]\*\*")
"""What joined lines leave: spaces of a blank line or of an indentation; an item or a run-in heading in a line."""


def broken(text: str) -> list[str]:
    """Places at which lines were joined."""
    lines = FENCED.sub(lambda found: "\n" * found[0].count("\n"), text).split("\n")
    found = []
    for above, head, line in zip(["", *lines], lines, lines[1:], strict=False):
        if RULE.fullmatch(line) and (above.strip() or head.count("|") != line.count("|")):
            found.append(f"the head of a table: {head}")
    prose = "\n".join("" if line.lstrip().startswith("|") else line.strip() for line in lines)
    return found + [prose[max(0, each.start() - 30) : each.end() + 30] for each in JOINED.finditer(prose)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_line_is_joined_with_what_stood_below_it(page: Path) -> None:
    assert broken(page.read_text(encoding="utf-8")) == []


def test_joined_lines_are_seen() -> None:
    assert broken("a\n\n| b | c |\n|---|---|\n\n- d\n- e\n\n**F.** g\n\n```\nh  i\n```\n") == []
    wrong = ["a:  | b | c |\n|---|---|\n", "a\n| b |\n|---|\n", "- d. - e\n", "d.  **F.** g\n", "d.\n**F.** g\n"]
    assert all(broken(text) for text in [*wrong, "1. a; 2. B\n", "an   indentation\n"])
