"""The command ``genpolicy``: one parser, whose subcommands are entry points and imported only when they are run.

``genpolicy --help`` and ``--version`` import neither torch nor a game, nor anything else that is slow to import. An
error that a user can meet is one message on stderr and exit status 2; ``--traceback`` anywhere on the line shows the
traceback. Ctrl-C exits with 130, SIGTERM with 143, SIGHUP with 129, a closed pipe quietly. What can be checked before
the work is checked before it: empty arguments, and files that cannot be written.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from genpolicy import __version__, registry
from genpolicy.errors import EngineError, RegistryError, did_you_mean, lacks_memory, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from genpolicy.registry import Entry

OUTPUT_OPTIONS = ("json", "markdown", "plot")
"""Options of any subcommand that name a file of results; one with others lists them as ``output_options``."""
GROUPS = ("play", "train", "evaluate", "data", "share", "extend")
"""In what order ``genpolicy --help`` shows groups of subcommands; other groups follow."""
EPILOG = """examples:
  genpolicy web --open                                                  play in the browser
  genpolicy train --config chess/demo --out runs/mine                   train a policy
  genpolicy evaluate accuracy --policy runs/mine --data sample:chess    measure it

genpolicy COMMAND --help describes a command. --traceback may appear anywhere on the line."""
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE
STOPPING = ("SIGTERM", "SIGHUP")
"""Signals that end a command as Ctrl-C does: it closes what it has opened, and says what is kept."""


class StoppedError(KeyboardInterrupt):
    """One of ``STOPPING`` came; a handler of Ctrl-C need not tell them apart."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Command:
    """A subcommand; an entry point of group ``genpolicy.commands`` names one.

    The entry point ``evaluate.accuracy`` adds the verb ``accuracy`` to the subcommand ``evaluate``, whose own
    ``add_parser`` calls ``add_verbs``. A package that lists its subcommands should not import anything large where it
    makes them: ``genpolicy --help`` loads them all.

    Args:
        help: The line that ``genpolicy --help`` shows.
        parser: ``add_parser(subparsers)``, or where to import it from, as ``package.module:add_parser``. It adds a
            parser that sets ``run``, a function of the parsed arguments that returns an exit status or None for 0.
        group: Under which heading ``genpolicy --help`` lists it: one of ``GROUPS``, or another.
    """

    def __init__(self, help: str, parser: str | Callable[[Any], None], group: str = "other") -> None:
        self.help, self.parser, self.group = help, parser, group

    def add_parser(self, subparsers: Any) -> None:
        """Add the parser; imports what ``parser`` names."""
        add_parser = self.parser
        if isinstance(add_parser, str):
            module, _, function = add_parser.partition(":")
            add_parser = getattr(importlib.import_module(module), function or "add_parser")
        add_parser(subparsers)


def _load(point: Entry) -> Command:
    """The subcommand of an entry of the group ``commands``."""
    command = registry.load_point("commands", point)
    if not isinstance(command, Command):
        raise registry.wrong_thing("commands", point.name, command, "a genpolicy.cli.Command")
    return command


def _add(point: Entry, subparsers: Any) -> None:
    """Add the parser of an entry of the group ``commands``."""
    command, verb = _load(point), point.name.rpartition(".")[2]
    try:
        command.add_parser(subparsers)
        if verb not in subparsers.choices:
            raise ValueError(f"it adds no parser {verb!r}, only {', '.join(subparsers.choices) or 'none'}")
    except (Exception, SystemExit) as error:  # a third party's function may raise anything
        named = registry.named("commands", point.name, point)
        raise RegistryError(f"{named} cannot add its parser: {type(error).__name__}: {error}") from error


