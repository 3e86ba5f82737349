"""``go mate``: looks for a forced mate by the rules alone, whatever the policy is."""

from __future__ import annotations

from typing import Any

from genpolicy.game import Game
from genpolicy_play.engine.clock import Budget
from genpolicy_play.engine.job import Job, SearchStopped
from genpolicy_play.engine.protocol import Go
from genpolicy_play.engine.watching import interruptible

MAX_PLIES = 199


class MateJob(Job):
    """A search for a mate.

    Args:
        game: The rules.
        state: A position.
        go: What was asked.
        time_limit: Of the search; None: no limit.
        max_plies: The longest mate to look for; None: any.
        multi_pv: See ``Job``; for the policy's own search where there is no mate.
    """

    def __init__(
        self, game: Game[Any], state: Any, go: Go, time_limit: Budget | None, max_plies: int | None, multi_pv: int
    ) -> None:
        legal = game.legal(state).tolist()
        super().__init__(state, legal, restricted=False, go=go, time_limit=time_limit, multi_pv=multi_pv)
        self.game = game
        self.max_plies = max_plies
        self.line: list[int] | None = None
        """The mate, once it is found."""
        self.exhausted = False
        """Whether all mates that were asked for have been looked for."""

    def search(self) -> list[int] | None:
        """The moves of the shortest mate, of both sides; None where there is none, or none was found in time."""
        try:
            with interruptible(self.check):
                for plies in range(1, (self.max_plies or MAX_PLIES) + 1, 2):
                    if self.game.mate_distance(self.state, plies) is not None:
                        return self._line(self.state, plies)
        except SearchStopped:
            return None
        self.exhausted = True
        return None

    def _line(self, state: Any, plies: int) -> list[int]:
        """A mate in exactly ``plies``, which there is: the defender holds out as long as possible."""
        for move in self.game.legal(state).tolist():
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
                distance = self.game.mate_distance(answered, plies - 2)
                if distance is None:
                    longest = None
                    break
                if longest is None or distance > longest[0]:
                    longest = (distance, reply, answered)
            if longest is not None:
                return [move, longest[1], *self._line(longest[2], longest[0])]
        raise AssertionError(f"no mate in {plies} plies in {self.game.format(state)!r}, though there is one")


def mate_answer(word: str, game: Game[Any], job: MateJob) -> str:
    """What answers ``go mate`` where the protocol has a word for it: the moves, that there are none, or no answer."""
    if job.line:
        return f"{word} {' '.join(game.moves[move] for move in job.line)}"
    return f"{word} {'nomate' if not job.allowed or job.exhausted else 'timeout'}"
