"""DiffuSearch: imagine the future as tokens by discrete diffusion, and play its first move (Ye et al. 2025,
arXiv:2502.19805).

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from genpolicy import registry
from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.logits import Denoiser, TypedLogits
from genpolicy.diffusion.process import Process
from genpolicy.diffusion.random import uniforms
from genpolicy.diffusion.ranking import usable_logits
from genpolicy.errors import ConfigError, RegistryError, did_you_mean
from genpolicy.game import Game
from genpolicy.networks import DenoisingTransformer
from genpolicy.options import Option, PolicySpec
from genpolicy.policies import declared
from genpolicy.policies.base import Policy
from genpolicy.policies.dream import Recorder
from genpolicy.policies.tokens import (
    FirstAction,
    FirstCall,
    Imagined,
    NetworkLearner,
    NetworkLearnerConfig,
    NetworkPolicy,
    acting_layout,
)
from genpolicy.sequence import Layout, Slot

if TYPE_CHECKING:
    from genpolicy.diffusion import Sampler


@dataclass
class SamplerConfig:
    """How a diffusion policy fills in the future; ``load_policy`` accepts other values."""

    name: str = "easy_first"
    """A sampler of ``genpolicy.diffusion``."""
    num_steps: int | None = None
    """Network calls of one decision, 1 to the process's timesteps; None is as many as it has timesteps."""
    temperature: float | None = None
    """Divides the logits of what is drawn; 0 takes the likeliest, None is the sampler's own default."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the sampler takes itself."""
    num_futures: int = 1
    """Futures imagined for one decision; above 1 the move is the likeliest of the mean of p(a_0 | s, future)."""
    horizon: int | None = None
    """Plies imagined, where the model was trained for several horizons; None is the learner's own."""


@dataclass
class DiffusionConfig(NetworkLearnerConfig):
    """Options of ``DiffusionLearner``; the defaults are the paper's."""

    paradigm: str = "s-asa"
    """What is imagined; a key of ``genpolicy.sequence.PARADIGMS``."""
    horizon: int = 4
    """Plies imagined."""
    horizons: list[int] = field(default_factory=list)
    """Where given, one model for several horizons: every batch is seen with one of these, drawn at random, and all
    plies after it are hidden (Ye et al. 2025, Table 6). ``horizon`` is then the longest that a policy can
    imagine; with rotary positions it may be longer than all of these."""
    process: dict[str, Any] = field(default_factory=lambda: {"kind": "absorbing"})
    """``kind``: entry point in group ``genpolicy.processes``; the other keys are its own (``num_timesteps``,
    ``schedule``, ``weighting``, ``reduction``, ...)."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """How the policy plays by default."""


class DiffusionLearner(NetworkLearner):
    """Trains a network to restore noised futures.

    Args:
        game: The game.
        config: Its options.

    Raises:
        ConfigError: a process, a sampler or an option of theirs that does not exist.
    """

    Config: ClassVar[type[Any]] = DiffusionConfig
    config: DiffusionConfig

    def __init__(self, game: Game[Any], config: DiffusionConfig) -> None:
        layout = acting_layout(game, config.paradigm, config.horizon, admit_pad=config.train_pad)
        process = make_process(config.process, layout.num_symbols)
        super().__init__(game, config, layout, process.input_symbols)
        self.process = process
        for horizon in config.horizons:
            self.end_of(horizon)

    def loss(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The process's loss at one random time a row, and with one random horizon where there are several."""
        model: Denoiser = self.network
        if self.config.horizons:
            (drawn,) = uniforms(1, (1,), generator, batch.tokens.device)
            end = self.end_of(self.config.horizons[int(float(drawn) * len(self.config.horizons))])
            batch, model = self._cut(batch, end), Within(self.network, self.visible_until(end))
        return self.process.loss(model, batch, generator, admitted=self.admitted), {}

    def end_of(self, horizon: int) -> int:
        """Number of tokens of a sequence with this many plies imagined.

        Raises:
            ConfigError: none, or more than the layout holds.
        """
        if not 1 <= horizon <= self.config.horizon:
            raise ConfigError(f"a horizon of this model is 1..{self.config.horizon} (learner.horizon), got {horizon}")
        return Layout(self.game, self.config.paradigm, horizon, tokenizer=self.layout.tokenizer).length

    def visible_until(self, end: int) -> Tensor | None:
        """[N, N] bool, what tokens attend to where the sequence has ``end`` tokens; None where that is all."""
        if end == self.layout.length:
            return None
        seen = torch.arange(self.layout.length, device=self.admitted.device) < end
        # What is hidden sees itself: a token that attends to nothing has no features.
        return seen[None, :] | torch.eye(self.layout.length, dtype=torch.bool, device=seen.device)

    def _cut(self, batch: TokenBatch, end: int) -> TokenBatch:
        hidden = torch.arange(self.layout.length, device=batch.tokens.device) >= end
        tokens = batch.tokens.masked_fill(hidden, self.layout.mask)
        return dataclasses.replace(batch, tokens=tokens, target=batch.target & ~hidden)

    @torch.no_grad()
    def elbo(self, batch: TokenBatch, generator: torch.Generator) -> Tensor:
        """[B] bound on -log p(future | position) in nats, one random time a row: unbiased, so average many."""
        return self.process.elbo(self.network, batch, generator, admitted=self.admitted)


