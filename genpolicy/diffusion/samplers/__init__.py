"""Samplers: how predictions of the clean tokens take noised tokens from time t to the earlier time s, step by step.

A sampler has the interface of a diffusers scheduler: ``config``, ``set_timesteps``, ``timesteps``, ``step``,
``save_pretrained``, ``from_pretrained``. It is not derived from one: diffusers imports torch's compiler, and that takes
as long as torch itself. A sampler keeps its configuration and its grid of times only. Every sampler guarantees:

- frozen tokens never change;
- only admitted symbols are produced;
- no noise is left at time 0;
- a row of the batch does not depend on the others.

Samplers are found by the entry-point group ``genpolicy.samplers``; ``docs/your-own-sampler.md`` shows how to add one.
"""

from genpolicy.diffusion.samplers.a0_last import A0LastSampler
from genpolicy.diffusion.samplers.ancestral import AncestralSampler
from genpolicy.diffusion.samplers.base import (
    Sampler,
    SamplerOutput,
    Step,
    make_sampler,
    sample,
    sample_steps,
    sampler_class,
)
from genpolicy.diffusion.samplers.by_ply import ByPlySampler
from genpolicy.diffusion.samplers.easy_first import EasyFirstCommitSampler, EasyFirstSampler, StochasticSampler
from genpolicy.diffusion.samplers.one_call import OneCallSampler
from genpolicy.diffusion.samplers.remasking import RemaskingSampler

__all__ = [
    "A0LastSampler",
    "AncestralSampler",
    "ByPlySampler",
    "EasyFirstCommitSampler",
    "EasyFirstSampler",
    "OneCallSampler",
    "RemaskingSampler",
    "Sampler",
    "SamplerOutput",
    "Step",
    "StochasticSampler",
    "make_sampler",
    "sample",
    "sample_steps",
    "sampler_class",
]
