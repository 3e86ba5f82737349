"""Games and lines replayed move by move. A move is legal if cshogi lists it: its own checks let illegal moves pass.

cshogi's ``is_legal`` and ``push_usi`` accept promotions outside the zone, pieces that could never move again and more;
some of them corrupt the board or end the process. Here a move is pushed only if the legal list holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cshogi

from genpolicy_shogi.moves import looks_like_usi


def usi_square(file: int, rank: int) -> str:
    """A square in USI, file and rank counted from 1."""
    return f"{file}{'abcdefghi'[rank - 1]}"


class Replay:
    """A board on which legal moves are played.

    Args:
        sfen: A position that the game's ``parse`` has accepted.
    """

    def __init__(self, sfen: str) -> None:
        self.board: Any = cshogi.Board(sfen)
        self._legal: list[int] | None = None

    @property
    def sfen(self) -> str:
        """The position now."""
        text: str = self.board.sfen()
        return text

    @property
    def player(self) -> int:
        """0 where Black is to move, 1 where White is."""
        return int(self.board.turn)

    def legal(self) -> list[int]:
        """cshogi's numbers of the legal moves."""
        if self._legal is None:
            self._legal = list(self.board.legal_moves)
        return self._legal

    def is_mate(self) -> bool:
        """Whether the player to move is mated; an interposition is no way out, since records leave out futile ones."""
        if not self.legal():
            return True
        return bool(self.board.is_check()) and all(
            cshogi.move_is_drop(move)
            or (cshogi.move_from_piece_type(move) != cshogi.KING and not self.board.piece(cshogi.move_to(move)))
            for move in self.legal()
        )

    def piece_type(self, file: int, rank: int) -> int:
        """Type 1..14 of the piece on a square, 0 where there is none."""
        return int(self.board.piece(9 * (file - 1) + rank - 1)) & 15

    def play_usi(self, usi: str) -> None:
        """Play a move.

        Raises:
            ValueError: not a move, or not legal; the message has the position.
        """
        if not looks_like_usi(usi):
            raise ValueError(f"{usi!r} is not a move (in {self.sfen!r})")
        self.play(self.board.move_from_usi(usi), usi)

    def play(self, move: int, name: str) -> None:
        """Play a move by cshogi's number; ``name`` is what messages call it.

        Raises:
            ValueError: not legal; the message has the position.
        """
        if move not in self.legal():
            raise ValueError(f"move {name!r} is illegal in {self.sfen!r}")
        self.board.push(move)
        self._legal = None

    def move16(self, number: int) -> str:
        """USI text of a legal move by the low 16 bits of cshogi's number.

        Raises:
            ValueError: no legal move has them.
        """
        for move in self.legal():
            if move & 0xFFFF == number:
                text: str = cshogi.move_to_usi(move)
                return text
        raise ValueError(f"move {number:#06x} is illegal in {self.sfen!r}")


def play_line(sfen: str, moves: Sequence[str]) -> Replay:
    """The board after a line of USI moves.

    Raises:
        ValueError: not a move, or an illegal one.
    """
    replay = Replay(sfen)
    for usi in moves:
        replay.play_usi(usi)
    return replay
