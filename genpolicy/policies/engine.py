"""Policies that play an oracle's best move: an engine over its protocol, or an exact solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from genpolicy import registry
from genpolicy.data.oracle import Line, Oracle
from genpolicy.errors import EngineError
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy, resolve_game
from genpolicy.policies.simple import legal_of
from genpolicy.values import score_to_value


class OraclePolicy(Policy):
    """Plays the first move of an oracle's line.

    Spelled ``oracle:solver`` or ``oracle:stockfish?nodes=1000``.

    Args:
        oracle: What is asked; closed with the policy.
        name: Its spelling, for tables.
        horizon: Moves of the line that are asked for and shown as the imagined line.
    """

    kind: ClassVar[str] = "oracle"
    spelling: ClassVar[str] = "oracle:NAME[?horizon=N&key=value&...]"

    def __init__(self, oracle: Oracle, name: str, horizon: int = 1) -> None:
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1 ply, got {horizon}")
        self.game = oracle.game
        self.oracle = oracle
        self.horizon = horizon
        self._name = name

    @property
    def label(self) -> str:
        """The spelling, e.g. ``oracle:solver``."""
        return self._name

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        """The oracle's move for each position, with its line and its value for the player to move.

        Raises:
            ValueError: a position without legal moves.
            EngineError: the oracle could not label a position.
        """
        legal_of(self.game, states)
        lines = self.oracle.analyse(states, self.horizon)
        return [self._decision(state, line) for state, line in zip(states, lines, strict=True)]

    def _decision(self, state: Any, line: Line) -> Decision:
        if line.error is not None or not line.moves:
            reason = line.error or "it gave no move"
            raise EngineError(f"{self._name} has no move for {self.game.format(state)!r}: {reason}")
        score = line.scores[0] if line.scores else None
        texts: list[str | None] = []
        position = state
        for move in line.moves:
            position = self.game.play(position, move)
            texts.append(self.game.format(position))
        return Decision(
            line.moves[0],
            value=None if score is None else score_to_value(score, self.oracle.scale),
            line=line.moves,
            states=tuple(texts),
            stats={"raw_legal": 1.0},
        )

    def close(self) -> None:
        """End the oracle's processes."""
        self.oracle.close()

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> OraclePolicy:
        """``oracle:NAME[?key=value&...]``; what is not ``game``, ``horizon``, ``seed`` or ``device`` goes to NAME."""
        if not argument:
            names = ", ".join(registry.available("oracles"))
            raise ValueError(f"policy {cls.kind!r} needs an oracle's name, e.g. {cls.kind}:NAME; installed: {names}")
        game = resolve_game(options.get("game"), cls.kind)
        own = {key: value for key, value in options.items() if key not in ("game", "horizon", "seed", "device")}
        return cls(cls._make_oracle(argument, game, own), f"{cls.kind}:{argument}", int(options.get("horizon", 1)))

    @classmethod
    def _make_oracle(cls, argument: str, game: Game[Any], options: dict[str, Any]) -> Oracle:
        factory = registry.load("oracles", argument)
        try:
            oracle: Oracle = factory(game, **options)
        except TypeError as error:
            raise ValueError(f"oracle {argument!r}: {error}") from error
        return oracle


class EnginePolicy(OraclePolicy):
    """Plays an engine's best move.

    Spelled ``engine:stockfish?nodes=1000`` or ``engine:/path/to/engine?nodes=1000``.
    """

    kind: ClassVar[str] = "engine"
    spelling: ClassVar[str] = "engine:NAME_OR_PATH?nodes=N"

    @classmethod
    def _make_oracle(cls, argument: str, game: Game[Any], options: dict[str, Any]) -> Oracle:
        if argument in registry.available("oracles"):
            return super()._make_oracle(argument, game, options)
        return super()._make_oracle("uci", game, {"engine": argument, **options})
