"""What a person sees and types: boards for the terminal and as SVG, moves in CSA and Japanese notation."""

from __future__ import annotations

import re
import unicodedata

import cshogi

from genpolicy_shogi.moves import ID_OF_MOVE16, MOVE16, MOVE16_MASK
from genpolicy_shogi.sfen import BLACK, HAND_LETTERS, PIECE_TYPES, WHITE_OFFSET
from genpolicy_shogi.state import HANDS_AT, SIDE_AT, ShogiState

_CSA = re.compile(r"[+-]?(?:[1-9][1-9]|00)[1-9][1-9][A-Z]{2}")


def _hand(counts: bytes) -> str:
    held = [f"{letter}x{n}" if n > 1 else letter for letter, n in zip(HAND_LETTERS, counts, strict=True) if n]
    return " ".join(reversed(held)) or "-"


def board_text(state: ShogiState, players: tuple[str, str]) -> str:
    """Nine ranks, files 9 to 1, Black's pieces in capitals and below, both hands, and the side to move."""
    key = state.keys[-1]
    lines = [f"{players[1]} holds: {_hand(key[HANDS_AT + 7 : SIDE_AT]).lower()}", ""]
    lines.append("   " + "  ".join("987654321"))
    for rank in range(9):
        cells = []
        for piece in reversed(key[rank:HANDS_AT:9]):
            kind = PIECE_TYPES[piece % WHITE_OFFSET] or "."
            cells.append(f"{kind.lower() if piece > WHITE_OFFSET else kind:>2}")
        lines.append(f" {' '.join(cells)}  {'abcdefghi'[rank]}")
    lines += ["", f"{players[0]} holds: {_hand(key[HANDS_AT : HANDS_AT + 7])}", f"{players[state.turn]} to move"]
    return "\n".join(lines)


def svg(state: ShogiState) -> str:
    """The board with both hands as SVG, Black below, the squares of the last move marked."""
    # The piece that moved stands on its target now; only squares and the drop flag are read of the number.
    last = MOVE16[state.moves[-1]] if state.moves else None
    return str(state.board.to_svg(lastmove=last))


def move_of_csa(state: ShogiState, text: str) -> int | None:
    """Id of the legal move that CSA writes so (``7776FU``, with or without a sign for the side); None if none is."""
    typed = text.upper()
    if not _CSA.fullmatch(typed):
        return None
    if typed[0] in "+-":
        if (typed[0] == "+") != (state.turn == BLACK):
            return None
        typed = typed[1:]
    for move in state.board.legal_moves:
        if cshogi.move_to_csa(move) == typed:
            return int(ID_OF_MOVE16[move & MOVE16_MASK])
    return None


def usi_spelling(text: str) -> str:
    """What was typed with the letters in USI's case: drops in capitals, squares in small letters, digits in ASCII."""
    typed = unicodedata.normalize("NFKC", text.strip())
    return typed[0].upper() + typed[1:].lower() if typed[1:2] == "*" else typed.lower()