class Within:
    """A denoiser in which tokens see only some of the others."""

    def __init__(self, network: DenoisingTransformer, visible: Tensor | None) -> None:
        self._network, self._visible = network, visible

    def __call__(self, tokens: Tensor, t: Tensor) -> TypedLogits:
        """Logits of x_0 for noised tokens [B, N] at times [B]."""
        logits: TypedLogits = self._network(tokens, t, self._visible)
        return logits

    def token_nll(self, tokens: Tensor, t: Tensor, targets: Tensor, where: Tensor) -> Tensor:
        """-log p(targets) in nats at the tokens of ``where``, flat in row-major order."""
        return self._network.token_nll(tokens, t, targets, where, self._visible)


def make_process(options: Mapping[str, Any], num_symbols: int) -> Process:
    """The process of a ``process:`` section.

    Args:
        options: ``kind`` and what the process takes itself.
        num_symbols: Number of symbols of the layout.

    Raises:
        ConfigError: no ``kind``, or a key that the process does not take.
        RegistryError: no such process, or it is not a ``Process``.
    """
    rest = dict(options)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigError(f"learner.process.kind must name one of: {', '.join(registry.available('processes'))}")
    factory = registry.load("processes", kind)
    known = {name: p for name, p in inspect.signature(factory).parameters.items() if name != "num_symbols"}
    for key, value in rest.items():
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"key 'learner.process.{key}' does not exist.{hint} Keys here: kind, {', '.join(known)}")
        default = known[key].default
        whole = isinstance(default, float) and type(value) is int  # 1 is a number such as 1.0, too
        if isinstance(default, int | float | str) and type(value) is not type(default) and not whole:
            raise ConfigError(f"key 'learner.process.{key}' is a value such as {default!r}, got {value!r}")
    process = factory(num_symbols, **rest)
    if not isinstance(process, Process):
        if kind not in registry.available("learners"):
            raise registry.wrong_thing("processes", kind, process, "a genpolicy.diffusion.Process")
        raise ConfigError(f"process {kind!r} noises embeddings, not tokens: set learner.kind={kind}")
    return process


