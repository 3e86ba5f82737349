"""A policy that plays an oracle's best move: an exact solver, an engine, or a search."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from genpolicy import registry
from genpolicy.control import FREE, Control
from genpolicy.data.oracle import Line, Oracle, analysed, make_oracle
from genpolicy.errors import EngineError
from genpolicy.game import Game
from genpolicy.options import Option, PolicySpec
from genpolicy.policies import declared
from genpolicy.policies.base import Decision, Policy, best_allowed, legal_of, resolve_game
from genpolicy.values import parse_score, score_to_value

TOLD_PLIES = 6
"""Moves of an engine's line that are shown: enough to follow it, and few enough to draw."""


class OraclePolicy(Policy):
    """Plays the first move of an oracle's line.

    Spelled ``oracle:solver`` or ``oracle:stockfish?nodes=1000``.

    Args:
        oracle: What is asked; closed with the policy.
        name: Its spelling, for tables.
        horizon: Moves of the line that are asked for and shown as the imagined line. An engine may be asked again for
            them; what it said beyond them anyway is shown too, up to ``TOLD_PLIES``.
    """

    kind: ClassVar[str] = "oracle"
    is_prior: ClassVar[bool] = False
    takes_others: ClassVar[bool] = True
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

    @property
    def imagines(self) -> bool:
        """See ``Policy.imagines``."""
        return False

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """The oracle's move for each position, with its line and its value for the player to move.

        Where that move is not allowed, the allowed one after which the oracle values the position best.

        Raises:
            ValueError: a position without legal moves, or without an allowed one.
            EngineError: the oracle could not label a position.
        """
        legal_of(self.game, states, control)
        control.check()
        try:
            lines = analysed(self.oracle, states, self.horizon)
        except EngineError as error:
            where = " or ".join(repr(self.game.format(state)) for state in states[:3])
            raise EngineError(f"{self._name} has no move for {where}: {error}") from error
        control.check()
        pairs = zip(states, lines, strict=True)
        return [best_allowed(self, state, self._decision(state, line), control) for state, line in pairs]

    def _decision(self, state: Any, line: Line) -> Decision:
        if line.error is not None or not line.moves:
            reason = line.error or "it gave no move"
            raise EngineError(f"{self._name} has no move for {self.game.format(state)!r}: {reason}")
        score = line.scores[0] if line.scores else None
        moves, texts = self._followed(state, line)
        stats = {"raw_legal": 1.0}
        if line.num_nodes:
            stats["nodes"] = float(line.num_nodes)
        kind, number = (None, 0.0) if score is None else parse_score(score)
        if kind == "mate" and number:
            # The winner makes the last ply.
            stats["mate_plies"] = float(2 * number - 1 if number > 0 else -2 * number)
        return Decision(
            line.moves[0],
            value=None if score is None else score_to_value(score, self.oracle.scale),
            line=moves,
            states=texts,
            stats=stats,
            names=self.game.moves.texts,
        )

    def _followed(self, state: Any, line: Line) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The moves of a line, what was said beyond them as far as that is legal, and the position after each."""
        game, moves, texts = self.game, list(line.moves), []
        for move in moves:
            state = game.play(state, move)
            texts.append(game.format(state))
        more = line.variation[len(moves) : TOLD_PLIES]
        if line.variation[: len(moves)] != tuple(game.moves[move] for move in moves):
            more = ()
        for text in more:
            if game.outcome(state) is not None:
                break
            try:
                move = game.moves.index(text)
                state = game.play(state, move)
            except ValueError:  # an engine's line may end in anything; its move was checked
                break
            moves.append(move)
            texts.append(game.format(state))
        return tuple(moves), tuple(texts)

    def close(self) -> None:
        """End the oracle's processes."""
        self.oracle.close()

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """See ``Policy.options``; what is not declared goes to the oracle."""
        del spec
        horizon = Option("horizon", int, 1, low=1, help="moves of the line", fixed=True, hidden=True)
        return (horizon, replace(declared.SEED, fixed=True))

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> OraclePolicy:
        """``oracle:NAME[?key=value&...]``; what is not ``game``, ``horizon``, ``seed`` or ``device`` goes to NAME.

        A ``seed`` goes there too where NAME takes one (the solver, which draws among equal moves).
        """
        if not argument:
            names = ", ".join(registry.available("oracles"))
            raise ValueError(f"policy {cls.kind!r} needs an oracle's name, e.g. {cls.kind}:NAME; installed: {names}")
        game = resolve_game(options.get("game"), cls.kind)
        own = {key: value for key, value in options.items() if key not in ("game", "horizon", "seed", "device")}
        shown = "&".join(f"{key}={value}" for key, value in own.items())
        name = f"{cls.kind}:{argument}" + "?" * bool(shown) + shown
        if "seed" in options and cls._takes_seed(argument):
            own["seed"] = options["seed"]
        return cls(cls._make_oracle(argument, game, own), name, options.get("horizon") or 1)

    @classmethod
    def _takes_seed(cls, argument: str) -> bool:
        if argument not in registry.available("oracles"):
            return False
        return "seed" in inspect.signature(registry.load("oracles", argument)).parameters

    @classmethod
    def _make_oracle(cls, argument: str, game: Game[Any], options: dict[str, Any]) -> Oracle:
        return make_oracle(argument, game, **options)
