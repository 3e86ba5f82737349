"""The facets of a game: what a game may have beside its rules, each an object of its own.

``Game.files`` reads and writes files, ``Game.hints`` guides searches, ``Game.view`` shows the game to people. A game
without files or without hints has None there; every game has a view. A facet declares what it supplies, in
``Files.reads``, ``Files.writes`` and ``Hints.gives``. Callers read the declaration and never which methods a class
overrides, so a game that wraps another may pass its facets on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from genpolicy.drawing import Drawing
from genpolicy.errors import SourceError
from genpolicy.files import OnBad as OnBad
from genpolicy.sources import PlayedGame, Position, Puzzle
from genpolicy.values import CENTIPAWN_SCALE

if TYPE_CHECKING:
    from genpolicy.game import Game

StateT = TypeVar("StateT")


class Files:
    """The files of a game: games, positions and puzzles.

    A method that ``reads`` and ``writes`` do not name is never called.
    """

    reads: tuple[Literal["games", "positions", "puzzles"], ...] = ()
    """Which of ``open_games``, ``open_positions`` and ``open_puzzles`` it supplies."""
    writes: tuple[Literal["games", "positions"], ...] = ()
    """``"games"`` for ``write_game``, ``"positions"`` for ``write_positions``."""
    suffixes: tuple[str, ...] = ()
    """Ends of the names under which a person may save a game, the usual one first: ``(".pgn",)``."""

    @property
    def log_suffix(self) -> str:
        """End of the name of a file to which games are appended as they are played; the first suffix by default."""
        return self.suffixes[0] if self.suffixes else ""

    def source_kind(self, path: Path) -> Literal["games", "positions"]:
        """Which of ``open_games`` and ``open_positions`` reads a file or folder, by its name and content.

        A game that supplies only one of the two need not say.

        Raises:
            SourceError: it does not exist, or the game does not read this kind of file; the message names those it
                reads.
        """
        if "games" in self.reads and "positions" in self.reads:
            raise NotImplementedError(f"{type(self).__name__} reads games and positions and must say which is which")
        return "games" if "games" in self.reads else "positions"

    def open_games(self, path: Path, on_bad: OnBad | None = None) -> Iterator[PlayedGame]:
        """Games of a file, streamed in constant memory (``.gz`` and ``.zst`` are unpacked on the way).

        Args:
            path: The file.
            on_bad: Called with a SourceError for each unreadable game, which is then skipped; None raises it.

        Raises:
            SourceError: an unreadable or illegal game (file, line and move in the message), or no game at all.
        """
        raise NotImplementedError

    def open_positions(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Position]:
        """Positions of a file (EPD, FEN or SFEN lists, labelled records of others), streamed; as ``open_games``."""
        raise NotImplementedError

    def open_puzzles(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Puzzle]:
        """Puzzles of a file, streamed; their moves have been played and are legal. The rest as ``open_games``."""
        raise NotImplementedError

    def write_game(self, path: Path, game: PlayedGame) -> None:
        """Append one game to a file in the format of its name; the file is created where it does not exist.

        The file is closed on return. ``open_games`` reads the game back with the same start, moves, result and names
        of the players.

        Args:
            path: A file whose name ends in ``log_suffix``, in one of ``suffixes``, or as the format allows.
            game: What was played; the format keeps those of its headers that it has a place for.

        Raises:
            ValueError: the name or the format does not allow it.
        """
        raise NotImplementedError

    def write_games(self, path: Path, games: Iterable[PlayedGame]) -> int:
        """Replace a file by these games, in the format of its name.

        Returns:
            How many games were written; one that the format cannot hold is left out.

        Raises:
            ValueError: the format of this name is not written.
        """
        path.write_bytes(b"")
        count = 0
        for game in games:
            self.write_game(path, game)
            count += 1
        return count

    def write_positions(self, path: Path, positions: Iterable[Position], *, scale: float = CENTIPAWN_SCALE) -> int:
        """Write positions and what is known of them to a new file, in the format of its name.

        Args:
            path: The file.
            positions: In order; the positions of a game follow each other. What the format cannot hold is left out.
            scale: Of the scores' centipawns as win probability, where the format has only centipawns.

        Returns:
            How many positions were written.

        Raises:
            ValueError: the format of this name is not written.
        """
        raise NotImplementedError


class Hints(Generic[StateT]):
    """What a search may know of positions beyond the rules.

    A method that ``gives`` does not name is never called; the defaults stand for a game without hints.
    """

    gives: tuple[Literal["evaluate", "forcing", "transposition_key"], ...] = ()
    """What it supplies. ``"forcing"`` stands for ``is_quiet`` and ``forcing`` together."""

    def evaluate(self, state: StateT) -> float:
        """A heuristic value in [-1, 1] for the player to move."""
        raise NotImplementedError

    def is_quiet(self, state: StateT) -> bool:
        """Whether a heuristic value can be trusted here."""
        return True

    def forcing(self, state: StateT) -> NDArray[np.int64] | None:
        """Legal moves that a search follows beyond its depth where the position is not quiet, best ones first.

        The player to move may also decline them all and take the heuristic value. None where it may not (the player is
        in check): every legal move is followed then.
        """
        return None

    def transposition_key(self, state: StateT, plies: int) -> Hashable | None:
        """Equal for positions that are alike for whatever the rules can bring within some plies.

        To ``Game.key`` it adds what the past can still change within ``plies``: earlier positions that may come again,
        counters of moves without progress. A search shares values between positions of one such key.

        Args:
            state: A position.
            plies: How far ahead; a tail of ``forcing`` moves after them is not counted.

        Returns:
            None shares nothing.
        """
        return None


class View(Generic[StateT]):
    """How people see a game: its board, its moves, its end. The defaults serve any game."""

    def __init__(self, game: Game[StateT]) -> None:
        self.game = game

    @property
    def title(self) -> str:
        """What people call the game, e.g. ``Chess``; by default made of the specification."""
        name, _, rest = self.game.spec.partition(":")
        return name.capitalize() + f" ({rest.replace(',', ', ')})" * bool(rest)

    @property
    def drawing(self) -> Drawing:
        """Pictures of the pieces and names of the squares; by default a grid with its symbols as text."""
        return Drawing()

    @property
    def words(self) -> Mapping[str, Mapping[str, str]]:
        """By language (``ja``), what the game says in English and the same in it: title, players, endings, pieces."""
        return {}

    def board_text(self, state: StateT) -> str:
        """A board for the terminal, several lines; by default the state's text."""
        return self.game.format(state)

    def move_text(self, state: StateT, move_id: int) -> str:
        """A legal move (absolute id) as people write it (``Nf3``), and as ``Game.move_from_text`` reads it back.

        Protocol text by default.
        """
        return self.game.moves[move_id]

    def opening(self, moves: Sequence[int]) -> str | None:
        """Name of the opening of a game from the initial position, by its moves (absolute ids); None for none."""
        return None

    def ending(self, state: StateT) -> str:
        """Why the game is over in a position in which it is, in a few words: ``checkmate``, ``repetition``."""
        return "draw" if self.game.outcome(state) == 0 else "by the rules"

    def check(self, state: StateT) -> int | None:
        """Index of the state token, in the absolute view, of a piece that the player to move has to save.

        A king in check; None where there is none, and in games without such a piece.
        """
        return None

    def can_win(self, state: StateT, player: int) -> bool:
        """Whether a player could win by some series of legal moves; if not, the other one's time over is a draw.

        True by default, for games in which time that is over always loses.
        """
        return True


