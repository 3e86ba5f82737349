"""What mkdocs cannot know of this repository: its navigation, the reference, and links to files outside docs/.

The navigation is read from the headings and links of docs/README.md, so that a page which is linked there is in the
site. The reference has a page for each module of the library. Pages link to files of the repository as they do on
GitHub; in the site a module of the library becomes its reference page, and any other file a page of its own.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
PROJECT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Pages outside docs/ that the navigation lists, where a page links to them."""


def on_config(config: Any) -> Any:
    """Build the navigation."""
    config.nav = [
        {"Home": "README.md"},
        *_guides(),
        {"Results": _results()},
        {"Reference": _reference()},
        {"Project": _project()},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the reference and the files outside docs/ that pages lead to."""
    for module, path in _modules().items():
        text = f"# {module}\n\n::: {module}\n"
        files.append(File.generated(config, _reference_page(path), content=text))
    waiting = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    seen: set[Path] = set()
    while waiting:
        page = waiting.pop()
        for target in _outside(page):
            if target not in seen and target not in _modules().values():
                seen.add(target)
                shown = InclusionLevel.INCLUDED if _source_page(target) in _project() else InclusionLevel.NOT_IN_NAV
                page_of = File.generated(config, _source_page(target), content=_source_text(target), inclusion=shown)
                files.append(page_of)
                waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to files outside docs/ to their pages."""
    source = page.file.src_uri
    if source.startswith("reference/"):
        return markdown
    origin = _origin(source)

    def lead(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        found = _resolve(origin, target)
        if found is None or (origin.is_relative_to(DOCS) and found.is_relative_to(DOCS)):
            return match[0]
        return before + posixpath.relpath(_address(found), posixpath.dirname(source) or ".") + (anchor or "") + after

    parts = FENCED.split(markdown)
    return "".join(part if index % 2 else LINK.sub(lead, part) for index, part in enumerate(parts))


def _guides() -> list[dict[str, Any]]:
    """The sections of docs/README.md and their pages under their own titles."""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in (DOCS / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            current = sections.setdefault(line[3:].strip(), [])
        for _, target, _, _ in LINK.findall(line):
            if target.endswith(".md") and not target.startswith(("..", "http", "results/")) and target not in current:
                current.append(target)
    return [{name: list(pages)} for name, pages in sections.items() if pages]


def _results() -> list[Any]:
    folders = [DOCS / "results", *sorted(path for path in (DOCS / "results").iterdir() if path.is_dir())]
    nav: list[Any] = []
    for folder in folders:
        pages = sorted(folder.glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
        named: list[Any] = [page.relative_to(DOCS).as_posix() for page in pages]
        nav += named if folder == folders[0] else [{folder.name.capitalize(): named}]
    return nav


def _project() -> list[str]:
    return [_source_page(ROOT / name) for name in PROJECT]


def _modules() -> dict[str, Path]:
    """The library's modules by name."""
    paths = sorted((ROOT / "genpolicy").rglob("*.py"))
    found = {path: path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in paths}
    return {
        name.removesuffix(".__init__"): path
        for path, name in found.items()
        if not name.rpartition(".")[2].startswith("_") or name.endswith(".__init__")
    }


def _reference() -> list[Any]:
    groups: dict[str, list[Any]] = {"genpolicy": []}
    for module, path in _modules().items():
        parent = module if path.name == "__init__.py" else module.rpartition(".")[0]
        groups.setdefault(parent, []).append({module.rpartition(".")[2]: _reference_page(path)})
    return [{parent: pages} for parent, pages in groups.items()]


def _reference_page(path: Path) -> str:
    name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    return f"reference/{name}.md"


def _source_page(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    return f"project/{name.lower() if path.suffix == '.md' else name + '.md'}".replace("readme.md", "about.md")


def _source_text(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        listed = "".join(f"- `{each.name}`\n" for each in sorted(path.iterdir()) if not each.name.startswith("_"))
        return f"# {name}\n\nA folder of the repository:\n\n{listed}"
    text = path.read_text(encoding="utf-8")
    return text if path.suffix == ".md" else f"# {name}\n\n```{path.suffix[1:]}\n{text}\n```\n"


def _address(path: Path) -> str:
    """Where a file of the repository is in the site's sources."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return _reference_page(path) if path in _modules().values() else _source_page(path)


def _origin(source: str) -> Path:
    """The file of the repository that a page of the site is made from."""
    if not source.startswith("project/"):
        return DOCS / source
    return next(path for path in _candidates() if _source_page(path) == source)


def _candidates() -> list[Path]:
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in ("runs", "build", "site")]
        found += [Path(folder) / name for name in names] + [Path(folder)]
    return [path for path in found if path != ROOT]


def _resolve(origin: Path, target: str) -> Path | None:
    """The file of the repository that a link leads to, or None for an address."""
    if ":" in target or target.startswith("/"):
        return None
    found = Path(os.path.normpath((origin if origin.is_dir() else origin.parent) / target))
    return found if found.is_relative_to(ROOT) and found.exists() else None


def _outside(page: Path) -> list[Path]:
    """Files outside docs/ that a page links to."""
    text = "".join(FENCED.split(page.read_text(encoding="utf-8"))[::2])
    found = [_resolve(page, target) for _, target, _, _ in LINK.findall(text)]
    return [path for path in found if path is not None and not path.is_relative_to(DOCS)]
