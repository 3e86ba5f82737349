"""Heads that judge a position by its tokens' features: a value (or win, draw, loss), plies left, whether it is over.

They read the mean of the features, which fits any number of tokens, or all of them side by side, as those of Leela
Chess Zero's BT4 do (lczero-training). A label that is NaN is unknown: its loss is 0, and ``mean_of_known`` skips it.

Axes: B batch, L tokens of a position, W width, K bins of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.errors import ConfigError
from genpolicy.networks.cpu import Linear

WIN_DRAW_LOSS = (1.0, 0.0, -1.0)
"""Support of a ``CategoricalHead`` over win, draw and loss of the player to move. A value between, of which no more is
known, is then a draw that is won (or lost) with probability |value|."""
PLIES_SCALE, PLIES_DELTA = 20.0, 10.0
"""Plies left are learnt in units of 20, by a loss that grows linearly from an error of 10 (lczero-training)."""


@dataclass
class ReadoutConfig:
    """How a head reads features."""

    pool: str = "flat"
    """``flat``: a layer for each token, then one over all of them side by side. ``mean``: one over their mean."""
    per_token: int = 32
    """Features that ``flat`` keeps of each token."""
    inner: int = 128
    """Width of the hidden layer."""

    def __post_init__(self) -> None:
        if self.pool not in ("flat", "mean") or not all(1 <= each <= 1 << 20 for each in (self.per_token, self.inner)):
            raise ConfigError(f"pool is flat or mean, per_token and inner lie in 1..{1 << 20:,}; got {self}")


class Readout(nn.Module):
    """Numbers [B, num_out] from features [B, L, W]; ``num_tokens`` is L, ``width`` W, ``linear`` the kind of layer."""

    def __init__(
        self,
        num_tokens: int,
        width: int,
        config: ReadoutConfig,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        num_out: int = 1,
        linear: type[nn.Linear] = Linear,
    ) -> None:
        super().__init__()
        self.num_tokens, self.activation = num_tokens, activation
        flat = config.pool == "flat"
        self.token = linear(width, config.per_token) if flat else None
        self.inner = linear(num_tokens * config.per_token if flat else width, config.inner)
        self.out = linear(config.inner, num_out)

    def forward(self, features: Tensor) -> Tensor:
        """[B, num_out], in float32 at least."""
        read = features.mean(1) if self.token is None else self.activation(self.token(features)).flatten(1)
        out: Tensor = self.out(self.activation(self.inner(read)))
        return out.float() if out.dtype in (torch.bfloat16, torch.float16) else out

    def flops_per_record(self) -> float:
        """Floating-point operations of one record's forward and backward pass: 6 for each use of a weight."""
        by_token = 0 if self.token is None else self.num_tokens * self.token.weight.numel()
        return 6.0 * (by_token + self.inner.weight.numel() + self.out.weight.numel())


class CategoricalHead(Readout):
    """Logits [B, K] of a value's bins; each stands for one value of ``support``, which is monotonic."""

    def __init__(
        self,
        num_tokens: int,
        width: int,
        config: ReadoutConfig,
        support: Sequence[float] = WIN_DRAW_LOSS,
        activation: Callable[[Tensor], Tensor] = F.gelu,
    ) -> None:
        super().__init__(num_tokens, width, config, activation, len(support))
        self.support = nn.Buffer(torch.tensor(support), persistent=False)

    def mean(self, logits: Tensor) -> Tensor:
        """[B] expected values."""
        return logits.softmax(-1) @ self.support.to(logits.dtype)

    def targets(self, values: Tensor) -> Tensor:
        """[B, K] for each value [B], the distribution over the two bins around it whose mean it is."""
        return two_hot(values, self.support.to(values.dtype))

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """[B] cross-entropy in nats of target distributions [B, K]."""
        known = ~targets.isnan().any(-1, keepdim=True)
        return -(targets.where(known, 0.0) * logits.log_softmax(-1)).sum(-1)


class PliesLeftHead(Readout):
    """[B] plies to the end of the game. Softplus stands for lczero-training's ReLU, whose gradient can vanish."""

    def forward(self, features: Tensor) -> Tensor:
        """[B] plies, above 0."""
        return PLIES_SCALE * F.softplus(super().forward(features)[:, 0])

    def losses(self, plies: Tensor, labels: Tensor) -> Tensor:
        """[B] Huber loss of plies / 20 with delta 10 / 20."""
        error = (plies - labels.where(~labels.isnan(), plies)) / PLIES_SCALE
        return F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=PLIES_DELTA / PLIES_SCALE)


class EndHead(Readout):
    """[B] log-odds that the game is over."""

    def forward(self, features: Tensor) -> Tensor:
        """[B] log-odds."""
        return super().forward(features)[:, 0]

    def losses(self, logits: Tensor, ended: Tensor) -> Tensor:
        """[B] cross-entropy in nats of labels [B] in [0, 1]."""
        losses = F.binary_cross_entropy_with_logits(logits, ended.nan_to_num(), reduction="none")
        return losses.where(~ended.isnan(), 0.0)


def two_hot(values: Tensor, support: Tensor) -> Tensor:
    """[..., K] distributions over the two points of a monotonic support [K] around each value [...], with its mean.

    Beyond the support's ends they lie on the end; NaN gives NaN.
    """
    passed = ((values[..., None] - support[:-1]) / (support[1:] - support[:-1])).clamp(0.0, 1.0)  # of each gap
    return F.pad(passed, (1, 0), value=1.0) - F.pad(passed, (0, 1), value=0.0)


def mean_of_known(losses: Tensor, labels: Tensor) -> Tensor:
    """Mean of losses [B] over the rows whose label, [B] or [B, K], is known; 0 where none is."""
    known = ~labels.reshape(len(labels), -1).isnan().any(-1)
    return (losses * known).sum() / known.sum().clamp(min=1)


def finite(out: Tensor, name: str) -> Tensor:
    """What the head of this name gave, checked.

    Raises:
        ValueError: a number of it is not finite.
    """
    if not bool(out.isfinite().all()):
        raise ValueError(
            f"the network's {name} head gives numbers that are not finite: the network has diverged. Train it again "
            "with a lower optim.lr, a longer optim.warmup or optim.grad_clip=1, or take a policy that its run saved "
            "before"
        )
    return out
