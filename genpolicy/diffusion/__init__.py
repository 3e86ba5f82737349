"""Diffusion over discrete tokens.

- ``Process``, ``Absorbing``, ``Multinomial``: how clean tokens become noise, what is trained and what is reported;
  ``SCHEDULES``, ``get_schedule``: how fast.
- ``Denoiser``: the network as processes and samplers see it. ``TypedLogits``, ``LogitGroup``: its predictions, in
  groups of tokens that hold the same symbols; ``token_nll``: their negative log-likelihood at some tokens.
- ``Sampler`` and its subclasses: the way from noise back to clean tokens. ``make_sampler`` makes one by its name,
  ``sample`` runs it; ``Step`` and ``SamplerOutput`` are what one of its steps is given and returns.
"""

from genpolicy.diffusion.absorbing import Absorbing as Absorbing
from genpolicy.diffusion.logits import Denoiser as Denoiser
from genpolicy.diffusion.logits import LogitGroup as LogitGroup
from genpolicy.diffusion.logits import TypedLogits as TypedLogits
from genpolicy.diffusion.logits import token_nll as token_nll
from genpolicy.diffusion.multinomial import Multinomial as Multinomial
from genpolicy.diffusion.process import Process as Process
from genpolicy.diffusion.samplers import A0LastSampler as A0LastSampler
from genpolicy.diffusion.samplers import AncestralSampler as AncestralSampler
from genpolicy.diffusion.samplers import EasyFirstSampler as EasyFirstSampler
from genpolicy.diffusion.samplers import OneCallSampler as OneCallSampler
from genpolicy.diffusion.samplers import RemaskingSampler as RemaskingSampler
from genpolicy.diffusion.samplers import Sampler as Sampler
from genpolicy.diffusion.samplers import SamplerOutput as SamplerOutput
from genpolicy.diffusion.samplers import Step as Step
from genpolicy.diffusion.samplers import make_sampler as make_sampler
from genpolicy.diffusion.samplers import sample as sample
from genpolicy.diffusion.schedules import SCHEDULES as SCHEDULES
from genpolicy.diffusion.schedules import get_schedule as get_schedule
