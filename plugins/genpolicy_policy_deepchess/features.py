"""Bits of a position, made from the state tokens of any game.

Axes: L tokens of a state, S symbols, F bits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.errors import ConfigError
from genpolicy.game import Game

_log = logging.getLogger(__name__)
MAX_SYMBOLS = 32
"""Tokens that may hold more symbols are counters, not features."""


def bit_table(game: Game[Any], drop: Sequence[str] = ()) -> tuple[NDArray[np.int64], int]:
    """[L, S] the bit that a symbol sets at a token, F where it sets none; and F.

    A token's first symbol (empty, white to move, no right) sets no bit. All tokens of the board have the same symbols.

    Args:
        game: Whose tokens.
        drop: Tokens left out: those with a symbol that begins like one of these.

    Raises:
        ConfigError: nothing is left.
    """
    tokenizer = game.tokens
    admitted = np.asarray(tokenizer.admitted, bool).copy()
    on_board = np.asarray(tokenizer.rows) >= 0
    admitted[on_board] = admitted[on_board].any(0)
    dropped = np.array([any(name.startswith(text) for text in drop) for name in tokenizer.symbols])
    if unknown := [text for text in drop if not any(name.startswith(text) for name in tokenizer.symbols)]:
        _log.warning("learner.drop: no symbol of %r begins like %r", game.spec, unknown[0])
    admitted[(admitted.sum(1) > MAX_SYMBOLS) | admitted[:, dropped].any(1)] = False
    bits = admitted & (admitted.cumsum(1) > 1)
    count = int(bits.sum())
    if count == 0:
        raise ConfigError(f"learner.kind=comparator: no token of {game.spec!r} has at most {MAX_SYMBOLS} symbols")
    return np.where(bits, bits.cumsum().reshape(bits.shape) - 1, count), count


def bits_of(tokens: Tensor, table: Tensor, num_bits: int) -> Tensor:
    """[..., F] float32 zeros and ones of state tokens [..., L], by ``bit_table``."""
    index = table[torch.arange(tokens.shape[-1], device=tokens.device), tokens]
    out = torch.zeros((*tokens.shape[:-1], num_bits + 1), device=tokens.device)
    return out.scatter_(-1, index, 1.0)[..., :num_bits]
