"""The facets of chess: its files, its hints for searches, and how people see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy.drawing import Drawing
from genpolicy.errors import SourceError
from genpolicy.files import entries_of
from genpolicy.game import Files, Game, Hints, OnBad, PlayedGame, Position, Puzzle, View
from genpolicy_chess.evaluation import forcing_moves, is_quiet, static_value
from genpolicy_chess.files import ACCEPTED, find_files
from genpolicy_chess.moves import MOVES, square_token
from genpolicy_chess.openings import opening
from genpolicy_chess.state import FIFTY_MOVES_PLIES, ChessState
from genpolicy_chess.words import JAPANESE


class ChessFiles(Files):
    """PGN; EPD, FEN and labelled records; puzzles in Lichess's columns."""

    reads = ("games", "positions", "puzzles")
    writes = ("games",)
    suffixes = (".pgn",)

    def source_kind(self, path: Path) -> Literal["games", "positions"]:
        """``"games"`` for PGN, ``"positions"`` for EPD, FEN, jsonl and Parquet; folders and globs by what they hold.

        Raises:
            SourceError: it does not exist, or chess does not read this kind of file.
        """
        return find_files(path)[0]

    def open_games(self, path: Path, on_bad: OnBad | None = None) -> Iterator[PlayedGame]:
        """Games of a PGN file (plain, .gz, .zst), or of all of them in a folder or glob, streamed.

        Raises:
            SourceError: an unreadable or illegal game (only without ``on_bad``), a damaged file, or no game in a file.
        """
        from genpolicy_chess.pgn import read_games

        kind, files = find_files(path)
        if kind != "games":
            raise SourceError(f"{path}: holds positions, not games; games come as .pgn, .pgn.gz or .pgn.zst")
        unlike = len({file.name for file in files}) == len(files)
        yield from entries_of(
            files, lambda file, on_bad: read_games(file, on_bad, file.name if unlike else str(file)), on_bad
        )

    def open_positions(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Position]:
        """Positions of EPD or FEN lists, of records of DiffuSearch and Lichess, of tables of searches; streamed.

        Raises:
            SourceError: an unreadable line or row (only without ``on_bad``), a damaged file, or no position in a file.
        """
        from genpolicy_chess.positions import read_positions

        kind, files = find_files(path)
        if kind != "positions":
            raise SourceError(f"{path}: holds games, not positions; {ACCEPTED}")
        yield from entries_of(files, read_positions, on_bad)

    def open_puzzles(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Puzzle]:
        """Puzzles of a table in Lichess's columns (.csv, .csv.gz, .csv.zst), a folder or a glob of them, streamed.

        Raises:
            SourceError: an unreadable or illegal puzzle (only without ``on_bad``), a damaged or an empty file.
        """
        from genpolicy_chess.puzzles import find_puzzle_files, read_puzzles

        for file in find_puzzle_files(path):
            yield from read_puzzles(file, on_bad)

    def write_game(self, path: Path, game: PlayedGame) -> None:
        """Append one game as PGN; a name that ends in ``.gz`` or ``.zst`` packs it."""
        from genpolicy_chess.pgn import write_games

        write_games(path, [game], append=True)

    def write_games(self, path: Path, games: Iterable[PlayedGame]) -> int:
        """Write games as PGN and return how many; a name that ends in ``.gz`` or ``.zst`` compresses them.

        Raises:
            ValueError: a name of another format.
        """
        from genpolicy_chess.files import suffix_of
        from genpolicy_chess.pgn import write_games

        if suffix_of(path) != ".pgn":
            raise ValueError(f"{path}: games are written as .pgn, .pgn.gz or .pgn.zst")
        return write_games(path, games)


class ChessHints(Hints[ChessState]):
    """A quick evaluation, captures, and keys that know the past.

    Args:
        game: Chess, for results.
    """

    gives = ("evaluate", "forcing", "transposition_key")

    def __init__(self, game: Game[ChessState]) -> None:
        self.game = game

    def evaluate(self, state: ChessState) -> float:
        """Material and piece placement, squashed to [-1, 1], for the player to move; the end of the game is exact."""
        result = self.game.outcome(state)
        return static_value(state.board) if result is None else result

    def is_quiet(self, state: ChessState) -> bool:
        """Whether the player to move is not in check and has neither a promotion nor a capture that wins material."""
        return is_quiet(state.board)

    def forcing(self, state: ChessState) -> NDArray[np.int64] | None:
        """Captures and queen promotions, the most valuable victim first; None in check."""
        moves = forcing_moves(state.board)
        return None if moves is None else np.array(moves, np.int64)

    def transposition_key(self, state: ChessState, plies: int) -> tuple[object, ...]:
        """The key, and the past where it can bring a third repetition or the 50-move rule within ``plies``.

        A position comes again after four plies at the earliest. One that stood twice needs one more visit; one that
        stood once needs two, so at least five plies; one that is new needs nine, whatever the past.
        """
        ahead = plies + 2  # what a tail of forcing moves may add: out of check, and out of a cross-check
        counter = state.board.halfmove_clock if state.board.halfmove_clock + ahead >= FIFTY_MOVES_PLIES else None
        past = state.history
        if ahead < 5:
            past = tuple(key for key in past if past.count(key) > 1) if len(past) > 4 else ()
        return state.history[-1], counter, tuple(sorted(past)) if len(past) > 1 else ()


class ChessView(View[ChessState]):
    """Moves in SAN, the board with White below."""

    @property
    def drawing(self) -> Drawing:
        """Pieces and squares (``genpolicy_chess.drawing``)."""
        from genpolicy_chess.drawing import drawing

        return drawing()

    @property
    def words(self) -> Mapping[str, Mapping[str, str]]:
        """Japanese (``genpolicy_chess.words``)."""
        return {"ja": JAPANESE}

    def board_text(self, state: ChessState) -> str:
        """Eight ranks of letters with their names, White below, and the side to move."""
        ranks = str(state.board).splitlines()
        lines = [f"{8 - i}  {rank}" for i, rank in enumerate(ranks)]
        to_move = self.game.players[self.game.player(state)]
        return "\n".join([*lines, "", "   a b c d e f g h", f"   {to_move} to move"])

    def move_text(self, state: ChessState, move_id: int) -> str:
        """The move in SAN (``Nf3``, ``exd8=Q+``)."""
        # A copy: python-chess plays the move on the board and takes it back, and other threads may read the board.
        return state.board.copy(stack=False).san(MOVES[move_id])

    def opening(self, moves: Sequence[int]) -> str | None:
        """The name in a table of some 170 lines (``genpolicy_chess.openings``)."""
        return opening(moves)

    def ending(self, state: ChessState) -> str:
        """The rule that ended the game, in the order of ``ChessGame.outcome``."""
        if state.has_no_move():
            return "checkmate" if state.board.is_check() else "stalemate"
        if state.board.halfmove_clock >= FIFTY_MOVES_PLIES:
            return "fifty moves without capture or pawn move"
        return "threefold repetition" if state.num_occurrences >= 3 else "insufficient material"

    def check(self, state: ChessState) -> int | None:
        """Token of the square of the king to move, where it is in check."""
        king = state.board.king(state.board.turn) if state.board.is_check() else None
        return None if king is None else square_token(king)

    def can_win(self, state: ChessState, player: int) -> bool:
        """Whether the material allows a mate (FIDE Laws of Chess, 6.9); of blocked pawns this says nothing."""
        return not state.board.has_insufficient_material(player == 0)
