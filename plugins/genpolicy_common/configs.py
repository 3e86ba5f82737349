"""``genpolicy configs``: lists the shipped configurations, or prints one to start from."""

from __future__ import annotations

import argparse
from typing import Any

from genpolicy.shipped import config_file, shipped
from genpolicy_common import CONFIGS
from genpolicy_common.arguments import add_json
from genpolicy_common.tables import Report, write_json


def add_parser(subparsers: Any) -> None:
    """Add ``configs`` to the command line."""
    parser = subparsers.add_parser(
        "configs",
        help=CONFIGS.help,
        description="List the shipped configurations, or print one, for example "
        "`genpolicy configs chess/demo > mine.yaml`.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this one, e.g. chess/demo")
    add_json(parser, "the list")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.name is not None:
        print(config_file(arguments.name).read_text(encoding="utf-8"), end="")
        return 0
    table = Report("Shipped configurations, samples and policies", ["name", "what it is"], words=True)
    rows = []
    for name, path in shipped().items():
        if name.startswith("sample:"):
            about = "labelled positions, a value of --data and of data.folder"
        elif name.startswith("policy:"):
            about = f"a trained policy, opened by --policy {path.name}"
        else:
            about = first_sentence(path.read_text(encoding="utf-8"))
        rows.append({"name": name, "path": str(path), "about": about})
        table.add(name, about)
    table.print()
    write_json(arguments.json, {"configs": rows})
    return 0


def first_sentence(text: str) -> str:
    """The first sentence of the comment that a YAML file begins with."""
    words: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        for word in line.lstrip("# ").split():
            words.append(word)
            if word.endswith(".") and word != "al.":
                return " ".join(words).rstrip(".")
    return " ".join(words)
