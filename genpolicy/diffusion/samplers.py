"""Samplers: how a prediction of the clean tokens takes noised tokens from time t to the earlier time s.

They are diffusers schedulers (``SchedulerMixin``, ``ConfigMixin``): ``set_timesteps``, ``timesteps``, ``step``,
``save_pretrained``. Nothing lives on the object but its configuration and its grid; masks are per row.

Frozen tokens never change, only admitted symbols are produced, and at s = 0 no mask is left. Tokens that are not frozen
are the sampler's to decide; counts below count those alone, row by row.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor

from genpolicy.diffusion.logits import Denoiser, TypedLogits
from genpolicy.diffusion.process import Process, require_known
from genpolicy.diffusion.random import Generators
from genpolicy.diffusion.ranking import (
    RATES,
    SCORES,
    AdmittedParts,
    confidence,
    draw_symbols,
    least_sure,
    likeliest_symbols,
    num_noised,
    tempered,
)
from genpolicy.diffusion.remasking_sampler import RemaskingSampler as RemaskingSampler
from genpolicy.diffusion.sampler_base import Sampler as Sampler
from genpolicy.diffusion.sampler_base import SamplerOutput as SamplerOutput
from genpolicy.diffusion.sampler_base import Step
from genpolicy.errors import ConfigError, did_you_mean


class AncestralSampler(Sampler):
    """Draws x_s from the model's own reverse kernel, token by token (Austin et al. 2021, arXiv:2107.03006)."""

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(self, process: dict[str, Any] | None = None, temperature: float = 1.0) -> None:
        self._set_up(temperature)

    def _advance(self, step: Step) -> SamplerOutput:
        xt, frozen = step.xt, step.frozen
        logits = tempered(step.logits, self.config.temperature)
        drawn = self.process.draw_previous(logits, xt, step.t, step.s, step.draws(2), admitted=step.admitted)
        prev = torch.where(frozen, xt, drawn)
        likeliest = likeliest_symbols(step.clean)
        # What the step did reveal is what it imagined; the rest is the likeliest guess.
        open_before, open_now = self.process.undecided(xt), self.process.undecided(prev)
        sampled = torch.where(frozen | ~open_before, xt, torch.where(open_now, likeliest, prev))
        scores = confidence(step.clean, sampled, "log_prob")
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=scores)


class EasyFirstSampler(Sampler):
    """Keeps the surest tokens and returns the others to noise (Ye et al. 2025, arXiv:2502.19805).

    After a step to s, floor(n s/T) of a row's n undecided-at-first tokens are noise again (``linear``), or
    floor(n cos(pi/2 (1 - s/T))) (``cosine``), or as evenly as whole numbers go (``even``). Of tied tokens the earlier
    ones are kept.

    Args:
        process: ``Process.config()``.
        commit: False: all tokens compete anew at every step, so one that was decided can return to noise, as in the
            paper. True: what is decided stays.
        rate: ``linear``, ``cosine`` or ``even``.
        score: ``log_prob`` of the symbol held; ``entropy``, negative; ``margin`` of the two likeliest symbols'
            probabilities.
        temperature: 0 takes the likeliest symbol, else symbols are drawn.
        noise: c of the Gumbel noise c s/T on the ranking alone (0.5 in the paper's released ``stochastic0.5``).

    Raises:
        ConfigError: an option out of range.
    """

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self,
        process: dict[str, Any] | None = None,
        commit: bool = False,
        rate: str = "linear",
        score: str = "log_prob",
        temperature: float = 0.0,
        noise: float = 0.0,
    ) -> None:
        self._set_up_ranking(rate, score, temperature, noise)

    def _set_up_ranking(self, rate: str, score: str, temperature: float, noise: float) -> None:
        require_known("rate", rate, RATES)
        require_known("score", score, SCORES)
        if not 0 <= noise < math.inf:
            raise ConfigError(f"noise must be 0 (deterministic ranking) or above, got {noise}")
        self._set_up(temperature)

    def adopt(self, process: Process) -> None:
        """Undo the noise of ``process``.

        Raises:
            ConfigError: what is decided must stay, but noise cannot be told from data.
        """
        if self._keeps_decisions and not process.noise_is_visible:
            raise ConfigError(
                f"{type(self).__name__} keeps what is decided, but the noise of process {process.kind!r} looks like "
                "data; take easy_first with commit=False, or ancestral"
            )
        super().adopt(process)

    @property
    def _keeps_decisions(self) -> bool:
        return bool(self.config.commit)

    def _advance(self, step: Step) -> SamplerOutput:
        config, clean, xt, frozen = self.config, step.clean, step.xt, step.frozen
        symbol, ranking, noise = step.draws(3)
        undecided = self.process.undecided(xt) & ~frozen
        drawn = draw_symbols(clean, symbol, undecided, config.temperature)
        sampled = torch.where(undecided, drawn, xt)
        scores = confidence(clean, sampled, config.score)
        rank_by = scores
        if config.noise > 0:
            gumbel = -torch.log(-torch.log(ranking.clamp(min=torch.finfo(torch.float64).tiny)))
            rank_by = scores + config.noise * step.s / self.process.num_timesteps * gumbel
        if config.commit:
            rank_by = rank_by.masked_fill(~undecided & ~frozen, math.inf)
        again = self._noise_again(rank_by, frozen, step.s)
        if config.commit:
            again = again & undecided
        prev = torch.where(again, self.process.pure_noise(noise, admitted=step.admitted), sampled)
        return SamplerOutput(prev_sample=prev, sampled=sampled, scores=scores)

    def _noise_again(self, rank_by: Tensor, frozen: Tensor, s: int) -> Tensor:
        num = (~frozen).sum(1)
        return least_sure(rank_by, frozen, num_noised(num, s, self.process.num_timesteps, self.config.rate))


