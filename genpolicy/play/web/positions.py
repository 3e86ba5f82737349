"""A game as a client tells it, replayed: the position, what can be played there, and how it looks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genpolicy.game import Game
from genpolicy.play.drawing import move_places
from genpolicy.play.web.fields import MAX_MOVE, MAX_MOVES, MAX_TEXT, Fields, RequestError, quoted

MAX_KEPT = 512
"""Positions of recent games that are kept, so that a further move is one move and no game."""
POSITION_FIELDS = ("game", "start", "moves", "flip")


@dataclass(frozen=True)
class Replayed:
    """A position and the game that led to it."""

    state: Any
    start: str
    """Text of the first position, without moves."""
    moves: tuple[int, ...]
    """Absolute ids from there."""
    labels: tuple[str, ...]
    """The same as people write them."""
    last: tuple[int, int] | None
    """Source and target of the last move, places in the absolute view; None before the first."""


class Replays:
    """Replays the games of one game's clients; safe to use from several threads.

    Args:
        game: The rules.
    """

    def __init__(self, game: Game[Any]) -> None:
        self.game = game
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], Replayed] = OrderedDict()
        self._lock = threading.Lock()

    def replay(self, start: str | None, moves: Sequence[str]) -> Replayed:
        """The position after some moves.

        Args:
            start: Text of the first position; None: the initial one.
            moves: Protocol texts.

        Raises:
            RequestError: no position, no move, an illegal move, or too many of them; the message names it.
        """
        text, played = start or "", tuple(moves)
        found = None
        for known in range(len(played), -1, -1):
            found = self._find((text, played[:known]))
            if found is not None or known < len(played) - 4:
                break
        if found is None:
            found, known = self._first(start), 0
        for number, move in enumerate(played[known:], known + 1):
            found = self._next(found, move, number)
        if len(found.moves) > MAX_MOVES:
            raise RequestError(f"a game may have at most {MAX_MOVES:,} moves, got {len(found.moves):,}")
        self._keep((text, played), found)
        return found

    def _find(self, key: tuple[str, tuple[str, ...]]) -> Replayed | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def _keep(self, key: tuple[str, tuple[str, ...]], found: Replayed) -> None:
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def _first(self, start: str | None) -> Replayed:
        try:
            state = self.game.parse(start)
            text, moves = self.game.history(state)
            if not moves:  # keep what a text says beyond the position, such as a move number
                return Replayed(state, " ".join(start.split()) if start else text, (), (), None)
            found = Replayed(self.game.parse(text), text, (), (), None)
        except ValueError as error:
            raise RequestError(str(error)) from error
        for number, move in enumerate(moves, 1):
            found = self._next(found, self.game.moves[move], number)
        return found

    def _next(self, before: Replayed, text: str, number: int) -> Replayed:
        game = self.game
        try:
            move = game.moves.index(text)
            after = game.play(before.state, move)
        except ValueError as error:
            raise RequestError(f"move {number}: {error}") from error
        label = game.move_text(before.state, move)
        last = move_places(game, before.state, move)
        return Replayed(after, before.start, (*before.moves, move), (*before.labels, label), last)


def outcome_of(game: Game[Any], state: Any) -> dict[str, Any] | None:
    """``{"winner", "reason"}`` where the game is over, else None."""
    outcome = game.outcome(state)
    if outcome is None and len(game.legal(state)) > 0:
        return None
    player = game.player(state)
    winner = None if not outcome else player if outcome > 0 else 1 - player
    return {"winner": winner, "reason": game.ending(state)}


def position_of(fields: Fields, replays: Replays) -> Replayed:
    """The position that a request names by ``start`` and ``moves``.

    Raises:
        RequestError: as ``Replays.replay``.
    """
    start = fields.optional_text("start", most=MAX_TEXT)
    return replays.replay(start, fields.texts("moves", most=MAX_MOVES, length=MAX_MOVE))


def described(game: Game[Any], found: Replayed, drawing: str, *, flip: bool) -> dict[str, Any]:
    """What ``/api/position`` answers.

    Args:
        game: The rules.
        found: The position.
        drawing: It as SVG.
        flip: Whether that is turned round.
    """
    state = found.state
    legal = []
    for each in game.legal(state):
        move = int(each)
        source, target = move_places(game, state, move)
        legal.append(
            {
                "move": game.moves[move],
                "label": game.move_text(state, move),
                "source": source,
                "target": target,
                "kind": int(game.moves.kind[move]),
            }
        )
    return {
        "game": game.spec,
        "text": game.format(state),
        "player": game.player(state),
        "players": list(game.players),
        "start": found.start,
        "moves": [game.moves[move] for move in found.moves],
        "labels": list(found.labels),
        "legal": legal,
        "outcome": outcome_of(game, state),
        "last": None if found.last is None else {"source": found.last[0], "target": found.last[1]},
        "check": game.check(state),
        "flip": flip,
        "svg": drawing,
    }


def typed_move(game: Game[Any], found: Replayed, text: str) -> str:
    """Protocol text of a move that a person typed.

    Raises:
        RequestError: not a move, or not legal.
    """
    try:
        return game.moves[game.move_from_text(found.state, text)]
    except ValueError as error:
        raise RequestError(str(error)) from error


def require_game(games: dict[str, Replays], spec: str) -> Replays:
    """The game of a specification.

    Raises:
        RequestError: it is not offered.
    """
    if spec not in games:
        raise RequestError(f"game {quoted(spec)} is not offered here; there are: {', '.join(games)}")
    return games[spec]
