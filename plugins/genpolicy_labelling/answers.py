"""Keeps the answers of an oracle, so that after a kill it need not answer a question again.

A task of ``Oracle.run`` is a generator that yields positions and is sent their lines. Here a task is sent the lines
that the journal of the data set holds for it, and after those the oracle's; each new line is in the journal before the
task sees it. This requires that a task's questions depend on its lines alone, and that a unit has the same tasks in
every run.

An engine begins a block of positions with an empty hash table. After a kill a block is resumed in its middle, so its
remaining labels may differ in the last digits from those of a run without a kill. They are as good.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from genpolicy.data.oracle import Line
from genpolicy.errors import DatasetError, EngineError
from genpolicy.game import Game
from genpolicy_labelling.journal import JOURNAL_FILE
from genpolicy_labelling.writer import DatasetWriter

T = TypeVar("T")
MAX_UNLABELLED = 8
"""An oracle that labels none of this many first positions of a data set is given up."""


@dataclass
class _Call:
    """The calls of the oracle that are about one unit."""

    asked: int = 0
    """Questions of the coming call."""
    left: int = 0
    """Questions of the last one whose answers have not come yet."""
    held: list[tuple[int, int, int, Any]] = field(default_factory=list)


class Answers:
    """The answers that an unfinished data set keeps.

    Args:
        writer: Writer of the data set; its journal holds the answers until their units are finished.
        game: Game of the positions.
        together: Keep the answers of one call of the oracle together or not at all, where each call is about one unit
            (``Oracle.num_together``). A resumed block then makes the calls that it would have made.
    """

    def __init__(self, writer: DatasetWriter, game: Game[Any], *, together: bool = False) -> None:
        self._writer = writer
        self._game = game
        self._together = together
        self._calls: dict[int, _Call] = defaultdict(_Call)
        """By unit, for those that have begun."""
        self._any_label = writer.num_units > 0  # of an earlier run, which would have given up else
        self._num_failed = 0

    def task(
        self, unit: int, index: int, task: Generator[Any, Line, T], first_question: int = 0
    ) -> Generator[Any, Line, T]:
        """Wrap a task so that only positions without a kept answer reach the oracle.

        Args:
            unit: Unit of the writer that the task works for.
            index: Number of the task within the unit; the same in every run.
            task: Yields positions, is sent lines, returns a value.
            first_question: Number of the task's first question, above 0 if earlier tasks of this index had some.

        Returns:
            A task with the same value.

        Raises:
            DatasetError: a kept answer is to another position.
            EngineError: the oracle labelled none of the first positions.
        """
        question = first_question
        try:
            state = next(task)
            while True:
                mark = self._mark(state)
                kept = self._writer.answer(unit, index, question)
                if kept is None:
                    self._calls[unit].asked += 1
                    line = yield state
                    self._keep(unit, index, question, self._to_json(mark, line))
                    self._give_up_if_useless(line)
                else:
                    which = f"the answer to question {question} of task {index} in unit {unit}"
                    line = self._from_json(kept, mark, f"{self._writer.folder / JOURNAL_FILE}: {which}")
                    self._any_label = self._any_label or line.error is None
                state = task.send(line)
                question += 1
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _keep(self, unit: int, index: int, question: int, answer: Any) -> None:
        """Keep an answer at once, or with the last one of its call."""
        call = self._calls[unit]
        if call.left == 0:  # the first answer of a call: what is asked from here on belongs to the next one
            call.left, call.asked = call.asked, 0
        call.left -= 1
        call.held.append((unit, index, question, answer))
        if call.left == 0 or not self._together:
            self._writer.add_answers(call.held)
            call.held = []

    def _give_up_if_useless(self, line: Line) -> None:
        self._any_label = self._any_label or line.error is None
        self._num_failed += line.error is not None
        if not self._any_label and self._num_failed == MAX_UNLABELLED:
            self._writer.drop_answers(lambda answer: answer["error"] is not None)
            raise EngineError(
                f"none of the first {MAX_UNLABELLED} positions could be labelled, so the oracle itself is failing: "
                f"{line.error}. They were not written; fix the oracle and run the same command again"
            )

    def _mark(self, state: Any) -> str:
        """A short digest of a position; two positions share it with a probability of 2^-32."""
        key = self._game.key(state)
        return hashlib.blake2b(key if isinstance(key, bytes) else str(key).encode(), digest_size=4).hexdigest()

    def _to_json(self, mark: str, line: Line) -> dict[str, Any]:
        moves = self._game.moves
        return {
            "position": mark,
            "line": " ".join(moves[move] for move in line.moves),
            "scores": line.scores,
            "ended": line.ended,
            "move_values": {moves[move]: score for move, score in line.move_values.items()},
            "error": line.error,
            **({"policy": {moves[move]: share for move, share in line.policy.items()}} if line.policy else {}),
            **({} if line.value is None else {"value": line.value}),
        }

    def _from_json(self, kept: Any, mark: str, which: str) -> Line:
        index = self._game.moves.index
        try:
            position, value = kept["position"], kept.get("value")
            line = Line(
                moves=tuple(map(index, kept["line"].split())),
                scores=tuple(kept["scores"]),
                ended=bool(kept["ended"]),
                move_values={index(move): str(score) for move, score in kept["move_values"].items()},
                error=kept["error"],
                policy={index(move): float(share) for move, share in kept.get("policy", {}).items()},
                value=None if value is None else float(value),
            )
            if not all(text is None or isinstance(text, str) for text in (*line.scores, line.error)):
                raise TypeError("scores and error must be texts or null")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise DatasetError(f"{which} cannot be read ({error}); delete it to have its work done again") from error
        if position != mark:
            raise DatasetError(
                f"{which} is to another position, so this was begun with other code or data; choose a new folder"
            )
        return line
