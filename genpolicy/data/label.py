"""Labels the records of a data set with an oracle, into a new data set."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from genpolicy.data.oracle import Line, Oracle
from genpolicy.data.records import Dataset, Record, make_record
from genpolicy.data.writer import DatasetWriter
from genpolicy.errors import DatasetError
from genpolicy.game import Game

MAX_REMEMBERED = 100_000
"""Labels kept for positions that come up again, as openings do; some 100 MB."""


@dataclass(frozen=True)
class Labelled:
    """One finished position."""

    number: int
    record: Record
    error: str | None
    """Why it has no label."""
    remembered: bool
    """An equal position was labelled before in this run."""


def label(
    source: Dataset,
    writer: DatasetWriter,
    game: Game[Any],
    oracle: Oracle,
    horizon: int,
    *,
    move_values: bool = False,
    remember: bool = False,
    progress: Callable[[Labelled], None] = lambda labelled: None,
) -> None:
    """Label what is missing, in order; a position that cannot be labelled keeps a null line and is counted.

    Args:
        source: Records; labels they have are replaced.
        writer: Where the labelled records go; unit i is record i of the source.
        game: Their game.
        oracle: Who labels.
        horizon: Moves of a line.
        move_values: Also label every legal move.
        remember: Equal texts are searched once; right where the oracle's labels are reproducible.
        progress: Called with each finished position.

    Raises:
        DatasetError: a record whose position the game does not read, or in which the game is over.
        EngineError: the engine cannot be started.
    """
    known: OrderedDict[str, Line] = OrderedDict()

    def task(number: int, record: Record) -> Generator[Any, Line, Labelled]:
        line = known.get(record.state) if remember else None
        remembered = line is not None
        if line is None:
            line = yield _parse(game, source, number, record)
            if remember and line.error is None:
                known[record.state] = line
                if len(known) > MAX_REMEMBERED:
                    known.popitem(last=False)
        made = make_record(game, None, line, state_text=record.state)
        labels = {name: getattr(made, name) for name in ("line", "ended", "scores", "move_values")}
        return Labelled(number, replace(record, **labels), line.error, remembered)

    def tasks() -> Iterator[Generator[Any, Line, Labelled]]:
        for number, record in enumerate(source.records()):
            if not writer.is_done(number):
                yield task(number, record)

    for labelled in oracle.run(tasks(), horizon, move_values=move_values):
        tallies = {"unlabelled": 1} if labelled.error else {}
        writer.add(labelled.number, [labelled.record], tallies)
        progress(labelled)


def _parse(game: Game[Any], source: Dataset, number: int, record: Record) -> Any:
    try:
        state = game.parse(record.state)
    except ValueError as error:
        raise DatasetError(f"{source.folder}: record {number}: {error}; import the positions again") from error
    if len(game.legal(state)) == 0:
        raise DatasetError(
            f"{source.folder}: record {number}: {record.state!r} has no legal move, so nothing can be labelled; "
            "leave it out of the import"
        )
    return state
