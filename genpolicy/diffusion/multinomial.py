"""Multinomial noise: a token survives to time t with probability alpha_t, else it is a uniform admitted symbol.

q(x_t | x_0) = alpha_t d(x_0) + (1 - alpha_t) / K (Hoogeboom et al. 2021, arXiv:2102.05379), with K the number of
symbols that the token can hold: a board square, an action and a value each have their own. Noise looks like data, so
two predictions have to be kept apart:

- ``denoiser``: p(x_0^n | x_t), which cross-entropy over all tokens trains. Its reverse kernel is the mixture
  sum_x0 f(x_0) q(x_s | x_t, x_0).
- ``leave_one_out``: p(x_0^n | x_t without its n-th token), which the plug-in bound and cross-entropy over the redrawn
  tokens train. Its reverse kernel is the plug-in q(x_s | x_t, x_0 := f).

By Bayes' rule the denoiser is the leave-one-out prediction times q(x_t^n | x_0^n): the observed token's logit gains
log(1 + K alpha / (1 - alpha)). The mixture of the one equals the plug-in of the other, so one kernel serves both.

Axes: B batch, N tokens, K symbols, G symbols of a group.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genpolicy.diffusion.logits import Admitted, LogitGroup, Logits, TypedLogits
from genpolicy.diffusion.process import Process, Times, broadcast, log_probabilities, relative_entropy
from genpolicy.diffusion.random import admitted_uniform, categorical
from genpolicy.errors import require_one_of

PREDICTION_TYPES = ("denoiser", "leave_one_out")
TRAINED_ON = ("all", "redrawn", "corrupted")


class Multinomial(Process):
    """Uniform noise; the other arguments as in ``Process``.

    Logits of several groups (a typed head) should come with ``admitted``. Without it noise is uniform over the whole
    vocabulary, and the groups are expanded into one.

    Args:
        prediction_type: What the network's logits are, ``denoiser`` or ``leave_one_out``.
        trained_on: The target tokens whose cross-entropy is trained. ``all`` trains a denoiser. ``redrawn``, those that
            took noise, whatever symbol it gave them, trains a leave-one-out prediction. ``corrupted``, those with
            x_t != x_0, is the surrogate of RDM (Zheng et al. 2023, arXiv:2302.05737) and of DiffuSearch; its optimum
            gives the observed symbol no probability, and it is not a bound. None takes the one that trains
            ``prediction_type``.

    Raises:
        ConfigError: a value that does not exist or is out of range.
    """

    kind = "multinomial"
    noise_is_visible = False

    def __init__(
        self,
        num_symbols: int,
        num_timesteps: int = 20,
        schedule: str = "linear",
        *,
        prediction_type: str = "denoiser",
        trained_on: str | None = None,
        **of_process: str,
    ) -> None:
        super().__init__(num_symbols, num_timesteps, schedule, **of_process)
        require_one_of("prediction_type", prediction_type, PREDICTION_TYPES)
        self.prediction_type = prediction_type
        self.trained_on = trained_on or ("all" if prediction_type == "denoiser" else "redrawn")
        require_one_of("trained_on", self.trained_on, TRAINED_ON)

    def config(self) -> dict[str, Any]:
        """Plain values from which the process can be rebuilt."""
        return {**super().config(), "prediction_type": self.prediction_type, "trained_on": self.trained_on}

    @property
    def input_symbols(self) -> int:
        """K."""
        return self.num_symbols

    def transition(self, t: int) -> Tensor:
        """[K, K] float64 one-step matrix, q(x_t = column | x_{t-1} = row), where all symbols are admitted."""
        time = self.times(t, None, first=1)
        stay = self.alpha[time] / self.alpha[time - 1]
        return stay * torch.eye(self.num_symbols, dtype=torch.float64) + (1 - stay) / self.num_symbols

    def marginal(self, x0: Tensor, t: Times, *, admitted: Admitted = None) -> Tensor:
        """q(x_t | x_0), float64 [..., K]; see ``Process.marginal``."""
        x0 = torch.as_tensor(x0)
        times = self.times(t, x0, first=0)
        self.require_symbols(x0, self.mask, "x0")
        alpha_t, ids = broadcast(self.alpha.to(x0.device)[times], x0.long())
        alpha_t = torch.where(ids == self.mask, 0.0, alpha_t)[..., None]
        noise = self.prior(admitted=admitted).to(x0.device)
        return alpha_t * self._one_hot(ids) + (1 - alpha_t) * noise

    def posterior(self, xt: Tensor, x0: Tensor, t: Times, s: Times, *, admitted: Admitted = None) -> Tensor:
        """q(x_s | x_t, x_0), float64 [..., K]."""
        xt, x0 = torch.as_tensor(xt), torch.as_tensor(x0)
        self.require_symbols(xt, self.num_symbols - 1, "xt")
        self.require_symbols(x0, self.mask, "x0")
        alpha_t, alpha_s, xt, x0 = broadcast(*self._alphas(*self.step_times(t, s, xt)), xt.long(), x0.long())
        noise = self.prior(admitted=admitted).to(xt.device)
        return _plug_in(self._one_hot(x0), xt, noise, alpha_t, alpha_s, unlabelled=x0 == self.mask)

    def reverse(self, logits: Logits, xt: Tensor, t: Times, s: Times, *, admitted: Admitted = None) -> Tensor:
        """p(x_s | x_t), float64 [..., K], by the kernel of ``prediction_type``."""
        self.require_symbols(xt, self.num_symbols - 1, "xt")
        alpha_t, alpha_s, xt = broadcast(*self._alphas(*self.step_times(t, s, xt)), xt.long())
        noise = self.prior(admitted=admitted).to(xt.device)
        log_f = log_probabilities(logits, self.num_symbols, admitted)
        if self.prediction_type == "denoiser":
            log_f = to_leave_one_out(log_f, xt, alpha_t, (noise > 0).sum(-1))
        return _plug_in(log_f.softmax(-1), xt, noise, alpha_t, alpha_s)

    def prior(self, *, admitted: Admitted = None) -> Tensor:
        """p(x_T), float64 [K] or [..., K]: uniform over the admitted symbols."""
        if admitted is None:
            return torch.full((self.num_symbols,), 1 / self.num_symbols, dtype=torch.float64)
        return admitted.double() / admitted.sum(-1, keepdim=True).clamp(min=1)

    def prior_term(self, x0: Tensor, *, admitted: Admitted = None) -> Tensor:
        """KL( q(x_T | x_0) || p(x_T) ), float64 [B, N]."""
        size = torch.tensor(self.num_symbols) if admitted is None else admitted.sum(-1)
        size = size.to(x0.device).double().clamp(min=1)
        alpha = float(self.alpha[-1])
        own, other = alpha + (1 - alpha) / size, (1 - alpha) / size
        term = own * (own * size).log() + (size - 1) * other * (other * size).log()
        return torch.where(x0 == self.mask, 0.0, term.expand(x0.shape))

    def pure_noise(self, uniform: Tensor, *, admitted: Admitted = None) -> Tensor:
        """A uniform admitted symbol for each ``uniform`` [B, N]."""
        return admitted_uniform(admitted, self.num_symbols, uniform)

    def trained_tokens(self, xt: Tensor, x0: Tensor, noised: Tensor) -> Tensor:
        """[B, N] bool, by ``trained_on``."""
        if self.trained_on == "all":
            return torch.ones_like(noised)
        return noised if self.trained_on == "redrawn" else xt != x0

    def clean_logits(self, logits: TypedLogits, xt: Tensor, t: Times, *, admitted: Admitted = None) -> TypedLogits:
        """Logits of p(x_0 | x_t)."""
        if self.prediction_type == "denoiser":
            return logits
        return self._shift_observed(logits, xt, self.times(t, xt, first=1), admitted, sign=1)

    def draw_previous(
        self, logits: TypedLogits, xt: Tensor, t: int, s: int, uniform: Tensor, *, admitted: Admitted = None
    ) -> Tensor:
        """A draw of x_s from ``reverse``, group by group."""
        out = xt.clone()
        times = torch.full_like(xt[:, :1], t)
        for g, noise, local, f in self._groups(logits, xt, times, admitted):
            alpha_t, alpha_s = (self.alpha[i].to(xt.device).expand(local.shape) for i in (t, s))
            kernel = _plug_in(f, local, noise, alpha_t, alpha_s)
            out[:, g.positions] = g.symbols[categorical(kernel, uniform[0][:, g.positions])]
        return out

    def elbo_term(self, logits: Logits, xt: Tensor, x0: Tensor, t: Times, *, admitted: Admitted = None) -> Tensor:
        """KL of the posterior from the model's kernel, float64 [B, N] nats; 0 where x_0 is unlabelled."""
        times = self.times(t, xt, first=1)
        typed = TypedLogits.of(logits).restrict(admitted)
        alpha_t, alpha_s = (a.expand(xt.shape) for a in self._alphas(times, times - 1))
        out = torch.zeros(xt.shape, dtype=torch.float64, device=xt.device)
        for g, noise, local, f in self._groups(typed, xt, times, admitted):
            of_group = (local, noise, alpha_t[:, g.positions], alpha_s[:, g.positions])
            local_x0, known = typed.local_ids(g, x0)
            true = torch.zeros_like(f).scatter_(-1, local_x0[..., None], 1.0)
            term = relative_entropy(_plug_in(true, *of_group), _plug_in(f, *of_group))
            # A symbol that the token cannot hold has probability 0.
            out[:, g.positions] = torch.where(known, term, torch.inf)
        return torch.where(x0 == self.mask, 0.0, out)

    def _groups(
        self, logits: TypedLogits, xt: Tensor, times: Tensor, admitted: Admitted
    ) -> list[tuple[LogitGroup, Tensor, Tensor, Tensor]]:
        """For each group: itself, its noise [.., G], the local index of xt [B, n], leave-one-out f [B, n, G]."""
        if admitted is None and any(len(g.symbols) < self.num_symbols for g in logits.groups):
            logits = TypedLogits.of(logits.dense())
        logits = logits.map(lambda g: g.logits.double())
        if self.prediction_type == "denoiser":
            logits = self._shift_observed(logits, xt, times, admitted, sign=-1)
        prior = self.prior(admitted=admitted).to(xt.device)
        out = []
        for g in logits.groups:
            noise = prior if admitted is None else prior.index_select(-2, g.positions)
            noise = noise.index_select(-1, g.symbols)
            out.append((g, noise, logits.local_ids(g, xt)[0], g.logits.softmax(-1)))
        return out

    def _shift_observed(
        self, logits: TypedLogits, xt: Tensor, times: Tensor, admitted: Admitted, sign: int
    ) -> TypedLogits:
        size = torch.tensor(self.num_symbols) if admitted is None else admitted.sum(-1)
        shift = sign * observed_gain(self.alpha.to(xt.device)[times], size.to(xt.device)).expand(xt.shape)

        def change(g: LogitGroup) -> Tensor:
            local, known = logits.local_ids(g, xt)
            gain = torch.where(known, shift[:, g.positions], 0.0).to(g.logits.dtype)
            return g.logits.scatter_add(-1, local[..., None], gain[..., None])

        return logits.map(change)

    def _alphas(self, t: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        alpha = self.alpha.to(t.device)
        return alpha[t], alpha[s]

    def _one_hot(self, ids: Tensor) -> Tensor:
        # One column more for unlabelled tokens, then dropped: they have no symbol.
        return torch.nn.functional.one_hot(ids, self.num_symbols + 1)[..., :-1].double()


def observed_gain(alpha_t: Tensor, num_admitted: Tensor) -> Tensor:
    """log(1 + K alpha / (1 - alpha)): a denoiser's logit of the observed symbol minus the leave-one-out one."""
    return torch.log1p(num_admitted * alpha_t / (1 - alpha_t))


def to_leave_one_out(logits: Tensor, xt: Tensor, alpha_t: Tensor, num_admitted: Tensor) -> Tensor:
    """Leave-one-out logits [..., K] from denoiser logits [..., K] at observed tokens ``xt`` [...]."""
    xt, gain = broadcast(xt, observed_gain(alpha_t, num_admitted))
    shape = (*xt.shape, logits.shape[-1])
    return logits.expand(shape).scatter_add(-1, xt[..., None], -gain[..., None].to(logits.dtype))


def _plug_in(
    f: Tensor, xt: Tensor, noise: Tensor, alpha_t: Tensor, alpha_s: Tensor, unlabelled: Tensor | None = None
) -> Tensor:
    """q(x_s | x_t, x_0 := f), normalised, float64 [..., G].

    [a 1(x_s = x_t) + (1-a) pi(x_t)] [alpha_s f(x_s) + (1-alpha_s) pi(x_s)] / [alpha_t f(x_t) + (1-alpha_t) pi(x_t)]
    with a = alpha_t / alpha_s; exact for a point mass f.

    Args:
        f: [..., G] probabilities.
        xt: [...] index of the observed symbol.
        noise: [..., G] pi, uniform over the admitted symbols.
        alpha_t: [...].
        alpha_s: [...], above alpha_t.
        unlabelled: [...] bool, tokens that are noise at every time, whose f is ignored.
    """
    f = f.expand(*xt.shape, f.shape[-1])
    ratio = alpha_t / alpha_s
    if unlabelled is not None:
        alpha_t, alpha_s = (torch.where(unlabelled, 0.0, a) for a in (alpha_t, alpha_s))
    # pi(x_t) as if x_t were admitted: the result of a frozen or foreign token is not used, but must not divide by 0.
    pi = noise.amax(-1)
    before = alpha_s[..., None] * f + (1 - alpha_s)[..., None] * noise
    observed = xt[..., None]
    moved = ((1 - ratio) * pi)[..., None] * before
    stayed = ratio[..., None] * before.gather(-1, observed)
    total = alpha_t[..., None] * f.gather(-1, observed) + ((1 - alpha_t) * pi)[..., None]
    return moved.scatter_add(-1, observed, stayed) / total