def add_verbs(verbs: Any, command: str) -> None:
    """Add the verbs ``command.*`` that are registered as entry points; one that cannot be loaded is reported.

    Args:
        verbs: What ``parser.add_subparsers`` returned.
        command: The subcommand's name.
    """
    for name, point in registry.available("commands").items():
        if name.startswith(f"{command}."):
            try:
                _add(point, verbs)
            except RegistryError as error:
                print(f"genpolicy: warning: {error}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status.

    Args:
        argv: Arguments without the program's name; None takes the process's.
    """
    # OpenMP's threads spin while they wait for each other; where another process wants the core, that made training
    # ten times slower. OpenMP reads this when torch is loaded, which is later.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _open_missing_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    with stopped_by_signals() as handled:
        return _run(arguments, [signal.SIGINT, *handled] if argv is None else [])


def _run(arguments: list[str], stopping: Sequence[int]) -> int:
    """Run a command line; once it is stopped, each of the signals ``stopping`` ends the process."""
    show_traceback = "--traceback" in arguments
    arguments = [argument for argument in arguments if argument != "--traceback"]
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # argparse's own: 0 after --help, 2 after a usage error
        return _exit_status(stop)
    except KeyboardInterrupt as stop:
        for number in stopping:  # a second one would show where the process was while it waits for others
            signal.signal(number, signal.SIG_DFL)
        print(f"\ngenpolicy: {str(stop) or 'interrupted'}", file=sys.stderr)
        return 128 + stop.number if isinstance(stop, StoppedError) else EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader is gone (| head). Python flushes stdout once more at exit, which must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as error:
        if show_traceback:
            import traceback

            traceback.print_exc()
            return EXIT_ERROR
        if not _is_users(error):
            raise
        print(f"genpolicy: error: {printable(_message(error))}", file=sys.stderr)
        return EXIT_ERROR


@contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Inside, those of ``STOPPING`` that nobody ignores or handles raise a ``StoppedError``; yields their numbers."""

    def stop(number: int, _frame: object) -> None:
        raise StoppedError(number)

    numbers: list[int] = []
    if threading.current_thread() is threading.main_thread():  # others cannot handle signals
        numbers = [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]  # Windows has no SIGHUP
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]  # nohup ignores SIGHUP
    for number in numbers:
        signal.signal(number, stop)
    try:
        yield numbers
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that is closed (``>&-``), so that no other file gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _dispatch(arguments: list[str]) -> int:
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    known = {each: point for each, point in registry.available("commands").items() if "." not in each}
    if name is not None and name not in known:
        hint = did_you_mean(name, known)
        raise ValueError(f"no subcommand {name!r}.{hint} There are: {', '.join(known)}")
    _refuse_empty(arguments)
    parser = make_parser([] if name is None else [name])
    parsed = parser.parse_args(arguments)
    if isinstance(seed := getattr(parsed, "seed", None), int) and seed < 0:
        raise ValueError(f"--seed must not be negative, got {seed}")
    run: Callable[[argparse.Namespace], int | None] | None = getattr(parsed, "run", None)
    if run is None:
        parser.print_help()
        return EXIT_ERROR
    with _json_on_stdout(parsed):
        check_outputs(parsed)
        status = run(parsed)
    if not isinstance(status, int | None):
        raise RegistryError(f"{registry.named('commands', str(name), run)} gave {status!r}, not an exit status")
    return status or 0


@contextmanager
def _json_on_stdout(parsed: argparse.Namespace) -> Iterator[None]:
    """Let ``--json -`` write to standard output, alone: what else the subcommand prints goes to stderr."""
    if str(getattr(parsed, "json", None)) != "-":
        yield
        return
    import tempfile
    from contextlib import redirect_stdout

    with tempfile.TemporaryDirectory() as folder:
        parsed.json = type(parsed.json)(path := os.path.join(folder, "json"))
        with redirect_stdout(sys.stderr):
            yield
        if os.path.exists(path):
            with open(path, encoding="utf-8") as made:
                print(made.read(), end="")


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse empty arguments: as a path, one would mean the current folder, which nobody meant."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option = argument.removesuffix("=") if argument.startswith("--") and argument.endswith("=") else before
        if argument == "" or option != before:
            at = f"{option} was given an empty value" if option.startswith("-") else "an argument is empty"
            raise ValueError(f"{at}; is a shell variable unset?")


def check_outputs(parsed: argparse.Namespace) -> None:
    """``check_output`` for every file of results that a command line names.

    Raises:
        ValueError: as ``check_output``, or one file is named twice.
    """
    from pathlib import Path

    named: dict[Path, str] = {}
    for option in (*OUTPUT_OPTIONS, *getattr(parsed, "output_options", ())):
        given = getattr(parsed, option, None)
        for path in given if isinstance(given, list) else [given]:
            if path is not None:
                check_output(f"--{option}", Path(path))
                before = named.setdefault(Path(path).resolve(), option)
                if before != option and (Path(path).is_file() or not Path(path).exists()):  # not /dev/null
                    raise ValueError(f"--{option} {path}: --{before} names it, too; name another file")


