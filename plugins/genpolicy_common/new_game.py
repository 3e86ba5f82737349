"""``genpolicy new-game``: writes a package with a small complete game, to be changed into one's own."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path
from typing import Any

from genpolicy import registry
from genpolicy_common import NEW_GAME

SKELETON = Path(__file__).parent / "skeleton"
NAME, TITLE = "mygame", "MyGame"
"""How the skeleton writes the game's name, and the names of its classes."""


def add_parser(subparsers: Any) -> None:
    """Add ``new-game`` to the command line."""
    parser = subparsers.add_parser(
        "new-game",
        help=NEW_GAME.help,
        description="Write a Python package with a complete small game, its test, its configurations and a demo, to be "
        "changed into your own.",
    )
    parser.add_argument("name", metavar="NAME", help="name of the game: lower-case letters, digits and _")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="a new folder (default: ./genpolicy-NAME)")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    out = arguments.out or Path(f"genpolicy-{arguments.name}")
    write(arguments.name, out)
    print(f"{out}: hexapawn, to be changed into {arguments.name}. Next:")
    print(f"  cd {out} && pip install -e '.[test]' && python -m pytest tests")
    print(f"  genpolicy web --game {arguments.name} --open")
    print("The rules are in", next(out.glob("*/game.py")))
    return 0


def write(name: str, out: Path) -> None:
    """Write the skeleton of a game.

    Args:
        name: What configurations and the command line will call the game.
        out: Folder of the package, which must not exist or be empty.

    Raises:
        ValueError: the name cannot be a module's or is a game's already, or the folder is not empty.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(f"{name!r} cannot be a game's name: write lower-case letters, digits and _, a letter first")
    if name in registry.available("games"):
        raise ValueError(f"there is a game {name!r} already ({registry.origin('games', name)}); take another name")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: is not empty; name a new folder with --out")
    title = "".join(part.capitalize() for part in name.split("_"))
    for path in sorted(SKELETON.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            # What cannot be imported where it is, is not called a module there: ``__init__.py.txt``.
            target = out / str(path.relative_to(SKELETON)).replace(NAME, name).removesuffix(".txt")
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8").replace(NAME, name).replace(TITLE, title)
            target.write_text(text, encoding="utf-8")
