"""Positions from files: EPD and FEN lists, tables of searched positions, records of DiffuSearch and Lichess."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import chess

from genpolicy.errors import SourceError, lacks_memory
from genpolicy.files import refuse
from genpolicy.game import OnBad, Position
from genpolicy_chess.diffusearch import record_position
from genpolicy_chess.files import LIST_SUFFIXES, RECORD_SUFFIXES, DamagedFileError, read_lines, shortened, suffix_of
from genpolicy_chess.lichess import COLUMNS as LICHESS_COLUMNS
from genpolicy_chess.lichess import LichessRows, Row, is_lichess
from genpolicy_chess.moves import MOVES, move_id
from genpolicy_chess.state import MAX_COUNTER, has_legal_move, is_legal, parse_fen

_BATCH_ROWS = 1024
_MATE_CENTIPAWNS, _CE_MATED = 30_000, 32_767  # EPD's ce counts a mate in n plies as 32767 - n
# Each round begins with a character that no other part can match, so a line without a match fails in linear time.
_OPERATION = re.compile(r'\s*([A-Za-z][A-Za-z0-9_]{0,14})(?:\s((?:"[^"]*"|[^;"])*))?(?:;|$)')
_COUNTERS = re.compile(r"(\d+)\s+(\d+)(?=[\s;]|$)")
_SPLIT = re.compile(r"(?<![a-z])(train|test)(?![a-z])")


def read_positions(path: Path, on_bad: OnBad | None) -> Iterator[Position]:
    """Positions of one file, streamed.

    Raises:
        SourceError: an unreadable line or row or a damaged file (only without ``on_bad``), or no position in it.
    """
    suffix = suffix_of(path)
    if suffix in LIST_SUFFIXES:
        items = _list_items(path)
    elif suffix in RECORD_SUFFIXES:
        items = _json_items(path)
    else:
        items = _table_items(path)
    split = split_of(path)
    count = 0
    while True:
        try:
            where, read = next(items)
        except StopIteration:
            break
        except DamagedFileError as damage:
            if on_bad is None:
                raise
            on_bad(damage)
            return
        count += 1
        try:
            position = read()
        except ValueError as error:
            refuse(SourceError(f"{where}: {error}"), on_bad, error)
        else:
            if position is not None:
                yield replace(position, where=where, split=split)
    if count == 0:
        raise SourceError(
            f"{path}: holds no position; expected one FEN or EPD per line, or rows with one position each"
        )


def split_of(path: Path) -> str | None:
    """``"train"`` or ``"test"`` where the file's name holds the word, or its folder is called so; None otherwise."""
    said = set(_SPLIT.findall(path.name.lower())) or {path.parent.name.lower()} & {"train", "test"}
    return said.pop() if len(said) == 1 else None


def _list_items(path: Path) -> Iterator[tuple[str, Callable[[], Position | None]]]:
    for number, line in read_lines(path):
        if line.strip() and line.lstrip()[0] not in "#;":
            yield f"{path}:{number}", lambda line=line: list_position(line)  # type: ignore[misc]


def _json_items(path: Path) -> Iterator[tuple[str, Callable[[], Position | None]]]:
    reader = functools.cache(row_reader)  # one for all rows of a kind, since Lichess's depend on the row before
    for number, line in read_lines(path):
        if line.strip():
            yield f"{path}:{number}", lambda line=line: _json_position(line, reader)  # type: ignore[misc]


def _json_position(line: str, reader: Callable[[frozenset[str]], Callable[[Row], Position | None]]) -> Position | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}): {shortened(line)}") from error
    if not isinstance(row, dict):
        raise ValueError(f"expected an object with prompt and response, or with fen, got {shortened(line)}")
    return reader(frozenset(row))(row)


def _table_items(path: Path) -> Iterator[tuple[str, Callable[[], Position | None]]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        # A buffered reader takes pages one by one instead of whole column chunks.
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True) as table:
            reader = row_reader(table.schema_arrow.names, f"{path}: ")
            columns = [name for name in table.schema_arrow.names if name in _COLUMNS]
            for batch in table.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}: row {number}", lambda row=row, reader=reader: reader(row)  # type: ignore[misc]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if lacks_memory(error):
            raise
        reason = str(error).strip().splitlines()[0]
        raise DamagedFileError(
            f"{path}: cannot be read after row {number} ({reason}); it is damaged, cut short or not Parquet: "
            "fetch or make it again"
        ) from error


_COLUMNS = ("prompt", "response", "fen", "game", "ply", "line", "cp", "mate", *LICHESS_COLUMNS)


def row_reader(names: Collection[str], where: str = "") -> Callable[[Row], Position | None]:
    """What reads a row with columns of these names; it returns None for a row to leave out.

    Raises:
        SourceError: no known kind of row has them.
    """
    if "prompt" in names:
        return lambda row: record_position(row["prompt"], row.get("response"))
    if "fen" in names and is_lichess(names):
        turned = LichessRows()
        return lambda row: None if (ours := turned(row)) is None else table_position(ours, onto_rook=True)
    if "fen" in names:
        return table_position
    raise SourceError(
        f"{where}expected columns prompt, response (DiffuSearch's records) or fen with any of game, ply, line, cp, "
        f"mate; got {', '.join(map(str, names)) or 'none'}"
    )


