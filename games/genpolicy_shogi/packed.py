"""Positions packed into 256 bits: the HuffmanCodedPos of Apery and dlshogi (hcp) and YaneuraOu's PackedSfen (psfen).

Both hold, from the lowest bit of the first byte on: the player to move (1 bit, 1 is White), the squares of Black's and
White's king (7 bits each, lowest first), the other 79 squares in the order 1a, 1b, ..., 9i as prefix codes, then the
pieces in hand and, so that the bits are always 256, the pieces of the full set that are in neither place. They differ
in their codes alone. No move number is held. A mate problem without one of the kings does not fit: its 80 squares take
257 bits, and programs that pack it nevertheless lose the last one.

The decoder is our own because cshogi decodes any bytes: damaged ones must be an error, not a wrong board.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cshogi
import numpy as np

from genpolicy_shogi.sfen import (
    HAND_LETTERS,
    HAND_MAXIMA,
    KING,
    NUM_SQUARES,
    PIECE_TYPES,
    WHITE_OFFSET,
)
from genpolicy_shogi.state import new_state, text_of

NUM_BYTES = 32
NUM_BITS = 256

# Codes in the order in which their bits are read, by piece type. On the board a bit for White and, but for gold, one
# for promoted follow; in hand a bit for White does; a piece in neither place has its code alone.
_HCP_BOARD = {"P": "10", "L": "1100", "N": "1110", "S": "1101", "G": "11110", "B": "111110", "R": "111111"}
_HCP_HAND = {"P": "00", "L": "1000", "N": "1100", "S": "1010", "G": "1110", "B": "111110", "R": "111111"}
_HCP_REST = {"P": "010", "L": "10010", "N": "11010", "S": "10110", "G": "10111", "B": "1111000", "R": "1111010"}
_PSFEN_BOARD = {"P": "10", "L": "1100", "N": "1101", "S": "1110", "G": "11110", "B": "111110", "R": "111111"}
_PSFEN_HAND = {"P": "00", "L": "1000", "N": "1010", "S": "1100", "G": "1110", "B": "111100", "R": "111110"}
_PSFEN_REST = {"P": "010", "L": "10010", "N": "10110", "S": "11010", "G": "11011", "B": "1111010", "R": "1111110"}

_LOOK_BITS = 8  # no code is longer
_Entry = tuple[int, int]
"""(what the code stands for, its length); length 0: no code begins with these bits."""


@dataclass(frozen=True)
class Packing:
    """One of the two codes, as tables of what the next eight bits begin with."""

    name: str
    board: tuple[_Entry, ...]
    """Piece number on the board, 0 for an empty square."""
    rest: tuple[_Entry, ...]
    """Hand slot 0..13, or 14 + its number of a piece that is nowhere."""

    @staticmethod
    def make(
        name: str, board: dict[str, str], hand: dict[str, str], rest: dict[str, str], white_first: bool
    ) -> Packing:
        """Tables of these codes; ``white_first``: on the board White's bit stands before that of a promotion."""
        squares = {"0": 0}
        for letter, code in board.items():
            kind = PIECE_TYPES.index(letter)
            for white in (0, 1):
                for promoted in (0, 1) if letter != "G" else (0,):
                    bits = (
                        f"{white}" if letter == "G" else f"{white}{promoted}" if white_first else f"{promoted}{white}"
                    )
                    squares[code + bits] = kind + KING * promoted + WHITE_OFFSET * white
        others = {code: 14 + HAND_LETTERS.index(letter) for letter, code in rest.items()}
        for letter, code in hand.items():
            for white in (0, 1):
                others[f"{code}{white}"] = HAND_LETTERS.index(letter) + 7 * white
        return Packing(name, _table(squares), _table(others))


def _table(codes: dict[str, int]) -> tuple[_Entry, ...]:
    table = [(0, 0)] * (1 << _LOOK_BITS)
    for code, meaning in codes.items():
        low = int(code[::-1], 2)
        for high in range(1 << (_LOOK_BITS - len(code))):
            index = low | high << len(code)
            assert table[index][1] == 0, code
            table[index] = meaning, len(code)
    return tuple(table)


HCP = Packing.make("hcp", _HCP_BOARD, _HCP_HAND, _HCP_REST, white_first=True)
PSFEN = Packing.make("packed sfen", _PSFEN_BOARD, _PSFEN_HAND, _PSFEN_REST, white_first=False)


