"""How rare what a move does to a board is, among all legal moves of random games.

Two moves do the same if the same symbols change into the same ones, wherever they stand: every quiet move of a knight
is one kind, a capture of a rook by it another, castling and each promotion another. Counters do not count.

Axes: n legal moves, L tokens of a state.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.encoding import StateTokenizer
from genpolicy.game import Game

NUM_GAMES, MAX_PLIES, EVERY = 20, 120, 6
"""Random games, and which of their positions are looked at: some 400, in about a second for chess."""


class Rarity:
    """Weights by which moves are drawn of which random play makes few; what they do is what ``tokenizer`` shows."""

    def __init__(self, game: Game[Any], tokenizer: StateTokenizer[Any]) -> None:
        self._game, self._tokenizer = game, tokenizer
        self._counted = np.ones(tokenizer.length, np.bool_)
        self._counted[[place for digits in tokenizer.counters for place in digits]] = False
        self._rights = ((tokenizer.rows < 0) & (tokenizer.hands < 0))[self._counted]
        self._seen: Counter[tuple[tuple[int, int], ...]] | None = None

    def weights(self, state: Any, legal: NDArray[np.int64]) -> NDArray[np.float64]:
        """[n] a probability for each legal move: one over the root of how often its kind was seen, and once more."""
        if self._seen is None:
            self._seen = self._count()
        seen = [self._seen[kind] for kind in self._kinds(state, legal)]
        weights = 1 / np.sqrt(1 + np.array(seen, np.float64))
        return np.asarray(weights / weights.sum())

    def _count(self) -> Counter[tuple[tuple[int, int], ...]]:
        """How often each kind of move was legal in random games with a fixed seed."""
        game, draw, seen = self._game, np.random.default_rng(0), Counter[tuple[tuple[int, int], ...]]()
        for number in range(NUM_GAMES):
            state = game.parse()
            for ply in range(MAX_PLIES):
                if game.outcome(state) is not None or not len(legal := game.legal(state)):
                    break
                if (ply + number) % EVERY == 0:
                    seen.update(self._kinds(state, legal))
                state = game.play(state, int(draw.choice(legal)))
        return seen

    def _kinds(self, state: Any, legal: NDArray[np.int64]) -> list[tuple[tuple[int, int], ...]]:
        """[n] the symbols before and after where a move changes a square, a hand, or a right that most others leave."""
        viewer = self._game.player(state)
        states = [state, *(self._game.play(state, int(move)) for move in legal)]
        rows = self._tokenizer.encode(states, [viewer] * len(states))[:, self._counted]
        before, after = rows[0], rows[1:]
        middle = np.sort(after, axis=0)[len(after) // 2]  # what most have, if most have one symbol
        usual = np.where(self._rights & (2 * (after == middle).sum(axis=0) > len(after)), middle, before)
        return [
            tuple(sorted(zip(before[new].tolist(), row[new].tolist(), strict=True)))
            for row, new in zip(after, after != usual, strict=True)
        ]
