"""Puzzles in Lichess's column format (https://database.lichess.org/#puzzles), from plain, gzip or Zstandard files.

A row holds a position, and moves of which the first is the opponent's: it is played before the solver, who must find
every second move, has its turn. Files with a header are read by its names, of which FEN and Moves are required; files
without one have Lichess's columns in Lichess's order.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import chess

from genpolicy.errors import SourceError
from genpolicy.files import csv_rows, files_of, refuse
from genpolicy.game import OnBad, Puzzle
from genpolicy_chess.files import read_lines, shortened, suffix_of
from genpolicy_chess.moves import move_id
from genpolicy_chess.state import is_legal, parse_fen

COLUMNS = (
    *("PuzzleId", "FEN", "Moves", "Rating", "RatingDeviation", "Popularity", "NbPlays"),
    *("Themes", "GameUrl", "OpeningTags"),
)
"""Lichess's columns; older files lack the last."""
SUFFIX = ".csv"
_NEEDED = ("FEN", "Moves")


def find_puzzle_files(path: Path) -> list[Path]:
    """The files that a path stands for (a file, a folder or a glob pattern), in name order.

    Raises:
        SourceError: no such file, or a file that is not a table by its name.
    """
    path = Path(path)
    accepted = "puzzles come as .csv, .csv.gz or .csv.zst in Lichess's columns"
    if path.is_file():
        if suffix_of(path) != SUFFIX:
            raise SourceError(f"{path}: not a kind of puzzle file that chess reads; {accepted}")
        return [path]
    if path.is_dir():
        inside = sorted(child for child in path.iterdir() if child.is_file() and suffix_of(child) == SUFFIX)
        if not inside:
            raise SourceError(f"{path}: holds no file of puzzles; {accepted}")
        return inside
    if not (named := files_of(path)):
        raise SourceError(f"{path}: no such file or folder")
    return [file for found in named for file in find_puzzle_files(found)]


def read_puzzles(path: Path, on_bad: OnBad | None) -> Iterator[Puzzle]:
    """Puzzles of one file, streamed.

    Raises:
        SourceError: an unreadable or illegal puzzle (only without ``on_bad``), a header without FEN or Moves, a damaged
            file, or no puzzle in it.
    """
    names: tuple[str, ...] | None = None
    count = 0
    for number, line in csv_rows(read_lines(path)):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            cells = _cells(line)
            if names is None:
                names = _header(cells, where)
                if names is not None:
                    continue
                names = COLUMNS
            count += 1
            puzzle = _puzzle(_named(cells, names), where)
        except _HeaderError:
            raise
        except ValueError as error:
            refuse(SourceError(f"{where}: {error}"), on_bad, error)
        else:
            yield puzzle
    if count == 0:
        raise SourceError(f"{path}: holds no puzzle; expected a header and rows of {', '.join(COLUMNS)}")


class _HeaderError(SourceError):
    """The header lacks what every row needs: no row can be read, so the file is an error and not its rows."""


def _cells(line: str) -> list[str]:
    try:
        (cells,) = csv.reader([line], strict=True)
    except csv.Error as error:
        raise ValueError(f"not comma-separated values ({error}): {shortened(line)}") from error
    return [cell.strip() for cell in cells]


def _header(cells: list[str], where: str) -> tuple[str, ...] | None:
    """The names of the columns where the first line is a header; None where it is a row already."""
    known = {name.lower(): name for name in COLUMNS}
    names = tuple(known.get(cell.lower(), cell) for cell in cells)
    if not any(cell.lower() in known for cell in cells):
        return None
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise _HeaderError(f"{where}: the header has no column {' and no '.join(missing)}; it has {', '.join(cells)}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise _HeaderError(f"{where}: the header has column {repeated[0]} more than once")
    return names


def _named(cells: list[str], names: tuple[str, ...]) -> dict[str, str]:
    allowed = {len(names), len(names) - 1} if names == COLUMNS else {len(names)}
    if len(cells) not in allowed:
        raise ValueError(
            f"expected {len(names)} columns ({', '.join(names)}), got {len(cells)}: {','.join(cells)[:200]!r}"
        )
    return dict(zip(names, cells, strict=False))


def _puzzle(row: dict[str, str], where: str) -> Puzzle:
    board = parse_fen(row["FEN"])
    start = board.fen()
    texts = row["Moves"].split()
    if len(texts) < 2 or len(texts) % 2:
        raise ValueError(
            f"expected the opponent's move, then the solver's and answers in turn, so an even number of moves, "
            f"got {len(texts)}: {row['Moves']!r}"
        )
    moves = [_play(board, text) for text in texts]
    themes = tuple(row.get("Themes", "").split())
    return Puzzle(
        name=row.get("PuzzleId") or where,
        where=where,
        start=start,
        setup=tuple(moves[:1]),
        solution=tuple(moves[1:]),
        rating=_number("Rating", row.get("Rating", "")),
        rating_deviation=_number("RatingDeviation", row.get("RatingDeviation", "")),
        themes=themes,
        # The tag mateIn5 says "5 or more", so the length is taken from the line itself.
        mate_in=len(moves) - 1 if board.is_checkmate() else None,
    )


def _play(board: chess.Board, text: str) -> int:
    """Play a UCI move on ``board`` (in place); its id."""
    try:
        move = chess.Move.from_uci(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a move in UCI notation, in {board.fen()!r}") from None
    if not is_legal(board, move):
        raise ValueError(f"move {text!r} is illegal in {board.fen()!r}")
    board.push(move)
    return move_id(move)


def _number(name: str, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a number, got {text!r}")
    return value
