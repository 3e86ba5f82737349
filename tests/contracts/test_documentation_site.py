"""The documentation: links lead somewhere, every page is in the reading order, the site builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        again = found[name] = found.get(name, -1) + 1
        names.add(f"{name}-{again}" if again else name)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        leads = (page.parent / target).resolve() if target else page
        if not leads.exists() or (anchor and leads.suffix == ".md" and anchor not in anchors(leads)):
            broken.append(link)
    assert not broken


def test_every_page_is_in_the_reading_order() -> None:
    start = DOCS / "README.md"
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(start.read_text(encoding="utf-8"))}
    results = set((DOCS / "results").rglob("*.md"))  # which the site lists by themselves
    missing = [
        page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page not in {*listed, *results, start}
    ]
    assert not missing, f"link these from docs/README.md: {missing}"


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs", reason="needs mkdocs (pip install 'genpolicy[docs]')")
    spec = importlib.util.spec_from_file_location("hooks", DOCS / ".site" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_has_every_page_and_every_module(hooks: ModuleType) -> None:
    def pages(nav: object) -> list[str]:
        if isinstance(nav, str):
            return [nav]
        return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in pages(each)]

    class Config:
        nav: object = None

    listed = pages(hooks.on_config(Config()).nav)
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} <= set(listed)
    assert {"reference/genpolicy.md", "reference/genpolicy.game.md", "project/changelog.md"} <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs mkdocs (pip install 'genpolicy[docs]')")
    pytest.importorskip("mkdocstrings", reason="needs mkdocstrings (pip install 'genpolicy[docs]')")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr[-2000:]
    assert "Search" in (tmp_path / "reference" / "genpolicy.game.html").read_text(encoding="utf-8")
    learners = (tmp_path / "reference" / "plugins" / "learners.html").read_text(encoding="utf-8")
    assert "genpolicy_policy_model.config.MuZeroConfig" in learners
    assert "cache_dir" in learners, "inherited settings"
    policies = (tmp_path / "reference" / "plugins" / "policies.html").read_text(encoding="utf-8")
    assert "maximum number of positions per network call" in policies
    assert "genpolicy をはじめる" in (tmp_path / "ja" / "index.html").read_text(encoding="utf-8")