class DiffusionPolicy(NetworkPolicy):
    """A diffusion policy: it imagines the future by a sampler and plays its first action.

    Args:
        learner: Holds the weights and the process.
        sampler: A sampler of ``genpolicy.diffusion``; ``one_call`` decides by the marginal p(a_0 | s) alone. None takes
            the learner's configured value, as for the next two.
        num_steps: Network calls of a decision, 1 to the process's timesteps.
        temperature: Divides the logits of what is drawn; 0 takes the likeliest.
        num_futures: Futures imagined; above 1 (sampler ``a0_last`` and a temperature) the move is the likeliest of the
            mean over them of p(a_0 | s, future), and the line is the future that gives it the highest probability.
        horizon: Plies imagined, at most the learner's.
        seed: Same seed, same game.
        legal_mask: See ``NetworkPolicy``.
        batch_size: Most positions in one network call.
        options: What the sampler takes itself (``rate``, ``score``, ``noise``, ``commit``).

    Raises:
        ConfigError: no such sampler or option of one.
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "diffusion"
    learner_class: ClassVar[type[NetworkLearner]] = DiffusionLearner
    learner: DiffusionLearner

    def __init__(
        self,
        learner: DiffusionLearner,
        *,
        sampler: str | None = None,
        num_steps: int | None = None,
        temperature: float | None = None,
        num_futures: int | None = None,
        horizon: int | None = None,
        seed: int = 0,
        legal_mask: bool = True,
        batch_size: int = 64,
        **options: Any,
    ) -> None:
        super().__init__(learner, seed=seed, legal_mask=legal_mask, batch_size=batch_size)
        preset = learner.config.sampler
        # Another sampler does not take the options of the configured one.
        same = sampler in (None, preset.name)
        self.sampling = SamplerConfig(
            name=preset.name if sampler is None else sampler,
            num_steps=preset.num_steps if num_steps is None else num_steps,
            temperature=(preset.temperature if same else None) if temperature is None else temperature,
            num_futures=(preset.num_futures if same else 1) if num_futures is None else num_futures,
            horizon=preset.horizon if horizon is None else horizon,
            options={**(preset.options if same else {}), **options},
        )
        self._end = learner.end_of(self.sampling.horizon or learner.config.horizon)
        self._sampler = self._make_sampler()
        self._require_futures()

    def _require_futures(self) -> None:
        number = self.sampling.num_futures
        if number < 1:
            raise ValueError(f"num_futures must be at least 1, got {number}")
        if number > 1 and not (self._sampler.decides_last and self._sampler.config.get("temperature")):
            from genpolicy.diffusion.samplers import sampler_class

            known = []
            for name in registry.available("samplers"):
                with contextlib.suppress(RegistryError):
                    known += [name] * sampler_class(name).decides_last
            raise ConfigError(
                f"num_futures={number} averages over futures that are drawn before the move is decided: take "
                f"sampler={' or '.join(known)} and a temperature above 0"
            )

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """See ``Policy.options``."""
        return declared.diffusion(spec)

    @property
    def num_calls(self) -> int:
        """Network calls of one decision, all futures of a position in one."""
        return len(self._sampler.timesteps) - 1

    def modes(self) -> dict[str, Policy]:
        """The marginal by one call, which is every sampler's baseline, and the sampler as it is set."""
        if self.sampling.name == "one_call":
            return {"one_call": self}
        alone = self.with_options(sampler="one_call")
        return {"one_call": alone, f"{self.sampling.name} {self.num_calls}": self}

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        """See ``Policy.with_effort``; one call is the marginal's move."""
        if calls == 1:
            return self.modes()["one_call"]
        changed: dict[str, int] = {}
        if calls is not None:
            changed["num_steps"] = min(calls, self.learner.process.num_timesteps)
        if plies is not None:
            changed["horizon"] = min(plies, self.learner.config.horizon)
        return self.with_options(**changed) if changed else self

    @property
    def mask_only_filters(self) -> bool:
        """Whether it plays the likeliest move by one call."""
        return self.num_calls == 1 and not self._sampler.config.temperature

    def _options_with(self, changed: dict[str, Any]) -> dict[str, Any]:
        now: dict[str, Any] = {"num_steps": self.sampling.num_steps, "horizon": self.sampling.horizon}
        if changed.get("sampler", self.sampling.name) == self.sampling.name:
            temperature = self.sampling.temperature
            now = {**now, **self.sampling.options, "sampler": self.sampling.name, "temperature": temperature}
            now["num_futures"] = self.sampling.num_futures
        return {**self.own_options(), **now, **changed}

    def _visible(self) -> Tensor | None:
        return self.learner.visible_until(self._end)

    def _imagined_slots(self) -> Sequence[Slot]:
        return [slot for slot in self.layout.slots if slot.stop <= self._end]

    def _shown_layout(self) -> Layout:
        if self._end == self.layout.length:
            return self.layout
        own, horizon = self.layout, self.sampling.horizon or 1
        return Layout(self.game, own.paradigm, horizon, admit_pad=own.admit_pad, tokenizer=own.tokenizer)

    def _imagine(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        """Fill in a batch of roots; where several futures are imagined, the move is their mean's likeliest."""
        number = self.sampling.num_futures
        if number == 1:
            return self._sampled(tokens, seeds, first_action, recorder)
        each = [seed + copy for seed in seeds for copy in range(number)]
        repeated = tokens.repeat_interleave(number, dim=0)
        many = self._sampled(repeated, each, first_action.repeated(number), recorder)
        chances = many.latest.exp().view(len(tokens), number, -1)
        move = chances.mean(1).argmax(-1)
        rows = torch.arange(len(tokens), device=tokens.device)
        likes_it_best = chances[rows, :, move].argmax(-1)
        chosen = many.tokens.view(len(tokens), number, -1)[rows, likes_it_best].clone()
        chosen[:, self.layout.first_action] = move + self.layout.move_offset
        if recorder is not None:  # of one position
            recorder.choose(int(likes_it_best[0]), int(chosen[0, self.layout.first_action]))
        first = FirstCall(many.first_call.marginal[::number], many.first_call.best[::number])
        return Imagined(chosen, first, many.latest[::number], many.num_calls)

    def _sampled(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        """As ``_imagine``, one future for each row."""
        from genpolicy.diffusion.samplers import sample_steps

        process, admitted = self.learner.process, self.learner.admitted
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        beyond = torch.arange(self.layout.length, device=tokens.device) >= self._end
        given = torch.from_numpy(self.layout.given.copy()).to(tokens.device)
        frozen = (given | beyond).expand_as(tokens)
        # What lies beyond the horizon is noise that stays: the network does not look there, but it must be symbols that
        # the network takes, and not every process has a mask.
        noise = process.prior_sample(tokens, given.expand_as(tokens), admitted=admitted, generator=generators)
        first_call, num_calls, step = None, 0, None
        for step in sample_steps(
            self._predict,
            process,
            self._sampler,
            noise,
            frozen,
            admitted=admitted,
            generator=generators,
            num_steps=self.sampling.num_steps,
            change=first_action.masked,
        ):
            first_call = first_call or first_action.first_call(step.prediction)
            num_calls += 1
            if recorder is not None:
                usable = usable_logits(step.logits, process.num_symbols, admitted)
                clean = process.clean_logits(usable, step.before, step.t, admitted=admitted)
                recorder.note(step.s, step.output.prev_sample, clean, first_action.moves(step.logits))
        assert step is not None
        assert first_call is not None
        return Imagined(step.output.prev_sample, first_call, first_action.moves(step.logits), num_calls)

    def _make_sampler(self) -> Sampler:
        from genpolicy.diffusion.samplers import make_sampler, sampler_class

        own = dict(self.sampling.options)
        if self.sampling.temperature is not None:
            own["temperature"] = self.sampling.temperature
        if sampler_class(self.sampling.name).decides_last:
            own.setdefault("last", [self.layout.first_action])
        sampler = make_sampler(self.sampling.name, self.learner.process, **own)
        sampler.set_timesteps(self.sampling.num_steps)
        return sampler

    def _saved_config(self) -> DiffusionConfig:
        return dataclasses.replace(self.learner.config, sampler=self.sampling)


DiffusionLearner.policy_class = DiffusionPolicy
