"""The options of the image policy, apart from its class, so that they are read without importing torch."""

from __future__ import annotations

import math

from genpolicy.options import Declaration, Option, PolicySpec, with_defaults
from genpolicy.policies.declared import weights
from genpolicy_policy_image.config import CHOICES


def options(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """See ``Policy.options``. At temperature 0 it decides in one call, so no scheduler does."""
    learner = {} if spec is None else spec.section("learner")
    most = learner.get("num_timesteps")
    high = float(most) if isinstance(most, int) and most >= 1 else math.inf
    own = (
        Option(
            "temperature",
            float,
            low=0,
            usual_high=10,
            help="0 plays the likeliest move, above 0 draws one",
            label="Temperature",
            basic=True,
        ),
        Option(
            "scheduler",
            str,
            "ddpm",
            choices=CHOICES["scheduler"],
            help="how noise is removed",
            label="Sampler",
            basic=True,
            forwarded=True,
        ),
        Option(
            "num_steps",
            int,
            min(20, int(most or 20)),
            low=1,
            high=high,
            usual_high=1000,
            help="denoising steps, each a network call; fewer are faster and weaker",
            label="Steps",
            basic=True,
            forwarded=True,
        ),
        Option("matched", bool, True, help="sample with the training schedule"),
        Option("legal_mask", bool, True, help="restrict to legal moves", hidden=True),
    )
    configured = {} if spec is None else {**learner, **spec.section("play"), **spec.settings}
    return (*weights(spec), *with_defaults(own, configured))


IMAGE = Declaration(options)
