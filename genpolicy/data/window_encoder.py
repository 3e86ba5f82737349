"""Records to rows of tokens: the lines are played with the game's rules and seen by the window's viewer.

Axes: R windows, N tokens of a sequence, E choices (a window's best moves, one window after the other), V viewers that a
state is stored for (1 or 2), L tokens of a state, G symmetries.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from genpolicy.chance import drawn
from genpolicy.data.records import Record
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy.sequence import Layout
from genpolicy.values import CENTIPAWN_SCALE, probability_to_bin, score_to_value, value_to_probability

T = TypeVar("T")
Arrays = dict[str, NDArray[Any]]
_PLAYOUTS, _PLAYOUT_PLIES = 32, 200
MAX_NUMBER = 1 + 1e-6
"""Of a probability, a value or a result that was rounded."""


@dataclass(frozen=True)
class WindowRecord(Record):
    """A record, with what messages call it."""

    where: str = ""

    def read(self, call: Callable[..., T], *given: Any) -> T:
        """What a call gives; its ``ValueError`` becomes a ``DatasetError`` that names the record."""
        try:
            return call(*given)
        except ValueError as error:
            raise DatasetError(f"{self.where}: {error}") from error


class WindowEncoder:
    """Turns records into arrays whose first axis is the window (or the choice).

    ``tokens`` [R, N] int16 is the record's own line: the mask id where a token is unlabelled, PAD after the game's end;
    a value token of ply p is the bin of the win probability of the player to move at ply p. ``viewers`` [R] int8.

    With ``choices``: ``counts`` [R] int32, ``keys`` [R] uint64 (of the root position), ``values`` [R] int16 (the root's
    value token, or the mask id), and for each best move ``move`` [E] int16 (absolute), ``child`` [E, V, L] int16 (the
    tokens of the position after it, for viewer 0 and 1 or for viewer 0 alone), ``over`` [E] bool (the game is over
    there) and ``child_keys`` [E] uint64. ``counts`` is 0 for a record with a value alone. ``line_keys`` [R, P] uint64
    are the keys of the positions of the record's own line after the root, 0 after its end.

    Where the layout gives the first action (``sa-v``), a window stands for all valued moves of its record: ``tokens``
    hold the position alone, and for each move (an arm) there are ``arm_move`` [A] int16 (the action token, as the
    window's viewer sees it) and ``arm_value`` [A] int16 (its value token); ``arms`` [R] int32 is their number.

    With ``columns``: ``played`` [R] int16 (a move id as the viewer sees it, -1 for none), ``result`` and ``value`` [R]
    float32 (for the player to move at the root, NaN for none), and for ``policy`` its moves ``policy_move`` [P] int16
    (as the viewer sees them), their probabilities ``policy_share`` [P] float32 and how many a window has,
    ``policy_counts`` [R] int32.

    A record without a single labelled token gives no window.

    Args:
        game: The rules.
        layout: The tokens of a window.
        viewer: As in ``WindowOptions``.
        choices: Whether each window's best moves are stored.
        scale: Centipawns as win probability (``genpolicy.values``).
        columns: As in ``WindowOptions``.
    """

    def __init__(
        self,
        game: Game[Any],
        layout: Layout,
        viewer: str,
        *,
        choices: bool = False,
        scale: float = CENTIPAWN_SCALE,
        columns: Sequence[str] = (),
    ) -> None:
        if layout.mask > np.iinfo(np.int16).max:
            raise ValueError(f"{layout.num_symbols} symbols do not fit the cache's 16 bits")
        self.game, self.layout, self.viewer, self.choices = game, layout, viewer, choices
        self.scale, self.columns = scale, tuple(columns)
        self.num_viewers = 2 if viewer == "mover" else 1
        self.by_move = any(slot.given and slot.kind == "action" for slot in layout.slots)
        """Whether windows are of positions with a move each."""
        actions = [slot.ply + 1 for slot in layout.slots if slot.kind == "action"]
        states = [slot.ply for slot in layout.slots if slot.kind == "state"]
        self._num_moves = max([*actions, *states])

    def encode(self, records: Sequence[WindowRecord]) -> Arrays:
        """The arrays of some records.

        Raises:
            DatasetError: a record whose state, move or score the game cannot read; the message names it.
        """
        if self.by_move:
            return self._encode_arms(records)
        played = [PlayedLine(self.game, record, self._num_moves) for record in records]
        viewers = np.array([p.players[0] if self.viewer == "mover" else 0 for p in played], np.int8)
        tokens = np.full((len(records), self.layout.length), self.layout.mask, np.int16)
        for slot in self.layout.slots:
            at = slice(slot.start, slot.stop)
            if slot.kind == "state":
                rows = [i for i, p in enumerate(played) if slot.ply < len(p.states)]
                if rows:
                    tokens[rows, at] = self._encode_states([played[i].states[slot.ply] for i in rows], viewers[rows])
                ended = [i for i, p in enumerate(played) if p.over and slot.ply >= len(p.states)]
            else:
                for i, p in enumerate(played):
                    # A position may have a score without a move.
                    if slot.ply < len(p.moves) or (slot.kind == "value" and slot.ply < len(p.states) and not p.over):
                        tokens[i, at] = self._token(slot.kind, slot.ply, p, int(viewers[i]))
                ended = [i for i, p in enumerate(played) if p.over and slot.ply >= len(p.moves)]
            tokens[ended, at] = self.layout.pad
        used = (tokens[:, ~self.layout.given] != self.layout.mask).any(axis=1)
        kept = [p for p, keep in zip(played, used, strict=True) if keep]
        arrays: Arrays = {"tokens": tokens[used], "viewers": viewers[used], **self._encode_columns(kept, viewers[used])}
        if self.choices:
            arrays |= self._encode_choices(kept)
        return arrays

    def keys(self, records: Sequence[WindowRecord]) -> NDArray[np.uint64]:
        """[number of records] keys of their positions."""
        return np.array(
            [position_key(self.game, PlayedLine(self.game, record, 0).states[0]) for record in records], np.uint64
        )

    def _encode_arms(self, records: Sequence[WindowRecord]) -> Arrays:
        played = [PlayedLine(self.game, record, 0) for record in records if record.scored_moves]
        viewers = np.array([p.players[0] if self.viewer == "mover" else 0 for p in played], np.int8)
        tokens = np.full((len(played), self.layout.length), self.layout.mask, np.int16)
        if played:
            tokens[:, : self.layout.state_length] = self._encode_states([p.states[0] for p in played], viewers)
        arms = [self._arms(p, int(viewer)) for p, viewer in zip(played, viewers, strict=True)]
        return {
            "tokens": tokens,
            "viewers": viewers,
            **self._encode_columns(played, viewers),
            "arms": np.array([len(moves) for moves, _ in arms], np.int32),
            "arm_move": np.array([move for moves, _ in arms for move in moves], np.int16),
            "arm_value": np.array([value for _, values in arms for value in values], np.int16),
        }

    def _arms(self, played: PlayedLine, viewer: int) -> tuple[list[int], list[int]]:
        """Action and value tokens of a record's moves, in the order of their ids."""
        record, game = played.record, self.game
        legal = set(game.legal(played.states[0]).tolist())
        by_move = {played.move(text): score for text, score in record.scored_moves.items()}
        if illegal := sorted(set(by_move) - legal):
            raise DatasetError(f"{record.where}: move {game.moves[illegal[0]]!r} has a value and is not legal there")
        moves = np.array(sorted(by_move), np.int64)
        seen = self.layout.move_offset + game.moves.seen_by(moves, viewer)
        return seen.tolist(), [self._value_token(by_move[move], record) for move in moves.tolist()]

    def _token(self, kind: str, ply: int, played: PlayedLine, viewer: int) -> int:
        if kind == "action":
            return self.layout.move_offset + int(self.game.moves.seen_by(np.array([played.moves[ply]]), viewer)[0])
        return self._value_token(played.score(ply), played.record)

    def _value_token(self, score: str | None, record: WindowRecord) -> int:
        if score is None or not self.layout.num_value_bins:
            return self.layout.mask
        value = record.read(score_to_value, score, self.scale)
        return self.layout.value_offset + probability_to_bin(value_to_probability(value), self.layout.num_value_bins)

    def _encode_states(self, states: Sequence[Any], viewers: NDArray[np.int8]) -> NDArray[np.int16]:
        try:
            return self.layout.tokenizer.encode(states, viewers)
        except ValueError as error:
            raise DatasetError(f"a state has no tokens: {error}") from error

    def _encode_columns(self, played: Sequence[PlayedLine], viewers: NDArray[np.int8]) -> Arrays:
        """The other columns of some windows' records."""
        arrays: Arrays = {}
        if "played" in self.columns:
            ids = [-1 if p.record.played is None else p.move(p.record.played) for p in played]
            arrays["played"] = self.game.moves.seen_by(np.array(ids, np.int64), viewers).astype(np.int16)
        if "result" in self.columns:
            signs = np.array([-1.0 if p.players[0] == 1 else 1.0 for p in played], np.float32)
            arrays["result"] = signs * np.array([p.number("result") for p in played], np.float32)
        if "value" in self.columns:
            arrays["value"] = np.array([p.number("value") for p in played], np.float32)
        if "policy" in self.columns:
            policies = [p.policy() for p in played]
            counts = np.array([len(policy) for policy in policies], np.int32)
            moves = np.array([move for policy in policies for move in policy], np.int64)
            shares = [share for policy in policies for share in policy.values()]
            arrays["policy_counts"] = counts
            arrays["policy_move"] = self.game.moves.seen_by(moves, np.repeat(viewers, counts)).astype(np.int16)
            arrays["policy_share"] = np.array(shares, np.float32)
        return arrays

    def _encode_choices(self, played: Sequence[PlayedLine]) -> Arrays:
        moves: list[list[int]] = [best_moves_of(p) for p in played]
        after = [p.child(move) for p, best in zip(played, moves, strict=True) for move in best]
        children = np.zeros((len(after), self.num_viewers, self.layout.state_length), np.int16)
        if after:
            for viewer in range(self.num_viewers):
                children[:, viewer] = self._encode_states(after, np.full(len(after), viewer, np.int8))
        line_keys = np.zeros((len(played), self._num_moves), np.uint64)
        for row, p in enumerate(played):
            line_keys[row, : len(p.moves)] = [position_key(self.game, state) for state in p.states[1:]]
        return {
            "line_keys": line_keys,
            "counts": np.array([len(best) for best in moves], np.int32),
            "keys": np.array([position_key(self.game, p.states[0]) for p in played], np.uint64),
            "values": np.array([self._value_token(p.score(0), p.record) for p in played], np.int16),
            "move": np.array([move for best in moves for move in best], np.int16),
            "child": children,
            "over": np.array([self.game.is_over(state) for state in after], np.bool_),
            "child_keys": np.array([position_key(self.game, state) for state in after], np.uint64),
        }

    def symmetric_places(self, records: Sequence[WindowRecord]) -> NDArray[np.int64]:
        """[G, V, L] where each token of a position's image comes from, for the symmetries that only move tokens about.

        Found by matching tokens over the positions of ``records``, the ones after their moves and those of some random
        games that go on from there, and left out where no rearrangement explains all of them (a symmetry that swaps
        colours, say). The first row is the identity; the second array gives the index of each in ``game.symmetries``,
        -1 first.
        """
        states = [state for record in records for state in PlayedLine(self.game, record, self._num_moves).states]
        if self.game.symmetries:  # few records may leave squares empty that a redrawn line fills
            states += self._playouts(states[:: max(1, len(states) // _PLAYOUTS)])
        identity = np.broadcast_to(np.arange(self.layout.state_length), (self.num_viewers, self.layout.state_length))
        rows: list[NDArray[np.int64]] = [np.insert(identity.astype(np.int64), 0, -1, axis=1)]
        for index, symmetry in enumerate(self.game.symmetries):
            images = [symmetry.state(state) for state in states]
            if any(self.game.player(a) != self.game.player(b) for a, b in zip(states, images, strict=True)):
                continue
            places = [self._rearrangement(states, images, viewer) for viewer in range(self.num_viewers)]
            if all(p is not None for p in places):
                rows.append(np.insert(np.stack([p for p in places if p is not None]), 0, index, axis=1))
        return np.stack(rows)

    def _playouts(self, states: Sequence[Any]) -> Iterator[Any]:
        """The positions of a random game from each of some positions."""
        draw = random.Random(0)
        for state in states:
            for _ in range(_PLAYOUT_PLIES):
                if self.game.is_over(state):
                    break
                state = self.game.play(state, drawn(self.game, state, draw))
                yield state

    def _rearrangement(self, states: Sequence[Any], images: Sequence[Any], viewer: int) -> NDArray[np.int64] | None:
        seen_by = np.full(len(states), viewer, np.int8)
        before = self._encode_states(states, seen_by).T.copy()
        after = self._encode_states(images, seen_by).T.copy()
        sources: dict[bytes, list[int]] = {}
        for place, column in enumerate(before):
            sources.setdefault(column.tobytes(), []).append(place)
        chosen = []
        for place, column in enumerate(after):
            candidates = sources.get(column.tobytes(), [])
            if not candidates:
                return None
            # Tokens that never differ (the side to move, seen by itself) stay where they are.
            pick = place if place in candidates else candidates[0]
            candidates.remove(pick)
            chosen.append(pick)
        return np.array(chosen, np.int64)


class PlayedLine:
    """A record's line, played on the board."""

    def __init__(self, game: Game[Any], record: WindowRecord, num_moves: int) -> None:
        self._game, self.record = game, record
        try:
            self.states: list[Any] = [game.parse(record.state)]
            self.moves: list[int] = []
            for text in record.moves[:num_moves]:
                move = game.moves.index(text)
                self.states.append(game.play(self.states[-1], move))
                self.moves.append(move)
        except ValueError as error:
            raise DatasetError(f"{record.where}: {error}; label the data set again or remove the record") from error
        self.players = [game.player(self.states[0])]
        # A line that stops where nothing can be played has ended, whatever the record's ``ended`` is.
        stopped = len(record.moves) < num_moves
        self.over = stopped and (record.ended or len(game.legal(self.states[-1])) == 0)

    def move(self, text: str) -> int:
        """Id of a move of the record."""
        return self.record.read(self._game.moves.index, text)

    def child(self, move: int) -> Any:
        """The position after a move in the line's first one; a ``DatasetError`` where the move is not legal."""
        return self.record.read(self._game.play, self.states[0], move)

    def policy(self) -> dict[int, float]:
        """Probability of each move that the record's policy names; {} where there is none."""
        shares: dict[int, float] = {}
        for entry in (self.record.policy or "").split():
            text, _, share = entry.partition("=")
            try:
                shares[self.move(text)] = number = float(share)
                if not 0 <= number <= MAX_NUMBER:
                    raise ValueError("it lies outside [0, 1]")
            except ValueError as error:
                raise DatasetError(f"{self.record.where}: policy {entry!r} is not MOVE=PROBABILITY: {error}") from error
        return shares

    def number(self, name: Literal["result", "value"]) -> float:
        """The record's result or value; NaN where it has none."""
        number: float | None = getattr(self.record, name)
        if number is None:
            return math.nan
        if abs(number) > MAX_NUMBER:
            raise DatasetError(f"{self.record.where}: its {name} is {number}, outside [-1, 1]; make the data set again")
        return number

    def score(self, ply: int) -> str | None:
        """Score text at a ply of the line, for the player to move there."""
        if ply < len(self.record.scores) and self.record.scores[ply] is not None:
            return self.record.scores[ply]
        if ply == 0 and (scores := self.record.scored_moves):
            return max(scores.values(), key=lambda score: self.record.read(score_to_value, score))
        return None


def best_moves_of(played: PlayedLine) -> list[int]:
    """The moves that are best by the record: all that tie, or the line's first where it values no moves."""
    record = played.record
    values = {move: record.read(score_to_value, score) for move, score in record.scored_moves.items()}
    if not values:
        return played.moves[:1]
    best = max(values.values())
    return sorted(played.move(move) for move, value in values.items() if value == best)


def position_key(game: Game[Any], state: Any) -> int:
    """64 bits of a position's key."""
    return int.from_bytes(hashlib.blake2b(repr(game.key(state)).encode(), digest_size=8).digest(), "little")
