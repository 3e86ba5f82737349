"""``genpolicy show``: a picture or an animation of what a policy imagines in a position."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy_common.arguments import add_device, add_json, say_device, settle_device

if TYPE_CHECKING:
    from genpolicy.policies.base import Policy
    from genpolicy.policies.dream import Dream
    from genpolicy_play.drawing import Frame

SUFFIXES = (".svg", ".png", ".gif")
WIDTHS = {".svg": 1200, ".png": 1600, ".gif": 900}
"""Pixels, where nothing else is asked."""
MOST_PICTURES = 60
"""Most pictures of an animation; those of a longer dream are spread evenly."""
SAMPLING = ("sampler", "num_steps", "temperature", "horizon", "num_futures", "candidates")


def add_parser(subparsers: Any) -> None:
    """Add ``show`` to the command line."""
    parser = subparsers.add_parser("show", help="draw what a policy imagines in a position")
    parser.add_argument("--position", metavar="TEXT", help="FEN, SFEN, ...; default: the initial one")
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)  # the position, as it was written before
    parser.add_argument("--policy", required=True, metavar="P", help="a policy's folder or spelling")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="plan.svg, plan.png or plan.gif")
    parser.add_argument("--game", metavar="SPEC", help="the game, for a policy without a folder, e.g. chess")
    parser.add_argument("--moves", nargs="+", default=[], metavar="MOVE", help="moves played from the position first")
    parser.add_argument(
        "--step", type=int, metavar="K", help="what is imagined after step K (from 1); default the last"
    )
    parser.add_argument("--sampler", metavar="NAME", help="how a diffusion policy fills in the future")
    parser.add_argument("--num-steps", type=int, metavar="N", help="network calls")
    parser.add_argument("--temperature", type=float, metavar="T", help="sampling temperature; 0 takes the likeliest")
    parser.add_argument("--horizon", type=int, metavar="H", help="plies imagined, where the policy has several")
    parser.add_argument("--num-futures", type=int, metavar="N", help="futures imagined for one decision")
    parser.add_argument(
        "--candidates", type=int, metavar="K", help="imagined moves that are judged; 0 shows the sampler's steps"
    )
    parser.add_argument("--seed", type=int, default=0, help="same seed, same picture; default 0")
    add_device(parser)
    parser.add_argument("--top", type=int, default=6, metavar="N", help="alternatives listed, 1 to 8; default 6")
    parser.add_argument("--flip", action="store_true", help="show the board from the second player's side")
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="default light")
    parser.add_argument("--title", metavar="TEXT", help="title; default: the policy and who is to move")
    parser.add_argument("--width", type=int, metavar="PIXELS", help="default 1600 (png), 1200 (svg), 900 (gif)")
    parser.add_argument("--frame-ms", type=int, default=450, metavar="MS", help="gif: milliseconds for each step")
    add_json(parser, "every step's figures")
    parser.set_defaults(run=run, output_options=("out",))


def run(arguments: argparse.Namespace) -> int:
    """Draw as the command line says; 0 once the file is written."""
    suffix = _check(arguments)
    from genpolicy import load_policy
    from genpolicy_common.tables import write_json
    from genpolicy_play.drawing import frames
    from genpolicy_play.show.facts import facts
    from genpolicy_play.terminal import judged

    given = {name: value for name in SAMPLING if (value := getattr(arguments, name)) is not None}
    if arguments.game:
        given["game"] = arguments.game
    settle_device(arguments, [arguments.policy])
    policy = load_policy(arguments.policy, defaults={"device": arguments.device, "seed": arguments.seed}, **given)
    try:
        state = _position(policy, arguments)
        dream = policy.dream(state)
        told = frames(policy.game, dream)
        chosen = _chosen(policy, dream, told, arguments, suffix)
        _write(policy, dream, chosen, told, arguments, suffix)
        write_json(arguments.json, facts(policy, dream, told))
    finally:
        policy.close()
    say_device(arguments)
    print(_summary(policy, dream, told))
    for line in judged(policy.game, state, dream.decision, arguments.top):
        print("  " + line)
    print(arguments.out)
    return 0


def _check(arguments: argparse.Namespace) -> str:
    """See, before the work, that the options make sense; the file's suffix.

    Raises:
        ValueError: they do not.
    """
    suffix: str = arguments.out.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"--out {arguments.out}: pictures are written as {', '.join(SUFFIXES)}; the name must end in one of these"
        )
    ranges = {"top": (1, 8), "width": (200, 8000), "frame_ms": (20, 60000)}
    for name, (least, most) in ranges.items():
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"--{name.replace('_', '-')} must be {least} to {most}, got {value}")
    if arguments.step is not None and suffix == ".gif":
        raise ValueError(
            "--step shows one step and a .gif shows all of them; write a .png or .svg, or leave --step out"
        )
    if suffix != ".svg":
        from genpolicy_play.show.raster import require_libraries

        require_libraries()
    return suffix


def _position(policy: Policy, arguments: argparse.Namespace) -> Any:
    """The position of a command line.

    Raises:
        ValueError: no position of the game, an illegal move, or the game is over in it, or chance decides.
    """
    game = policy.game
    state = game.parse(arguments.position or " ".join(arguments.words) or None)
    for typed in arguments.moves:
        state = game.play(state, game.move_from_text(state, typed))
    if game.is_over(state):
        raise ValueError(
            f"the game is over in {game.format(state)!r} ({game.view.ending(state)}): nothing is left to imagine"
        )
    if game.chance(state) is not None:
        raise ValueError(f"chance decides in {game.format(state)!r}, and no policy is asked there: add --moves")
    return state


def _chosen(policy: Policy, dream: Dream, told: list[Frame], arguments: argparse.Namespace, suffix: str) -> list[Frame]:
    """The frames that are drawn.

    Raises:
        ValueError: a step that there is not, or an animation of a policy that imagines none.
    """
    if not dream.steps and (suffix == ".gif" or arguments.step is not None):
        wanted = "an animation" if suffix == ".gif" else "--step"
        raise ValueError(
            f"policy {policy.label!r} {stepless(policy, dream)}, so there is nothing for {wanted}: write a .png or .svg"
            + (", and leave --step out" if suffix != ".gif" else "")
            + (", or show its steps by --candidates 0" if judges_candidates(policy, dream) else "")
        )
    if suffix == ".gif":
        return evenly(told, MOST_PICTURES)
    step = len(told) if arguments.step is None else arguments.step
    if not 1 <= step <= len(told):
        raise ValueError(f"--step must be 1 to {len(told)}, the steps of this dream; got {arguments.step}")
    return [told[step - 1]]


def judges_candidates(policy: Policy, dream: Dream) -> bool:
    """Whether a dream has no steps because its policy searched instead; a tree search never has any."""
    return policy.dreams and bool(dream.decision.variations)


def stepless(policy: Policy, dream: Dream) -> str:
    """Why a dream has no steps, as the end of a sentence about the policy."""
    return "judges imagined candidates" if judges_candidates(policy, dream) else "does not imagine by steps"


def evenly(told: list[Frame], most: int) -> list[Frame]:
    """At most so many of the frames, the first and the last among them."""
    num = min(len(told), most)
    return [told[i * (len(told) - 1) // max(num - 1, 1)] for i in range(num)]


def _write(
    policy: Policy,
    dream: Dream,
    chosen: list[Frame],
    told: list[Frame],
    arguments: argparse.Namespace,
    suffix: str,
) -> None:
    from genpolicy.files import write_atomic
    from genpolicy_play.drawing.svg import DARK, LIGHT
    from genpolicy_play.show.picture import Picture

    game = policy.game
    title = arguments.title or f"{policy.label}: {game.players[game.player(dream.state)]} to move"
    palette = DARK if arguments.theme == "dark" else LIGHT
    picture = Picture(game, dream, told, title, flipped=arguments.flip, palette=palette, num_top=arguments.top)
    width = arguments.width or WIDTHS[suffix]
    first, listed = told[0] if dream.steps else None, told[-1] if suffix == ".gif" else None
    svgs = [picture.svg(frame, first, listed=listed, width=width) for frame in chosen]
    if suffix == ".svg":
        data = svgs[0].encode()
    else:
        from genpolicy_play.show.raster import gif, png

        data = png(svgs[0], width) if suffix == ".png" else gif(svgs, width, arguments.frame_ms, 6 * arguments.frame_ms)
    write_atomic(arguments.out, data)


def _summary(policy: Policy, dream: Dream, told: list[Frame]) -> str:
    """A line for people: the move, and how the imagined line fares under the rules."""
    from genpolicy_play.terminal import imagined_text, move_name

    line = [action.move for action in told[-1].actions]
    imagined = "it imagines nothing beyond this move"
    if len(line) > 1:
        imagined = f"imagines {imagined_text(policy.game, dream.state, line)}"
    return f"{policy.label} plays {move_name(policy.game, dream.state, dream.decision.move)}; {imagined}"
