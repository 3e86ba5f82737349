"""The policy that plays an engine's best move, over UCI or USI."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from genpolicy import registry
from genpolicy.data.oracle import Oracle
from genpolicy.game import Game
from genpolicy.options import Option, PolicySpec, with_defaults
from genpolicy_engines.oracle import EngineOracle
from genpolicy_engines.oracle_policy import OraclePolicy

LIMITS = (
    Option(
        "nodes",
        int,
        low=1,
        usual_high=10_000_000,
        help="positions searched; fewer is faster and weaker",
        basic=True,
        fixed=True,
    ),
    Option("depth", int, low=1, usual_high=40, help="search depth in plies", basic=True, fixed=True),
    Option(
        "movetime_ms",
        int,
        low=1,
        usual_high=20_000,
        help="time per move",
        label="Milliseconds",
        basic=True,
        fixed=True,
    ),
)
"""Of one search; an engine needs at least one of them."""


class EnginePolicy(OraclePolicy):
    """Plays an engine's best move, over UCI or USI depending on the game.

    Spelled ``engine:stockfish?nodes=1000`` or ``engine:/path/to/engine?movetime_ms=100``; what is not an option of
    ``EngineOracle`` goes to the engine by its own name: ``engine:stockfish?nodes=1000&Skill Level=5`` (or
    ``Skill%20Level=5``). ``UCI_Elo=1500`` sets ``UCI_LimitStrength`` too, without which it says nothing.

    The engine gets the moves of the game, so that it sees repetitions, and begins each position with an empty hash
    table, so that an answer depends on the position and its past alone. With one thread and a limit in nodes or depth
    the same moves come again; an engine set to play below its strength draws its errors by its own clock.

    One that dies, hangs or answers an illegal move has no second try (labels have three): ``EngineError``. For the next
    position it is started again.
    """

    kind: ClassVar[str] = "engine"
    spelling: ClassVar[str] = "engine:NAME_OR_PATH?nodes=N|movetime_ms=N[&Skill Level=N&UCI_Elo=N&key=value&...]"

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """See ``Policy.options``; the limits that a spelling does not set are hidden, for one is enough."""
        told = {} if spec is None else spec.settings
        limits = tuple(replace(limit, hidden=spec is not None and limit.name not in told) for limit in LIMITS)
        return (*super().options(spec), *with_defaults(limits, told))

    @classmethod
    def _make_oracle(cls, argument: str, game: Game[Any], options: dict[str, Any]) -> Oracle:
        known = argument in registry.available("oracles")
        factory = registry.load("oracles", argument if known else "uci")
        if isinstance(factory, type) and issubclass(factory, EngineOracle):
            options = {"attempts": 1, "with_past": True, **options}
            names = {key.lower() for key in options}
            if "uci_elo" in names and "uci_limitstrength" not in names:
                options = {"UCI_LimitStrength": "true", **options}
        if known:
            return super()._make_oracle(argument, game, options)
        return super()._make_oracle("uci", game, {"engine": argument, **options})
