"""Imports run one way: library <- plugins, by rank in the library, by an order among plugins, never between games."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RANKS = {
    **dict.fromkeys(["errors", "drawing", "encoding", "facets", "game", "chance", "sources", "files", "machine"], 0),
    **dict.fromkeys(["sequence", "registry", "config", "values", "cli", "options", "control"], 0),
    **dict.fromkeys(["declared_samplers", "schema", "yaml_text", "shipped", "folder_lock"], 0),
    "diffusion": 1,
    "networks": 2,
    **dict.fromkeys(["data", "search"], 3),
    "policies": 4,
    "training": 5,
    **dict.fromkeys(["testing"], 6),
}
ORDER = [
    "common",
    "alphabeta",
    "mcts",
    "engines",
    "labelling",
    "evaluation",
    "arena",
    "report",
    "experiments",
    "loop",
    "play",
    "ray",
]
"""Plugins that may import those before them, without the prefix ``genpolicy_``; every other plugin imports none."""
EXTENDS = {"policy_model": "policy_baselines"}
"""But that one of these extends another's learner."""
GAMES = {p.name for p in (ROOT / "games").iterdir() if (p / "__init__.py").exists()}
PLUGINS = {p.name for p in (ROOT / "plugins").iterdir() if (p / "__init__.py").exists()}
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


def library_wrongs(path: str, source: str) -> list[str]:
    """What a library module imports and must not."""
    rank = RANKS.get(path.split("/")[1].removesuffix(".py"), max(RANKS.values()))
    wrongs = []
    for name in imports(source):
        top, *rest = name.split(".")
        # The package itself offers load_policy, which is as high as policies.
        above = rest and (RANKS["policies"] if rest[0] == "load_policy" else RANKS.get(rest[0], 0)) > rank
        if top in GAMES | PLUGINS | GPL_LIBRARIES or (top == "genpolicy" and above):
            wrongs.append(name)
    return wrongs


def plugin_wrongs(package: str, source: str) -> list[str]:
    """What a game or plugin imports and must not."""
    place = package.removeprefix("genpolicy_")
    below = {f"genpolicy_{name}" for name in ORDER[: ORDER.index(place)]} if place in ORDER else set()
    below |= {f"genpolicy_{EXTENDS[place]}"} if place in EXTENDS else set()
    forbidden = (GAMES | PLUGINS) - {package} - below | (set() if package in GPL_PACKAGES else GPL_LIBRARIES)
    return [name for name in imports(source) if name.split(".")[0] in forbidden]


LIBRARY = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "genpolicy").rglob("*.py"))
PLUGIN_FILES = sorted(
    p.relative_to(ROOT).as_posix()
    for folder, names in (("games", GAMES), ("plugins", PLUGINS))
    for name in names
    for p in (ROOT / folder / name).rglob("*.py")
)


@pytest.mark.parametrize("path", LIBRARY)
def test_a_library_module_imports_what_lies_below(path: str) -> None:
    room = path.split("/")[1].removesuffix(".py")
    # The package's own door resolves names when they are called, the command's starts the command: neither has a rank.
    assert room in RANKS or room in ("__init__", "__main__"), (
        f"{path}: give {room!r} a rank here and in docs/architecture.md"
    )
    assert library_wrongs(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize("path", PLUGIN_FILES)
def test_a_plugin_imports_the_library_and_the_plugins_before_it(path: str) -> None:
    assert plugin_wrongs(path.split("/")[1], (ROOT / path).read_text()) == []


def test_the_law_sees_a_wrong_import() -> None:
    assert library_wrongs("genpolicy/diffusion/x.py", "def f():\n    from genpolicy.policies import base") == [
        "genpolicy.policies.base"
    ]
    assert library_wrongs("genpolicy/game.py", "from genpolicy import training") == ["genpolicy.training"]
    assert library_wrongs("genpolicy/data/x.py", "import genpolicy_connect.game") == ["genpolicy_connect.game"]
    assert library_wrongs("genpolicy/testing/x.py", "from genpolicy_play import web") == ["genpolicy_play.web"]
    assert library_wrongs("genpolicy/data/x.py", "import chess") == ["chess"]
    assert library_wrongs("genpolicy/data/x.py", "from genpolicy.game import Game") == []
    assert library_wrongs("genpolicy/data/x.py", "from genpolicy import load_policy") == ["genpolicy.load_policy"]
    assert plugin_wrongs("genpolicy_connect", "from genpolicy_chess import ChessGame") == ["genpolicy_chess.ChessGame"]
    assert plugin_wrongs("genpolicy_connect", "import genpolicy_play") == ["genpolicy_play"]
    assert plugin_wrongs("genpolicy_connect", "import chess.pgn") == ["chess.pgn"]
    assert plugin_wrongs("genpolicy_chess", "import chess.pgn") == []
    assert plugin_wrongs("genpolicy_arena", "import genpolicy_evaluation.players") == []
    assert plugin_wrongs("genpolicy_evaluation", "import genpolicy_arena") == ["genpolicy_arena"]
    assert plugin_wrongs("genpolicy_policy_model", "import genpolicy_policy_baselines") == []
    assert plugin_wrongs("genpolicy_policy_baselines", "import genpolicy_policy_model") == ["genpolicy_policy_model"]
    assert plugin_wrongs("genpolicy_play", "import genpolicy_policy_image") == ["genpolicy_policy_image"]


def test_ranks_and_order_are_those_of_the_architecture_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    table = page.split("| rank | modules |")[1].split("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row[2:3].isdigit()]
    assert {name: int(rank) for rank, names in rows for name in names.split(", ")} == RANKS
    text = " ".join(page.split())
    assert " -> ".join(ORDER) in text
    assert all(f"{below} -> {above}" in text for above, below in EXTENDS.items())
    assert {f"genpolicy_{name}" for name in ORDER} <= PLUGINS
