"""What a game plugin supplies: rules, a fixed move vocabulary and a fixed-length state tokenizer.

Two players, perfect information. Player 0 moves first from the initial position (White in chess, Black in shogi).
States are opaque to the core. A state carries the history that its repetition rule needs.

Views: every token row and move id is seen from one player's side, its *viewer*. Player 0's view is the absolute one.
Player 1's view is the same position with the board turned and the colours swapped, so that the viewer's own pieces
always have the same symbols and move in the same direction. A window keeps one viewer for all its imagined states (the
player to move at its root); nothing flips from ply to ply.

Axes: B batch, L tokens of a state, S state symbols, M moves of the vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from genpolicy.drawing import Drawing
from genpolicy.encoding import IntArray as IntArray
from genpolicy.encoding import MovePlanes as MovePlanes
from genpolicy.encoding import MoveVocabulary as MoveVocabulary
from genpolicy.encoding import StateTokenizer as StateTokenizer
from genpolicy.errors import SourceError
from genpolicy.sources import PlayedGame as PlayedGame
from genpolicy.sources import Position as Position
from genpolicy.sources import PublishedResult as PublishedResult
from genpolicy.sources import Puzzle as Puzzle

StateT = TypeVar("StateT")
State = Any
OnBad = Callable[[SourceError], None]


@dataclass(frozen=True)
class Symmetry:
    """A map of states that commutes with the rules."""

    name: str
    state: Callable[[Any], Any]
    """State -> state."""
    moves: NDArray[np.int64]
    """[M] permutation of move ids that goes with it."""


class Game(ABC, Generic[StateT]):
    """The rules of one game and its encodings; everything the core knows of a game, it knows from here."""

    name: str
    """Entry-point name, e.g. ``"chess"``."""
    spec: str
    """What ``genpolicy.load_game`` takes to make this game again, with every argument in a canonical order."""
    moves: MoveVocabulary
    tokens: StateTokenizer[StateT]
    protocol: Literal["uci", "usi", "none"]
    players: tuple[str, str]
    """Names of the two sides for people, player 0 first, e.g. ``("White", "Black")``."""
    game_suffix: str = ""
    """End of the names of the files that ``write_game`` writes, e.g. ``".pgn"``; "" where the game writes none."""

    usual: ClassVar[tuple[str, ...]] = ()
    """Specifications that a list of games to choose from shows; () for the name alone."""

    @abstractmethod
    def parse(self, text: str | None = None) -> StateT:
        """The state of a text; the initial position without one.

        Raises:
            ValueError: the text is no legal position; the message quotes it.
        """

    @abstractmethod
    def format(self, state: StateT) -> str:
        """The text of a state (FEN, SFEN, ...); history is not in it."""

    @abstractmethod
    def legal(self, state: StateT) -> NDArray[np.int64]:
        """Sorted ids of the legal moves, by the piece rules alone; empty where none is.

        A draw that can be claimed does not empty it, so that a record which plays on replays.
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
        """Result in [-1, 1] for the player to move; None while the game runs. Draws by rule included."""

    @abstractmethod
    def key(self, state: StateT) -> str | bytes | int:
        """Equal for positions that are the same for the rules' repetition test (move counters left out)."""

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Maps of states that commute with the rules, without the identity; () where there is none."""
        return ()

    def canonical_key(self, state: StateT) -> str:
        """One key for a position and all its symmetric copies; splits by position use it."""
        return min(str(self.key(s)) for s in [state, *(symmetry.state(state) for symmetry in self.symmetries)])

    def board_text(self, state: StateT) -> str:
        """A board for the terminal, several lines; the state's text where a game has nothing better."""
        return self.format(state)

    def move_from_text(self, state: StateT, text: str) -> int:
        """Id of a move that a person typed (protocol notation; a game may accept more, SAN for example).

        Raises:
            ValueError: not a move, or not legal in the position.
        """
        from genpolicy.errors import IllegalMoveError

        move_id = self.moves.index(text.strip())
        if move_id not in self.legal(state):
            legal = " ".join(self.moves[i] for i in self.legal(state))
            raise IllegalMoveError(f"move {text!r} is illegal in {self.format(state)!r}; legal: {legal}")
        return move_id

    # What follows is optional; the default says so in words.

    @property
    def title(self) -> str:
        """What people call the game, e.g. ``Chess``; made of the specification where a game does not say."""
        name, _, rest = self.spec.partition(":")
        return name.capitalize() + f" ({rest.replace(',', ', ')})" * bool(rest)

    @property
    def game_suffixes(self) -> tuple[str, ...]:
        """Ends of names of the files with names and a result that ``write_game`` writes, the usual one first."""
        return (self.game_suffix,) if self.game_suffix else ()

    def move_text(self, state: StateT, move_id: int) -> str:
        """A legal move as people write it there (``Nf3``); ``move_from_text`` reads it back. Protocol text by default.

        Args:
            state: The position before the move.
            move_id: Absolute id of a move that is legal in it.
        """
        del state
        return self.moves[move_id]

    def ending(self, state: StateT) -> str:
        """Why the game is over in a position in which it is, in a few words: ``checkmate``, ``repetition``."""
        return "draw" if self.outcome(state) == 0 else "by the rules"

    def check(self, state: StateT) -> int | None:
        """Index of the state token, in the absolute view, of a piece that the player to move has to save.

        A king in check; None where there is none, or the game knows nothing of the kind.
        """
        return None

    @property
    def published(self) -> tuple[PublishedResult, ...]:
        """Results that others reported for this game; () where there are none."""
        return ()

    def history(self, state: StateT) -> tuple[str, tuple[int, ...]]:
        """Text of the first position that the state knows of and the moves (absolute ids) from there to it.

        An engine that is told both sees repetitions. Without a game's own answer the state stands alone.
        """
        return self.format(state), ()

    def positions(self) -> Iterator[StateT]:
        """Every reachable position of a small game, each once.

        Raises:
            ValueError: the game is too large, or does not supply this.
        """
        raise ValueError(f"game {self.spec!r} cannot enumerate its positions")

    def evaluate(self, state: StateT) -> float:
        """A heuristic value in [-1, 1] for the player to move.

        Raises:
            ValueError: the game does not supply one.
        """
        raise ValueError(f"game {self.spec!r} has no heuristic evaluation")

    def is_quiet(self, state: StateT) -> bool:
        """Whether a heuristic value can be trusted here; True where the game does not say."""
        return True

    def forcing(self, state: StateT) -> NDArray[np.int64] | None:
        """Legal moves that a search still looks at beyond its depth where the position is not quiet, best ones first.

        The player to move may also leave things as they stand, at the heuristic value. None: it may not, and every
        legal move counts (the player is in check); so it is where the game does not say.
        """
        return None

    def declaration(self, state: StateT) -> float | None:
        """What the player to move gets by a declaration in place of a move: 1 a win, 0 a draw; None: it has none."""
        return None

    def transposition_key(self, state: StateT, plies: int) -> Hashable | None:
        """Equal for positions that are alike for whatever the rules can bring within some plies.

        To ``key`` it adds what the past can still change within ``plies``: earlier positions that may come again,
        counters of moves without progress. A search shares values between positions of one such key.

        Args:
            state: A position.
            plies: How far ahead; a tail of ``forcing`` moves after them is not counted.

        Returns:
            None where the game does not say: nothing is shared then.
        """
        return None

    def planes(self, states: Sequence[StateT]) -> NDArray[np.float32]:
        """Input planes of a convolutional network, shape [B, channels, rows, columns].

        Raises:
            ValueError: the game does not supply any.
        """
        raise ValueError(f"game {self.spec!r} has no input planes")

    def move_planes(self) -> MovePlanes:
        """The grid on which a convolutional network answers.

        Raises:
            ValueError: the game does not supply one.
        """
        raise ValueError(f"game {self.spec!r} has no planes of moves")

    @property
    def drawing(self) -> Drawing:
        """How people see the board."""
        return Drawing()

    def svg(self, state: StateT) -> str:
        """A drawing of the position.

        Raises:
            ValueError: the game does not supply one.
        """
        raise ValueError(f"game {self.spec!r} draws no SVG")

    def source_kind(self, path: Path) -> Literal["games", "positions"]:
        """Which of ``open_games`` and ``open_positions`` reads a file or folder, by its name and content.

        A game that supplies only one of the two need not say.

        Raises:
            SourceError: it does not exist, or is of no kind that the game reads; the message names those.
        """
        reads_games = type(self).open_games is not Game.open_games
        reads_positions = type(self).open_positions is not Game.open_positions
        if reads_games != reads_positions:
            return "games" if reads_games else "positions"
        raise SourceError(f"{path}: game {self.spec!r} reads no files of games or positions")

    def open_games(self, path: Path, on_bad: OnBad | None = None) -> Iterator[PlayedGame]:
        """Games of a file, streamed in constant memory (``.gz`` and ``.zst`` are unpacked on the way).

        Args:
            path: The file.
            on_bad: Called with a SourceError for each unreadable game, which is then skipped; None: raise it.

        Raises:
            SourceError: an unreadable or illegal game (file, line and move in the message), or no game at all.
        """
        raise SourceError(f"{path}: game {self.spec!r} reads no game files")

    def open_positions(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Position]:
        """Positions of a file (EPD, FEN or SFEN lists, labelled records of others), streamed; errors as above."""
        raise SourceError(f"{path}: game {self.spec!r} reads no position files")

    def open_puzzles(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Puzzle]:
        """Puzzles of a file, streamed; their moves have been played and are legal.

        Args:
            path: The file.
            on_bad: Called with a SourceError for each unreadable or illegal puzzle, which is then skipped; None: raise.

        Raises:
            SourceError: an unreadable or illegal puzzle (file, line and move in the message), or no puzzle at all.
        """
        raise SourceError(f"{path}: game {self.spec!r} reads no puzzle files")

    def mate_distance(self, state: StateT, max_plies: int) -> int | None:
        """Plies in which the player to move wins by force: 1 where a move wins at once, 3, 5, ...

        The attacker wins as fast and the defender loses as slowly as possible. By exhaustive search, deeper and deeper;
        a game may supply something faster, and may restrict the attacker to what its mate problems allow (checks).

        Args:
            state: A position in which the game runs.
            max_plies: The longest win to look for; the work grows exponentially with it.

        Returns:
            The number of plies, odd; None where no win is forced within ``max_plies``.
        """
        seen: dict[tuple[Any, int], bool] = {}
        return next((plies for plies in range(1, max_plies + 1, 2) if _wins_within(self, state, plies, seen)), None)

    def write_game(self, path: Path, game: PlayedGame) -> None:
        """Append one game to a file in the game's usual format; the file is made if need be.

        What was written is on its way to the disk when this returns (the file is closed). ``open_games`` reads it back
        with the same start, moves, result and names of the players.

        Args:
            path: A file whose name ends in ``game_suffix`` or in another that the format allows.
            game: What was played; of its headers the format keeps those that it has a place for.

        Raises:
            ValueError: the game does not supply this.
        """
        raise ValueError(f"game {self.spec!r} writes no game files")

    def write_games(self, path: Path, games: Iterable[PlayedGame]) -> int:
        """Write games in the format that the file's name says, in place of what it held; how many were written.

        A game that the format cannot hold is left out.

        Raises:
            ValueError: the game does not supply this.
        """
        if type(self).write_game is Game.write_game:
            raise ValueError(f"game {self.spec!r} writes no game files")
        path.write_bytes(b"")
        count = 0
        for game in games:
            self.write_game(path, game)
            count += 1
        return count

    def write_positions(self, path: Path, positions: Iterable[Position]) -> int:
        """Write positions and what is known of them to a new file, in the game's format that its name says.

        Args:
            path: The file.
            positions: In order; the positions of a game follow each other. What the format cannot hold is left out.

        Returns:
            How many positions were written.

        Raises:
            ValueError: the game does not supply this, or not in a format of this name.
        """
        raise ValueError(f"{path}: game {self.spec!r} writes no files of positions")


def _wins_within(game: Game[Any], state: Any, plies: int, seen: dict[tuple[Any, int], bool]) -> bool:
    """Whether the player to move can force a win within ``plies``, an odd number.

    ``seen`` remembers by position and plies left. A shortest win repeats no position, so the histories that ``key``
    leaves out matter only for rules that count moves without progress.
    """
    known = (game.key(state), plies)
    if known not in seen:
        after = [game.play(state, int(move)) for move in game.legal(state)]
        ends = [game.outcome(answer) for answer in after]
        running = [answer for answer, end in zip(after, ends, strict=True) if end is None] if plies > 1 else []
        seen[known] = -1 in ends or any(_loses_within(game, answer, plies - 1, seen) for answer in running)
    return seen[known]


def _loses_within(game: Game[Any], state: Any, plies: int, seen: dict[tuple[Any, int], bool]) -> bool:
    """Whether every move of the player to move loses within ``plies``, an even number, that move counted."""
    for move in game.legal(state):
        reply = game.play(state, int(move))
        end = game.outcome(reply)
        if end != 1 and (end is not None or not _wins_within(game, reply, plies - 1, seen)):
            return False
    return True
