"""Plays by comparing: the move after which the position is better than after any other.

``alphabeta?depth=3&comparator=FOLDER`` searches deeper with it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from genpolicy.control import FREE
from genpolicy.policies.base import Decision
from genpolicy.policies.saved import WeightsPolicy
from genpolicy_policy_deepchess.learner import ComparatorLearner


class NetworkComparator:
    """A ``genpolicy.search.model.Comparator``; what it has read of a position is remembered.

    Args:
        learner: Holds the weights.
        capacity: Positions remembered, those used last; and answers.
        evaluating: What the network is called in.
    """

    def __init__(
        self,
        learner: ComparatorLearner,
        capacity: int = 50_000,
        evaluating: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._learner, self._capacity, self._evaluating = learner, capacity, evaluating
        self._codes: OrderedDict[str, Tensor] = OrderedDict()
        self._group: list[str] = []
        self._answers: dict[tuple[str, str], float] = {}
        self._met: set[str] = set()
        """Second positions of the pairs in ``_answers``."""
        self.num_encoded = 0
        """Positions that went through the encoder."""
        self.num_calls = 0
        """Calls of the encoder and of what compares its codes."""

    def prepare(self, states: Sequence[Any]) -> None:
        """Read positions that will be asked about, all in one network call."""
        self._group = self._read(states)

    @torch.no_grad()
    def _read(self, states: Sequence[Any]) -> list[str]:
        """The keys of positions, whose codes are then known."""
        game = self._learner.game
        keys = []
        for state in states:
            try:
                keys.append(game.format(state))
            except (AttributeError, TypeError) as error:  # what a game says of a state that it did not make
                raise ValueError(f"a {type(state).__name__} is not a position of {game.spec!r}") from error
        missing = {key: state for key, state in zip(keys, states, strict=True) if key not in self._codes}
        if missing:
            views = [game.tokens.encode(list(missing.values()), [viewer] * len(missing)) for viewer in (0, 1)]
            with self._evaluating():
                codes = self._learner.codes_of(np.stack(views, axis=1))
            self._codes.update(zip(missing, codes, strict=True))
            self.num_encoded += len(missing)
            self.num_calls += 1
        return keys

    def __call__(self, pairs: Sequence[tuple[Any, Any]], player: int) -> list[float]:
        """Log-odds that the first of each pair is better for a player.

        A search asks for one pair at a time. When it compares a prepared position with one that was compared before,
        those prepared after it are compared with that one in the same call.

        Raises:
            ValueError: the network's answer is not finite, or a position is of another game.
        """
        keys = self._read([state for pair in pairs for state in pair])
        for key in keys:
            self._codes.move_to_end(key)
        asked = list(zip(keys[::2], keys[1::2], strict=True))
        unknown = [pair for pair in asked if pair not in self._answers]
        if len(unknown) == 1:
            first, second = unknown[0]
            if second in self._met and first in self._group:
                rest = self._group[self._group.index(first) :]
                unknown = [(each, second) for each in rest if each in self._codes]
        if unknown:
            self._compare(unknown)
        answers = [self._answers[pair] * (1 - 2 * player) for pair in asked]
        while len(self._codes) > self._capacity:
            self._codes.popitem(last=False)
        if len(self._answers) > self._capacity:
            self._answers.clear()
            self._met.clear()
        return answers

    @torch.no_grad()
    def _compare(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Remember what the network answers for player 0, in both orders where one is the opposite of the other."""
        codes = (torch.stack([self._codes[pair[i]] for pair in pairs]) for i in range(2))
        with self._evaluating():
            answers = self._learner.network.compare(*codes)
        if not bool(torch.isfinite(answers).all()):
            raise ValueError("the comparator's outputs are not finite: its weights are damaged, train it again")
        self.num_calls += 1
        found = dict(zip(pairs, answers.tolist(), strict=True))
        if self._learner.config.antisymmetric:  # the sums of another batch are rounded otherwise
            self._answers.update({(second, first): -answer for (first, second), answer in found.items()})
        self._answers.update(found)
        self._met.update(second for _, second in pairs)


class ComparatorPolicy(WeightsPolicy):
    """Plays the move whose position beats those of the other moves, one ply deep; a win is played at once.

    Stats: ``network_calls`` (one to read the positions after all moves, then one that compares the rest of them with
    each best so far) and ``ms``. It gives no values and no probabilities of moves.
    """

    kind: ClassVar[str] = "comparator"
    learner_class: ClassVar[type[ComparatorLearner]] = ComparatorLearner
    learner: ComparatorLearner

    def comparator(self) -> NetworkComparator:
        """See ``Policy.comparator``."""
        self.learner.require_comparisons()
        return NetworkComparator(self.learner, evaluating=partial(self._evaluating, FREE))

    def _decide_batch(self, states: Sequence[Any], legal: list[list[int]], seeds: Sequence[int]) -> list[Decision]:
        del seeds
        self.learner.require_comparisons()
        began = time.perf_counter()
        best = [self._best(state, allowed) for state, allowed in zip(states, legal, strict=True)]
        ms = 1e3 * (time.perf_counter() - began) / len(states)
        names = self.game.moves.texts
        return [
            Decision(move, line=(move,), stats={"network_calls": float(calls), "raw_legal": 1.0, "ms": ms}, names=names)
            for move, calls in best
        ]

    def _best(self, state: Any, legal: list[int]) -> tuple[int, int]:
        """The move after which the player stands best, wins first, losses last; and the network's calls."""
        game, player = self.game, self.game.player(state)
        after = {move: game.play(state, move) for move in legal}
        own: dict[int, float | None] = {}
        for move, child in after.items():
            result = game.outcome(child)
            own[move] = result if result is None or game.player(child) == player else -result
            if own[move] == 1:
                return move, 0
        open_moves = [move for move in legal if own[move] != -1] or legal
        compare = NetworkComparator(self.learner)
        compare.prepare([after[move] for move in open_moves])
        best, *rest = open_moves
        while rest:
            answers = compare([(after[move], after[best]) for move in rest], player)
            better = next((i for i, answer in enumerate(answers) if answer > 0), None)
            if better is None:
                break
            best, rest = rest[better], rest[better + 1 :]
        return best, compare.num_calls
