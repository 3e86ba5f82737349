"""What the policy meant to play next, for when it finds no time to say so.

A policy that imagines a future has chosen its next move with this one; where the other side has answered as imagined,
that move is worth more than any legal one.
"""

from __future__ import annotations

from typing import Any

from genpolicy.game import Game
from genpolicy_play.engine.answer import Found, Variation, legal_prefix
from genpolicy_play.engine.job import Job


class Plan:
    """The moves of the last answer's line, by the positions in which they were to be played.

    Args:
        game: The rules.
    """

    def __init__(self, game: Game[Any]) -> None:
        self._game = game
        self._moves: dict[str, int] = {}

    def remember(self, state: Any, found: Found) -> None:
        """Take the line of an answer; a line of one move changes nothing.

        Args:
            state: Where it was given.
            found: What was.
        """
        moves, states = legal_prefix(self._game, state, found.variations[0].line)
        if len(moves) > 1:
            where = [state, *states]
            self._moves = {self._game.format(at): move for at, move in zip(where, moves, strict=False)}

    def makeshift(self, job: Job) -> tuple[Found, str]:
        """The answer where the policy gave none, and what to say of it: what it planned, else any legal move."""
        planned = self._moves.get(self._game.format(job.state)) if self._moves else None
        why = "no answer of the policy in time" if job.failure is None else f"the policy failed ({job.failure})"
        if planned in job.allowed:
            return _of(planned), f"{why}: the move that it planned before is played"
        return _of(job.allowed[0]), f"{why}: a legal move is played instead"


def _of(move: int) -> Found:
    return Found((Variation((move,)),))
