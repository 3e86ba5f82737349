"""Game: the rules of a game, a fixed move vocabulary and a fixed-length state tokenizer.

Two players, perfect information; dice may decide, too (``Game.chance``). Player 0 moves first from the initial position
(White in chess, Black in shogi).
States are opaque to the library. A state carries the history that its repetition rule needs. Threads share states, so
reading one must not change it even for a moment.

Viewers: every token row and move id is seen from one player's side, its *viewer*. Player 0's view is the absolute one.
Player 1's view is the same position with the board turned and the colours swapped, so that the viewer's own pieces
always have the same symbols and move in the same direction. A window keeps one viewer for all its imagined states (the
player to move at its root); nothing flips from ply to ply.

Axes: B batch, L tokens of a state, S state symbols, M moves of the vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from genpolicy.control import FREE
from genpolicy.encoding import IntArray as IntArray
from genpolicy.encoding import MovePlanes as MovePlanes
from genpolicy.encoding import MoveVocabulary as MoveVocabulary
from genpolicy.encoding import StateTokenizer as StateTokenizer
from genpolicy.errors import ConfigError, IllegalMoveError
from genpolicy.facets import Files as Files
from genpolicy.facets import Hints as Hints
from genpolicy.facets import OnBad as OnBad
from genpolicy.facets import View as View
from genpolicy.sources import PlayedGame as PlayedGame
from genpolicy.sources import Position as Position
from genpolicy.sources import PublishedResult as PublishedResult
from genpolicy.sources import Puzzle as Puzzle

StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Symmetry:
    """A map of states that commutes with the rules."""

    name: str
    state: Callable[[Any], Any]
    """State -> state."""
    moves: NDArray[np.int64]
    """[M] permutation of move ids that goes with it."""


class Game(ABC, Generic[StateT]):
    """The rules of one game and its encodings: all that the library knows of it.

    What a game may have beside its rules are its facets: ``files``, ``hints`` and ``view`` (``genpolicy.facets``).
    """

    name: str
    """Entry-point name, e.g. ``"chess"``."""
    spec: str
    """What ``genpolicy.load_game`` takes to make this game again, with every argument in a canonical order."""
    moves: MoveVocabulary
    tokens: StateTokenizer[StateT]
    tokenizers: Mapping[str, StateTokenizer[StateT]] = MappingProxyType({})
    """Other tokenizers of the same states, with the same places, by the names that a learner may choose them by."""
    protocol: Literal["uci", "usi", "none"]
    players: tuple[str, str]
    """Names of the two sides for people, player 0 first, e.g. ``("White", "Black")``."""
    alternates: bool = True
    """Whether each move gives the turn to the other player. Where not, what counts plies by sides refuses the game."""
    has_chance: bool = False
    """Whether nature moves anywhere, as ``chance`` says; what does not know chance refuses such a game."""

    files: Files | None = None
    """Reads and writes files; None where the game has no files."""
    hints: Hints[StateT] | None = None
    """Guides searches; None where the game knows its rules alone."""
    usual: ClassVar[tuple[str, ...]] = ()
    """Specifications that a list of games to choose from shows; () for the name alone."""

    @classmethod
    def variants(cls) -> Mapping[str, str]:
        """Specifications of a class that stands for many games, each with why it cannot be played, or ``""``.

        A class that needs no argument has none.
        """
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec!r})"

    def tokenizer(self, name: str) -> StateTokenizer[StateT]:
        """The tokenizer of a name; ``tokens`` for an empty one.

        Raises:
            ConfigError: the game has none of that name.
        """
        if name and name not in self.tokenizers:
            alone = "it has its own alone: leave out learner.tokens, or write learner.tokens=\"''\""
            known = f"it has: {', '.join(self.tokenizers)}" if self.tokenizers else alone
            raise ConfigError(f"learner.tokens: {self.spec} has no tokenizer {name!r}; {known}")
        return self.tokenizers[name] if name else self.tokens

    @cached_property
    def view(self) -> View[StateT]:
        """How people see the game; a game's own constructor may set another."""
        return View(self)

    @abstractmethod
    def parse(self, text: str | None = None) -> StateT:
        """The state of a text; the initial position without one.

        Raises:
            ValueError: the text is not a legal position; the message quotes it.
        """

    @abstractmethod
    def format(self, state: StateT) -> str:
        """The text of a state (FEN, SFEN, ...); history is not in it."""

    @abstractmethod
    def legal(self, state: StateT) -> NDArray[np.int64]:
        """Sorted ids of the legal moves, by the piece rules alone; empty where there is none.

        A draw that can be claimed does not empty it: records of games that were played on after one can be replayed.
        """

    @abstractmethod
    def play(self, state: StateT, move_id: int) -> StateT:
        """The state after a legal move; ``state`` stays as it is.

        Raises:
            IllegalMoveError: the move is not legal there; the message names it, the position and the legal moves.
        """

    @abstractmethod
    def player(self, state: StateT) -> int:
        """Player to move, 0 or 1."""

    @abstractmethod
    def outcome(self, state: StateT) -> float | None:
        """Result in [-1, 1] for the player to move, draws by rule included; None while the game runs."""

    def is_over(self, state: StateT) -> bool:
        """Whether the game has ended, by its outcome or because nothing can be played."""
        return self.outcome(state) is not None or len(self.legal(state)) == 0

    @abstractmethod
    def key(self, state: StateT) -> str | bytes | int:
        """Equal for positions that are the same for the rules' repetition test (move counters left out)."""

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Maps of states that commute with the rules, except the identity; () where there is none.

        A whole group: with two of them also what they make together, or the copies of a position have no common key.
        """
        return ()

    def canonical_key(self, state: StateT) -> str:
        """One key for a position and all its symmetric copies; splits by position use it."""
        return min(str(self.key(s)) for s in [state, *(symmetry.state(state) for symmetry in self.symmetries)])

    def move_from_text(self, state: StateT, text: str) -> int:
        """Id of a move that a person typed (protocol notation; a game may accept more, SAN for example).

        Raises:
            ValueError: not a move, or not legal in the position.
        """
        try:
            move_id = self.moves.index(text.strip())
        except ValueError:
            move_id = -1
        if move_id not in self.legal(state):
            legal = " ".join(self.moves[i] for i in self.legal(state))
            raise IllegalMoveError(f"move {text!r} is illegal in {self.format(state)!r}; legal: {legal}")
        return move_id

    # What follows is optional.

    def chance(self, state: StateT) -> NDArray[np.float64] | None:
        """Probabilities of ``legal(state)``, in its order, where nature moves; None, the default, where a player does.

        Nature's outcomes (dice, cards) are moves like others. ``player`` is then who moved last, in whose view the
        outcomes are drawn, and ``outcome`` is None. ``genpolicy.chance`` draws them.
        """
        return None

    @property
    def published(self) -> tuple[PublishedResult, ...]:
        """Results that others reported for this game; () where there are none."""
        return ()

    def history(self, state: StateT) -> tuple[str, tuple[int, ...]]:
        """Text of the first position that the state knows of and the moves (absolute ids) from there to it.

        An engine that receives both sees repetitions, and a search takes up its tree only where they agree. By default
        a state has no history.
        """
        return self.format(state), ()

    def past(self, state: StateT) -> tuple[str, tuple[int, ...]]:
        """As ``history``, for learners: moves that states remember although the rules never ask how they came about."""
        return self.history(state)

    def positions(self) -> Iterator[StateT]:
        """Every reachable position of a small game, each once.

        Raises:
            ValueError: the game is too large, or does not supply this.
        """
        raise ValueError(f"game {self.spec!r} cannot enumerate its positions")

    def declaration(self, state: StateT) -> float | None:
        """What the player to move gets by declaring in place of a move: 1 a win, 0 a draw; None if it may not."""
        return None

    def planes(self, states: Sequence[StateT]) -> NDArray[np.float32]:
        """Input planes of a convolutional network, shape [B, channels, rows, columns].

        Raises:
            ValueError: the game supplies none.
        """
        raise ValueError(f"game {self.spec!r} has no input planes")

    def move_planes(self) -> MovePlanes:
        """Where each move lies on the output planes of a convolutional network.

        Raises:
            ValueError: the game supplies none.
        """
        raise ValueError(f"game {self.spec!r} has no planes of moves")

    def mate_distance(self, state: StateT, max_plies: int, *, check: Callable[[], None] = FREE.check) -> int | None:
        """Plies in which the player to move wins by force: 1 where a move wins at once, 3, 5, ...

        The attacker wins as fast and the defender loses as slowly as possible. The default searches exhaustively,
        deeper and deeper. A game may override it with something faster, which may restrict the attacker to what the
        game's mate problems allow (checks).

        Args:
            state: A position in which the game runs.
            max_plies: The longest win to look for; the work grows exponentially with it.
            check: Called again and again while it searches; what it raises ends the search.

        Returns:
            The number of plies, odd; None where no win is forced within ``max_plies``.

        Raises:
            ValueError: the players of the game do not alternate.
        """
        if not self.alternates:
            raise ValueError(f"game {self.spec!r}: distances to mate need players that alternate")
        seen: dict[tuple[Any, int], bool] = {}
        lengths = range(1, max_plies + 1, 2)
        return next((plies for plies in lengths if _wins_within(self, state, plies, seen, check)), None)


def _wins_within(
    game: Game[Any], state: Any, plies: int, seen: dict[tuple[Any, int], bool], check: Callable[[], None]
) -> bool:
    """Whether the player to move can force a win within ``plies``, an odd number.

    ``seen`` holds the results by position and plies left. A shortest win repeats no position, so the histories that
    ``key`` leaves out matter only for rules that count moves without progress.
    """
    known = (game.key(state), plies)
    if known not in seen:
        check()
        after = [game.play(state, int(move)) for move in game.legal(state)]
        ends = [game.outcome(answer) for answer in after]
        running = [answer for answer, end in zip(after, ends, strict=True) if end is None] if plies > 1 else []
        seen[known] = -1 in ends or any(_loses_within(game, answer, plies - 1, seen, check) for answer in running)
    return seen[known]


def _loses_within(
    game: Game[Any], state: Any, plies: int, seen: dict[tuple[Any, int], bool], check: Callable[[], None]
) -> bool:
    """Whether every move of the player to move loses within ``plies``, an even number, that move counted."""
    for move in game.legal(state):
        reply = game.play(state, int(move))
        end = game.outcome(reply)
        if end != 1 and (end is not None or not _wins_within(game, reply, plies - 1, seen, check)):
            return False
    return True
