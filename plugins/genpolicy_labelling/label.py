"""Labels the records of a data set with an oracle, in a new data set.

One engine searches a block of ``BLOCK_RECORDS`` records, beginning with an empty hash table, and the block is written
when all of it is answered. Each answer is kept at once (``genpolicy_labelling.answers``): after a kill only positions
whose search had not ended, at most 2 per process, are searched again; the rest of their block begins with an empty hash
table.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from genpolicy.data.oracle import Line, Oracle
from genpolicy.data.records import Dataset, Record
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy_labelling.answers import Answers
from genpolicy_labelling.writer import DatasetWriter

BLOCK_RECORDS = 16
"""Records that an engine labels one after the other, beginning with an empty hash table, and that end together."""


@dataclass(frozen=True)
class LabelResult:
    """One position after labelling."""

    number: int
    """Number of its record in the source."""
    record: Record
    error: str | None
    """Why it has no label; None if it has one."""


def make_record(
    game: Game[Any],
    state: Any,
    line: Line,
    *,
    state_text: str | None = None,
    game_id: str | None = None,
    ply: int | None = None,
    played: int | None = None,
) -> Record:
    """The record of a position and an oracle's answer.

    Args:
        game: The game.
        state: The position; not looked at where ``state_text`` is given.
        line: The oracle's answer; with ``error`` set the record has no line.
        state_text: Its text, where it is known.
        game_id: Game that it comes from.
        ply: Its ply there.
        played: Id of the move that was played.
    """
    shares = [f"{game.moves[move]}={share:.6g}" for move, share in sorted(line.policy.items()) if share > 0]
    by_move = [f"{game.moves[move]}={score}" for move, score in sorted(line.move_values.items())]
    return Record(
        state=game.format(state) if state_text is None else state_text,
        game_id=game_id,
        ply=ply,
        line=None if line.error is not None else " ".join(game.moves[move] for move in line.moves),
        ended=line.ended,
        scores=line.scores,
        move_values=" ".join(by_move) or None,
        played=None if played is None else game.moves[played],
        policy=" ".join(shares) or None,
        value=line.value,
    )


def label(
    source: Dataset,
    writer: DatasetWriter,
    game: Game[Any],
    oracle: Oracle,
    horizon: int,
    *,
    move_values: bool = False,
    share: float = 1.0,
    seed: int = 0,
    progress: Callable[[LabelResult], None] = lambda result: None,
) -> None:
    """Label the records that are not labelled yet, in order. A position that cannot be labelled has a null line.

    Records of positions in which chance decides stay as they are.

    Args:
        source: The records; labels that they have are replaced, a search's policy and value included.
        writer: Writes the labelled records; unit i is block i of the source, of ``BLOCK_RECORDS`` records or
            ``Oracle.num_together``, whichever is more.
        game: Game of the records.
        oracle: Labels the positions.
        horizon: Moves in a line.
        move_values: Also label every legal move.
        share: Part of the records, in (0, 1], that is labelled anew; the others stay as they are.
        seed: Which records these are depends on it and on their number alone.
        progress: Called with each position.

    Raises:
        DatasetError: the game cannot read a record's position, or is over there.
        EngineError: the engine cannot be restarted, or none of the first positions could be labelled.
    """
    size = max(BLOCK_RECORDS, oracle.num_together)
    answers = Answers(writer, game, together=oracle.num_together > 1)

    def task(number: int, record: Record) -> Generator[Any, Line, LabelResult]:
        if share < 1 and random.Random(f"share|{seed}|{number}").random() >= share:
            return LabelResult(number, record, None)
        state = _parse(game, source, number, record)
        if game.chance(state) is not None:
            return LabelResult(number, record, None)
        line = yield state
        made = make_record(game, None, line, state_text=record.state)
        labels = {name: getattr(made, name) for name in ("line", "ended", "scores", "move_values", "policy", "value")}
        return LabelResult(number, replace(record, **labels), line.error)

    def blocks() -> Iterator[list[Generator[Any, Line, LabelResult]]]:
        records = enumerate(source.records())
        for unit in itertools.count():
            block = list(itertools.islice(records, size))
            if not block:
                return
            if not writer.is_done(unit):
                yield [answers.task(unit, index, task(*numbered)) for index, numbered in enumerate(block)]

    for block in oracle.run(blocks(), horizon, move_values=move_values):
        unlabelled = sum(result.error is not None for result in block)
        records = [result.record for result in block]
        writer.add(block[0].number // size, records, {"unlabelled": unlabelled} if unlabelled else {})
        for result in block:
            progress(result)


def _parse(game: Game[Any], source: Dataset, number: int, record: Record) -> Any:
    try:
        state = game.parse(record.state)
    except ValueError as error:
        raise DatasetError(f"{source.folder}: record {number}: {error}; import the positions again") from error
    if len(game.legal(state)) == 0:
        raise DatasetError(
            f"{source.folder}: record {number}: {record.state!r} has no legal move to label; leave it out of the import"
        )
    return state