class A0LastSampler(EasyFirstSampler):
    """Easy-first, but some tokens (the first action) stay masked until everything else is decided.

    The last network call then decides them with the whole imagined future visible. The others' counts run to 0 at the
    grid's last time above 0, instead of at 0.

    Args:
        process: ``Process.config()``, an absorbing one.
        last: Places in the sequence that are decided last.
        commit: As in ``EasyFirstSampler``; so are the others.
        rate: ``linear``, ``cosine`` or ``even``.
        score: ``log_prob``, ``entropy`` or ``margin``.
        temperature: 0 takes the likeliest symbol.
        noise: Scale of the ranking noise.

    Raises:
        ConfigError: no place given, or an option out of range.
    """

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self,
        process: dict[str, Any] | None = None,
        last: Sequence[int] = (),
        commit: bool = False,
        rate: str = "linear",
        score: str = "log_prob",
        temperature: float = 0.0,
        noise: float = 0.0,
    ) -> None:
        if not last:
            raise ConfigError("a0_last needs the places to decide last, e.g. last=[layout.first_action]")
        self._set_up_ranking(rate, score, temperature, noise)

    @property
    def _keeps_decisions(self) -> bool:
        return True

    def _noise_again(self, rank_by: Tensor, frozen: Tensor, s: int) -> Tensor:
        if s == 0:
            return torch.zeros_like(frozen)
        postponed = torch.zeros_like(frozen)
        postponed[:, list(self.config.last)] = True
        postponed &= ~frozen
        others = frozen | postponed
        # The last call belongs to the postponed tokens: everything else must be done when it begins.
        end = int(self.timesteps[-2])
        num = (~others).sum(1)
        count = num_noised(num, max(s - end, 0), self.process.num_timesteps - end, self.config.rate)
        return least_sure(rank_by, others, count) | postponed


