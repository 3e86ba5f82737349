"""The state VQ-VAE for larger boards: what changes is read and shown where it changes.

As one vector, a position of chess says too little of where each piece stands for the next one to be rebuilt token by
token. Here the encoder sums features of the tokens that differ alone, so that what stays need not be learned away. The
decoder marks the places of the player's move, as a network over sequences does (``genpolicy.networks.shown_moves``),
and those of the answer, which it does not know, by two distributions over the places that it makes of the codes:

    p_from, p_to = softmax(A v + Q v . K x_l)      of the codes' vectors v and the features x_l of place l
    x_l += p_from_l leave + p_to_l (arrive + C sum_i p_from_i x_i)

Blocks of attention and a layer for each token follow.

Axes: B batch, L tokens of a position, S symbols of a position, G codebooks, D width of a code, W width of a token.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.embedding import index_buffer
from genpolicy.networks.shown_moves import tables_of_places
from genpolicy.networks.transformer import Block, draw_weights
from genpolicy.sequence import Layout
from genpolicy_policy_model.vq_autoencoder import TransitionAutoencoder, VectorAutoencoder
from genpolicy_policy_model.vq_config import VQConfig

HEAD_WIDTH = 16
EMBEDDING_STD = 0.3


class SquaresAutoencoder(TransitionAutoencoder):
    """Keeps a vector for each token.

    Args:
        layout: As in ``TransitionAutoencoder``.
        config: Shapes.
    """

    def __init__(self, layout: Layout, config: VQConfig) -> None:
        super().__init__(layout, config)
        moves, width, code = layout.moves, config.autoencoder_width, config.num_books * config.code_width
        tables = tables_of_places(layout)
        self.source = index_buffer(np.where(moves.source >= 0, moves.source, self.length))  # one place more is none
        self.target = index_buffer(np.where(moves.target >= 0, moves.target, self.length))
        self.kind, self.rows = index_buffer(moves.kind), index_buffer(tables * self.num_symbols)
        self.token = nn.Embedding((1 + int(tables.max())) * self.num_symbols, width)
        self.places, self.places_changed = nn.Embedding(self.length, width), nn.Embedding(self.length, width)
        self.sources, self.targets = nn.Embedding(self.length + 1, width), nn.Embedding(self.length + 1, width)
        self.kinds, self.marks = nn.Embedding(moves.num_kinds, width), nn.Embedding(4, width)
        self.carried, self.moved = nn.Linear(width, width), nn.Linear(2 * width, width)
        self.pair, self.changed = nn.Linear(2 * width, width), nn.Linear(width, 2 * width)
        self.norm_changed, self.to_code = nn.LayerNorm(2 * width), nn.Linear(2 * width, code)
        self.by_place = nn.ModuleList(nn.Linear(code, self.length) for _ in range(2))
        self.queries = nn.ModuleList(nn.Linear(code, width) for _ in range(2))
        self.keys = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.from_code, self.brought, self.answered = (
            nn.Linear(code, width),
            nn.Linear(width, width),
            nn.Linear(2 * width, width),
        )
        shape = NetworkConfig(geometry="board", width=width, num_heads=width // HEAD_WIDTH)
        self.blocks = nn.ModuleList(Block(shape, None) for _ in range(config.autoencoder_layers))
        self.norm, self.to_tokens = nn.LayerNorm(width), nn.Linear(width, self.num_symbols)
        with torch.no_grad():
            draw_weights(self.blocks, 0.7 * width**-0.5, None)
            for module in self.modules():
                if isinstance(module, nn.Embedding):
                    module.weight.normal_(0.0, EMBEDDING_STD)

    def _moved(self, states: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        """[B, L, W] of states [B, L] with moves [B] marked, and [B, 1, W] what every place is told of them."""
        x = F.pad(self.token(states + self.rows) + self.places.weight, (0, 0, 0, 1))
        rows, source, target = torch.arange(len(x), device=x.device), self.source[moves], self.target[moves]
        kind, left, met = self.kinds(self.kind[moves]), x[rows, source], x[rows, target]
        leave, arrive = self.marks.weight[0] + kind, self.marks.weight[1] + kind + self.carried(left)
        marked = x.index_put((rows, source), leave, accumulate=True).index_put((rows, target), arrive, accumulate=True)
        told = kind + self.sources(source) + self.targets(target) + self.moved(torch.cat([left, met], dim=1))
        return marked[:, :-1], told[:, None]

    def encode(self, states: Tensor, moves: Tensor, after: Tensor) -> Tensor:
        """As in ``TransitionAutoencoder``."""
        pair = torch.cat([self._moved(states, moves)[0], self.token(after + self.rows)], dim=-1)
        features = self.changed(F.gelu(self.pair(pair) + self.places_changed.weight))
        changed = (features * (states != after)[..., None]).sum(1)
        encoded: Tensor = self.to_code(F.gelu(self.norm_changed(changed)))
        return encoded.view(-1, *self.shape)

    def decode(self, states: Tensor, moves: Tensor, vectors: Tensor) -> Tensor:
        """As in ``TransitionAutoencoder``."""
        code, (x, told) = vectors.flatten(1), self._moved(states, moves)
        x = x + told
        leaves, reaches = places_of(code, x, self.by_place, self.queries, self.keys)
        left, met = (torch.einsum("bl,blw->bw", shares, x) for shares in (leaves, reaches))
        arrive = self.marks.weight[3] + self.brought(left)
        x = x + leaves[..., None] * self.marks.weight[2] + reaches[..., None] * arrive[:, None]
        x = x + (self.answered(torch.cat([left, met], dim=1)) + self.from_code(code))[:, None]
        for block in self.blocks:
            x = block(x, None)
        out: Tensor = self.to_tokens(self.norm(x)) + self.stays * F.one_hot(states, self.num_symbols)
        return out

    def flops_per_code(self) -> float:
        """As in ``TransitionAutoencoder``; a layer over tokens is used once for each."""
        by_token = (self.pair, self.changed)
        once = (self.carried, self.moved, self.to_code)
        uses = ((self.length, by_token), (1, once))
        return 2.0 * sum(count * p.numel() for count, parts in uses for part in parts for p in part.parameters())


def places_of(
    code: Tensor, x: Tensor, by_place: nn.ModuleList, queries: nn.ModuleList, keys: nn.ModuleList
) -> tuple[Tensor, Tensor]:
    """[B, L] two distributions over the places, p_from and p_to, of codes' vectors [B, D] and features [B, L, W]."""
    leaves, reaches = (
        (place(code) + torch.einsum("bw,blw->bl", query(code), key(x)) / x.shape[-1] ** 0.5).softmax(-1)
        for place, query, key in zip(by_place, queries, keys, strict=True)
    )
    return leaves, reaches


def make_autoencoder(layout: Layout, config: VQConfig) -> TransitionAutoencoder:
    """The autoencoder that ``config.autoencoder`` names."""
    return (SquaresAutoencoder if config.autoencoder == "squares" else VectorAutoencoder)(layout, config)
