"""The command ``genpolicy``: one parser, whose subcommands are imported only when they are asked for.

``genpolicy --help`` and ``--version`` import neither torch nor a game. An error that a user can meet is one message on
stderr and exit status 2; ``--traceback`` anywhere on the line shows all of it. Ctrl-C is 130, a closed pipe is quiet.
What a user can get wrong is seen before the work where it can be: empty arguments, and files that cannot be written.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genpolicy import __version__
from genpolicy.errors import did_you_mean

OUTPUT_OPTIONS = ("json", "markdown", "plot")
"""Options of any subcommand that name a file of results; one with others lists them as ``output_options``."""
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


@dataclass(frozen=True)
class Command:
    """A subcommand: where it lives and the line that ``genpolicy --help`` shows of it."""

    module: str
    """Its module has ``add_parser(subparsers)``, whose parser sets ``run``, a function of the parsed arguments that
    gives an exit status or None for 0."""
    help: str


COMMANDS: dict[str, Command] = {
    "games": Command("genpolicy.cli", "list the installed games"),
    "policies": Command("genpolicy.cli", "list the installed policies and how to write them"),
    "perft": Command("genpolicy.cli", "count the positions a game reaches in so many moves"),
    "data": Command("genpolicy.data.commands", "make, import, label and look at data sets"),
    "train": Command("genpolicy.training.commands", "train a policy from a configuration"),
    "evaluate": Command("genpolicy.evaluation.commands", "measure policies on a data set"),
    "tournament": Command(
        "genpolicy.evaluation.arena.commands", "let policies and engines play each other, and rate them"
    ),
    "ratings": Command("genpolicy.evaluation.ratings_command", "rate players from files of games"),
    "experiment": Command("genpolicy.experiments.commands", "make the runs of a description and one table of them"),
    "play": Command("genpolicy.play.commands", "play against a policy in the terminal"),
    "show": Command("genpolicy.play.show.command", "draw what a policy imagines in a position, as SVG, PNG or GIF"),
    "engine": Command("genpolicy.play.engine.command", "serve a policy to a GUI, as a UCI or USI engine"),
    "web": Command("genpolicy.play.web.command", "play against policies in the browser, and see what they imagine"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status.

    Args:
        argv: Arguments without the program's name; None takes the process's.
    """
    # OpenMP's threads spin at their meeting points; where something else wants the core, that made training ten times
    # slower. It is read when torch is loaded, which is later.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = list(sys.argv[1:] if argv is None else argv)
    show_traceback = "--traceback" in arguments
    arguments = [argument for argument in arguments if argument != "--traceback"]
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # argparse's own: 0 after --help, 2 after a usage error
        return _exit_status(stop)
    except KeyboardInterrupt:
        print("\ngenpolicy: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader left (| head). Python flushes stdout once more at exit, which must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as error:
        if show_traceback:
            traceback.print_exc()
            return EXIT_ERROR
        if not _is_users(error):
            raise
        print(f"genpolicy: error: {_message(error)}", file=sys.stderr)
        return EXIT_ERROR


def _dispatch(arguments: list[str]) -> int:
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS)
        raise ValueError(f"no subcommand {name!r}.{hint} There are: {', '.join(COMMANDS)}")
    _refuse_empty(arguments)
    parser = _parser(name)
    parsed = parser.parse_args(arguments)
    check_outputs(parsed)
    if isinstance(seed := getattr(parsed, "seed", None), int) and seed < 0:
        raise ValueError(f"--seed must not be negative, got {seed}")
    run: Callable[[argparse.Namespace], int | None] | None = getattr(parsed, "run", None)
    if run is None:
        parser.print_help()
        return EXIT_ERROR
    return run(parsed) or 0


def _refuse_empty(arguments: Sequence[str]) -> None:
    """See that no argument is empty: as a path it would be the present folder, and it was never meant.

    Raises:
        ValueError: one is; the message names the option before it.
    """
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option = argument.removesuffix("=") if argument.startswith("--") and argument.endswith("=") else before
        if argument == "" or option != before:
            at = f"{option} was given an empty value" if option.startswith("-") else "an argument is empty"
            raise ValueError(f"{at}; is a variable of the shell unset?")


def check_outputs(parsed: argparse.Namespace) -> None:
    """``check_output`` for every file of results that a command line names.

    Raises:
        ValueError: as ``check_output``.
    """
    for option in (*OUTPUT_OPTIONS, *getattr(parsed, "output_options", ())):
        given = getattr(parsed, option, None)
        for path in given if isinstance(given, list) else [given]:
            if path is not None:
                check_output(f"--{option}", Path(path))


