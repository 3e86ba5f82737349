"""Policies that need neither weights nor an engine: a uniform random legal move, the floor of every comparison, and
the greedy one, which looks one ply ahead by the game's own heuristic.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

from genpolicy.control import FREE, Control
from genpolicy.facets import evaluation, gives_evaluation
from genpolicy.game import Game
from genpolicy.options import Option, PolicySpec
from genpolicy.policies import declared
from genpolicy.policies.base import Decision, Policy, legal_of, resolve_game
from genpolicy.policies.seeds import RowSeeds


class SeededPolicy(Policy):
    """A policy without weights that draws, and that its kind and a seed make.

    Args:
        game: The game to play.
        seed: Same seed, same game (see ``genpolicy.policies.seeds``).
    """

    starts_cold: ClassVar[bool] = False

    def __init__(self, game: Game[Any], seed: int = 0) -> None:
        self.game = game
        self._seeds = RowSeeds(seed)

    def seed(self, seed: int) -> None:
        """Make the draws that follow the same as those after any other call with this seed."""
        self._seeds.reset(seed)

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """See ``Policy.options``."""
        del spec
        return (declared.SEED,)

    def with_options(self, **changed: Any) -> SeededPolicy:
        """The same policy with another seed.

        Raises:
            ValueError: another option than ``seed``.
        """
        return type(self)(self.game, **{"seed": self._seeds.seed, **self.read_changes(changed)})

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> SeededPolicy:
        """``KIND`` or ``KIND?seed=3``, with ``game``.

        Raises:
            ValueError: an argument, or no game.
        """
        if argument:
            raise ValueError(
                f"policy {cls.kind!r} takes no argument, got {argument!r}; write {cls.kind} or {cls.kind}?seed=3"
            )
        return cls(resolve_game(options.get("game"), cls.kind), seed=options.get("seed") or 0)


class RandomPolicy(SeededPolicy):
    """Plays a uniformly random legal move.

    Args:
        game: The game to play.
        seed: Same seed, same game (see ``genpolicy.policies.seeds``).
    """

    kind: ClassVar[str] = "random"
    spelling: ClassVar[str] = "random[?seed=N]"

    @classmethod
    def untrained(cls, game: Game[Any]) -> tuple[str, ...]:
        """See ``Policy.untrained``."""
        return (cls.kind,)

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """One uniform legal move for each position.

        Raises:
            ValueError: a position without legal moves, or without an allowed one.
        """
        decisions = []
        legal_moves = legal_of(self.game, states, control)
        seeds = self._seeds.draw([self.game.format(state) for state in states])
        for legal, seed in zip(legal_moves, seeds, strict=True):
            share = 1.0 / len(legal)
            move = random.Random(seed).choice(legal)
            chances, names = dict.fromkeys(legal, share), self.game.moves.texts
            decisions.append(Decision(move, chances, line=(move,), stats={"raw_legal": 1.0}, names=names))
        return decisions


class GreedyPolicy(SeededPolicy):
    """Plays the move with the best ``Hints.evaluate`` afterwards: in chess, material and piece placement.

    Where a move ends the game its result counts instead of the heuristic. Of moves that are equally good one is drawn.
    ``Decision.value`` is the best move's, ``policy`` shares evenly among the best.

    Args:
        game: A game with a heuristic evaluation.
        seed: Same seed, same game (see ``genpolicy.policies.seeds``).

    Raises:
        ValueError: the game has none.
    """

    kind: ClassVar[str] = "greedy"
    spelling: ClassVar[str] = "greedy[?seed=N]"

    def __init__(self, game: Game[Any], seed: int = 0) -> None:
        super().__init__(game, seed)
        self._evaluate = evaluation(game)

    @classmethod
    def untrained(cls, game: Game[Any]) -> tuple[str, ...]:
        """See ``Policy.untrained``."""
        return (cls.kind,) if gives_evaluation(game) else ()

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """A best move by one ply for each position.

        Raises:
            ValueError: a position without legal moves or without an allowed one.
        """
        legal_moves = legal_of(self.game, states, control)
        seeds = self._seeds.draw([self.game.format(state) for state in states])
        rows = zip(states, legal_moves, seeds, strict=True)
        return [self._choose(*row, control) for row in rows]

    def _choose(self, state: Any, legal: list[int], seed: int, control: Control) -> Decision:
        control.check()
        values = {move: self._value(state, self.game.play(state, move)) for move in legal}
        best = max(values.values())
        tied = [move for move, value in values.items() if value == best]
        move = random.Random(seed).choice(tied)
        policy = {each: (1.0 / len(tied) if values[each] == best else 0.0) for each in legal}
        stats, names = {"raw_legal": 1.0}, self.game.moves.texts
        return Decision(move, policy=policy, value=best, line=(move,), stats=stats, names=names)

    def _value(self, before: Any, after: Any) -> float:
        """Value of a position for the player who has just moved."""
        result = self.game.outcome(after)
        value = self._evaluate(after) if result is None else result
        return value if self.game.player(after) == self.game.player(before) else 0.0 - value
