"""Pig: roll a die as often as you dare; one bad roll loses what the turn has brought.

A turn's rolls add up until the player holds, which adds them to the player's score, or until the die shows ``bust``,
which loses them; then the other side has the turn. Who reaches ``goal`` with score and turn together wins at once (to
hold there is always best). There is nothing to hold before the first roll of a turn. Piglet, the same with a coin
(Neller and Presser 2004), is ``pig:goal=4,faces=2``: heads counts 2.

Position text: the scores of both players, the turn's total, who has the turn, and ``choose`` or ``roll`` (the die is in
the air): ``"12 7 5 A roll"``. Moves: ``roll``, ``hold``, and nature's ``1`` to ``faces``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game, IntArray, MoveVocabulary, StateTokenizer

ROLL, HOLD = 0, 1
"""Ids of the player's moves; ``HOLD + k`` is the face k of the die."""
MAX_GOAL, MAX_FACES = 1000, 100
MAX_POSITIONS = 5_000_000


class Pig(NamedTuple):
    """One position; never mutated."""

    scores: tuple[int, int]
    turn: int
    """What the turn has brought so far."""
    player: int
    """Whose turn it is, also while the die is in the air."""
    rolling: bool
    """The die is in the air: chance decides."""


class PigTokens(StateTokenizer[Pig]):
    """Own score, the other's score, the turn's total, whose turn it is, and whether the die is in the air.

    Args:
        game: The game; it checks what a row stands for.
    """

    def __init__(self, game: PigGame) -> None:
        self._game = game
        count = game.goal + game.faces  # a turn may end beyond the goal
        self.symbols = (*(str(number) for number in range(count)), "mine", "theirs", "choose", "roll")
        self._side, self._phase = count, count + 2
        self.rows, self.cols = np.zeros(5, np.int16), np.arange(5, dtype=np.int16)
        self.hands = np.full(5, -1, np.int16)
        self.admitted = np.zeros((5, len(self.symbols)), np.bool_)
        self.admitted[:2, : game.goal] = self.admitted[2, :count] = True
        self.admitted[3, self._side : self._phase] = self.admitted[4, self._phase :] = True

    @property
    def turned(self) -> tuple[IntArray, IntArray]:
        """The scores change places, and the turn its owner."""
        symbols = np.arange(len(self.symbols))
        symbols[[self._side, self._side + 1]] = self._side + 1, self._side
        return np.array([1, 0, 2, 3, 4]), symbols

    def encode(self, states: Sequence[Pig], viewers: Sequence[int] | IntArray | None = None) -> NDArray[np.int16]:
        """Token ids, shape [B, 5]; see ``StateTokenizer.encode``."""
        seen = [0] * len(states) if viewers is None else [int(viewer) for viewer in viewers]
        rows = [
            (s.scores[v], s.scores[1 - v], s.turn, self._side + (s.player != v), self._phase + s.rolling)
            for s, v in zip(states, seen, strict=True)
        ]
        return np.array(rows, np.int16).reshape(len(states), 5)

    def decode(self, row: IntArray, viewer: int = 0) -> Pig:
        """The position of a row of 5 ids; see ``StateTokenizer.decode``."""
        ids = [int(i) for i in row]
        if len(ids) != 5:
            raise ValueError(f"tokens {ids}: expected 5 of them, got {len(ids)}")
        for place, i in enumerate(ids):
            if not (0 <= i < len(self.symbols) and self.admitted[place, i]):
                raise ValueError(f"tokens {ids}: position {place} does not admit symbol {i}")
        scores = (ids[0], ids[1]) if viewer == 0 else (ids[1], ids[0])
        player = viewer if ids[3] == self._side else 1 - viewer
        try:
            return self._game.checked(Pig(scores, ids[2], player, ids[4] > self._phase))
        except ValueError as error:
            raise ValueError(f"tokens {ids} seen by player {viewer}: {error}") from error


