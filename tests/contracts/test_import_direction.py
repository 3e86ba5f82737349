"""Imports run one way: the core imports no game and no plugin, games never each other, and inside the core by rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RANKS = {
    **dict.fromkeys(["errors", "drawing", "encoding", "game", "sources", "tables", "packed"], 0),
    **dict.fromkeys(["sequence", "registry", "config", "values"], 0),
    "diffusion": 1,
    "networks": 2,
    **dict.fromkeys(["data", "search"], 3),
    "policies": 4,
    **dict.fromkeys(["training", "evaluation"], 5),
    **dict.fromkeys(["experiments", "play"], 6),
    **dict.fromkeys(["cli", "testing"], 7),
}
PLUGINS = {p.name for folder in ("games", "plugins") for p in (ROOT / folder).iterdir() if (p / "__init__.py").exists()}
GPL_LIBRARIES = {"chess", "cshogi"}
GPL_PACKAGES = {"genpolicy_chess", "genpolicy_shogi"}


def imports(source: str) -> Iterator[str]:
    """Dotted names that a module imports, wherever the import stands: in functions and for type checkers too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that this test can read them"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def core_wrongs(path: str, source: str) -> list[str]:
    """What a core module imports and must not."""
    rank = RANKS.get(path.split("/")[1].removesuffix(".py"), max(RANKS.values()))
    wrongs = []
    for name in imports(source):
        top, *rest = name.split(".")
        # The package itself offers load_policy, which is as high as policies.
        above = rest and (RANKS["policies"] if rest[0] == "load_policy" else RANKS.get(rest[0], 0)) > rank
        if top in PLUGINS | GPL_LIBRARIES or (top == "genpolicy" and above):
            wrongs.append(name)
    return wrongs


def plugin_wrongs(package: str, source: str) -> list[str]:
    """What a game or plugin imports and must not."""
    forbidden = PLUGINS - {package} | (set() if package in GPL_PACKAGES else GPL_LIBRARIES)
    return [name for name in imports(source) if name.split(".")[0] in forbidden]


CORE = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "genpolicy").rglob("*.py"))
PLUGIN_FILES = sorted(
    p.relative_to(ROOT).as_posix()
    for name in PLUGINS
    for folder in ("games", "plugins")
    for p in (ROOT / folder / name).rglob("*.py")
)


@pytest.mark.parametrize("path", CORE)
def test_a_core_module_imports_what_lies_below(path: str) -> None:
    room = path.split("/")[1].removesuffix(".py")
    # The package's own door resolves names when they are called, the command's starts the command: neither has a rank.
    assert room in RANKS or room in ("__init__", "__main__"), (
        f"{path}: give {room!r} a rank here and in docs/architecture.md"
    )
    assert core_wrongs(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize("path", PLUGIN_FILES)
def test_a_plugin_imports_the_core_alone(path: str) -> None:
    assert plugin_wrongs(path.split("/")[1], (ROOT / path).read_text()) == []


def test_the_law_sees_a_wrong_import() -> None:
    assert core_wrongs("genpolicy/diffusion/x.py", "def f():\n    from genpolicy.policies import base") == [
        "genpolicy.policies.base"
    ]
    assert core_wrongs("genpolicy/game.py", "from genpolicy import cli") == ["genpolicy.cli"]
    assert core_wrongs("genpolicy/data/x.py", "import genpolicy_connect.game") == ["genpolicy_connect.game"]
    assert core_wrongs("genpolicy/data/x.py", "import chess") == ["chess"]
    assert core_wrongs("genpolicy/data/x.py", "from genpolicy.game import Game") == []
    assert core_wrongs("genpolicy/data/x.py", "from genpolicy import load_policy") == ["genpolicy.load_policy"]
    assert plugin_wrongs("genpolicy_connect", "from genpolicy_chess import ChessGame") == ["genpolicy_chess.ChessGame"]
    assert plugin_wrongs("genpolicy_connect", "import chess.pgn") == ["chess.pgn"]
    assert plugin_wrongs("genpolicy_chess", "import chess.pgn") == []


def test_ranks_are_those_of_the_architecture_page() -> None:
    table = (ROOT / "docs/architecture.md").read_text().split("| rank | modules |")[1].split("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row[2:3].isdigit()]
    assert {name: int(rank) for rank, names in rows for name in names.split(", ")} == RANKS
