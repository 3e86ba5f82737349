"""SFEN in and out, and what makes a position legal, before any of it reaches cshogi.

cshogi reads nineteen pawns, two pawns on a file, three kings or none silently, takes ``""`` for the initial
position, and some of that ends the process later. So texts are read in full here, and cshogi only sees positions
that passed ``illegality``.

A position is two byte strings and a side. *Pieces* are 81 bytes in cshogi's order of squares (file 1 first, rank a
first: ``9 * (file - 1) + rank``) with cshogi's piece numbers (0 empty; black 1..14 = P L N S B R G K and the promoted
+P +L +N +S +B +R; white 16 more). *Hands* are 14 counts, black's first, in cshogi's order P L N S G B R.
"""

from __future__ import annotations

import re

BLACK, WHITE = 0, 1
NUM_SQUARES = 81
PIECE_TYPES = ("", "P", "L", "N", "S", "B", "R", "G", "K", "+P", "+L", "+N", "+S", "+B", "+R")
"""Letters of cshogi's piece types 0..14."""
HAND_LETTERS = "PLNSGBR"
"""Hand pieces in the order of the counts."""
HAND_MAXIMA = (18, 4, 4, 4, 4, 2, 2)
"""How many of each hand piece a set has, in the same order."""
HAND_PIECE_TYPES = tuple(PIECE_TYPES.index(letter) for letter in HAND_LETTERS)
KING = 8
WHITE_OFFSET = 16
"""What a white piece's number has more than a black one's."""
STARTPOS = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"
MAX_NUMBER = 999_999
"""Largest move number that is read; far beyond any game."""

_HANDS_ORDER = "RBGSNLP"  # in which SFEN is written
_BOARD = re.compile(r"(?:\+?[PLNSBRplnsbr]|[GKgk]|[1-9](?![0-9])|/)+")
_BOARD_PART = re.compile(r"\+?[A-Za-z]|[1-9/]")
_TWO_DIGITS = re.compile(r"[0-9][0-9]")
_HANDS = re.compile(r"(?:(?:[1-9][0-9]?)?[PLNSGBRplnsgbr])+")
_HANDS_PART = re.compile(r"([0-9]*)([A-Za-z])")
_NUMBER = re.compile(r"[0-9]{1,9}")

_LETTERS: dict[int, str] = {i: letters for i, letters in enumerate(PIECE_TYPES) if i}
_LETTERS |= {i + WHITE_OFFSET: letters.lower() for i, letters in _LETTERS.items()}
"""Letters of each piece number."""
_PROMOTED = [(letters, chr(0x80 + piece)) for piece, letters in _LETTERS.items() if len(letters) == 2]
"""Promoted pieces and one character outside ASCII for each."""
_EMPTY = [(str(n), "." * n) for n in range(1, 10)]
_SLASH, _WRONG = 0xFE, 0xFF


def _codes() -> bytes:
    """What each character stands for once pieces are single characters and empty squares dots."""
    table = bytearray([_WRONG]) * 256
    table[ord("/")], table[ord(".")] = _SLASH, 0
    for piece, letters in _LETTERS.items():
        table[ord(letters) if len(letters) == 1 else 0x80 + piece] = piece
    return bytes(table)


def _sets() -> bytes:
    """Slot of each piece number in the hand of who takes it; 7 for kings, 255 for none."""
    table = bytearray([_WRONG]) * 256
    for piece, letters in _LETTERS.items():
        table[piece] = HAND_LETTERS.find(letters[-1].upper()) % 8
    return bytes(table)


_CODES, _SETS = _codes(), _sets()
_SHAPE = bytes([_SLASH]) * 8
_DEAD = tuple(
    (rank, frozenset(numbers)) for rank, numbers in ((0, (1, 2, 3)), (1, (3,)), (7, (19,)), (8, (17, 18, 19)))
)
"""Ranks and the pieces that can never move again there."""


def read(fields: list[str]) -> tuple[bytes, bytes, int, int] | str:
    """Pieces, hands, side to move and move number of the three or four fields of an SFEN; what is wrong, as text.

    A missing move number is 1, and so is 0, which some programs write. Whether the position is legal is not checked.
    """
    if len(fields) not in (3, 4):
        return f"expected 4 fields (pieces, side, hands, move number; the last may be missing), got {len(fields)}"
    board, side, hand_text, number = [*fields, "1"][:4]
    codes = _board_codes(board)
    if len(codes) != NUM_SQUARES + 8 or codes[9::10] != _SHAPE:
        return _problem_of_board(board)
    ranks = codes.translate(None, _SHAPE)
    if len(ranks) != NUM_SQUARES or _WRONG in ranks:
        return _problem_of_board(board)
    pieces = b"".join([ranks[8 - file :: 9] for file in range(9)])
    if side not in ("b", "w"):
        return f"the side to move must be b or w, got {side!r}"
    hands = bytearray(14)
    if hand_text != "-":
        if not _HANDS.fullmatch(hand_text):
            return f"hands must be - or pieces such as 2P or b with a count of 1 to 18, got {hand_text!r}"
        for count, letter in _HANDS_PART.findall(hand_text):
            slot = HAND_LETTERS.index(letter.upper()) + 7 * letter.islower()
            if hands[slot]:
                return f"hands {hand_text!r} hold {letter} twice"
            hands[slot] = int(count or 1)
    if not _NUMBER.fullmatch(number) or not number.isascii() or int(number) > MAX_NUMBER:
        return f"the move number must be one from 1 to {MAX_NUMBER}, got {number!r}"
    return pieces, bytes(hands), WHITE if side == "w" else BLACK, max(1, int(number))


