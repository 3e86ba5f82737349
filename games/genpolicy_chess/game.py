"""Chess as the core sees it: rules and texts from python-chess, moves and tokens of our own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import chess
import numpy as np
from numpy.typing import NDArray

from genpolicy.drawing import Drawing
from genpolicy.errors import IllegalMoveError, SourceError
from genpolicy.game import Game, MovePlanes, OnBad, PlayedGame, Position, PublishedResult, Puzzle, Symmetry
from genpolicy_chess.evaluation import forcing_moves, is_quiet, static_value
from genpolicy_chess.files import ACCEPTED, find_files
from genpolicy_chess.moves import MOVES, make_vocabulary, move_id, square_token
from genpolicy_chess.published import PUBLISHED
from genpolicy_chess.state import ChessState, after, has_legal_move, is_legal, mirrored, new_state, parse_fen
from genpolicy_chess.tokens import ChessTokenizer

FIFTY_MOVES_PLIES = 100


class ChessGame(Game[ChessState]):
    """Standard chess. Player 0 is White; texts are FENs (see ``genpolicy_chess.state`` for what is accepted)."""

    name = "chess"
    spec = "chess"
    protocol: Literal["uci", "usi", "none"] = "uci"
    players = ("White", "Black")
    game_suffix = ".pgn"

    def __init__(self) -> None:
        self.moves = make_vocabulary()
        self.tokens = ChessTokenizer()
        self._symmetries = (Symmetry("colour flip", mirrored, self.moves.mirrored),)

    def parse(self, text: str | None = None) -> ChessState:
        """The state of a FEN (six fields, or four with the counters 0 and 1); the initial position without one.

        Raises:
            ValueError: not a FEN, or an illegal position; the message quotes it and says what is wrong.
        """
        return new_state(chess.Board() if text is None else parse_fen(text))

    def format(self, state: ChessState) -> str:
        """The FEN, with an en-passant square only where a capture is legal."""
        return state.board.fen()

    def legal(self, state: ChessState) -> NDArray[np.int64]:
        """Sorted ids of the legal moves; claimable draws do not matter."""
        return self._legal(state).copy()

    def _legal(self, state: ChessState) -> NDArray[np.int64]:
        if state._legal is None:
            state._legal = np.array(sorted(map(move_id, state.board.generate_legal_moves())), np.int64)
        return state._legal

    def play(self, state: ChessState, move_id: int) -> ChessState:
        """The state after a legal move; ``state`` stays as it is.

        Raises:
            IllegalMoveError: the move is not legal there, or no id of the vocabulary.
        """
        inside = 0 <= move_id < len(MOVES)
        if not inside or not is_legal(state.board, MOVES[move_id]):
            text = repr(self.moves[move_id]) if inside else f"of id {move_id}"
            legal = " ".join(self.moves[i] for i in self._legal(state)) or "none"
            raise IllegalMoveError(f"move {text} is illegal in {self.format(state)!r}; legal: {legal}")
        return after(state, MOVES[move_id])

    def player(self, state: ChessState) -> int:
        """0 where White is to move, 1 where Black is."""
        return 0 if state.board.turn == chess.WHITE else 1

    def outcome(self, state: ChessState) -> float | None:
        """-1 if the player to move is mated; 0 for stalemate and draws by rule; None while the game runs.

        Draws by rule: neither side can mate with the material left (FIDE 5.2.2, as far as material alone shows it), the
        position stands for the third time, 50 moves of both sides without capture or pawn move.
        """
        if not self._has_legal_move(state):
            return -1.0 if state.board.is_check() else 0.0
        if state.board.halfmove_clock >= FIFTY_MOVES_PLIES or state.num_occurrences >= 3:
            return 0.0
        return 0.0 if state.board.is_insufficient_material() else None

    @staticmethod
    def _has_legal_move(state: ChessState) -> bool:
        if state._legal is not None:
            return len(state._legal) > 0
        return has_legal_move(state.board)

    def key(self, state: ChessState) -> bytes:
        """Pieces, side, castling rights and en-passant square, packed."""
        return state.history[-1]

    def history(self, state: ChessState) -> tuple[str, tuple[int, ...]]:
        """FEN of the first position known and the ids of the moves since."""
        return state.start.fen(), tuple(map(move_id, state.moves))

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """The colour flip. Left and right differ by castling."""
        return self._symmetries

    def move_from_text(self, state: ChessState, text: str) -> int:
        """Id of a move in UCI (``e2e4``; castling also as ``e1h1``, the king on its rook) or SAN (``Nf3``).

        Raises:
            ValueError: not a move, ambiguous, or not legal in the position.
        """
        typed = text.strip()
        uci = typed[:4] + typed[4:].lower()
        for found in self._legal(state):
            if self.moves[found] == uci:
                return int(found)
        with suppress(ValueError):
            if move := state.board.parse_uci(uci):  # a null move is false
                return move_id(move)
        try:
            move = state.board.parse_san(typed)
            if move in state.board.legal_moves:  # parse_san lets null moves pass
                return move_id(move)
            reason = "a null move"
        except ValueError as error:
            reason = str(error)
        legal = " ".join(self.moves[i] for i in self._legal(state)) or "none"
        raise IllegalMoveError(f"move {text!r} cannot be played in {self.format(state)!r} ({reason}); legal: {legal}")

    def move_text(self, state: ChessState, move_id: int) -> str:
        """The move in SAN (``Nf3``, ``exd8=Q+``)."""
        return state.board.san(MOVES[move_id])

    def ending(self, state: ChessState) -> str:
        """The rule that ended the game, in ``outcome``'s order."""
        if not self._has_legal_move(state):
            return "checkmate" if state.board.is_check() else "stalemate"
        if state.board.halfmove_clock >= FIFTY_MOVES_PLIES:
            return "fifty moves without capture or pawn move"
        return "threefold repetition" if state.num_occurrences >= 3 else "insufficient material"

    def check(self, state: ChessState) -> int | None:
        """Token of the square of the king to move, where it is in check."""
        king = state.board.king(state.board.turn) if state.board.is_check() else None
        return None if king is None else square_token(king)

    def board_text(self, state: ChessState) -> str:
        """Eight ranks of letters with their names, White below, and the side to move."""
        ranks = str(state.board).splitlines()
        lines = [f"{8 - i}  {rank}" for i, rank in enumerate(ranks)]
        return "\n".join([*lines, "", "   a b c d e f g h", f"   {self.players[self.player(state)]} to move"])

    def evaluate(self, state: ChessState) -> float:
        """Material and piece placement, squashed to [-1, 1], for the player to move; the end of the game is exact."""
        result = self.outcome(state)
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

    def planes(self, states: Sequence[ChessState]) -> NDArray[np.float32]:
        """18 planes of pieces, rights and counters, seen by the player to move (``genpolicy_chess.planes``)."""
        from genpolicy_chess.planes import planes

        return planes(self.tokens, states)

    def move_planes(self) -> MovePlanes:
        """AlphaZero's 73 planes of moves by source square: [73, 8, 8]."""
        from genpolicy_chess.planes import NUM_MOVE_PLANES, cells

        return MovePlanes((NUM_MOVE_PLANES, 8, 8), cells())

    @property
    def drawing(self) -> Drawing:
        """How people see the board (``genpolicy_chess.drawing``)."""
        from genpolicy_chess.drawing import drawing

        return drawing()

    def svg(self, state: ChessState) -> str:
        """The board as SVG, White below, the checked king marked."""
        import chess.svg

        board = state.board
        return chess.svg.board(board, check=board.king(board.turn) if board.is_check() else None)

    def source_kind(self, path: Path) -> Literal["games", "positions"]:
        """``"games"`` for PGN, ``"positions"`` for EPD, FEN, jsonl and Parquet; folders and globs by what they hold.

        Raises:
            SourceError: it does not exist, or is of no kind that chess reads.
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
        for file in files:
            yield from read_games(file, on_bad, file.name if unlike else str(file))

    def open_positions(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Position]:
        """Positions of EPD or FEN lists, DiffuSearch's records and tables of searched positions, streamed.

        Raises:
            SourceError: an unreadable line or row (only without ``on_bad``), a damaged file, or no position in a file.
        """
        from genpolicy_chess.positions import read_positions

        kind, files = find_files(path)
        if kind != "positions":
            raise SourceError(f"{path}: holds games, not positions; {ACCEPTED}")
        for file in files:
            yield from read_positions(file, on_bad)

    def write_game(self, path: Path, game: PlayedGame) -> None:
        """Append one game as PGN; a name that ends in ``.gz`` or ``.zst`` packs it."""
        from genpolicy_chess.pgn import write_games

        write_games(path, [game], append=True)

    @property
    def published(self) -> tuple[PublishedResult, ...]:
        """Table 2 of the paper."""
        return PUBLISHED

    def open_puzzles(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Puzzle]:
        """Puzzles of a table in Lichess's columns (.csv, .csv.gz, .csv.zst), a folder or a glob of them, streamed.

        Raises:
            SourceError: an unreadable or illegal puzzle (only without ``on_bad``), a damaged or an empty file.
        """
        from genpolicy_chess.puzzles import find_puzzle_files, read_puzzles

        for file in find_puzzle_files(path):
            yield from read_puzzles(file, on_bad)

    def write_games(self, path: Path, games: Iterable[PlayedGame]) -> int:
        """Write games as PGN, how many; a name that ends in ``.gz`` or ``.zst`` packs them."""
        from genpolicy_chess.pgn import write_games

        return write_games(path, games)
