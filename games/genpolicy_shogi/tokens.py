"""A shogi position as 96 tokens, exactly.

81 squares 9a, 8a, ..., 1i (the order of SFEN); side to move; the viewer's hand, P L N S G B R; the other side's hand in
the same order. 50 symbols: an empty square, 14 pieces of the viewer, 14 of the other side, two sides, counts 0 to 18.

Player 1 sees the board turned around and the colours exchanged, the side to move included: ``black`` means that the
viewer is to move. The move number and the positions before are not in the tokens.

Axes: B batch, L = 96 tokens, S = 50 symbols.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from genpolicy.encoding import checked_row, checked_viewers
from genpolicy.game import IntArray, StateTokenizer
from genpolicy_shogi.moves import NUM_KINDS, OWN_HAND_TOKEN, PROMOTION, SIDE_TOKEN, library_square
from genpolicy_shogi.sfen import HAND_LETTERS, HAND_MAXIMA, NUM_SQUARES, PIECE_TYPES, WHITE_OFFSET
from genpolicy_shogi.state import HANDS_AT, KEY_LENGTH, SIDE_AT, ShogiState, new_state

LENGTH = 96
_PIECES = PIECE_TYPES[1:]
SYMBOLS: tuple[str, ...] = (
    ".",
    *_PIECES,
    *(letters.lower() for letters in _PIECES),
    "black",
    "white",
    *map(str, range(19)),
)
_OTHER = len(_PIECES)
"""What a symbol of the other side's piece has more than the viewer's."""
_BLACK = SYMBOLS.index("black")
_COUNT = SYMBOLS.index("0")


def _symbol_of_piece() -> NDArray[np.int16]:
    table = np.zeros(32, np.int16)
    for kind in range(1, _OTHER + 1):
        table[kind], table[kind + WHITE_OFFSET] = kind, kind + _OTHER
    return table


def _captured() -> NDArray[np.int64]:
    """[S] where each piece goes that is captured, unpromoted: one of the other side's into the viewer's hand."""
    table = np.full(len(SYMBOLS), -1)
    for kind, letters in enumerate(_PIECES, 1):
        if (slot := HAND_LETTERS.find(letters[-1])) >= 0:
            table[kind + _OTHER], table[kind] = OWN_HAND_TOKEN + slot, OWN_HAND_TOKEN + len(HAND_LETTERS) + slot
    return table


def _dropped() -> NDArray[np.int64]:
    """[L] the piece that the viewer drops from each own hand token."""
    table = np.full(LENGTH, -1)
    table[OWN_HAND_TOKEN : OWN_HAND_TOKEN + len(HAND_LETTERS)] = [SYMBOLS.index(letter) for letter in HAND_LETTERS]
    return table


def _promoted() -> NDArray[np.int64]:
    """[K, S] of a piece that has a promoted form that one, for promotions."""
    table = np.tile(np.arange(len(SYMBOLS)), (NUM_KINDS, 1))
    for number, symbol in enumerate(SYMBOLS):
        if f"+{symbol}" in SYMBOLS:
            table[PROMOTION, number] = SYMBOLS.index(f"+{symbol}")
    return table


def _turned_symbols() -> NDArray[np.int16]:
    symbols = np.arange(len(SYMBOLS), dtype=np.int16)
    mine, other = slice(1, 1 + _OTHER), slice(1 + _OTHER, 1 + 2 * _OTHER)
    symbols[mine], symbols[other] = symbols[other].copy(), symbols[mine].copy()
    symbols[[_BLACK, _BLACK + 1]] = _BLACK + 1, _BLACK
    return symbols


_CAPTURED, _DROPPED, _PROMOTED = _captured(), _dropped(), _promoted()
_SYMBOL_OF_PIECE = _symbol_of_piece()
_PIECE_OF_SYMBOL = np.array([*range(_OTHER + 1), *range(1 + WHITE_OFFSET, 1 + WHITE_OFFSET + _OTHER)], np.uint8)
_LIBRARY_SQUARE = np.array([library_square(token) for token in range(NUM_SQUARES)])
"""[81] cshogi's square of each token."""
_TOKEN = np.argsort(_LIBRARY_SQUARE)
"""[81] token of each of cshogi's squares."""
_TURNED_PLACE = np.array([*range(80, -1, -1), SIDE_TOKEN, *range(89, 96), *range(82, 89)])
"""[L] where each token of the turned board comes from; its own inverse."""
_TURNED_SYMBOL = _turned_symbols()
"""[S] what each symbol becomes on the turned board; its own inverse."""


