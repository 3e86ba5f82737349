"""Absorbing noise: a token survives to time t with probability alpha_t, else it is the mask, id K.

q(x_t | x_0) = alpha_t d(x_0) + (1 - alpha_t) d(mask), with d a point mass (Austin et al. 2021, arXiv:2107.03006). A
masked token is revealed between t and s with probability (alpha_s - alpha_t) / (1 - alpha_t), by Bayes' rule. Each
term of the bound is therefore a weighted cross-entropy at masked tokens alone.

Axes: B batch, N tokens, K symbols.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genpolicy.diffusion.logits import Admitted, Denoiser, Logits, TypedLogits
from genpolicy.diffusion.process import Process, Times, WindowBatch, broadcast, log_probabilities, nll_per_row
from genpolicy.diffusion.random import Generators
from genpolicy.diffusion.ranking import draw_tokens


class Absorbing(Process):
    """Masked diffusion; arguments as in ``Process``. The network sees K + 1 ids, the mask last.

    Where the schedule's alpha_T is not 0 (``cosine_hoogeboom``), ``prior`` spreads a mass of alpha_T over the symbols,
    so that the bound stays finite. Samplers still start with every token masked.
    """

    kind = "absorbing"
    noise_is_visible = True

    @property
    def input_symbols(self) -> int:
        """K + 1."""
        return self.num_symbols + 1

    def transition(self, t: int) -> Tensor:
        """[K+1, K+1] float64 one-step matrix, q(x_t = column | x_{t-1} = row)."""
        time = self.times(t, None, first=1)
        stay = self.alpha[time] / self.alpha[time - 1]
        matrix = stay * torch.eye(self.input_symbols, dtype=torch.float64)
        matrix[:, self.mask] += 1 - stay
        return matrix

    def marginal(self, x0: Tensor, t: Times, *, admitted: Admitted = None) -> Tensor:
        """q(x_t | x_0), float64 [..., K+1]; see ``Process.marginal``."""
        x0 = torch.as_tensor(x0)
        times = self.times(t, x0, first=0)
        self.require_symbols(x0, self.mask, "x0")
        alpha_t, x0 = broadcast(self.alpha.to(x0.device)[times], x0.long())
        out = torch.zeros((*x0.shape, self.input_symbols), dtype=torch.float64, device=x0.device)
        out.scatter_(-1, x0[..., None], alpha_t[..., None])
        out[..., self.mask] += 1 - alpha_t
        return out

    def posterior(self, xt: Tensor, x0: Tensor, t: Times, s: Times, *, admitted: Admitted = None) -> Tensor:
        """q(x_s | x_t, x_0), float64 [..., K+1]; an unmasked token stays, whatever x_0 is."""
        xt, x0 = torch.as_tensor(xt), torch.as_tensor(x0)
        reveal = self._reveal(*self.step_times(t, s, xt))
        for name, ids in (("xt", xt), ("x0", x0)):
            self.require_symbols(ids, self.mask, name)
        reveal, xt, x0 = broadcast(reveal, xt.long(), x0.long())
        reveal = torch.where(xt == self.mask, reveal, 0.0)
        out = torch.zeros((*xt.shape, self.input_symbols), dtype=torch.float64, device=xt.device)
        out.scatter_(-1, xt[..., None], (1 - reveal)[..., None])
        return out.scatter_add_(-1, x0[..., None], reveal[..., None])

    def reverse(self, logits: Logits, xt: Tensor, t: Times, s: Times, *, admitted: Admitted = None) -> Tensor:
        """p(x_s | x_t), float64 [..., K+1]; the plug-in and the mixture of posteriors are the same here."""
        reveal = self._reveal(*self.step_times(t, s, xt))
        self.require_symbols(xt, self.mask, "xt")
        f = log_probabilities(logits, self.num_symbols, admitted).exp()
        reveal, xt = broadcast(reveal, xt.long())
        reveal = torch.where(xt == self.mask, reveal, 0.0)[..., None]
        out = torch.cat([reveal * f, torch.zeros_like(reveal)], dim=-1)
        return out.scatter_add_(-1, xt[..., None], 1 - reveal)

    def prior(self, *, admitted: Admitted = None) -> Tensor:
        """p(x_T), float64 [..., K+1]: the mask, except for a mass of alpha_T."""
        usable = torch.ones(self.num_symbols, dtype=torch.bool) if admitted is None else admitted
        symbols = usable.double() / usable.sum(-1, keepdim=True).clamp(min=1)
        alpha_last = float(self.alpha[-1])
        return torch.cat([alpha_last * symbols, torch.full_like(symbols[..., :1], 1 - alpha_last)], dim=-1)

    def prior_term(self, x0: Tensor, *, admitted: Admitted = None) -> Tensor:
        """KL( q(x_T | x_0) || p(x_T) ), float64 [B, N]: alpha_T times the log of the number of admitted symbols."""
        size = torch.tensor(float(self.num_symbols)) if admitted is None else admitted.sum(-1)
        term = self.alpha[-1].to(x0.device) * size.to(x0.device).double().clamp(min=1).log()
        return torch.where(x0 == self.mask, 0.0, term.expand(x0.shape))

    def pure_noise(self, uniform: Tensor, *, admitted: Admitted = None) -> Tensor:
        """The mask everywhere."""
        return torch.full(uniform.shape, self.mask, dtype=torch.int64, device=uniform.device)

    def draw_previous(
        self, logits: TypedLogits, xt: Tensor, t: int, s: int, uniform: Tensor, *, admitted: Admitted = None
    ) -> Tensor:
        """A draw of x_s; one uniform decides whether a token is unmasked, the other which symbol appears."""
        coin, symbol = uniform
        revealed = (xt == self.mask) & (coin < self._reveal(torch.tensor(t), torch.tensor(s)).to(xt.device))
        return torch.where(revealed, draw_tokens(logits, symbol, revealed), xt)

    def elbo_term(self, logits: Logits, xt: Tensor, x0: Tensor, t: Times, *, admitted: Admitted = None) -> Tensor:
        """lambda_t times -log p(x_0) at masked tokens, float64 [B, N] nats; 0 elsewhere."""
        times = self.times(t, xt, first=1)
        exact = TypedLogits.of(logits).restrict(admitted).map(lambda g: g.logits.double())
        term = -self.elbo_weight(times) * exact.log_prob(x0)
        return torch.where((xt == self.mask) & (x0 != self.mask), term, 0.0)

    def elbo(
        self, model: Denoiser, batch: WindowBatch, generator: Generators = None, *, admitted: Admitted = None
    ) -> Tensor:
        """[B] unbiased estimate of the bound in nats; the network computes the masked targets alone."""
        x0, counted = batch.tokens, self._counted(batch)
        t = self.sample_times(x0.shape[0], generator, x0.device, "low_discrepancy")
        xt, noised = self.corrupt(x0, t, frozen=batch.frozen, admitted=admitted, generator=generator)
        nll = nll_per_row(model, xt, t, x0, noised & counted, admitted=admitted).double()
        return self.num_timesteps * self.elbo_weight(t) * nll + self._prior_per_row(x0, counted, admitted)

    def _reveal(self, t: Tensor, s: Tensor) -> Tensor:
        alpha = self.alpha.to(t.device)
        return (alpha[s] - alpha[t]) / (1 - alpha[t])
