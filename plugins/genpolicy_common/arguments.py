"""Arguments that several subcommands take, under the same names everywhere; older names stay as hidden aliases."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genpolicy.options import PolicySpec

AUTO = "auto"
MAX_SHOWN = 5
"""Most examples of what was left out, or went wrong, that messages list; the others are counted."""


def add_alias(parser: argparse.ArgumentParser, old: str, action: argparse.Action) -> None:
    """Let an argument also be given under an older name, which the help does not show.

    Args:
        parser: Where it was added.
        old: The older option, such as ``--from``; a name without dashes stands for a positional argument.
        action: What ``add_argument`` returned for the argument; it is not ``required``.
    """
    hidden: Any = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    read: Any = action.type or str  # positional arguments and options read a text alike
    if old.startswith("-"):
        parser.add_argument(old, dest=action.dest, nargs=action.nargs, type=read, **hidden)
    else:
        # argparse reads the default of a positional argument, too, and must find it as it was.
        kind: Any = lambda text: text if text is argparse.SUPPRESS else read(text)  # noqa: E731
        parser.add_argument(action.dest, nargs="?", metavar=old, type=kind, **hidden)


def add_data(parser: argparse.ArgumentParser, kind: Callable[[str], Any] = Path, *, old: str = "FOLDER") -> None:
    """Add ``--data`` (as ``folder``), which may also stand without the option.

    Args:
        parser: Of a subcommand that works on one data set.
        kind: What reads the text.
        old: What the positional argument is called.
    """
    action = parser.add_argument(
        "--data", dest="folder", type=kind, metavar="FOLDER", help="a data set (FOLDER or sample:GAME)"
    )
    add_alias(parser, old, action)


def require(given: Any, option: str, example: str) -> None:
    """Check that an argument with an older name was given under one of its names.

    Raises:
        ValueError: it was not.
    """
    if given is None:
        raise ValueError(f"{option} is missing, e.g. {option} {example}")


def add_json(parser: Any, what: str = "the figures") -> None:
    """Add ``--json``."""
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help=f"also write {what} to a JSON file; - for standard output"
    )


def add_cluster(parser: Any) -> None:
    """Add ``--cluster``."""
    parser.add_argument(
        "--cluster",
        type=_address,
        metavar="ADDRESS",
        help="run on a cluster: its address, or local to start one on this machine (default: processes of this "
        "command); --parallel is then the number of workers",
    )


def _address(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("takes local, or the address of a cluster")
    return text


def add_device(parser: Any) -> None:
    """Add ``--device``; ``settle_device`` makes a device of it."""
    parser.add_argument(
        "--device",
        default=AUTO,
        help="device for networks: auto (default: a CUDA GPU if there is one, else the CPU), cpu, cuda, cuda:1, mps",
    )


def device_for(name: str, policies: Iterable[PolicySpec]) -> str:
    """The device of a name: of ``auto``, a CUDA GPU where there is one and a policy has a network, else the CPU."""
    if name != AUTO:
        return name
    if not have_network(policies):
        return "cpu"  # torch takes seconds to import
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def have_network(policies: Iterable[PolicySpec]) -> bool:
    """Whether one of the policies has a network, or holds one that may have."""
    return any(spec.config is not None or spec.inside for spec in policies)


def settle_device(arguments: argparse.Namespace, policies: Iterable[str]) -> None:
    """Replace ``--device auto`` by a device; ``say_device`` prints it once everything has been checked.

    Args:
        arguments: Holds ``device``, which is changed.
        policies: Folders, names or spellings.
    """
    from genpolicy.policies.base import policy_spec

    specs = [policy_spec(text) for text in policies] if arguments.device == AUTO else []
    if have_network(specs):
        arguments.device_note = f"genpolicy: networks run on {device_for(AUTO, specs)} (--device)"
    arguments.device = device_for(arguments.device, specs)


def say_device(arguments: argparse.Namespace) -> None:
    """Print on stderr which device ``auto`` has become, if one of the policies has a network."""
    if note := vars(arguments).pop("device_note", None):
        print(note, file=sys.stderr)


def first_of(texts: Sequence[str], more: str) -> list[str]:
    """The first ``MAX_SHOWN`` texts and, if there are others, ``more``, in which ``{}`` stands for their number."""
    return [*texts[:MAX_SHOWN], *([more.format(len(texts) - MAX_SHOWN)] if len(texts) > MAX_SHOWN else [])]


def say(text: str) -> None:
    """Print a line to stderr, at once."""
    print(text, file=sys.stderr, flush=True)
