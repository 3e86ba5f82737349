"""Diffusion over discrete tokens.

- ``Process``, ``Absorbing``, ``Multinomial``: how clean tokens become noise, what is trained and what is reported;
  ``SCHEDULES``, ``get_schedule``, ``alpha_table``: how fast.
- ``Denoiser``: the network as processes and samplers see it. ``TypedLogits``, ``LogitGroup``: its predictions, in
  groups of tokens that hold the same symbols; ``token_nll``: their negative log-likelihood at some tokens.
- ``Sampler`` and its subclasses: the way from noise back to clean tokens. ``make_sampler`` makes one by its name,
  ``sample`` runs it; ``Step`` and ``SamplerOutput`` are what one of its steps is given and returns.
"""

from genpolicy.diffusion.absorbing import Absorbing
from genpolicy.diffusion.logits import Denoiser, LogitGroup, TypedLogits, token_nll
from genpolicy.diffusion.multinomial import Multinomial
from genpolicy.diffusion.process import Process
from genpolicy.diffusion.samplers import (
    A0LastSampler,
    AncestralSampler,
    EasyFirstSampler,
    OneCallSampler,
    RemaskingSampler,
    Sampler,
    SamplerOutput,
    Step,
    make_sampler,
    sample,
)
from genpolicy.diffusion.schedules import SCHEDULES, alpha_table, get_schedule

__all__ = [
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
    "Step",
    "TypedLogits",
    "alpha_table",
    "get_schedule",
    "make_sampler",
    "sample",
    "token_nll",
]
