"""A game that wraps another: the same rules under a tokenizer of its own, which writes the tokens backwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy import load_game
from genpolicy.game import Game, IntArray, MoveVocabulary, StateTokenizer, Symmetry, View


class CodedTokens(StateTokenizer[Any]):
    """The inner tokens, last one first, with symbols ``c0``, ``c1``, ..."""

    def __init__(self, inner: StateTokenizer[Any]) -> None:
        self._inner = inner
        self.symbols = tuple(f"c{number}" for number in range(len(inner.symbols)))
        self.admitted = inner.admitted[::-1]
        self.rows, self.cols, self.hands = inner.rows[::-1], inner.cols[::-1], inner.hands[::-1]

    @property
    def turned(self) -> tuple[IntArray, IntArray] | None:
        if self._inner.turned is None:
            return None
        places, symbols = self._inner.turned
        return self.length - 1 - np.asarray(places)[::-1], symbols

    def encode(self, states: Sequence[Any], viewers: Sequence[int] | IntArray | None = None) -> NDArray[np.int16]:
        return np.ascontiguousarray(self._inner.encode(states, viewers)[:, ::-1])

    def decode(self, row: IntArray, viewer: int = 0) -> Any:
        return self._inner.decode(np.asarray(row)[::-1], viewer)


class CodedView(View[Any]):
    """The inner game's words; its board is a grid of code symbols."""

    game: CodedGame

    @property
    def title(self) -> str:
        return f"{self.game.inner.view.title}, coded"

    def board_text(self, state: Any) -> str:
        return self.game.inner.view.board_text(state)

    def move_text(self, state: Any, move_id: int) -> str:
        return self.game.inner.view.move_text(state, move_id)

    def ending(self, state: Any) -> str:
        return self.game.inner.view.ending(state)

    def check(self, state: Any) -> int | None:
        place = self.game.inner.view.check(state)
        return None if place is None else self.game.tokens.length - 1 - place


class CodedGame(Game[Any]):
    """Another game's rules, files and hints.

    Args:
        game: Specification of the inner game.
    """

    name = "coded"
    usual = ("coded:game=[connect:rows=3,cols=3,k=3,gravity=false]",)

    def __init__(self, game: str) -> None:
        self.inner = inner = load_game(game)
        self.spec = f"coded:game=[{inner.spec}]"
        self.protocol, self.players = inner.protocol, inner.players
        self.tokens = CodedTokens(inner.tokens)
        self.moves: MoveVocabulary = dataclasses.replace(
            inner.moves, source=self._place(inner.moves.source), target=self._place(inner.moves.target)
        )
        self.files, self.hints, self.view = inner.files, inner.hints, CodedView(self)
        self.history, self.positions = inner.history, inner.positions
        self.declaration, self.mate_distance = inner.declaration, inner.mate_distance
        self.move_from_text, self.canonical_key = inner.move_from_text, inner.canonical_key
        self.planes, self.move_planes = inner.planes, inner.move_planes

    def _place(self, places: NDArray[np.int16]) -> NDArray[np.int16]:
        return np.where(places < 0, -1, self.tokens.length - 1 - places).astype(np.int16)

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return self.inner.symmetries

    def parse(self, text: str | None = None) -> Any:
        return self.inner.parse(text)

    def format(self, state: Any) -> str:
        return self.inner.format(state)

    def legal(self, state: Any) -> NDArray[np.int64]:
        return self.inner.legal(state)

    def play(self, state: Any, move_id: int) -> Any:
        return self.inner.play(state, move_id)

    def player(self, state: Any) -> int:
        return self.inner.player(state)

    def outcome(self, state: Any) -> float | None:
        return self.inner.outcome(state)

    def key(self, state: Any) -> str | bytes | int:
        return self.inner.key(state)
