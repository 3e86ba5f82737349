"""Answers to ``go`` that take no search of the policy: a finished or declared game, a forced mate, a planned move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genpolicy.game import Game
from genpolicy.policies.base import Variation
from genpolicy.policies.thinking import Answer
from genpolicy_play.engine.info import legal_prefix
from genpolicy_play.engine.protocol import Dialect, Go
from genpolicy_play.engine.search import Budget, Search, SearchStopped

MAX_MATE_PLIES = 199


@dataclass(frozen=True)
class Reply:
    """An answer that takes no search."""

    line: str
    """The whole answer, which waits where answers are held."""
    infos: tuple[str, ...] = ()
    """Whole lines that go out at once."""


def immediate_reply(game: Game[Any], dialect: Dialect, state: Any, go: Go, *, wdl: bool) -> Reply | None:
    """The answer where the game is over or the player to move can declare a win; None where a search is needed.

    Args:
        game: The rules.
        dialect: Dialect of the game.
        state: A position.
        go: The limits; with ``searchmoves`` no win is declared.
        wdl: Whether to report win, draw and loss, where the protocol has them.
    """
    wdl &= dialect.wdl
    if len(game.legal(state)) == 0:
        lost = game.outcome(state) == -1.0
        score = "mate 0" if lost else "cp 0"
        share = " wdl 0 0 1000" if lost else " wdl 0 1000 0"
        return Reply(f"bestmove {dialect.no_move}", (_info(score + share * wdl),))
    if dialect.win is not None and game.declaration(state) == 1.0 and not go.search_moves:
        explanation = "info string the player to move wins by declaration"
        return Reply(f"bestmove {dialect.win}", (_info("mate 1"), explanation))
    return None


def _info(score: str) -> str:
    return f"info depth 0 score {score} nodes 0 nps 0 time 0"


MATE_SHARE = 0.5
"""Of the time, for a mate; a policy has the rest, where it plays if there is none."""


class MateSearch(Search):
    """A search for a forced mate by the rules alone, whatever the policy is.

    Args:
        game: The rules.
        state: A position.
        allowed: The moves that may begin the mate.
        go: The limits.
        budget: Time for the search; None sets no limit.
        max_plies: The longest mate to look for; None looks for any.
        num_variations: As in ``Search``, for the policy's own search where there is no mate.
    """

    def __init__(
        self,
        game: Game[Any],
        state: Any,
        allowed: list[int],
        go: Go,
        budget: Budget | None,
        max_plies: int | None,
        num_variations: int,
    ) -> None:
        restricted = len(allowed) < len(game.legal(state))
        super().__init__(state, allowed, restricted=restricted, go=go, budget=budget, num_variations=num_variations)
        self.game, self.max_plies = game, max_plies
        self.line: list[int] | None = None
        """The mate, once it is found."""
        self.exhausted = False
        """Whether there is no mate of the lengths to look for."""
        self._num_checks = 0

    def check_mate(self) -> None:
        """As ``check``; and end after as many positions as ``go`` says, or where the rest of the time is the policy's.

        Raises:
            SearchStopped: it has to end.
        """
        self.check()
        self._num_checks += 1
        budget = None if self.max_plies is None else self.budget
        if budget is not None and self.elapsed_s() >= MATE_SHARE * budget.soft_s:
            raise SearchStopped
        if self.go.nodes is not None and self._num_checks > self.go.nodes:
            raise SearchStopped

    def run(self) -> list[int] | None:
        """The moves of both sides in the shortest mate; None where there is none, or none was found in time."""
        try:
            for plies in range(1, (self.max_plies or MAX_MATE_PLIES) + 1, 2):
                there = self.restricted or self.game.mate_distance(self.state, plies, check=self.check_mate) is not None
                if there and (line := self._line(self.state, self.allowed, plies)) is not None:
                    return line
        except SearchStopped:
            return None
        self.exhausted = True
        return None

    def _line(self, state: Any, moves: list[int], plies: int) -> list[int] | None:
        """A mate in exactly ``plies`` that begins with one of the moves; the defender holds out as long as possible."""
        for move in moves:
            after = self.game.play(state, move)
            replies = self.game.legal(after).tolist()
            if not replies:
                if plies == 1 and self.game.outcome(after) == -1.0:
                    return [move]
                continue
            if plies == 1 or self.game.outcome(after) is not None:
                continue
            longest: tuple[int, int, Any] | None = None
            for reply in replies:
                answered = self.game.play(after, reply)
                distance = self.game.mate_distance(answered, plies - 2, check=self.check_mate)
                if distance is None:
                    longest = None
                    break
                if longest is None or distance > longest[0]:
                    longest = (distance, reply, answered)
            if longest is not None:
                distance, reply, answered = longest
                rest = self._line(answered, self.game.legal(answered).tolist(), distance)
                assert rest is not None, f"a mate in {distance} plies in {self.game.format(answered)!r} is none"
                return [move, reply, *rest]
        return None

    def mate_text(self, word: str) -> str:
        """The answer of a protocol that has a word for it: the moves, ``nomate``, or ``timeout``."""
        if self.line:
            return f"{word} {' '.join(self.game.moves[move] for move in self.line)}"
        return f"{word} {'nomate' if not self.allowed or self.exhausted else 'timeout'}"


class Plan:
    """The moves of the last answer's line, by the positions in which they were to be played.

    A policy that imagines a future has chosen its next move along with this one. If the opponent replies as imagined
    and the policy then finds no time to answer, that move is better than an arbitrary legal one.

    Args:
        game: The rules.
    """

    def __init__(self, game: Game[Any]) -> None:
        self._game = game
        self._moves: dict[str, int] = {}

    def remember(self, state: Any, answer: Answer) -> None:
        """Store the line of an answer; a line of one move changes nothing.

        Args:
            state: The position that was answered.
            answer: The answer.
        """
        moves, states = legal_prefix(self._game, state, answer.variations[0].line)
        if len(moves) > 1:
            where = [state, *states]
            self._moves = {self._game.format(at): move for at, move in zip(where, moves, strict=False)}

    def substitute(self, search: Search) -> tuple[Answer, str]:
        """An answer where the policy gave none, and the explanation: the planned move, else any legal one."""
        planned = self._moves.get(self._game.format(search.state)) if self._moves else None
        why = "no answer of the policy in time" if search.failure is None else f"the policy failed ({search.failure})"
        if planned in search.allowed:
            return _answer(planned), f"{why}: the move planned before is played"
        return _answer(search.allowed[0]), f"{why}: a legal move is played instead"


def _answer(move: int) -> Answer:
    return Answer((Variation((move,)),))
