"""The built-in oracle: alpha-beta by the game's own rules and heuristic, so that labelling needs no engine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from pickle import PicklingError
from typing import Any

from genpolicy.data.oracle import Line, Oracle
from genpolicy.errors import EngineError
from genpolicy.game import Game
from genpolicy_alphabeta.scores import plies_to_end, score_text
from genpolicy_alphabeta.search import DEFAULT_NODES, QUIESCENCE_PLIES, AlphaBeta
from genpolicy_common.children import follow_parent, without_ctrl_c

VERSION = "1"
"""Raised when the search's labels change for the same limits."""


class AlphaBetaOracle(Oracle):
    """Labels positions with the line of an alpha-beta search, searched on from its end where it is too short.

    Scores are ``mate:N`` where the game is decided within the depth, else ``value:X`` by ``Hints.evaluate`` (0 where it
    is drawn). A position is searched from empty tables, so a label depends on it alone. Numbers may be given
    as text, as a spelling has them.

    Args:
        game: The game; where its ends are out of reach it must have a heuristic evaluation.
        depth: Plies of a search; one limit at least, or ``DEFAULT_NODES`` nodes.
        nodes: Positions of one search (of one move, for move values).
        movetime_ms: Milliseconds of one search; labels then depend on the machine.
        quiescence: Most plies of forcing moves beyond the depth; 0: none.
        processes: Worker processes that share the positions of a call; they load the game by its specification.

    Raises:
        ValueError: an option that is not a number, or out of range.
    """

    def __init__(
        self,
        game: Game[Any],
        depth: int | str | None = None,
        nodes: int | str | None = None,
        movetime_ms: float | str | None = None,
        quiescence: int | str = QUIESCENCE_PLIES,
        processes: int | str = 1,
    ) -> None:
        self.game = game
        self.options: dict[str, Any] = {
            "depth": None if depth is None else whole_number("depth", depth),
            "nodes": None if nodes is None else whole_number("nodes", nodes),
            "movetime_ms": None if movetime_ms is None else _number("movetime_ms", movetime_ms),
            "quiescence": whole_number("quiescence", quiescence),
        }
        if depth is None and nodes is None and movetime_ms is None:
            self.options["nodes"] = DEFAULT_NODES
        self._search = AlphaBeta(game, **self.options)
        self._processes = whole_number("processes", processes)
        if self._processes < 1:
            raise ValueError(f"processes must be at least 1, got {processes}")
        self._pool: ProcessPoolExecutor | None = None

    def describe(self) -> dict[str, Any]:
        """What decides a label; the number of processes does not."""
        limits = {key: value for key, value in self.options.items() if value is not None and key != "quiescence"}
        return {
            "name": "alphabeta",
            "version": VERSION,
            "limits": limits,
            "quiescence": self.options["quiescence"],
            "score_scale": "value",
        }

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        """One line for each state, in order (see ``Oracle.analyse``).

        Raises:
            EngineError: a worker process died, or states cannot be sent to one.
        """
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        if self._processes == 1:
            return [self._label(state, horizon, move_values) for state in states]
        if self._pool is None:
            # Fresh interpreters: a fork of one in which torch runs threads may never come to itself.
            context = multiprocessing.get_context("spawn")
            self._closed = context.Event()
            self._pool = ProcessPoolExecutor(
                self._processes,
                mp_context=context,
                initializer=_begin_worker,
                initargs=(os.getpid(), self._closed, self.game.spec, self.options),
            )
        more = [horizon] * len(states), [move_values] * len(states)
        try:
            with without_ctrl_c():  # the first call starts the processes
                lines = self._pool.map(_label_in_worker, states, *more)
            return list(lines)
        except BrokenProcessPool as error:
            raise EngineError(f"a worker process of oracle 'alphabeta' died: {error}; try processes=1") from error
        except (PicklingError, AttributeError, TypeError) as error:
            raise EngineError(
                f"positions of {self.game.spec!r} cannot be sent to worker processes ({error}); use processes=1"
            ) from error

    def close(self) -> None:
        """End the worker processes, within a second or so also those that search; safe to call twice."""
        if self._pool is not None:
            self._closed.set()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _label(self, state: Any, horizon: int, move_values: bool) -> Line:
        game = self.game
        if len(game.legal(state)) == 0:
            return Line((), error=f"{game.format(state)!r}: the game is over, there is no legal move")
        moves: list[int] = []
        scores: list[str | None] = []
        at = state
        while len(moves) < horizon and (not moves or game.outcome(at) is None):
            found = self._search.search(at)
            scores += [None] * (len(moves) - len(scores)) + [found.text]
            # What lies beyond the depth are forcing moves alone, and no line of best play.
            trusted = found.line if found.exact or plies_to_end(found.score) else found.line[: max(1, found.depth)]
            for move in trusted[: horizon - len(moves)]:
                moves.append(move)
                at = game.play(at, move)
                if game.outcome(at) is not None:
                    break
        by_move: dict[int, str] = {}
        if move_values:
            texts = {move: score_text(score) for move, score in self._search.move_scores(state).items()}
            by_move = {move: text for move, text in texts.items() if text is not None}
        return Line(tuple(moves), tuple(scores), game.outcome(at) is not None, by_move)


_worker: AlphaBetaOracle | None = None


def _begin_worker(parent: int, closed: Event, spec: str, options: dict[str, Any]) -> None:
    global _worker
    from genpolicy.registry import load_game

    follow_parent(parent, lambda: not closed.is_set())
    _worker = AlphaBetaOracle(load_game(spec), **options)


def _label_in_worker(state: Any, horizon: int, move_values: bool) -> Line:
    assert _worker is not None
    return _worker.analyse([state], horizon, move_values=move_values)[0]


def whole_number(name: str, value: int | float | str) -> int:
    """An option as a whole number.

    Raises:
        ValueError: it is none.
    """
    number = _number(name, value)
    if number != int(number):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    return int(number)


def _number(name: str, value: float | str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {value!r}") from None
