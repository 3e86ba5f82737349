"""Files that the documentation names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"`((?:genpolicy|plugins|games|tests|benchmarks|configs|docs)[\w]*/[\w./-]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = set(PATH.findall(page.read_text(encoding="utf-8")))
    homes = [ROOT, ROOT / "plugins", ROOT / "games"]
    missing = [name for name in sorted(named) if not any((home / name).exists() for home in homes)]
    assert not missing
