"""dlshogi's input planes: 62 of pieces and attacks, 57 of hands and check, as cshogi computes them, seen by the mover.

The first 62 planes are, for the mover and then for the other side: 14 of its pieces (P L N S B R G K +P +L +N +S +B
+R), 14 of the squares that such a piece attacks, and 3 of squares attacked at least once, twice, three times. The next
56 are each side's hand, the mover's first, a plane filled with ones for each piece held (pawns 8 at most, L N S G 4, B
and R 2); the last is full where the mover is in check. No history, no move number.

cshogi's function writes into the buffer that it is given without looking at its type, its size or what it held before,
and a switch of the whole process makes it write 62 planes more. So the buffer here is always fresh and large enough.

Axes: B batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cshogi import dlshogi
from numpy.typing import NDArray

from genpolicy_shogi.state import ShogiState

NUM_PIECE_PLANES, NUM_HAND_PLANES = 62, 57
_ROOM = 119  # of hands and check, with the planes that the switch adds


def features(states: Sequence[ShogiState]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """dlshogi's own two inputs, as its networks take them: ``x1`` [B, 62, 9, 9] and ``x2`` [B, 57, 9, 9].

    The last two axes are file (1 to 9) and rank (a to i) as the mover sees them: the order of the labels.
    """
    x1 = np.zeros((len(states), NUM_PIECE_PLANES, 9, 9), np.float32)
    x2 = np.zeros((len(states), _ROOM, 9, 9), np.float32)
    for state, pieces, hands in zip(states, x1, x2, strict=True):
        dlshogi.make_input_features(state.board, pieces, hands)
    return x1, np.ascontiguousarray(x2[:, :NUM_HAND_PLANES])


def planes(states: Sequence[ShogiState]) -> NDArray[np.float32]:
    """Both inputs as one image [B, 119, 9, 9] in the rows and columns of the tokens.

    Row 0 is the rank furthest from the mover (a for Black), column 0 the file on the mover's left (9 for Black). So
    cell (r, c) is the square that the mover's view has at token 9 r + c.
    """
    both = np.concatenate(features(states), axis=1)
    return np.ascontiguousarray(both.swapaxes(2, 3)[..., ::-1])
