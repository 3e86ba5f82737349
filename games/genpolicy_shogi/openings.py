"""Names of openings, by where both sides' rooks, silvers and pawns stand in the first moves.

Shogi's openings are arrangements rather than lines of moves: a side has a static rook (on its own second file) or a
ranging one (on the fifth to eighth). A game with one ranging rook is named after that rook's file; with two static
ones, by what happens to the bishops and the rooks' pawns. Squares below are seen by the side that they belong to, as
Black names them: its rook begins on 2h and its bishop on 8h.
"""

from __future__ import annotations

from collections.abc import Sequence

from genpolicy_shogi.notation import Diagram
from genpolicy_shogi.replay import usi_square
from genpolicy_shogi.sfen import STARTPOS

JAPANESE = {
    "Bishop Exchange": "角換わり",
    "Central Rook": "中飛車",
    "Cheerful Central Rook": "ゴキゲン中飛車",
    "Double Ranging Rook": "相振り飛車",
    "Double Wing Attack": "相掛かり",
    "Fourth File Rook": "四間飛車",
    "Ishida": "石田流",
    "One-Turn-Loss Bishop Exchange": "一手損角換わり",
    "Opposing Rook": "向かい飛車",
    "Right Fourth File Rook": "右四間飛車",
    "Side Pawn Capture": "横歩取り",
    "Sleeve Rook": "袖飛車",
    "Snowroof": "雁木",
    "Third File Rook": "三間飛車",
    "Yagura": "矢倉",
}
"""All names, and their Japanese."""
OPENING_PLIES = 40
"""Moves that are looked at; a rook that changes its file later is part of the middle game."""
_RANGING = {"5h": "Central Rook", "6h": "Fourth File Rook", "7h": "Third File Rook", "8h": "Opposing Rook"}
_STATIC = {"4h": "Right Fourth File Rook", "3h": "Sleeve Rook"}


class _Board:
    """Both sides' pieces, without rules: only legal moves are played."""

    def __init__(self) -> None:
        self.pieces = {usi_square(*at): piece for at, piece in Diagram.of(STARTPOS).squares.items()}
        """Square -> piece; Black's in capitals."""
        self.facts: set[str] = set()
        """Names that an event of the game decides."""

    def play(self, usi: str, player: int) -> None:
        """Play a move and note what it decides."""
        source, target = usi[:2], usi[2:4]
        if source[1] == "*":
            piece = source[0] if player == 0 else source[0].lower()
        else:
            piece = self.pieces.pop(source)
        taken = self.pieces.get(target, "")
        self.pieces[target] = f"+{piece}" if usi.endswith("+") else piece
        if piece.upper() == "R" and taken.upper() == "P" and _seen(target, player) == "3d":
            self.facts.add("Side Pawn Capture")
        if piece.upper() == "B" and taken.upper() == "B":
            # White takes a bishop that has not moved: its own has then moved once more than Black's.
            self.facts.add("One-Turn-Loss Bishop Exchange" if (player, target) == (1, "8h") else "Bishop Exchange")
        advanced = all(self.has(side, "P", "2e", "7g") for side in (0, 1))
        if advanced:
            self.facts.add("Double Wing Attack")

    def has(self, player: int, piece: str, *squares: str) -> bool:
        """Whether a side has pieces of one kind on all these squares."""
        wanted = piece if player == 0 else piece.lower()
        return all(self.pieces.get(_seen(square, player)) == wanted for square in squares)

    def rook(self, player: int, names: dict[str, str]) -> str | None:
        """What the square of a side's rook is called."""
        return next((name for square, name in names.items() if self.has(player, "R", square)), None)


def _seen(square: str, player: int) -> str:
    """A square as a side sees it; the same map leads back."""
    return square if player == 0 else f"{10 - int(square[0])}{'ihgfedcba'['abcdefghi'.index(square[1])]}"


def opening(moves: Sequence[str]) -> str | None:
    """The name of a game's opening.

    Args:
        moves: In USI, from the initial position.

    Returns:
        None before there is one, or where none of the table fits.
    """
    board, found = _Board(), None
    for ply, usi in enumerate(moves[:OPENING_PLIES]):
        board.play(usi, ply % 2)
        found = _name(board) or found
    return found


def _name(board: _Board) -> str | None:
    ranging = [board.rook(player, _RANGING) or _ishida(board, player) for player in (0, 1)]
    if all(ranging):
        return "Double Ranging Rook"
    for player, name in enumerate(ranging):
        if name == "Third File Rook":
            return _ishida(board, player) or name
        # Its bishop's line is open, which the second player's central rook is named for.
        if name == "Central Rook" and player == 1 and board.has(1, "P", "7f", "6g") and not board.facts:
            return "Cheerful Central Rook"
        if name is not None:
            return name
    for name in ("Side Pawn Capture", "One-Turn-Loss Bishop Exchange", "Bishop Exchange"):
        if name in board.facts:
            return name
    for player in (0, 1):
        if (name := board.rook(player, _STATIC)) is not None:
            return name
        if board.has(player, "S", "7g") and board.has(player, "P", "7f"):
            return "Yagura"
        if board.has(player, "S", "6g") and board.has(player, "P", "6f", "7f") and board.has(player, "G", "7h"):
            return "Snowroof"
    return "Double Wing Attack" if "Double Wing Attack" in board.facts else None


def _ishida(board: _Board, player: int) -> str | None:
    has_rook = board.has(player, "R", "7h") or board.has(player, "R", "7f")
    return "Ishida" if has_rook and board.has(player, "P", "7e") else None
