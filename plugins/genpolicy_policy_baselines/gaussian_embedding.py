"""Gaussian diffusion of token embeddings: the continuous twin of the discrete processes.

A token x has an embedding e(x) of norm sqrt(E), and z_t = alpha_t e(x) + sigma_t eps. The schedule is that of Kingma et
al. 2021 (VDM, arXiv:2107.00630): gamma, the negative log signal-to-noise ratio, rises with t, linearly or by a learned
monotone network, with alpha_t^2 = sigmoid(-gamma_t) and sigma_t^2 = sigmoid(gamma_t), so that variance is preserved.
The network predicts one of two things:

- ``x0_ce``: logits of x, trained by cross-entropy; the estimate of e(x) is the expected embedding (CDCD, Dieleman et
  al. 2022, arXiv:2211.15089);
- ``eps``: the noise, trained by squared error plus the reconstruction term that keeps learned embeddings apart (VDM).

Frozen tokens have no z. Unlabelled tokens are pure noise at every time. Neither carries a loss.

Time is continuous in training and sampling, t in (0, 1] with 1 the noisiest; the reported bound divides it into
``num_timesteps`` equal parts. At t = 1 a little of x is left (alpha_1^2 = sigmoid(-gamma_max)).

Axes: B batch, N tokens, K symbols, E numbers of an embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.diffusion.logits import TypedLogits
from genpolicy.diffusion.process import REDUCTIONS, TIME_SAMPLINGS, WindowBatch, unit_times
from genpolicy.diffusion.random import Generators, uniforms
from genpolicy.errors import ConfigError, require_one_of
from genpolicy_policy_baselines.gaussian_formulas import (
    GAMMA_MAX,
    GAMMA_MIN,
    MonotoneGamma,
    alpha_sigma,
    ancestral_step,
    prior_kl,
    signal_to_noise,
)

GAMMAS = ("linear", "learned")
PREDICTIONS = ("x0_ce", "eps")
EMBEDDINGS = ("learned", "one_hot")
CONTINUOUS_WEIGHTINGS = ("constant", "reciprocal", "linear", "elbo")


class EmbeddingDenoiser(Protocol):
    """What the process trains: a prediction from noised embeddings."""

    def __call__(self, tokens: Tensor, t: Tensor, z: Tensor) -> Tensor | TypedLogits:
        """Logits of x (``x0_ce``) or the noise [B, N, E] (``eps``).

        Args:
            tokens: [B, N] ids; ``mask`` where ``z`` is to be read instead.
            t: [B] float times in (0, 1].
            z: [B, N, E].
        """
        ...


@dataclass(frozen=True)
class NoisyEmbeddings:
    """A draw of z_t."""

    z: Tensor
    """[B, N, E]."""
    eps: Tensor
    """[B, N, E] the noise in it."""
    noised: Tensor
    """[B, N] bool, the tokens that have a z: all that are not frozen."""


class GaussianEmbedding(nn.Module):
    """The process; its embeddings and a learned schedule are parameters.

    Args:
        num_symbols: K; tokens are 0..K-1, ``mask`` (K) is unlabelled.
        num_timesteps: T, steps of the reported bound.
        schedule: ``linear`` gamma, or ``learned``: a monotone network with its ends pinned (needs ``eps``, as
            cross-entropy has no likelihood to fit it by).
        prediction: ``x0_ce`` or ``eps``.
        weighting: Weight at time t: ``constant`` 1, ``reciprocal`` 1/(T t), ``linear`` 1 - t, ``elbo`` gamma'(t)/2
            (``eps`` only).
        reduction: As in ``Process``.
        time_sampling: As in ``Process``.
        embedding: ``learned``, or ``one_hot`` (then E is K).
        width: E of learned embeddings.
        gamma_min: gamma at 0.
        gamma_max: gamma at 1.

    Raises:
        ConfigError: a value that does not exist or is out of range, or a combination that cannot be trained.
    """

    kind: ClassVar[str] = "gaussian"

    def __init__(
        self,
        num_symbols: int,
        num_timesteps: int = 20,
        schedule: str = "linear",
        *,
        prediction: str = "x0_ce",
        weighting: str = "constant",
        reduction: str = "sum",
        time_sampling: str = "low_discrepancy",
        embedding: str = "learned",
        width: int = 16,
        gamma_min: float = GAMMA_MIN,
        gamma_max: float = GAMMA_MAX,
    ) -> None:
        super().__init__()
        for name, value, known in (
            ("schedule", schedule, GAMMAS),
            ("prediction", prediction, PREDICTIONS),
            ("weighting", weighting, CONTINUOUS_WEIGHTINGS),
            ("reduction", reduction, REDUCTIONS),
            ("time_sampling", time_sampling, TIME_SAMPLINGS),
            ("embedding", embedding, EMBEDDINGS),
        ):
            require_one_of(name, value, known)
        for name, number in (("num_symbols", num_symbols), ("num_timesteps", num_timesteps), ("width", width)):
            if number < 1:
                raise ConfigError(f"{name} must be at least 1, got {number}")
        if not gamma_min < gamma_max:
            raise ConfigError(f"gamma must rise: gamma_min {gamma_min} is not below gamma_max {gamma_max}")
        if prediction == "x0_ce" and (schedule == "learned" or weighting == "elbo"):
            raise ConfigError(
                "prediction x0_ce is trained by cross-entropy, which is not a likelihood: take schedule linear and "
                "weighting constant, reciprocal or linear; or prediction eps"
            )
        self.num_symbols, self.num_timesteps, self.schedule = num_symbols, num_timesteps, schedule
        self.prediction, self.weighting, self.reduction = prediction, weighting, reduction
        self.time_sampling, self.embedding_kind = time_sampling, embedding
        self.gamma_min, self.gamma_max = gamma_min, gamma_max
        self.mask = num_symbols
        self.width = num_symbols if embedding == "one_hot" else width
        self.table: Tensor
        if embedding == "learned":
            self.table = nn.Parameter(torch.randn(num_symbols, self.width))
        else:
            self.register_buffer("table", torch.eye(num_symbols), persistent=False)
        self.learned_gamma = MonotoneGamma(gamma_min, gamma_max) if schedule == "learned" else None

    def config(self) -> dict[str, Any]:
        """Plain values from which the process can be rebuilt: ``kind`` and the constructor's arguments."""
        names = ("num_symbols", "num_timesteps", "schedule", "prediction", "weighting", "reduction", "time_sampling")
        more = {"embedding": self.embedding_kind, "width": self.width}
        ends = {"gamma_min": self.gamma_min, "gamma_max": self.gamma_max}
        return {"kind": self.kind, **{name: getattr(self, name) for name in names}, **more, **ends}

    def embeddings(self) -> Tensor:
        """[K, E], each of norm sqrt(E)."""
        return math.sqrt(self.width) * F.normalize(self.table, dim=-1)

    def gamma(self, t: Tensor) -> Tensor:
        """Negative log signal-to-noise ratio at times in [0, 1], of any shape."""
        if self.learned_gamma is not None:
            return self.learned_gamma(t)  # type: ignore[no-any-return]
        return self.gamma_min + (self.gamma_max - self.gamma_min) * t

    def gamma_slope(self, t: Tensor) -> Tensor:
        """d gamma / dt, of the shape of ``t``; it carries a gradient where gamma is learned."""
        if self.learned_gamma is None:
            return torch.full_like(t, self.gamma_max - self.gamma_min)
        slope: Tensor = torch.func.jvp(self.learned_gamma, (t,), (torch.ones_like(t),))[1]
        return slope

    def marginal(self, x0: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [..., E] and standard deviation [...] of q(z_t | x_0) for ids [...]; t broadcasts with them."""
        alpha, sigma = alpha_sigma(self.gamma(t))
        return alpha[..., None] * self.embeddings()[x0], sigma.expand(x0.shape)

    def posterior(self, zt: Tensor, e: Tensor, t: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [..., E] and standard deviation [...] of q(z_s | z_t, e) for s before t, times [...]."""
        gamma_s, gamma_t = self.gamma(s), self.gamma(t)
        step = ancestral_step(gamma_s, gamma_t)
        alpha, sigma = alpha_sigma(gamma_t)
        eps = (zt - alpha[..., None] * e) / sigma[..., None]
        return step.of_zt[..., None] * zt + step.of_eps[..., None] * eps, step.std

    def noise(
        self, x0: Tensor, t: Tensor, frozen: Tensor | None = None, generator: Generators = None
    ) -> NoisyEmbeddings:
        """A draw of z_t.

        Args:
            x0: [B, N] ids; ``mask`` (unlabelled) becomes pure noise.
            t: [B] float times in [0, 1].
            frozen: [B, N] bool, tokens that have no z.
            generator: One stream, or one for each row.

        Raises:
            ValueError: a time or an id out of range.
        """
        if x0.numel() and (int(x0.min()) < 0 or int(x0.max()) > self.mask):
            raise ValueError(f"x0 must hold token ids 0..{self.mask}, got {int(x0.min())}..{int(x0.max())}")
        if t.numel() and (float(t.min()) < 0 or float(t.max()) > 1):
            raise ValueError(f"t must be in [0, 1], got {t.tolist()}")
        e = F.pad(self.embeddings(), (0, 0, 0, 1))[x0]  # an unlabelled token leaves no trace
        eps = normals(tuple(e.shape), generator, x0.device).to(e.dtype)
        alpha, sigma = (x[:, None, None].to(e.dtype) for x in alpha_sigma(self.gamma(t)))
        scale = torch.where((x0 == self.mask)[..., None], torch.ones_like(sigma), sigma)
        noised = torch.ones_like(x0, dtype=torch.bool) if frozen is None else ~frozen
        return NoisyEmbeddings(alpha * e + scale * eps, eps, noised)

    def prior_sample(self, shape: tuple[int, int], generator: Generators = None) -> Tensor:
        """z_1 [B, N, E], standard normal, from which a sampler starts."""
        return normals((*shape, self.width), generator, self.table.device).to(self._dtype)

    def expected(self, logits: Tensor | TypedLogits, admitted: Tensor | None = None) -> Tensor:
        """[B, N, E] the expected embedding of predicted tokens."""
        typed, table = TypedLogits.of(logits).restrict(admitted), self.embeddings()
        out = table.new_zeros(typed.batch_size, typed.num_tokens, self.width)
        with torch.autocast(table.device.type, enabled=False):  # a mean of embeddings in 16 bits is none of theirs
            for g in typed.groups:
                out[:, g.positions] = g.logits.softmax(-1).to(table.dtype) @ table[g.symbols]
        return out

    def estimate(self, prediction: Tensor | TypedLogits, z: Tensor, t: Tensor, admitted: Tensor | None) -> Tensor:
        """[B, N, E] the estimate of e(x) in a prediction at times [B]."""
        if self.prediction == "x0_ce":
            return self.expected(prediction, admitted)
        assert isinstance(prediction, Tensor)
        alpha, sigma = (x[:, None, None].to(z.dtype) for x in alpha_sigma(self.gamma(t)))
        return (z - sigma * prediction) / alpha

    def read_out(self, estimate: Tensor, t: Tensor, admitted: Tensor | None = None) -> TypedLogits:
        """Logits of x from an estimate of e(x): -SNR_t / 2 times the squared distance to each embedding.

        All embeddings have one norm, so the inner product gives the same. The nearest embedding is the likeliest; at
        t = 0 this is VDM's decoder p(x | z_0).
        """
        inner = estimate @ self.embeddings().mT
        return TypedLogits.of(signal_to_noise(self.gamma(t))[:, None, None] * inner).restrict(admitted)

    def decode(self, z0: Tensor, admitted: Tensor | None = None) -> TypedLogits:
        """log p(x | z_0), the bound's last step: embeddings as Gaussians at gamma(0), over all symbols."""
        alpha, _ = alpha_sigma(self.gamma(z0.new_zeros(())))
        read = self.read_out(z0 / alpha, z0.new_zeros(len(z0)), admitted)
        return read.map(lambda g: g.logits.log_softmax(-1))

    def loss(
        self,
        model: EmbeddingDenoiser,
        batch: WindowBatch,
        generator: Generators = None,
        *,
        admitted: Tensor | None = None,
    ) -> Tensor:
        """The trained loss at one random time a row, a scalar with a gradient.

        Args:
            model: Predicts from z.
            batch: [B, N] tokens, frozen, target.
            generator: Draws times and noise.
            admitted: [N, K] or [B, N, K], the symbols that each token can hold.
        """
        x0, where = batch.tokens, self._counted(batch)
        t = self.sample_times(len(x0), generator, x0.device)
        draw = self.noise(x0, t, batch.frozen, generator)
        prediction = model(self._shown(x0, batch.frozen), t, draw.z)
        weight = self._weight(t)
        if self.prediction == "x0_ce":
            log_prob = TypedLogits.of(prediction).restrict(admitted).log_prob(x0.clamp(max=self.num_symbols - 1))
            per_row = weight * _sum_where(-log_prob, where)
        else:
            assert isinstance(prediction, Tensor)
            error = ((draw.eps - prediction) ** 2).sum(-1)
            per_row = weight * _sum_where(error, where) + _sum_where(
                self._reconstruction(batch, generator, admitted), where
            )
        count = where.sum(1)
        if self.reduction == "sum":
            return per_row.mean()
        if self.reduction == "mean":
            return (per_row / count.clamp(min=1)).mean()
        return per_row.sum() / count.sum().clamp(min=1)

    def elbo(
        self,
        model: EmbeddingDenoiser,
        batch: WindowBatch,
        generator: Generators = None,
        *,
        admitted: Tensor | None = None,
    ) -> Tensor:
        """[B] unbiased estimate of the T-step bound on -log p(target tokens | frozen tokens), in nats.

        One time a row: T/2 (exp(gamma_t - gamma_s) - 1) ||eps - eps_hat||^2, plus the decoder's and the prior's terms
        (VDM, equations 11 to 14).
        """
        x0, where = batch.tokens, self._counted(batch)
        part = (unit_times(len(x0), generator, x0.device, "low_discrepancy") * self.num_timesteps).long()
        t, s = (part + 1).double() / self.num_timesteps, part.double() / self.num_timesteps
        draw = self.noise(x0, t.to(self._dtype), batch.frozen, generator)
        t, s = t.to(self._dtype), s.to(self._dtype)
        prediction = model(self._shown(x0, batch.frozen), t, draw.z)
        estimate = self.estimate(prediction, draw.z, t, admitted)
        weight = self.step_weight(t, s)
        e = F.pad(self.embeddings(), (0, 0, 0, 1))[x0]
        # In terms of e(x): ||eps - eps_hat||^2 = SNR_t ||e - e_hat||^2.
        error = signal_to_noise(self.gamma(t))[:, None] * ((e - estimate) ** 2).sum(-1)
        prior = prior_kl(e, self.gamma(e.new_ones(()))).sum(-1)
        per_token = weight[:, None] * error + self._reconstruction(batch, generator, admitted) + prior
        return _sum_where(per_token, where).double()

    def step_weight(self, t: Tensor, s: Tensor) -> Tensor:
        """T/2 (exp(gamma_t - gamma_s) - 1), of the shape of the times."""
        return 0.5 * self.num_timesteps * torch.expm1(self.gamma(t) - self.gamma(s))

    def _reconstruction(self, batch: WindowBatch, generator: Generators, admitted: Tensor | None) -> Tensor:
        """[B, N] -log p(x | z_0)."""
        x0 = batch.tokens
        z0 = self.noise(x0, torch.zeros(len(x0), dtype=self._dtype, device=x0.device), batch.frozen, generator).z
        return -self.decode(z0, admitted).log_prob(x0.clamp(max=self.num_symbols - 1))

    @property
    def _dtype(self) -> torch.dtype:
        return self.table.dtype

    def _shown(self, x0: Tensor, frozen: Tensor) -> Tensor:
        return torch.where(frozen, x0, self.mask)

    def _counted(self, batch: WindowBatch) -> Tensor:
        return batch.target & ~batch.frozen & (batch.tokens != self.mask)

    def _weight(self, t: Tensor) -> Tensor:
        if self.weighting == "constant":
            return torch.ones_like(t)
        if self.weighting == "reciprocal":
            return 1 / (self.num_timesteps * t)
        if self.weighting == "linear":
            return 1 - t
        return 0.5 * self.gamma_slope(t)

    def sample_times(self, num: int, generator: Generators, device: torch.device) -> Tensor:
        """[num] float times in (0, 1], each of them uniform except with ``beta``."""
        return (1 - unit_times(num, generator, device, self.time_sampling)).to(self._dtype)


def _sum_where(values: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, values, torch.zeros_like(values)).sum(1)


def normals(shape: tuple[int, ...], generator: Generators, device: torch.device) -> Tensor:
    """[B, ...] float64 standard normal numbers; arguments and errors as for ``uniforms``."""
    first, second = uniforms(2, shape, generator, device)
    # Box and Muller, so that one generator a row costs one draw; 1 - u lies in (0, 1].
    return torch.sqrt(-2 * torch.log1p(-first)) * torch.cos(2 * math.pi * second)
