"""The options of the policies over models, apart from their classes, so that they are read without importing torch."""

from __future__ import annotations

from typing import Any

from genpolicy.options import Declaration, Option, PolicySpec, with_defaults
from genpolicy.policies.declared import diffusion, weights

MODES = ("prior", "one_step")
MODEL = (
    Option("terminal", bool, help="end a line when the model says that the game is over", forwarded=True),
    Option("top", int, 64, low=1, usual_high=1024, help="likeliest moves of an imagined position", forwarded=True),
)
"""Of the model, which a search accepts too."""
CODE_MODEL = (
    *MODEL,
    Option("answers", int, 32, low=1, usual_high=1024, help="likeliest replies to an imagined move", forwarded=True),
    Option("least", float, 0.01, low=0, high=1, help="probability below which a reply is dropped", forwarded=True),
)
"""The same of a model with codes."""
PLAY = Option(
    "mode", str, "prior", choices=MODES, help="the likeliest move, or the best after one model step", basic=True
)


DECODE = Option("decode", bool, True, help="decode imagined codes into positions and replies", hidden=True)


def options(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """See ``Policy.options``."""
    return _declared(spec, MODEL)


def code_options(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Those of a policy whose model has codes."""
    return _declared(spec, CODE_MODEL)


def code_diffusion_options(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Those of a diffusion policy, and whether codes are decoded."""
    return (*diffusion(spec), *with_defaults((DECODE,), _configured(spec)))


def _configured(spec: PolicySpec | None) -> dict[str, Any]:
    return {} if spec is None else {**spec.section("play"), **spec.settings}


def _declared(spec: PolicySpec | None, model: tuple[Option, ...]) -> tuple[Option, ...]:
    return (*weights(spec), *with_defaults((PLAY, *model), _configured(spec)))


MUZERO = Declaration(options)
VQ = Declaration(code_options)
CODE_DIFFUSION = Declaration(code_diffusion_options)
