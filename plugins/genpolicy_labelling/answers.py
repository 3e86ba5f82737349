"""Answers that an oracle has given are kept, so that after a kill no question is asked twice.

A task of ``Oracle.run`` is a generator that yields positions and is sent their lines. Here it is driven by what the
journal of the data set holds for it as far as that goes, and by the oracle from there on; each new line stands in the
journal before the task sees it. This asks of a task that its questions depend on the lines alone, and of its unit that
the tasks are the same in every run.

What is asked after a kill is searched from another state of the engine's memory than without it (an engine begins a
block of positions with an empty hash table, and here a block may begin in its middle): its label may differ in the last
digits. All of it is as good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from typing import Any, TypeVar

from genpolicy.data.oracle import Line
from genpolicy.errors import DatasetError, EngineError
from genpolicy.game import Game
from genpolicy_labelling.journal import JOURNAL_FILE
from genpolicy_labelling.writer import DatasetWriter

T = TypeVar("T")
MAX_UNLABELLED = 8
"""An oracle that labels none of so many first positions is given up."""


class Answers:
    """The answers that a data set in the making keeps.

    Args:
        writer: Its journal holds them until their units are finished.
        game: Of the positions.
    """

    def __init__(self, writer: DatasetWriter, game: Game[Any]) -> None:
        self._writer = writer
        self._game = game
        self._any_label = False
        self._num_failed = 0

    def task(
        self, unit: int, index: int, task: Generator[Any, Line, T], first_question: int = 0
    ) -> Generator[Any, Line, T]:
        """The same task, which asks only what was never answered.

        Args:
            unit: Unit of the writer that it works for.
            index: Which task of the unit it is; the same in every run.
            task: Yields positions, is sent lines, returns a value.
            first_question: Number of its first question, where earlier tasks of this index asked some.

        Raises:
            DatasetError: the journal's answer is to another position.
            EngineError: the oracle labelled none of the first positions of this run.
        """
        question = first_question
        try:
            state = next(task)
            while True:
                mark = self._mark(state)
                kept = self._writer.answer(unit, index, question)
                if kept is None:
                    line = yield state
                    self._writer.add_answer(unit, index, question, self._to_json(mark, line))
                    self._give_up_if_useless(line)
                elif kept["position"] != mark:
                    raise DatasetError(
                        f"{self._writer.folder / JOURNAL_FILE}: the answer to question {question} of task {index} in "
                        f"unit {unit} is to another position, so other code or data began this; choose a new folder"
                    )
                else:
                    line = self._from_json(kept)
                state = task.send(line)
                question += 1
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _give_up_if_useless(self, line: Line) -> None:
        self._any_label = self._any_label or line.error is None
        self._num_failed += line.error is not None
        if not self._any_label and self._num_failed == MAX_UNLABELLED:
            self._writer.drop_answers(lambda answer: answer["error"] is not None)
            raise EngineError(
                f"none of the first {MAX_UNLABELLED} positions could be labelled, so it is the oracle that is wrong: "
                f"{line.error}. They were not written; mend the oracle and run the same command again"
            )

    def _mark(self, state: Any) -> str:
        """A short mark that two positions share with a chance of one in four thousand million."""
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
        }

    def _from_json(self, kept: dict[str, Any]) -> Line:
        index = self._game.moves.index
        return Line(
            moves=tuple(map(index, kept["line"].split())),
            scores=tuple(kept["scores"]),
            ended=kept["ended"],
            move_values={index(move): score for move, score in kept["move_values"].items()},
            error=kept["error"],
        )
