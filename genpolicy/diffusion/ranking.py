"""What samplers compute from a prediction: symbols, confidences, and the tokens that return to noise.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.diffusion.logits import Admitted, LogitGroup, Logits, TypedLogits
from genpolicy.diffusion.random import categorical


def usable_logits(logits: Logits, num_symbols: int, admitted: Admitted) -> TypedLogits:
    """Logits of the symbols that can be produced: without the mask, if a head has it, and within ``admitted``."""
    if not isinstance(logits, TypedLogits):
        logits = logits[..., :num_symbols]
    return TypedLogits.of(logits).restrict(admitted)


LEAST_TEMPERATURE = 1e-30
"""What logits are divided by at least: the quotient stays finite, and no smaller temperature draws anything else."""
MAX_EXTRA = 256
"""Most logits of symbols that are not admitted to compute for one group less: a group costs a dozen torch calls,
whatever its size."""


class AdmittedParts:
    """Splits predictions into groups of tokens that admit nearly the same symbols, and drops what none of them admits.

    A unified head gives every token every symbol of the vocabulary: 2,068 for a chess square that can hold 13. The cost
    of a sampler's step is proportional to the size of the prediction, and to the number of groups.

    Args:
        admitted: [N, K] bool, for every prediction; predictions of as many tokens must have the same groups.
    """

    def __init__(self, admitted: Tensor) -> None:
        self._admitted = admitted
        self._parts: dict[tuple[int, ...], list[list[_Part]]] = {}
        self._is_exact = True

    def __call__(self, logits: Logits) -> TypedLogits:
        """The same prediction in more and smaller groups."""
        num_symbols = self._admitted.shape[-1]
        whole = usable_logits(logits, num_symbols, None)
        sizes = tuple(len(g.positions) for g in whole.groups)  # fewer where a sequence is cut
        if sizes not in self._parts:
            self._parts[sizes] = [self._split(g) for g in whole.groups]
        groups = [part.of(g) for g, parts in zip(whole.groups, self._parts[sizes], strict=True) for part in parts]
        admitted = self._admitted if self._is_exact else None
        return TypedLogits(tuple(groups), whole.num_tokens, whole.num_symbols, admitted)

    def _split(self, g: LogitGroup) -> list[_Part]:
        allowed = self._admitted.index_select(0, g.positions).index_select(1, g.symbols).cpu().numpy()
        if not (admits := allowed.any(axis=1)).all():
            # A token that admits nothing keeps everything; to refuse it is not this class's business.
            allowed[~admits], self._is_exact = True, False
        rows_of: dict[bytes, list[int]] = {}
        for row, pattern in enumerate(np.packbits(allowed, axis=1)):
            rows_of.setdefault(pattern.tobytes(), []).append(row)
        parts = _joined(list(rows_of.values()), allowed)
        return [self._part(g, rows, allowed[rows]) for rows in parts]

    def _part(self, g: LogitGroup, rows: list[int], allowed: NDArray[np.bool_]) -> _Part:
        columns, device = np.flatnonzero(allowed.any(axis=0)), g.logits.device
        first, end = int(columns[0]), int(columns[-1]) + 1
        places, kept = torch.tensor(rows, device=device), torch.from_numpy(columns).to(device)
        within = None if end - first == len(columns) else kept - first
        other = ~allowed[:, columns]
        excluded = torch.from_numpy(other).to(device) if other.any() else None
        return _Part(g.positions[places], g.symbols[kept], places, first, end, within, excluded)


def _joined(parts: list[list[int]], allowed: NDArray[np.bool_]) -> list[list[int]]:
    """Groups of rows of ``allowed`` [n, G], merged as long as that adds few logits, the cheapest pair first."""
    has = np.stack([allowed[rows[0]] for rows in parts]).astype(np.float32)
    while len(parts) > 1:
        num, width = np.array([len(rows) for rows in parts]), has.sum(axis=1)
        union = width[:, None] + width - has @ has.T
        extra = (num[:, None] + num) * union - num[:, None] * width[:, None] - num * width
        np.fill_diagonal(extra, np.inf)
        one, other = divmod(int(extra.argmin()), len(parts))
        if extra[one, other] > MAX_EXTRA:
            break
        parts[one] = parts[one] + parts.pop(other)  # one < other: argmin finds the first of a symmetric table
        has[one] = np.maximum(has[one], has[other])
        has = np.delete(has, other, axis=0)
    return parts


@dataclass(frozen=True)
class _Part:
    """Some tokens of a group that admit nearly the same symbols of it."""

    positions: Tensor
    symbols: Tensor
    rows: Tensor
    """Places of the tokens in the group."""
    first: int
    """The least of the symbols' places in the group."""
    end: int
    """One after the largest."""
    within: Tensor | None
    """The symbols' places counted from ``first``; None where every place up to ``end`` is one."""
    excluded: Tensor | None
    """[n, G] what a token does not admit; None where all admit all."""

    def of(self, g: LogitGroup) -> LogitGroup:
        """The part of a prediction; a slice, then rows, then columns is several times as fast as one double index."""
        logits = g.logits[..., self.first : self.end][:, self.rows]
        if self.within is not None:
            logits = logits[..., self.within]
        if self.excluded is not None:
            logits = logits.masked_fill(self.excluded, -math.inf)
        return LogitGroup(self.positions, self.symbols, logits)


