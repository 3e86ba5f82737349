"""The laws of what a game and its positions are known by: the specification, the keys, the list of all positions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.game import Game
from genpolicy.registry import available, load_game

MAX_POSITIONS = 20_000
"""Most positions of a game that gives all of them for which they are looked at."""
KEY_PLIES = 2
"""Plies for which transposition keys are asked."""


class Identity:
    """What data sets, searches and policies know a game and its positions by.

    Args:
        game: The game.
        hold: Takes a law, the text of a position, whether the law holds there, and what was found; raises
            AssertionError where it does not hold.
    """

    def __init__(self, game: Game[Any], hold: Callable[[str, str, object, object], None]) -> None:
        self.game, self.hold = game, hold
        self._seen: dict[tuple[str, Any], tuple[Any, str]] = {}  # key -> what holds in its first position, its text

    def check_spec(self) -> None:
        """Data sets and checkpoints name the game by its specification alone."""
        game = self.game
        if game.name not in available("games"):
            return  # a class that no package has registered yet
        law = "load_game makes the same game of spec again"
        try:
            again = load_game(game.spec)
        except Exception as error:  # a constructor may raise anything at its own arguments
            raise AssertionError(f"{game.spec}: law broken: {law} ({error})") from error
        made = [(each.spec, each.format(each.parse()), *each.moves.texts) for each in (game, again)]
        self.hold(law, made[0][1], made[0] == made[1], f"its start is {made[1][1]!r}, its spec {again.spec!r}")

    def positions(self) -> set[str] | None:
        """Texts of all positions of a small game; None where there are too many, or where it does not give them."""
        try:
            texts = list(map(self.game.format, itertools.islice(self.game.positions(), MAX_POSITIONS + 1)))
        except ValueError:
            return None
        twice = [text for text, count in Counter(texts).items() if count > 1]
        self.hold("positions gives each position once", twice[0] if twice else "", not twice, "")
        return set(texts) if len(texts) <= MAX_POSITIONS else None

    def check_keys(self, state: Any, text: str, legal: NDArray[np.int64]) -> None:
        """Positions of one key share labels and values, so it must not mix up what the rules tell apart."""
        game = self.game
        key, moves = game.key(state), (game.player(state), legal.tolist())
        self.hold("key is hashable text, bytes or int", text, isinstance(key, str | bytes | int), repr(key))
        self._compare("key", key, "player to move and legal moves", moves, text)
        if game.hints is not None and "transposition_key" in game.hints.gives:
            shared = game.hints.transposition_key(state, KEY_PLIES)
            if shared is not None:
                facts = *moves, game.outcome(state)
                self._compare("transposition key", shared, "player to move, legal moves and outcome", facts, text)

    def _compare(self, kind: str, key: Any, what: str, facts: tuple[Any, ...], text: str) -> None:
        known, first = self._seen.setdefault((kind, key), (facts, text))
        self.hold(f"positions of one {kind} have the same {what}", text, facts == known, f"as {first!r}")