class OneCallSampler(Sampler):
    """Decides every token by one network call, from T straight to 0.

    At the all-noise state the network is the marginal of each token, so this is the baseline of every sampler that
    takes more calls.

    Args:
        process: ``Process.config()``.
        score: ``log_prob``, ``entropy`` or ``margin``; reported only.
        temperature: 0 takes the likeliest symbol, else symbols are drawn.

    Raises:
        ConfigError: an option out of range.
    """

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self, process: dict[str, Any] | None = None, score: str = "log_prob", temperature: float = 0.0
    ) -> None:
        require_known("score", score, SCORES)
        self._set_up(temperature)

    def set_timesteps(self, num_steps: int | None = None) -> None:
        """Lay the grid, which is T, 0 whatever ``num_steps`` is.

        Raises:
            ValueError: not 1..T.
        """
        super().set_timesteps(num_steps)
        super().set_timesteps(1)

    def _advance(self, step: Step) -> SamplerOutput:
        if step.s != 0:
            raise ValueError(f"one_call goes straight to time 0, got a step from {step.t} to {step.s}")
        (symbol,) = step.draws(1)
        undecided = self.process.undecided(step.xt) & ~step.frozen
        sampled = torch.where(undecided, draw_symbols(step.clean, symbol, undecided, self.config.temperature), step.xt)
        scores = confidence(step.clean, sampled, self.config.score)
        return SamplerOutput(prev_sample=sampled, sampled=sampled, scores=scores)


SAMPLERS: dict[str, type[Sampler]] = {
    "ancestral": AncestralSampler,
    "easy_first": EasyFirstSampler,
    "easy_first_commit": EasyFirstSampler,
    "stochastic": EasyFirstSampler,
    "a0_last": A0LastSampler,
    "one_call": OneCallSampler,
    "remasking": RemaskingSampler,
}
"""Samplers by name; ``PRESETS`` holds what a name sets."""

PRESETS: dict[str, dict[str, Any]] = {"easy_first_commit": {"commit": True}, "stochastic": {"noise": 0.5}}


def make_sampler(name: str, process: Process, **options: Any) -> Sampler:
    """A sampler of a process by its name, its grid laid with T steps.

    Raises:
        ConfigError: no such sampler or option (with the near one), or an option out of range.
    """
    if name not in SAMPLERS:
        hint = did_you_mean(name, SAMPLERS)
        raise ConfigError(f"sampler {name!r} does not exist.{hint} There are: {', '.join(SAMPLERS)}")
    known = [p for p in inspect.signature(SAMPLERS[name].__init__).parameters if p not in ("self", "process")]
    # diffusers takes any keyword and drops what it does not know.
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"sampler {name!r} has no option {key!r}.{hint} It has: {', '.join(known)}")
    sampler = SAMPLERS[name](process=process.config(), **{**PRESETS.get(name, {}), **options})
    sampler.adopt(process)
    return sampler


@torch.no_grad()
def sample(
    model: Denoiser,
    process: Process,
    sampler: Sampler,
    xT: Tensor,
    frozen: Tensor,
    *,
    admitted: Tensor | None = None,
    generator: Generators = None,
    num_steps: int | None = None,
    callback: Callable[[int, Tensor, SamplerOutput], None] | None = None,
) -> Tensor:
    """Clean tokens [B, N]: one network call and one sampler step from each time of the grid to the next.

    Args:
        model: Predicts x_0.
        process: As the sampler's.
        sampler: From ``make_sampler``.
        xT: [B, N] frozen tokens and pure noise (``process.prior_sample``).
        frozen: [B, N] bool.
        admitted: [N, K] or [B, N, K] bool.
        generator: One stream, or one for each row.
        num_steps: Network calls, 1..T; None means T.
        callback: Called after each step with its t, the tokens before it, and its output.

    Raises:
        ValueError: ``num_steps`` out of range, or a process other than the sampler's.
    """
    if (process.kind, process.num_symbols, process.num_timesteps) != (
        sampler.process.kind,
        sampler.process.num_symbols,
        sampler.process.num_timesteps,
    ):
        raise ValueError(f"the sampler was made for {sampler.process.config()}, not for {process.config()}")
    sampler.set_timesteps(num_steps)
    parts = AdmittedParts(admitted) if admitted is not None and admitted.ndim == 2 else TypedLogits.of
    xt = xT
    grid = sampler.timesteps.tolist()
    for t, s in itertools.pairwise(grid):
        times = torch.full((xt.shape[0],), t, device=xt.device)
        out = sampler.step(parts(model(xt, times)), t, s, xt, frozen=frozen, admitted=admitted, generator=generator)
        if callback is not None:
            callback(t, xt, out)
        xt = out.prev_sample
    return xt
