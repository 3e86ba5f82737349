"""Continuous diffusion: the future's embeddings are noised by Gaussians (the ablation of Ye et al. 2025, Table 5).

Sampled by diffusers' DDPM, DDIM and DPM-Solver++ schedulers, as they are.

Axes: B batch, N tokens of a sequence, E numbers of an embedding.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.diffusion.making import require_keys
from genpolicy.diffusion.ranking import likeliest_symbols
from genpolicy.errors import ConfigError, did_you_mean
from genpolicy.game import Game
from genpolicy.policies.base import Policy
from genpolicy.policies.dream import Recorder
from genpolicy.policies.first_action import FirstAction, Imagined
from genpolicy.policies.tokens import NetworkLearner, NetworkLearnerConfig, NetworkPolicy, acting_layout
from genpolicy.sequence import Layout
from genpolicy_policy_baselines import declared
from genpolicy_policy_baselines.continuous import EmbeddingTransformer
from genpolicy_policy_baselines.declared import SCHEDULERS
from genpolicy_policy_baselines.gaussian_embedding import GaussianEmbedding


@dataclass
class GaussianConfig(NetworkLearnerConfig):
    """Options of ``GaussianLearner``."""

    paradigm: str = "s-asa"
    """What is imagined; a key of ``genpolicy.sequence.PARADIGMS``."""
    horizon: int = 4
    """Plies imagined."""
    process: dict[str, Any] = field(default_factory=dict)
    """Options of ``GaussianEmbedding`` (``prediction``, ``schedule``, ``num_timesteps``, ``weighting``, ...)."""
    scheduler: str = "ddpm"
    """How the policy plays where nothing else is asked: ``ddpm``, ``ddim``, ``dpmsolver++`` or ``one_call``."""
    num_steps: int | None = None
    """Network calls of one decision; None is as many as the process has timesteps."""


class GaussianLearner(NetworkLearner):
    """Trains a network to restore noised embeddings of the future.

    Args:
        game: The game.
        config: Its options.

    Raises:
        ConfigError: an option of the process or a scheduler that does not exist, or a paradigm without an action.
    """

    Config: ClassVar[type[Any]] = GaussianConfig
    config: GaussianConfig
    network: EmbeddingTransformer

    def __init__(self, game: Game[Any], config: GaussianConfig) -> None:
        layout = acting_layout(game, config.paradigm, config.horizon, admit_pad=config.train_pad)
        require_scheduler(config.scheduler)
        super().__init__(game, config, layout)

    def make_network(self, layout: Layout, num_input_symbols: int | None) -> EmbeddingTransformer:
        """The trunk with the process's embeddings in it."""
        del num_input_symbols
        return EmbeddingTransformer(layout, self.config.network, make_embedding(self.config.process, layout))

    @property
    def process(self) -> GaussianEmbedding:
        """The noise, and the embeddings that it noises."""
        return self.network.process

    def loss(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The process's loss at one random time a row."""
        return self.process.loss(self.network.predict, batch, generator, admitted=self.admitted), {}

    @torch.no_grad()
    def elbo(self, batch: TokenBatch, generator: torch.Generator) -> Tensor:
        """[B] bound on -log p(future | position) in nats, one random time a row: unbiased, so average many."""
        return self.process.elbo(self.network.predict, batch, generator, admitted=self.admitted)


def make_embedding(options: dict[str, Any], layout: Layout) -> GaussianEmbedding:
    """The process of a ``process:`` section.

    Raises:
        ConfigError: a key or a value that it does not take.
    """
    given = {key: value for key, value in options.items() if key != "kind"}
    if options.get("kind", GaussianEmbedding.kind) != GaussianEmbedding.kind:
        raise ConfigError(
            f"learner.process.kind {options['kind']!r} noises tokens, not embeddings: set learner.kind=diffusion"
        )
    require_keys(given, GaussianEmbedding)
    return GaussianEmbedding(layout.num_symbols, **given)


def require_scheduler(name: str) -> None:
    """Check a scheduler's name.

    Raises:
        ConfigError: there is none of it.
    """
    if name not in SCHEDULERS:
        hint = did_you_mean(name, SCHEDULERS)
        raise ConfigError(f"scheduler {name!r} does not exist.{hint} There are: {', '.join(SCHEDULERS)}")


def make_scheduler(name: str, process: GaussianEmbedding, num_train_timesteps: int = 1000) -> Any:
    """diffusers' scheduler over the process's schedule; its timestep i is the time (i + 1) / num_train_timesteps.

    Raises:
        ConfigError: no such scheduler.
    """
    from diffusers import DDPMScheduler, DPMSolverMultistepScheduler

    require_scheduler(name)
    with torch.no_grad():
        times = torch.arange(num_train_timesteps + 1, dtype=torch.float64, device=process.embeddings().device)
        gamma = process.gamma((times / num_train_timesteps).to(process.embeddings().dtype)).double()
        left = torch.sigmoid(-gamma).cpu()  # alpha_t^2
    # Its first beta takes the noise of t = 0 along, so that its cumulated product is alpha_t^2 itself.
    betas = torch.cat([1 - left[1:2], 1 - left[2:] / left[1:-1]])
    common: dict[str, Any] = {
        "num_train_timesteps": num_train_timesteps,
        "trained_betas": betas.numpy(),
        "prediction_type": "sample" if process.prediction == "x0_ce" else "epsilon",
        "timestep_spacing": "trailing",
    }
    if name == "ddpm":
        return DDPMScheduler(**common, clip_sample=False)
    # DDIM is DPM-Solver++ of first order (Lu et al. 2022, arXiv:2211.01095). diffusers' own takes a step of
    # num_train_timesteps // num_steps wherever the next timestep lies, so that z would have the noise of another time
    # than the network is told.
    return DPMSolverMultistepScheduler(
        **common,
        solver_order=1 if name == "ddim" else 2,
        algorithm_type="dpmsolver++",
        final_sigmas_type="zero",
    )


class GaussianPolicy(NetworkPolicy):
    """Imagines the future's embeddings with a diffusers scheduler and plays the first action.

    Args:
        learner: Holds the weights and the process.
        scheduler: ``ddpm``, ``ddim``, ``dpmsolver++``, or ``one_call``: what one call predicts from pure noise.
        num_steps: Network calls of a decision.
        options: Arguments of ``NetworkPolicy``.

    Raises:
        ConfigError: no such scheduler.
        ValueError: an option out of range.
    """

    kind: ClassVar[str] = "gaussian"
    declaration = declared.GAUSSIAN
    learner_class: ClassVar[type[NetworkLearner]] = GaussianLearner
    learner: GaussianLearner

    def __init__(
        self, learner: GaussianLearner, *, scheduler: str | None = None, num_steps: int | None = None, **options: Any
    ) -> None:
        super().__init__(learner, **options)
        self.scheduler = learner.config.scheduler if scheduler is None else scheduler
        require_scheduler(self.scheduler)
        steps = learner.config.num_steps if num_steps is None else num_steps
        steps = learner.process.num_timesteps if steps is None else steps
        if not 1 <= steps <= 1000:
            raise ValueError(f"num_steps must be 1..1000, got {steps}")
        self.num_steps = steps

    def own_options(self) -> dict[str, Any]:
        """The constructor's options as they are."""
        return {**super().own_options(), "scheduler": self.scheduler, "num_steps": self.num_steps}

    def modes(self) -> dict[str, Policy]:
        """What one call predicts from pure noise, and the sampler as it is set."""
        if self.scheduler == "one_call":
            return {"one_call": self}
        return {"one_call": self.with_options(scheduler="one_call"), f"{self.scheduler} {self.num_steps}": self}

    @property
    def num_calls(self) -> int:
        """Network calls of one decision."""
        return 1 if self.scheduler == "one_call" else self.num_steps

    def with_effort(self, *, calls: int | None = None, plies: int | None = None) -> Policy:
        """See ``Policy.with_effort``."""
        if calls == 1:
            return self.modes()["one_call"]
        return self if calls is None else self.with_options(num_steps=min(calls, 1000))

    @property
    def mask_only_filters(self) -> bool:
        """Whether it plays the likeliest move by one call."""
        return self.scheduler == "one_call"

    def _imagine(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        process, admitted = self.learner.process, self.learner.admitted
        z = process.prior_sample((tokens.shape[0], tokens.shape[1]), generators).to(tokens.device)
        one_call = self.scheduler == "one_call"
        scheduler = make_scheduler("ddpm" if one_call else self.scheduler, process)
        scheduler.set_timesteps(1 if one_call else self.num_steps)
        takes_generator = "generator" in inspect.signature(scheduler.step).parameters
        more = {"generator": generators} if takes_generator else {}

        def read(logits: TypedLogits) -> Tensor:
            return torch.where(tokens == self.layout.mask, likeliest_symbols(logits), tokens)

        first_call, likeliest, latest = None, tokens, torch.empty(0)
        for left, timestep in zip(reversed(range(len(scheduler.timesteps))), scheduler.timesteps, strict=True):
            t = torch.full((len(tokens),), (float(timestep) + 1) / len(scheduler.betas)).to(z)
            output = self.learner.network.predict(tokens, t, z)
            prediction = output
            if isinstance(prediction, Tensor):  # of the noise
                prediction = process.read_out(process.estimate(prediction, z, t, admitted), t)
            first_call = first_call or first_action.first_call(prediction)
            masked = first_action.masked(prediction)
            logits, latest = masked.restrict(admitted), first_action.moves(masked)
            mean = output if isinstance(output, Tensor) else process.expected(logits)
            z = scheduler.step(mean, timestep, z, **more).prev_sample.to(z.dtype)
            likeliest = read(logits)
            if recorder is not None:
                recorder.note(left, likeliest, masked, latest)
        assert first_call is not None
        return Imagined(likeliest, first_call, latest, len(scheduler.timesteps))

    def _saved_config(self) -> GaussianConfig:
        return dataclasses.replace(self.learner.config, scheduler=self.scheduler, num_steps=self.num_steps)


GaussianLearner.policy_class = GaussianPolicy
