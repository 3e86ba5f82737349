"""``games``, ``policies`` and ``perft``, and where ``train`` is."""

from __future__ import annotations

from genpolicy.cli import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from genpolicy_common.tables import Report

GAMES = Command("list the installed games", "genpolicy_common.commands:add_games", "extend")
POLICIES = Command("list the installed policies and their syntax", "genpolicy_common.commands:add_policies", "extend")
PERFT = Command("count the positions a game reaches in N moves", "genpolicy_common.commands:add_perft", "extend")
TRAIN = Command("train a policy from a configuration", "genpolicy_common.train:add_parser", "train")


def add_games(subparsers: Any) -> None:
    """Add ``games`` to the command line."""
    from genpolicy_common.arguments import add_json

    parser = subparsers.add_parser("games", help=GAMES.help)
    parser.add_argument("--all", action="store_true", help="also list a package's games that cannot be played")
    add_json(parser, "the list")
    parser.set_defaults(run=_games)


def _games(arguments: argparse.Namespace) -> int:
    from genpolicy import registry
    from genpolicy_common.tables import Report, write_json

    columns = ["game", "moves", "state tokens", "state symbols", "protocol", "specification"]
    table = Report("Installed games", columns, words=True)
    rows: list[dict[str, Any]] = []
    collections: list[Report] = []
    for name in registry.available("games"):
        try:
            variants = _variants(name)
            if variants:
                rows.append({"game": name, "variants": variants})
                collections.append(_collection(name, variants, everything=arguments.all))
                table.add(name, *["-"] * 4, f"{list(variants.values()).count('')} games, see below")
                continue
            game = registry.load_game(name)
        except (LookupError, ValueError) as error:
            rows.append({"game": name, "error": str(error)})
            table.add(name, "-", "-", "-", "-", _short(error))
            continue
        numbers = {"moves": len(game.moves), "state_tokens": game.tokens.length, "symbols": len(game.tokens.symbols)}
        rows.append({"game": name, **numbers, "protocol": game.protocol, "spec": game.spec})
        table.add(name, *map(str, numbers.values()), game.protocol, game.spec)
    for report in (table, *collections):
        report.print()
    write_json(arguments.json, {"games": rows})
    return 0


def _short(error: Exception) -> str:
    """What a table says of an entry that cannot be loaded."""
    from genpolicy.errors import NotInstalledError

    return f"not installed: {error.way_out}" if isinstance(error, NotInstalledError) else str(error)


def _variants(name: str) -> Mapping[str, str]:
    """See ``Game.variants``; none of what is not a class."""
    from genpolicy import registry
    from genpolicy.game import Game

    made = registry.load("games", name)
    return made.variants() if isinstance(made, type) and issubclass(made, Game) else {}


def _collection(name: str, variants: Mapping[str, str], *, everything: bool) -> Report:
    """The table of a class that stands for many games."""
    from genpolicy_common.tables import Report

    columns = ["specification", "why it cannot be played"] if everything else ["specification"]
    report = Report(f"Games of {name}", columns, words=True)
    for spec, why in variants.items():
        if everything:
            report.add(spec, why or "-")
        elif not why:
            report.add(spec)
    left = sum(map(bool, variants.values()))
    report.notes = [] if everything or not left else [f"genpolicy games --all: why {left} others cannot be played"]
    return report


def add_policies(subparsers: Any) -> None:
    """Add ``policies`` to the command line."""
    from genpolicy_common.arguments import add_json

    parser = subparsers.add_parser("policies", help=POLICIES.help)
    add_json(parser, "the list")
    parser.set_defaults(run=_policies)


def _policies(arguments: argparse.Namespace) -> int:
    from typing import cast

    from genpolicy import registry
    from genpolicy.options import options_of
    from genpolicy_common.tables import Report, write_json

    table = Report("Installed policies", ["policy", "write it as", "what it does"], words=True)
    rows = []
    for name in registry.available("policies"):
        try:
            policy = registry.load("policies", name)
            options_of("policies", name)
        except LookupError as error:
            rows.append({"policy": name, "error": str(error)})
            table.add(name, "-", _short(error))
            continue
        about = next(iter((policy.__doc__ or "").strip().splitlines()), "").replace("``", "")
        rows.append({"policy": name, "spelling": policy.spelling, "about": about})
        table.add(name, policy.spelling, about)
    for name in registry.available("options"):
        group, _, owner = name.partition(".")
        if group not in registry.ONE_OF or owner not in registry.available(cast("registry.Group", group)):
            orphan = f"declares options of something that is not installed ({registry.origin('options', name)})"
            rows.append({"options": name, "error": orphan})
            table.add(name, "-", orphan)
    table.print()
    write_json(arguments.json, {"policies": rows})
    return 0


MAX_PERFT_DEPTH = 100
"""Beyond what any machine counts; each move is a level of recursion."""


def add_perft(subparsers: Any) -> None:
    """Add ``perft`` to the command line."""
    from genpolicy_common.arguments import add_json

    parser = subparsers.add_parser("perft", help=PERFT.help)
    parser.add_argument("--game", required=True, metavar="SPEC", help="e.g. chess or connect:rows=3,cols=3,k=3")
    parser.add_argument("--depth", type=int, required=True, metavar="N", help="moves to look ahead, at least 1")
    parser.add_argument("--position", metavar="TEXT", help="first position; default: the initial one")
    parser.add_argument("--divide", action="store_true", help="also print the count for each first move")
    add_json(parser, "the counts")
    parser.set_defaults(run=_perft)


def _perft(arguments: argparse.Namespace) -> int:
    from genpolicy import registry
    from genpolicy.testing import perft
    from genpolicy_common.tables import write_json

    if arguments.depth < 1:
        raise ValueError(f"--depth must be at least 1, got {arguments.depth}")
    if arguments.depth > MAX_PERFT_DEPTH:
        raise ValueError(f"--depth must be at most {MAX_PERFT_DEPTH}, got {arguments.depth}")
    game = registry.load_game(arguments.game)
    state = game.parse(arguments.position)
    below = {
        game.moves[int(move)]: perft(game, game.play(state, int(move)), arguments.depth - 1)
        for move in game.legal(state)
    }
    if arguments.divide:
        for move, count in below.items():
            print(f"{move}: {count}")
    total = sum(below.values())
    print(total)
    facts = {"game": game.spec, "position": game.format(state), "depth": arguments.depth, "nodes": total}
    write_json(arguments.json, {**facts, "divide": below})
    return 0
