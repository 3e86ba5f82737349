"""The position strings and records that DiffuSearch published (Ye et al. 2025, arXiv:2502.19805).

A position is 76 characters: 64 squares a8..h1 with "." for empty ones, the side, 4 of castling, 2 of en passant, 2 of
the half-move clock and 3 of the full-move number, each filled up with "." on the right; "none" keeps its "-". A number
too large for its field makes the string longer. searchless_chess (Ruoss et al. 2024) has 77: the side first, 3
characters of half-move clock, and "." for "none".

A record has a ``prompt``, the position, and a ``response``, ``a0 s1 a1 ... a_{h-1}``: moves in UCI and the positions
after them (which may be left out, as for s-a and s-aa).
"""

from __future__ import annotations

import re
from typing import Any

import chess

from genpolicy.game import Position
from genpolicy_chess.state import has_legal_move, is_legal, parse_fen

_SQUARES = re.compile(r"[.pnbrqkPNBRQK]{64}")
_UCI = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")
_NUMBER = re.compile(r"([0-9]+)\.*")


def parse_state_string(text: Any) -> chess.Board:
    """The board of a position string of 76 or 77 characters.

    Raises:
        ValueError: not a position string, or two readings of its 77 characters are both legal positions.
    """
    if not isinstance(text, str) or len(text) not in (76, 77):
        size = f"{len(text)} characters" if isinstance(text, str) else type(text).__name__
        raise ValueError(f"{text!r} is not a position string: expected 76 or 77 characters, got {size}")
    boards, problems = {}, []
    for reading in _readings(text):
        try:
            board = _board(*reading)
        except ValueError as error:
            problems.append(str(error))
        else:
            boards[board.fen()] = board
    if len(boards) == 1:
        return boards.popitem()[1]
    if boards:
        raise ValueError(f"{text!r} has more than one reading: {', '.join(map(repr, sorted(boards)))}")
    raise ValueError(f"{text!r} is not a position string: {'; '.join(dict.fromkeys(problems))}")


def _readings(text: str) -> list[tuple[str, str, str, str, str, str]]:
    """Squares, side, castling, en passant and counters, in each way that the length leaves open."""
    squares, side, tail = text[:64], text[64], text[65:]
    castling, en_passant, counters = tail[:4], tail[4:6], tail[6:]
    if len(text) == 76:
        return [(squares, side, castling, en_passant, counters[:2], counters[2:])]
    readings = [(text[1:65], text[0], castling, en_passant, counters[:3], counters[3:])]  # searchless_chess
    if counters[:3].isdigit():  # DiffuSearch's, with a half-move clock of 100 or more
        readings.append((squares, side, castling, en_passant, counters[:3], counters[3:]))
    if counters[2:].isdigit():  # DiffuSearch's, with a full-move number of 1000 or more
        readings.append((squares, side, castling, en_passant, counters[:2], counters[2:]))
    return readings


def _board(squares: str, side: str, castling: str, en_passant: str, halfmove: str, fullmove: str) -> chess.Board:
    if not _SQUARES.fullmatch(squares):
        raise ValueError(f"squares {squares!r} hold more than . and piece letters")
    ranks = [squares[i : i + 8] for i in range(0, 64, 8)]
    pieces = "/".join(re.sub(r"\.+", lambda run: str(len(run.group())), rank) for rank in ranks)
    numbers = []
    for name, field in (("half-move clock", halfmove), ("full-move number", fullmove)):
        match = _NUMBER.fullmatch(field)
        if match is None or (len(match.group(1)) > 1 and match.group(1)[0] == "0"):
            raise ValueError(f"{name} {field!r} is not a number filled up with dots")
        numbers.append(match.group(1))
    fields = [castling.rstrip(".") or "-", en_passant.rstrip(".") or "-"]
    return parse_fen(" ".join([pieces, side, *fields, *numbers]))


def record_position(prompt: Any, response: Any) -> Position:
    """A record's position with the moves of its response; positions between the moves must follow from them.

    Raises:
        ValueError: a bad position string, an illegal move, a position that is not the one after its move.
    """
    board = parse_state_string(prompt)
    text = board.fen()
    if not isinstance(response, str):
        raise ValueError(f"response must be text such as 'e2e4 ...', got {response!r}")
    moves: list[str] = []
    for word in response.split():
        if _UCI.fullmatch(word):
            _play(board, word)
            moves.append(word)
            continue
        said = parse_state_string(word)
        if said.fen() != board.fen():
            raise ValueError(f"response: {moves[-1:]} leads to {board.fen()!r}, not to {said.fen()!r}")
    if not moves:
        raise ValueError("response holds no move")
    return Position(text, where="", line=tuple(moves), ended=not has_legal_move(board))


def _play(board: chess.Board, word: str) -> None:
    move = chess.Move.from_uci(word)
    if not is_legal(board, move):
        raise ValueError(f"response: move {word!r} is illegal in {board.fen()!r}")
    board.push(move)
