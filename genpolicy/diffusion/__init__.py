"""Diffusion over discrete tokens: schedules, processes, samplers. Samplers load diffusers, and only when asked for."""

from typing import TYPE_CHECKING, Any

from genpolicy.diffusion.absorbing import Absorbing
from genpolicy.diffusion.logits import Denoiser, LogitGroup, TypedLogits, token_nll
from genpolicy.diffusion.multinomial import Multinomial
from genpolicy.diffusion.process import Process
from genpolicy.diffusion.schedules import SCHEDULES, alpha_table, get_schedule

if TYPE_CHECKING:
    from genpolicy.diffusion.samplers import (
        SAMPLERS,
        A0LastSampler,
        AncestralSampler,
        EasyFirstSampler,
        OneCallSampler,
        RemaskingSampler,
        Sampler,
        SamplerOutput,
        make_sampler,
        sample,
    )

_OF_SAMPLERS = (
    "SAMPLERS",
    "A0LastSampler",
    "AncestralSampler",
    "EasyFirstSampler",
    "OneCallSampler",
    "RemaskingSampler",
    "Sampler",
    "SamplerOutput",
    "make_sampler",
    "sample",
)

__all__ = [
    "SAMPLERS",
    "SCHEDULES",
    "A0LastSampler",
    "Absorbing",
    "AncestralSampler",
    "Denoiser",
    "EasyFirstSampler",
    "LogitGroup",
    "Multinomial",
    "OneCallSampler",
    "Process",
    "RemaskingSampler",
    "Sampler",
    "SamplerOutput",
    "TypedLogits",
    "alpha_table",
    "get_schedule",
    "make_sampler",
    "sample",
    "token_nll",
]


def __getattr__(name: str) -> Any:
    if name in _OF_SAMPLERS:
        from genpolicy.diffusion import samplers

        return getattr(samplers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
