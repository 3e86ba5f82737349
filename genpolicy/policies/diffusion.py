"""DiffuSearch: imagine the future as tokens by discrete diffusion, and play its first move (Ye et al. 2025,
arXiv:2502.19805).

Axes: B batch, N tokens of a sequence.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from genpolicy import registry
from genpolicy.data.windows import Batch
from genpolicy.diffusion.process import Process
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.policies.base import Policy
from genpolicy.policies.neural import FirstAction, NetworkLearner, NetworkLearnerConfig, NetworkPolicy
from genpolicy.sequence import Layout

if TYPE_CHECKING:
    from genpolicy.diffusion import Sampler


@dataclass
class SamplerConfig:
    """How a diffusion policy fills in the future; what ``load_policy`` may be told otherwise."""

    name: str = "easy_first"
    """A sampler of ``genpolicy.diffusion``."""
    num_steps: int | None = None
    """Network calls of one decision, 1 to the process's timesteps; None is as many as it has timesteps."""
    temperature: float | None = None
    """Divides the logits of what is drawn; 0 takes the likeliest, None is the sampler's own default."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the sampler takes itself."""


@dataclass
class DiffusionConfig(NetworkLearnerConfig):
    """Options of ``DiffusionLearner``; the defaults are the paper's."""

    paradigm: str = "s-asa"
    """What is imagined; a key of ``genpolicy.sequence.PARADIGMS``."""
    horizon: int = 4
    """Plies imagined."""
    process: dict[str, Any] = field(default_factory=lambda: {"kind": "absorbing"})
    """``kind``: entry point in group ``genpolicy.processes``; the other keys are its own (``num_timesteps``,
    ``schedule``, ``weighting``, ``reduction``, ...)."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """How the policy plays where nothing else is asked."""


class DiffusionLearner(NetworkLearner):
    """Trains a network to restore noised futures.

    Args:
        game: The game.
        config: Its options.

    Raises:
        ConfigError: a process, a sampler or an option of theirs that does not exist.
    """

    Config: ClassVar[type[Any]] = DiffusionConfig
    options: DiffusionConfig

    def __init__(self, game: Game[Any], config: DiffusionConfig) -> None:
        layout = Layout(game, config.paradigm, config.horizon, admit_pad=config.train_pad)
        if all(slot.kind != "action" or slot.given for slot in layout.slots):
            raise ConfigError(f"learner.paradigm {config.paradigm!r} imagines no action, so nothing would be played")
        process = make_process(config.process, layout.num_symbols)
        super().__init__(game, config, layout, process.input_symbols)
        self.process = process

    @classmethod
    def make(cls, game: Game[Any], config: Any) -> DiffusionLearner:
        """The learner of some options."""
        return cls(game, config)

    def loss(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The process's loss at one random time a row."""
        return self.process.loss(self.network, batch, generator, admitted=self.admitted), {}

    @torch.no_grad()
    def elbo(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """[B] bound on -log p(future | position) in nats, one random time a row: unbiased, so average many."""
        return self.process.elbo(self.network, batch, generator, admitted=self.admitted)


def make_process(options: Mapping[str, Any], num_symbols: int) -> Process:
    """The process of a ``process:`` section.

    Args:
        options: ``kind`` and what the process takes itself.
        num_symbols: Of the layout.

    Raises:
        ConfigError: no ``kind``, or a key that the process does not take.
        RegistryError: no such process.
    """
    rest = dict(options)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigError(f"learner.process.kind must name one of: {', '.join(registry.available('processes'))}")
    factory = registry.load("processes", kind)
    known = {name: p for name, p in inspect.signature(factory).parameters.items() if name != "num_symbols"}
    for key, value in rest.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean: {near[0]!r}?" if near else ""
            raise ConfigError(f"key 'learner.process.{key}' does not exist.{hint} Keys here: kind, {', '.join(known)}")
        default = known[key].default
        whole = isinstance(default, float) and type(value) is int  # 1 is a number such as 1.0, too
        if isinstance(default, int | float | str) and type(value) is not type(default) and not whole:
            raise ConfigError(f"key 'learner.process.{key}' is a value such as {default!r}, got {value!r}")
    process = factory(num_symbols, **rest)
    if not isinstance(process, Process):
        raise ConfigError(f"process {kind!r} noises embeddings, not tokens: set learner.kind={kind}")
    return process


class DiffusionPolicy(NetworkPolicy):
    """A diffusion policy: it imagines the future by a sampler and plays its first action.

    Args:
        learner: Holds the weights and the process.
        sampler: A sampler of ``genpolicy.diffusion``; ``one_call`` decides by the marginal p(a_0 | s) alone. None takes
            what the learner's options say, as do the next two.
        num_steps: Network calls of a decision, 1 to the process's timesteps.
        temperature: Divides the logits of what is drawn; 0 takes the likeliest.
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
        seed: int = 0,
        legal_mask: bool = True,
        batch_size: int = 64,
        **options: Any,
    ) -> None:
        super().__init__(learner, seed=seed, legal_mask=legal_mask, batch_size=batch_size)
        preset = learner.options.sampler
        # Another sampler does not take the options of the configured one.
        same = sampler in (None, preset.name)
        self.sampling = SamplerConfig(
            name=preset.name if sampler is None else sampler,
            num_steps=preset.num_steps if num_steps is None else num_steps,
            temperature=(preset.temperature if same else None) if temperature is None else temperature,
            options={**(preset.options if same else {}), **options},
        )
        self._sampler = self._make_sampler()

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """What ``load_policy`` may be told besides ``device`` and ``game``."""
        own = ("sampler", "num_steps", "temperature", "rate", "score", "noise", "commit")
        return (*super().option_names(), *own)

    @property
    def num_calls(self) -> int:
        """Network calls of one decision."""
        return len(self._sampler.timesteps) - 1

    def modes(self) -> dict[str, Policy]:
        """The marginal by one call, which is every sampler's baseline, and the sampler as it is set."""
        if self.sampling.name == "one_call":
            return {"one_call": self}
        alone = self.with_options(sampler="one_call")
        return {"one_call": alone, f"{self.sampling.name} {self.num_calls}": self}

    @property
    def mask_only_filters(self) -> bool:
        """Whether it plays the likeliest move by one call."""
        return self.num_calls == 1 and not self._sampler.config.temperature

    def _options_with(self, changed: dict[str, Any]) -> dict[str, Any]:
        now: dict[str, Any] = {"num_steps": self.sampling.num_steps}
        if changed.get("sampler", self.sampling.name) == self.sampling.name:
            temperature = self.sampling.temperature
            now = {**now, **self.sampling.options, "sampler": self.sampling.name, "temperature": temperature}
        return {**self.own_options(), **now, **changed}

    def _imagine(self, network: FirstAction, tokens: Tensor, seeds: Sequence[int]) -> Tensor:
        from genpolicy.diffusion import sample

        process, admitted = self.learner.process, self.learner.admitted
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        frozen = torch.from_numpy(self.layout.given.copy()).to(tokens.device).expand_as(tokens)
        noise = process.prior_sample(tokens, frozen, admitted=admitted, generator=generators)
        return sample(
            network,
            process,
            self._sampler,
            noise,
            frozen,
            admitted=admitted,
            generator=generators,
            num_steps=self.sampling.num_steps,
        )

    def _make_sampler(self) -> Sampler:
        from genpolicy.diffusion import make_sampler

        own = dict(self.sampling.options)
        if self.sampling.temperature is not None:
            own["temperature"] = self.sampling.temperature
        if self.sampling.name == "a0_last":
            own.setdefault("last", [self.layout.first_action])
        sampler = make_sampler(self.sampling.name, self.learner.process, **own)
        sampler.set_timesteps(self.sampling.num_steps)
        return sampler

    def _saved_config(self) -> DiffusionConfig:
        return dataclasses.replace(self.learner.options, sampler=self.sampling)


DiffusionLearner.policy_class = DiffusionPolicy
