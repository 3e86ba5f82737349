"""``genpolicy web``: a page on this computer to play against policies and watch them think."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any, NoReturn

from genpolicy_common.arguments import add_device, say_device, settle_device

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000
SWITCH_S = 0.001
"""Interval of Python's thread switches: behind a search written in Python, the event loop would answer late."""


def add_parser(subparsers: Any) -> None:
    """Add ``web`` to the command line."""
    parser = subparsers.add_parser(
        "web",
        help="play against policies in the browser",
        description="Serves a page to play against policies and see what they imagine. Without --policy it offers "
        "the shipped ones and those that need no training. The page loads nothing from other hosts. Ctrl-C ends it.",
    )
    parser.add_argument(
        "--policy",
        action="extend",
        nargs="+",
        metavar="P",
        help="folders, names or spellings of policies; may be given several times",
    )
    parser.add_argument(
        "--game",
        action="append",
        metavar="SPEC",
        help="a game to offer, and the game of policies without a folder, e.g. chess; repeatable",
    )
    parser.add_argument(
        "--ratings",
        type=Path,
        metavar="FILE",
        help="show the policies' Elo: what genpolicy tournament --json FILE or genpolicy ratings --json FILE wrote",
    )
    parser.add_argument("--host", default=DEFAULT_HOST, help=f"address to listen on; default {DEFAULT_HOST}")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"port, 0 for any free one; default {DEFAULT_PORT}"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="another name under which browsers reach the server; repeatable",
    )
    add_device(parser)
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C; the exit status.

    Raises:
        ValueError: the extra is missing, the address cannot be used, or a policy is wrong.
        LookupError: no such policy or game.
    """
    require_extra()
    from genpolicy_play.web.middleware import is_loopback
    from genpolicy_play.web.serving import listen

    with listen(arguments.host, arguments.port) as bound:
        if not is_loopback(bound.getsockname()[0]):
            print(
                f"genpolicy web: warning: with --host {arguments.host} anybody who can reach this computer can use the "
                "policies; there is no password",
                file=sys.stderr,
                flush=True,
            )
        _serve(bound, arguments)


def _serve(bound: socket.socket, arguments: argparse.Namespace) -> NoReturn:
    """Load, serve, and end the process."""
    from genpolicy_play.web.app import make_app
    from genpolicy_play.web.catalog import make_catalog
    from genpolicy_play.web.deciding import warm_up
    from genpolicy_play.web.middleware import Hosts
    from genpolicy_play.web.queue import DecisionQueue
    from genpolicy_play.web.serving import serve, url_of

    sys.setswitchinterval(SWITCH_S)
    from genpolicy.shipped import shipped_policies

    settle_device(arguments, arguments.policy or shipped_policies())
    catalog = make_catalog(arguments.policy or [], arguments.game or [], arguments.device, arguments.ratings)
    try:
        for offer in catalog.policies.values():
            warm_up(offer)
        queue, url = DecisionQueue(), url_of(bound)
        app = make_app(catalog, queue, Hosts(arguments.host, arguments.allow_host or ()))

        def announce() -> None:
            say_device(arguments)
            for note in catalog.notes:
                print(note)
            for offer in catalog.policies.values():
                print(f"  {offer.game.view.title}: {offer.label}")
            print(f"genpolicy web: {url}  (Ctrl-C ends it)", flush=True)
            if arguments.open:
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

        loop = serve(app, bound, announce)
        queue.close()
    finally:
        catalog.close()
    # At once: it waits neither for answers of the event loop nor for a thread in a network call.
    sys.stdout.flush()
    sys.stderr.flush()
    assert not loop.is_closed()
    os._exit(0)


def require_extra() -> None:
    """Check that the extra is installed.

    Raises:
        ValueError: it is not.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f"the web board needs the module {error.name!r}: pip install 'genpolicy[web]'") from error
