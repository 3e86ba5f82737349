"""Thinking under limits: a policy publishes better and better answers until a limit is reached.

An engine, or any other caller with a clock, asks a policy for its ``Thinker`` (``Policy.thinker``). The thinker
publishes an answer as soon as it has one, and then better ones; the caller plays the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from genpolicy.control import FREE, Control
from genpolicy.policies.base import Decision, Variation, likeliest_first


@dataclass(frozen=True)
class Answer:
    """The best that a policy has found so far."""

    variations: tuple[Variation, ...]
    """The best first; at least one."""
    nodes: int = 0
    """Network calls, or positions evaluated where there is no network."""
    depth: int | None = None
    """Plies searched; None for the length of the line."""
    imagined: tuple[int, ...] = ()
    """The moves that the policy imagined, whichever is played; -1 where it imagined none."""
    states: tuple[str | None, ...] = ()
    """Text of each imagined state, after ``imagined[i]``."""

    @property
    def move(self) -> int:
        """The move to play, absolute id."""
        return self.variations[0].line[0]

    @classmethod
    def of(cls, decision: Decision, nodes: int = 0, num_variations: int = 1) -> Answer:
        """The answer that a decision gives; the other variations are its own, or the likeliest of its moves."""
        line = decision.line if decision.line[:1] == (decision.move,) else (decision.move,)
        plies = decision.stats.get("mate_plies")
        sign = -1 if (decision.value or 0.0) < 0 else 1
        first = Variation(line, decision.value, None if not plies else sign * int(plies), wdl=decision.wdl)
        others = [Variation((move,)) for move, chance in likeliest_first(decision.policy).items() if chance > 0]
        more = [each for each in decision.variations or others if each.line[0] != decision.move]
        depth = decision.stats.get("depth")
        variations = (first, *more[: num_variations - 1])
        return cls(variations, nodes, None if depth is None else int(depth), decision.line, decision.states)


class Limits:
    """What ends a thinker's work, besides ``Control.check``. A subclass may change them while the thinker works.

    Args:
        nodes: Network calls, or positions evaluated where there is no network.
        depth: Plies.
        num_variations: Variations of each answer.
    """

    def __init__(self, *, nodes: int | None = None, depth: int | None = None, num_variations: int = 1) -> None:
        self.nodes, self.depth, self.num_variations = nodes, depth, num_variations

    @property
    def is_endless(self) -> bool:
        """Whether to continue until ``Control.check`` raises."""
        return False

    @property
    def is_timed(self) -> bool:
        """Whether a clock runs, or will run once the opponent has moved."""
        return False

    @property
    def is_own(self) -> bool:
        """Whether only the policy's own limits hold."""
        return not (self.nodes or self.depth or self.is_timed or self.is_endless)

    def remaining_s(self) -> float | None:
        """Seconds until the answer should be complete; None while no clock runs."""
        return None


Publish = Callable[[Answer], None]


class Thinker(Protocol):
    """Thinks for one policy; it may reuse at one position what it found at the last."""

    def think(self, state: Any, limits: Limits, publish: Publish, *, control: Control = FREE) -> None:
        """Publish at least one answer, unless ``control.check`` raises before.

        Args:
            state: A position in which the player to move has a legal move.
            limits: ``think`` returns as soon as one is reached.
            publish: Called with each answer; the last one counts.
            control: As in ``Policy.decide``.

        Raises:
            ValueError: the policy cannot decide here.
        """
        ...
