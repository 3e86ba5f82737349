"""The policies of a command line: how they are written, their options, and their names in tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genpolicy.shipped import policy_folder
from genpolicy_common.arguments import add_device, say_device, settle_device

if TYPE_CHECKING:
    from genpolicy.game import Game
    from genpolicy.policies.base import Policy


@dataclass(frozen=True)
class Player:
    """A policy as it is measured."""

    name: str
    """In tables; no two players of one command have the same."""
    spec: str
    """The folder or spelling that it was loaded from."""
    policy: Policy
    mode: str = ""
    """Which of ``Policy.modes``; empty where it has one only, or where modes are not told apart."""


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--policy`` and the options that policies accept."""
    parser.add_argument(
        "--policy", action="append", nargs="+", required=True, metavar="P", help="folders or spellings of policies"
    )
    parser.add_argument(
        "--sampler", action="append", metavar="NAME", help="sampler of diffusion policies; may be given several times"
    )
    parser.add_argument("--num-steps", type=int, metavar="N", help="network calls of a diffusion policy's sampler")
    parser.add_argument(
        "--temperature", type=float, metavar="X", help="sampling temperature; 0 takes the likeliest move"
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="maximum number of positions per network call")
    add_device(parser)
    parser.add_argument("--seed", type=int, default=0, help="random seed for positions and sampling (default 0)")


OPTIONS = ("sampler", "num_steps", "temperature", "batch_size")
"""Options of the command line; each goes to the policies that take it."""


def check_options(policies: Mapping[str, Policy], arguments: argparse.Namespace) -> None:
    """See that each option given is taken by some policy, and say which policies do not take it.

    Raises:
        ValueError: none takes it.
    """
    for option in OPTIONS:
        if getattr(arguments, option) is None:
            continue
        flag = f"--{option.replace('_', '-')}"
        without = [name for name, policy in policies.items() if option not in policy.option_names()]
        if len(without) == len(policies):
            kinds = ", ".join(dict.fromkeys(f"{name} ({policy.kind})" for name, policy in policies.items()))
            raise ValueError(f"{flag}: none of these policies has that option: {kinds}; omit it")
        if without:
            print(
                f"genpolicy evaluate: {flag} is not an option of {', '.join(without)}; they play without it",
                file=sys.stderr,
            )


def options_of(policy: Policy, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The options of the command line that a policy takes, once for each ``--sampler`` where it takes one."""
    known = policy.option_names()
    given = {key: value for key in OPTIONS if key in known and (value := getattr(arguments, key)) is not None}
    return [{**given, "sampler": sampler} for sampler in given.get("sampler") or ()] or [given]


def specs_of(arguments: argparse.Namespace) -> list[str]:
    """The policies as they were written; ``--policy`` may be repeated and may name several."""
    return [spec for group in arguments.policy for spec in group]


def find_game(given: str | None, specs: Sequence[str]) -> Game[Any]:
    """The game that was asked for, or else the one that the policies' folders were trained for.

    Raises:
        ValueError: neither is known.
        CheckpointError: a damaged folder.
    """
    from genpolicy.policies.base import read_policy_config
    from genpolicy.registry import load_game

    if given is not None:
        return load_game(given)
    for spec in specs:
        head = spec.partition("?")[0]
        for folder in (head, head.partition(":")[2]):  # a search is spelled kind:FOLDER
            if folder and (path := policy_folder(folder)) is not None:
                game = read_policy_config(path).get("game")
                if isinstance(game, str):
                    return load_game(game)
    raise ValueError(f"{', '.join(specs)}: the game is not known; name it, e.g. --game chess")


def names_of(specs: Sequence[str]) -> list[str]:
    """A name for each policy in tables: its run's where it is a folder, else as it was written.

    Policies that would have the same name keep the whole of what was written, and numbers where even that is the same.
    """
    short = [_short_name(spec) for spec in specs]
    names = [name if short.count(name) == 1 else spec for name, spec in zip(short, specs, strict=True)]
    return [name if names.count(name) == 1 else f"{name} #{names[: i + 1].count(name)}" for i, name in enumerate(names)]


def _short_name(spec: str) -> str:
    head, mark, query = spec.partition("?")
    found = policy_folder(head)
    if found is None:
        return spec
    folder = found.resolve()
    return (folder.parent.name if folder.name == "policy" else folder.name) + mark + query


def seed_of(spec: str, default: int) -> int:
    """The seed of a policy's draws: a seed in its spelling is meant for this policy alone."""
    from genpolicy.policies.base import spelled_options

    return int(spelled_options(spec.partition("?")[2]).get("seed", default))


@contextmanager
def open_players(name: str, spec: str, game: Game[Any], arguments: argparse.Namespace) -> Iterator[list[Player]]:
    """A policy as it plays, once for each ``--sampler`` where it takes one; its processes are ended at the end.

    Raises:
        RegistryError: no such policy.
        CheckpointError: a damaged folder, or a policy of another game.
        ValueError: an option out of range.
    """
    from genpolicy.policies.base import load_policy

    seed = seed_of(spec, arguments.seed)
    policy = load_policy(spec, game=game, seed=seed, defaults={"device": arguments.device})
    try:
        players = []
        for own in options_of(policy, arguments):
            played = policy.with_options(**own) if own else policy
            played.seed(seed)
            players.append(Player(f"{name} ({own['sampler']})" if "sampler" in own else name, spec, played))
        yield players
    finally:
        policy.close()


@contextmanager
def opened_players(
    game: Game[Any],
    arguments: argparse.Namespace,
    opener: Callable[..., AbstractContextManager[list[Player]]] = open_players,
) -> Iterator[list[Player]]:
    """Everything to measure, made before the first is measured, so that a wrong option costs no measurement.

    Args:
        game: What the policies play.
        arguments: Of the command line; its ``device`` is settled.
        opener: Makes what is measured of one policy, as ``open_players``.

    Raises:
        ValueError: an option that no policy takes, or as ``opener``.
    """
    specs = specs_of(arguments)
    settle_device(arguments, specs)
    with ExitStack() as opened:
        players = [
            player
            for name, spec in zip(names_of(specs), specs, strict=True)
            for player in opened.enter_context(opener(name, spec, game, arguments))
        ]
        check_options({player.name: player.policy for player in players}, arguments)
        say_device(arguments)
        yield players