def check_output(option: str, path: Path) -> None:
    """See, before the work, that a file of results can be written; nothing is made.

    Raises:
        ValueError: its folder does not exist, or it or its folder may not be written to.
    """
    if path.is_dir():
        raise ValueError(f"{option} {path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: no folder {path.parent}; make it first, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{option} {path}: may not be written to; name another file")


def _parser(name: str | None) -> argparse.ArgumentParser:
    """The parser with one subcommand built in full, or, without a name, all of them by their help line alone."""
    parser = argparse.ArgumentParser(
        prog="genpolicy",
        description="Train, compare and play generative policies for board games.",
        epilog="genpolicy COMMAND --help tells more. --traceback may stand anywhere on the line.",
    )
    parser.add_argument("--version", action="version", version=f"genpolicy {__version__}")
    # ``main`` takes it out wherever it stands; here it is for --help.
    parser.add_argument("--traceback", action="store_true", help="show all of an error and not one message alone")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    if name is None:
        for each, command in COMMANDS.items():
            subparsers.add_parser(each, help=command.help)
    elif name in _OWN:
        _OWN[name](subparsers)
    else:
        importlib.import_module(COMMANDS[name].module).add_parser(subparsers)
    return parser


def _exit_status(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return EXIT_ERROR


def _is_users(error: Exception) -> bool:
    """Whether a user can trip it and one message is enough; anything else is our bug and shows its traceback."""
    from genpolicy.errors import EngineError, RegistryError

    return isinstance(error, ValueError | OSError | EngineError | RegistryError)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _add_games(subparsers: Any) -> None:
    parser = subparsers.add_parser("games", help=COMMANDS["games"].help)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the list there")
    parser.set_defaults(run=_games)


def _games(arguments: argparse.Namespace) -> int:
    from genpolicy import registry
    from genpolicy.evaluation.report import Report, write_json

    columns = ["game", "moves", "state tokens", "state symbols", "protocol", "specification"]
    table = Report("Installed games", columns, words=True)
    rows: list[dict[str, Any]] = []
    for name in registry.available("games"):
        try:
            game = registry.load_game(name)
        except (LookupError, ValueError) as error:
            rows.append({"game": name, "error": str(error)})
            table.add(name, "-", "-", "-", "-", str(error))
            continue
        numbers = {"moves": len(game.moves), "state_tokens": game.tokens.length, "symbols": len(game.tokens.symbols)}
        rows.append({"game": name, **numbers, "protocol": game.protocol, "spec": game.spec})
        table.add(name, *map(str, numbers.values()), game.protocol, game.spec)
    table.print()
    write_json(arguments.json, {"games": rows})
    return 0


def _add_policies(subparsers: Any) -> None:
    parser = subparsers.add_parser("policies", help=COMMANDS["policies"].help)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the list there")
    parser.set_defaults(run=_policies)


def _policies(arguments: argparse.Namespace) -> int:
    from genpolicy import registry
    from genpolicy.evaluation.report import Report, write_json

    table = Report("Installed policies", ["policy", "write it as", "what it does"], words=True)
    rows = []
    for name in registry.available("policies"):
        try:
            policy = registry.load("policies", name)
        except LookupError as error:
            rows.append({"policy": name, "error": str(error)})
            table.add(name, "-", str(error))
            continue
        about = (policy.__doc__ or "").strip().splitlines()[0]
        rows.append({"policy": name, "spelling": policy.spelling, "about": about})
        table.add(name, policy.spelling, about)
    table.print()
    write_json(arguments.json, {"policies": rows})
    return 0


def _add_perft(subparsers: Any) -> None:
    parser = subparsers.add_parser("perft", help=COMMANDS["perft"].help)
    parser.add_argument("--game", required=True, metavar="SPEC", help="e.g. chess or connect:rows=3,cols=3,k=3")
    parser.add_argument("--depth", type=int, required=True, metavar="N", help="moves to go down, at least 1")
    parser.add_argument("--position", metavar="TEXT", help="where to start; the initial position without it")
    parser.add_argument("--divide", action="store_true", help="the count below each first move")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the counts there")
    parser.set_defaults(run=_perft)


def _perft(arguments: argparse.Namespace) -> int:
    from genpolicy import registry
    from genpolicy.evaluation.report import write_json
    from genpolicy.testing import perft

    if arguments.depth < 1:
        raise ValueError(f"--depth must be at least 1, got {arguments.depth}")
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


_OWN: dict[str, Callable[[Any], None]] = {"games": _add_games, "policies": _add_policies, "perft": _add_perft}
