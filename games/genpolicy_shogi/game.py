"""Shogi as the core sees it: rules and texts from cshogi behind checks of our own, moves and tokens of our own."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game, Symmetry
from genpolicy_shogi import state as states
from genpolicy_shogi.moves import flipped_ids, make_vocabulary
from genpolicy_shogi.sfen import STARTPOS
from genpolicy_shogi.state import ShogiState
from genpolicy_shogi.tokens import ShogiTokenizer


class ShogiGame(Game[ShogiState]):
    """Shogi. Player 0 is Black (sente); texts are SFENs (see ``genpolicy_shogi.state``)."""

    name = "shogi"
    spec = "shogi"
    protocol: Literal["uci", "usi", "none"] = "usi"
    players = ("Black", "White")

    def __init__(self) -> None:
        self.moves = make_vocabulary()
        self.tokens = ShogiTokenizer()
        self._flipped_ids = flipped_ids()
        self._symmetries = (Symmetry("left-right flip", self._flipped, self._flipped_ids),)

    def parse(self, text: str | None = None) -> ShogiState:
        """The state of an SFEN; the initial position without one.

        Raises:
            ValueError: not an SFEN, or an illegal position; the message quotes it and says what is wrong.
        """
        return states.parse_sfen(STARTPOS if text is None else text)

    def format(self, state: ShogiState) -> str:
        """The SFEN, always with move number 1: the number is no part of the position."""
        return states.text_of(state)

    def legal(self, state: ShogiState) -> NDArray[np.int64]:
        """Sorted ids of the legal moves: of cshogi's legal list."""
        return state.legal().copy()

    def play(self, state: ShogiState, move_id: int) -> ShogiState:
        """The state after a legal move; ``state`` stays as it is.

        Raises:
            IllegalMoveError: the move is not legal there, or no id of the vocabulary.
        """
        if not state.is_legal(move_id):
            text = repr(self.moves[move_id]) if 0 <= move_id < len(self.moves) else f"of id {move_id}"
            legal = " ".join(self.moves[i] for i in state.legal()) or "none"
            raise IllegalMoveError(f"move {text} is illegal in {self.format(state)!r}; legal: {legal}")
        return states.after(state, int(move_id))

    def player(self, state: ShogiState) -> int:
        """0 where Black is to move, 1 where White is."""
        return state.turn

    def outcome(self, state: ShogiState) -> float | None:
        """-1 without a legal move; None while the game runs."""
        return -1.0 if state.board.is_game_over() else None

    def key(self, state: ShogiState) -> bytes:
        """Pieces, hands and side to move, packed."""
        return state.keys[-1]

    def history(self, state: ShogiState) -> tuple[str, tuple[int, ...]]:
        """SFEN of the first position known and the ids of the moves since."""
        return states.text_of_key(state.keys[0]), state.moves

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Left and right exchanged."""
        return self._symmetries

    def _flipped(self, state: ShogiState) -> ShogiState:
        return states.flipped(state, self._flipped_ids)
