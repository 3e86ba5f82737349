"""What samplers make of a prediction: symbols, confidences, and which tokens return to noise.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genpolicy.diffusion.draws import categorical
from genpolicy.diffusion.logits import LogitGroup, TypedLogits

RATES = ("linear", "cosine", "even")
SCORES = ("log_prob", "entropy", "margin")


def usable_logits(logits: Tensor | TypedLogits, num_symbols: int, admitted: Tensor | None) -> TypedLogits:
    """Logits without what cannot be produced: the mask, were a head to have it, and what is not admitted."""
    if not isinstance(logits, TypedLogits):
        logits = logits[..., :num_symbols]
    return TypedLogits.of(logits).restrict(admitted)


def draw_symbols(clean: TypedLogits, uniform: Tensor, temperature: float) -> Tensor:
    """[B, N] the likeliest symbol of each token at temperature 0, else one drawn by ``uniform`` [B, N]."""
    if temperature == 0:
        return likeliest_symbols(clean)[0]
    out = torch.zeros(uniform.shape, dtype=torch.int64, device=uniform.device)
    for g in clean.groups:
        chosen = categorical((g.logits.double() / temperature).softmax(-1), uniform[:, g.positions])
        out[:, g.positions] = g.symbols[chosen]
    return out


def likeliest_symbols(clean: TypedLogits) -> tuple[Tensor, Tensor]:
    """[B, N] the likeliest symbol of each token and its float64 log-probability; ties go to the smaller id."""
    shape = (clean.batch_size, clean.num_tokens)
    symbols = torch.zeros(shape, dtype=torch.int64, device=clean.device)
    scores = torch.zeros(shape, dtype=torch.float64, device=clean.device)
    for g in clean.groups:
        top, index = g.logits.max(-1)
        symbols[:, g.positions] = g.symbols[index]
        scores[:, g.positions] = (top - g.logits.logsumexp(-1)).double()
    return symbols, scores


def confidence(clean: TypedLogits, sampled: Tensor, score: str) -> Tensor:
    """[B, N] float64, higher is surer: ``log_prob`` of ``sampled``, negative ``entropy``, or ``margin``."""

    def compute(g: LogitGroup) -> Tensor:
        logits = g.logits.double()
        if score == "log_prob":
            local, known = clean.local_ids(g, sampled)
            chosen = logits.gather(-1, local[..., None])[..., 0] - logits.logsumexp(-1)
            return chosen.masked_fill(~known, -math.inf)
        p = logits.softmax(-1)
        if score == "entropy":
            return torch.xlogy(p, p).sum(-1)
        if p.shape[-1] == 1:
            return p[..., 0]
        top = p.topk(2, dim=-1).values
        return top[..., 0] - top[..., 1]

    return clean.per_token(compute)


def num_noised(num: Tensor, s: int, num_timesteps: int, rate: str) -> Tensor:
    """[B] how many of ``num`` [B] tokens are noise at time s: all at T, none at 0.

    ``linear``: floor(n s/T). ``cosine``: floor(n cos(pi/2 (1 - s/T))). ``even``: floor(n/T) fewer at each time, and one
    fewer still at the first n mod T of them.
    """
    if s == 0:
        return torch.zeros_like(num)
    if rate == "cosine":
        return (num.double() * math.cos((num_timesteps - s) / num_timesteps * math.pi / 2)).floor().long()
    if rate == "even":
        done = num_timesteps - s
        return num - done * (num // num_timesteps) - (num % num_timesteps).clamp(max=done)
    return num * s // num_timesteps


def least_sure(scores: Tensor, excluded: Tensor, count: Tensor) -> Tensor:
    """[B, N] bool, the ``count`` [B] tokens of lowest score among those not ``excluded``; ties take the later token.

    By rank and never by a cut-off value, which would take none of the tokens that are tied with it.
    """
    lowest = torch.finfo(scores.dtype).min
    ranked = scores.clamp(min=lowest).masked_fill(excluded, -math.inf)
    order = ranked.sort(dim=1, descending=True, stable=True).indices
    place = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    kept = (~excluded).sum(1) - count
    return (place >= kept[:, None]) & ~excluded


def tempered(logits: TypedLogits, temperature: float) -> TypedLogits:
    """Logits over ``temperature``; at 0 everything on the likeliest symbol."""
    if temperature == 1:
        return logits
    if temperature == 0:
        return logits.map(lambda g: _only_likeliest(g.logits))
    return logits.map(lambda g: g.logits / temperature)


def _only_likeliest(logits: Tensor) -> Tensor:
    return torch.full_like(logits, -math.inf).scatter_(-1, logits.argmax(-1, keepdim=True), 0.0)
