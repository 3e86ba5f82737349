"""The engine: one thread reads and answers, another one loads the policy and searches.

The reader never waits for a search, so ``isready``, ``stop`` and ``quit`` are answered at any time. Whatever a policy
does, one ``bestmove`` goes out for every ``go``, at the latest when its time is over: where a policy cannot be stopped,
the best it has published is the answer, and what it finds later is dropped.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from genpolicy import __version__
from genpolicy_play.engine import memory
from genpolicy_play.engine.answer import Found, Variation, best_move, info_lines, legality
from genpolicy_play.engine.clock import Budget, budget
from genpolicy_play.engine.dialect import Dialect
from genpolicy_play.engine.host import Host
from genpolicy_play.engine.job import Job, SearchStopped
from genpolicy_play.engine.mate import MateJob, mate_answer
from genpolicy_play.engine.output import ClosedOutputError, Output
from genpolicy_play.engine.plan import Plan
from genpolicy_play.engine.position import PositionReader
from genpolicy_play.engine.protocol import SAID_CHARACTERS, Go, read_go, read_position, read_setoption, shown, words_of
from genpolicy_play.engine.searchers import Searcher, make_searcher
from genpolicy_play.engine.settled import Settled, settle
from genpolicy_play.engine.timekeeper import Timekeeper

STOP_GRACE_S = 0.25  # after "stop" where nothing was found yet; then a legal move is the answer
PATIENCE_S = 1.5  # the same where nothing was found yet and no clock runs: a move of the policy is worth the wait
BETWEEN_INFOS_S = 0.3  # of one search; the last one goes out with the answer


class Server:
    """Speaks one dialect for one policy.

    Args:
        host: The policy; not loaded yet.
        dialect: Of its game.
        output: Where the protocol goes.
        leave: Ends the process with a status, from any thread: the reader may be waiting for a line.
    """

    def __init__(self, host: Host, dialect: Dialect, output: Output, leave: Callable[[int], None]) -> None:
        self.host, self.game, self.dialect, self.output = host, host.game, dialect, output
        self._leave = leave
        self.settings: dict[str, Any] = {}
        self.failure: str | None = None
        """Why the policy could not be loaded."""
        self._position, self._plan = PositionReader(self.game), Plan(self.game)
        self._moves = frozenset(self.game.moves)
        self._by_name = {_plain_name(option.name): option for option in host.options}
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._loaded = threading.Event()
        self._job: Job | None = None
        """The search that was asked for last."""
        self._num_searches = 0  # asked for and not yet left by the worker
        self._counting = threading.Lock()
        self._searcher: Searcher | None = None
        self._debug = False
        self._time = Timekeeper(self._missed)
        self._worker = threading.Thread(target=self._work, name="search", daemon=True)

    # The reader.

    def run(self, lines: Iterable[bytes]) -> int:
        """Answer lines until ``quit`` or their end; the exit status.

        At the end of the lines a search that has a limit of its own is finished first.
        """
        self._tasks.put(self._load)
        self._worker.start()
        try:
            for line in lines:
                if self.failure is not None:
                    break
                if not self._answer_line(words_of(line)):
                    return 0
            self._finish()
        except ClosedOutputError:
            return 0
        return 2 if self.failure is not None else 0

    def _finish(self) -> None:
        """Let the worker end what it was asked for."""
        job = self._job
        if job is not None and job.held:
            job.stop()
            if job.reply is not None:
                self._answer(job)
        self._tasks.put(None)
        self._worker.join()

    def _answer_line(self, words: list[str]) -> bool:
        """Answer one line; False after ``quit``."""
        commands = self._commands()
        # The protocols ask to skip words that nobody knows: "joho debug on" is "debug on". A "quit" that is not the
        # first word is taken for noise: to end by mistake is worse.
        at = next((i for i, word in enumerate(words) if word in commands), None)
        if at is None or (at > 0 and words[at] == "quit"):
            if words:
                self._say(f"unknown command {shown(words[0])!r}")
            return True
        command, rest = words[at], words[at + 1 :]
        if command == "quit":
            return False
        try:
            commands[command](rest)
        except ClosedOutputError:
            raise
        except Exception as error:  # nothing that a GUI sends may end the engine
            self._say(f"{command}: {type(error).__name__}: {error}")
            self._log(f"{command}: {error!r}")
        return True

    def _commands(self) -> dict[str, Callable[[list[str]], None]]:
        return {
            "uci": self._hello,
            "usi": self._hello,
            "isready": self._is_ready,
            "setoption": self._set_option,
            "ucinewgame": self._new_game,
            "usinewgame": self._new_game,
            "position": self._set_position,
            "go": self._go,
            "stop": lambda _: self._stop(),
            "ponderhit": self._ponder_hit,
            "gameover": lambda _: self._stop(),
            "debug": self._set_debug,
            "register": lambda _: None,
            "quit": lambda _: None,
        }

    def _hello(self, rest: Sequence[str]) -> None:
        dialect, name = self.dialect, self.host.facts.name
        self.output.send(
            f"id name genpolicy {__version__} {name}",
            "id author the genpolicy authors",
            *(f"option name {dialect.spelt(option.name)} {option.declaration()}" for option in self.host.options),
            dialect.hello_answer,
        )

    def _is_ready(self, rest: Sequence[str]) -> None:
        if self._num_searches:
            self.output.send("readyok")
        else:
            self._tasks.put(self._get_ready)

    def _get_ready(self) -> None:
        """Apply what was set, and say that all is done."""
        self._apply()
        self.output.send("readyok")

    def _set_option(self, rest: Sequence[str]) -> None:
        named = read_setoption(rest)
        if named is None:
            self._say("setoption: write setoption name NAME value VALUE")
            return
        name, value = named
        option = self._by_name.get(_plain_name(name))
        if option is None:
            if name.lower() not in self.dialect.understood:
                self._say(f"no option {shown(name)!r}; it stays without effect")
            return
        try:
            self.settings[option.name] = option.read(value or "")
        except ValueError as error:
            self._say(f"option {option.name} {error}, got {shown(value or '')!r}; it stays as it was")

    def _new_game(self, rest: Sequence[str]) -> None:
        def forget() -> None:
            self._searcher = None
            if self.failure is None:
                self._apply()
                seed = self.settings.get("Seed", self.host.facts.values.get("seed", 0))
                self.host.policy.seed(int(seed or 0))

        self._tasks.put(forget)

    def _set_position(self, rest: Sequence[str]) -> None:
        named = read_position(rest)
        if named is None:
            self._say("position: write position startpos or position fen|sfen TEXT, with moves behind it or without")
            return
        if complaint := self._position.set(named):
            self._say(f"{complaint}; the position stays as it was")

    def _set_debug(self, rest: Sequence[str]) -> None:
        self._debug = rest[:1] == ["on"]

    def _stop(self) -> None:
        job = self._job
        if job is None or job.answered:
            return
        job.stop()
        if job.best is not None or job.pondering or job.reply is not None:
            # The part of the search that runs could hardly change it, and may take a while. Where the other side has
            # played another move than the one pondered on, nobody plays the answer, and a clock may run.
            self._answer(job)
        elif self._loaded.is_set():
            self._answer_soon(job)

    def _answer_soon(self, job: Job) -> None:
        self._time.later(STOP_GRACE_S if job.is_timed else PATIENCE_S, lambda: self._answer(job))

    def _ponder_hit(self, rest: Sequence[str]) -> None:
        job = self._job
        if job is None or job.answered or not job.go.ponder:
            return
        # Some GUIs tell the clock only now.
        go = read_go(rest, self.dialect, self._moves)
        job.ponder_hit(budget(go, self.game.player(job.state), self._overhead()))
        if job.reply is not None and not job.held:
            self._answer(job)
        elif self._loaded.is_set():
            self._watch_time(job)

    def _go(self, rest: Sequence[str]) -> None:
        if self._job is not None and not self._job.answered:
            self._say("go while a search runs: that one is stopped")
            before = self._job
            before.stop()
            self._answer_when_over(before)
        go = read_go(rest, self.dialect, self._moves)
        for complaint in go.complaints:
            self._say(complaint)
        state = self._position.state
        if go.mate is not None:
            self._go_mate(state, go)
            return
        if (settled := settle(self.game, self.dialect, state, go, wdl=self._wdl())) is not None:
            self._hold(state, go, settled)
            return
        legal = self.game.legal(state).tolist()
        ids = [self.game.moves.index(text) for text in go.search_moves]
        allowed = [move for move in ids if move in legal]
        if go.search_moves and not allowed:
            self._say("searchmoves names no legal move; all are searched")
        chosen = allowed or legal
        limit = budget(go, self.game.player(state), self._overhead())
        job = Job(
            state,
            chosen,
            restricted=len(chosen) < len(legal),
            go=go,
            time_limit=limit,
            multi_pv=int(self.settings.get("MultiPV", 1)),
        )
        self._begin(job, lambda: self._search(job))

    def _overhead(self) -> float:
        return float(self.settings.get("Move Overhead", self._by_name["moveoverhead"].default))

    def _go_mate(self, state: Any, go: Go) -> None:
        assert go.mate is not None
        # UCI gives the moves of a mate, USI the milliseconds to look for one.
        time_limit = Budget(*[go.mate / 1e3] * 3) if self.dialect.mate_answer and go.mate else None
        if time_limit is None and go.movetime is not None:
            time_limit = budget(go, self.game.player(state), 0.0)
        plies = None if self.dialect.mate_answer else max(1, 2 * go.mate - 1)
        multi_pv = int(self.settings.get("MultiPV", 1))
        job = MateJob(self.game, state, go, time_limit, max_plies=plies, multi_pv=multi_pv)
        if job.allowed:
            self._begin(job, lambda: self._search_mate(job))
        elif self.dialect.mate_answer is not None:
            self._hold(state, go, Settled((), mate_answer(self.dialect.mate_answer, self.game, job)))
        else:
            self._hold(state, go, Settled((), f"bestmove {self.dialect.no_move}"))

    def _hold(self, state: Any, go: Go, settled: Settled) -> None:
        """Give an answer that needs no search: when it is due, as any other."""
        job = Job(state, (), restricted=False, go=go, time_limit=None, multi_pv=1)
        job.reply = settled.reply
        self._job = job
        self.output.send(*settled.infos)
        if not job.held:
            self._answer(job)

    def _begin(self, job: Job, task: Callable[[], None]) -> None:
        self._job = job
        with self._counting:
            self._num_searches += 1

        def run() -> None:
            try:
                # An engine that died is started anew for the next question: that may be this one, asked again.
                if not self._tried(job, task) and job.best is None and not job.is_over:
                    self._say("it is asked once more")
                    self._tried(job, task)
                job.wait_for_release()
            finally:
                self._release(job)
            self._answer(job)

        self._tasks.put(run)
        if self._loaded.is_set():
            self._watch_time(job)

    def _tried(self, job: Job, task: Callable[[], None]) -> bool:
        """Whether a task did not fail; whatever a policy raises, the GUI gets its answer, and the next move a chance.

        Raises:
            ClosedOutputError: nobody reads the answer.
        """
        try:
            task()
        except ClosedOutputError:
            raise
        except Exception as error:
            job.failure = str(error) or type(error).__name__
            self._say(f"the policy fails here: {job.failure}")
            self._log(repr(error))
            self._searcher = None
            return False
        return True

    def _release(self, job: Job) -> None:
        """The worker is done with a job; before the answer goes out, so that what follows it finds the worker free."""
        with self._counting:
            self._num_searches -= not job.released
            job.released = True

    # Time.

    def _missed(self, error: Exception) -> None:
        if not isinstance(error, ClosedOutputError):  # the reader sees that, too, and ends
            self._log(repr(error))

    def _watch_time(self, job: Job) -> None:
        """See that the answer goes out when the time is over, whatever the worker does."""
        if job.hard_deadline is None or job.last_deadline is None:
            return

        def answer_if_found() -> None:
            if job.best is not None:
                self._answer(job)

        now = time.perf_counter()
        if job.last_deadline > job.hard_deadline:
            self._time.later(max(0.0, job.hard_deadline - now), answer_if_found)
        self._time.later(max(0.0, job.last_deadline - now), lambda: self._answer(job))

    def _answer_when_over(self, job: Job) -> None:
        """Wait for the answer of a job that was stopped, for as long as it is given, and send one."""
        deadline = time.perf_counter() + STOP_GRACE_S
        with job.changed:
            while not job.answered and job.reply is None and (left := deadline - time.perf_counter()) > 0:
                job.changed.wait(left)
        self._answer(job)

    # The worker.

    def _work(self) -> None:
        idle = False
        while True:
            try:
                task = self._tasks.get(timeout=None if idle else memory.IDLE_S)
            except queue.Empty:
                idle = True
                memory.tidy(idle=True)
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
            memory.tidy(idle=False)

    def _load(self) -> None:
        try:
            self.host.load()
            self._apply()
            start = self.game.parse()
            # The first call of a network is slow, and the clock should not pay for it.
            self.host.policy.decide([start])
            memory.settle()
        except Exception as error:
            self.failure = str(error) or type(error).__name__
            self._say(f"the policy cannot be loaded: {self.failure}")
            self._log(f"error: {self.failure}")
            self._leave(2)
            return
        self._loaded.set()
        job = self._job
        if job is not None and not job.answered:
            job.restart_clock()
            self._watch_time(job)
            if job.stop_asked:  # while there was nobody who could have answered
                self._answer_soon(job)

    def _apply(self) -> None:
        """Make the policy as it is set, and a searcher for it where it is another one."""
        for complaint in self.host.apply(self.settings):
            self._say(complaint)
        policy = self.host.policy
        if self._searcher is None or self._searcher.policy is not policy:
            self._searcher = make_searcher(policy, capped=self.host.was_set("simulations"))

    def _search(self, job: Job) -> None:
        """Search, and answer when the answer is due."""
        if job.answered:
            return
        try:
            self._apply()
            assert self._searcher is not None
            self._searcher.run(job, lambda found: self._publish(job, found))
        except SearchStopped:
            self._tell(f"stopped after {1e3 * job.elapsed_s():.0f} ms")
        job.wait_for_release()
        self._release(job)
        self._answer(job)

    def _search_mate(self, job: MateJob) -> None:
        """Look for a mate; where the protocol wants a move in any case, the policy's is played if there is none."""
        line = job.search()
        if self.dialect.mate_answer is None:
            if line is None:
                self._search(job)
                return
            self._publish(job, Found((Variation(tuple(line), mate_plies=len(line)),)))
        job.line = line
        job.wait_for_release()
        self._release(job)
        self._answer(job)

    def _publish(self, job: Job, found: Found) -> None:
        """Take an answer for the best so far, and tell it unless another one was told just now."""
        with job.changed:
            if job.answered:
                return
            job.best = found
            if job.told is None or job.elapsed_s() - job.told_s >= BETWEEN_INFOS_S:
                self._inform(job)

    def _inform(self, job: Job) -> None:
        """Tell the best so far, unless it was told already."""
        found = job.best
        if found is None or found is job.told:
            return
        job.told, job.told_s = found, job.elapsed_s()
        elapsed_s, wdl = job.elapsed_s(), self._wdl()
        lines = info_lines(self.game, self.dialect, job.state, found, elapsed_s, multi_pv=job.multi_pv, wdl=wdl)
        if text := legality(self.game, job.state, found):
            lines.append(f"info string {text}")
        self.output.send(*lines)

    def _answer(self, job: Job) -> None:
        """Send ``bestmove``, once."""
        with job.changed:
            if job.answered:
                return
            job.answered = True
            if job.reply is not None:
                self.output.send(job.reply)
                job.stop()
                return
            if isinstance(job, MateJob) and self.dialect.mate_answer is not None:
                self.output.send(mate_answer(self.dialect.mate_answer, self.game, job))
                job.stop()
                return
            if job.best is None:
                job.best, said = self._plan.makeshift(job)
                if not job.pondering:
                    self._say(said)
            else:
                self._inform(job)
            self.output.send(f"bestmove {best_move(self.game, job.state, job.best)}")
            job.stop()
            self._plan.remember(job.state, job.best)

    def _wdl(self) -> bool:
        return bool(self.settings.get("UCI_ShowWDL", True))

    # Saying.

    def _say(self, text: str) -> None:
        self.output.send(f"info string {shown(text, SAID_CHARACTERS)}")

    def _tell(self, text: str) -> None:
        if self._debug:
            self._say(text)

    @staticmethod
    def _log(text: str) -> None:
        print(f"genpolicy engine: {text}", file=sys.stderr, flush=True)


def _plain_name(name: str) -> str:
    """A name of an option without what GUIs spell in their own way."""
    return name.lower().replace(" ", "").replace("_", "")
