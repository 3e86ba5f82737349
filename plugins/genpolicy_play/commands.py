"""``genpolicy play``: a terminal game against a policy, or policies playing each other to be watched."""

from __future__ import annotations

import argparse
import io
import itertools
import random
import sys
from typing import TYPE_CHECKING, Any

from genpolicy_common.arguments import add_alias, add_device, say_device, settle_device

if TYPE_CHECKING:
    from genpolicy.game import Game
    from genpolicy.policies.base import Policy


def add_parser(subparsers: Any) -> None:
    """Add ``play`` to the command line."""
    parser = subparsers.add_parser("play", help="play against a policy in the terminal")
    parser.add_argument(
        "--policy",
        metavar="P",
        help="a policy's folder, name or spelling, e.g. random; default: the game's own",
    )
    parser.add_argument("--game", metavar="SPEC", help="the game, for a policy without a folder, e.g. chess")
    parser.add_argument(
        "--color",
        metavar="SIDE",
        help="your side: first (w), second (b), random, both, or a side's name; default first",
    )
    position = parser.add_argument("--position", metavar="TEXT", help="starting position; default: the initial one")
    add_alias(parser, "--from", position)
    parser.add_argument("--seed", type=int, default=0, help="same seed, same game; default 0")
    add_device(parser)
    parser.add_argument("--self-play", type=int, metavar="N", help="watch N games of the policy against itself")
    parser.add_argument("--opponent", metavar="P", help="with --self-play: who plays against the policy")
    parser.add_argument(
        "--max-plies", type=int, metavar="N", help="with --self-play: longer games are draws; default 512"
    )
    parser.add_argument(
        "--show-lines", action="store_true", help="with --self-play: show what is imagined at each move"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Play as the command line says; 0 once the games are over or left."""
    from genpolicy import load_policy

    _check(arguments)
    # A letter that the terminal cannot show, or a byte that is not of its encoding, must not end a game.
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    spec = arguments.policy or policy_for(arguments.game)
    settle_device(arguments, [spec, arguments.opponent or spec])
    options: dict[str, Any] = {"defaults": {"device": arguments.device, "seed": arguments.seed}}
    if arguments.game:
        options["game"] = arguments.game
    policy = load_policy(spec, **options)
    opponent = load_policy(arguments.opponent, **{"game": policy.game, **options}) if arguments.opponent else None
    say_device(arguments)
    try:
        if arguments.self_play is not None:
            return _watch(policy, opponent, arguments)
        return _play(policy, arguments)
    finally:
        policy.close()
        if opponent is not None:
            opponent.close()


def policy_for(game: str | None) -> str:
    """The name of the shipped policy that plays a game where nobody named one; None takes the first there is.

    Raises:
        RegistryError: no such game, or none is shipped for it.
    """
    from genpolicy.errors import RegistryError
    from genpolicy.policies.base import read_policy_config
    from genpolicy.registry import load_game
    from genpolicy.shipped import shipped_policies

    known = shipped_policies()
    spec = None if game is None else load_game(game).spec
    fitting = [name for name, folder in known.items() if spec in (None, read_policy_config(folder)["game"])]
    if not fitting:
        other = f"; shipped are: {', '.join(known)}" if known else ""
        raise RegistryError(
            f"no policy is shipped{'' if game is None else f' for {game!r}'}{other}. Name one with --policy, a folder "
            "or a spelling such as random"
        )
    return fitting[0]


def _check(arguments: argparse.Namespace) -> None:
    """See that the options fit each other.

    Raises:
        ValueError: one of the other way of playing, or a number out of range.
    """
    if arguments.self_play is None and arguments.opponent:
        raise ValueError("--opponent plays against the policy in --self-play N; give that too")
    if arguments.self_play is None and (arguments.max_plies is not None or arguments.show_lines):
        option = "--show-lines" if arguments.show_lines else "--max-plies"
        raise ValueError(f"{option} needs --self-play N")
    if arguments.self_play is not None and arguments.color is not None:
        raise ValueError("--color is the side of a person, and --self-play has none; give only one of them")
    if arguments.self_play is not None and arguments.self_play < 1:
        raise ValueError(f"--self-play must be at least 1 game, got {arguments.self_play}")
    if arguments.max_plies is not None and arguments.max_plies < 1:
        raise ValueError(f"--max-plies must be at least 1, got {arguments.max_plies}")


def _play(policy: Policy, arguments: argparse.Namespace) -> int:
    from genpolicy_play.terminal import TerminalGame

    game = policy.game
    humans = _sides(game, arguments.color or "first", arguments.seed)
    TerminalGame(game, policy, humans, game.parse(arguments.position), seed=arguments.seed).run()
    return 0


def _sides(game: Game[Any], color: str, seed: int) -> tuple[int, ...]:
    """The players that a person moves.

    Raises:
        ValueError: no such side.
    """
    chosen = color.lower()
    names = [name.lower() for name in game.players]
    sides: dict[str, tuple[int, ...]] = {"first": (0,), "second": (1,), "both": (0, 1), names[0]: (0,), names[1]: (1,)}
    sides.update({"w": (0,), "b": (1,)})
    # A side's own initial wins where the two differ: in shogi Black moves first.
    if names[0][0] != names[1][0]:
        sides.update({names[0][0]: (0,), names[1][0]: (1,)})
    if chosen == "random":
        return (random.Random(seed).randrange(2),)
    if chosen not in sides:
        raise ValueError(f"--color {color!r} is not a side; write one of: {', '.join(sides)}, random")
    return sides[chosen]


def _watch(policy: Policy, opponent: Policy | None, arguments: argparse.Namespace) -> int:
    from genpolicy_evaluation.players import seed_of
    from genpolicy_play.terminal import MAX_PLIES, explain, move_name, self_play

    game = policy.game
    start = game.parse(arguments.position)
    wins = [0, 0]
    for index in range(arguments.self_play):
        second = policy if opponent is None else opponent
        # Colours alternate from game to game, so that neither side has the first move more often.
        pair = (policy, second) if index % 2 == 0 else (second, policy)
        for each in {id(p): p for p in pair}.values():
            spelled = arguments.policy if each is policy else arguments.opponent
            each.seed(seed_of(spelled, arguments.seed) + index)
        print(f"game {index + 1}: {game.players[0]} {pair[0].label}, {game.players[1]} {pair[1].label}", flush=True)

        def show(state: Any, decision: Any) -> None:
            if arguments.show_lines:
                print(f"  {game.players[game.player(state)]} {move_name(game, state, decision.move)}", flush=True)
                for line in explain(game, state, decision):
                    print(f"    {line}", flush=True)

        most, seed = arguments.max_plies or MAX_PLIES, arguments.seed + index
        moves, ending = self_play(pair, start, on_move=show, max_plies=most, seed=seed)
        states = itertools.accumulate(moves, game.play, initial=start)
        print("  " + " ".join(move_name(game, state, move) for state, move in zip(states, moves, strict=False)))
        print(f"  {ending.text(game)} ({len(moves)} plies)", flush=True)
        if ending.winner is not None:
            wins[0 if pair[ending.winner] is policy else 1] += 1
    if opponent is not None:
        draws = arguments.self_play - sum(wins)
        print(f"{policy.label}: {wins[0]} won, {draws} drawn, {wins[1]} lost against {opponent.label}")
    return 0
