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
PLAY = Option("mode", str, "prior", choices=MODES, help="the likeliest move, or the best by one step", basic=True)


def options(spec: PolicySpec | None = None) -> tuple[Option, ...]:
    """See ``Policy.options``."""
    configured = {} if spec is None else {**spec.section("play"), **spec.settings}
    return (*weights(spec), *with_defaults((PLAY, *MODEL), configured))


MUZERO = Declaration(options)
