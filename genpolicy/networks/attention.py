"""Full (bidirectional) self-attention with an optional additive bias and rotary positions.

Axes: B batch, H heads, N tokens, D features of a head, W width = H D.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.dropout import draw_keep, draw_seeds, keep_probability, uses_own_kernels
from genpolicy.networks.linear import Linear
from genpolicy.networks.threads import in_parallel

_SCRATCH_SCORES = 400_000
"""Scores that one piece of work holds at a time: 1.6 MB in float32, about what a core has for itself."""


class _CachedAttention(torch.autograd.Function):
    """Attention on a CPU, some rows of the batch at a time, so that their scores stay in the cache.

    torch's fast CPU kernel knows neither dropout nor the gradient of a bias, and its slow one writes [B, H, N, N]
    scores to memory several times. Here nothing of that size is kept but, with dropout, a byte for each choice; the
    backward pass computes the probabilities again. Every thread has its own rows and meets the others once a call.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, bias: Tensor | None, p: float) -> Tensor:
        b, n, _, h, d = qkv.shape
        out = qkv.new_empty(b, n, h, d)
        kept = torch.empty((b, h, n, n) if p > 0.0 else (0,), dtype=torch.uint8)
        seeds = draw_seeds(b) if p > 0.0 else [0] * b
        keep = keep_probability(p)
        repeated = _repeated(bias, n)

        def work(rows: range) -> None:
            for start, stop in _pieces(rows, h * n * n):
                count = stop - start
                query, key, value = _heads(qkv[start:stop])
                probabilities = _probabilities(query, key, repeated)
                if p > 0.0:
                    for i, row in enumerate(range(start, stop)):
                        bits = draw_keep(kept[row], p, seeds[row])
                        probabilities[i * h : (i + 1) * h].mul_(bits.to(qkv.dtype))
                    value = value / keep
                mixed = torch.bmm(probabilities, value)
                out[start:stop].copy_(mixed.view(count, h, n, d).transpose(1, 2))

        in_parallel(work, b)
        ctx.save_for_backward(qkv, bias, kept)
        ctx.p = p
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        qkv, bias, kept = ctx.saved_tensors
        b, n, _, h, d = qkv.shape
        grad_out, keep, scale = grads[0], keep_probability(ctx.p), d**-0.5
        grad_qkv = torch.empty_like(qkv, memory_format=torch.contiguous_format)

        repeated = _repeated(bias, n)

        def work(rows: range) -> Tensor | None:
            of_bias = None if bias is None else torch.zeros_like(bias)
            for start, stop in _pieces(rows, h * n * n):
                count = stop - start
                query, key, value = _heads(qkv[start:stop])
                of_out = grad_out[start:stop].transpose(1, 2).reshape(count * h, n, d)
                probabilities = _probabilities(query, key, repeated)
                of_scores = torch.bmm(of_out, value.mT)
                if ctx.p > 0.0:
                    mask = kept[start:stop].view(count * h, n, n).to(qkv.dtype)
                    mask.mul_(1.0 / keep)
                    of_scores.mul_(mask)
                    of_value = torch.bmm(mask.mul_(probabilities).mT, of_out)
                else:
                    of_value = torch.bmm(probabilities.mT, of_out)
                of_scores = torch._softmax_backward_data(of_scores, probabilities, -1, qkv.dtype)
                if of_bias is not None:
                    for i in range(count):
                        of_bias.add_(of_scores[i * h : (i + 1) * h])
                of_query = torch.baddbmm(query, of_scores, key, beta=0, alpha=scale)
                of_key = torch.baddbmm(key, of_scores.mT, query, beta=0, alpha=scale)
                for part, grad in enumerate((of_query, of_key, of_value)):
                    grad_qkv[start:stop, :, part].copy_(grad.view(count, h, n, d).transpose(1, 2))
            return of_bias

        parts = [part for part in in_parallel(work, b) if part is not None]
        return grad_qkv, sum(parts[1:], start=parts[0]) if parts else None, None


def _repeated(bias: Tensor | None, n: int) -> Tensor | None:
    """The bias [H, N, N] once for each row of the largest piece, [b H, N, N]."""
    return None if bias is None else bias.repeat(max(1, _SCRATCH_SCORES // (len(bias) * n * n)), 1, 1)


def _pieces(rows: range, scores: int) -> Iterator[tuple[int, int]]:
    """Start and stop of pieces of some rows of which each needs ``scores`` numbers."""
    size = max(1, _SCRATCH_SCORES // scores)
    for start in range(rows.start, rows.stop, size):
        yield start, min(start + size, rows.stop)


def _heads(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [b H, N, D] of [b, N, 3, H, D]."""
    b, n, _, h, d = qkv.shape
    query, key, value = qkv.permute(2, 0, 3, 1, 4).reshape(3, b * h, n, d).unbind(0)
    return query, key, value


def _probabilities(query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(query key^T / sqrt(D) + bias), shape [b H, N, N]; ``bias`` is repeated for at least b rows."""
    scale = query.shape[-1] ** -0.5
    if bias is None:
        scores = torch.baddbmm(query.new_zeros(()).expand(1, 1, 1), query, key.mT, beta=0, alpha=scale)
    else:
        scores = torch.baddbmm(bias[: len(query)], query, key.mT, alpha=scale)
    return scores.softmax(-1)


def attend(qkv: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
    """softmax(query key^T / sqrt(D) + bias) value, every token seeing every token.

    Args:
        qkv: Queries, keys and values, [B, N, 3, H, D].
        bias: [H, N, N], added to the scores of every row of the batch; None for no bias.
        dropout: Probability of dropping an attention probability; 0 outside training.

    Returns:
        [B, N, H, D].
    """
    if torch.is_grad_enabled() and qkv.requires_grad and uses_own_kernels(qkv):
        out: Tensor = _CachedAttention.apply(qkv, bias, dropout)  # type: ignore[no-untyped-call]
        return out
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    mask = None if bias is None else bias[None].to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout).transpose(1, 2)


class Rotary(nn.Module):
    """Rotates queries and keys by their positions (Su et al. 2021, arXiv:2104.09864, base 10000).

    Args:
        positions: [N] of each token: its place in the sequence, or its ply.
        head_width: D, even.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, positions: Tensor, head_width: int) -> None:
        super().__init__()
        half = head_width // 2
        frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = positions.to(torch.float64)[:, None] * frequencies
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, ..., H, D] in, the same shape out; features i and i + D/2 form a pair."""
        first, second = x.chunk(2, dim=-1)
        shape = (x.shape[1],) + (1,) * (x.ndim - 3) + (-1,)
        cos, sin = self.cos.to(x.dtype).view(shape), self.sin.to(x.dtype).view(shape)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class SelfAttention(nn.Module):
    """Multi-head self-attention with GPT-2's projections and biases."""

    def __init__(self, width: int, num_heads: int, dropout: float, rotary: Rotary | None) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.rotary = rotary

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """[B, N, W] in and out; ``bias`` [H, N, N] or None."""
        b, n, w = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.num_heads, -1)
        if self.rotary is not None:
            qkv = torch.cat([self.rotary(qkv[:, :, :2]), qkv[:, :, 2:]], dim=2)
        mixed = attend(qkv, bias, self.dropout if self.training else 0.0)
        out: Tensor = self.out(mixed.reshape(b, n, w))
        return out
