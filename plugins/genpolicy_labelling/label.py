"""Labels the records of a data set with an oracle, into a new data set.

A block of ``BLOCK_RECORDS`` records is searched by one engine, from an empty hash table on, and written when all of it
is answered. Each answer is kept at once (``genpolicy_labelling.answers``): after a kill only the positions whose search
had not ended, at most 2 a process, are searched again; what is left of their block begins with an empty hash table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from genpolicy.data.oracle import Line, Oracle
from genpolicy.data.records import Dataset, Record, make_record
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy_labelling.answers import Answers
from genpolicy_labelling.writer import DatasetWriter

BLOCK_RECORDS = 16
"""Records that an engine labels one after the other, from an empty hash table on, and that are finished together."""


@dataclass(frozen=True)
class Labelled:
    """One position and its label."""

    number: int
    record: Record
    error: str | None
    """Why it has no label."""


def label(
    source: Dataset,
    writer: DatasetWriter,
    game: Game[Any],
    oracle: Oracle,
    horizon: int,
    *,
    move_values: bool = False,
    progress: Callable[[Labelled], None] = lambda labelled: None,
) -> None:
    """Label what is missing, in order; a position that cannot be labelled keeps a null line and is counted.

    Args:
        source: Records; labels they have are replaced.
        writer: Where the labelled records go; unit i is the i-th block of ``BLOCK_RECORDS`` records of the source.
        game: Their game.
        oracle: Who labels.
        horizon: Moves of a line.
        move_values: Also label every legal move.
        progress: Called with each labelled position.

    Raises:
        DatasetError: a record whose position the game does not read, or in which the game is over.
        EngineError: the engine cannot be restarted, or none of the first positions could be labelled.
    """
    answers = Answers(writer, game)

    def task(number: int, record: Record) -> Generator[Any, Line, Labelled]:
        line = yield _parse(game, source, number, record)
        made = make_record(game, None, line, state_text=record.state)
        labels = {name: getattr(made, name) for name in ("line", "ended", "scores", "move_values")}
        return Labelled(number, replace(record, **labels), line.error)

    def blocks() -> Iterator[list[Generator[Any, Line, Labelled]]]:
        records = enumerate(source.records())
        for unit in itertools.count():
            block = list(itertools.islice(records, BLOCK_RECORDS))
            if not block:
                return
            if not writer.is_done(unit):
                yield [answers.task(unit, index, task(*numbered)) for index, numbered in enumerate(block)]

    for block in oracle.run(blocks(), horizon, move_values=move_values):
        unlabelled = sum(labelled.error is not None for labelled in block)
        records = [labelled.record for labelled in block]
        writer.add(block[0].number // BLOCK_RECORDS, records, {"unlabelled": unlabelled} if unlabelled else {})
        for labelled in block:
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