class PigGame(Game[Pig]):
    """Pig with any goal and die.

    Args:
        goal: Points that win, 1 to 1000.
        faces: Faces of the die, 2 to 100; each comes equally often.
        bust: The face that loses the turn. All three may be text.

    Raises:
        ValueError: a value out of range.
    """

    name = "pig"
    protocol = "none"
    players = ("A", "B")
    alternates = False
    has_chance = True
    usual = ("pig:goal=20,faces=6,bust=1", "pig:goal=100,faces=6,bust=1")

    def __init__(self, goal: int | str = 100, faces: int | str = 6, bust: int | str = 1) -> None:
        self.goal = _number("goal", goal, 1, MAX_GOAL)
        self.faces = _number("faces", faces, 2, MAX_FACES)
        self.bust = _number("bust", bust, 1, self.faces)
        self.spec = f"pig:goal={self.goal},faces={self.faces},bust={self.bust}"
        texts = ("roll", "hold", *(str(face) for face in range(1, self.faces + 1)))
        nowhere = np.full(len(texts), -1, np.int16)
        ids = np.arange(len(texts))
        self.moves = MoveVocabulary(texts, nowhere, nowhere, ids.astype(np.int16), len(texts), ids)
        self.tokens = PigTokens(self)
        self._dice = np.arange(HOLD + 1, HOLD + 1 + self.faces)

    def parse(self, text: str | None = None) -> Pig:
        """The position of a text such as ``"12 7 5 A roll"``; both scores 0 without one."""
        if text is None:
            return Pig((0, 0), 0, 0, False)
        found = re.fullmatch(r"(\d{1,4}) (\d{1,4}) (\d{1,4}) ([AB]) (choose|roll)", text)
        if not found or text != " ".join([*(str(int(number)) for number in found.groups()[:3]), *found.groups()[3:]]):
            raise ValueError(
                f"{text!r} is not a position of {self.spec}; the first one is {self.format(self.parse())!r}"
            )
        first, second, turn = (int(number) for number in found.groups()[:3])
        try:
            return self.checked(Pig((first, second), turn, "AB".index(found[4]), found[5] == "roll"))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a position of {self.spec}: {error}") from error

    def checked(self, state: Pig) -> Pig:
        """The position itself.

        Raises:
            ValueError: it cannot stand in a game.
        """
        together = state.scores[state.player] + state.turn
        if max(state.scores) >= self.goal:
            raise ValueError(f"a score of {max(state.scores)} has won already, at {self.goal}")
        if state.rolling and together >= self.goal:
            raise ValueError(f"score and turn are {together} and have won at {self.goal}, so nobody rolls")
        if together >= self.goal + self.faces:
            raise ValueError(
                f"score and turn are {together}; the last roll before {self.goal} adds {self.faces} at most"
            )
        return state

    def format(self, state: Pig) -> str:
        """Both scores, the turn's total, whose turn it is, and the phase."""
        phase = "roll" if state.rolling else "choose"
        return f"{state.scores[0]} {state.scores[1]} {state.turn} {'AB'[state.player]} {phase}"

    def legal(self, state: Pig) -> NDArray[np.int64]:
        """``roll``, and ``hold`` once the turn has brought something; the faces while the die is in the air."""
        if state.rolling:
            return self._dice.copy()
        if self.outcome(state) is not None:
            return np.empty(0, np.int64)
        return np.array([ROLL, HOLD] if state.turn else [ROLL])

    def play(self, state: Pig, move_id: int) -> Pig:
        """The position after a move of the player's or of nature's."""
        scores, turn, player, rolling = state
        if move_id not in self.legal(state):
            named = repr(self.moves[move_id]) if 0 <= move_id < len(self.moves) else f"of id {move_id}"
            legal = " ".join(self.moves[i] for i in self.legal(state)) or "none, the game is over"
            raise IllegalMoveError(f"move {named} is illegal in {self.format(state)!r}; legal: {legal}")
        if not rolling and move_id == ROLL:
            return Pig(scores, turn, player, True)
        if rolling and move_id != HOLD + self.bust:
            return Pig(scores, turn + int(move_id) - HOLD, player, False)
        kept = scores[player] + (0 if rolling else turn)
        return Pig((kept, scores[1]) if player == 0 else (scores[0], kept), 0, 1 - player, False)

    def chance(self, state: Pig) -> NDArray[np.float64] | None:
        """Each face equally often while the die is in the air."""
        return np.full(self.faces, 1.0 / self.faces) if state.rolling else None

    def player(self, state: Pig) -> int:
        """Whose turn it is."""
        return state.player

    def outcome(self, state: Pig) -> float | None:
        """1 for the player whose score and turn reach the goal."""
        return 1.0 if state.scores[state.player] + state.turn >= self.goal else None

    def key(self, state: Pig) -> str:
        """The text: all that there is."""
        return self.format(state)

    def positions(self) -> Iterator[Pig]:
        """Every reachable position, finished games and dice in the air too."""
        bound = 2 * self.goal**2 * (self.goal + self.faces)
        if bound > MAX_POSITIONS:
            raise ValueError(
                f"{self.spec} has up to {bound:,} positions, more than the {MAX_POSITIONS:,} that are enumerated; take "
                "a smaller goal, or positions of played games"
            )
        seen, waiting = {self.parse()}, [self.parse()]
        while waiting:
            state = waiting.pop()
            yield state
            for move in self.legal(state).tolist():
                if (after := self.play(state, move)) not in seen:
                    seen.add(after)
                    waiting.append(after)


def _number(name: str, value: int | str, least: int, most: int) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,4}", str(value)) or not least <= int(value) <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    return int(value)
