"""Codebooks: vectors replaced by the nearest of a few learned ones (van den Oord et al. 2017, arXiv:1711.00937).

A vector is cut into G parts, each with a codebook of its own. Codebooks follow the vectors that chose them by moving
averages, as in the appendix of that paper, or are learned by their gradient, as in its text; either way the decoder's
gradient reaches the encoder as if nothing had been replaced (straight-through).

Axes: B batch, G codebooks, K codes of each, D width of a code.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Quantised(NamedTuple):
    """Some vectors and the codes nearest to them."""

    codes: Tensor
    """[B, G] int64."""
    vectors: Tensor
    """[B, G, D] the codes' vectors; their gradient is that of what was replaced."""
    commitment: Tensor
    """[B] squared distance to the codes, with a gradient for what was replaced alone."""
    codebook: Tensor
    """[B] the same number, with a gradient for the codes alone; without any where moving averages learn them."""


class Codebooks(nn.Module):
    """Codes and how they are learned.

    Args:
        num_books: G.
        num_codes: K.
        width: D.
        by: ``ema``, moving averages, or ``gradient``.
        decay: Of the moving averages, in [0, 1).
        revive_below: A code that fewer vectors of a batch choose, on a moving average, begins anew at one of the batch.
    """

    counts: Tensor
    sums: Tensor
    chosen: Tensor

    def __init__(
        self,
        num_books: int,
        num_codes: int,
        width: int,
        *,
        by: str = "ema",
        decay: float = 0.97,
        revive_below: float = 1.0,
    ) -> None:
        super().__init__()
        self.num_books, self.num_codes, self.width = num_books, num_codes, width
        self.by, self.decay, self.revive_below = by, decay, revive_below
        drawn = torch.randn(num_books, num_codes, width)
        self.embeddings = nn.Parameter(drawn, requires_grad=by == "gradient")
        # Counts of 0 are below any limit: the first update puts every code on a vector of its batch.
        self.register_buffer("counts", torch.zeros(num_books, num_codes))
        self.register_buffer("sums", torch.zeros(num_books, num_codes, width))
        # Choices alone: ``counts`` keeps dead codes above 0. It is not saved; what was loaded has only its counts.
        self.register_buffer("chosen", torch.zeros(num_books, num_codes), persistent=False)

    def nearest(self, vectors: Tensor) -> Tensor:
        """[B, G] codes nearest to vectors [B, G, D]; ties go to the lower one."""
        distances = torch.cdist(vectors.transpose(0, 1), self.embeddings)  # [G, B, K]
        return distances.argmin(-1).transpose(0, 1)

    def vectors_of(self, codes: Tensor) -> Tensor:
        """[B, G, D] vectors of codes [B, G]."""
        return self.embeddings[torch.arange(self.num_books, device=codes.device), codes]

    def forward(self, vectors: Tensor) -> Quantised:
        """The codes nearest to vectors [B, G, D]."""
        codes = self.nearest(vectors.detach())
        chosen = self.vectors_of(codes)
        through = vectors + (chosen - vectors).detach()
        commitment = (vectors - chosen.detach()).square().sum((1, 2))
        return Quantised(codes, through, commitment, (vectors.detach() - chosen).square().sum((1, 2)))

    @torch.no_grad()
    def update(self, vectors: Tensor, codes: Tensor, generator: torch.Generator) -> None:
        """Move the averages by one batch, and dead codes onto vectors of it.

        N_i <- decay N_i + (1 - decay) n_i and m_i <- decay m_i + (1 - decay) (sum of the vectors that chose i);
        e_i = m_i / N_i.

        Args:
            vectors: [B, G, D] of this process; where no process has any, nothing changes.
            codes: [B, G] what they chose.
            generator: Draws where dead codes begin anew.
        """
        vectors = vectors.float()  # mixed precision computes them in 16 bits, in which large counts are not exact
        chose = nn.functional.one_hot(codes, self.num_codes).float()  # [B, G, K]
        with torch.autocast(vectors.device.type, enabled=False):
            counts, sums = chose.sum(0), torch.einsum("bgk,bgd->gkd", chose, vectors)
        counts, sums = _summed(counts), _summed(sums)
        if not bool(counts.any()):
            return
        self.counts.lerp_(counts, 1 - self.decay)
        self.chosen.lerp_(counts, 1 - self.decay)
        self.sums.lerp_(sums, 1 - self.decay)
        dead = self.counts < self.revive_below
        if bool(dead.any()):
            drawn = torch.zeros_like(self.sums)
            if len(vectors):
                rows = torch.randint(len(vectors), dead.shape, generator=generator, device=vectors.device)
                drawn = vectors[rows, torch.arange(self.num_books, device=rows.device)[:, None]]
            drawn = _of_first(drawn, has=len(vectors) > 0)
            begun = max(1.0, self.revive_below)  # fewer, and a code would be dead again before it was chosen
            self.counts[dead] = begun
            self.sums[dead] = begun * drawn[dead]
            self.embeddings[dead] = drawn[dead]
        if self.by == "ema":
            self.embeddings.copy_(self.sums / self.counts[..., None])

    def perplexity(self) -> Tensor:
        """[G] how many codes are in use, 1 to K: the exponential of the entropy of how often they were chosen."""
        return in_use(self.chosen if bool(self.chosen.any()) else self.counts)


def _summed(x: Tensor) -> Tensor:
    """The sum over all processes that train together: they share a codebook, so each must move it alike."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(x)
    return x


def _of_first(x: Tensor, *, has: bool) -> Tensor:
    """What the first process has of those that have anything."""
    if not (dist.is_available() and dist.is_initialized()):
        return x
    rank = dist.get_rank()
    first = torch.full((), rank if has else dist.get_world_size(), device=x.device)
    dist.all_reduce(first, dist.ReduceOp.MIN)
    return _summed(x * float(rank == int(first)))


def in_use(counts: Tensor) -> Tensor:
    """[G] the perplexity of codes that were chosen so often [G, K]."""
    shares = counts / counts.sum(-1, keepdim=True).clamp(min=1e-12)
    number: Tensor = torch.special.entr(shares).sum(-1).exp()
    return number


def perplexity(codes: Tensor, num_codes: int) -> Tensor:
    """[G] the same of some codes [B, G]."""
    return in_use(nn.functional.one_hot(codes, num_codes).float().mean(0))
