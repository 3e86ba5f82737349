"""A subcommand: how many moves each side has."""

import argparse
from typing import Any

from genpolicy.cli import Command


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("mobility", help=MOBILITY.help)
    parser.add_argument("--game", required=True, metavar="SPEC")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from genpolicy import load_game

    game = load_game(arguments.game)
    state = game.parse()
    print(f"{game.players[game.player(state)]} has {len(game.legal(state))} moves")


MOBILITY = Command("count the legal moves of the initial position", add_parser)
