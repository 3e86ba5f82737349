"""The engine's commands: reads the lines of a GUI and answers each at once.

The thread that reads never waits for a search, so ``isready``, ``stop`` and ``quit`` are answered at any time; another
one, the ``Worker``, loads the policy and searches. Whatever a policy does, each ``go`` gets one ``bestmove``, at the
latest when its time is over: where a policy cannot be stopped, the best answer it has published goes out, and what it
finds later is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from genpolicy import __version__
from genpolicy_play.engine.host import Host
from genpolicy_play.engine.options import declaration, read_text
from genpolicy_play.engine.process import ClosedOutputError, Output
from genpolicy_play.engine.protocol import (
    MESSAGE_CHARACTERS,
    Dialect,
    Go,
    PositionReader,
    quoted,
    read_go,
    read_position,
    read_setoption,
    words_of,
)
from genpolicy_play.engine.replies import Replies
from genpolicy_play.engine.search import Budget, Search, make_budget
from genpolicy_play.engine.shortcuts import MAX_MATE_PLIES, MateSearch, Reply, immediate_reply
from genpolicy_play.engine.worker import Worker


class Server:
    """Speaks one dialect for one policy.

    Args:
        host: The policy; not loaded yet.
        dialect: Dialect of its game.
        output: Where the protocol goes.
        leave: Ends the process with a status, from any thread: the reader may be waiting for a line.
    """

    def __init__(self, host: Host, dialect: Dialect, output: Output, leave: Callable[[int], None]) -> None:
        self.host, self.game, self.dialect, self.output = host, host.game, dialect, output
        self.settings: dict[str, Any] = {}
        """The options that are set, by name."""
        self._replies = Replies(self.game, dialect, output, self.settings)
        self._worker = Worker(host, self._replies, self.settings, mate_answer=dialect.mate_answer, leave=leave)
        self._position = PositionReader(self.game)
        self._moves = frozenset(self.game.moves)
        self._by_name = {_plain_name(option.name): option for option in host.options}
        self._search: Search | None = None
        """That of the last ``go``."""
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "uci": self._hello,
            "usi": self._hello,
            "isready": self._is_ready,
            "setoption": self._set_option,
            "ucinewgame": lambda _: self._worker.new_game(),
            "usinewgame": lambda _: self._worker.new_game(),
            "position": self._set_position,
            "go": self._go,
            "stop": lambda _: self._stop(),
            "ponderhit": self._ponder_hit,
            "gameover": lambda _: self._stop(),
            "debug": self._set_debug,
            "register": lambda _: None,
            "quit": lambda _: None,
        }

    def run(self, lines: Iterable[bytes | None]) -> int:
        """Answer lines until ``quit`` or their end, where a search that has a limit of its own is finished first.

        Args:
            lines: None stands for one that was too long to read.

        Returns:
            The exit status.
        """
        self._worker.start()
        try:
            for line in lines:
                if self._worker.failure is not None:
                    break
                if line is None:
                    self._replies.say("a line was too long and is ignored")
                elif not self._answer_line(words_of(line)):
                    return 0
            self._finish()
        except ClosedOutputError:
            return 0
        finally:
            self._replies.close()
        return 2 if self._worker.failure is not None else 0

    def _finish(self) -> None:
        search = self._search
        if search is not None and search.held:
            search.stop()
            if search.reply is not None:
                self._replies.answer(search)
        self._worker.finish()

    def _answer_line(self, words: list[str]) -> bool:
        """Answer one line; False after ``quit``."""
        # The protocols ask engines to skip unknown words: "joho debug on" is "debug on". A "quit" behind such a word is
        # ignored: to end by mistake is worse.
        at = next((i for i, word in enumerate(words) if word in self._commands), None)
        if at is None or (at > 0 and words[at] == "quit"):
            if words:
                self._replies.say(f"unknown command {quoted(words[0])!r}")
            return True
        command, rest = words[at], words[at + 1 :]
        if command == "quit":
            return False
        try:
            self._commands[command](rest)
        except ClosedOutputError:
            raise
        except Exception as error:  # nothing that a GUI sends may end the engine
            self._replies.say(f"{command}: {type(error).__name__}: {error}")
            self._replies.log(f"{command}: {error!r}")
        return True

    def _hello(self, rest: Sequence[str]) -> None:
        dialect, name = self.dialect, self.host.spec.label
        self.output.send(
            f"id name genpolicy {__version__} {name}",
            "id author the genpolicy authors",
            *(f"option name {dialect.option_name(option.name)} {declaration(option)}" for option in self.host.options),
            dialect.hello_answer,
        )

    def _is_ready(self, rest: Sequence[str]) -> None:
        if self._worker.is_searching:
            self.output.send("readyok")
        else:
            self._worker.when_ready(lambda: self.output.send("readyok"))

    def _set_option(self, rest: Sequence[str]) -> None:
        named = read_setoption(rest)
        if named is None:
            self._replies.say("setoption: write setoption name NAME value VALUE")
            return
        name, value = named
        option = self._by_name.get(_plain_name(name))
        if option is None:
            if name.lower() == "uci_chess960" and (value or "").lower() == "true":
                self._replies.say("Chess960 is not supported")
            elif name.lower() not in self.dialect.ignored:
                self._replies.say(f"no option {quoted(name)!r}; the line is ignored")
            return
        try:
            self.settings[option.name] = read_text(option, value or "")
        except ValueError as error:
            self._replies.say(f"option {option.name} stays as it was: {quoted(str(error), MESSAGE_CHARACTERS)}")

    def _set_position(self, rest: Sequence[str]) -> None:
        named = read_position(rest)
        if named is None:
            self._replies.say("position: write position startpos or position fen|sfen TEXT, then any moves")
            return
        if complaint := self._position.set(named):
            self._replies.say(f"{complaint}; the position stays as it was")

    def _set_debug(self, rest: Sequence[str]) -> None:
        self._replies.debug = rest[:1] == ["on"]

    def _stop(self) -> None:
        search = self._search
        if search is None or search.answered:
            return
        search.stop()
        if search.best is not None or search.pondering or search.reply is not None:
            # The part of the search that still runs could hardly change the answer, and may take a while. Where the
            # opponent has played another move than the one pondered on, the answer is not played, and a clock may run.
            self._replies.answer(search)
        elif self._worker.is_loaded:
            self._replies.answer_soon(search)

    def _ponder_hit(self, rest: Sequence[str]) -> None:
        search = self._search
        if search is None or search.answered or not search.go.ponder:
            return
        # Some GUIs send the clock only now.
        go = read_go(rest, self.dialect, self._moves)
        search.ponder_hit(make_budget(go, self.game.player(search.state), self._overhead_ms()))
        if search.reply is not None and not search.held:
            self._replies.answer(search)
        elif self._worker.is_loaded:
            self._replies.answer_in_time(search)

    def _go(self, rest: Sequence[str]) -> None:
        before = self._search
        if before is not None and not before.answered:
            self._replies.say("go while a search runs: that search is stopped")
            before.stop()
            self._replies.answer_now(before)
        go = read_go(rest, self.dialect, self._moves)
        for complaint in go.complaints:
            self._replies.say(complaint)
        state = self._position.state
        if go.mate is not None:
            self._go_mate(state, go)
        elif (reply := immediate_reply(self.game, self.dialect, state, go, wdl=self._replies.wdl)) is not None:
            self._hold(state, go, reply)
        else:
            legal = self.game.legal(state).tolist()
            allowed = self._allowed(state, go) or legal
            budget = make_budget(go, self.game.player(state), self._overhead_ms())
            restricted = len(allowed) < len(legal)
            self._begin(
                Search(
                    state, allowed, restricted=restricted, go=go, budget=budget, num_variations=self._num_variations()
                )
            )

    def _allowed(self, state: Any, go: Go) -> list[int]:
        """The legal moves that ``searchmoves`` names."""
        allowed: dict[int, None] = {}
        for text in go.search_moves:
            with suppress(ValueError):
                allowed[self.game.move_from_text(state, text)] = None
        if go.search_moves and not allowed:
            self._replies.say("searchmoves names no legal move; all are searched")
        return list(allowed)

    def _go_mate(self, state: Any, go: Go) -> None:
        assert go.mate is not None
        word = self.dialect.mate_answer
        # UCI gives the moves of a mate, USI the milliseconds to look for one.
        budget = Budget(*[go.mate / 1e3] * 3) if word and go.mate else None
        if budget is None and not word:
            budget = make_budget(go, self.game.player(state), self._overhead_ms())
        elif budget is None and go.movetime is not None:
            budget = make_budget(go, self.game.player(state), 0.0)
        plies = None if word else max(1, min(2 * go.mate - 1, go.depth or MAX_MATE_PLIES))
        allowed = self._allowed(state, go) or self.game.legal(state).tolist()
        search = MateSearch(self.game, state, allowed, go, budget, plies, self._num_variations())
        if search.allowed:
            self._begin(search)
        else:
            self._hold(state, go, Reply(search.mate_text(word) if word else f"bestmove {self.dialect.no_move}"))

    def _begin(self, search: Search) -> None:
        self._search = search
        self._worker.begin(search)

    def _hold(self, state: Any, go: Go, reply: Reply) -> None:
        """Send an answer that takes no search when it is due, as any other."""
        self._search = search = Search(state, (), go=go)
        search.reply = reply.line
        self.output.send(*reply.infos)
        if not search.held:
            self._replies.answer(search)

    def _overhead_ms(self) -> float:
        return float(self.settings.get("Move Overhead", self._by_name["moveoverhead"].default))

    def _num_variations(self) -> int:
        return int(self.settings.get("MultiPV", 1))


def _plain_name(name: str) -> str:
    """The name of an option without what GUIs spell in their own way."""
    return name.lower().replace(" ", "").replace("_", "")
