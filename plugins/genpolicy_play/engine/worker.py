"""The thread that loads the policy and searches, one task after another."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from genpolicy.policies.base import Policy, Variation
from genpolicy.policies.thinking import Answer, Thinker
from genpolicy_play.engine.host import Host
from genpolicy_play.engine.pacing import Pacer
from genpolicy_play.engine.process import IDLE_S, ClosedOutputError, collect_garbage, keep_all_objects
from genpolicy_play.engine.protocol import Go
from genpolicy_play.engine.replies import Replies
from genpolicy_play.engine.search import Budget, Search, SearchStopped
from genpolicy_play.engine.shortcuts import MateSearch

Task = Callable[[], object]

WARM_UP, WARM_UP_S = Go(nodes=100, depth=2), 1.0
"""Limits of a search while the policy loads; from two plies on, alpha-beta asks the policy that orders its moves."""


class Worker:
    """Runs tasks in a thread of its own; the thread that reads never waits for it.

    Args:
        host: The policy; not loaded yet.
        replies: Reports and answers.
        settings: The options that are set, by name; what the policy refuses is put back in it.
        mate_answer: The protocol's word for the answer to ``go mate``; None where it wants a move in any case.
        leave: Ends the process with a status.
    """

    def __init__(
        self,
        host: Host,
        replies: Replies,
        settings: dict[str, Any],
        *,
        mate_answer: str | None,
        leave: Callable[[int], None],
    ) -> None:
        self._host, self._replies, self._settings = host, replies, settings
        self._mate_answer, self._leave = mate_answer, leave
        self.failure: str | None = None
        """Why the policy could not be loaded."""
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._loaded = threading.Event()
        self._latest: Search | None = None
        self._num_searches = 0  # that were begun and that the thread has not left yet
        self._counting = threading.Lock()
        self._policy: Policy | None = None
        """Whose answers ``_thinker`` gives; None where it has to be made anew."""
        self._thinker: Thinker
        self._thread = threading.Thread(target=self._run, name="search", daemon=True)

    @property
    def is_loaded(self) -> bool:
        """Whether the policy can decide."""
        return self._loaded.is_set()

    @property
    def is_searching(self) -> bool:
        """Whether a search runs or waits for the thread."""
        return self._num_searches > 0

    def start(self) -> None:
        """Begin by loading the policy."""
        self._tasks.put(self._load)
        self._thread.start()

    def finish(self) -> None:
        """Wait until all tasks are done."""
        self._tasks.put(None)
        self._thread.join()

    def when_ready(self, call: Callable[[], None]) -> None:
        """Make a call after all tasks so far, with all options applied."""

        def run() -> None:
            self._failure_of(self._apply)
            call()

        self._tasks.put(run)

    def new_game(self) -> None:
        """Forget what earlier searches have left, and seed the policy."""

        def run() -> None:
            self._policy = None
            if self.failure is None:
                self._apply()
                self._host.reseed(self._settings)

        self._tasks.put(lambda: self._failure_of(run))

    def begin(self, search: Search) -> None:
        """Search, and answer when the answer is due."""
        self._latest = search
        with self._counting:
            self._num_searches += 1
        task = self._search_mate if isinstance(search, MateSearch) else self._search

        def run() -> None:
            try:
                # An engine behind the policy that died is started again for the next position: here, for this one.
                if not self._succeeds(search, task) and search.best is None and not search.is_over:
                    self._replies.say("trying once more")
                    self._succeeds(search, task)
                search.wait_for_release()
            finally:
                self._release(search)
            self._replies.answer(search)

        self._tasks.put(run)
        if self.is_loaded:
            self._replies.answer_in_time(search)

    def _succeeds(self, search: Search, task: Callable[[Any], None]) -> bool:
        """Run a task. Returns False where it failed: the GUI gets its answer, and the next move a new attempt."""
        failure = self._failure_of(partial(task, search))
        search.failure = failure or search.failure
        return failure is None

    def _failure_of(self, task: Task) -> str | None:
        """What a task raised, once it is said; None where it succeeded.

        Raises:
            ClosedOutputError: nobody reads it.
        """
        try:
            task()
        except ClosedOutputError:
            raise
        except Exception as error:
            failure = str(error) or type(error).__name__
            self._replies.say(f"the policy fails here: {failure}")
            self._replies.log(repr(error))
            self._policy = None
            return failure
        return None

    def _release(self, search: Search) -> None:
        """Count a search as done; before its answer goes out, so that the next command finds the worker free."""
        with self._counting:
            self._num_searches -= not search.released
            search.released = True

    def _run(self) -> None:
        idle = False
        while True:
            try:
                task = self._tasks.get(timeout=None if idle else IDLE_S)
            except queue.Empty:
                idle = True
                collect_garbage(idle=True)
                continue
            if task is None:
                return
            idle = False
            try:
                task()
            except ClosedOutputError:
                return
            if self.failure is not None:
                return
            collect_garbage(idle=False)

    def _load(self) -> None:
        try:
            self._host.load()
            self._apply()
            self._warm_up()
            keep_all_objects()
        except Exception as error:
            self.failure = str(error) or type(error).__name__
            self._replies.say(f"the policy cannot be loaded: {self.failure}")
            self._replies.log(f"error: {self.failure}")
            self._leave(2)
            return
        self._loaded.set()
        search = self._latest
        if search is not None and not search.answered:
            search.restart_clock()
            self._replies.answer_in_time(search)
            if search.is_stopped:  # while nobody could have answered
                self._replies.answer_soon(search)

    def _warm_up(self) -> None:
        """Decide once: the first call of a network is slow, and no clock should pay for it. A search only begins."""
        policy, state = self._host.policy, self._host.game.parse()
        thinker = policy.thinker()
        if thinker is None:
            policy.decide([state])
            return
        allowed = self._host.game.legal(state).tolist()
        search = Search(state, allowed, go=WARM_UP, budget=Budget(*[WARM_UP_S] * 3))
        with suppress(SearchStopped):
            thinker.think(state, search, lambda answer: None, control=search.control())

    def _apply(self) -> None:
        """Set the policy's options, and make a thinker where it is another policy then."""
        for refusal in self._host.apply(self._settings):
            self._replies.say(refusal)
        policy = self._host.policy
        if self._policy is not policy:
            self._policy, self._thinker = policy, policy.thinker() or Pacer(policy)

    def _search(self, search: Search) -> None:
        if search.answered:
            return
        try:
            self._apply()
            publish = partial(self._replies.publish, search)
            self._thinker.think(search.state, search, publish, control=search.control())
        except SearchStopped:
            self._replies.say_if_debugging(f"stopped after {1e3 * search.elapsed_s():.0f} ms")
        self._answer_when_due(search)

    def _search_mate(self, search: MateSearch) -> None:
        """Look for a mate; where the protocol wants a move in any case and there is none, the policy's is played."""
        line = search.run()
        if self._mate_answer is None:
            if line is None:
                self._search(search)
                return
            self._replies.publish(search, Answer((Variation(tuple(line), mate_plies=len(line)),)))
        search.line = line
        self._answer_when_due(search)

    def _answer_when_due(self, search: Search) -> None:
        search.wait_for_release()
        self._release(search)
        self._replies.answer(search)
