"""Our processes keep the laws, and a process that breaks one is caught."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from genpolicy.diffusion import SCHEDULES, Absorbing, Multinomial, Process
from genpolicy.testing import check_process


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_timesteps", [1, 2, 20])
def test_absorbing_keeps_the_laws(schedule: str, num_timesteps: int) -> None:
    check_process(Absorbing(num_symbols=5, num_timesteps=num_timesteps, schedule=schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("prediction_type", ["denoiser", "leave_one_out"])
def test_multinomial_keeps_the_laws(schedule: str, prediction_type: str) -> None:
    check_process(Multinomial(num_symbols=5, num_timesteps=20, schedule=schedule, prediction_type=prediction_type))


OPTIONS: list[dict[str, Any]] = [
    *({"weighting": w} for w in ("constant", "reciprocal", "elbo")),
    *({"reduction": r} for r in ("mean", "batch")),
    *({"time_sampling": t} for t in ("uniform", "stratified", "beta")),
]


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


@pytest.mark.parametrize(
    ("make", "law"),
    [
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
        (MissingPrior, "bound not below"),
        (LeavesMasks, "frequencies|no noise state"),
        (lambda *a: ReadsItsOwnPrediction(*a, prediction_type="leave_one_out"), "is the clean prediction"),
        (AnyTime, "must be a ValueError"),
    ],
)
def test_broken_laws_are_found(make: Callable[..., Process], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_process(make(4, 8, "linear"))
