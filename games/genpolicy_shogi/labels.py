"""dlshogi's 2187 move labels, the 1496 of them that a legal move can have, and the way back to a move.

A label is ``81 * plane + square``, both as the mover sees them (White's moves turned around); the square is the target,
in cshogi's order (file 1 first, rank a first), so that 2187 numbers are an image of 27 planes, 9 files and 9 ranks.
Planes 0..9 are the directions from which a piece comes: up, up left, up right, left, right, down, down left, down
right, and the knight's two jumps up left and up right; 10..19 the same with promotion; 20..26 drops of P, L, N, S, B,
R, G (not the order of hands). The distance is not in the label: in a position the square and the plane leave one move,
since the first piece met on that line hides those behind it.

Read off the labels that cshogi gives to moves (``cshogi.dlshogi.make_move_label``), to which the tests compare them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.game import IntArray
from genpolicy_shogi.moves import DROP, MOVER_MOVES, MOVES, OWN_HAND_TOKEN, PROMOTION, library_square
from genpolicy_shogi.sfen import HAND_LETTERS
from genpolicy_shogi.state import ShogiState

NUM_PLANES = 27
NUM_LABELS = 81 * NUM_PLANES
_DROP_LETTERS = "PLNSBRG"
_DROP_PLANE = 20
_DIRECTIONS = {(-1, 0): 0, (-1, -1): 1, (-1, 1): 2, (0, -1): 3, (0, 1): 4, (1, 0): 5, (1, -1): 6, (1, 1): 7}
"""Plane of each step (row, column) as the mover sees it: up is a lower row, left a lower column."""


def _label(move: tuple[int, int, int]) -> int:
    source, target, kind = move
    square = library_square(target)
    if kind == DROP:
        return 81 * (_DROP_PLANE + _DROP_LETTERS.index(HAND_LETTERS[source - OWN_HAND_TOKEN])) + square
    down, right = target // 9 - source // 9, target % 9 - source % 9
    if down == -2 and abs(right) == 1:
        plane = 8 if right < 0 else 9
    else:
        plane = _DIRECTIONS[(down > 0) - (down < 0), (right > 0) - (right < 0)]
    return 81 * (plane + 10 * (kind == PROMOTION)) + square


def _labels() -> NDArray[np.int64]:
    table = np.full(len(MOVES), -1, np.int64)
    for move in MOVER_MOVES.tolist():
        table[move] = _label(MOVES[move])
    return table


LABEL = _labels()
"""[4685] label of each move in the mover's frame (of ``MoveVocabulary.seen_by`` the mover); -1 for moves that no mover
makes there."""
REACHABLE: NDArray[np.int64] = np.unique(LABEL[MOVER_MOVES])
"""[1496] the labels that a legal move can have, in order."""


def _compact() -> NDArray[np.int64]:
    table = np.full(NUM_LABELS, -1, np.int64)
    table[REACHABLE] = np.arange(len(REACHABLE))
    return table


COMPACT = _compact()
"""[2187] place of each label in ``REACHABLE``; -1 for the 691 that no legal move has."""


def cells() -> NDArray[np.int64]:
    """[4685] ``LABEL`` on a grid of planes, rows and columns: the rows and columns of the tokens, not of the labels."""
    plane, square = np.divmod(LABEL, 81)
    file, rank = np.divmod(square, 9)  # library_square, turned back
    return np.where(LABEL < 0, -1, 81 * plane + 9 * rank + 8 - file)


def labels_of(mirrored: NDArray[np.int64], move_ids: IntArray, players: IntArray | int) -> NDArray[np.int64]:
    """Labels of absolute move ids, the same shape.

    Args:
        mirrored: ``MoveVocabulary.mirrored``.
        move_ids: Absolute ids.
        players: Who makes them, 0 or 1; of the shape of the ids or of one that broadcasts to it.

    Raises:
        ValueError: a move that its player can never make (a pawn dropped on the last rank, for example).
    """
    ids = np.asarray(move_ids, np.int64)
    labels: NDArray[np.int64] = LABEL[np.where(np.asarray(players) == 1, mirrored[ids], ids)]
    if (labels < 0).any():
        raise ValueError(f"move id {int(ids.reshape(-1)[int((labels < 0).reshape(-1).argmax())])} has no label")
    return labels


def legal_labels(state: ShogiState, mirrored: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels of the legal moves, in the order of their ids; all different."""
    return labels_of(mirrored, state.legal(), state.turn)


def move_of_label(state: ShogiState, label: int, mirrored: NDArray[np.int64]) -> int:
    """Absolute id of the legal move that has a label in a position.

    Raises:
        ValueError: no legal move has it.
    """
    found: Any = np.flatnonzero(legal_labels(state, mirrored) == label)
    if len(found) == 0:
        raise ValueError(f"no legal move has label {label} in {state!r}")
    return int(state.legal()[found[0]])
