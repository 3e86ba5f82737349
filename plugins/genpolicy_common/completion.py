"""``genpolicy completion``: prints what bash or zsh needs to complete subcommands, options and their choices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from genpolicy import registry
from genpolicy.cli import make_parser
from genpolicy_common import COMPLETION

HOW = """\
Print the completion of genpolicy for a shell. Put it where the shell looks for completions:

  genpolicy completion bash > ~/.local/share/bash-completion/completions/genpolicy
  genpolicy completion zsh > ~/.zfunc/_genpolicy          # a folder of $fpath

and open a new shell. Run it again after you install a package that adds subcommands."""


def add_parser(subparsers: Any) -> None:
    """Add ``completion`` to the command line."""
    parser = subparsers.add_parser(
        "completion", help=COMPLETION.help, description=HOW, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise ValueError("completion needs the module 'shtab': pip install 'genpolicy[completion]'") from error
    parser = make_parser([name for name in registry.available("commands") if "." not in name])
    for action in _arguments(parser):
        if action.nargs != 0 and action.choices is None:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # names and numbers are typed, paths completed
    print(shtab.complete(parser, arguments.shell))
    return 0


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of a parser and of its subcommands; shtab, too, reads argparse's own lists."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _arguments(each)
        else:
            yield action