def _board_codes(board: str) -> bytes:
    """A piece number, slash or 0xff for each square and slash; b"" where the text cannot be right."""
    if not board.isascii() or "." in board or _TWO_DIGITS.search(board):
        return b""
    if "+" in board:
        for letters, character in _PROMOTED:
            board = board.replace(letters, character)
    for digit, dots in _EMPTY:
        board = board.replace(digit, dots)
    return board.encode("latin-1").translate(_CODES)


def _problem_of_board(board: str) -> str:
    if not _BOARD.fullmatch(board):
        return f"pieces {board!r} hold more than PLNSGBRK in both cases, + before PLNSBR, single digits and /"
    ranks = board.split("/")
    if len(ranks) != 9:
        return f"expected 9 ranks, got {len(ranks)}"
    for rank, text in zip("abcdefghi", ranks, strict=True):
        width = sum(int(part) if part.isdigit() else 1 for part in _BOARD_PART.findall(text))
        if width != 9:
            return f"rank {rank} ({text!r}) has {width} squares, not 9"
    raise AssertionError(board)


def write(pieces: bytes, hands: bytes, side: int, number: int = 1) -> str:
    """The SFEN of a position, with move number 1 where none is given (see ``genpolicy_shogi.state``)."""
    ranks = []
    for rank in range(9):
        text, empty = "", 0
        for piece in pieces[72 + rank :: -9]:
            if piece == 0:
                empty += 1
                continue
            text += (str(empty) if empty else "") + _LETTERS[piece]
            empty = 0
        ranks.append(text + (str(empty) if empty else ""))
    held = ""
    for colour in (BLACK, WHITE):
        for letter in _HANDS_ORDER:
            count = hands[7 * colour + HAND_LETTERS.index(letter)]
            if count:
                held += (str(count) if count > 1 else "") + (letter.lower() if colour else letter)
    return f"{'/'.join(ranks)} {'bw'[side]} {held or '-'} {number}"


def illegality(pieces: bytes, hands: bytes) -> str | None:
    """What is illegal about a position whoever is to move, or None where nothing is.

    At most one set of pieces (handicap games have fewer); a king on each side, or one king alone as in mate problems;
    kings not next to each other; no piece that could never move again; no two pawns of a side on a file, except in mate
    problems with one king: such positions do not arise in play, and collections of machine-made problems have them.
    """
    of_set = pieces.translate(_SETS)
    for slot, most in enumerate(HAND_MAXIMA):
        count = hands[slot] + hands[7 + slot] + of_set.count(slot)
        if count > most:
            return f"{count} {HAND_LETTERS[slot]}, and a set has {most}"
    black_king, white_king = pieces.find(KING), pieces.find(KING + WHITE_OFFSET)
    if pieces.count(KING) > 1 or pieces.count(KING + WHITE_OFFSET) > 1:
        return "a side has more than one king"
    if black_king < 0 and white_king < 0:
        return "there is no king (a mate problem may lack one, not both)"
    if black_king >= 0 and white_king >= 0:
        files, ranks = black_king // 9 - white_king // 9, black_king % 9 - white_king % 9
        if -1 <= files <= 1 and -1 <= ranks <= 1:
            return "the kings stand next to each other"
        return _dead_piece(pieces) or _two_pawns(pieces)
    return _dead_piece(pieces)


def _dead_piece(pieces: bytes) -> str | None:
    for rank, dead in _DEAD:
        row = pieces[rank::9]
        if not dead.isdisjoint(row):
            letter = next(_LETTERS[piece] for piece in row if piece in dead)
            return f"{letter} on rank {'abcdefghi'[rank]} can never move again"
    return None


def _two_pawns(pieces: bytes) -> str | None:
    for pawn in (1, 1 + WHITE_OFFSET):
        if pieces.count(pawn) < 2:
            continue
        for file in range(9):
            if pieces.count(pawn, 9 * file, 9 * file + 9) > 1:
                return f"two unpromoted pawns of {'White' if pawn > 1 else 'Black'} on file {file + 1}"
    return None
