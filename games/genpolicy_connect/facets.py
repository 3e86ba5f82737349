"""The facets of k-in-a-row: its files, its hints for searches, and how people see it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from genpolicy.drawing import Drawing
from genpolicy.files import entries_of
from genpolicy.game import Files, Hints, OnBad, PlayedGame, Position, View
from genpolicy_connect.drawing import drawing
from genpolicy_connect.game_files import SUFFIX, append_game, find_files, is_game_file, read_entries, read_games
from genpolicy_connect.tokens import Board

if TYPE_CHECKING:
    from genpolicy_connect.game import ConnectGame


class ConnectFiles(Files):
    """Games in ``.games`` files (see ``game_files``), positions in any other text."""

    reads = ("games", "positions")
    writes = ("games",)
    suffixes = (SUFFIX,)

    def __init__(self, game: ConnectGame) -> None:
        self.game = game

    def source_kind(self, path: Path) -> Literal["games", "positions"]:
        """``"games"`` for ``.games`` files and folders or globs that hold some, ``"positions"`` for other text."""
        return "games" if is_game_file(find_files(path)[0]) else "positions"

    def open_games(self, path: Path, on_bad: OnBad | None = None) -> Iterator[PlayedGame]:
        """Games of a ``.games`` file (see ``game_files``), or of all of them in a folder or glob, streamed."""
        files = find_files(path)
        unlike = len({file.name for file in files}) == len(files)
        yield from entries_of(
            files, lambda file, on_bad: read_games(self.game, file, on_bad, file.name if unlike else str(file)), on_bad
        )

    def open_positions(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Position]:
        """Positions of a text file (or .gz), or of all files of a folder or glob, streamed.

        There is one position a line; empty lines and lines that begin with # are left out.
        """
        yield from entries_of(find_files(path), self._positions, on_bad)

    def _positions(self, path: Path, on_bad: OnBad | None) -> Iterator[Position]:
        game = self.game
        nothing = f"holds no position; write one a line, e.g. {game.format(game.parse())!r}"
        return read_entries(
            path,
            on_bad,
            nothing,
            lambda line, number, _: Position(game.format(game.parse(line.strip())), where=f"{path}:{number}"),
        )

    def write_game(self, path: Path, game: PlayedGame) -> None:
        """Append one game as a line (see ``game_files``)."""
        append_game(self.game, path, game)


class ConnectHints(Hints[Board]):
    """Open lines; history does not matter."""

    gives = ("evaluate", "transposition_key")

    def __init__(self, game: ConnectGame) -> None:
        self.game = game

    def evaluate(self, state: Board) -> float:
        """Lines that only one side can still fill, each stone in one worth four times the last; in [-1, 1]."""
        result = self.game.outcome(state)
        if result is not None:
            return result
        mine, theirs = state.stones[state.player], state.stones[1 - state.player]
        score = 0.0
        for line in self.game.lines:
            if not (mine & line and theirs & line):
                score += 4.0 ** (mine & line).bit_count() - 4.0 ** (theirs & line).bit_count()
        return math.tanh(score / 4.0**self.game.k)

    def transposition_key(self, state: Board, plies: int) -> int:
        """The key: history does not matter."""
        return self.game.key(state)


class ConnectView(View[Board]):
    """A grid of crosses and rings, or of discs where stones fall."""

    game: ConnectGame

    @property
    def title(self) -> str:
        """The usual name where the board has one."""
        game = self.game
        usual = {(3, 3, 3, False): "Tic-tac-toe", (6, 7, 4, True): "Connect Four", (15, 15, 5, False): "Gomoku"}
        shape = f"{game.k} in a row, {game.cols} × {game.rows}" + ", stones fall" * game.gravity
        return usual.get((game.rows, game.cols, game.k, game.gravity), shape)

    @property
    def drawing(self) -> Drawing:
        """Pieces and squares (``genpolicy_connect.drawing``)."""
        return drawing(self.game.rows, self.game.cols, self.game.gravity)

    @property
    def words(self) -> Mapping[str, Mapping[str, str]]:
        """Japanese."""
        game = self.game
        usual = {"Tic-tac-toe": "三目並べ", "Connect Four": "四目並べ（重力付き）", "Gomoku": "五目並べ"}
        shape = f"{game.k}目並べ（{game.cols}×{game.rows}）" + "重力付き" * game.gravity
        board = {
            f"{game.k} in a row": f"{game.k}目が並んだ",
            "the board is full": "盤面が埋まった",
            "empty": "空き",
            "to move": "手番",
        }
        return {"ja": {self.title: usual.get(self.title, shape), "X": "X（先手）", "O": "O（後手）", **board}}

    def board_text(self, state: Board) -> str:
        """The board with its column letters and row numbers."""
        width = len(str(self.game.rows))
        rows = self.game.format(state)[:-2].split("/")
        lines = [f"{self.game.rows - i:>{width}}  {' '.join(row)}" for i, row in enumerate(rows)]
        letters = " ".join(chr(ord("a") + col) for col in range(self.game.cols))
        return "\n".join([*lines, "", " " * (width + 2) + letters])

    def ending(self, state: Board) -> str:
        """``4 in a row``, or that the board is full."""
        return f"{self.game.k} in a row" if state.won else "the board is full"
