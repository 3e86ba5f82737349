"""A chess position with the history that its repetition rule needs, and its text (FEN).

Texts are FENs of standard chess. Where real files depart from the letter of the standard, they are read as follows.

* An en-passant square behind a pawn that just moved two squares is accepted where no legal capture exists (the older
  convention) and dropped, so that equal positions have equal texts and tokens. One that no double step could have left
  is an error.
* Castling letters may stand in any order and are put in order; a right without its king and rook at home, a repeated
  letter and the letters of Chess960 are errors.
* A full-move number 0, which some programs write, counts as 1. Four fields (an EPD) have the counters 0 and 1.
"""

from __future__ import annotations

import re
import struct

import chess
import numpy as np
from numpy.typing import NDArray

from genpolicy_chess.legal import legal_ids
from genpolicy_chess.moves import MOVES, mirrored_move

FIFTY_MOVES_PLIES = 100
MAX_COUNTER = 999_999  # what three base-100 tokens hold; far beyond any game that the rules allow

QUEEN_LINES = tuple(
    chess.BB_RANK_ATTACKS[square][0] | chess.BB_FILE_ATTACKS[square][0] | chess.BB_DIAG_ATTACKS[square][0]
    for square in chess.SQUARES
)
"""Squares on one rank, file or diagonal with each square."""

_KEY = struct.Struct("<8Q2b")
_FIELDS = re.compile(r"[1-8pnbrqkPNBRQK/]+")
_EN_PASSANT = re.compile(r"-|[a-h][36]")
_COUNTER = re.compile(r"[0-9]+")

_STATUS_TEXTS = {
    chess.STATUS_NO_WHITE_KING: "White has no king",
    chess.STATUS_NO_BLACK_KING: "Black has no king",
    chess.STATUS_TOO_MANY_KINGS: "a side has more than one king",
    chess.STATUS_TOO_MANY_WHITE_PAWNS: "White has more than 8 pawns",
    chess.STATUS_TOO_MANY_BLACK_PAWNS: "Black has more than 8 pawns",
    chess.STATUS_PAWNS_ON_BACKRANK: "a pawn stands on rank 1 or 8",
    chess.STATUS_TOO_MANY_WHITE_PIECES: "White has more than 16 pieces",
    chess.STATUS_TOO_MANY_BLACK_PIECES: "Black has more than 16 pieces",
    chess.STATUS_BAD_CASTLING_RIGHTS: "a castling right without its king and rook at home",
    chess.STATUS_INVALID_EP_SQUARE: "an en-passant square that no double step could have left",
    chess.STATUS_OPPOSITE_CHECK: "the side that is not to move is in check",
    chess.STATUS_EMPTY: "the board is empty",
    chess.STATUS_RACE_CHECK: "a king is in check",
    chess.STATUS_RACE_OVER: "a king has reached the goal",
    chess.STATUS_RACE_MATERIAL: "material that the variant does not allow",
    chess.STATUS_TOO_MANY_CHECKERS: "the king is in check from more than two pieces",
    chess.STATUS_IMPOSSIBLE_CHECK: "the king is in a check that no move could have given",
}


class ChessState:
    """A position and the keys of those before it since the last capture or pawn move.

    Immutable by contract: ``board`` does not change after construction; ``play`` copies it.
    """

    __slots__ = ("_legal", "board", "history", "moves", "start")

    board: chess.Board
    """The position, without a move stack; its en-passant square is set only where a capture is legal."""
    history: tuple[bytes, ...]
    """``position_key`` of the positions since the last capture or pawn move, this one last."""
    start: chess.Board
    """The first position known of the game; ``board`` itself where it has no past."""
    moves: tuple[chess.Move, ...]
    """The moves from ``start`` to ``board``."""

    def __init__(
        self,
        board: chess.Board,
        history: tuple[bytes, ...],
        start: chess.Board | None = None,
        moves: tuple[chess.Move, ...] = (),
    ) -> None:
        self.board = board
        self.history = history
        self.start = board if start is None else start
        self.moves = moves
        self._legal: NDArray[np.int64] | None = None

    def __getstate__(self) -> tuple[str, tuple[bytes, ...], str, tuple[chess.Move, ...]]:
        return self.board.fen(), self.history, self.start.fen(), self.moves

    def __setstate__(self, saved: tuple[str, tuple[bytes, ...], str, tuple[chess.Move, ...]]) -> None:
        board, history, start, moves = saved
        self.__init__(chess.Board(board), history, chess.Board(start), moves)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"ChessState({self.board.fen()!r}, history={len(self.history)})"

    def legal(self) -> NDArray[np.int64]:
        """Sorted ids of the legal moves; not to be changed."""
        if self._legal is None:
            self._legal = np.array(legal_ids(self.board), np.int64)
        return self._legal

    def is_legal(self, move_id: int) -> bool:
        """Whether a move of the vocabulary is legal."""
        legal = self._legal
        if legal is None:
            return is_legal(self.board, MOVES[move_id])
        place = legal.searchsorted(move_id)
        return bool(place < len(legal) and legal.item(place) == move_id)

    def has_no_move(self) -> bool:
        """Whether no move is legal: mate or stalemate."""
        return not has_legal_move(self.board) if self._legal is None else len(self._legal) == 0

    @property
    def num_occurrences(self) -> int:
        """How often the position has stood on the board since the history begins, this time included."""
        return self.history.count(self.history[-1])


