"""A shogi position with the history that its repetition rule needs.

Texts are SFENs. ``genpolicy_shogi.sfen`` says what is accepted; the text that is written always has move number 1: the
tokens of a state do not hold the number, and equal positions have equal texts. The true number is kept in the state,
beside the moves that led there, for a limit on the length of games.

A position in which the side that is *not* to move stands in check is accepted, though no game reaches it: hand-made
collections hold such positions. By the piece rules its king can be taken; the next position then lacks a king, like
a mate problem.

cshogi's board copies its whole past with every copy, so a state's board remembers a few plies at most.
"""

from __future__ import annotations

import cshogi
import numpy as np
from numpy.typing import NDArray

from genpolicy_shogi import sfen
from genpolicy_shogi.moves import ID_OF_MOVE16, MOVE16, MOVE16_MASK
from genpolicy_shogi.sfen import BLACK, KING, WHITE_OFFSET

KEY_LENGTH = 97
HANDS_AT, SIDE_AT, CHECK_AT = 81, 95, 96
"""Where a key holds hands, side to move and check."""
_FORGET_PLIES = 8
"""A board is made anew, without a past, every so many plies. Copying a past costs about 0.14 us a ply, making a board
4 us, so about this many plies are cheapest."""


class ShogiState:
    """A position, the moves since the first position known, and the keys of all positions between.

    Immutable by contract: ``board`` does not change after construction; ``after`` copies it.
    """

    __slots__ = ("_legal", "board", "keys", "moves", "start_number")

    board: cshogi.Board
    """The position as cshogi has it; its own history and move number mean nothing."""
    keys: tuple[bytes, ...]
    """``position_key`` of every position from the first one known to this one."""
    moves: tuple[int, ...]
    """Ids of the moves from the first position known to this one."""
    start_number: int
    """Move number of the first position known, 1 at the beginning of a game."""

    def __init__(
        self, board: cshogi.Board, keys: tuple[bytes, ...], moves: tuple[int, ...] = (), start_number: int = 1
    ) -> None:
        self.board = board
        self.keys = keys
        self.moves = moves
        self.start_number = start_number
        self._legal: NDArray[np.int64] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.keys[0], self.moves, self.start_number)

    def __repr__(self) -> str:
        return f"ShogiState({text_of(self)!r}, moves={len(self.moves)})"

    @property
    def number(self) -> int:
        """Move number: one more than the plies that were played."""
        return self.start_number + len(self.moves)

    @property
    def turn(self) -> int:
        """Side to move, 0 Black (sente), 1 White (gote)."""
        return self.keys[-1][SIDE_AT]

    @property
    def in_check(self) -> bool:
        """Whether the side to move is in check."""
        return bool(self.keys[-1][CHECK_AT])

    def legal(self) -> NDArray[np.int64]:
        """Sorted ids of the legal moves; not to be changed."""
        if self._legal is None:
            moves = self.board.legal_moves
            found = ID_OF_MOVE16[np.fromiter(moves, np.int64, len(moves)) & MOVE16_MASK]
            found.sort()
            self._legal = found
        return self._legal

    def has_no_move(self) -> bool:
        """Whether no move is legal: the side to move has lost."""
        return bool(self.board.is_game_over()) if self._legal is None else len(self._legal) == 0

    def is_legal(self, move_id: int) -> bool:
        """Whether an id is among the legal moves. cshogi's own ``is_legal`` accepts moves that are not."""
        legal = self.legal()
        place = int(legal.searchsorted(move_id))
        return place < len(legal) and bool(legal[place] == move_id)


def position_key(board: cshogi.Board) -> bytes:
    """Pieces (81), hands (7 of Black, 7 of White), side to move and whether it is in check, a byte each."""
    black, white = board.pieces_in_hand
    return bytes([*board.pieces, *black, *white, board.turn, board.is_check()])


def text_of(state: ShogiState) -> str:
    """The SFEN, with move number 1."""
    return str(state.board.sfen().rpartition(" ")[0]) + " 1"


