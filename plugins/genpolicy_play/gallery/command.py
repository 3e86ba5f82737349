"""``genpolicy gallery``: what several policies imagine in several positions, recorded on one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from genpolicy_common.arguments import add_device, say_device, settle_device


def add_parser(subparsers: Any) -> None:
    """Add ``gallery`` to the command line."""
    parser = subparsers.add_parser(
        "gallery",
        help="record dreams on one page that needs no server",
        description="Runs the policies of each scene and writes what they imagine, step by step, as one self-contained "
        "HTML file. Without FILE it records the shipped scenes.",
    )
    parser.add_argument("scenes", nargs="?", type=Path, metavar="FILE", help="positions and policies as YAML")
    parser.add_argument("--out", required=True, type=Path, metavar="PAGE", help="the page, such as dreams.html")
    add_device(parser)
    parser.set_defaults(run=run, output_options=("out",))


def run(arguments: argparse.Namespace) -> int:
    """Record the scenes; 0 once the page is written."""
    from genpolicy import load_policy
    from genpolicy.config import compose
    from genpolicy.files import write_atomic
    from genpolicy_play.gallery.page import html, record
    from genpolicy_play.gallery.scenes import SHIPPED, Gallery, state_of

    if arguments.out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {arguments.out}: the page is HTML; its name must end in .html")
    if arguments.scenes is not None and not arguments.scenes.is_file():
        raise ValueError(f"{arguments.scenes}: no such file; without FILE the shipped scenes are recorded")
    gallery = compose(Gallery, [arguments.scenes or SHIPPED])
    positions = [state_of(scene) for scene in gallery.scenes]  # wrong ones are named before the work
    settle_device(arguments, [column.policy for scene in gallery.scenes for column in scene.columns])
    recorded = []
    for scene, (game, state) in zip(gallery.scenes, positions, strict=True):
        told = []
        for column in scene.columns:
            policy = load_policy(column.policy, game=game, defaults={"device": arguments.device, "seed": scene.seed})
            try:
                told.append(record(policy, state, column, flip=scene.flip))
            finally:
                policy.close()
            print(f"{scene.title}: {told[-1].title}, steps: {len(told[-1].steps)}, plays {told[-1].move}", flush=True)
        recorded.append(told)
    say_device(arguments)
    page = html(gallery, [game.format(state) for game, state in positions], recorded).encode()
    write_atomic(arguments.out, page)
    print(f"{arguments.out}: {len(page) / 1000:,.0f} kB")
    return 0
