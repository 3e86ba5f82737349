"""An oracle whose answers come from the workers of a cluster; each worker has an oracle of the same spelling.

A block of tasks belongs to one worker, which asks its oracle the same questions in the same order as one machine
would: where answers are reproducible, they are the same. A worker sends each answer as it comes, and the task is sent
it at once, here. When a worker is lost, the questions of its blocks that have no answer yet are asked of another one,
as after a kill of the command: no question that was answered is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from genpolicy.data.oracle import Line, Oracle, analysed, analysed_by_run, make_oracle
from genpolicy.game import Game
from genpolicy.registry import load_game
from genpolicy_common.cluster import Cluster, Crew, Lost, Worker
from genpolicy_common.shipping import fetch, folders_of, replaced

T = TypeVar("T")
Text = tuple[str, tuple[int, ...]]
"""A position on its way: the first one that it knows of, as text, and the moves from there (``Game.history``)."""
READY, LINES = "ready", "lines"
AHEAD = 2
"""Blocks that a worker has at once where it need not be told how tasks go on: one waits while the other is searched."""


@dataclass(eq=False)
class _Block:
    number: int
    tasks: Sequence[Generator[Any, Line, Any]]
    values: list[Any]
    """What the tasks returned."""
    waiting: dict[int, Any]
    """Positions that have no answer yet, by task."""


class ClusterOracle(Oracle):
    """Labels positions on the workers of a cluster.

    Args:
        spelling: The oracle of every worker. Folders of policies in it that a worker lacks are sent to it.
        game: What it plays.
        cluster: Where workers run; it is closed with the oracle.
        single: Every task asks one question, so that a worker need not wait to hear how a task goes on.
        say: Told which workers join and which are lost.

    Raises:
        ClusterError, EngineError, ValueError, RegistryError: as the workers say, with the worker's name.
    """

    def __init__(
        self,
        spelling: str,
        game: Game[Any],
        cluster: Cluster,
        *,
        single: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.game, self._single = game, single
        folders = folders_of([spelling])
        self._crew: Crew[_Block] = Crew(cluster, serve, spelling, game.spec, folders, say=say)
        self._number = 0
        self._facts: dict[str, Any] | None = None
        try:
            while self._facts is None:
                worker, message = self._crew.event()
                if not isinstance(message, Lost):
                    self._greet(worker, message)
        except BaseException:
            self.close()
            raise
        self.scale, self.num_together = float(self._facts["scale"]), int(self._facts["together"])

    def describe(self) -> dict[str, Any]:
        """What the oracles of all workers say of themselves."""
        assert self._facts is not None
        return dict(self._facts["about"])

    def report(self) -> str:
        """Which workers have answered how many questions."""
        return self._crew.report()

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        """One line for each state, in order; see ``Oracle``. Blocks are as large as ``num_together``."""
        return analysed_by_run(self, states, horizon, move_values=move_values)

    def run(
        self, blocks: Iterable[Sequence[Generator[Any, Line, T]] | None], horizon: int, *, move_values: bool = False
    ) -> Iterator[list[T]]:
        """Drive blocks of tasks, each on one worker; see ``Oracle.run``."""
        source, dry, crew = iter(blocks), False, self._crew
        while True:
            while crew.idle and (crew.waiting or not dry):
                block = crew.waiting.popleft() if crew.waiting else self._begin(next(source, None))
                if block is None:
                    dry = True
                elif not block.waiting:
                    yield block.values
                else:
                    worker = crew.give(block)
                    worker.send((block.number, horizon, move_values, self._single, self._questions(block)))
                    if len(crew.at_work[worker]) < (AHEAD if self._single else 1):
                        crew.idle.append(worker)
            if dry and not crew.waiting and not crew.at_work:
                return
            worker, message = crew.event()
            if isinstance(message, Lost) or self._greet(worker, message):
                continue
            block = next(each for each in crew.at_work[worker] if each.number == message[1])
            self._take(worker, block, message[2])
            if not block.waiting:
                crew.at_work[worker].remove(block)
                if not crew.at_work[worker]:
                    del crew.at_work[worker]
                if worker not in crew.idle:
                    crew.idle.append(worker)
                yield block.values
                dry = False

    def close(self) -> None:
        """End the workers; safe to call twice."""
        self._crew.close()

    def _begin(self, tasks: Sequence[Generator[Any, Line, Any]] | None) -> _Block | None:
        """A block whose tasks have asked their first questions; None for None."""
        if tasks is None:
            return None
        self._number += 1
        block = _Block(self._number, tasks, [None] * len(tasks), {})
        for index, task in enumerate(tasks):
            try:
                block.waiting[index] = next(task)
            except StopIteration as stop:
                block.values[index] = stop.value
        return block

    def _questions(self, block: _Block, among: Iterable[int] | None = None) -> dict[int, Text]:
        indices = block.waiting if among is None else [index for index in among if index in block.waiting]
        return {index: self.game.history(block.waiting[index]) for index in indices}

    def _take(self, worker: Worker, block: _Block, answers: Sequence[tuple[int, Line]]) -> None:
        """Send answers to their tasks, and the worker what these ask next."""
        self._crew.credit(worker, len(answers))
        for index, line in answers:
            try:
                block.waiting[index] = block.tasks[index].send(line)
            except StopIteration as stop:
                del block.waiting[index]
                block.values[index] = stop.value
        if not self._single:
            worker.send(self._questions(block, [index for index, _ in answers]))

    def _greet(self, worker: Worker, message: Any) -> bool:
        """Take in what a worker says before it works; False for answers.

        Raises:
            EngineError: its oracle is another one than the first worker's.
        """
        if message[0] != READY:
            return False
        self._facts = self._facts or message[1]
        same = {**message[1]["about"], "scale": message[1]["scale"], "together": message[1]["together"]}
        way_out = "Labels must come from one; install the same on all machines of the cluster"
        self._crew.require_same(worker, {"its oracle": same}, way_out)
        self._crew.ready(worker)
        return True


def serve(pipe: Connection, spelling: str, spec: str, folders: dict[str, str]) -> None:
    """What a worker does: answers the questions of blocks until the command is gone.

    Args:
        pipe: To the command.
        spelling: Of the oracle.
        spec: The game.
        folders: Folders of policies in the spelling, with their checksums.
    """
    game = load_game(spec)
    with make_oracle(replaced(spelling, fetch(pipe, folders)), game) as oracle:
        pipe.send((READY, {"about": oracle.describe(), "scale": oracle.scale, "together": oracle.num_together}))
        if oracle.num_together > 1:
            _serve_calls(pipe, game, oracle)
        first = pipe.recv()
        while first is not None:
            served = _Served(pipe, game, first)
            for _ in oracle.run(served.blocks(), first[1], move_values=first[2]):
                served.num_at_work -= 1
            first = served.held


def _serve_calls(pipe: Connection, game: Game[Any], oracle: Oracle) -> None:
    """Answer what the tasks of a block ask in one call, and send the answers together."""
    while True:
        number, horizon, move_values, single, questions = pipe.recv()
        positions = _Positions(game)
        while questions:
            states = [positions.read(*each) for each in questions.items()]
            lines = analysed(oracle, states, horizon, move_values=move_values)
            pipe.send((LINES, number, list(zip(questions, lines, strict=True))))
            questions = {} if single else pipe.recv()


class _Served:
    """The blocks of one run, on a worker whose oracle answers one question after the other.

    Args:
        pipe: To the command.
        game: The game.
        first: Message with the first block: number, horizon, whether to value moves, ``single``, positions by task.
    """

    def __init__(self, pipe: Connection, game: Game[Any], first: Any) -> None:
        self._pipe, self._game = pipe, game
        self.held: Any = first
        """A message that was read, with a block that has not begun."""
        self._kind = first[1:4]
        self.num_at_work = 0

    def blocks(self) -> Iterator[list[Generator[Any, Line, None]] | None]:
        """The blocks that the command sends, until one is of another run; None while there is none."""
        single = self._kind[2]
        while True:
            if self.held is None:
                if self.num_at_work and not (single and self._pipe.poll()):
                    yield None
                    continue
                self.held = self._pipe.recv()
            if self.held[1:4] != self._kind:
                return
            number, questions = self.held[0], self.held[4]
            self.held = None
            self.num_at_work += 1
            positions = _Positions(self._game)
            yield [self._task(number, positions, *each) for each in questions.items()]

    def _task(self, number: int, positions: _Positions, index: int, text: Text | None) -> Generator[Any, Line, None]:
        while text is not None:
            line = yield positions.read(index, text)
            self._pipe.send((LINES, number, [(index, line)]))
            text = None if self._kind[2] else self._pipe.recv().get(index)


class _Positions:
    """Reads positions; a task's position mostly follows from its last one, and games are long."""

    def __init__(self, game: Game[Any]) -> None:
        self._game = game
        self._last: dict[int, tuple[Text, Any]] = {}

    def read(self, index: int, text: Text) -> Any:
        """The position that a task asks for."""
        root, moves = text
        (before, known), state = self._last.get(index, (("", ()), None))
        if state is None or before != root or moves[: len(known)] != known:
            state, known = self._game.parse(root), ()
        for move in moves[len(known) :]:
            state = self._game.play(state, move)
        self._last[index] = text, state
        return state
