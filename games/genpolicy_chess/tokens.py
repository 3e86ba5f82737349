"""A chess position as 77 tokens, exactly and for every legal value.

64 squares a8, b8, ..., h1; side to move; castling K, Q, k, q (the letter or "-"); en-passant file and rank (or "-");
half-move clock and full-move number, each three base-100 symbols, the largest first, so that 0..999999 fit.
``PlyTokenizer`` counts plies in place of full moves.

Player 1 sees the board turned over: ranks flipped, colours of pieces, side and castling swapped, counters as they are.

Axes: B batch, L = 77 tokens, S = 130 symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import chess
import numpy as np
from numpy.typing import NDArray

from genpolicy.encoding import checked_row, checked_viewers
from genpolicy.game import IntArray, StateTokenizer
from genpolicy_chess.moves import PROMOTIONS
from genpolicy_chess.state import MAX_COUNTER, ChessState, illegality, new_state

if TYPE_CHECKING:
    from genpolicy_chess.features import ChessFeatures

_PIECES = ".PNBRQKpnbrqk"
_CASTLING = "KQkq"
_FILES = "abcdefgh"
_RANKS = "36"

SYMBOLS: tuple[str, ...] = (
    *_PIECES,
    "white",
    "black",
    "-",
    *(f"castling:{c}" for c in _CASTLING),
    *(f"ep:{c}" for c in _FILES + _RANKS),
    *(f"{n:02d}" for n in range(100)),
)
_WHITE, _BLACK, _NONE = 13, 14, 15
_CASTLING_AT, _FILE_AT, _RANK_AT, _NUMBER_AT = 16, 20, 28, 30

_SIDE, _RIGHTS, _EP, _HALFMOVE, _FULLMOVE = 64, 65, 69, 71, 74
LENGTH = 77

_ROOK_HOMES = (chess.BB_H1, chess.BB_A1, chess.BB_H8, chess.BB_A8)  # in the order KQkq
_POWERS = np.array([10_000, 100, 1], np.int64)


class ChessTokenizer(StateTokenizer[ChessState]):
    """The 77-token code of the module's first lines."""

    def __init__(self) -> None:
        self.symbols = SYMBOLS
        self.admitted = _admitted()
        square = np.arange(LENGTH, dtype=np.int16)
        self.rows = np.where(square < 64, square // 8, -1).astype(np.int16)
        self.cols = np.where(square < 64, square % 8, -1).astype(np.int16)
        self.hands = np.full(LENGTH, -1, np.int16)

    @property
    def turned(self) -> tuple[IntArray, IntArray]:
        """Ranks flipped, colours exchanged."""
        return _TURNED_PLACE, _TURNED_SYMBOL

    @property
    def counters(self) -> tuple[tuple[int, ...], ...]:
        """The half-move clock."""
        return (tuple(range(_HALFMOVE, _FULLMOVE)),)

    @property
    def promoted(self) -> IntArray:
        """The chosen piece, for promotions of pawns."""
        return _PROMOTED

    def features(self) -> ChessFeatures:
        """Material, opposite bishops, checkers and masks of both sides (``genpolicy_chess.features``)."""
        from genpolicy_chess.features import ChessFeatures  # torch, which rules alone do without

        return ChessFeatures()

    def encode(
        self, states: Sequence[ChessState], viewers: Sequence[int] | IntArray | None = None
    ) -> NDArray[np.int16]:
        """Token ids [B, 77] of states, each seen by its viewer.

        Raises:
            ValueError: a counter beyond 999999, or viewers that are not one 0 or 1 for each state.
        """
        out = np.empty((len(states), LENGTH), np.int16)
        if len(states) == 0:
            return out
        boards = [state.board for state in states]
        out[:, :64] = _square_tokens(boards)
        facts = np.array(
            [(b.turn, -1 if b.ep_square is None else b.ep_square, b.halfmove_clock, b.fullmove_number) for b in boards],
            np.int64,
        )
        out[:, _SIDE] = np.where(facts[:, 0], _WHITE, _BLACK)
        rights = np.array([b.castling_rights for b in boards], np.uint64)
        for i, home in enumerate(_ROOK_HOMES):
            out[:, _RIGHTS + i] = np.where(rights & np.uint64(home), _CASTLING_AT + i, _NONE)
        ep_square = facts[:, 1]
        out[:, _EP] = np.where(ep_square < 0, _NONE, _FILE_AT + ep_square % 8)
        out[:, _EP + 1] = np.where(ep_square < 0, _NONE, _RANK_AT + (ep_square // 8 == 5))
        counters = np.stack([facts[:, 2], self._counted(facts[:, 3], facts[:, 0])], axis=1)
        if counters.max() > MAX_COUNTER:
            worst = states[int(counters.max(axis=1).argmax())]
            raise ValueError(f"a counter above {MAX_COUNTER} has no symbol: {worst.board.fen()!r}")
        out[:, _HALFMOVE:] = _NUMBER_AT + (counters[:, :, None] // _POWERS % 100).reshape(-1, 6)
        if viewers is None:
            return out
        return np.where(checked_viewers(viewers, len(states))[:, None] == 1, _TURNED_SYMBOL[out[:, _TURNED_PLACE]], out)

    def decode(self, row: IntArray, viewer: int = 0) -> ChessState:
        """The state of 77 ids as ``viewer`` sees it, without history.

        Raises:
            ValueError: wrong length, a symbol that its position does not admit, tokens that contradict each other, an
                illegal position, or an en-passant square without a legal capture (no position is encoded so).
        """
        ids = checked_row(self, row, "chess")
        if checked_viewers([viewer], 1)[0] == 1:
            ids = _TURNED_SYMBOL[ids[_TURNED_PLACE]]
        return self._decode_absolute(ids.astype(np.int64))

    def _counted(self, full_moves: NDArray[np.int64], white: NDArray[np.int64]) -> NDArray[np.int64]:
        """[B] the last three tokens' number, of full-move numbers and of whether White moves."""
        del white
        return full_moves

    def _full_move(self, number: int, white: bool) -> int:
        """The full-move number that the last three tokens stand for."""
        del white
        if number == 0:
            raise ValueError("the tokens stand for full-move number 0; moves are counted from 1")
        return number

    def _decode_absolute(self, ids: NDArray[np.int64]) -> ChessState:
        board = chess.Board.empty()
        for place in np.flatnonzero(ids[:64]):
            board.set_piece_at(int(place) ^ 56, chess.Piece.from_symbol(_PIECES[ids[place]]))
        board.turn = bool(ids[_SIDE] == _WHITE)
        for i, home in enumerate(_ROOK_HOMES):
            board.castling_rights |= home if ids[_RIGHTS + i] != _NONE else 0
        file, rank = int(ids[_EP]), int(ids[_EP + 1])
        if (file == _NONE) != (rank == _NONE):
            raise ValueError(f"en-passant tokens contradict each other: {SYMBOLS[file]!r} and {SYMBOLS[rank]!r}")
        if file != _NONE:
            board.ep_square = chess.square(file - _FILE_AT, 2 if rank == _RANK_AT else 5)
        numbers = (ids[_HALFMOVE:].reshape(2, 3) - _NUMBER_AT) @ _POWERS
        board.halfmove_clock = int(numbers[0])
        board.fullmove_number = self._full_move(int(numbers[1]), board.turn)
        problem = illegality(board)
        if problem is None and board.ep_square is not None and not board.has_legal_en_passant():
            problem = "an en-passant square without a legal capture"
        if problem is not None:
            raise ValueError(f"{board.fen(en_passant='fen')!r} is not a legal position: {problem}")
        return new_state(board)


class PlyTokenizer(ChessTokenizer):
    """Counts the plies since the game began, 2 (full move - 1), and 1 more where Black moves.

    A full-move number grows by Black's moves alone, and who sees every board as the player to move does not see who
    that is, so that nobody can tell the next one. This number grows by every move.
    """

    @property
    def fingerprint(self) -> str:
        """Other than that of full moves, whose symbols are the same."""
        return super().fingerprint + " plies"

    @property
    def counters(self) -> tuple[tuple[int, ...], ...]:
        """The half-move clock and the plies."""
        return (*super().counters, tuple(range(_FULLMOVE, LENGTH)))

    def _counted(self, full_moves: NDArray[np.int64], white: NDArray[np.int64]) -> NDArray[np.int64]:
        return 2 * (full_moves - 1) + 1 - white

    def _full_move(self, number: int, white: bool) -> int:
        if number % 2 == white:
            raise ValueError(f"the tokens stand for {number} plies played, after which the other side is to move")
        return number // 2 + 1


def _square_tokens(boards: Sequence[chess.Board]) -> NDArray[np.uint8]:
    """Piece symbols [B, 64] in the order a8..h1."""
    masks = np.array(
        [(b.pawns, b.knights, b.bishops, b.rooks, b.queens, b.kings, b.occupied_co[chess.BLACK]) for b in boards],
        dtype="<u8",
    )
    bits = np.unpackbits(masks.view(np.uint8).reshape(len(boards), 7, 8), axis=-1, bitorder="little")
    weights = np.array([1, 2, 3, 4, 5, 6, 6], np.uint8)  # black pieces come six symbols after white ones
    # A mask's byte is a rank, rank 1 first; tokens start with rank 8.
    squares = (bits * weights[None, :, None]).sum(axis=1, dtype=np.uint8)
    return np.ascontiguousarray(squares.reshape(-1, 8, 8)[:, ::-1]).reshape(-1, 64)


def _admitted() -> NDArray[np.bool_]:
    table = np.zeros((LENGTH, len(SYMBOLS)), np.bool_)
    table[:64, : len(_PIECES)] = True
    for pawn in "Pp":
        table[:8, _PIECES.index(pawn)] = table[56:64, _PIECES.index(pawn)] = False
    table[_SIDE, [_WHITE, _BLACK]] = True
    for i in range(4):
        table[_RIGHTS + i, [_NONE, _CASTLING_AT + i]] = True
    table[_EP, [_NONE, *range(_FILE_AT, _FILE_AT + 8)]] = True
    table[_EP + 1, [_NONE, *range(_RANK_AT, _RANK_AT + 2)]] = True
    table[_HALFMOVE:, _NUMBER_AT:] = True
    return table


def _promoted() -> NDArray[np.int64]:
    """[K, S] the piece that a promotion of each kind makes of a pawn."""
    table = np.tile(np.arange(len(SYMBOLS)), (1 + len(PROMOTIONS), 1))
    for kind, piece in enumerate(PROMOTIONS, 1):
        for pawn, letter in zip("Pp", (chess.piece_symbol(piece).upper(), chess.piece_symbol(piece)), strict=True):
            table[kind, _PIECES.index(pawn)] = _PIECES.index(letter)
    return table


def _turned_places() -> NDArray[np.int64]:
    places = np.arange(LENGTH)
    places[:64] ^= 56
    places[_RIGHTS : _RIGHTS + 4] = [_RIGHTS + 2, _RIGHTS + 3, _RIGHTS, _RIGHTS + 1]
    return places


def _turned_symbols() -> NDArray[np.int16]:
    symbols = np.arange(len(SYMBOLS), dtype=np.int16)
    symbols[1:13] = [*range(7, 13), *range(1, 7)]
    symbols[[_WHITE, _BLACK]] = [_BLACK, _WHITE]
    symbols[_CASTLING_AT : _CASTLING_AT + 4] = [_CASTLING_AT + i for i in (2, 3, 0, 1)]
    symbols[[_RANK_AT, _RANK_AT + 1]] = [_RANK_AT + 1, _RANK_AT]
    return symbols


_PROMOTED = _promoted()
_TURNED_PLACE = _turned_places()
"""[L] where each token of the turned board comes from; its own inverse."""
_TURNED_SYMBOL = _turned_symbols()
"""[S] what each symbol becomes on the turned board; its own inverse."""
