"""The options of the policy ``muzero``, apart from its class, so that they are read without importing torch."""

from __future__ import annotations

from genpolicy.options import Declaration, Option, PolicySpec, with_defaults
from genpolicy.policies.declared import weights

MODES = ("prior", "one_step")
MODEL = (
    Option("terminal", bool, help="end a line where the model says that the game is over", forwarded=True),
    Option("top", int, 64, low=1, usual_high=1024, help="likeliest moves of an imagined position", forwarded=True),
)
"""Of the model, which a search accepts too."""
CODE_MODEL = (
    *MODEL,
    Option("answers", int, 32, low=1, usual_high=1024, help="likeliest answers of an imagined move", forwarded=True),
    Option("least", float, 0.01, low=0, high=1, help="probability below which an answer is left out", forwarded=True),
)
"""The same of a model with codes."""
PLAY = Option("mode", str, "prior", choices=MODES, help="the likeliest move, or the best by one step", basic=True)


def options(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """See ``Policy.options``."""
    return _declared(spec, MODEL)


def code_options(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """Those of a policy whose model has codes."""
    return _declared(spec, CODE_MODEL)


def _declared(spec: PolicySpec | None, model: tuple[Option, ...]) -> tuple[Option, ...]:
    configured = {} if spec is None else {**spec.section("play"), **spec.settings}
    return (*weights(spec), *with_defaults((PLAY, *model), configured))


MUZERO = Declaration(options)
VQ = Declaration(code_options)