def new_state(board: chess.Board) -> ChessState:
    """The state of a board without a past. The board is copied."""
    board = board.copy(stack=False)
    drop_idle_en_passant(board)
    return ChessState(board, (position_key(board),))


def after(state: ChessState, move: chess.Move) -> ChessState:
    """The state after a legal move (not checked). Counters stay at the largest that text and tokens hold."""
    board = state.board.copy(stack=False)
    board.push(move)
    board.halfmove_clock = min(board.halfmove_clock, MAX_COUNTER)
    board.fullmove_number = min(board.fullmove_number, MAX_COUNTER)
    board.clear_stack()
    drop_idle_en_passant(board)
    key = position_key(board)
    past = state.history if board.halfmove_clock else ()
    return ChessState(board, (*past, key), state.start, (*state.moves, move))


def mirrored(state: ChessState) -> ChessState:
    """The same position, past included, with the board turned over and the colours swapped."""
    board, start = state.board.mirror(), state.start.mirror()
    board.clear_stack()
    moves = tuple(map(mirrored_move, state.moves))
    return ChessState(board, tuple(map(_mirrored_key, state.history)), start, moves)


def is_legal(board: chess.Board, move: chess.Move) -> bool:
    """Whether a move is legal in the one spelling that the vocabulary has.

    python-chess also takes the king's move onto its own rook (e1h1) for castling.
    """
    onto_own = board.occupied_co[board.turn] & chess.BB_SQUARES[move.to_square]
    return not onto_own and board.is_legal(move)


def has_legal_move(board: chess.Board) -> bool:
    """Whether the position is neither mate nor stalemate."""
    own, king = board.occupied_co[board.turn], board.king(board.turn)
    if king is not None:
        # Away from the king's lines a pawn is not pinned, so that its step is legal unless the king is in check.
        pawns = own & board.pawns & ~QUEEN_LINES[king]
        ahead = pawns << 8 if board.turn else pawns >> 8
        if ahead & ~board.occupied and not board.is_attacked_by(not board.turn, king):
            return True
    return any(True for _ in board.generate_legal_moves())


def drop_idle_en_passant(board: chess.Board) -> None:
    """Clear the en-passant square where no en-passant capture is legal (in place)."""
    if board.ep_square is not None and not board.has_legal_en_passant():
        board.ep_square = None


def position_key(board: chess.Board) -> bytes:
    """Pieces, side, castling rights and en-passant square: what the repetition rule compares."""
    return _KEY.pack(
        board.pawns,
        board.knights,
        board.bishops,
        board.rooks,
        board.queens,
        board.kings,
        board.occupied_co[chess.WHITE],
        board.castling_rights,
        board.turn,
        -1 if board.ep_square is None else board.ep_square,
    )


def _mirrored_key(key: bytes) -> bytes:
    *pieces, white, castling, turn, ep_square = _KEY.unpack(key)
    black = 0
    for mask in pieces:
        black |= mask
    black &= ~white
    masks = [chess.flip_vertical(mask) for mask in (*pieces, black, castling)]
    return _KEY.pack(*masks, not turn, -1 if ep_square < 0 else ep_square ^ 56)


def parse_fen(text: str) -> chess.Board:
    """The board of a FEN of six fields or four.

    Raises:
        ValueError: not a FEN, or an illegal position; the message quotes the text and says what is wrong.
    """
    if not isinstance(text, str):
        raise ValueError(f"a FEN is text, got {type(text).__name__} {text!r}")
    fields = text.split()
    problem = _problem_of_fields(fields)
    if problem is None:
        castling = "".join(letter for letter in "KQkq" if letter in fields[2]) or "-"
        counters = fields[4:] or ["0", "1"]
        try:
            board = chess.Board(" ".join([*fields[:2], castling, fields[3], *counters]))
        except ValueError as error:
            problem = str(error)
    if problem is not None:
        raise ValueError(f"{text!r} is not a FEN: {problem}")
    problem = illegality(board)
    if problem is not None:
        raise ValueError(f"{text!r} is not a legal position: {problem}")
    drop_idle_en_passant(board)
    return board


def illegality(board: chess.Board) -> str | None:
    """What is illegal about a position, or None where nothing is."""
    status = board.status()
    if status == chess.STATUS_VALID:
        return None
    return "; ".join(text for flag, text in _STATUS_TEXTS.items() if status & flag)


def _problem_of_fields(fields: list[str]) -> str | None:
    """What is wrong with the form of a FEN; python-chess reads several non-standard forms silently."""
    if len(fields) not in (4, 6):
        return f"expected 6 fields (or 4 without counters), got {len(fields)}"
    pieces, side, castling, en_passant, *counters = fields
    if not _FIELDS.fullmatch(pieces):
        return f"pieces {pieces!r} hold more than 1-8, /, and the letters pnbrqkPNBRQK"
    if side not in ("w", "b"):
        return f"side to move must be w or b, got {side!r}"
    if castling != "-" and (len(set(castling)) != len(castling) or not set(castling) <= set("KQkq")):
        return f"castling must be - or some of KQkq, each once, got {castling!r} (Chess960 is not supported)"
    if not _EN_PASSANT.fullmatch(en_passant):
        return f"en passant must be - or a square of rank 3 or 6, got {en_passant!r}"
    for name, counter in zip(("half-move clock", "full-move number"), counters, strict=False):
        if not _COUNTER.fullmatch(counter) or not counter.isascii() or len(counter) > 9 or int(counter) > MAX_COUNTER:
            return f"{name} must be a number from 0 to {MAX_COUNTER}, got {counter!r}"
    return None
