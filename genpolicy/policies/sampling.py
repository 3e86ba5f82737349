"""How a diffusion policy decides: the options of its sampler and of its search, and which of them go together."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from genpolicy import registry
from genpolicy.diffusion.samplers import Sampler, sampler_class
from genpolicy.errors import ConfigError, RegistryError
from genpolicy.policies import declared


@dataclass
class SamplerConfig:
    """How a diffusion policy fills in the future; ``load_policy`` accepts other values."""

    name: str = "easy_first"
    """A sampler of ``genpolicy.diffusion``; ``one_call`` decides by the marginal p(a_0 | s) alone."""
    num_steps: int | None = None
    """Network calls of one decision, 1 to the process's timesteps; None is as many as it has timesteps. ``by_ply``
    makes one more for each reply."""
    temperature: float | None = None
    """Divides the logits of what is drawn; 0 takes the likeliest, None is the sampler's own default."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the sampler takes itself."""
    num_futures: int = 1
    """Futures imagined for one decision; above 1 (sampler ``a0_last`` and a temperature) the move is the likeliest of
    the mean of p(a_0 | s, future), and the line is the future that gives it the highest probability."""
    candidates: int = 0
    """Moves whose imagined boards are judged (``genpolicy.policies.imagined``); 0 plays what the sampler says."""
    depth: int = 1
    """Imagined boards of each candidate's line."""
    weight: float = 32.0
    """Of a line's win probability, in nats of the candidate's log-probability."""
    horizon: int | None = None
    """Plies imagined, where the model was trained for several horizons; None is the learner's own."""


def require_possible(sampling: SamplerConfig, sampler: Sampler) -> None:
    """Check the options that the sampler, which was made of them, does not.

    Raises:
        ValueError: a number out of range.
        ConfigError: several futures where a search draws none, or where the sampler does not draw before the move.
    """
    for option in (declared.NUM_FUTURES, *declared.SEARCH):
        option.read(getattr(sampling, option.name))
    if sampling.num_futures == 1:
        return
    if sampling.candidates:
        raise ConfigError(
            f"num_futures={sampling.num_futures} averages over futures, and a search of "
            f"candidates={sampling.candidates} draws none: leave one of them out"
        )
    if not (sampler.decides_last and sampler.config.get("temperature")):
        known = []
        for name in registry.available("samplers"):
            with contextlib.suppress(RegistryError):
                known += [name] * sampler_class(name).decides_last
        raise ConfigError(
            f"num_futures={sampling.num_futures} averages over futures that are drawn before the move is "
            f"decided: take sampler={' or '.join(known)} and a temperature above 0"
        )
