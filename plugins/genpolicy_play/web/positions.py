"""Replays the game that a request names: the position, its legal moves and its drawing."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from genpolicy.chance import drawn
from genpolicy.game import Game
from genpolicy_play.drawing import move_places
from genpolicy_play.terminal import ending_of
from genpolicy_play.web.requests import MAX_MOVE, MAX_MOVES, MAX_TEXT, Fields, RequestError, quoted

MAX_KEPT = 512
"""Positions of recent games that are kept, so that a further move does not replay the game."""
NUM_LATELY = 5
"""Last moves of a game for which every position is looked up."""
KEPT_EVERY = 64
"""Of a longer game one position in so many is kept, so that taking moves back does not replay it."""
POSITION_FIELDS = ("game", "start", "moves", "flip")


@dataclass(frozen=True)
class Replay:
    """A position and the game that led to it."""

    state: Any
    start: str
    """Text of the first position, without moves."""
    moves: tuple[int, ...]
    """Absolute ids from there."""
    labels: tuple[str, ...]
    """The same moves as people write them."""
    turns: tuple[int | None, ...]
    """Who made each of them: a player, or None where chance did."""
    last: tuple[int, int] | None
    """Source and target of the last move, places in the absolute view; None before the first."""


class ReplayCache:
    """Replays games and keeps recent positions; safe to use from several threads.

    Args:
        game: The rules.
    """

    def __init__(self, game: Game[Any]) -> None:
        self.game = game
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], Replay] = OrderedDict()
        self._lock = threading.Lock()

    def replay(self, start: str | None, moves: Sequence[str]) -> Replay:
        """The position after some moves.

        Args:
            start: Text of the first position; None for the initial one.
            moves: Protocol texts.

        Raises:
            RequestError: a malformed position or move, an illegal move, or too many moves.
        """
        played = tuple(moves)
        found, known = self._longest_known(start, played)
        while known < len(played):
            end = min(len(played), known // KEPT_EVERY * KEPT_EVERY + KEPT_EVERY)
            found = self._after(found, played[known:end], known + 1)
            if len(found.moves) > MAX_MOVES:
                raise RequestError(f"a game may have at most {MAX_MOVES:,} moves, got {len(found.moves):,}")
            self._keep((start or "", played[:end]), found)
            known = end
        return found

    def num_new(self, start: str | None, moves: Sequence[str]) -> int:
        """How many moves ``replay`` would have to play."""
        played = tuple(moves)
        return len(played) - next((known for known, _ in self._known(start or "", played)), 0)

    def _longest_known(self, start: str | None, played: tuple[str, ...]) -> tuple[Replay, int]:
        """The last kept position of a game, or its first one, and the number of moves before it."""
        known, found = next(self._known(start or "", played), (0, None))
        if found is None:
            found = self._first(start)
            if len(found.moves) > MAX_MOVES:
                raise RequestError(f"a game may have at most {MAX_MOVES:,} moves, got {len(found.moves):,}")
            self._keep((start or "", ()), found)
        return found, known

    def _known(self, text: str, played: tuple[str, ...]) -> Iterator[tuple[int, Replay]]:
        """Kept positions of a game, the last first: every one of the last few, then one in so many."""
        lately = range(len(played), max(-1, len(played) - NUM_LATELY), -1)
        before = range((len(played) - NUM_LATELY) // KEPT_EVERY * KEPT_EVERY, -1, -KEPT_EVERY)
        for known in (*lately, *before):
            found = self._find((text, played[:known]))
            if found is not None:
                yield known, found

    def _find(self, key: tuple[str, tuple[str, ...]]) -> Replay | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def _keep(self, key: tuple[str, tuple[str, ...]], found: Replay) -> None:
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def _first(self, start: str | None) -> Replay:
        try:
            state = self.game.parse(start)
            text, moves = self.game.history(state)
            if not moves:  # keep what the text holds beyond the position, such as a move number
                return Replay(state, " ".join(start.split()) if start else text, (), (), (), None)
            found = Replay(self.game.parse(text), text, (), (), (), None)
        except ValueError as error:
            raise RequestError(str(error)) from error
        return self._after(found, [self.game.moves[move] for move in moves], 1)

    def _after(self, before: Replay, texts: Sequence[str], first: int) -> Replay:
        """The position some moves later, at least one.

        Args:
            before: The position that they are played from.
            texts: The moves.
            first: Number of the first one, for messages.
        """
        game, state = self.game, before.state
        moves, labels, turns = list(before.moves), list(before.labels), list(before.turns)
        for number, text in enumerate(texts, first):
            try:
                move, after = _played(game, state, text)
            except ValueError as error:
                raise RequestError(f"move {number}: {error}") from error
            moves.append(move)
            labels.append(game.view.move_text(state, move))
            turns.append(turn_of(game, state))
            state, previous = after, state
        last = move_places(game, previous, moves[-1])
        return Replay(state, before.start, tuple(moves), tuple(labels), tuple(turns), last)


def _played(game: Game[Any], state: Any, text: str) -> tuple[int, Any]:
    """The move of a protocol text and the position after it; castling may be written as ``e1h1``, too.

    Raises:
        ValueError: not a move, or an illegal one.
    """
    move = game.moves.index(text)
    try:
        return move, game.play(state, move)
    except ValueError:
        with suppress(ValueError):
            move = game.move_from_text(state, text)
            return move, game.play(state, move)
        raise


def turn_of(game: Game[Any], state: Any) -> int | None:
    """The player to move; None where chance is."""
    return None if game.chance(state) is not None else game.player(state)


def position_of(fields: Fields, cache: ReplayCache) -> Replay:
    """The position that a request names by ``start`` and ``moves``.

    Raises:
        RequestError: as ``ReplayCache.replay``.
    """
    start = fields.optional_text("start", most=MAX_TEXT)
    return cache.replay(start, fields.texts("moves", most=MAX_MOVES, length=MAX_MOVE))


def num_new_moves(fields: Fields, cache: ReplayCache) -> int:
    """How many moves ``position_of`` will have to play, which is what a request costs.

    Raises:
        RequestError: a start or moves that are not texts.
    """
    start = fields.optional_text("start", most=MAX_TEXT)
    return cache.num_new(start, fields.texts("moves", most=MAX_MOVES, length=MAX_MOVE))


def described(game: Game[Any], found: Replay, drawing: str, *, flip: bool) -> dict[str, Any]:
    """The answer of ``/api/position``.

    Args:
        game: The rules.
        found: The position.
        drawing: The position as SVG.
        flip: Whether the drawing is seen from the second player's side.
    """
    state = found.state
    legal = []
    for each in game.legal(state):
        move = int(each)
        source, target = move_places(game, state, move)
        legal.append(
            {
                "move": game.moves[move],
                "label": game.view.move_text(state, move),
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
        "turns": [*found.turns, turn_of(game, state)],
        "opening": game.view.opening(found.moves) if found.start == game.format(game.parse()) else None,
        "legal": legal,
        "outcome": None if (ending := ending_of(game, state)) is None else asdict(ending),
        "last": None if found.last is None else {"source": found.last[0], "target": found.last[1]},
        "check": game.view.check(state),
        "can_win": [game.view.can_win(state, player) for player in (0, 1)],
        "flip": flip,
        "svg": drawing,
        # Nature's move, drawn anew for each request; the page plays it.
        **({} if game.chance(state) is None else {"drawn": game.moves[drawn(game, state, random.SystemRandom())]}),
    }


def typed_move(game: Game[Any], found: Replay, text: str) -> str:
    """The protocol text of a move that a person typed.

    Raises:
        RequestError: not a move, or an illegal one.
    """
    try:
        return game.moves[game.move_from_text(found.state, text)]
    except ValueError as error:
        raise RequestError(str(error)) from error


def require_game(games: dict[str, ReplayCache], fields: Fields) -> ReplayCache:
    """The game that a request names by ``game``; the specification of one with many options is long.

    Raises:
        RequestError: it is not offered.
    """
    spec = fields.text("game", most=MAX_TEXT)
    if spec not in games:
        raise RequestError(f"game {quoted(spec)} is not offered here; there are: {', '.join(games)}")
    return games[spec]
