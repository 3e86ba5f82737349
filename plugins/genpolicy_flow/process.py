"""Flow matching as a process: a token is decided once, at its own time, from a source that is a mask or uniform.

Time is the library's, T pure noise and 0 clean; tau = 1 - t/T and alpha_t = kappa(tau) = (1 - t/T)^n. The reverse
kernel between any two times is exact: a token takes the drawn x_0 with probability (alpha_s - alpha_t) / (1 - alpha_t),
else it stays. With a mask this is absorbing diffusion. With a uniform source the noise of a token is drawn once and
kept, so x_t is not a Markov chain, and no step undoes what multinomial diffusion draws anew.

Axes: B batch, N tokens, K symbols, S states of a token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genpolicy.diffusion.absorbing import Absorbing
from genpolicy.diffusion.logits import Admitted, Denoiser, Logits, TypedLogits
from genpolicy.diffusion.multinomial import PREDICTION_TYPES, Multinomial
from genpolicy.diffusion.process import WEIGHTINGS, Process, Times, WindowBatch, broadcast, log_probabilities
from genpolicy.diffusion.random import Generators
from genpolicy.diffusion.ranking import draw_tokens
from genpolicy.diffusion.schedules import Schedule
from genpolicy.errors import ConfigError, require_one_of
from genpolicy_flow import formulas

SOURCES = ("mask", "uniform")
GENERALISED_KL = "generalised_kl"
MAX_POWER = 8.0  # at n = 8 half of the tokens are still noise at tau = 0.92, the last two of twenty steps


class FlowMatching(Process):
    """Discrete flow matching (Gat et al. 2024, arXiv:2407.15595); arguments as in ``Process``, and some more.

    Args:
        num_symbols: K.
        num_timesteps: T.
        source: Noise, ``mask`` or ``uniform`` over the admitted symbols.
        power: n of kappa = tau^n, above 0 and at most 8; 1, 2, 3 are the schedules linear, quadratic, cubic.
        prediction_type: What the network's logits are, ``denoiser`` or, of a uniform source alone, ``leave_one_out``
            (``genpolicy.diffusion.multinomial`` tells them apart).
        weighting: As in ``Process``, or ``generalised_kl``: the terms of the bound are trained themselves.
        reduction: As in ``Process``.
        time_sampling: As in ``Process``.

    Raises:
        ConfigError: a value that does not exist or is out of range.
    """

    kind = "flow"

    def __init__(
        self,
        num_symbols: int,
        num_timesteps: int = 20,
        source: str = "mask",
        power: float = 1.0,
        *,
        prediction_type: str = "denoiser",
        weighting: str = "linear",
        reduction: str = "sum",
        time_sampling: str = "low_discrepancy",
    ) -> None:
        require_one_of("weighting", weighting, (*WEIGHTINGS, GENERALISED_KL))
        weighted = "elbo" if weighting == GENERALISED_KL else weighting
        super().__init__(
            num_symbols, num_timesteps, weighting=weighted, reduction=reduction, time_sampling=time_sampling
        )
        require_one_of("source", source, SOURCES)
        require_one_of("prediction_type", prediction_type, PREDICTION_TYPES)
        if not 0 < power <= MAX_POWER:
            raise ConfigError(f"power must be above 0 and at most {MAX_POWER:g}, got {power}")
        is_uniform = source == "uniform"
        if prediction_type != "denoiser" and not is_uniform:
            raise ConfigError(
                f"prediction_type {prediction_type!r} needs source=uniform: with a mask both are the same"
            )
        self.source, self.power = source, float(power)
        self.prediction_type, self.weighting = prediction_type, weighting
        self.schedule = f"power {power:g}"
        self.alpha = Schedule(self.schedule, lambda t: formulas.kappa(1 - t, self.power)[0]).table(num_timesteps)
        self.noise_is_visible, self.markov, self.needs_time = not is_uniform, not is_uniform, is_uniform
        # The chain of the same marginals, of which the source and the meaning of a prediction are taken.
        self._chain: Process = Absorbing(num_symbols, num_timesteps)
        if is_uniform:
            self._chain = Multinomial(num_symbols, num_timesteps, prediction_type=prediction_type)
        self._chain.alpha = self.alpha

    def config(self) -> dict[str, Any]:
        """Plain values from which the process can be rebuilt."""
        own = {"source": self.source, "power": self.power, "prediction_type": self.prediction_type}
        return {**{key: value for key, value in super().config().items() if key != "schedule"}, **own}

    @property
    def input_symbols(self) -> int:
        """K + 1 with a mask, else K."""
        return self._chain.input_symbols

    def transition(self, t: int) -> Tensor:
        """[S, S] float64 one-step matrix of a mask source; see ``Process.transition``."""
        return self._chain.transition(t) if self.markov else super().transition(t)

    def marginal(self, x0: Tensor, t: Times, *, admitted: Admitted = None) -> Tensor:
        """q(x_t | x_0), float64 [..., S]; see ``Process.marginal``."""
        x0 = torch.as_tensor(x0)
        times = self.times(t, x0, first=0)
        self.require_symbols(x0, self.mask, "x0")
        alpha_t, ids = broadcast(self.alpha.to(x0.device)[times], x0.long())
        is_known = ids != self.mask
        source = self.prior(admitted=admitted).to(x0.device)
        return formulas.path(ids * is_known, source, alpha_t * is_known)

    def posterior(self, xt: Tensor, x0: Tensor, t: Times, s: Times, *, admitted: Admitted = None) -> Tensor:
        """q(x_s | x_t, x_0) = (1-r) d(x_t) + r d(x_0), float64 [..., S]; unlabelled tokens stay."""
        del admitted
        xt, x0 = torch.as_tensor(xt), torch.as_tensor(x0)
        self.require_symbols(x0, self.mask, "x0")
        decide, xt, x0 = broadcast(self._decide(xt, t, s), xt.long(), x0.long())
        is_known = x0 != self.mask
        states = decide.new_empty(self.input_symbols)
        to = formulas.point_mass(x0 * is_known, states)
        return formulas.mix(formulas.point_mass(xt, states), to, decide * is_known)

    def reverse(self, logits: Logits, xt: Tensor, t: Times, s: Times, *, admitted: Admitted = None) -> Tensor:
        """p(x_s | x_t), float64 [..., S]: the mixture (1-r) d(x_t) + r f of a denoiser f."""
        decide, ids = broadcast(self._decide(xt, t, s), xt.long())
        log_f = log_probabilities(logits, self.num_symbols, admitted)
        if self.prediction_type == "leave_one_out":
            alpha_t = self.alpha.to(xt.device)[self.times(t, xt, first=1)]
            num_admitted = (self.prior(admitted=admitted) > 0).sum(-1).to(xt.device)
            log_f = formulas.to_denoiser(log_f, ids, alpha_t, num_admitted).log_softmax(-1)
        f = torch.nn.functional.pad(log_f.exp(), (0, self.input_symbols - self.num_symbols))
        return formulas.mix(formulas.point_mass(ids, f), f, decide)

    def prior(self, *, admitted: Admitted = None) -> Tensor:
        """p(x_T), float64 [S] or [..., S]: the source."""
        return self._chain.prior(admitted=admitted)

    def pure_noise(self, uniform: Tensor, *, admitted: Admitted = None) -> Tensor:
        """The mask, or a uniform admitted symbol for each ``uniform`` [B, N]."""
        return self._chain.pure_noise(uniform, admitted=admitted)

    def clean_logits(self, logits: TypedLogits, xt: Tensor, t: Times, *, admitted: Admitted = None) -> TypedLogits:
        """Logits of p(x_0 | x_t)."""
        return self._chain.clean_logits(logits, xt, t, admitted=admitted)

    def draw_previous(
        self, logits: TypedLogits, xt: Tensor, t: int, s: int, uniform: Tensor, *, admitted: Admitted = None
    ) -> Tensor:
        """A draw of x_s; one uniform decides whether a token takes a symbol, the other which."""
        coin, symbol = uniform
        decided, clean = coin < self._decide(xt, t, s), self.clean_logits(logits, xt, t, admitted=admitted)
        return torch.where(decided, draw_tokens(clean, symbol, decided), xt)

    def trained_tokens(self, xt: Tensor, x0: Tensor, noised: Tensor) -> Tensor:
        """[B, N] bool: those that took noise; all where a denoiser cannot see which did."""
        del xt, x0
        return noised if self.noise_is_visible or self.prediction_type == "leave_one_out" else torch.ones_like(noised)

    def loss(self, model: Denoiser, batch: WindowBatch, generator: Generators = None, **given: Any) -> Tensor:
        """See ``Process.loss``; with ``generalised_kl`` the terms of the bound, at one random time a row."""
        if self.weighting != GENERALISED_KL:
            return super().loss(model, batch, generator, **given)
        x0, (admitted, times, weights) = batch.tokens, (given.get(key) for key in ("admitted", "times", "weights"))
        t = self.sample_times(x0.shape[0], generator, x0.device) if times is None else times
        xt, noised = self.corrupt(x0, t, frozen=batch.frozen, admitted=admitted, generator=generator)
        where = self.trained_tokens(xt, x0, noised) & self._counted(batch)
        term = torch.where(where, self.elbo_term(model(xt, t), xt, x0, t, admitted=admitted), 0.0)
        per_row = (term if weights is None else term * weights).sum(1)
        if self.reduction == "batch":
            return per_row.sum() / where.sum().clamp(min=1)
        return (per_row / where.sum(1).clamp(min=1) if self.reduction == "mean" else per_row).mean()

    def elbo_term(self, logits: Logits, xt: Tensor, x0: Tensor, t: Times, *, admitted: Admitted = None) -> Tensor:
        """KL of the posterior from the model's kernel, float64 [B, N] nats; 0 where x_0 is unlabelled."""
        times = self.times(t, xt, first=1)
        typed = TypedLogits.of(logits).restrict(admitted).map(lambda g: g.logits.double())
        clean = self.clean_logits(typed, xt, t, admitted=admitted)
        # A decided token under a mask source is carried over, so its step is certain: r = 0.
        decide = self._decide(xt, times, times - 1).expand(xt.shape)
        term = formulas.step_bound(clean.log_prob(x0), clean.log_prob(xt).exp(), xt == x0, decide)
        return torch.where((x0 != self.mask) & (decide > 0), term, 0.0)

    def _decide(self, xt: Tensor, t: Times, s: Times) -> Tensor:
        """r of each token, [...]; 0 for a token that is visibly decided."""
        self.require_symbols(xt, self.input_symbols - 1, "xt")
        alpha = self.alpha.to(xt.device)
        decide = formulas.decide_probability(*(alpha[times] for times in self.step_times(t, s, xt)))
        return torch.where(xt == self.mask, decide, 0.0) if self.noise_is_visible else decide
