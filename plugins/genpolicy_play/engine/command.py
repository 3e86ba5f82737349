"""``genpolicy engine``: serve a policy to a GUI over UCI or USI."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

from genpolicy_common.arguments import add_device

MAX_LINE_BYTES = 8 << 20
"""No GUI writes a longer line; those are skipped."""
CHUNK_BYTES = 1 << 16
SWITCH_S = 0.001
"""Interval of Python's thread switches: behind a search written in Python, the reader would answer late."""


def add_parser(subparsers: Any) -> None:
    """Add ``engine`` to the command line."""
    parser = subparsers.add_parser("engine", help="serve a policy to a GUI, as a UCI or USI engine")
    parser.add_argument("--policy", required=True, metavar="P", help="a policy's folder or spelling, e.g. random")
    parser.add_argument("--game", metavar="SPEC", help="the game, for a policy without a folder, e.g. chess")
    add_device(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until ``quit`` or the end of the input; the exit status.

    Raises:
        ValueError: no such game, or one without an engine protocol.
        LookupError: no such policy.
    """
    from genpolicy import registry
    from genpolicy.policies.base import policy_spec
    from genpolicy_play.engine.host import Host
    from genpolicy_play.engine.process import Output, pause_garbage_collection
    from genpolicy_play.engine.protocol import DIALECTS

    # Imports make objects that stay: collections that visit them again and again take a fifth of the start.
    pause_garbage_collection()
    spec = policy_spec(arguments.policy, arguments.game)
    if spec.game is None:
        raise ValueError(f"policy {arguments.policy!r} works for any game: name one, e.g. --game chess")
    game = registry.load_game(spec.game)
    if arguments.game is not None and (asked := registry.load_game(arguments.game)).spec != game.spec:
        raise ValueError(f"--game: policy {arguments.policy!r} plays {game.spec!r}, not {asked.spec!r}; leave it out")
    if game.protocol not in DIALECTS:
        names = ", ".join(DIALECTS)
        raise ValueError(
            f"game {game.spec!r} has no engine protocol (there are: {names}), so no GUI can play it; "
            f"use: genpolicy play --policy {arguments.policy}"
        )
    output = Output.claim()
    from genpolicy_play.engine.server import Server

    sys.setswitchinterval(SWITCH_S)
    host = Host(spec, game, arguments.device)

    def leave(status: int) -> None:
        # At once: it waits for no thread, and ends whatever still computes.
        host.close()
        sys.stderr.flush()
        os._exit(status)

    status = Server(host, DIALECTS[game.protocol], output, leave).run(read_lines(0))
    leave(status)
    return status


def read_lines(descriptor: int) -> Iterator[bytes | None]:
    """Lines as they arrive, with either line ending; None in place of one that is longer than ``MAX_LINE_BYTES``."""
    rest, skipping = b"", False
    while chunk := os.read(descriptor, CHUNK_BYTES):
        *lines, last = (rest + chunk).split(b"\n") if b"\n" in chunk else [rest + chunk]
        for line in lines:
            if not skipping:
                yield line.rstrip(b"\r")
            skipping = False
        rest = last
        if len(rest) > MAX_LINE_BYTES:
            if not skipping:
                yield None
            rest, skipping = b"", True
    if rest and not skipping:
        yield rest.rstrip(b"\r")
