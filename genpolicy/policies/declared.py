"""The options of the policies over weights, in one place that imports no torch.

An engine names them to its GUI before it loads a network. Each list is the ``options`` of one policy class; entry
points of group ``genpolicy.options`` name the declarations. See ``genpolicy.options``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from genpolicy import registry
from genpolicy.declared_samplers import COMMIT, NEED_VISIBLE_NOISE
from genpolicy.errors import RegistryError
from genpolicy.options import Declaration, Option, PolicySpec, options_of, with_defaults

SEED = Option("seed", int, 0, usual_low=0, usual_high=2**31 - 1, help="same seed, same game", label="Seed", hidden=True)
SEED_AND_BATCH = (
    SEED,
    Option(
        "batch_size", int, 64, low=1, usual_high=4096, help="maximum number of positions per network call", hidden=True
    ),
)
NETWORK = (
    *SEED_AND_BATCH,
    Option("legal_mask", bool, True, help="restrict the first action to legal moves", hidden=True),
)
PRECISION = Option(
    "precision",
    str,
    "float32",
    choices=("float32", "bfloat16"),
    help="of the network's products; bfloat16 is faster where the processor has it, and some moves differ",
    fixed=True,
    hidden=True,
)
STEPS = Option(
    "num_steps",
    int,
    20,
    low=1,
    usual_high=1000,
    help="denoising steps, each a network call; fewer is faster and weaker",
    label="Steps",
    basic=True,
    forwarded=True,
)
TEMPERATURE = Option(
    "temperature",
    float,
    low=0,
    usual_high=10,
    help="0 plays the likeliest move; higher is more varied and weaker",
    label="Temperature",
    basic=True,
)


NUM_FUTURES = Option(
    "num_futures",
    int,
    1,
    low=1,
    high=1024,  # rows of one network call
    usual_high=256,
    page_high=64,
    help="futures imagined; the move is the likeliest of their mean (sampler a0_last, temperature above 0)",
    needs=("sampler", ("a0_last",)),
)
SEARCH = (
    Option(
        "candidates",
        int,
        0,
        low=0,
        usual_high=64,
        help="moves whose imagined boards are judged; 0: no search, also where an option of the sampling is given",
        basic=True,
    ),
    Option(
        "depth",
        int,
        1,
        low=1,
        high=64,
        usual_high=8,
        label="Depth",
        help="imagined boards of each candidate's line",
    ),
    Option("weight", float, 32.0, low=0, usual_high=1000, help="weight of a line's win probability against the policy"),
)
"""Of a search in the imagination."""


def weights(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Options of every policy over weights."""
    return of_folder(SEED_AND_BATCH, spec)


def diffusion(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Options of the diffusion policy: its own and those of all samplers."""
    refused = NEED_VISIBLE_NOISE if _hides_noise(spec) else ()
    own = (
        Option(
            "sampler",
            str,
            "easy_first",
            choices=tuple(name for name in registry.available("samplers") if name not in refused),
            help="how the masked future is filled in",
            label="Sampler",
            basic=True,
            forwarded=True,
        ),
        _narrowed(STEPS, _whole(spec, "learner", "process", "num_timesteps")),
        TEMPERATURE,
        NUM_FUTURES,
        *(SEARCH if _judges(spec) else ()),
        _narrowed(
            Option("horizon", int, 4, low=1, usual_high=64, help="plies imagined", basic=True),
            _whole(spec, "learner", "horizon"),
        ),
    )
    declared = {option.name: option for option in (*NETWORK, *own)}
    return of_folder(tuple({**declared, **_sampler_options(spec), **declared}.values()), spec)


WEIGHTS, DIFFUSION = Declaration(weights), Declaration(diffusion)
FIRST_ACTION = Declaration(lambda spec: of_folder(NETWORK, spec))
"""Of every policy whose network predicts the first action."""


def _judges(spec: PolicySpec | None) -> bool:
    """Whether what a folder imagines has boards and values; True where it is not known."""
    paradigm = None if spec is None else spec.section("learner").get("paradigm")
    return not isinstance(paradigm, str) or {"s", "v"} <= set(paradigm.partition("-")[2])


_HIDDEN_NOISE = ("multinomial",)
"""Built-in processes whose noise looks like data."""


def _hides_noise(spec: PolicySpec | None) -> bool:
    """Of another process its package says so: a function of the process section, named ``processes.KIND``."""
    process = {} if spec is None else spec.section("learner", "process")
    kind = process.get("kind")
    point = registry.available("options").get(f"processes.{kind}")
    return kind in _HIDDEN_NOISE if point is None else bool(registry.load_point("options", point)(process))


def _sampler_options(spec: PolicySpec | None) -> dict[str, Option]:
    """The options of all samplers by name, with the samplers that take them; numbers without a default: it differs."""
    found: dict[str, Option] = {}
    takers: dict[str, list[str]] = {}
    for name in registry.available("samplers"):
        try:
            options = options_of("samplers", name)
        except RegistryError:  # raised again, with its message, where a user chooses that sampler
            continue
        for option in options:
            known = found.setdefault(option.name, option)
            if option.type is float or (known.default != option.default and option.type is not bool):
                found[option.name] = replace(known, default=None)
            takers.setdefault(option.name, []).append(name)
    if _hides_noise(spec):
        takers[COMMIT] = []
    return {name: replace(option, needs=("sampler", tuple(takers[name]))) for name, option in found.items()}


def _whole(spec: PolicySpec | None, *keys: str) -> int | None:
    """A whole number of at least 1 in a folder's configuration; None where there is none."""
    *sections, key = keys
    number = None if spec is None else spec.section(*sections).get(key)
    return number if type(number) is int and 1 <= number < 2**31 else None


def _narrowed(option: Option, most: int | None) -> Option:
    """A count up to what a folder says, which is also its default."""
    return option if most is None else replace(option, high=most, default=most, usual_high=None)


def of_folder(options: tuple[Option, ...], spec: PolicySpec | None) -> tuple[Option, ...]:
    """Options with a folder's defaults: the learner's configuration, the saved options, then those of the spelling."""
    options = (*options, PRECISION)
    if spec is None:
        return options
    learner, sampler = spec.section("learner"), spec.section("learner", "sampler")
    configured: dict[str, Any] = {
        "sampler": sampler.get("name"),
        "scheduler": learner.get("scheduler"),
        "num_steps": sampler.get("num_steps") or learner.get("num_steps"),
        "temperature": sampler.get("temperature"),
        "num_futures": sampler.get("num_futures"),
        **{key: sampler.get(key) for key in ("horizon", "candidates", "depth", "weight")},
        **spec.section("learner", "sampler", "options"),
        **spec.section("play"),
        **spec.settings,
    }
    return with_defaults(options, configured)
