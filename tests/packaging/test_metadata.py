"""What is installed with which extra."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import genpolicy

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_changelog_and_citation_are_of_this_version() -> None:
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest is not None
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert newest[1] == citation["version"] == genpolicy.__version__
    assert newest[2] == str(citation["date-released"])
    assert " AND ".join(citation["license"]) == PROJECT["license"]


def test_the_licence_of_each_game_is_named() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert all(f"`{folder.name}`" in text for folder in (ROOT / "games").glob("genpolicy_*"))


def installed(*extras: str) -> set[str]:
    """Names of the packages that ``genpolicy[extras]`` asks for."""
    names, todo = set(), [PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras)]
    for requirement in (line for lines in todo for line in lines):
        ((name, inner),) = re.findall(r"^([\w.-]+)(?:\[([\w,]+)\])?", requirement)
        names |= installed(*inner.split(",")) if name == "genpolicy" else {name}
    return names


@pytest.mark.parametrize(("game", "own"), [("chess", "chess"), ("shogi", "cshogi")])
def test_a_demo_installs_its_game_and_no_other(game: str, own: str) -> None:
    assert f"-e '.[{game},web]'".replace(game, "$(GAME)") in (ROOT / "Makefile").read_text()
    packages = installed(game, "web")
    assert packages & {"chess", "cshogi", "playwright", "tensorboard", "matplotlib", "pytest", "transformers"} == {own}


def test_all_is_every_extra_of_a_user() -> None:
    assert installed("all") == installed(*(set(EXTRAS) - {"all", "test", "bench", "docs", "dev"}))


def test_extras_that_messages_and_pages_name_exist() -> None:
    files = [p for top in ("genpolicy", "plugins", "games", "docs") for p in (ROOT / top).rglob("*.[pm][yd]")]
    named = {
        extra
        for path in [*files, ROOT / "README.md"]
        for extras in re.findall(r"genpolicy\[([\w,]+)\]'", path.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    }
    assert {"web", "plot", "tensorboard"} <= named <= set(EXTRAS)


def test_every_package_of_the_wheel_is_checked_by_mypy() -> None:
    wheel = {Path(folder).name for folder in SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    assert wheel - {"configs"} == set(SETTINGS["tool"]["mypy"]["packages"])
