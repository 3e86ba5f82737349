"""Chess as the library sees it: rules and texts from python-chess, moves and tokens of our own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import chess
import numpy as np
from numpy.typing import NDArray

from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game, MovePlanes, PublishedResult, Symmetry
from genpolicy_chess.facets import ChessFiles, ChessHints, ChessView
from genpolicy_chess.moves import MOVES, make_vocabulary, move_id
from genpolicy_chess.published import PUBLISHED
from genpolicy_chess.state import (
    FIFTY_MOVES_PLIES,
    ChessState,
    after,
    mirrored,
    new_state,
    parse_fen,
)
from genpolicy_chess.tokens import ChessTokenizer, PlyTokenizer


class ChessGame(Game[ChessState]):
    """Standard chess. Player 0 is White; texts are FENs (see ``genpolicy_chess.state`` for what is accepted)."""

    name = "chess"
    spec = "chess"
    protocol: Literal["uci", "usi", "none"] = "uci"
    players = ("White", "Black")

    def __init__(self) -> None:
        self.moves = make_vocabulary()
        self.tokens = ChessTokenizer()
        self.tokenizers = {"plies": PlyTokenizer()}
        self.files = ChessFiles()
        self.hints = ChessHints(self)
        self.view = ChessView(self)
        self._symmetries = (Symmetry("colour flip", mirrored, self.moves.mirrored),)

    def parse(self, text: str | None = None) -> ChessState:
        """The state of a FEN (six fields, or four with the counters 0 and 1); the initial position without one.

        Raises:
            ValueError: not a FEN, or an illegal position; the message quotes it and says what is wrong.
        """
        return new_state(chess.Board() if text is None else parse_fen(text))

    def format(self, state: ChessState) -> str:
        """The FEN, with an en-passant square only where a capture is legal."""
        return state.board.fen()

    def legal(self, state: ChessState) -> NDArray[np.int64]:
        """Sorted ids of the legal moves, whether or not a draw could be claimed."""
        return state.legal().copy()

    def play(self, state: ChessState, move_id: int) -> ChessState:
        """The state after a legal move; ``state`` stays as it is.

        Raises:
            IllegalMoveError: the move is not legal there, or not an id of the vocabulary.
        """
        inside = 0 <= move_id < len(MOVES)
        if not inside or not state.is_legal(move_id):
            text = repr(self.moves[move_id]) if inside else f"of id {move_id}"
            legal = " ".join(self.moves[i] for i in state.legal()) or "none"
            raise IllegalMoveError(f"move {text} is illegal in {self.format(state)!r}; legal: {legal}")
        return after(state, MOVES[move_id])

    def player(self, state: ChessState) -> int:
        """0 where White is to move, 1 where Black is."""
        return 0 if state.board.turn == chess.WHITE else 1

    def outcome(self, state: ChessState) -> float | None:
        """-1 if the player to move is mated; 0 for stalemate and draws by rule; None while the game runs.

        Draws by rule: neither side can mate with the material left (FIDE 5.2.2, as far as material alone shows it), the
        position stands for the third time, 50 moves of both sides without capture or pawn move.
        """
        if state.has_no_move():
            return -1.0 if state.board.is_check() else 0.0
        if state.board.halfmove_clock >= FIFTY_MOVES_PLIES or state.num_occurrences >= 3:
            return 0.0
        return 0.0 if state.board.is_insufficient_material() else None

    def key(self, state: ChessState) -> bytes:
        """Pieces, side, castling rights and en-passant square, packed."""
        return state.history[-1]

    def history(self, state: ChessState) -> tuple[str, tuple[int, ...]]:
        """FEN of the first position known and the ids of the moves since."""
        return state.start.fen(), tuple(map(move_id, state.moves))

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """The colour flip. Left and right differ by castling."""
        return self._symmetries

    def move_from_text(self, state: ChessState, text: str) -> int:
        """Id of a move in UCI (``e2e4``; castling also as ``e1h1``, the king on its rook) or SAN (``Nf3``).

        Raises:
            ValueError: not a move, ambiguous, or not legal in the position.
        """
        typed = text.strip()
        uci = typed[:4] + typed[4:].lower()
        for found in state.legal():
            if self.moves[found] == uci:
                return int(found)
        with suppress(ValueError):
            if move := state.board.parse_uci(uci):  # a null move is false
                return move_id(move)
        try:
            move = state.board.parse_san(typed)
            if move in state.board.legal_moves:  # parse_san lets null moves pass
                return move_id(move)
            reason = "a null move"
        except ValueError as error:
            reason = str(error)
        legal = " ".join(self.moves[i] for i in state.legal()) or "none"
        raise IllegalMoveError(f"move {text!r} cannot be played in {self.format(state)!r} ({reason}); legal: {legal}")

    def planes(self, states: Sequence[ChessState]) -> NDArray[np.float32]:
        """18 planes of pieces, rights and counters, seen by the player to move (``genpolicy_chess.planes``)."""
        from genpolicy_chess.planes import planes

        return planes(self.tokens, states)

    def move_planes(self) -> MovePlanes:
        """AlphaZero's 73 planes of moves by source square: [73, 8, 8]."""
        from genpolicy_chess.planes import NUM_MOVE_PLANES, cells

        return MovePlanes((NUM_MOVE_PLANES, 8, 8), cells())

    @property
    def published(self) -> tuple[PublishedResult, ...]:
        """Table 2 of the paper."""
        return PUBLISHED
