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

from genpolicy.diffusion.samplers.a0_last import A0LastSampler as A0LastSampler
from genpolicy.diffusion.samplers.ancestral import AncestralSampler as AncestralSampler
from genpolicy.diffusion.samplers.base import Sampler as Sampler
from genpolicy.diffusion.samplers.base import SamplerOutput as SamplerOutput
from genpolicy.diffusion.samplers.base import Step as Step
from genpolicy.diffusion.samplers.base import make_sampler as make_sampler
from genpolicy.diffusion.samplers.base import sample as sample
from genpolicy.diffusion.samplers.base import sample_steps as sample_steps
from genpolicy.diffusion.samplers.base import sampler_class as sampler_class
from genpolicy.diffusion.samplers.by_ply import ByPlySampler as ByPlySampler
from genpolicy.diffusion.samplers.easy_first import EasyFirstCommitSampler as EasyFirstCommitSampler
from genpolicy.diffusion.samplers.easy_first import EasyFirstSampler as EasyFirstSampler
from genpolicy.diffusion.samplers.easy_first import StochasticSampler as StochasticSampler
from genpolicy.diffusion.samplers.one_call import OneCallSampler as OneCallSampler
from genpolicy.diffusion.samplers.remasking import RemaskingSampler as RemaskingSampler
