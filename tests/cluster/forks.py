"""A cluster of forked processes and oracles that kill as told: what the laws of clusters need, without Ray."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from genpolicy.data.oracle import Line, Oracle
from genpolicy.game import Game
from genpolicy_common.cluster import Cluster, work_for

CONTEXT = multiprocessing.get_context("fork")


class Forks(Cluster):
    """Workers are forks of this process; ``address`` is of no use."""

    started: list[Any] = []  # noqa: RUF012  # all processes of a test

    def __init__(self, address: str, num_workers: int | None = None) -> None:
        super().__init__("127.0.0.1")
        self._places = num_workers or 2

    @property
    def num_places(self) -> int:
        return self._places

    def _launch(self, *arguments: Any) -> Any:
        process = CONTEXT.Process(target=_work, args=arguments, daemon=True)
        process.start()
        self.started.append(process)
        return process

    def _end_of(self, handle: Any) -> str | None:
        return None if handle.is_alive() else f"status {handle.exitcode}"

    def _kill(self, handle: Any) -> None:
        handle.kill()


def _work(*arguments: Any) -> None:
    os.closerange(3, 512)  # a fork has the pipes of its brothers, who would not see that the command is gone
    work_for(*arguments)


def answer(game: Game[Any], state: Any, salt: int) -> Line:
    """A line that depends on the position and a number alone."""
    legal = game.legal(state).tolist()
    return Line((legal[(sum(game.format(state).encode()) + salt) % len(legal)],), ("value:0.25",))


class Logged(Oracle):
    """Answers one question after the other, and writes each down before; kills somebody at chosen questions.

    Args:
        game: The game.
        log: File of the questions asked, one a line.
        kill: Numbers of questions, divided by ``+``, that are not answered because ``whom`` is killed.
        whom: ``worker`` (itself) or ``driver`` (its parent). A driver is killed at the first question from that number
            on that a worker of its own asks: those of one that was killed before go on until they notice.
        together: Positions of a call; the answers of a call then depend on all its positions.
        name: What it calls itself.
    """

    def __init__(
        self, game: Game[Any], log: str, kill: str = "", whom: str = "worker", together: int = 1, name: str = "logged"
    ) -> None:
        self.game, self._log, self._whom, self.num_together = game, Path(log), whom, int(together)
        self._kills, self._name = {int(number) for number in kill.split("+") if number}, name
        self._driver = multiprocessing.parent_process()

    def describe(self) -> dict[str, Any]:
        return {"name": self._name, "together": self.num_together}

    def _ask(self, states: Sequence[Any]) -> None:
        with self._log.open("ab", buffering=0) as file:
            file.write("".join(f"{self.game.format(state)}\n" for state in states).encode())
            end = file.tell()  # another worker may have written since
        number = self._log.read_bytes()[:end].count(b"\n")
        if self._whom == "worker" and self._kills & set(range(number - len(states) + 1, number + 1)):
            os.kill(os.getpid(), signal.SIGKILL)
        # The parent of a worker whose driver is gone is a stranger.
        if self._whom == "driver" and number >= min(self._kills) and self._driver and os.getppid() == self._driver.pid:
            os.kill(os.getppid(), signal.SIGKILL)

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        self._ask(states)
        salt = 0 if self.num_together == 1 else sum(sum(self.game.format(state).encode()) for state in states)
        return [answer(self.game, state, salt) for state in states]

    def run(
        self, blocks: Iterable[Sequence[Generator[Any, Line, Any]] | None], horizon: int, *, move_values: bool = False
    ) -> Iterator[list[Any]]:
        if self.num_together > 1:
            yield from super().run(blocks, horizon, move_values=move_values)
            return
        for block in blocks:
            assert block is not None
            values = []
            for task in block:
                try:
                    state = next(task)
                    while True:
                        state = task.send(self.analyse([state], horizon)[0])
                except StopIteration as stop:
                    values.append(stop.value)
            yield values


class Broken(Oracle):
    """Lacks its engine where it is not in the process that the test runs in."""

    def __init__(self, game: Game[Any], here: str) -> None:
        from genpolicy.errors import EngineError

        self.game = game
        if os.getpid() != int(here):
            raise EngineError("engine 'stockfish' not found in PATH; install it")

    def describe(self) -> dict[str, Any]:
        return {}

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        raise AssertionError


class Differs(Oracle):
    """Has another version in each process, and answers nothing while the command can still refuse it."""

    def __init__(self, game: Game[Any]) -> None:
        self.game = game

    def describe(self) -> dict[str, Any]:
        return {"name": f"fish {os.getpid()}"}

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        end = time.monotonic() + 20
        while time.monotonic() < end:  # the command kills its workers when it ends
            time.sleep(0.05)
        raise AssertionError("the command goes on with engines that differ")
