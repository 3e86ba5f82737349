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


class AdmittedParts:
    """Splits predictions into groups of tokens that admit the same symbols, and leaves out the symbols they do not.

    A unified head gives every token every symbol of the vocabulary: 2,068 for a chess square that can hold 13. What
    samplers do with the prediction costs as much as it is large.

    Args:
        admitted: [N, K] bool; of every prediction, which must have the same groups each time.
    """

    def __init__(self, admitted: Tensor) -> None:
        self._admitted = admitted
        self._parts: list[list[tuple[Tensor, Tensor]]] = []

    def __call__(self, logits: Tensor | TypedLogits) -> TypedLogits:
        """The same prediction in more and smaller groups."""
        num_symbols = self._admitted.shape[-1]
        whole = usable_logits(logits, num_symbols, None)
        if not self._parts:
            self._parts = [self._split(g) for g in whole.groups]
        groups = [
            LogitGroup(g.positions[rows], g.symbols[columns], g.logits[:, rows[:, None], columns[None, :]])
            if len(parts) > 1 or len(columns) < len(g.symbols)
            else g
            for g, parts in zip(whole.groups, self._parts, strict=True)
            for rows, columns in parts
        ]
        return TypedLogits(tuple(groups), whole.num_tokens, whole.num_symbols)

    def _split(self, g: LogitGroup) -> list[tuple[Tensor, Tensor]]:
        allowed = self._admitted[g.positions][:, g.symbols]
        # A token that admits nothing keeps everything, and is for others to complain of.
        allowed = allowed | ~allowed.any(1, keepdim=True)
        patterns, which = torch.unique(allowed, dim=0, return_inverse=True)
        return [
            (torch.nonzero(which == i).flatten(), torch.nonzero(pattern).flatten())
            for i, pattern in enumerate(patterns)
        ]


def draw_symbols(clean: TypedLogits, uniform: Tensor, where: Tensor, temperature: float) -> Tensor:
    """[B, N] the likeliest symbol of each token at temperature 0, else as ``draw_tokens``."""
    if temperature == 0:
        return likeliest_symbols(clean)
    return draw_tokens(clean, uniform, where, temperature)


def draw_tokens(clean: TypedLogits, uniform: Tensor, where: Tensor, temperature: float = 1.0) -> Tensor:
    """[B, N] a symbol drawn by ``uniform`` [B, N] where ``where`` [B, N] is set, in float64; 0 elsewhere.

    Only the tokens asked for are computed: of a large vocabulary this is most of a step's work.
    """
    out = torch.zeros(uniform.shape, dtype=torch.int64, device=uniform.device)
    for g in clean.groups:
        wanted = where[:, g.positions]
        chosen = categorical((g.logits[wanted].double() / temperature).softmax(-1), uniform[:, g.positions][wanted])
        symbols = torch.zeros(wanted.shape, dtype=torch.int64, device=uniform.device)
        symbols[wanted] = g.symbols[chosen]
        out[:, g.positions] = symbols
    return out


def likeliest_symbols(clean: TypedLogits) -> Tensor:
    """[B, N] the likeliest symbol of each token; ties go to the smaller id."""
    out = torch.zeros((clean.batch_size, clean.num_tokens), dtype=torch.int64, device=clean.device)
    for g in clean.groups:
        out[:, g.positions] = g.symbols[g.logits.argmax(-1)]
    return out


def confidence(clean: TypedLogits, sampled: Tensor, score: str) -> Tensor:
    """[B, N] float64, higher is surer: ``log_prob`` of ``sampled``, negative ``entropy``, or ``margin``."""

    def compute(g: LogitGroup) -> Tensor:
        # Half precision would tie what differs; float32 keeps the memory of a large vocabulary at once its size.
        logits = g.logits.float() if g.logits.dtype.itemsize < 4 else g.logits
        if score == "log_prob":
            local, known = clean.local_ids(g, sampled)
            chosen = logits.gather(-1, local[..., None])[..., 0] - logits.logsumexp(-1)
            return chosen.double().masked_fill(~known, -math.inf)
        p = logits.softmax(-1)
        if score == "entropy":
            return torch.xlogy(p, p).sum(-1).double()
        if p.shape[-1] == 1:
            return p[..., 0].double()
        top = p.topk(2, dim=-1).values
        return (top[..., 0] - top[..., 1]).double()

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
