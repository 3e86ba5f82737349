"""Process: how clean tokens become noise, which loss is trained, and which bound is reported.

Time is an integer: 0 is clean, ``num_timesteps`` (T) is pure noise. alpha_t is the probability that a token is still
clean at time t. Frozen tokens are clean at every time. Unlabelled tokens (id ``mask``) are pure noise at every time.
Neither of the two carries a loss.

``loss`` is what training minimises, with a choice of weights over time and of the reduction. ``elbo`` is the bound in
nats that is reported, whichever loss was trained.

Axes: B batch, N tokens, K symbols (``num_symbols``), S states of a token (``input_symbols``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from genpolicy.diffusion.logits import Admitted, Denoiser, Logits, TypedLogits, token_nll
from genpolicy.diffusion.random import Generators, beta_quantile, low_discrepancy, stratified, uniforms
from genpolicy.diffusion.schedules import get_schedule
from genpolicy.errors import ConfigError, require_one_of

WEIGHTINGS = ("constant", "reciprocal", "linear", "elbo")
REDUCTIONS = ("sum", "mean", "batch")
TIME_SAMPLINGS = ("low_discrepancy", "uniform", "stratified", "beta")
Times = int | Tensor
"""An integer time, or int64 ones: one a row (their axes are the first of the tokens'), or as they broadcast."""


class WindowBatch(Protocol):
    """What ``loss`` and ``elbo`` read of a batch (``genpolicy.data.windows.Batch`` is one)."""

    @property
    def tokens(self) -> Tensor:
        """[B, N] int64 clean ids; ``mask`` where a token is unlabelled."""
        ...

    @property
    def frozen(self) -> Tensor:
        """[B, N] bool, shown clean at all times."""
        ...

    @property
    def target(self) -> Tensor:
        """[B, N] bool, trained on."""
        ...


class Process(ABC):
    """A corruption of discrete tokens that acts on each of them independently.

    Args:
        num_symbols: K; data tokens are 0..K-1.
        num_timesteps: T.
        schedule: A key of ``genpolicy.diffusion.schedules.SCHEDULES``.
        weighting: Weight of the loss over time. ``constant`` 1; ``reciprocal`` 1/t; ``linear`` 1-(t-1)/T (the default
            of Ye et al. 2025, arXiv:2502.19805); ``elbo`` the (alpha_{t-1}-alpha_t)/(1-alpha_t) of this schedule.
        reduction: ``sum`` over a row's trained tokens, mean over rows (the paper's); ``mean`` over a row's trained
            tokens, mean over rows; ``batch`` sum over everything, divided by the trained tokens of the batch, a
            ``linear`` weight times T (the paper's released code).
        time_sampling: How the times of the trained loss are drawn. ``low_discrepancy`` spreads those of a batch evenly
            with one draw; ``stratified`` draws one in each n-th; ``uniform`` draws each by itself; ``beta`` spreads
            them evenly over Beta(2, 2), which favours the middle. On the linear schedule with many tokens, ``beta``
            with ``constant`` and ``mean`` has the expected gradient of ``linear`` and ``batch``, at lower variance.

    Raises:
        ConfigError: a value that does not exist or is out of range.
    """

    kind: ClassVar[str]
    """Entry-point name in group ``genpolicy.processes``."""
    noise_is_visible: bool = False
    """Whether a noised token differs from every clean one, as a mask does; a constructor may set it."""
    markov: bool = True
    """Whether it is a Markov chain, with ``transition``, ``posterior`` and ``elbo_term``; a constructor may set it."""
    needs_time: bool = False
    """Whether a network must be given the time, which x_t alone does not show; a constructor may set it."""
    prediction_type: str = "denoiser"
    """What the network's logits stand for, p(x_0 | x_t) by default; a constructor may set it."""

    def __init__(
        self,
        num_symbols: int,
        num_timesteps: int = 20,
        schedule: str = "linear",
        *,
        weighting: str = "linear",
        reduction: str = "sum",
        time_sampling: str = "low_discrepancy",
    ) -> None:
        if num_symbols < 1:
            raise ConfigError(f"num_symbols must be at least 1, got {num_symbols}")
        require_one_of("weighting", weighting, WEIGHTINGS)
        require_one_of("reduction", reduction, REDUCTIONS)
        require_one_of("time_sampling", time_sampling, TIME_SAMPLINGS)
        self.num_symbols, self.num_timesteps, self.schedule = num_symbols, num_timesteps, schedule
        self.weighting, self.reduction, self.time_sampling = weighting, reduction, time_sampling
        self.alpha = get_schedule(schedule).table(num_timesteps)
        """[T+1] float64."""
        self.mask = num_symbols
        """Id of an unlabelled token; in an absorbing process also the state that tokens fall into."""

    def config(self) -> dict[str, Any]:
        """Plain values from which the process can be rebuilt: ``kind`` and the constructor's arguments."""
        names = ("num_symbols", "num_timesteps", "schedule", "weighting", "reduction", "time_sampling")
        return {"kind": self.kind, **{name: getattr(self, name) for name in names}}

    @property
    @abstractmethod
    def input_symbols(self) -> int:
        """S, the number of token ids that a network may see; ids 0..K-1 are data."""

    def transition(self, t: int) -> Tensor:
        """[S, S] float64 one-step matrix, q(x_t = column | x_{t-1} = row).

        Raises:
            NotImplementedError: the process is not a Markov chain.
        """
        raise NotImplementedError(f"process {self.kind!r} has no one-step matrix")

    @abstractmethod
    def marginal(self, x0: Tensor, t: Times, *, admitted: Admitted = None) -> Tensor:
        """q(x_t | x_0), float64 [..., S].

        Args:
            x0: [...] int64 ids 0..K-1, or ``mask`` for unlabelled; a plain number or list will do.
            t: 0..T; a tensor holds one time a row (its axes are the first of x0's) or broadcasts with x0.
            admitted: [..., K] bool, the symbols that each token can hold; None admits all.

        Raises:
            ValueError: a time or an id out of range.
        """

    def posterior(self, xt: Tensor, x0: Tensor, t: Times, s: Times, *, admitted: Admitted = None) -> Tensor:
        """q(x_s | x_t, x_0), float64 [..., S], for 0 <= s < t <= T.

        Raises:
            NotImplementedError: the process is not a Markov chain.
            ValueError: a time or an id out of range, or s not before t.
        """
        raise NotImplementedError(f"process {self.kind!r} has no posterior")

    @abstractmethod
    def reverse(self, logits: Logits, xt: Tensor, t: Times, s: Times, *, admitted: Admitted = None) -> Tensor:
        """The model's p(x_s | x_t) from its prediction of x_0, float64 [..., S].

        Raises:
            ValueError: a time out of range, or s not before t.
        """

    @abstractmethod
    def prior(self, *, admitted: Admitted = None) -> Tensor:
        """The model's p(x_T) of a token, float64 [S], or [..., S] for ``admitted`` [..., K]."""

    @abstractmethod
    def pure_noise(self, uniform: Tensor, *, admitted: Admitted = None) -> Tensor:
        """A fully noised token for each ``uniform`` [B, N] in [0, 1): the mask, or a uniform symbol."""

    def undecided(self, xt: Tensor) -> Tensor:
        """[B, N] bool, tokens that hold noise for certain; all of them where noise looks like data."""
        return xt == self.mask if self.noise_is_visible else torch.ones_like(xt, dtype=torch.bool)

    @abstractmethod
    def draw_previous(
        self, logits: TypedLogits, xt: Tensor, t: int, s: int, uniform: Tensor, *, admitted: Admitted = None
    ) -> Tensor:
        """[B, N] a draw of x_s from ``reverse``, without its [B, N, S] table.

        Args:
            logits: Prediction of x_0, already restricted to what is admitted.
            xt: [B, N].
            t: Time of xt.
            s: Earlier time.
            uniform: [2, B, N] float64 in [0, 1).
            admitted: [N, K] or [B, N, K].
        """

    def clean_logits(self, logits: TypedLogits, xt: Tensor, t: Times, *, admitted: Admitted = None) -> TypedLogits:
        """Logits of p(x_0 | x_t), from those of the network, which may predict something else."""
        return logits

    def corrupt(
        self, x0: Tensor, t: Times, *, frozen: Tensor | None, admitted: Admitted, generator: Generators
    ) -> tuple[Tensor, Tensor]:
        """x_t [B, N], and which of its tokens took noise, [B, N] bool. Times are not checked.

        A token that took noise may still hold its own symbol, which uniform noise can draw.
        """
        keep, symbol = uniforms(2, tuple(x0.shape), generator, x0.device)
        alpha_t = self.alpha.to(x0.device)[t if isinstance(t, int) else _rows_first(t, x0)]
        noised = (keep >= alpha_t) | (x0 == self.mask)
        if frozen is not None:
            noised = noised & ~frozen
        return torch.where(noised, self.pure_noise(symbol, admitted=admitted), x0), noised

    def noise(
        self,
        x0: Tensor,
        t: Times,
        frozen: Tensor | None = None,
        admitted: Admitted = None,
        generator: Generators = None,
    ) -> Tensor:
        """A draw of x_t [B, N] given x_0.

        Args:
            x0: [B, N] int64 ids 0..K-1, or ``mask`` (unlabelled), which becomes pure noise at every time.
            t: 1..T, one for all rows or [B].
            frozen: [B, N] bool, tokens that stay clean.
            admitted: [N, K] or [B, N, K] bool, the symbols that noise may draw.
            generator: One stream, or one for each row.

        Raises:
            ValueError: a time or an id out of range.
        """
        times = self.times(t, x0, first=1)
        self.require_symbols(x0, self.num_symbols, "x0")
        return self.corrupt(x0, times, frozen=frozen, admitted=admitted, generator=generator)[0]

    def prior_sample(
        self, tokens: Tensor, frozen: Tensor, *, admitted: Admitted = None, generator: Generators = None
    ) -> Tensor:
        """x_T [B, N], from which a sampler starts: ``tokens`` where frozen, pure noise elsewhere."""
        (uniform,) = uniforms(1, tuple(tokens.shape), generator, tokens.device)
        return torch.where(frozen, tokens, self.pure_noise(uniform, admitted=admitted))

    def weight(self, t: Times) -> Tensor:
        """Float64 weight of the loss at times 1..T, of the shape of ``t``.

        Raises:
            ValueError: a time out of range.
        """
        return self._weight(self.times(t, None, first=1))

    def _weight(self, t: Tensor) -> Tensor:
        times = t.double()
        if self.weighting == "constant":
            return torch.ones_like(times)
        if self.weighting == "reciprocal":
            return 1 / times
        if self.weighting == "linear":
            return 1 - (times - 1) / self.num_timesteps
        return self.elbo_weight(t)

    def elbo_weight(self, t: Tensor) -> Tensor:
        """lambda_t = (alpha_{t-1} - alpha_t) / (1 - alpha_t) at integer times 1..T."""
        alpha = self.alpha.to(t.device)
        return (alpha[t - 1] - alpha[t]) / (1 - alpha[t])

    def trained_tokens(self, xt: Tensor, x0: Tensor, noised: Tensor) -> Tensor:
        """[B, N] bool, the tokens whose cross-entropy is trained, before ``target`` restricts them."""
        return noised

    def loss(
        self,
        model: Denoiser,
        batch: WindowBatch,
        generator: Generators = None,
        *,
        admitted: Admitted = None,
        times: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The trained loss, a scalar with a gradient: weighted cross-entropy at one random time a row.

        Args:
            model: Predicts x_0. With ``token_nll`` it computes nothing but the trained tokens.
            batch: [B, N] tokens, frozen, target.
            generator: Draws times and noise.
            admitted: [N, K] or [B, N, K] bool, the symbols that noise may draw.
            times: [B] or [B, N] int64 in 1..T in place of drawn ones.
            weights: [N] of the tokens; None is 1.
        """
        x0 = batch.tokens
        t = self.sample_times(x0.shape[0], generator, x0.device) if times is None else times
        xt, noised = self.corrupt(x0, t, frozen=batch.frozen, admitted=admitted, generator=generator)
        where = self.trained_tokens(xt, x0, noised) & self._counted(batch)
        weight, count = self._weight(t), where.sum(1)
        if t.ndim == 2:
            weight, weights = weight.new_ones(()), weight if weights is None else weight * weights
        per_row = nll_per_row(model, xt, t, x0, where, weights)
        weight = weight.to(per_row.dtype)
        if self.reduction == "sum":
            return (weight * per_row).mean()
        if self.reduction == "mean":
            return (weight * per_row / count.clamp(min=1)).mean()
        scale = self.num_timesteps if self.weighting == "linear" else 1
        return scale * (weight * per_row).sum() / count.sum().clamp(min=1)

    def elbo_term(self, logits: Logits, xt: Tensor, x0: Tensor, t: Times, *, admitted: Admitted = None) -> Tensor:
        """KL( q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t) ), float64 [B, N] nats; at t = 1 it is -log p(x_0 | x_1).

        NaN where the process has no bound, which only one that is not a Markov chain may lack.
        """
        return torch.full(xt.shape, float("nan"), dtype=torch.float64, device=xt.device)

    def prior_term(self, x0: Tensor, *, admitted: Admitted = None) -> Tensor:
        """KL( q(x_T | x_0) || p(x_T) ), float64 [B, N] nats: 0 where alpha_T is 0."""
        q = self.marginal(x0, self.num_timesteps, admitted=admitted)
        return relative_entropy(q, self.prior(admitted=admitted).to(q.device))

    def elbo(
        self, model: Denoiser, batch: WindowBatch, generator: Generators = None, *, admitted: Admitted = None
    ) -> Tensor:
        """[B] unbiased estimate of the bound on -log p(target tokens | frozen tokens), in nats.

        One time a row, times T; the mean over many rows or calls is the bound.
        """
        x0, counted = batch.tokens, self._counted(batch)
        t = self.sample_times(x0.shape[0], generator, x0.device, "low_discrepancy")
        xt, _ = self.corrupt(x0, t, frozen=batch.frozen, admitted=admitted, generator=generator)
        term = self.elbo_term(model(xt, t), xt, x0, t, admitted=admitted)
        return self.num_timesteps * _sum_where(term, counted) + self._prior_per_row(x0, counted, admitted)

    def _prior_per_row(self, x0: Tensor, counted: Tensor, admitted: Admitted) -> Tensor:
        if float(self.alpha[-1]) == 0:
            return torch.zeros(x0.shape[0], dtype=torch.float64, device=x0.device)
        return _sum_where(self.prior_term(x0, admitted=admitted), counted)

    def _counted(self, batch: WindowBatch) -> Tensor:
        return batch.target & ~batch.frozen & (batch.tokens != self.mask)

    def sample_times(
        self, num: int, generator: Generators, device: torch.device, time_sampling: str | None = None
    ) -> Tensor:
        """[num] int64 times in 1..T, each of them uniform except with ``beta``."""
        unit = unit_times(num, generator, device, time_sampling or self.time_sampling)
        return ((unit * self.num_timesteps).long() + 1).clamp(max=self.num_timesteps)

    def times(self, t: Times, like: Tensor | None, first: int, name: str = "t") -> Tensor:
        """``t`` as an int64 tensor that broadcasts with ``like``.

        Raises:
            ValueError: not integers, or outside first..T.
        """
        times = torch.as_tensor(t, device=like.device if like is not None else None)
        if times.dtype.is_floating_point or times.dtype.is_complex or times.dtype == torch.bool:
            raise ValueError(f"{name} must be an integer time {first}..{self.num_timesteps}, got {t!r}")
        if times.numel() and (int(times.min()) < first or int(times.max()) > self.num_timesteps):
            raise ValueError(f"{name} must be in {first}..{self.num_timesteps}, got {times.tolist()}")
        return times.long() if like is None else _rows_first(times.long(), like)

    def step_times(self, t: Times, s: Times, like: Tensor) -> tuple[Tensor, Tensor]:
        """``t`` and the earlier ``s`` as int64 tensors that broadcast with ``like``.

        Raises:
            ValueError: out of range, or s not before t.
        """
        late, early = self.times(t, like, first=1), self.times(s, like, first=0, name="s")
        if not bool((early < late).all()):
            raise ValueError(f"s must be before t, got s={early.flatten().tolist()}, t={late.flatten().tolist()}")
        return late, early

    def require_symbols(self, ids: Tensor, largest: int, name: str) -> None:
        """Check that token ids are 0..largest.

        Raises:
            ValueError: one is not.
        """
        if ids.dtype.is_floating_point or ids.dtype == torch.bool:
            raise ValueError(f"{name} must hold integer token ids, got {ids.dtype}")
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) > largest):
            raise ValueError(f"{name} must hold token ids 0..{largest}, got {int(ids.min())}..{int(ids.max())}")


def unit_times(num: int, generator: Generators, device: torch.device, time_sampling: str) -> Tensor:
    """[num] float64 in [0, 1), as ``time_sampling`` says; from a list of generators the first one draws."""
    stream = generator if generator is None or isinstance(generator, torch.Generator) else generator[0]
    if time_sampling in ("low_discrepancy", "beta"):
        unit = low_discrepancy(uniforms(1, (1,), stream, device)[0], num)
        return beta_quantile(unit) if time_sampling == "beta" else unit
    (unit,) = uniforms(1, (num,), stream, device)
    return stratified(unit) if time_sampling == "stratified" else unit


def nll_per_row(
    model: Denoiser,
    xt: Tensor,
    t: Tensor,
    x0: Tensor,
    where: Tensor,
    weights: Tensor | None = None,
    *,
    admitted: Admitted = None,
) -> Tensor:
    """[B] sum of -log p(x_0) over the tokens of ``where``, times their weights [N] or [B, N], in float32 at least.

    ``admitted`` as in ``token_nll``.
    """
    nll = token_nll(model, xt, t, x0, where, admitted=admitted)
    nll = nll if nll.dtype == torch.float64 else nll.float()
    # Scattered and summed in a fixed order, so that a resumed run adds the same numbers in the same order.
    each = nll.new_zeros(x0.shape).masked_scatter(where, nll)
    return each.sum(1) if weights is None else (each * weights.to(each.dtype)).sum(1)


def relative_entropy(q: Tensor, p: Tensor) -> Tensor:
    """KL(q || p) over the last axis, with 0 log 0 = 0."""
    return (torch.xlogy(q, q) - torch.xlogy(q, p)).sum(-1)


def log_probabilities(logits: Logits, num_symbols: int, admitted: Admitted) -> Tensor:
    """Float64 log-probabilities [..., K] of typed logits, or of a dense tensor of any leading shape."""
    if isinstance(logits, TypedLogits):
        return logits.restrict(admitted).dense()
    dense = logits[..., :num_symbols].double()
    if admitted is not None:
        dense = dense.masked_fill(~admitted, float("-inf"))
    return dense.log_softmax(-1)


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors expanded to their common shape."""
    return tuple(torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]


def _rows_first(t: Tensor, like: Tensor) -> Tensor:
    # One time a row: [B] beside [B, N] becomes [B, 1]. Anything else broadcasts as usual.
    if 0 < t.ndim < like.ndim and t.shape == like.shape[: t.ndim]:
        return t.reshape(t.shape + (1,) * (like.ndim - t.ndim))
    return t


def _sum_where(values: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, values, 0.0).sum(1)
