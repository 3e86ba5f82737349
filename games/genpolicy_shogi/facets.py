"""The facets of shogi: its files, its hints for searches, and how people see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from genpolicy.drawing import Drawing
from genpolicy.game import Files, Hints, OnBad, PlayedGame, Position, Puzzle, View
from genpolicy.values import CENTIPAWN_SCALE
from genpolicy_shogi import display, labelled, openings, rules, sources
from genpolicy_shogi.evaluation import forcing_moves, is_quiet, static_value
from genpolicy_shogi.files import Source
from genpolicy_shogi.state import ShogiState
from genpolicy_shogi.tsume import MateSearch
from genpolicy_shogi.words import JAPANESE

if TYPE_CHECKING:
    from genpolicy_shogi.game import ShogiGame


class ShogiFiles(Files):
    """CSA, KIF, KI2 and USI; hcpe, hcpe3, PSV and SFEN lists; mate problems.

    Args:
        game: Shogi, whose rules the files follow.
        mates: Finds the mates of problems.
    """

    reads = ("games", "positions", "puzzles")
    writes = ("games", "positions")
    suffixes = (".kif", ".csa", ".kifu")  # KIF first, which people and GUIs know best

    def __init__(self, game: ShogiGame, mates: MateSearch) -> None:
        self.game, self._mates = game, mates

    @property
    def log_suffix(self) -> str:
        """CSA: a game grows there line by line."""
        return ".csa"

    def source_kind(self, path: Path) -> Literal["games", "positions"]:
        """``"games"`` for CSA, KIF, KI2 and USI lists with moves, ``"positions"`` for hcpe, hcpe3, PSV and SFEN lists.

        Raises:
            SourceError: it does not exist, or shogi does not read this kind of file.
        """
        return sources.source_kind(path)

    def open_games(self, path: Path, on_bad: OnBad | None = None) -> Iterator[PlayedGame]:
        """Games of CSA, KIF, KI2, USI and hcpe3 files (plain, .gz, .zst), or of all in a folder, zip or glob, streamed.

        Raises:
            SourceError: an unreadable or illegal game (only without ``on_bad``), a damaged file, or no game in a file.
        """
        return sources.open_games(self.game, path, on_bad)

    def open_positions(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Position]:
        """Positions of hcpe, hcpe3 and PSV files with what they say of them, and of SFEN lists, streamed.

        Raises:
            SourceError: an unreadable record or line (only without ``on_bad``), a damaged file, or no position in one.
        """
        return sources.open_positions(self.game, path, on_bad)

    def open_puzzles(self, path: Path, on_bad: OnBad | None = None) -> Iterator[Puzzle]:
        """Mate problems of a CSV with a column ``sfen`` or of a list of SFENs, streamed.

        Raises:
            SourceError: an unreadable or wrong problem (only without ``on_bad``), or no problem in a file.
        """
        return sources.open_puzzles(self.game, self._mates, path, on_bad)

    def write_game(self, path: Path, game: PlayedGame) -> None:
        """Append a game as CSA, KIF, USI or hcpe3, by the file's name.

        Raises:
            ValueError: games are not written in the format of this name, or the format cannot hold the game: hcpe3 an
                unknown result or a first position with one king.
        """
        sources.write_game(self.game, path, game)

    def write_games(self, path: Path, games: Iterable[PlayedGame]) -> int:
        """Write games as ``write_game`` does, in place of what the file held; how many were written.

        hcpe3 has no place for an unknown result and for a first position with one king: such games are left out.

        Raises:
            ValueError: games are not written in the format of this name.
        """
        if Source(path).suffix == ".hcpe3":
            games = filter(labelled.fits, games)
        return super().write_games(path, games)

    def write_positions(self, path: Path, positions: Iterable[Position], *, scale: float = CENTIPAWN_SCALE) -> int:
        """Write labelled positions as hcpe, hcpe3 or PSV, by the file's name; what they cannot hold is left out.

        Raises:
            ValueError: positions are not written in the format of this name.
        """
        return labelled.write_positions(path, positions, scale=scale)


class ShogiHints(Hints[ShogiState]):
    """A quick evaluation, captures and promotions, and keys that know the past.

    Args:
        game: Shogi, for results and the limit of plies.
    """

    gives = ("evaluate", "forcing", "transposition_key")

    def __init__(self, game: ShogiGame) -> None:
        self.game = game

    def evaluate(self, state: ShogiState) -> float:
        """Material, placement and safety, squashed to [-1, 1], for the player to move; the end of the game is exact."""
        result = self.game.outcome(state)
        return static_value(state) if result is None else result

    def is_quiet(self, state: ShogiState) -> bool:
        """Whether the player to move is not in check and wins no material by one capture or promotion."""
        return is_quiet(state)

    def forcing(self, state: ShogiState) -> NDArray[np.int64] | None:
        """Captures and promotions that gain material at first sight, the greatest gain first; None in check."""
        return forcing_moves(state)

    def transposition_key(self, state: ShogiState, plies: int) -> tuple[object, ...]:
        """The key, and the past where it can bring a fourth occurrence or the limit of plies within ``plies``.

        A position comes again after four plies at the earliest: one that stood three times may end the game at once,
        one that stood twice after five plies, one that stood once after nine. What a repetition means depends on the
        checks between, so that the whole past then counts.
        """
        here, limit = state.keys[-1], self.game.max_plies
        ahead = plies + 2  # what a tail of forcing moves may add: out of check, and out of a cross-check
        number = state.number if limit is not None and state.number + ahead > limit else None
        least = 3 if ahead < 5 else 2 if ahead < 9 else 1
        may_repeat = len(state.keys) > 1 and max(Counter(state.keys).values()) >= least
        return here, number, state.keys if may_repeat else ()


class ShogiView(View[ShogiState]):
    """Moves as KIF writes them, the board with Black below."""

    game: ShogiGame

    @property
    def drawing(self) -> Drawing:
        """Pieces and squares (``genpolicy_shogi.drawing``)."""
        from genpolicy_shogi.drawing import drawing

        return drawing()

    @property
    def words(self) -> Mapping[str, Mapping[str, str]]:
        """Japanese (``genpolicy_shogi.words``)."""
        return {
            "ja": {
                **JAPANESE,
                **openings.JAPANESE,
                f"{self.game.max_plies} plies without mate": f"{self.game.max_plies}手まで詰みなし",
            }
        }

    def board_text(self, state: ShogiState) -> str:
        """Nine ranks with Black below, both hands and the side to move."""
        return display.board_text(state, self.game.players)

    def move_text(self, state: ShogiState, move_id: int) -> str:
        """The move as KIF writes it, with the mark of its player: ``▲７六歩(77)``."""
        return display.move_text(state, self.game.moves[move_id])

    def opening(self, moves: Sequence[int]) -> str | None:
        """The name in a table of 15 (``genpolicy_shogi.openings``)."""
        return openings.opening([self.game.moves[move] for move in moves])

    def ending(self, state: ShogiState) -> str:
        """The rule that ended the game, in the order of ``ShogiGame.outcome``."""
        if state.has_no_move():
            return "checkmate" if state.in_check else "no legal move"
        repeated = rules.repetition(state.keys)
        if repeated is not None:
            return "perpetual check" if repeated else "fourfold repetition"
        if self.game.max_plies is not None and state.number > self.game.max_plies:
            return f"{self.game.max_plies} plies without mate"
        return "declaration of the entered king"

    def check(self, state: ShogiState) -> int | None:
        """Token of the square of the king to move, where it is in check."""
        return display.checked_king(state)
