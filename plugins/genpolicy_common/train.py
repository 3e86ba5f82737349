"""``genpolicy train``: from a configuration to a saved policy, whose folder is the last line of stdout."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

HELP = """\
Train a policy from a configuration. Keys are set by defaults, then --config files, then key=value, for example

  genpolicy train --config run.yaml trainer.max_minutes=5 optim.lr=1e-3 --out runs/mine

The last line of stdout is the folder of the saved policy. To resume an interrupted run:

  genpolicy train --resume --out runs/mine

It ends with the same weights as an uninterrupted run (bit-identical on the CPU, except with a budget in minutes, whose
learning rate follows the clock)."""


def add_parser(subparsers: Any) -> None:
    """Add ``train`` to the command line."""
    parser = subparsers.add_parser(
        "train",
        help="train a policy from a configuration",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="F", help="YAML file or name; a later one overrides"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="one setting, e.g. optim.lr=1e-3")
    parser.add_argument("--out", metavar="FOLDER", help="folder of the run (also out=FOLDER)")
    parser.add_argument("--resume", action="store_true", help="resume the run in the folder")
    parser.add_argument("--overwrite", action="store_true", help="delete an earlier run in the folder")
    parser.add_argument("--print-config", action="store_true", help="print the whole configuration and stop")
    parser.set_defaults(run=run)
    take_settings_anywhere(parser)


def take_settings_anywhere(parser: argparse.ArgumentParser) -> None:
    """Let ``key=value`` stand on both sides of an option; argparse takes the first group only and refuses the rest."""
    parse = parser.parse_known_args

    def parse_known_args(args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parsed, rest = parse(args, namespace)
        more = [each for each in rest if each.startswith("~") or ("=" in each and not each.startswith("-"))]
        parsed.overrides = [*parsed.overrides, *more]
        return parsed, [argument for argument in rest if argument not in parsed.overrides]

    parser.parse_known_args = parse_known_args  # type: ignore[method-assign]


def run(arguments: argparse.Namespace) -> int:
    """The subcommand."""
    from genpolicy.config import to_yaml
    from genpolicy.training.settings import configuration, train
    from genpolicy_common.children import follow_parent
    from genpolicy_common.stopping import second_signal_stops

    settings, config = configuration(arguments.config, arguments.overrides, arguments.out, resume=arguments.resume)
    for argument in settings.repeated:
        print(f"genpolicy train: {argument} is given again further on; the last one counts", file=sys.stderr)
    if arguments.print_config:
        from genpolicy.training.setup import filled_in

        with settings.locating():
            print(to_yaml(filled_in(config)), end="")
        return 0
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun, killed, would leave its processes to train on
        follow_parent(os.getppid())
    with second_signal_stops():
        folder = train(settings, config, arguments.config, resume=arguments.resume, overwrite=arguments.overwrite)
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun or accelerate launch started
        print(folder)
    return 0
