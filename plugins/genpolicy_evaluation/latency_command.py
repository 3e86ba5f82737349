"""``genpolicy evaluate latency``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpolicy_evaluation.players import Player, open_players, opened_players, seed_of, specs_of

if TYPE_CHECKING:
    from genpolicy.game import Game


def add_latency_parser(measures: Any) -> None:
    """Add ``latency`` to the measures of ``genpolicy evaluate``."""
    from genpolicy_evaluation.commands import add_data_arguments

    parser = measures.add_parser("latency", help="time, network calls and accuracy against search depth")
    add_data_arguments(parser, limit=512)
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="KEY=V,V,...",
        help="measure the policies that take option KEY with each of the values, e.g. num_steps=1,5,20 or "
        "simulations=10,100; may be given several times",
    )
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[1, 32], metavar="B", help="positions per call; default 1 32"
    )
    parser.add_argument("--calls", type=int, default=50, metavar="N", help="timed calls per batch size; default 50")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N", help="untimed calls before them; default 3")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads for a network; default torch's own")
    parser.add_argument(
        "--plot",
        dest="plots",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="plot to .png, .svg or .pdf files",
    )
    parser.set_defaults(run=run_latency)


def run_latency(arguments: argparse.Namespace) -> int:
    """Time policies, show the table and draw the figure."""
    from genpolicy_common.tables import publish
    from genpolicy_evaluation.commands import facts, opened, source
    from genpolicy_evaluation.latency import latency_report, limited_threads, measure_latency
    from genpolicy_evaluation.latency_plot import plot_latency
    from genpolicy_evaluation.matplotlib_style import check_plot_files
    from genpolicy_evaluation.provenance import machine_facts

    sweeps = read_sweeps(arguments.sweep)
    check_plot_files(arguments.plots)
    dataset, game, positions = opened(arguments)
    used: set[str] = set()
    swept = partial(swept_players, sweeps=sweeps, used=used)
    with limited_threads(arguments.threads) as threads, opened_players(game, arguments, swept) as players:
        if unused := [key for key in sweeps if key not in used]:
            raise ValueError(
                f"--sweep {unused[0]}: none of {', '.join(specs_of(arguments))} takes an option of that name"
            )
        points = [
            measure_latency(
                player.policy,
                positions,
                batches=arguments.batches,
                num_calls=arguments.calls,
                warm_up=arguments.warm_up,
                seed=seed_of(player.spec, arguments.seed),
                name=player.name,
                show=True,
            )
            for player in players
        ]
        machine = {**machine_facts(arguments.device), "threads": threads}
    report = latency_report(points, source(arguments), machine)
    figures = {
        "data": facts(arguments, dataset, positions),
        "machine": machine,
        "warm_up": arguments.warm_up,
        "points": [point.figures() for point in points],
    }
    publish([report], figures, arguments)
    if arguments.plots:
        plot_latency(points, arguments.plots)
    return 0


def read_sweeps(texts: list[str]) -> dict[str, list[Any]]:
    """The values of each option from ``KEY=V,V,...``.

    Raises:
        ValueError: not of that form, no value, or a key that stands twice.
    """
    from genpolicy.policies.base import spelled_options

    sweeps: dict[str, list[Any]] = {}
    for text in texts:
        key, mark, values = text.partition("=")
        if not mark or not key or not all(values.split(",")):
            raise ValueError(f"--sweep {text!r}: write KEY=V,V,... such as num_steps=1,5,20")
        if key in sweeps:
            raise ValueError(f"--sweep {text!r}: {key} is given twice; list all its values once")
        sweeps[key] = [spelled_options(f"{key}={value}")[key] for value in values.split(",")]
    return sweeps


@contextmanager
def swept_players(
    name: str,
    spec: str,
    game: Game[Any],
    arguments: argparse.Namespace,
    sweeps: dict[str, list[Any]],
    used: set[str],
) -> Iterator[list[Player]]:
    """A policy once for each combination of the values that it takes; the keys taken are noted in ``used``.

    Network policies are told to take the largest batch in one call.
    """
    with open_players(name, spec, game, arguments) as players:
        found = []
        for player in players:
            known = player.policy.option_names()
            keys = [key for key in sweeps if key in known]
            used.update(keys)
            for values in product(*(sweeps[key] for key in keys)):
                options = dict(zip(keys, values, strict=True))
                told = ", ".join(f"{key}={value}" for key, value in options.items())
                policy = player.policy.with_options(**options) if options else player.policy
                found.append(Player(f"{player.name} {told}".strip(), spec, _whole_batches(policy, arguments)))
        yield found


def _whole_batches(policy: Any, arguments: argparse.Namespace) -> Any:
    """The policy with network calls as large as the largest batch, unless ``--batch-size`` says otherwise."""
    if arguments.batch_size is None and "batch_size" in policy.option_names():
        return policy.with_options(batch_size=max(arguments.batches))
    return policy
