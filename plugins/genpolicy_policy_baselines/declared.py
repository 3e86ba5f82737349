"""The options of the baselines, apart from their classes, so that they are read without importing torch."""

from __future__ import annotations

from dataclasses import replace

from genpolicy.options import Declaration, Option, PolicySpec
from genpolicy.policies.declared import NETWORK, SEED_AND_BATCH, STEPS, TEMPERATURE, of_folder

SCHEDULERS = ("ddpm", "ddim", "dpmsolver++", "one_call")
"""Of the Gaussian policy; all but ``one_call`` are diffusers'."""
READOUTS = ("mean", "mode")


def one_step(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Options of the one-step and the direct policy."""
    return of_folder((*NETWORK, replace(TEMPERATURE, default=0.0)), spec)


def autoregressive(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Options of the autoregressive policy."""
    imagine = Option("imagine", bool, True, help="imagine the whole line, not only the move")
    return of_folder((*NETWORK, replace(TEMPERATURE, default=0.0), imagine), spec)


def values(spec: PolicySpec | None = None, *more: Option) -> tuple[Option, ...]:
    """Options of the policies that value states or moves."""
    own = (
        Option("readout", str, "mean", choices=READOUTS, help="how bins become a value"),
        replace(TEMPERATURE, default=0.0),
        Option(
            "prior_temperature",
            float,
            0.1,
            low=0,
            usual_low=0.01,
            usual_high=100,
            help="sharpens (below 1) or flattens the probabilities of moves",
        ),
    )
    seed, batch_size = SEED_AND_BATCH
    return of_folder((seed, replace(batch_size, default=16), *own, *more), spec)


def state_values(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Options of S-V."""
    said = "look one ply ahead at the leaves of a search, too"
    return values(spec, Option("lookahead", bool, True, help=said, hidden=True))


def gaussian(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Options of the Gaussian policy."""
    scheduler = Option(
        "scheduler",
        str,
        "ddpm",
        choices=SCHEDULERS,
        help="how noise is removed",
        label="Sampler",
        basic=True,
        forwarded=True,
    )
    return of_folder((*NETWORK, scheduler, replace(STEPS, high=1000)), spec)


ONE_STEP, AUTOREGRESSIVE = Declaration(one_step), Declaration(autoregressive)
VALUES, STATE_VALUES, GAUSSIAN = Declaration(values), Declaration(state_values), Declaration(gaussian)
