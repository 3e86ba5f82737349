"""What samplers share: their grid, their arguments, their output. See ``genpolicy.diffusion.samplers``.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.configuration_utils import ConfigMixin
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from diffusers.utils import BaseOutput
from torch import Tensor

from genpolicy.diffusion.logits import TypedLogits
from genpolicy.diffusion.process import Process
from genpolicy.diffusion.random import Generators, uniforms
from genpolicy.diffusion.ranking import usable_logits
from genpolicy.errors import ConfigError


@dataclass
class SamplerOutput(BaseOutput):  # type: ignore[misc]  # diffusers is untyped
    """What one step says."""

    prev_sample: Tensor
    """[B, N] int64 tokens at time s."""
    sampled: Tensor
    """[B, N] int64 the clean tokens that the step imagined; decided and frozen tokens as they were."""
    scores: Tensor
    """[B, N] float64 confidence in ``sampled``, higher is surer; without ranking noise."""


@dataclass(frozen=True)
class Step:
    """The arguments of ``Sampler.step``, checked."""

    logits: TypedLogits
    clean: TypedLogits
    """Logits of p(x_0 | x_t), where ``logits`` may be something else."""
    t: int
    s: int
    xt: Tensor
    frozen: Tensor
    admitted: Tensor | None
    generator: Generators

    def draws(self, num: int) -> Tensor:
        """[num, B, N] float64 uniforms in [0, 1)."""
        return uniforms(num, tuple(self.xt.shape), self.generator, self.xt.device)


class Sampler(SchedulerMixin, ConfigMixin):  # type: ignore[misc]  # diffusers is untyped
    """What samplers share.

    Args:
        process: ``Process.config()``, or None until ``process`` is set.
        temperature: Divides the logits before a symbol is drawn; 0 takes the likeliest.

    Raises:
        ConfigError: an option out of range.
    """

    order = 1
    timesteps: Tensor
    """[n+1] int64 grid from T down to 0; step i goes from ``timesteps[i]`` to ``timesteps[i+1]``."""

    def _set_up(self, temperature: float) -> None:
        if not 0 <= temperature < math.inf:
            raise ConfigError(f"temperature must be 0 (likeliest symbol) or above, got {temperature}")
        self._process: Process | None = None
        if self.config.process is not None:
            self.set_timesteps(self.process.num_timesteps)

    @property
    def process(self) -> Process:
        """The process whose noise is undone.

        Raises:
            ConfigError: the sampler was made without one.
        """
        if self._process is None:
            if self.config.process is None:
                raise ConfigError("a sampler needs a process: make_sampler(name, process), or process=process.config()")
            self.adopt(process_of(dict(self.config.process)))
        assert self._process is not None
        return self._process

    def adopt(self, process: Process) -> None:
        """Undo the noise of ``process``, which ``config.process`` describes.

        Raises:
            ConfigError: the sampler cannot work with its noise.
        """
        self._process = process

    def set_timesteps(self, num_steps: int | None = None) -> None:
        """Lay the grid: ``num_steps`` network calls from T to 0, evenly spread and rounded.

        Raises:
            ValueError: not 1..T; None means T.
        """
        last = self.process.num_timesteps
        num = last if num_steps is None else num_steps
        if not 1 <= num <= last:
            raise ValueError(f"num_steps must be 1..{last} (the process's timesteps), got {num_steps}")
        # Integers throughout: points at least one apart stay apart when rounded half up.
        grid = [(2 * last * (num - i) + num) // (2 * num) for i in range(num + 1)]
        self.timesteps = torch.tensor(grid)
        self.num_inference_steps = num

    def step(
        self,
        logits: Tensor | TypedLogits,
        t: int,
        s: int,
        xt: Tensor,
        *,
        frozen: Tensor,
        admitted: Tensor | None = None,
        generator: Generators = None,
    ) -> SamplerOutput:
        """Tokens at time ``s`` from tokens at time ``t``.

        Args:
            logits: The network's prediction of x_0 at (xt, t).
            t: 1..T.
            s: 0..t-1.
            xt: [B, N] int64.
            frozen: [B, N] bool.
            admitted: [N, K] or [B, N, K] bool, the symbols that each token can hold.
            generator: One stream, or one for each row: then a row's result does not depend on the others.

        Raises:
            ValueError: a time out of range, or s not before t.
        """
        t, s = int(t), int(s)
        if not 0 <= s < t <= self.process.num_timesteps:
            raise ValueError(f"a step goes from t to s with 0 <= s < t <= {self.process.num_timesteps}, got {t} to {s}")
        typed = usable_logits(logits, self.process.num_symbols, admitted)
        clean = self.process.clean_logits(typed, xt, t, admitted=admitted)
        return self._advance(Step(typed, clean, t, s, xt, frozen, admitted, generator))

    def _advance(self, step: Step) -> SamplerOutput:
        raise TypeError(f"{type(self).__name__} is the common part; use one of genpolicy.diffusion.SAMPLERS")


def process_of(config: dict[str, Any]) -> Process:
    """The process that ``Process.config`` describes.

    Raises:
        RegistryError: no process of that kind is installed.
        ConfigError: an argument out of range.
    """
    from genpolicy import registry

    arguments = {key: value for key, value in config.items() if key != "kind"}
    made: Process = registry.load("processes", config["kind"])(**arguments)
    return made
