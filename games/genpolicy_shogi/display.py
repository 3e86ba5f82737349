"""What a person sees and types: boards for the terminal, moves in CSA and Japanese notation."""

from __future__ import annotations

import re
import unicodedata

import cshogi

from genpolicy_shogi.japanese import ki2_usi, kif_move, kif_usi
from genpolicy_shogi.moves import MOVES, library_square, looks_like_usi, square_name
from genpolicy_shogi.replay import Replay
from genpolicy_shogi.sfen import BLACK, HAND_LETTERS, KING, NUM_SQUARES, PIECE_TYPES, WHITE, WHITE_OFFSET
from genpolicy_shogi.state import HANDS_AT, SIDE_AT, ShogiState, text_of

_CSA = re.compile(r"[+-]?(?:[1-9][1-9]|00)[1-9][1-9][A-Z]{2}")
_MARKS = {"▲": BLACK, "☗": BLACK, "▼": BLACK, "△": WHITE, "☖": WHITE, "▽": WHITE}


def _hand(counts: bytes) -> str:
    held = [f"{letter}x{n}" if n > 1 else letter for letter, n in zip(HAND_LETTERS, counts, strict=True) if n]
    return " ".join(reversed(held)) or "-"


def board_text(state: ShogiState, players: tuple[str, str]) -> str:
    """Nine ranks, files 9 to 1, Black's pieces in capitals and below, both hands, and the side to move."""
    key = state.keys[-1]
    lines = [f"{players[1]} holds: {_hand(key[HANDS_AT + 7 : SIDE_AT]).lower()}", ""]
    lines.append("  " + "  ".join("987654321"))
    for rank in range(9):
        cells = []
        for piece in reversed(key[rank:HANDS_AT:9]):
            kind = PIECE_TYPES[piece % WHITE_OFFSET] or "."
            cells.append(f"{kind.lower() if piece > WHITE_OFFSET else kind:>2}")
        lines.append(f" {' '.join(cells)}  {'abcdefghi'[rank]}")
    lines += ["", f"{players[0]} holds: {_hand(key[HANDS_AT : HANDS_AT + 7])}", f"{players[state.turn]} to move"]
    return "\n".join(lines)


def move_text(state: ShogiState, usi: str) -> str:
    """A legal move in USI as KIF writes it, with the mark of its player: ``▲７六歩(77)``, ``△同　歩(44)``."""
    return "▲△"[state.turn] + kif_move(Replay(text_of(state)), usi, _last_square(state))


def _last_square(state: ShogiState) -> str:
    """USI name of where the last move ended; "" before the first."""
    return square_name(MOVES[state.moves[-1]][1]) if state.moves else ""


def checked_king(state: ShogiState) -> int | None:
    """Token of the king of the side to move, where it is in check."""
    if not state.in_check:
        return None
    squares, king = state.keys[-1], KING + WHITE_OFFSET * state.turn
    return next((token for token in range(NUM_SQUARES) if squares[library_square(token)] == king), None)


def typed_move(state: ShogiState, text: str) -> str:
    """USI text of a move that a person typed, legal or not: USI, CSA, or Japanese as in KIF and in newspapers.

    Raises:
        ValueError: none of these, or no legal move is written like this; the message says which.
    """
    typed = unicodedata.normalize("NFKC", text).strip()
    usi = typed[:1].upper() + typed[1:].lower() if typed[1:2] == "*" else typed.lower()
    if looks_like_usi(usi):
        return usi
    if _CSA.fullmatch(typed.upper()):
        return _usi_of_csa(state, typed.upper())
    if typed[:1] in _MARKS and typed:
        if _MARKS[typed[0]] != state.turn:
            raise ValueError(f"{typed[0]} marks a move of the side that is not to move")
        typed = typed[1:]
    if typed and not typed.isascii():
        read = kif_usi if "(" in typed else ki2_usi
        return read(Replay(text_of(state)), typed, _last_square(state))
    raise ValueError("moves are written 7g7f or P*5e (USI), 7776FU (CSA), ７六歩 or ７六歩(77)")


def _usi_of_csa(state: ShogiState, typed: str) -> str:
    if typed[0] in "+-":
        if (typed[0] == "+") != (state.turn == BLACK):
            raise ValueError(f"{typed[0]} marks a move of the side that is not to move")
        typed = typed[1:]
    for move in state.board.legal_moves:
        if cshogi.move_to_csa(move) == typed:
            return str(cshogi.move_to_usi(move))
    raise ValueError("no legal move is written like this in CSA")
