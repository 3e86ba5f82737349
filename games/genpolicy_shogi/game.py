"""Shogi as the library sees it: rules and texts from cshogi behind checks of our own, moves and tokens of our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy.control import FREE
from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game, IntArray, MovePlanes, Symmetry
from genpolicy_shogi import display, labels, rules
from genpolicy_shogi import state as states
from genpolicy_shogi.facets import ShogiFiles, ShogiHints, ShogiView
from genpolicy_shogi.moves import flipped_ids, make_vocabulary
from genpolicy_shogi.sfen import STARTPOS
from genpolicy_shogi.state import ShogiState
from genpolicy_shogi.tokens import ShogiTokenizer
from genpolicy_shogi.tsume import MateSearch

DECLARATIONS = ("27", "24", "none")
"""Rules of declaration that a game may have; the first is the usual one."""


class ShogiGame(Game[ShogiState]):
    """Shogi. Player 0 is Black (sente); texts are SFENs (see ``parse``).

    Args:
        declaration: The rule by which a king that has entered the other camp ends the game: ``27``, ``24`` or ``none``.
            USI has no move for a declaration (an engine answers ``bestmove win``) and neither has the vocabulary, so a
            position in which the player to move can declare *is decided*: ``outcome`` is 1 where the declaration wins
            and, under the 24-point rule, 0 where it draws. Like a draw by repetition this does not empty ``legal``.
        max_plies: A game that has so many plies without mate is a draw; ``none``: no limit. The plies before a start in
            mid-game count as far as the start's move number tells them.

    Raises:
        ValueError: another value.
    """

    name = "shogi"
    protocol: Literal["uci", "usi", "none"] = "usi"
    players = ("Black", "White")

    def __init__(self, declaration: str = "27", max_plies: str = "none") -> None:
        if declaration not in DECLARATIONS:
            raise ValueError(f"shogi: declaration must be one of {', '.join(DECLARATIONS)}, got {declaration!r}")
        self.declaration_rule = declaration
        self.max_plies = _max_plies(max_plies)
        usual = declaration == DECLARATIONS[0] and self.max_plies is None
        self.spec = "shogi" if usual else f"shogi:declaration={declaration},max_plies={self.max_plies or 'none'}"
        self.moves = make_vocabulary()
        self.tokens = ShogiTokenizer()
        self._mates = MateSearch()
        self.files = ShogiFiles(self, self._mates)
        self.hints = ShogiHints(self)
        self.view = ShogiView(self)
        self._flipped_ids = flipped_ids()
        self._symmetries = (Symmetry("left-right flip", self._flipped, self._flipped_ids),)

    # Texts.

    def parse(self, text: str | None = None) -> ShogiState:
        """The state of a text; the initial position without one.

        Accepted are an SFEN, with or without its move number and with or without ``sfen`` before it; ``startpos``; each
        with ``position`` before it and ``moves`` and USI moves behind it, as in the protocol. Handicap positions (fewer
        pieces than a set) and mate problems (one king) are positions like others.

        Raises:
            ValueError: another text, an illegal position or an illegal move; the message quotes the text and says what
                is wrong.
        """
        if text is None:
            return states.parse_sfen(STARTPOS)
        if not isinstance(text, str):
            raise ValueError(f"an SFEN is text, got {type(text).__name__} {text!r}")
        words = text.split()
        if words[:1] == ["position"]:
            words = words[1:]
        if words[:1] == ["startpos"] and words[1:2] in ([], ["moves"]):
            words = [*STARTPOS.split(), *words[1:]]
        elif words[:1] == ["sfen"]:
            words = words[1:]
        if "moves" not in words:
            return states.parse_sfen(text, words)
        at = words.index("moves")
        state = states.parse_sfen(text, words[:at])
        for number, move in enumerate(words[at + 1 :], 1):
            try:
                state = self.play(state, self.moves.index(move))
            except ValueError as error:
                raise ValueError(f"{text!r}: move {number}: {error}") from error
        return state

    def format(self, state: ShogiState) -> str:
        """The SFEN, always with move number 1: the number is not a part of the position."""
        return states.text_of(state)

    # Rules.

    def legal(self, state: ShogiState) -> NDArray[np.int64]:
        """Sorted ids of the legal moves: of cshogi's legal list, which has no dropped pawn that mates."""
        return state.legal().copy()

    def play(self, state: ShogiState, move_id: int) -> ShogiState:
        """The state after a legal move; ``state`` stays as it is.

        Raises:
            IllegalMoveError: the move is not legal there, or not an id of the vocabulary.
        """
        try:
            number = index(move_id)
        except TypeError:
            raise IllegalMoveError(self._illegal(state, f"{move_id!r} (a move is its id, a whole number)")) from None
        if not state.is_legal(number):
            text = repr(self.moves[number]) if 0 <= number < len(self.moves) else f"of id {number}"
            raise IllegalMoveError(self._illegal(state, text))
        return states.after(state, number)

    def _illegal(self, state: ShogiState, move: str, reason: str = "") -> str:
        legal = " ".join(self.moves[i] for i in state.legal()) or "none"
        return f"move {move} is illegal in {self.format(state)!r}{reason}; legal: {legal}"

    def player(self, state: ShogiState) -> int:
        """0 where Black is to move, 1 where White is."""
        return state.turn

    def outcome(self, state: ShogiState) -> float | None:
        """Result for the player to move; None while the game runs. The first of these that holds:

        -1 without a legal move, in check or not; what the fourth occurrence of the position means
        (``rules.repetition``: 0, or a loss of the side that always gave check); 0 at the limit of plies; what the
        player to move may declare (``declaration``).
        """
        if state.has_no_move():
            return -1.0
        repeated = rules.repetition(state.keys)
        if repeated is not None:
            return repeated
        if self.max_plies is not None and state.number > self.max_plies:
            return 0.0
        return self.declaration(state)

    def declaration(self, state: ShogiState) -> float | None:
        """What the player to move gets by declaring under the game's rule: 1.0 a win, 0.0 a draw, None nothing."""
        return rules.declaration(state, self.declaration_rule)

    def key(self, state: ShogiState) -> bytes:
        """Pieces, hands and side to move, packed."""
        return state.keys[-1]

    def canonical_key(self, state: ShogiState) -> str:
        """One key for a position and its mirror image."""
        return min(str(state.keys[-1]), str(states.flipped_key(state.keys[-1])))

    def history(self, state: ShogiState) -> tuple[str, tuple[int, ...]]:
        """SFEN of the first position known, with its move number, and the ids of the moves since."""
        return states.text_of_key(state.keys[0], state.start_number), state.moves

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Left and right exchanged. Exchanging the colours is not a symmetry: Black needs a point more to declare."""
        return self._symmetries

    def _flipped(self, state: ShogiState) -> ShogiState:
        return states.flipped(state, self._flipped_ids)

    # Moves by other names.

    def labels(self, move_ids: IntArray, players: IntArray | int) -> NDArray[np.int64]:
        """dlshogi's labels (0..2186) of absolute move ids that ``players`` make; see ``genpolicy_shogi.labels``.

        Raises:
            ValueError: a move that its player can never make.
        """
        return labels.labels_of(self.moves.mirrored, move_ids, players)

    def move_of_label(self, state: ShogiState, label: int) -> int:
        """Id of the legal move that has one of dlshogi's labels.

        Raises:
            ValueError: no legal move has it.
        """
        return labels.move_of_label(state, label, self.moves.mirrored)

    def move_from_text(self, state: ShogiState, text: str) -> int:
        """Id of a move in USI (``7g7f``, ``P*5e``; capitals do not matter), CSA (``7776FU``) or Japanese (``７六歩``).

        Raises:
            ValueError: not a move, ambiguous, or not legal in the position.
        """
        try:
            usi = display.typed_move(state, text)
        except ValueError as error:
            raise IllegalMoveError(self._illegal(state, repr(text), f" ({error})")) from error
        for found in state.legal():
            if self.moves[found] == usi:
                return int(found)
        raise IllegalMoveError(self._illegal(state, repr(text)))

    def planes(self, states: Sequence[ShogiState]) -> NDArray[np.float32]:
        """dlshogi's 62 + 57 input planes, seen by the player to move, in the tokens' rows and columns: [B, 119, 9, 9].

        ``genpolicy_shogi.planes.features`` gives both inputs as dlshogi's own networks take them.
        """
        from genpolicy_shogi.planes import planes

        return planes(states)

    def move_planes(self) -> MovePlanes:
        """dlshogi's 27 planes of move labels in the tokens' rows and columns: [27, 9, 9] by target square."""
        return MovePlanes((labels.NUM_PLANES, 9, 9), labels.cells())

    def mate_distance(self, state: ShogiState, max_plies: int, *, check: Callable[[], None] = FREE.check) -> int | None:
        """Plies of the shortest forced mate by checks alone, as in mate problems; None without one in ``max_plies``."""
        return self._mates.distance(self.format(state), max_plies, check)


def _max_plies(text: str) -> int | None:
    if text == "none":
        return None
    if not (str(text).isascii() and str(text).isdigit() and int(text) > 0):
        raise ValueError(f"shogi: max_plies must be a number above 0 or none, got {text!r}")
    return int(text)
