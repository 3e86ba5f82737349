"""How policies are asked about many positions: in chunks, with a progress bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from genpolicy.control import FREE
from genpolicy.policies.base import Decision, Policy, decide_with
from genpolicy.policies.decision import require_legal
from genpolicy_common.labelled import LabelledPosition

ItemT = TypeVar("ItemT")
CHUNK = 256
"""Positions that a policy is asked at once; it cuts them to its own batches."""


def ask(policy: Policy, positions: Sequence[LabelledPosition], what: str, *, show: bool = False) -> list[Decision]:
    """A policy's decisions for positions, with a progress bar on stderr if ``show`` and it is a terminal.

    Raises:
        RegistryError: they are not one ``Decision`` for each, or a move is not legal.
    """
    decisions: list[Decision] = []
    with progress_bar(show) as progress:
        task = progress.add_task(what, total=len(positions))
        for chunk in chunks(positions, CHUNK):
            states = [position.state for position in chunk]
            made = decide_with(policy, states, FREE)
            require_legal(policy, states, made)
            decisions += made
            progress.advance(task, len(chunk))
    return decisions


def chunks(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    """Slices of ``size`` items, the last one shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def progress_bar(show: bool = True, console: Console | None = None) -> Progress:
    """A bar with a count, the time taken and an estimate, on stderr and gone when it is done, or left on a console."""
    transient, console = console is None, console or Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=transient,
        disable=not (show and console.is_terminal),
    )
