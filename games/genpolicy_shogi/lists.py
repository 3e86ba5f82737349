"""Lists of USI and SFEN: one game, opening or position a line, as engine matches and position collections have them.

A line is ``startpos``, ``sfen SFEN`` or a bare SFEN, perhaps with ``position`` before it, perhaps with ``moves`` and
USI moves after it. In a list of games it is that game, its result unknown; in a list of positions it is the position
after the moves. A ``#`` begins a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from genpolicy.errors import SourceError
from genpolicy.files import refuse
from genpolicy.game import Game, OnBad, PlayedGame, Position
from genpolicy_shogi.files import Source, read_lines
from genpolicy_shogi.replay import Replay, play_line
from genpolicy_shogi.sfen import STARTPOS

SHOWN_CHARS = 120


def parse_line(game: Game[Any], line: str) -> tuple[str, list[str]]:
    """First position of a line, as the game writes it, and its USI moves, unchecked.

    Raises:
        ValueError: neither ``startpos`` nor an SFEN.
    """
    words = line.split()
    if words[:1] == ["position"]:
        words = words[1:]
    at = words.index("moves") if "moves" in words else len(words)
    place, moves = words[:at], words[at + 1 :]
    if place == ["startpos"]:
        return game.format(game.parse(STARTPOS)), moves
    if place[:1] == ["sfen"]:
        place = place[1:]
    if not place:
        shown = line.strip()[:SHOWN_CHARS]
        raise ValueError(f"{shown!r}: expected 'startpos moves ...', 'sfen SFEN moves ...' or an SFEN")
    return game.format(game.parse(" ".join(place))), moves


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    for number, line in read_lines(source):
        text = line.partition("#")[0]
        if text.strip():
            yield number, text


def read_games(game: Game[Any], source: Source, label: str, on_bad: OnBad | None) -> Iterator[PlayedGame]:
    """Games of a list, streamed; their ids are ``label`` and the number of the line.

    Raises:
        SourceError: an unreadable or illegal line (only without ``on_bad``), or a damaged file.
    """
    for number, line in _lines(source):
        try:
            start, moves = parse_line(game, line)
            replay = Replay(start)
            for ply, usi in enumerate(moves, 1):
                try:
                    replay.play_usi(usi)
                except ValueError as error:
                    raise ValueError(f"move {ply}: {error}") from error
            ids, where = tuple(game.moves.index(usi) for usi in moves), f"{source.label}:{number}"
            played = PlayedGame(f"{label}:{number}", start, ids, None, where=where)
        except ValueError as error:
            refuse(SourceError(f"{source.label}:{number}: {error}"), on_bad, error)
        else:
            yield played


def read_positions(game: Game[Any], source: Source, on_bad: OnBad | None) -> Iterator[Position]:
    """Positions of a list, streamed.

    Raises:
        SourceError: an unreadable or illegal line (only without ``on_bad``), or a damaged file.
    """
    for number, line in _lines(source):
        where = f"{source.label}:{number}"
        try:
            start, moves = parse_line(game, line)
            text = game.format(game.parse(play_line(start, moves).sfen)) if moves else start
        except ValueError as error:
            refuse(SourceError(f"{where}: {error}"), on_bad, error)
        else:
            yield Position(text, where)


def game_text(game: Game[Any], played: PlayedGame) -> str:
    """One game as a line."""
    start = "startpos" if played.start == STARTPOS else f"sfen {played.start}"
    return " ".join([start, "moves", *(game.moves[move] for move in played.moves)]) + "\n"