def table_position(row: Row, *, onto_rook: bool = False) -> Position:
    """A row with ``fen`` and, where known, ``game``, ``ply``, ``line`` (UCI moves) and ``cp`` or ``mate``.

    Args:
        row: The row, with scores for the player to move.
        onto_rook: Whether castling is the king's move onto its rook, and ``move`` what was played.

    Raises:
        ValueError: a bad position, an illegal move, a value of a wrong type.
    """
    board = parse_fen(row["fen"])
    text = board.fen()
    moves = row.get("line")
    if moves is None:
        moves = ""
    if not isinstance(moves, str):
        raise ValueError(f"line must be UCI moves separated by spaces, got {moves!r}")
    played = row.get("move") if onto_rook else None
    if not isinstance(played, str | None):
        raise ValueError(f"move must be one in UCI, got {played!r}")
    played = None if played is None else play_line(board.copy(), [played], onto_rook=True)[0]
    line = play_line(board, moves.split(), onto_rook=onto_rook)
    cp, mate, ply, game = (_known(row.get(name)) for name in ("cp", "mate", "ply", "game"))
    score = f"mate:{_whole('mate', mate)}" if mate is not None else None
    if score is None and cp is not None:
        score = f"cp:{_whole('cp', cp)}"
    return Position(
        text,
        where="",
        line=line,
        scores=() if score is None else (score,),
        ended=not has_legal_move(board),
        game_id=None if game is None else str(game),
        ply=None if ply is None else _ply(ply),
        played=played,
    )


def _known(value: Any) -> Any:
    """None for NaN, which is how tables that went through pandas spell a missing number."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _whole(name: str, value: Any) -> int:
    """A whole number; tables with gaps often hold them as floats."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value % 1:
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    return int(value)


def _ply(value: Any) -> int:
    ply = _whole("ply", value)
    if not 0 <= ply <= MAX_COUNTER:
        raise ValueError(f"ply must be a number from 0 to {MAX_COUNTER}, got {value!r}")
    return ply


def play_line(board: chess.Board, texts: list[str], *, onto_rook: bool = False) -> tuple[str, ...]:
    """Play UCI or SAN moves on ``board`` (in place) and return them in UCI.

    With ``onto_rook`` the king's move onto its own rook is castling, as in Chess960.

    Raises:
        ValueError: not a move, or an illegal one; the message has the position.
    """
    played = []
    for text in texts:
        try:
            move = chess.Move.from_uci(text)
        except ValueError:
            move = board.parse_san(text)
        if onto_rook:
            with suppress(ValueError):
                move = board.parse_uci(text)
        if not is_legal(board, move):
            raise ValueError(f"move {text!r} is illegal in {board.fen()!r}")
        played.append(MOVES[move_id(move)].uci())
        board.push(move)
    return tuple(played)


def list_position(line: str) -> Position:
    """A line of an EPD or FEN list.

    Four fields, then two counters, operations (``bm``, ``pv``, ``ce``, ``dm``, ``hmvc``, ``fmvn`` are used, others are
    skipped), a comment after ``;``, or nothing. Of several best moves (``bm``) the first is the line.

    Raises:
        ValueError: none of these; the message quotes it.
    """
    fields = line.split(None, 4)
    if len(fields) < 4:
        raise ValueError(f"{line!r} is not an EPD or FEN: expected at least 4 fields, got {len(fields)}")
    rest = fields[4].strip() if len(fields) > 4 else ""
    fields[3], _, comment = fields[3].partition(";")
    if comment:
        rest = ""
    counters = _COUNTERS.match(rest)
    if counters:
        halfmove, fullmove = counters.groups()
        rest = rest[counters.end() :].strip()
    operations = {} if not rest or rest.startswith(";") else _operations(rest, line)
    if not counters:
        halfmove, fullmove = operations.get("hmvc", "0"), operations.get("fmvn", "1")
    board = parse_fen(" ".join([*fields[:4], halfmove, fullmove]))
    text = board.fen()
    best = operations.get("bm", "").split()
    played = play_line(board, operations.get("pv", "").split() or best[:1])
    return Position(
        text,
        where="",
        line=played,
        scores=_epd_scores(operations, line),
        ended=not has_legal_move(board),
        num_other_best=max(0, len(best) - 1),
    )


def _operations(text: str, line: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _OPERATION.match(text, at)
        if match is None:
            raise ValueError(f"{line!r}: {text[at:]!r} is neither counters nor operations such as 'bm e4;'")
        found[match.group(1)] = (match.group(2) or "").strip()
        at = match.end()
    return found


def _epd_scores(operations: dict[str, str], line: str) -> tuple[str, ...]:
    for name in ("dm", "ce"):
        if name in operations:
            try:
                number = int(operations[name])
            except ValueError:
                raise ValueError(f"{line!r}: {name} must be a whole number, got {operations[name]!r}") from None
            if name == "dm":
                return (f"mate:{number}",)
            if abs(number) < _MATE_CENTIPAWNS:
                return (f"cp:{number}",)
            if not -_CE_MATED <= number < _CE_MATED:
                raise ValueError(f"{line!r}: ce must lie from {-_CE_MATED} to {_CE_MATED - 1}, got {number}")
            plies = _CE_MATED - abs(number)  # 32766 mates with this move, -32765 is mated with the next
            return (f"mate:{(plies + 1) // 2 if number > 0 else -(plies // 2)}",)
    return ()