def draw_symbols(clean: TypedLogits, uniform: Tensor, where: Tensor, temperature: float) -> Tensor:
    """[B, N] the likeliest symbol of each token at temperature 0, else as ``draw_tokens``."""
    if temperature == 0:
        return likeliest_symbols(clean)
    return draw_tokens(clean, uniform, where, temperature)


def draw_tokens(clean: TypedLogits, uniform: Tensor, where: Tensor, temperature: float = 1.0) -> Tensor:
    """[B, N] a symbol drawn by ``uniform`` [B, N] where ``where`` [B, N] is set, in float64; 0 elsewhere.

    Only those tokens are computed, since with a large vocabulary this is most of a step's work.
    """
    out = torch.zeros(uniform.shape, dtype=torch.int64, device=uniform.device)
    divisor = max(temperature, LEAST_TEMPERATURE)
    for g in clean.groups:
        rows, places = where.index_select(1, g.positions).nonzero(as_tuple=True)
        if len(rows) == 0:
            continue
        uniforms = uniform[rows, g.positions[places]]
        chosen = categorical((g.logits[rows, places].double() / divisor).softmax(-1), uniforms)
        out[rows, g.positions[places]] = g.symbols[chosen]
    return out


def likeliest_symbols(clean: TypedLogits) -> Tensor:
    """[B, N] the likeliest symbol of each token; ties go to the smaller id."""
    return clean.per_token(lambda g: g.symbols.take(g.logits.argmax(-1)))


def confidence(clean: TypedLogits, sampled: Tensor, score: str) -> Tensor:
    """[B, N] float64, higher is surer: ``log_prob`` of ``sampled``, negative ``entropy``, or ``margin``."""

    def compute(g: LogitGroup) -> Tensor:
        # Half precision would tie what differs; float32 keeps the memory of a large vocabulary at once its size.
        logits = g.logits.float() if g.logits.dtype.itemsize < 4 else g.logits
        if score == "log_prob":
            local, known = clean.local_ids(g, sampled)
            chosen = logits.gather(-1, local[..., None])[..., 0] - logits.logsumexp(-1)
            return torch.where(known, chosen, -math.inf)
        p = logits.softmax(-1)
        if score == "entropy":
            return torch.xlogy(p, p).sum(-1)
        if p.shape[-1] == 1:
            return p[..., 0]
        top = p.topk(2, dim=-1).values
        return top[..., 0] - top[..., 1]

    return clean.per_token(compute).double()


def num_noised(num: Tensor, s: int, num_timesteps: int, rate: str) -> Tensor:
    """[B] the number of ``num`` [B] tokens that are noise at time s: all at T, none at 0.

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

    They are chosen by rank: a cut-off value would take none of the tokens that are tied with it.
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
    """Logits divided by ``temperature``; at 0 the likeliest symbol has all the probability."""
    if temperature == 1:
        return logits
    if temperature == 0:
        return logits.map(lambda g: _only_likeliest(g.logits))
    return logits.map(lambda g: g.logits / max(temperature, LEAST_TEMPERATURE))


def _only_likeliest(logits: Tensor) -> Tensor:
    return torch.full_like(logits, -math.inf).scatter_(-1, logits.argmax(-1, keepdim=True), 0.0)
