"""A causal transformer over plies, and its keys and values as a tree keeps them: those of a node's own tokens.

A token attends to the tokens up to itself of the last ``context`` plies, its own among them. Positions are rotary by
ply (Su et al. 2021, arXiv:2104.09864), so scores depend on how many plies lie between two tokens, and a key that was
computed once serves every later ply. Learned absolute positions would have to be computed anew where a window moves on.

Axes: B batch, T tokens, P tokens of the past, W width, H heads, D width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.cpu import Linear

BEFORE_ALL = -(1 << 20)
"""Ply of a padding token: too far back for any other token to attend to."""
BASE = 10_000.0  # of the rotary frequencies, as in the paper


@dataclass(frozen=True)
class Past:
    """Tokens that were computed before, as later ones attend to them."""

    memory: Tensor
    """[B, layers, 2, H, P, D] keys, turned by their plies, and values."""
    plies: Tensor
    """[B, P] int64; ``BEFORE_ALL`` for padding."""

    def then(self, later: Past) -> Past:
        """These tokens and later ones."""
        return Past(torch.cat([self.memory, later.memory], 4), torch.cat([self.plies, later.plies], 1))


class CausalTransformer(nn.Module):
    """Pre-norm blocks with GELU, attending to the last plies.

    Args:
        width: W, a multiple of twice the heads.
        num_layers: Blocks.
        num_heads: H.
        context: Plies that a token attends to, its own among them, at least 1.
    """

    def __init__(self, width: int, num_layers: int, num_heads: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.blocks = nn.ModuleList(_Block(width, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        for block in self.blocks:
            assert isinstance(block, _Block)
            for linear in (block.to_memory, block.out, block.inner, block.outer):
                nn.init.normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)
            for linear in (block.out, block.outer):  # as GPT-2: a block adds little at first
                nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * num_layers))

    def forward(self, tokens: Tensor, plies: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        """Features [B, T, W] of tokens [B, T, W], and what later tokens need of them.

        Args:
            tokens: In their order in time.
            plies: [B, T] int64, never falling; ``BEFORE_ALL`` for padding, which stands in front.
            past: Earlier tokens.
        """
        seen = plies if past is None else torch.cat([past.plies, plies], 1)
        num, before = plies.shape[1], seen.shape[1] - plies.shape[1]
        causal = torch.ones(num, before + num, dtype=torch.bool, device=plies.device).tril(before)
        near = plies[:, :, None] - seen[:, None, :] < self.context
        mask = (causal & near)[:, None]
        memory, x = [], tokens
        for layer, block in enumerate(self.blocks):
            x, own = block(x, plies, mask, None if past is None else past.memory[:, layer])
            memory.append(own)
        out: Tensor = self.norm(x)
        return out, Past(torch.stack(memory, 1), plies)


class _Block(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_memory, self.out = Linear(width, 3 * width), Linear(width, width)
        self.inner, self.outer = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x: Tensor, plies: Tensor, mask: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """[B, T, W], and the keys and values [B, 2, H, T, D] of these tokens."""
        b, t, width = x.shape
        queries, keys, values = self.to_memory(self.before(x)).view(b, t, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys = turned(queries, plies), turned(keys, plies)
        own = torch.stack([keys, values], 1)
        if past is not None:
            keys, values = torch.cat([past[:, 0], keys], 2), torch.cat([past[:, 1], values], 2)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, width))
        return x + self.outer(F.gelu(self.inner(self.between(x)))), own


def turned(heads: Tensor, plies: Tensor) -> Tensor:
    """Queries or keys [B, H, T, D] turned by their plies [B, T]: the product of two depends on their distance."""
    half = heads.shape[-1] // 2
    exponents = torch.arange(half, device=heads.device, dtype=torch.float64) / half
    angles = plies[:, None, :, None].double() * BASE**-exponents
    cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    first, second = heads[..., :half], heads[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


@dataclass(frozen=True, eq=False)
class Node:
    """A place in a tree: what its own tokens left behind, and where the earlier ones are.

    A node holds the tokens that lead to it (a move and a latent; at the root all of the context), never those of its
    ancestors: memory grows with the number of nodes, whatever their depth.
    """

    memory: Tensor
    """[layers, 2, H, tokens, D]."""
    plies: tuple[int, ...]
    """Ply of each token, counted from the first of the context."""
    features: Tensor
    """[W] of the last token, which the heads read."""
    parent: Node | None
    flipped: bool
    """Whether the model sees the board as the opponent of the root's player does."""

    @property
    def ply(self) -> int:
        """Ply of the last token."""
        return self.plies[-1]


def gathered(nodes: Sequence[Node], context: int) -> Past:
    """The tokens up to some nodes that the next one attends to; shorter rows are padded in front."""
    rows = [_line(node, node.ply - context) for node in nodes]
    longest = max(len(plies) for _, plies in rows)
    memory = [F.pad(own, (0, 0, longest - own.shape[3], 0)) for own, _ in rows]
    padded = [[BEFORE_ALL] * (longest - len(plies)) + plies for _, plies in rows]
    stacked = torch.stack(memory)
    return Past(stacked, torch.tensor(padded, dtype=torch.int64, device=stacked.device))


def _line(node: Node | None, after: int) -> tuple[Tensor, list[int]]:
    """The tokens of a node and its ancestors that come after some ply."""
    parts: list[Tensor] = []
    plies: list[int] = []
    while node is not None and node.ply > after:
        parts.append(node.memory)
        plies = [*node.plies, *plies]
        node = node.parent
    keep = sum(ply > after for ply in plies)
    return torch.cat(parts[::-1], 3)[:, :, :, -keep:], plies[-keep:]
