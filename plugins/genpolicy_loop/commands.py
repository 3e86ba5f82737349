"""``genpolicy loop``: runs a loop of self-play, or says how far it is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from genpolicy_common.arguments import add_cluster
from genpolicy_common.train import take_settings_anywhere

HELP = """\
Learn a game from nothing: generations of self-play by a search, Reanalyse of older records, training on the newest
ones, and a gate. Each stage is a genpolicy command; OUT/generation-00N/log.txt lists them, to run by hand.

The same command resumes after Ctrl-C, SIGTERM or a kill; on one CPU the weights are bit-identical to those of an
uninterrupted loop. generations=N adds generations."""

STOPPED = "the loop stops here; what is finished is kept, and the same command resumes"


def add_parser(subparsers: Any) -> None:
    """Add ``loop`` to the command line."""
    parser = subparsers.add_parser(
        "loop",
        help="learn a game from nothing by self-play",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="YAML description, or the name of a shipped one")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="one setting, e.g. generations=12"
    )
    parser.add_argument("--out", metavar="FOLDER", help="folder of the loop (also out=FOLDER)")
    parser.add_argument("--status", action="store_true", help="list the stages and their results, and stop")
    add_cluster(parser)
    parser.add_argument("--parallel", type=int, metavar="N", help="number of workers on the cluster")
    parser.set_defaults(run=run)
    take_settings_anywhere(parser)


def run(arguments: argparse.Namespace) -> int:
    """The subcommand; its exit status is that of a stage that failed."""
    from genpolicy_loop.config import LoopConfig, named_by_arguments
    from genpolicy_loop.runner import Loop, StageFailedError, show_stage

    settings = named_by_arguments(arguments.file, arguments.overrides)
    settings.data["out"] = arguments.out or settings.data.get("out") or str(Path("runs") / arguments.file.stem)
    with settings.locating():
        loop = Loop(settings.fill(LoopConfig), where(arguments))
    if arguments.status:
        show_status(loop)
        return 0
    try:
        loop.run(show_stage)
    except StageFailedError as failure:
        show_stage(STOPPED)
        return failure.status
    except KeyboardInterrupt:  # between two stages
        show_stage(STOPPED)
        raise
    print(loop.policy(loop.accepted(loop.config.generations)))
    return 0


def where(arguments: argparse.Namespace) -> list[str]:
    """The words that tell the loop's commands which cluster they run on.

    Raises:
        ValueError: a number of workers without a cluster, or none.
    """
    if arguments.parallel is None:
        return [] if arguments.cluster is None else ["--cluster", arguments.cluster]
    if arguments.cluster is None or arguments.parallel < 1:
        raise ValueError(f"--parallel {arguments.parallel}: is the number of workers, at least 1, of a --cluster")
    return ["--cluster", arguments.cluster, "--parallel", str(arguments.parallel)]


def show_status(loop: Any) -> None:
    """A table of all stages."""
    from genpolicy_common.tables import Report

    table = Report(f"{loop.out}", ["generation", "stage", "state"], words=True)
    for generation in range(1, loop.config.generations + 1):
        for stage in loop.stages(generation):
            facts = loop.done(generation, stage.name)
            state = "to do" if facts is None else ", ".join(f"{k} {v}" for k, v in facts.items() if k != "command")
            table.add(str(generation), stage.name, state)
    table.print()