def reader(game: Game[Any], path: Path, *kinds: Literal["games", "positions", "puzzles"]) -> Files:
    """The files of a game that reads at least one of some kinds of file.

    Raises:
        SourceError: the game reads none of them; the message names ``path``.
    """
    if game.files is None or not set(kinds) & set(game.files.reads):
        raise SourceError(f"{path}: game {game.spec!r} reads no files of {' or '.join(kinds)}")
    return game.files


def writer(game: Game[Any], path: Path, kind: Literal["games", "positions"]) -> Files:
    """The files of a game that writes games, or positions.

    Raises:
        ValueError: the game does not write them.
    """
    if game.files is None or kind not in game.files.writes:
        other = "" if game.files is None or not game.files.writes else f", but of {game.files.writes[0]}"
        way_out = " (data export --games)" if other.endswith("games") else ""
        raise ValueError(f"{path}: game {game.spec!r} writes no files of {kind}{other}{way_out}")
    return game.files


def gives_evaluation(game: Game[Any]) -> bool:
    """Whether a game has a heuristic evaluation."""
    return game.hints is not None and "evaluate" in game.hints.gives


def defined_hints(hints: Hints[Any]) -> list[str]:
    """The methods that the class of some hints defines itself, declared in ``gives`` or not."""
    names = ("evaluate", "is_quiet", "forcing", "transposition_key")
    return [name for name in names if getattr(type(hints), name) is not getattr(Hints, name)]


def evaluation(game: Game[Any]) -> Callable[[Any], float]:
    """A game's heuristic evaluation: state -> value in [-1, 1] for the player to move.

    Raises:
        ValueError: the game has none.
    """
    if game.hints is None or not gives_evaluation(game):
        silent = game.hints is not None and "evaluate" in defined_hints(game.hints)
        why = f" ({type(game.hints).__name__}.gives does not name its 'evaluate')" if silent else ""
        raise ValueError(
            f"game {game.spec!r} has no heuristic evaluation{why}; "
            "take random rollouts, mcts:rollout (as an oracle policy:mcts:rollout), or a policy's value"
        )
    return game.hints.evaluate


_BEFORE_FACETS = {
    "files": ("open_games", "open_positions", "open_puzzles", "source_kind", "write_game", "write_positions"),
    "hints": ("evaluate", "is_quiet", "forcing", "transposition_key"),
    "view": ("title", "drawing", "board_text", "move_text", "ending", "check"),
}
"""Members that stood on ``Game`` itself before it had facets."""


def misplaced_members(game: Game[Any]) -> str:
    """What is wrong with a game that was written before facets; "" for one that is as it should be."""
    lacks = {"files": game.files is None, "hints": game.hints is None, "view": type(game.view) is View}
    found = [
        f"{', '.join(defined)} (move to a subclass of genpolicy.facets.{facet.capitalize()} and set game.{facet})"
        for facet, names in _BEFORE_FACETS.items()
        if lacks[facet] and (defined := [name for name in names if hasattr(type(game), name)])
    ]
    return f"{type(game).__name__} defines " + "; ".join(found) if found else ""
