"""Attention: torch's, or in training with a bias or dropout on a CPU a form that keeps its scores in the cache.

Axes: B batch, b some rows of it, H heads, N tokens, M of them that attend, D features of a head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from genpolicy.networks.cpu.dropout import draw_keep, draw_seeds, keep_probability, uses_own_kernels
from genpolicy.networks.cpu.threads import in_parallel

_SCRATCH_SCORES = 400_000
"""Scores that one piece of work holds at a time: 1.6 MB in float32, about what a core has for itself."""
_FAR_FROM_OVERFLOW = 1e18
"""Sums of exponentials up to this one, and down to its inverse, lose nothing in float32."""


def attend(qkv: Tensor, bias: Tensor | None, dropout: float, first: int = 0) -> Tensor:
    """softmax(query key^T / sqrt(D) + bias) value, every token seeing every token.

    Args:
        qkv: Queries, keys and values, [B, N, 3, H, D].
        bias: Added to the scores: [H, M, N] for every row of the batch, or [B, H, M, N]; None for no bias.
        dropout: Probability of dropping an attention probability; 0 outside training.
        first: The M = N - first tokens from this one on attend; queries before it are not read.

    Returns:
        [B, M, H, D].

    Raises:
        ValueError: a bias of another shape.
    """
    if bias is not None:
        b, n, _, h, _ = qkv.shape
        m = n - first
        if tuple(bias.shape) not in ((h, m, n), (b, h, m, n)):
            raise ValueError(f"an attention bias is [{h}, {m}, {n}] or [{b}, {h}, {m}, {n}], got {list(bias.shape)}")
        bias = bias.to(qkv.dtype)
    # Without either, torch's kernel keeps its scores in the cache, too, and is faster (benchmarks/kernels.py).
    if (bias is not None or dropout > 0.0) and torch.is_grad_enabled() and qkv.requires_grad and uses_own_kernels(qkv):
        out: Tensor = _CachedAttention.apply(qkv, bias, dropout, first)  # type: ignore[no-untyped-call]
        return out
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, N, D] each
    mask = bias[None] if bias is not None and bias.ndim == 3 else bias
    query = query[:, :, first:]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout).transpose(1, 2)


class _CachedAttention(torch.autograd.Function):
    """Attention on a CPU, some rows of the batch or heads of a row at a time, so that their scores stay in the cache.

    torch's fast CPU kernel has neither dropout nor the gradient of a bias, and its slow one writes [B, H, N, N] scores
    to memory several times. Here nothing of that size is kept except, with dropout, a byte for each choice, and the
    gradient of a bias that has this size itself; the backward pass computes the probabilities again, from the log of
    the sum that each row was divided by (FlashAttention-2; Dao 2023, arXiv:2307.08691). Every thread works on rows of
    its own, and the threads meet once a call.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, bias: Tensor | None, p: float, first: int) -> Tensor:
        b, n, _, h, d = qkv.shape
        m = n - first
        out = qkv.new_empty(b, m, h, d)
        logs, shifts = qkv.new_empty(2, b, h, m)  # the log of each row's sum of exponentials, and their shift
        kept = torch.empty((b, h, m, n) if p > 0.0 else (0,), dtype=torch.uint8)
        seeds = draw_seeds(b) if p > 0.0 else [0] * b
        keep = keep_probability(p)

        def work(rows: range) -> None:
            scratch = _scratch(2, qkv, rows, h, m * n)
            for piece in _pieces(rows, h, m * n):
                query, key, value = _heads(piece.of(qkv, 3), first)
                weights, mask = (part[: len(query)].view(-1, m, n) for part in scratch)
                sums, shift = _weights(query, key, piece.of_bias(bias), out=piece.by_rows(weights))
                torch.log(sums, out=piece.of(logs, 1))
                piece.of(shifts, 1).copy_(shift)
                if p > 0.0:
                    if piece.heads.start == 0:
                        for row in range(piece.rows.start, piece.rows.stop):
                            draw_keep(kept[row], p, seeds[row])
                    weights.mul_(piece.by_rows(mask).copy_(piece.of(kept, 1)).flatten(0, 1))
                    sums = sums * keep
                mixed = torch.bmm(weights, value).div_(sums.view(-1, m, 1))
                piece.of(out, 2).copy_(piece.by_rows(mixed).transpose(1, 2))

        in_parallel(work, b)
        ctx.save_for_backward(qkv, bias, kept, out, logs, shifts)
        ctx.p, ctx.first = p, first
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        qkv, bias, kept, out, logs, shifts = ctx.saved_tensors
        b, n, _, h, d = qkv.shape
        first, m = ctx.first, n - ctx.first
        grad_out, keep, scale = grads[0], keep_probability(ctx.p), d**-0.5
        grad_qkv = torch.empty_like(qkv, memory_format=torch.contiguous_format)
        grad_qkv[:, :first, 0] = 0
        wants_bias = ctx.needs_input_grad[1]
        is_shared = wants_bias and bias.ndim == 3
        # The gradient of a bias for each row is that of its scores; one that the rows share is summed thread by thread.
        grad_bias = qkv.new_empty(bias.shape) if wants_bias and not is_shared else None
        means = (grad_out * out).sum(-1).transpose(1, 2)  # of the gradients of a row's probabilities, weighted by them

        def work(rows: range) -> Tensor | None:
            of_bias = torch.zeros_like(bias) if is_shared else None
            scratch = _scratch(3, qkv, rows, h, m * n)
            for piece in _pieces(rows, h, m * n):
                query, key, value = _heads(piece.of(qkv, 3), first)
                of_out = piece.of(grad_out, 2).transpose(1, 2).reshape(query.shape)
                probabilities, of_scores, mask = (part[: len(query)].view(-1, m, n) for part in scratch)
                less, shift = piece.of(logs, 1)[..., None], piece.of(shifts, 1)[..., None]
                if shift.any():  # one number for both would lose the log beside a large shift
                    scores = _scores(query, key, piece.of_bias(bias), None, out=piece.by_rows(probabilities))
                    scores.sub_(shift).sub_(less).exp_()
                else:
                    _scores(query, key, piece.of_bias(bias), less, out=piece.by_rows(probabilities)).exp_()
                torch.bmm(of_out, value.mT, out=of_scores)
                if ctx.p > 0.0:
                    piece.by_rows(mask).copy_(piece.of(kept, 1)).mul_(1.0 / keep)
                    of_scores.mul_(mask)
                    of_value = torch.bmm(mask.mul_(probabilities).mT, of_out)
                else:
                    of_value = torch.bmm(probabilities.mT, of_out)
                of_scores.sub_(piece.of(means, 1).flatten(0, 1)[..., None]).mul_(probabilities)
                if of_bias is not None:
                    for of_row in piece.by_rows(of_scores):
                        of_bias[piece.heads].add_(of_row)
                if grad_bias is not None:
                    piece.of(grad_bias, 1).copy_(piece.by_rows(of_scores))
                of_query = torch.baddbmm(query, of_scores, key, beta=0, alpha=scale)
                of_key = torch.baddbmm(key, of_scores.mT, query, beta=0, alpha=scale)
                for part, grad in enumerate((of_query, of_key, of_value)):
                    at = first if part == 0 else 0
                    piece.of(grad_qkv, 3)[:, at:, part].copy_(piece.by_rows(grad).transpose(1, 2))
            return of_bias

        parts = [part for part in in_parallel(work, b) if part is not None]
        return grad_qkv, sum(parts[1:], start=parts[0]) if parts else grad_bias, None, None


