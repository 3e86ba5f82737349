"""The 4685 USI moves that a shogi position can have, of either side, and the 3781 that the mover's frame needs.

Board moves first, by source square and then by target square in the order of the tokens (9a, 8a, ..., 1i), the plain
move before the promoting one; then the drops of P, L, N, S, G, B, R, each by square. A drop has one text for both
sides.

Black moves up the board. The mover's frame is the board as its mover sees it (White's moves turned around), so it
consists of the moves that Black can make: no drop of a pawn on rank a, promotions on ranks a, b and c only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from genpolicy.game import MoveVocabulary
from genpolicy_shogi.sfen import HAND_LETTERS, HAND_PIECE_TYPES, NUM_SQUARES

SIDE_TOKEN = 81
OWN_HAND_TOKEN = 82
"""First token of the viewer's hand; the other's follows seven tokens later."""
PLAIN, PROMOTION, DROP = 0, 1, 2
"""Kinds of moves."""
NUM_KINDS = 3

_LINES = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
_MOVE16_BITS = 15


def square_name(token: int) -> str:
    """USI name of the square of a token: 0 is 9a, 8 is 1a, 80 is 1i."""
    return f"{9 - token % 9}{'abcdefghi'[token // 9]}"


def library_square(token: int) -> int:
    """cshogi's number of the square of a token (file 1 first, rank a first)."""
    return (8 - token % 9) * 9 + token // 9


def _targets(source: int, forward: tuple[int, ...]) -> list[int]:
    """Squares on a queen's lines and at a knight's jumps (forward -1: Black's, 1: White's), in token order."""
    row, col = divmod(source, 9)
    ends = [(row + dr * n, col + dc * n) for dr, dc in _LINES for n in range(1, 9)]
    ends += [(row + 2 * up, col + dc) for up in forward for dc in (-1, 1)]
    return sorted(9 * r + c for r, c in ends if 0 <= r < 9 and 0 <= c < 9)


def _black_moves() -> list[tuple[int, int, int]]:
    """(source token, target token, kind) of every move that Black can make; the source of a drop is its hand token."""
    moves = []
    for source in range(NUM_SQUARES):
        for target in _targets(source, (-1,)):
            knight = abs(source % 9 - target % 9) == 1 and source // 9 - target // 9 == 2
            if not (knight and target // 9 < 2):  # an unpromoted knight could never move again there
                moves.append((source, target, PLAIN))
            if source // 9 < 3 or target // 9 < 3:
                moves.append((source, target, PROMOTION))
    for slot, letter in enumerate(HAND_LETTERS):
        first = {"P": 9, "L": 9, "N": 18}.get(letter, 0)
        moves += [(OWN_HAND_TOKEN + slot, target, DROP) for target in range(first, NUM_SQUARES)]
    return moves


def _turned(move: tuple[int, int, int]) -> tuple[int, int, int]:
    source, target, kind = move
    return (source if kind == DROP else 80 - source, 80 - target, kind)


def _order(move: tuple[int, int, int]) -> tuple[bool, int, int, int]:
    return (move[2] == DROP, *move)


_BLACK_MOVES = _black_moves()
MOVES: tuple[tuple[int, int, int], ...] = tuple(sorted({*_BLACK_MOVES, *map(_turned, _BLACK_MOVES)}, key=_order))
"""(source token, target token, kind) of each id; a drop starts from the viewer's own hand (see ``make_vocabulary``)."""
_IDS = {move: i for i, move in enumerate(MOVES)}


def _text(move: tuple[int, int, int]) -> str:
    source, target, kind = move
    if kind == DROP:
        return f"{HAND_LETTERS[source - OWN_HAND_TOKEN]}*{square_name(target)}"
    return square_name(source) + square_name(target) + ("+" if kind == PROMOTION else "")


def _move16(move: tuple[int, int, int]) -> int:
    """The low 16 bits of cshogi's move: target, source (81 and more: drop of a piece type) and promotion."""
    source, target, kind = move
    from_ = 80 + HAND_PIECE_TYPES[source - OWN_HAND_TOKEN] if kind == DROP else library_square(source)
    return library_square(target) | from_ << 7 | (kind == PROMOTION) << 14


def _places(numbers: Sequence[int] | NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """[size] where each number stands among ``numbers``; -1 for those that do not."""
    table = np.full(size, -1, np.int64)
    table[np.asarray(numbers)] = np.arange(len(numbers))
    return table


MOVE16: tuple[int, ...] = tuple(map(_move16, MOVES))
"""cshogi's 16-bit number of each id."""
ID_OF_MOVE16 = _places(MOVE16, 1 << _MOVE16_BITS)
"""[32768] id of each 16-bit number of cshogi's, -1 for those that are not moves."""
MOVE16_MASK = (1 << _MOVE16_BITS) - 1
"""The bits of cshogi's 32-bit move that hold source, target and promotion."""
MOVER_MOVES: NDArray[np.int64] = np.array(sorted(_IDS[move] for move in _BLACK_MOVES), np.int64)
"""[3781] ids, in order, of the moves of the mover's frame."""

MOVER_INDEX = _places(MOVER_MOVES, len(MOVES))
"""[4685] place of each id in ``MOVER_MOVES``; -1 for those that only White can make in the absolute frame."""


def make_vocabulary() -> MoveVocabulary:
    """The vocabulary with the tables of a factorised head.

    A drop's source is the hand token of the *viewer's own* hand, whoever drops: ``P*5e`` is one move of the vocabulary,
    and a head that reads one token for it learns from the action token whose turn it is. The root's mover, whose move
    is played, is the viewer, so for that move the token is the hand that the piece comes from.
    """
    source, target, kind = (np.array(column, np.int16) for column in zip(*MOVES, strict=True))
    return MoveVocabulary(
        texts=tuple(map(_text, MOVES)),
        source=source,
        target=target,
        kind=kind,
        num_kinds=NUM_KINDS,
        mirrored=np.array([_IDS[_turned(move)] for move in MOVES], np.int64),
    )


def flipped_ids() -> NDArray[np.int64]:
    """[4685] the id of each move with left and right exchanged; its own inverse."""

    def flip(square: int) -> int:
        return square + 8 - 2 * (square % 9)

    return np.array([_IDS[s if k == DROP else flip(s), flip(t), k] for s, t, k in MOVES], np.int64)


_USI = re.compile(r"(?:[PLNSGBR]\*[1-9][a-i]|[1-9][a-i][1-9][a-i]\+?)")


def looks_like_usi(text: str) -> bool:
    """Whether a text has the form of a USI move."""
    return _USI.fullmatch(text) is not None
