"""Additional inputs of networks that read chess positions: the FX features of Czech, Blüml and Kersting.

14 numbers for each square, seen from the side to move ("own"), after "Representation Matters: The Game of Chess Poses a
Challenge to Vision Transformers" (Czech et al. 2023, arXiv:2304.14918) and the code of CrazyAra:

    0 to 4    own P N B R Q on the board, over 8; the same on every square
    5 to 9    own minus the other side's P N B R Q, over 8
    10        1 where each side has one bishop, on squares of different colours
    11        1 on the squares of pieces that give check
    12, 13    1 on squares with an own piece, with one of the other side

Tokens that are not squares get zeros. Features are computed from tokens, so training and play share them, and from any
view: the turned board has the same features at the turned squares.

Axes: B batch, L = 77 tokens, 64 squares.
"""

from __future__ import annotations

import chess
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy_chess.moves import square_token
from genpolicy_chess.tokens import LENGTH, SYMBOLS

NUM_FEATURES = 14
COUNT_SCALE = 8
_NUM_PIECES = 13  # no piece, P N B R Q K of White, the same of Black
_BISHOP, _KING = 3, 6
_SIDE, _BLACK = 64, SYMBOLS.index("black")


class ChessFeatures(nn.Module):
    """The 14 numbers of the module's first lines, of ids in any view."""

    num_features = NUM_FEATURES
    reach: Tensor
    between: Tensor
    is_dark: Tensor

    def __init__(self) -> None:
        super().__init__()
        squares = np.arange(64)
        for name, table in (
            ("reach", _reach()),
            ("between", _between()),
            ("is_dark", (squares // 8 + squares % 8) % 2 == 1),
        ):
            self.register_buffer(name, torch.from_numpy(table), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, 77, 14] float32 of ids [B, 77]; an id that is not a piece counts as an empty square."""
        seen = torch.where(ids[:, :64] < _NUM_PIECES, ids[:, :64], 0)
        # Black to move: exchange the colours, so that 1 to 6 are own pieces and 7 to 12 the other side's.
        exchanged = torch.where(seen == 0, 0, (seen + 5) % 12 + 1)
        piece = torch.where(ids[:, _SIDE, None] == _BLACK, exchanged, seen)
        hot = F.one_hot(piece, _NUM_PIECES)
        counts = hot.sum(1)
        own, other = counts[:, 1:6], counts[:, 7:12]
        dark = (hot[..., [_BISHOP, _BISHOP + 6]] * self.is_dark[:, None]).sum(1)
        opposite = (own[:, 2] == 1) & (other[:, 2] == 1) & (dark[:, 0] != dark[:, 1])
        king = (piece == _KING).long().argmax(1)
        blocked = (self.between[king] & (piece > 0)[:, None]).any(-1)
        square = torch.arange(64, device=ids.device)
        # By the symbol that is seen: a pawn's direction is its colour's.
        checks = (piece > _KING) & self.reach[seen, square, king[:, None]] & ~blocked
        whole = torch.cat([own, own - other], 1) / COUNT_SCALE
        whole = torch.cat([whole, opposite[:, None]], 1)[:, None].expand(-1, 64, -1)
        local = torch.stack([checks, (piece > 0) & (piece <= _KING), piece > _KING], 2)
        return F.pad(torch.cat([whole, local], 2), (0, 0, 0, LENGTH - 64))


def _reach() -> NDArray[np.bool_]:
    """[13, 64, 64] whether a piece on one square attacks another square of an empty board."""
    table = np.zeros((_NUM_PIECES, 64, 64), np.bool_)
    for symbol, name in enumerate("PNBRQKpnbrqk", start=1):
        for square in chess.SQUARES:
            board = chess.Board.empty()
            board.set_piece_at(square, chess.Piece.from_symbol(name))
            for target in board.attacks(square):
                table[symbol, square_token(square), square_token(target)] = True
    return table


def _between() -> NDArray[np.bool_]:
    """[64, 64, 64] which squares lie strictly between two squares of a rank, file or diagonal."""
    table = np.zeros((64, 64, 64), np.bool_)
    for one in chess.SQUARES:
        for other in chess.SQUARES:
            for square in chess.SquareSet.between(one, other):
                table[square_token(one), square_token(other), square_token(square)] = True
    return table
