"""RulesModel: a game's own rules as a search model, with an evaluator at the leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from genpolicy.chance import probabilities
from genpolicy.game import Game
from genpolicy.search.model import Choices, Evaluator, LazyChoices, Nodes, Prior, SearchModel

PRIOR_TOLERANCE = 1e-3
"""How far a prior's sum may be from 1 (float32 and float16 softmaxes of many moves); it is divided by its sum."""


class RulesModel(SearchModel):
    """A game's own rules; an evaluator judges the positions in which the game continues.

    Embeddings are states, so a repetition inside the tree, or one that began before the root, is seen by the rules. The
    end of the game is never evaluated: its reward is the outcome for the player who made the last move. A root that is
    drawn by rule but has legal moves is searched as any other. Where chance decides the priors are its probabilities,
    and the value is the mean over its outcomes, which the evaluator judges.
    """

    reusable: ClassVar[bool] = True

    def __init__(self, game: Game[Any], evaluator: Evaluator) -> None:
        self.game, self.evaluator = game, evaluator

    def root(self, states: Sequence[Any]) -> Nodes:
        """The states as roots.

        Raises:
            ValueError: a state without legal moves, or an invalid prior or value from the evaluator.
        """
        for state in states:
            if len(self.game.legal(state)) == 0:
                raise ValueError(f"the game is over in {self.game.format(state)!r}: the player to move has no move")
        priors, values, chance = self._evaluated(states)
        count = len(states)
        choices = LazyChoices(count, lambda row: Choices(self.game.legal(states[row]), priors[row]))
        return Nodes(list(states), choices, values, [0.0] * count, [1.0] * count, chance)

    def expand(self, embeddings: Sequence[Any], choices: Sequence[int]) -> Nodes:
        """The positions after some moves.

        Raises:
            IllegalMoveError: a move is not legal.
            ValueError: an invalid prior or value from the evaluator.
        """
        game = self.game
        states = [game.play(state, move) for state, move in zip(embeddings, choices, strict=True)]
        outcomes = [game.outcome(state) for state in states]
        signs = [
            1.0 if game.player(after) == game.player(before) else -1.0
            for before, after in zip(embeddings, states, strict=True)
        ]
        running = [row for row, outcome in enumerate(outcomes) if outcome is None]
        evaluated = self._evaluated([states[row] for row in running])
        priors: list[NDArray[np.float64] | None] = [None] * len(states)
        values, chance = [0.0] * len(states), [False] * len(states)
        for row, prior, value, is_chance in zip(running, *evaluated, strict=True):
            priors[row], values[row], chance[row] = prior, value, is_chance

        def choices_of(row: int) -> Choices:
            over = outcomes[row] is not None
            return Choices(np.empty(0, np.int64), None) if over else Choices(game.legal(states[row]), priors[row])

        return Nodes(
            embeddings=states,
            choices=LazyChoices(len(states), choices_of),
            values=values,
            rewards=[0.0 if o is None else sign * o for sign, o in zip(signs, outcomes, strict=True)],
            discounts=[sign if o is None else 0.0 for sign, o in zip(signs, outcomes, strict=True)],
            chance=chance,
        )

    def position(self, embedding: Any) -> Any:
        """The embedding, which is a state."""
        return embedding

    def _evaluated(self, states: Sequence[Any]) -> tuple[list[NDArray[np.float64] | None], list[float], list[bool]]:
        """Checked priors (of the legal moves in order) and values, and where chance decides."""
        if not self.game.has_chance:
            priors, values = self._asked(states)
            return priors, values, [False] * len(states)
        priors, values = [probabilities(self.game, state) for state in states], [0.0] * len(states)
        chance = [shares is not None for shares in priors]
        rows = [row for row, is_chance in enumerate(chance) if not is_chance]
        for row, prior, value in zip(rows, *self._asked([states[row] for row in rows]), strict=True):
            priors[row], values[row] = prior, value
        thrown = [
            (row, move, share)
            for row, shares in enumerate(priors)
            if chance[row] and shares is not None
            for move, share in zip(self.game.legal(states[row]).tolist(), shares.tolist(), strict=True)
        ]
        if thrown:
            after = self.expand([states[row] for row, _, _ in thrown], [move for _, move, _ in thrown])
            for (row, _, share), reward, discount, value in zip(
                thrown, after.rewards, after.discounts, after.values, strict=True
            ):
                values[row] += share * (reward + discount * value)
        return priors, [min(1.0, max(-1.0, value)) for value in values], chance

    def _asked(self, states: Sequence[Any]) -> tuple[list[NDArray[np.float64] | None], list[float]]:
        """The evaluator's priors and values, checked."""
        if not states:
            return [], []
        priors, values = self.evaluator(states)
        if len(priors) != len(states) or len(values) != len(states):
            raise ValueError(
                f"evaluator gave {len(priors)} priors and {len(values)} values for {len(states)} positions"
            )
        return (
            [self._prior(state, prior) for state, prior in zip(states, priors, strict=True)],
            [self._value(state, value) for state, value in zip(states, values, strict=True)],
        )

    def _value(self, state: Any, value: float) -> float:
        value = float(value)
        if not abs(value) <= 1.0 + PRIOR_TOLERANCE:  # so written, NaN fails too
            raise ValueError(
                f"evaluator gave the value {value} in {self.game.format(state)!r}; a value lies in [-1, 1], for the "
                "player to move (a win probability p is the value 2 p - 1)"
            )
        return min(1.0, max(-1.0, value))

    def _prior(self, state: Any, prior: Prior) -> NDArray[np.float64] | None:
        if prior is None:
            return None
        legal = self.game.legal(state)
        if isinstance(prior, Mapping):
            extra = set(prior) - set(legal.tolist())
            if extra:
                names = ", ".join(
                    self.game.moves[i] if 0 <= i < len(self.game.moves) else str(i) for i in sorted(extra)
                )
                raise ValueError(f"evaluator gave a prior for illegal moves in {self.game.format(state)!r}: {names}")
            prior = np.array([prior.get(move, 0.0) for move in legal.tolist()], np.float64)
        array = np.asarray(prior, np.float64)
        if array.shape != legal.shape:
            raise ValueError(
                f"evaluator gave a prior of shape {array.shape} in {self.game.format(state)!r}, which has {len(legal)} "
                "legal moves"
            )
        total = float(array.sum())
        if not (math.isfinite(total) and abs(total - 1.0) <= PRIOR_TOLERANCE and float(array.min()) >= 0.0):
            raise ValueError(
                f"evaluator gave a prior that is not a distribution in {self.game.format(state)!r}: sum {total}, least "
                f"{array.min()}"
            )
        return array / total


def even(states: Sequence[Any]) -> tuple[list[Prior], list[float]]:
    """Uniform prior, value 0: all knowledge comes from the ends of the game that the search meets."""
    return [None] * len(states), [0.0] * len(states)
