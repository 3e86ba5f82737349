"""What the engine says about its searches: ``info`` while one runs, ``bestmove`` once, and at the latest in time."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from genpolicy.game import Game
from genpolicy.policies.thinking import Answer
from genpolicy_play.engine.info import best_move_text, info_lines, legality_text
from genpolicy_play.engine.process import ClosedOutputError, Output, Timekeeper
from genpolicy_play.engine.protocol import MESSAGE_CHARACTERS, Dialect, quoted
from genpolicy_play.engine.search import Search
from genpolicy_play.engine.shortcuts import MateSearch, Plan

STOP_GRACE_S = 0.25
"""After ``stop`` where there is no answer yet; then a legal move goes out."""
PATIENCE_S = 1.5
"""The same where no clock runs: a move of the policy is worth the wait."""
BETWEEN_INFOS_S = 0.3
"""Between two ``info`` of one search; the last one goes out with the answer."""


class Replies:
    """Reports and answers searches; safe to use from any thread.

    Args:
        game: The rules.
        dialect: Dialect of the game.
        output: Where the protocol goes.
        settings: The options that are set, by name; read whenever they matter.
    """

    def __init__(self, game: Game[Any], dialect: Dialect, output: Output, settings: Mapping[str, Any]) -> None:
        self._game, self._dialect, self._output, self._settings = game, dialect, output, settings
        self._plan = Plan(game)
        self._time = Timekeeper(self._on_error)
        self.debug = False
        """Whether ``say_if_debugging`` says anything."""

    def close(self) -> None:
        """End the thread that answers in time; nothing is answered late any more."""
        self._time.close()

    def say(self, text: str) -> None:
        """Send an ``info string``."""
        self._output.send(f"info string {quoted(text, MESSAGE_CHARACTERS)}")

    def say_if_debugging(self, text: str) -> None:
        """Send an ``info string`` after ``debug on``."""
        if self.debug:
            self.say(text)

    @staticmethod
    def log(text: str) -> None:
        """Write a line to standard error."""
        print(f"genpolicy engine: {text}", file=sys.stderr, flush=True)

    @property
    def wdl(self) -> bool:
        """Whether to report win, draw and loss, where the protocol has them."""
        return bool(self._settings.get("UCI_ShowWDL", True))

    def publish(self, search: Search, answer: Answer) -> None:
        """Make an answer the best so far, and report it unless the last report was a moment ago."""
        with search.changed:
            if search.answered:
                return
            search.best = answer
            if search.reported is None or search.elapsed_s() - search.reported_s >= BETWEEN_INFOS_S:
                self._report(search)

    def _report(self, search: Search) -> None:
        """Send the ``info`` of the best answer so far, once."""
        answer = search.best
        if answer is None or answer is search.reported:
            return
        elapsed_s = search.elapsed_s()
        search.reported, search.reported_s = answer, elapsed_s
        number = search.num_variations
        lines = info_lines(
            self._game, self._dialect, search.state, answer, elapsed_s, num_variations=number, wdl=self.wdl
        )
        if text := legality_text(self._game, search.state, answer):
            lines.append(f"info string {text}")
        self._output.send(*lines)

    def answer(self, search: Search) -> None:
        """Send the answer of a search, once."""
        with search.changed:
            if search.answered:
                return
            search.answered = True
            if search.reply is not None:
                self._output.send(search.reply)
            elif isinstance(search, MateSearch) and self._dialect.mate_answer is not None:
                self._output.send(search.mate_text(self._dialect.mate_answer))
            else:
                self._send_best_move(search)
            search.stop()

    def _send_best_move(self, search: Search) -> None:
        if search.best is None:
            search.best, explanation = self._plan.substitute(search)
            if not search.pondering:
                self.say(explanation)
        else:
            self._report(search)
        self._output.send(f"bestmove {best_move_text(self._game, search.state, search.best)}")
        self._plan.remember(search.state, search.best)

    def answer_in_time(self, search: Search) -> None:
        """See to it that the answer goes out when its time is over, whatever the worker does."""
        if search.hard_deadline is None or search.last_deadline is None:
            return

        def answer_if_found() -> None:
            if search.best is not None:
                self.answer(search)

        now = time.perf_counter()
        if search.last_deadline > search.hard_deadline:
            self._time.later(max(0.0, search.hard_deadline - now), answer_if_found)
        self._time.later(max(0.0, search.last_deadline - now), lambda: self.answer(search))

    def answer_soon(self, search: Search) -> None:
        """See to it that a search that was stopped without an answer gives one soon."""
        self._time.later(STOP_GRACE_S if search.is_timed else PATIENCE_S, lambda: self.answer(search))

    def answer_now(self, search: Search) -> None:
        """Wait a moment for the answer of a search that was stopped, and send one."""
        deadline = time.perf_counter() + STOP_GRACE_S
        with search.changed:
            while not search.answered and search.reply is None and (left := deadline - time.perf_counter()) > 0:
                search.changed.wait(left)
        self.answer(search)

    def _on_error(self, error: Exception) -> None:
        if not isinstance(error, ClosedOutputError):  # the reader notices a closed output, too, and ends the engine
            self.log(repr(error))