class _Piece(NamedTuple):
    """Some rows of the batch with all heads, or one row with some."""

    rows: slice
    heads: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and heads."""
        return self.rows.stop - self.rows.start, self.heads.stop - self.heads.start

    def of(self, x: Tensor, axis: int) -> Tensor:
        """The piece of a tensor whose first axis is the batch and whose heads lie along ``axis``."""
        return x[self.rows].narrow(axis, self.heads.start, self.shape[1])

    def of_bias(self, bias: Tensor | None) -> Tensor | None:
        """The piece of a bias, [H, M, N] or [B, H, M, N]."""
        if bias is None:
            return None
        return self.of(bias, 1) if bias.ndim == 4 else bias[self.heads]

    def by_rows(self, x: Tensor) -> Tensor:
        """A view of [b H, ...] as [b, H, ...]."""
        return x.view(*self.shape, *x.shape[1:])


def _size(num_rows: int, num_heads: int, scores: int) -> tuple[int, int]:
    """Most rows and heads of a piece, of which each head of a row has ``scores`` scores."""
    count = max(1, min(num_rows, _SCRATCH_SCORES // (num_heads * scores)))
    return count, max(1, min(num_heads, _SCRATCH_SCORES // scores))


def _pieces(rows: range, num_heads: int, scores: int) -> Iterator[_Piece]:
    """Pieces that together are some rows."""
    count, some = _size(len(rows), num_heads, scores)
    for start in range(rows.start, rows.stop, count):
        for head in range(0, num_heads, some):
            yield _Piece(slice(start, min(start + count, rows.stop)), slice(head, min(head + some, num_heads)))


def _scratch(num: int, like: Tensor, rows: range, num_heads: int, scores: int) -> list[Tensor]:
    """Memory for the scores of the largest piece, which serves all: the system would have to map it anew each time."""
    return [like.new_empty(math.prod(_size(len(rows), num_heads, scores)), scores) for _ in range(num)]


def _heads(qkv: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [b H, M, D], keys and values [b H, N, D] of [b, N, 3, H, D]."""
    b, n, _, h, d = qkv.shape
    query, key, value = qkv.permute(2, 0, 3, 1, 4).reshape(3, b * h, n, d).unbind(0)
    return query[:, first:], key, value


def _scores(query: Tensor, key: Tensor, bias: Tensor | None, less: Tensor | None, out: Tensor) -> Tensor:
    """query key^T / sqrt(D) + bias - less, into ``out`` [b, H, M, N].

    Queries are [b H, M, D], keys [b H, N, D], the bias [H, M, N] or [b, H, M, N], and ``less`` [b, H, M, 1].
    """
    if bias is not None and less is not None:
        torch.sub(bias, less, out=out)
    elif bias is not None:
        out.copy_(bias)
    alpha = query.shape[-1] ** -0.5
    out.flatten(0, 1).baddbmm_(query, key.mT, beta=0 if bias is None else 1, alpha=alpha)
    return out if bias is not None or less is None else out.sub_(less)


def _weights(query: Tensor, key: Tensor, bias: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor]:
    """exp(scores - shift) into ``out`` [b, H, M, N]; returns its sums over N and the shift, [b, H, M].

    The shift is 0 for all rows or, where one of them could overflow or underflow, each row's largest score.
    """
    sums = _scores(query, key, bias, None, out).exp_().sum(-1)
    least, most = (float(bound) for bound in sums.aminmax())
    if least > 1 / _FAR_FROM_OVERFLOW and most < _FAR_FROM_OVERFLOW:
        return sums, torch.zeros_like(sums)
    scores = _scores(query, key, bias, None, out)
    shift = scores.amax(-1)
    sums = scores.sub_(shift[..., None]).exp_().sum(-1)
    return sums, shift
