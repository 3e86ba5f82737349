"""Labels the records of a data set with an oracle, into a new data set.

A block of ``BLOCK_RECORDS`` records is written when all of it is answered. After a kill the block that each engine
process was at, at most 8 positions a process, is searched again, though some of its positions may have been answered:
what an engine remembers of a block's first positions bears on its later ones, and a block begun in its middle would
give other labels. Nothing is written twice and nothing is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from genpolicy.data.oracle import Line, Oracle
from genpolicy.data.records import Dataset, Record, make_record
from genpolicy.data.writer import DatasetWriter
from genpolicy.errors import DatasetError, EngineError
from genpolicy.game import Game

BLOCK_RECORDS = 8
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
        EngineError: the engine cannot be started, or a whole first block of positions could not be labelled.
    """

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
                yield [task(number, record) for number, record in block]

    any_label = False
    for block in oracle.run(blocks(), horizon, move_values=move_values):
        unlabelled = sum(labelled.error is not None for labelled in block)
        any_label = any_label or unlabelled < len(block)
        if not any_label and len(block) == BLOCK_RECORDS:
            raise EngineError(
                f"none of the first {len(block)} positions could be labelled, so it is the oracle that is wrong: "
                f"{block[-1].error}. They were not written; mend the oracle and run the same command again"
            )
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
