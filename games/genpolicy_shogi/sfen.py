"""SFEN in and out, and what makes a position legal, before any of it reaches cshogi.

cshogi reads nineteen pawns, two pawns on a file, three kings or none without a word, takes ``""`` for the initial
position, and some of that ends the process later. So a text is read here, in full, and cshogi only ever sees positions
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
_HANDS = re.compile(r"(?:(?:[1-9][0-9]?)?[PLNSGBRplnsgbr])+")
_HANDS_PART = re.compile(r"([0-9]*)([A-Za-z])")
_NUMBER = re.compile(r"[0-9]{1,9}")

_SLASH = b"\xff"
_CODES: dict[str, bytes] = {"/": _SLASH, **{str(n): bytes(n) for n in range(1, 10)}}
_CODES |= {letters: bytes([i]) for i, letters in enumerate(PIECE_TYPES) if i}
_CODES |= {letters.lower(): bytes([i + WHITE_OFFSET]) for i, letters in enumerate(PIECE_TYPES) if i}
_LETTERS: dict[int, str] = {code[0]: text for text, code in _CODES.items() if text[-1].isalpha()}
_SHAPE = _SLASH * 8


def read(fields: list[str]) -> tuple[bytes, bytes, int, int] | str:
    """Pieces, hands, side to move and move number of the three or four fields of an SFEN; what is wrong, as text.

    A missing move number is 1, and so is 0, which some programs write. Whether the position is legal is not looked at.
    """
    if len(fields) not in (3, 4):
        return f"expected 4 fields (pieces, side, hands, move number; the last may be missing), got {len(fields)}"
    board, side, hand_text, number = [*fields, "1"][:4]
    if not _BOARD.fullmatch(board):
        return f"pieces {board!r} hold more than PLNSGBRK in both cases, + before PLNSBR, single digits and /"
    joined = b"".join([_CODES[part] for part in _BOARD_PART.findall(board)])
    if len(joined) != NUM_SQUARES + 8 or joined[9::10] != _SHAPE:
        return _problem_of_ranks(board)
    ranks = joined.replace(_SLASH, b"")
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


def _problem_of_ranks(board: str) -> str:
    ranks = board.split("/")
    if len(ranks) != 9:
        return f"expected 9 ranks, got {len(ranks)}"
    for rank, text in zip("abcdefghi", ranks, strict=True):
        width = sum(len(_CODES[part]) for part in _BOARD_PART.findall(text))
        if width != 9:
            return f"rank {rank} ({text!r}) has {width} squares, not 9"
    raise AssertionError(board)


def write(pieces: bytes, hands: bytes, side: int) -> str:
    """The SFEN of a position, with move number 1 (see ``genpolicy_shogi.state``)."""
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
    return f"{'/'.join(ranks)} {'bw'[side]} {held or '-'} 1"


def illegality(pieces: bytes, hands: bytes) -> str | None:
    """What is illegal about a position whoever is to move, or None where nothing is.

    At most one set of pieces (handicap games have fewer); a king on each side, or one king alone as in mate problems;
    kings not next to each other; no piece that could never move again; no two pawns of a side on a file.
    """
    for slot, letter in enumerate(HAND_LETTERS):
        kind = HAND_PIECE_TYPES[slot]
        count = hands[slot] + hands[7 + slot] + pieces.count(kind) + pieces.count(kind + WHITE_OFFSET)
        if letter != "G":
            promoted = kind + KING
            count += pieces.count(promoted) + pieces.count(promoted + WHITE_OFFSET)
        if count > HAND_MAXIMA[slot]:
            return f"{count} {letter}, and a set has {HAND_MAXIMA[slot]}"
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


def _dead_piece(pieces: bytes) -> str | None:
    for rank, dead in ((0, b"\x01\x02\x03"), (1, b"\x03"), (7, b"\x13"), (8, b"\x11\x12\x13")):
        row = pieces[rank::9]
        if row.strip(b"\x00") and any(piece in dead for piece in row):
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
