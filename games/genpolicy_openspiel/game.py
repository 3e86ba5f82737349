"""The rules of OpenSpiel's games. Position text: the ids of the moves from the start, ``"146 301"``, or ``"start"``.

OpenSpiel cannot be set to a position, so a text is a game; two orders of the same stones are two texts and one key.
Moves are OpenSpiel's action ids as text, for the names that people read depend on the position; both are accepted.
The ids of chance outcomes follow those of the players' actions.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping

import numpy as np
import pyspiel
from numpy.typing import NDArray

from genpolicy.drawing import Drawing
from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game, View
from genpolicy_openspiel import catalogue
from genpolicy_openspiel.board import EMPTY, OUTSIDE, face, plain
from genpolicy_openspiel.moves import vocabulary
from genpolicy_openspiel.survey import moves_made, observed, survey
from genpolicy_openspiel.tokens import ObservationTokens, State, reading

START = "start"


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

    def __init__(self, game: str = "", **parameters: str) -> None:
        self.rules = catalogue.load(game, parameters)
        self.spec = catalogue.specification(self.rules)
        self.has_chance = self.rules.max_chance_outcomes() > 0
        self._dice = self.rules.num_distinct_actions()
        self._first = catalogue.first_player(self.rules)
        shape = _board_shape(self.rules.observation_tensor_shape())
        try:
            seen = survey(self.rules, (shape[0], shape[1] * shape[2]))
            read = reading(np.concatenate([seen.before, seen.after, seen.chance]), board=shape[1] > 1)
        except UnicodeDecodeError as error:
            raise ValueError(f"game {self.spec!r}: what OpenSpiel writes of it is not UTF-8: {error.reason}") from error
        except pyspiel.SpielError as error:  # twixt keeps the size of the first board that a process makes
            raise ValueError(f"OpenSpiel refuses {self.spec!r}: {str(error).strip()}") from error
        except ValueError as error:
            fits = catalogue.SMALLER.get(game)
            raise ValueError(f"game {self.spec!r}: {error}" + f"; openspiel:{fits} fits" * bool(fits)) from error
        self.alternates = seen.alternates
        shown = seen.before[: len(seen.texts)]
        board = face(seen.texts, shown, read.layers[0] if read.layers else (), shape[2])
        self.tokens = ObservationTokens(shape, read, board, self.has_chance)
        none = np.zeros(0, np.int16)
        self.moves = vocabulary(self.rules, seen, *((board.rows, board.cols) if read.layers else (none, none)))
        self.view: OpenSpielView = OpenSpielView(self, written=len(read.layers) != 1)

    @classmethod
    def variants(cls) -> Mapping[str, str]:
        """Every game of OpenSpiel, with what it fails."""
        kinds = catalogue.kinds().items()
        return {f"openspiel:{catalogue.SMALLER.get(name, name)}": catalogue.unfit(kind) for name, kind in kinds}

    def _state(self, spiel: pyspiel.State, last: int) -> State:
        """The state of OpenSpiel's own after a move of a player of ours."""
        over, chance = spiel.is_terminal(), spiel.is_chance_node()
        player = 1 - last if over else last if chance else spiel.current_player() ^ self._first
        offset = self._dice if chance else 0
        return State(spiel, player, np.array([] if over else sorted(spiel.legal_actions()), np.int64) + offset, offset)

    # Texts.

    def parse(self, text: str | None = None) -> State:
        """The position after some moves; the initial one without a text or of ``"start"``."""
        state = self._state(self.rules.new_initial_state(), 0)
        if text is None or text == START:
            return state
        if not re.fullmatch(r"(0|[1-9]\d{0,5})( (0|[1-9]\d{0,5}))*", text):
            raise ValueError(
                f"{text!r} is not a position of {self.spec}: write {START!r} or the ids of moves from there"
            )
        spiel, last = state.spiel, 0
        for ply, move in enumerate(map(int, text.split())):
            chance = spiel.is_chance_node()
            action = move - self._dice if chance else move
            if spiel.is_terminal() or action not in spiel.legal_actions():
                raise ValueError(f"{text!r} is not a position of {self.spec}: move {move} at ply {ply} is not legal")
            last = last if chance else spiel.current_player() ^ self._first
            spiel.apply_action(action)
        return self._state(spiel, last)

    def format(self, state: State) -> str:
        """The moves from the start."""
        return " ".join(map(str, self._made(state))) or START

    def _made(self, state: State) -> list[int]:
        return moves_made(state.spiel) if self.has_chance else list(state.spiel.history())

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
        if move_id not in state.legal:
            named = self.moves[move_id] if 0 <= move_id < len(self.moves) else str(move_id)
            raise IllegalMoveError(f"move {named!r} is illegal in {self.format(state)!r}; legal: {self._choice(state)}")
        after = state.spiel.clone()
        after.apply_action(int(move_id) - state.offset)
        return self._state(after, state.player)

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
        tensor = observed(state.spiel, (1, -1))
        facts = f"{state.player} {state.legal.tolist()} {self.outcome(state)}"
        return hashlib.blake2b(tensor.tobytes() + facts.encode(), digest_size=16).digest()

    def history(self, state: State) -> tuple[str, tuple[int, ...]]:
        """The start and all moves."""
        return START, tuple(self._made(state))

    def move_from_text(self, state: State, text: str) -> int:
        """Id of a move by OpenSpiel's name of it in this position, or by its number."""
        wanted = text.strip()
        for move, name in state.names.items():
            if wanted in (name, self.moves[move]):
                return move
        self.moves.index(wanted)  # a ValueError where it is neither name nor number
        raise IllegalMoveError(f"move {text!r} is illegal in {self.format(state)!r}; legal: {self._choice(state)}")

    def _choice(self, state: State) -> str:
        names = [f"{name} ({move})" for move, name in state.names.items()]
        return ", ".join(names) or "none, the game is over"


class OpenSpielView(View[State]):
    """OpenSpiel's own texts of boards and moves.

    Args:
        game: The game.
        written: Whether OpenSpiel's text is drawn, since its tensor is not one layer of cells.
    """

    def __init__(self, game: OpenSpielGame, written: bool) -> None:
        super().__init__(game)
        self._written = written
        kind = game.rules.get_type()
        changed = {
            key: value
            for key, value in game.rules.get_parameters().items()
            if value != kind.parameter_specification.get(key)
        }
        more = ", ".join(f"{key} {value}" for key, value in sorted(changed.items()))
        self._title: str = kind.long_name + f" ({more})" * bool(more)

    @property
    def title(self) -> str:
        """OpenSpiel's name of the game, and the parameters that are not the usual ones."""
        return self._title

    @property
    def drawing(self) -> Drawing:
        """Symbols as text, nothing on empty squares, a dark cell where there is no square."""
        outside = '<rect width="100" height="100" fill="#9aa5b1"/>'
        empty = next((each for each in EMPTY if each in self.game.tokens.symbols), "")
        return Drawing(pieces={empty: "", OUTSIDE: outside}, written=self._written)

    def board_text(self, state: State) -> str:
        """OpenSpiel's own text, without colours."""
        return plain(str(state.spiel)).rstrip("\n")

    def move_text(self, state: State, move_id: int) -> str:
        """OpenSpiel's name of the move; its id where the name says less than that."""
        return state.names[int(move_id)]


def _board_shape(shape: list[int]) -> tuple[int, int, int]:
    """Planes, rows and columns of an observation; one row for a tensor that is not a board."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 2 and math.isqrt(shape[1]) ** 2 == shape[1]:
        return shape[0], math.isqrt(shape[1]), math.isqrt(shape[1])
    return 1, 1, math.prod(shape)
