"""A made-up game of six squares, and small networks over it in every form."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from genpolicy.game import MoveVocabulary
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.sequence import Layout

ROWS, COLS, NUM_EXTRA = 2, 3, 3  # extras: side to move, a counter, a hand slot


def fake_game(gravity: bool = False) -> Any:
    """Six squares of four pieces, and three other tokens; moves with promotions, or drops without a source."""
    num_squares = ROWS * COLS
    length = num_squares + NUM_EXTRA
    squares = np.arange(num_squares)
    none = np.full(NUM_EXTRA, -1)
    admitted = np.zeros((length, 30), np.bool_)
    admitted[:num_squares, :4] = True
    admitted[num_squares, 4:6] = True
    admitted[num_squares + 1, 6:29] = True
    admitted[num_squares + 2, 26:30] = True
    tokens = SimpleNamespace(
        length=length,
        symbols=tuple(f"y{i}" for i in range(30)),
        rows=np.concatenate([squares // COLS, none]).astype(np.int16),
        cols=np.concatenate([squares % COLS, none]).astype(np.int16),
        hands=np.concatenate([none, none, [-1] * (NUM_EXTRA - 1), [0]])[-length:].astype(np.int16),
        admitted=admitted,
        captured=np.array([-1, length - 1, length - 1, -1, *[-1] * 26]),
        dropped=np.array([*[-1] * (length - 1), 2]),
        promoted=np.stack([np.arange(30), [0, 3, *range(2, 30)], np.arange(30)]),
        turned=None,
        counters=((length - 2,),),
    )
    if gravity:
        triples = [(-1, square, 0) for square in squares]
    else:
        triples = [(i, j, 0) for i in squares for j in squares if i != j and (i + j) % 3]
        triples += [(i, j, 1) for i in (0, 1) for j in (3, 4)] + [(length - 1, j, 2) for j in (2, 5)]
    source, target, kind = (np.array(column, np.int16) for column in zip(*triples, strict=True))
    texts = tuple(f"{i}-{j}-{k}" for i, j, k in triples)
    return SimpleNamespace(tokens=tokens, moves=MoveVocabulary(texts, source, target, kind, 3, np.arange(len(texts))))


def layout_of(paradigm: str = "s-asa", horizon: int = 3, *, gravity: bool = False, admit_pad: bool = False) -> Layout:
    return Layout(fake_game(gravity), paradigm, horizon, num_value_bins=8, admit_pad=admit_pad)


def network(layout: Layout, seed: int = 0, **options: Any) -> DenoisingTransformer:
    """A small float64 network whose every table differs from zero."""
    config = NetworkConfig(**{"num_layers": 2, "width": 16, "num_heads": 2, "move_rank": 4, **options})
    generator = torch.Generator().manual_seed(seed)
    net = DenoisingTransformer(layout, config, generator=generator).double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=0.2)
    return net


def num_weights(net: DenoisingTransformer) -> int:
    """A tied table counts once."""
    return sum(p.numel() for p in net.parameters())


def clean_tokens(layout: Layout, num: int = 3, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.tensor([[rng.choice(np.flatnonzero(row)) for row in layout.admitted] for _ in range(num)])


def noised(layout: Layout, clean: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    where = torch.rand(clean.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    where &= ~torch.from_numpy(layout.given)
    return torch.where(where, layout.mask, clean), where


FORMS = [
    {"geometry": "sequence", "head": "unified"},
    {"geometry": "sequence", "head": "unified", "tied": True, "positions": "rotary"},
    {"geometry": "sequence", "head": "typed", "tied": True},
    {"geometry": "sequence", "head": "typed", "time_conditioning": True},
    {"geometry": "board", "head": "unified"},
    {"geometry": "board", "head": "typed"},
    {"geometry": "board", "head": "typed", "positions": "rotary"},
    {"geometry": "board", "head": "typed", "tied": True, "time_conditioning": True},
    {"geometry": "board", "head": "typed", "move_symbols": True},
    {"geometry": "board", "head": "typed", "board_values": 8},
    {"geometry": "board", "head": "typed", "copied_symbols": True},
]


def name_of(options: dict[str, Any]) -> str:
    return "-".join(str(value) for value in options.values())


every_form = pytest.mark.parametrize("options", FORMS, ids=name_of)
TIMES = torch.tensor([1, 7, 20])
