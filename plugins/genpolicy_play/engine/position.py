"""The position that a GUI sets, by its text and the moves since."""

from __future__ import annotations

from typing import Any

from genpolicy.game import Game
from genpolicy_play.engine.protocol import SAID_CHARACTERS, Position, shown

MAX_PLIES = 20_000  # the longest game of chess under the 75-move rule has 17,697


class PositionReader:
    """Keeps the position of the last good ``position`` line; one that goes on from it plays the new moves only.

    Args:
        game: The rules.
    """

    def __init__(self, game: Game[Any]) -> None:
        self.game = game
        self._text: str | None = None
        self._moves: tuple[str, ...] = ()
        self._states: list[Any] = [game.parse()]

    @property
    def state(self) -> Any:
        """The position, with the history that the game's rules of repetition need."""
        return self._states[-1]

    def set(self, position: Position) -> str | None:
        """Take a position; what is wrong with it, or None. A wrong one changes nothing."""
        if len(position.moves) > MAX_PLIES:
            return f"position: {len(position.moves)} moves; at most {MAX_PLIES} are followed"
        known = 0
        if position.text == self._text:
            both = zip(position.moves, self._moves, strict=False)
            known = next(
                (i for i, (new, old) in enumerate(both) if new != old), min(len(position.moves), len(self._moves))
            )
        try:
            states = self._states[: known + 1] if known else [self._start(position.text)]
        except ValueError as error:
            return f"position: {shown(str(error), SAID_CHARACTERS)}"
        for number, text in enumerate(position.moves[known:], known + 1):
            try:
                states.append(self._after(states[-1], text))
            except ValueError:
                return f"position: move {number}, {shown(text)!r}, is illegal"
        self._text, self._moves, self._states = position.text, position.moves, states
        return None

    def _start(self, text: str | None) -> Any:
        return self._states[0] if text == self._text else self.game.parse(text)

    def _after(self, state: Any, text: str) -> Any:
        try:
            return self.game.play(state, self.game.moves.index(text))
        except ValueError:
            # Some GUIs write moves in another way: a promotion's capital, castling as the king's taking its rook.
            return self.game.play(state, self.game.move_from_text(state, text))