def text_of_key(key: bytes, number: int = 1) -> str:
    """The SFEN of a position's key, with a move number."""
    return sfen.write(key[:HANDS_AT], key[HANDS_AT:SIDE_AT], key[SIDE_AT], number)


def new_state(pieces: bytes, hands: bytes, side: int, number: int = 1, text: str | None = None) -> ShogiState:
    """The state of a position without a past, checked in full.

    Args:
        pieces: 81 piece numbers, as ``genpolicy_shogi.sfen`` defines them.
        hands: 14 counts, Black's first.
        side: Side to move, 0 or 1.
        number: Its move number.
        text: Its SFEN, where that is at hand.

    Raises:
        ValueError: not a legal position; the message says why and quotes the SFEN.
    """
    if text is None:
        text = sfen.write(pieces, hands, side)
    problem = sfen.illegality(pieces, hands)
    if problem is None:
        problem = _problem_of_side(text, pieces, side)
    if problem is not None:
        raise ValueError(f"{text!r} is not a legal position: {problem}")
    board = cshogi.Board(text)
    key = b"".join([pieces, hands, bytes([side, board.is_check()])])
    return ShogiState(board, (key,), start_number=number)


def parse_sfen(text: str, fields: list[str] | None = None) -> ShogiState:
    """The state of an SFEN of four fields, or of three without the move number.

    Args:
        text: What messages quote.
        fields: The fields, where the text holds more than they.

    Raises:
        ValueError: not an SFEN, or an illegal position; the message quotes the text and says what is wrong.
    """
    fields = text.split() if fields is None else fields
    found = sfen.read(fields)
    if isinstance(found, str):
        raise ValueError(f"{text!r} is not an SFEN: {found}")
    pieces, hands, side, number = found
    try:
        return new_state(pieces, hands, side, number, " ".join([*fields[:3], "1"]))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a legal position: {str(error).partition('position: ')[2]}") from error


def _problem_of_side(text: str, pieces: bytes, side: int) -> str | None:
    """Whether a side without a king can take the only king there is."""
    if KING + WHITE_OFFSET * side in pieces:
        return None
    board, _, hands, number = text.split()
    if not cshogi.Board(f"{board} {'wb'[side]} {hands} {number}").is_check():
        return None
    mover, other = ("Black", "White") if side == BLACK else ("White", "Black")
    return f"{mover} is to move and can take {other}'s king, the only one"


def after(state: ShogiState, move_id: int) -> ShogiState:
    """The state after a legal move (not checked)."""
    board = state.board.copy()
    # push_usi would do, but accepts moves that are not legal; this fills in what moves and what is taken.
    board.push(board.move_from_move16(MOVE16[move_id]))
    # Also after the first move: cshogi derives checks from what moved, and so overlooks one that was given before.
    if len(state.moves) % _FORGET_PLIES == 0:
        board = cshogi.Board(board.sfen())
    return ShogiState(board, (*state.keys, position_key(board)), (*state.moves, move_id), state.start_number)


def flipped(state: ShogiState, flipped_ids: NDArray[np.int64]) -> ShogiState:
    """The same position, past included, with left and right exchanged."""
    keys = tuple(map(flipped_key, state.keys))
    moves = tuple(flipped_ids[list(state.moves)].tolist())
    return ShogiState(cshogi.Board(text_of_key(keys[-1])), keys, moves, state.start_number)


def flipped_key(key: bytes) -> bytes:
    """The key of a position with left and right exchanged."""
    return b"".join([key[at : at + 9] for at in range(72, -1, -9)]) + key[HANDS_AT:]


def _restored(key: bytes, moves: tuple[int, ...], start_number: int) -> ShogiState:
    """A state from its pickled parts: cshogi's boards cannot be pickled."""
    board = cshogi.Board(text_of_key(key))
    state = ShogiState(board, (key,), (), start_number)
    for move in moves:
        state = after(state, move)
    return state