def unpack(packing: Packing, data: bytes) -> str:
    """SFEN of 32 packed bytes.

    Raises:
        ValueError: the bytes do not stand for a legal position.
    """
    value = int.from_bytes(data, "little")
    side, black_king, white_king = value & 1, value >> 1 & 127, value >> 8 & 127
    if max(black_king, white_king) >= NUM_SQUARES or black_king == white_king:
        raise ValueError(f"{packing.name}: kings on squares {black_king} and {white_king}")
    value, used = value >> 15, 15
    pieces = bytearray(NUM_SQUARES)
    pieces[black_king], pieces[white_king] = KING, KING + WHITE_OFFSET
    for square in range(NUM_SQUARES):
        if square in (black_king, white_king):
            continue
        piece, length = packing.board[value & 255]
        if length == 0:
            raise ValueError(f"{packing.name}: bit {used} begins no piece's code")
        pieces[square] = piece
        value, used = value >> length, used + length
    counts = [0] * 21
    while used < NUM_BITS:
        slot, length = packing.rest[value & 255]
        if length == 0:
            raise ValueError(f"{packing.name}: bit {used} begins no code of a piece in hand")
        counts[slot] += 1
        value, used = value >> length, used + length
    if used != NUM_BITS:
        raise ValueError(f"{packing.name}: the last code ends after {used} bits, not {NUM_BITS}")
    state = new_state(bytes(pieces), bytes(counts[:14]), side)
    for slot, letter in enumerate(HAND_LETTERS):
        kind = PIECE_TYPES.index(letter)
        kinds = (kind, kind + WHITE_OFFSET) + ((kind + KING, kind + KING + WHITE_OFFSET) if letter != "G" else ())
        found = sum(pieces.count(number) for number in kinds) + sum(counts[slot::7])
        if found != HAND_MAXIMA[slot]:
            raise ValueError(f"{packing.name}: {found} {letter}, and a set has {HAND_MAXIMA[slot]}")
    return text_of(state)


def fits(sfen: str) -> bool:
    """Whether a position has both kings, as what is packed must."""
    return "K" in sfen and "k" in sfen


def pack(packing: Packing, sfen: str) -> bytes:
    """The 32 bytes of a position whose SFEN the game has accepted.

    Raises:
        ValueError: it has one king.
    """
    if not fits(sfen):
        raise ValueError(f"{sfen!r} has one king, and such a position does not fit into {NUM_BITS} bits")
    board: Any = cshogi.Board(sfen)
    if packing is HCP:
        packed = np.zeros(1, cshogi.HuffmanCodedPos)
        board.to_hcp(packed)
    else:
        packed = np.zeros(1, cshogi.PackedSfen)
        board.to_psfen(packed)
    return packed.tobytes()


def usi_of_move16(number: int) -> str:
    """USI text of cshogi's 16-bit move: bits 0-6 to, 7-13 from (80 + piece type for a drop), 14 promotion.

    Raises:
        ValueError: the bits do not stand for a move.
    """
    target, source = number & 127, number >> 7 & 127
    if target < NUM_SQUARES and not number & 0x8000:
        if source < NUM_SQUARES and source != target:
            return f"{_square(source)}{_square(target)}{'+' if number & 0x4000 else ''}"
        if NUM_SQUARES <= source < NUM_SQUARES + 7 and not number & 0x4000:
            return f"{PIECE_TYPES[source - 80]}*{_square(target)}"
    raise ValueError(f"{number:#06x} is not a move")


def move16_of_usi(usi: str) -> int:
    """cshogi's 16-bit move of a well-formed USI move."""
    target = _number(usi[2:4])
    if usi[1] == "*":
        return target | (80 + PIECE_TYPES.index(usi[0])) << 7
    return target | _number(usi[:2]) << 7 | (0x4000 if usi.endswith("+") else 0)


def usi_of_yaneura(number: int) -> str:
    """USI text of YaneuraOu's 16-bit move: bits 0-6 to, 7-13 from (piece type for a drop), 14 drop, 15 promotion.

    Raises:
        ValueError: the bits do not stand for a move.
    """
    drop, promotes, source = bool(number & 0x4000), bool(number & 0x8000), number >> 7 & 127
    if drop and (promotes or not 1 <= source <= 7):
        raise ValueError(f"{number:#06x} is not a move")
    return usi_of_move16(number & 127 | (80 + source if drop else source) << 7 | (0x4000 if promotes else 0))


def yaneura_of_usi(usi: str) -> int:
    """YaneuraOu's 16-bit move of a well-formed USI move."""
    number = move16_of_usi(usi)
    source = number >> 7 & 127
    if source >= NUM_SQUARES:
        return number & 127 | (source - 80) << 7 | 0x4000
    return number & 0x3FFF | (0x8000 if number & 0x4000 else 0)


def _square(number: int) -> str:
    return f"{number // 9 + 1}{'abcdefghi'[number % 9]}"


def _number(square: str) -> int:
    return 9 * (int(square[0]) - 1) + "abcdefghi".index(square[1])
