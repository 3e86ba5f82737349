"""Our processes keep the laws, and a process that breaks one is caught."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy.diffusion import SCHEDULES, Absorbing, Multinomial, Process
from genpolicy.diffusion.process import log_probabilities
from genpolicy.diffusion.random import admitted_uniform
from genpolicy.diffusion.ranking import draw_tokens
from genpolicy.testing import check_process


@pytest.mark.sampled(5)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_timesteps", [1, 2, 20])
def test_absorbing_keeps_the_laws(schedule: str, num_timesteps: int) -> None:
    check_process(Absorbing(num_symbols=5, num_timesteps=num_timesteps, schedule=schedule))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("prediction_type", ["denoiser", "leave_one_out"])
@pytest.mark.parametrize("num_timesteps", [6, pytest.param(20, marks=pytest.mark.thorough)])
def test_multinomial_keeps_the_laws(num_timesteps: int, schedule: str, prediction_type: str) -> None:
    check_process(Multinomial(5, num_timesteps, schedule=schedule, prediction_type=prediction_type))


OPTIONS: list[dict[str, Any]] = [
    *({"weighting": w} for w in ("constant", "reciprocal", "elbo")),
    *({"reduction": r} for r in ("mean", "batch")),
    *({"time_sampling": t} for t in ("uniform", "stratified", "beta")),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_keeps_the_laws(options: dict[str, Any]) -> None:
    check_process(Absorbing(3, 6, **options))
    check_process(Multinomial(3, 6, trained_on="corrupted", **options))


def test_large_instances_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 8 symbols"):
        check_process(Absorbing(100, 20))


class LateMarginal(Absorbing):
    def marginal(self, x0: Tensor, t: Any, *, admitted: Tensor | None = None) -> Tensor:
        return super().marginal(x0, t if t in (0, self.num_timesteps) else t + 1, admitted=admitted)


class WrongPosterior(Multinomial):
    def posterior(self, xt: Tensor, x0: Tensor, t: Any, s: Any, *, admitted: Tensor | None = None) -> Tensor:
        # The one-step formula, kept for a longer step.
        return super().posterior(xt, x0, t, t - 1, admitted=admitted)


class UnnormalisedKernel(Absorbing):
    def reverse(self, logits: Any, xt: Tensor, t: Any, s: Any, *, admitted: Tensor | None = None) -> Tensor:
        return 1.01 * super().reverse(logits, xt, t, s, admitted=admitted)


class WrongKernel(Multinomial):
    """The plug-in kernel of a denoiser, or rather the bound of one kernel with the other."""

    def reverse(self, logits: Any, xt: Tensor, t: Any, s: Any, *, admitted: Tensor | None = None) -> Tensor:
        other = Multinomial(self.num_symbols, self.num_timesteps, self.schedule, prediction_type="denoiser")
        return other.reverse(logits, xt, t, s, admitted=admitted)


class NoisyFrozen(Absorbing):
    def corrupt(self, x0: Tensor, t: Any, **options: Any) -> tuple[Tensor, Tensor]:
        return super().corrupt(x0, t, **{**options, "frozen": None})


class AnySymbol(Multinomial):
    def pure_noise(self, uniform: Tensor, *, admitted: Tensor | None = None) -> Tensor:
        return super().pure_noise(uniform, admitted=None)


class TooLittleNoise(Absorbing):
    def corrupt(self, x0: Tensor, t: Any, **options: Any) -> tuple[Tensor, Tensor]:
        return super().corrupt(x0, torch.as_tensor(t) - 1, **options)


class OwnSeed(Multinomial):
    def pure_noise(self, uniform: Tensor, *, admitted: Tensor | None = None) -> Tensor:
        return super().pure_noise(torch.rand_like(uniform), admitted=admitted)


class ReciprocalBound(Absorbing):
    """1/t, which is a bound for the linear schedule alone."""

    def elbo_weight(self, t: Tensor) -> Tensor:
        return 1 / t.double()


class BiasedElbo(Absorbing):
    def elbo(self, *arguments: Any, **options: Any) -> Tensor:
        return 1.1 * super().elbo(*arguments, **options)


class WideElbo(Absorbing):
    """The bound of a chain that may draw any symbol."""

    def elbo(self, *arguments: Any, admitted: Tensor | None = None, **options: Any) -> Tensor:
        del admitted
        return super().elbo(*arguments, **options)


class MissingPrior(Absorbing):
    def prior_term(self, x0: Tensor, *, admitted: Tensor | None = None) -> Tensor:
        return torch.zeros(x0.shape, dtype=torch.float64) - 1


class LeavesMasks(Absorbing):
    def draw_previous(self, logits: Any, xt: Tensor, t: int, s: int, uniform: Tensor, **options: Any) -> Tensor:
        return torch.where(uniform[0] < 0.1, xt, super().draw_previous(logits, xt, t, s, uniform, **options))


class ReadsItsOwnPrediction(Multinomial):
    """Takes a leave-one-out prediction for the denoiser."""

    def clean_logits(self, logits: Any, xt: Tensor, t: Any, *, admitted: Tensor | None = None) -> Any:
        return logits


class AnyTime(Absorbing):
    def times(self, t: Any, like: Tensor | None, first: int, name: str = "t") -> Tensor:
        return super().times(torch.as_tensor(t).clamp(0, self.num_timesteps), like, 0, name)


class OneJump(Process):
    """Each token takes noise once and keeps it, so that x_t depends on more than x_{t-1}; it has no bound."""

    kind = "one_jump"
    markov = False

    @property
    def input_symbols(self) -> int:
        return self.num_symbols

    def marginal(self, x0: Tensor, t: Any, *, admitted: Tensor | None = None) -> Tensor:
        alpha, x0 = torch.broadcast_tensors(self.alpha[self.times(t, x0, first=0)], x0)
        point = torch.nn.functional.one_hot(x0, self.num_symbols)
        return alpha[..., None] * point + (1 - alpha)[..., None] * self.prior(admitted=admitted)

    def prior(self, *, admitted: Tensor | None = None) -> Tensor:
        weight = torch.ones(self.num_symbols) if admitted is None else admitted
        return weight.double() / weight.sum(-1, keepdim=True)

    def pure_noise(self, uniform: Tensor, *, admitted: Tensor | None = None) -> Tensor:
        return admitted_uniform(admitted, self.num_symbols, uniform)

    def jump(self, t: Any, s: Any) -> Tensor:
        return (self.alpha[s] - self.alpha[t]) / (1 - self.alpha[t])

    def reverse(self, logits: Any, xt: Tensor, t: Any, s: Any, *, admitted: Tensor | None = None) -> Tensor:
        f = log_probabilities(logits, self.num_symbols, admitted).exp()
        jump = self.jump(t, s)
        return jump * f + (1 - jump) * torch.nn.functional.one_hot(xt, self.num_symbols)

    def draw_previous(self, logits: Any, xt: Tensor, t: int, s: int, uniform: Tensor, **options: Any) -> Tensor:
        coin, symbol = uniform
        jumps = coin < self.jump(t, s)
        return torch.where(jumps, draw_tokens(logits, symbol, jumps), xt)


class BoundedOneJump(OneJump):
    """The same with its bound: the divergence of (1-r) d(x_t) + r d(x_0) from (1-r) d(x_t) + r f."""

    scale = 1.0

    def elbo_term(self, logits: Any, xt: Tensor, x0: Tensor, t: Any, *, admitted: Tensor | None = None) -> Tensor:
        f = log_probabilities(logits, self.num_symbols, admitted).exp()
        r = self.jump(t, t - 1)
        r = r[:, None].expand(xt.shape) if r.ndim else r.expand(xt.shape)
        at_xt, at_x0 = (f.gather(-1, ids[..., None])[..., 0] for ids in (xt, x0))
        stays = 1 - r + r * at_xt
        moved = torch.xlogy(r, 1 / at_x0) + torch.xlogy(1 - r, (1 - r) / stays)
        return self.scale * torch.where(xt == x0, -stays.log(), moved)


class HalfBound(BoundedOneJump):
    scale = 0.5


def test_a_process_that_is_not_a_chain_needs_no_chain_quantities() -> None:
    process = OneJump(4, 6)
    check_process(process)
    for missing in (lambda: process.transition(1), lambda: process.posterior(torch.zeros(1), torch.zeros(1), 2, 1)):
        with pytest.raises(NotImplementedError, match="process 'one_jump' has no"):
            missing()
    tokens = torch.zeros(3, 2).long()
    windows = SimpleNamespace(tokens=tokens, frozen=tokens > 0, target=tokens == 0)
    assert process.elbo(lambda xt, t: torch.zeros(3, 2, 4), windows).isnan().all()


def test_a_bound_is_checked_wherever_there_is_one() -> None:
    check_process(BoundedOneJump(4, 6))
    with pytest.raises(AssertionError, match="bound not below"):
        check_process(HalfBound(4, 6))


class ChainWithoutBound(Absorbing):
    """A Markov chain must have the bound that its quantities give."""

    elbo_term = Process.elbo_term


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (ChainWithoutBound, "bound's term"),
        (LateMarginal, "product of one-step matrices"),
        (WrongPosterior, "Bayes"),
        (UnnormalisedKernel, "reverse kernel .* sums to 1"),
        (lambda *a: WrongKernel(*a, prediction_type="leave_one_out"), "clean prediction"),
        (NoisyFrozen, "leaves frozen tokens"),
        (AnySymbol, "admitted symbols"),
        (TooLittleNoise, "frequencies"),
        (OwnSeed, "same for the same generator"),
        (lambda *a: ReciprocalBound(4, 8, "cosine_squared"), "bound not below"),
        (BiasedElbo, "elbo is unbiased"),
        (WideElbo, "elbo is unbiased within admitted sets"),
        (MissingPrior, "bound not below"),
        (LeavesMasks, "frequencies|no noise state"),
        (lambda *a: ReadsItsOwnPrediction(*a, prediction_type="leave_one_out"), "is the clean prediction"),
        (AnyTime, "must be a ValueError"),
    ],
)
def test_broken_laws_are_found(make: Callable[..., Process], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_process(make(4, 8, "linear"))
