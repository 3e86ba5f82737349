"""The rules of OpenSpiel's games. Position text: the ids of the moves from the start, ``"146 301"``, or ``"start"``.

OpenSpiel cannot be set to a position, so a text is a game; two orders of the same stones are two texts and one key.
Moves are OpenSpiel's action ids as text, for the names that people read depend on the position; both are accepted.
The ids of chance outcomes follow those of the players' actions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import numpy as np
import pyspiel
from numpy.typing import NDArray

from genpolicy.drawing import Drawing
from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game, View
from genpolicy_openspiel.board import EMPTY, OUTSIDE, plain, vocabulary
from genpolicy_openspiel.catalogue import SMALLER, kinds, load, specification, unfit
from genpolicy_openspiel.survey import observed, survey
from genpolicy_openspiel.tokens import START, ObservationTokens, State, written


class OpenSpielGame(Game[State]):
    """A game of OpenSpiel for two players in which both see everything.

    Args:
        game: OpenSpiel's name of it.
        parameters: Its parameters as text.

    Raises:
        ValueError: no such game, one that does not fit, or parameters that it refuses.
    """

    name = "openspiel"
    protocol = "none"
    players = ("First", "Second")
    tokens: ObservationTokens

    def __init__(self, game: str = "", **parameters: str) -> None:
        self.rules = load(game, parameters)
        self.spec = specification(self.rules)
        self.has_chance, self._dice = self.rules.max_chance_outcomes() > 0, self.rules.num_distinct_actions()
        try:
            seen = survey(self.rules)
            self.tokens = ObservationTokens(seen, self.has_chance)
        except UnicodeDecodeError as error:
            raise ValueError(f"game {self.spec!r}: what OpenSpiel writes of it is not UTF-8: {error.reason}") from error
        except (pyspiel.SpielError, ValueError) as error:  # twixt keeps the size of the first board of a process
            fits = f"; openspiel:{SMALLER[game]} fits" if game in SMALLER else ""
            raise ValueError(f"game {self.spec!r}: {error}{fits}") from error
        self.alternates, self._first = seen.alternates, seen.first
        self.moves = vocabulary(self.rules, seen, self.tokens.rows)
        self.view = OpenSpielView(self)

    @classmethod
    def variants(cls) -> Mapping[str, str]:
        """Every game of OpenSpiel, with what it fails."""
        return {f"openspiel:{SMALLER.get(name, name)}": unfit(kind) for name, kind in kinds().items()}

    def _state(self, spiel: pyspiel.State, made: tuple[int, ...], last: int) -> State:
        """The state of OpenSpiel's own after a move of a player of ours."""
        offset = self._dice * spiel.is_chance_node()
        legal = np.array(spiel.legal_actions(), np.int64) + offset  # sorted, and none after the end
        player = 1 - last if spiel.is_terminal() else last if offset else spiel.current_player() ^ self._first
        return State(spiel, made, player, legal, offset)

    # Texts.

    def parse(self, text: str | None = None) -> State:
        """The position after some moves; the initial one without a text or of ``"start"``."""
        made = tuple(map(int, re.findall(r"\d{1,6}", text or "")))
        refused = f"{text!r} is not a position of {self.spec}"
        if text not in (None, written(made)):
            raise ValueError(f"{refused}: write {START!r} or the ids of moves from there")
        spiel, last = self.rules.new_initial_state(), 0
        for ply, move in enumerate(made):
            chance = spiel.is_chance_node()
            action = move - self._dice * chance
            if action not in spiel.legal_actions():
                raise ValueError(f"{refused}: move {move} at ply {ply} is not legal")
            last = last if chance else spiel.current_player() ^ self._first
            spiel.apply_action(action)
        return self._state(spiel, made, last)

    def format(self, state: State) -> str:
        """The moves from the start."""
        return written(state.made)

    # The rules.

    def legal(self, state: State) -> NDArray[np.int64]:
        """OpenSpiel's legal actions, or outcomes of chance; none after the end."""
        return state.legal.copy()

    def chance(self, state: State) -> NDArray[np.float64] | None:
        """OpenSpiel's probabilities of the outcomes."""
        if not state.spiel.is_chance_node():
            return None
        return np.array([share for _, share in sorted(state.spiel.chance_outcomes())], np.float64)

    def play(self, state: State, move_id: int) -> State:
        """The position after a move."""
        move = int(move_id)
        if move not in state.legal:
            raise self._illegal(state, str(move))
        return self._state(state.spiel.child(move - state.offset), (*state.made, move), state.player)

    def player(self, state: State) -> int:
        """0 for who moves first in the game, whatever number OpenSpiel gives that player."""
        return state.player

    def outcome(self, state: State) -> float | None:
        """The sign of OpenSpiel's return for the player to move; by how much a game is won does not count."""
        if not state.spiel.is_terminal():
            return None
        return float(np.sign(state.spiel.returns()[state.player ^ self._first])) + 0.0

    def key(self, state: State) -> bytes:
        """A hash of the observation, the side to move, the legal moves and the result."""
        facts = f"{state.player} {state.legal.tolist()} {self.outcome(state)}"
        return hashlib.blake2b(observed(state.spiel, 1).tobytes() + facts.encode(), digest_size=16).digest()

    def history(self, state: State) -> tuple[str, tuple[int, ...]]:
        """The start and all moves."""
        return START, state.made

    def move_from_text(self, state: State, text: str) -> int:
        """Id of a move by OpenSpiel's name of it in this position, or by its number."""
        wanted = text.strip()
        for move, name in state.names.items():
            if wanted in (name, str(move)):
                return move
        self.moves.index(wanted)  # a ValueError where it is neither name nor number
        raise self._illegal(state, text)

    def _illegal(self, state: State, text: str) -> IllegalMoveError:
        names = ", ".join(f"{name} ({move})" for move, name in state.names.items()) or "none, the game is over"
        return IllegalMoveError(f"move {text!r} is illegal in {self.format(state)!r}; legal: {names}")


class OpenSpielView(View[State]):
    """OpenSpiel's own texts of boards and moves."""

    game: OpenSpielGame

    @property
    def title(self) -> str:
        """OpenSpiel's name of the game, and the parameters that are not the usual ones."""
        kind, parameters = self.game.rules.get_type(), sorted(self.game.rules.get_parameters().items())
        usual = kind.parameter_specification
        more = ", ".join(f"{key} {value}" for key, value in parameters if value != usual.get(key))
        return str(kind.long_name) + f" ({more})" * bool(more)

    @property
    def drawing(self) -> Drawing:
        """Symbols as text, nothing on empty squares, a dark cell where there is no square; OpenSpiel's text where the
        tensor is not one layer of cells."""
        outside = '<rect width="100" height="100" fill="#9aa5b1"/>'
        empty = next((each for each in EMPTY if each in self.game.tokens.symbols), "")
        return Drawing(pieces={empty: "", OUTSIDE: outside}, written=len(self.game.tokens.reading.layers) != 1)

    def board_text(self, state: State) -> str:
        """OpenSpiel's own text, without colours."""
        return plain(str(state.spiel)).rstrip("\n")

    def move_text(self, state: State, move_id: int) -> str:
        """OpenSpiel's name of the move; its id where the name says less than that."""
        return state.names[int(move_id)]