def check_output(option: str, path: Path) -> None:
    """Check before the work that a file of results can be written; nothing is created.

    Raises:
        ValueError: its folder does not exist, or it or its folder may not be written to.
    """
    if path.is_dir():
        raise ValueError(f"{option} {path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}; make it first, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{option} {path}: you may not write to it; name another file")


class _Parser(argparse.ArgumentParser):
    """A parser that names the near verb or option where one is misspelt."""

    verbs: Any = None

    def add_subparsers(self, **settings: Any) -> Any:
        self.verbs = super().add_subparsers(**settings)
        return self.verbs

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        first = args[0] if args else "-"
        if self.verbs is not None and not first.startswith("-") and first not in self.verbs.choices:
            hint = did_you_mean(first, self.verbs.choices)
            raise ValueError(f"{self.prog}: no verb {first!r}.{hint} There are: {', '.join(self.verbs.choices)}")
        options = [option for option in self._option_string_actions if option.startswith("--")]
        for argument in () if self.verbs is not None or "--" in (args or ()) else args or ():
            name = argument.partition("=")[0]
            if argument.startswith("--") and not any(option.startswith(name) for option in options):
                raise ValueError(f"{self.prog}: no option {name}.{did_you_mean(name, options)} --help lists them")
        return super().parse_known_args(args, namespace)


def make_parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with some subcommands built in full, or, without names, all of them by their help lines alone."""
    parser = _Parser(
        prog="genpolicy",
        usage=None if names else "genpolicy [--version] [--traceback] COMMAND ...",
        description="Train, compare and play generative policies for board games.",
        epilog=EPILOG,
        formatter_class=_formatter,
    )
    known = registry.available("commands")
    if names:
        subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
        for name in names:
            _add(known[name], subparsers)
            for each in known if subparsers.choices[name].verbs is None else ():
                if each.startswith(f"{name}."):
                    where = registry.origin("commands", each)
                    print(f"genpolicy: warning: {each!r} ({where}): {name!r} takes no verbs", file=sys.stderr)
    else:
        groups = _help_lines(known)
        for group in sorted(groups, key=lambda each: (GROUPS.index(each) if each in GROUPS else len(GROUPS), each)):
            section = parser.add_argument_group(group)
            for each, line in groups[group].items():
                section.add_argument(each, nargs="?", help=line.replace("%", "%%"))  # argparse formats with %
    parser.add_argument("--version", action="version", version=f"genpolicy {__version__}")
    # ``main`` takes it out wherever it stands; here it is for --help.
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error, not just a message")
    return parser


def _help_lines(known: Mapping[str, Entry]) -> dict[str, dict[str, str]]:
    """The help line of every subcommand, by group; of one that cannot be loaded, why."""
    groups: dict[str, dict[str, str]] = {}
    for each, point in known.items():
        base = each.partition(".")[0]
        try:
            if each == base:
                command = _load(point)
                groups.setdefault(command.group, {})[each] = command.help
            elif base not in known:
                raise RegistryError(f"there is no subcommand {base!r} ({registry.origin('commands', each)})")
        except RegistryError as error:
            groups.setdefault("not usable", {})[each] = f"(not usable: {error})"
    return groups


def _formatter(prog: str) -> argparse.HelpFormatter:
    """A formatter as wide as the terminal; argparse would import shutil, and so three compressors, to find that out."""
    try:
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except (ValueError, OSError):  # not a terminal
        columns = 80
    return argparse.RawDescriptionHelpFormatter(prog, width=columns - 2)


def _exit_status(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return EXIT_ERROR


def _is_users(error: Exception) -> bool:
    """Whether one message is enough, because a user can cause it; anything else is our bug and shows its traceback."""
    return isinstance(error, ValueError | OSError | EngineError | RegistryError) or lacks_memory(error)


def _message(error: Exception) -> str:
    if lacks_memory(error):
        first = str(error).partition("\n")[0] or type(error).__name__
        return f"too little memory ({first}); what was finished is safe"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
