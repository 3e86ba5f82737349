"""Full (bidirectional) self-attention with an optional additive bias and rotary positions.

Axes: B batch, H heads, N tokens, D features of a head, W width = H D.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
    """softmax(query key^T / sqrt(D) + bias) value, every token seeing every token.

    Args:
        query: [B, H, N, D].
        key: [B, H, N, D].
        value: [B, H, N, D].
        bias: [H, N, N], added to the scores of every row of the batch; None for no bias.
        dropout: Probability of dropping an attention probability; 0 outside training.

    Returns:
        [B, H, N, D].
    """
    mask = None if bias is None else bias[None].to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


class Rotary(nn.Module):
    """Rotates queries and keys by their place in the sequence (Su et al. 2021, arXiv:2104.09864, base 10000)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, num_tokens: int, head_width: int) -> None:
        super().__init__()
        half = head_width // 2
        frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(num_tokens, dtype=torch.float64)[:, None] * frequencies
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, N, D] in, the same shape out; features i and i + D/2 form a pair."""
        first, second = x.chunk(2, dim=-1)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class SelfAttention(nn.Module):
    """Multi-head self-attention with GPT-2's projections and biases."""

    def __init__(self, width: int, num_heads: int, dropout: float, rotary: Rotary | None) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.rotary = rotary

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """[B, N, W] in and out; ``bias`` [H, N, N] or None."""
        b, n, w = x.shape
        query, key, value = self.qkv(x).view(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        mixed = attend(query, key, value, bias, self.dropout if self.training else 0.0)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(b, n, w))
        return out