def _admitted() -> NDArray[np.bool_]:
    table = np.zeros((LENGTH, len(SYMBOLS)), np.bool_)
    table[:NUM_SQUARES, : 1 + 2 * _OTHER] = True
    for letter, ranks in (("P", 1), ("L", 1), ("N", 2)):  # ranks from which the piece could never move again
        table[: 9 * ranks, SYMBOLS.index(letter)] = False
        table[NUM_SQUARES - 9 * ranks : NUM_SQUARES, SYMBOLS.index(letter.lower())] = False
    table[SIDE_TOKEN, [_BLACK, _BLACK + 1]] = True
    for slot, most in enumerate(HAND_MAXIMA * 2):
        table[OWN_HAND_TOKEN + slot, _COUNT : _COUNT + most + 1] = True
    return table


class ShogiTokenizer(StateTokenizer[ShogiState]):
    """The 96-token code of the module's first lines."""

    def __init__(self) -> None:
        self.symbols = SYMBOLS
        self.admitted = _admitted()
        token = np.arange(LENGTH, dtype=np.int16)
        self.rows = np.where(token < NUM_SQUARES, token // 9, -1).astype(np.int16)
        self.cols = np.where(token < NUM_SQUARES, token % 9, -1).astype(np.int16)
        self.hands = np.where(token >= OWN_HAND_TOKEN, token - OWN_HAND_TOKEN, -1).astype(np.int16)

    @property
    def turned(self) -> tuple[IntArray, IntArray]:
        """The board turned around, colours and hands exchanged."""
        return _TURNED_PLACE, _TURNED_SYMBOL

    @property
    def captured(self) -> IntArray:
        """The hands' counts."""
        return _CAPTURED

    @property
    def dropped(self) -> IntArray:
        """The viewer's pieces in hand."""
        return _DROPPED

    @property
    def promoted(self) -> IntArray:
        """The other side of the piece, for promotions."""
        return _PROMOTED

    def encode(
        self, states: Sequence[ShogiState], viewers: Sequence[int] | IntArray | None = None
    ) -> NDArray[np.int16]:
        """Token ids [B, 96] of states, each seen by its viewer.

        Raises:
            ValueError: viewers that are not one 0 or 1 for each state.
        """
        keys = np.frombuffer(b"".join([state.keys[-1] for state in states]), np.uint8).reshape(-1, KEY_LENGTH)
        out = np.empty((len(states), LENGTH), np.int16)
        out[:, :NUM_SQUARES] = _SYMBOL_OF_PIECE[keys[:, _LIBRARY_SQUARE]]
        out[:, SIDE_TOKEN] = keys[:, SIDE_AT]
        out[:, SIDE_TOKEN] += _BLACK
        out[:, OWN_HAND_TOKEN:] = keys[:, HANDS_AT:SIDE_AT]
        out[:, OWN_HAND_TOKEN:] += _COUNT
        if viewers is None:
            return out
        turned = np.flatnonzero(checked_viewers(viewers, len(states)))
        out[turned] = _TURNED_SYMBOL[out[turned][:, _TURNED_PLACE]]
        return out

    def decode(self, row: IntArray, viewer: int = 0) -> ShogiState:
        """The state of 96 ids as ``viewer`` sees it, without history.

        Raises:
            ValueError: wrong length, a symbol that its position does not admit, or an illegal position.
        """
        ids = checked_row(self, row, "shogi")
        if checked_viewers([viewer], 1)[0] == 1:
            ids = _TURNED_SYMBOL[ids[_TURNED_PLACE]]
        pieces = _PIECE_OF_SYMBOL[ids[_TOKEN]].tobytes()
        hands = (ids[OWN_HAND_TOKEN:] - _COUNT).astype(np.uint8).tobytes()
        return new_state(pieces, hands, int(ids[SIDE_TOKEN]) - _BLACK)
