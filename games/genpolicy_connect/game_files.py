"""Files of played games of k-in-a-row, one game a line: ``start; moves; result; headers``.

The start is a position's text (``-`` for the empty board), the moves are in protocol notation with blanks between, the
result is ``1-0``, ``0-1``, ``1/2-1/2`` or ``*``, and the headers are one JSON object of texts. Files end in ``.games``
or ``.games.gz``; empty lines and lines that begin with # are left out.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from genpolicy.errors import SourceError
from genpolicy.files import files_of, refuse
from genpolicy.game import Game, OnBad, PlayedGame

EntryT = TypeVar("EntryT")
SUFFIX = ".games"
_RESULTS = {"1-0": 1.0, "0-1": -1.0, "1/2-1/2": 0.0, "*": None}
_TEXTS = {result: text for text, result in _RESULTS.items()}


def is_game_file(path: Path) -> bool:
    """Whether a file holds games, by its name."""
    return path.name.endswith((SUFFIX, f"{SUFFIX}.gz"))


def find_files(path: Path) -> list[Path]:
    """``files_of``; where some of them hold games, only these. A path that stands for none is its own file."""
    files = files_of(path)
    return [file for file in files if is_game_file(file)] or files or [path]


def read_games(game: Game[Any], path: Path, on_bad: OnBad | None, label: str | None = None) -> Iterator[PlayedGame]:
    """Games of a file, streamed; their ids are ``label`` (by default the file's name) and a number from 1.

    Raises:
        SourceError: an unreadable file, or (without ``on_bad``) an unreadable game; or no game at all.
    """
    nothing = f"holds no game; write one a line, e.g. '-; {game.moves[0]} {game.moves[0]}; *; {{}}'"
    return read_entries(path, on_bad, nothing, lambda *entry: _parse(game, path, label or path.name, *entry))


def read_entries(
    path: Path, on_bad: OnBad | None, nothing: str, parse: Callable[[str, int, int], EntryT]
) -> Iterator[EntryT]:
    """The entries of a text file (or .gz), one a line, streamed; empty lines and lines that begin with # are skipped.

    Args:
        path: The file.
        on_bad: Called with the error of each line that ``parse`` refuses with a ValueError; None raises it.
        nothing: The error message of a file without entries.
        parse: Reads a line, from its text, its number and the number of entries so far, both from 1.

    Raises:
        SourceError: an unreadable file, or (without ``on_bad``) an unreadable line; or no entry at all.
    """
    found = number = 0
    try:
        # A byte that is not UTF-8 becomes an escape, which parse then names.
        with (gzip.open if path.suffix == ".gz" else open)(
            path, "rt", encoding="utf-8-sig", errors="backslashreplace"
        ) as file:
            for number, line in enumerate(file, 1):
                if not line.strip() or line.startswith("#"):
                    continue
                found += 1
                try:
                    entry = parse(line, number, found)
                except ValueError as error:
                    refuse(SourceError(f"{path}:{number}: {error}"), on_bad, error)
                    continue
                yield entry
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: unreadable after line {number}: {error}") from error
    if found == 0:
        raise SourceError(f"{path}: {nothing}")


def _parse(game: Game[Any], path: Path, label: str, line: str, number: int, count: int) -> PlayedGame:
    fields = [field.strip() for field in line.split(";", 3)]
    if len(fields) < 3 or fields[2] not in _RESULTS:
        raise ValueError(f"{line.strip()!r} is not a game: start; moves; result (1-0, 0-1, 1/2-1/2 or *); headers")
    state = game.parse(None if fields[0] == "-" else fields[0])
    start, moves = game.format(state), []
    for word in fields[1].split():
        moves.append(game.moves.index(word))
        state = game.play(state, moves[-1])
    try:
        headers = json.loads(fields[3]) if len(fields) == 4 and fields[3] else {}
    except RecursionError:
        raise ValueError("headers must be one JSON object of texts, and these are nested too deeply") from None
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise ValueError(f"headers must be one JSON object of texts, got {fields[3]!r}")
    where = f"{path}:{number}: game {count}"
    return PlayedGame(f"{label}:{count}", start, tuple(moves), _RESULTS[fields[2]], headers, where)


def append_game(game: Game[Any], path: Path, played: PlayedGame) -> None:
    """Add a line to a file."""
    start = "-" if played.start == game.format(game.parse()) else played.start
    moves = " ".join(game.moves[move] for move in played.moves)
    headers = json.dumps(dict(played.headers), ensure_ascii=False)
    with (gzip.open if path.suffix == ".gz" else open)(path, "at", encoding="utf-8") as file:
        file.write(f"{start}; {moves}; {_TEXTS[played.result]}; {headers}\n")
