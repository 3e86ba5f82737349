"""Which files chess reads, and their lines, streamed from plain, gzip or Zstandard files.

Text is UTF-8; a line that is not is taken as Latin-1, which older PGN collections use. Lines may end in LF, CRLF or CR.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal, cast

import zstandard

from genpolicy.errors import SourceError
from genpolicy.files import ZstandardReader, files_of
from genpolicy.game import OnBad

Kind = Literal["games", "positions"]


class DamagedFileError(SourceError):
    """A file cannot be read, or cannot be read to its end."""


GAME_SUFFIXES = (".pgn",)
LIST_SUFFIXES = (".epd", ".fen", ".txt")
RECORD_SUFFIXES = (".jsonl",)
TABLE_SUFFIXES = (".parquet",)
PACKED_SUFFIXES = (".gz", ".zst")
ACCEPTED = (
    "games: .pgn; positions: .epd, .fen, .txt, .jsonl (each also .gz or .zst) and .parquet; "
    "a folder or a glob pattern of files of one of these"
)

MAX_LINE_CHARS = 1 << 24  # a text without line ends must not fill the memory
_DAMAGE = (OSError, EOFError, zlib.error, zstandard.ZstdError)


def suffix_of(path: Path) -> str:
    """The suffix that names the format, ``.pgn`` of ``a.pgn.gz``; "" where there is none."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    packed = bool(suffixes) and suffixes[-1] in PACKED_SUFFIXES
    if packed:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    return "" if packed and suffix in TABLE_SUFFIXES else suffix


def kind_of(path: Path) -> Kind | None:
    """What a single file holds, by its name; None where chess does not read it."""
    suffix = suffix_of(path)
    if suffix in GAME_SUFFIXES:
        return "games"
    return "positions" if suffix in LIST_SUFFIXES + RECORD_SUFFIXES + TABLE_SUFFIXES else None


def find_files(path: Path) -> tuple[Kind, list[Path]]:
    """The files of a path (a file, a folder with its subfolders, a glob), in name order, and what they hold.

    Raises:
        SourceError: no such file, a kind of file that chess does not read, or files of both kinds.
    """
    path = Path(path)
    inside = files_of(path)
    if not inside and not path.is_dir():
        raise SourceError(f"{path}: no such file or folder")
    kinds: dict[Path, Kind] = {child: kind for child in inside if (kind := kind_of(child)) is not None}
    if not kinds:
        what = "not a kind of file that chess reads" if path.is_file() else "holds no file that chess reads"
        raise SourceError(f"{path}: {what}; {ACCEPTED}")
    if len(set(kinds.values())) > 1:
        raise SourceError(f"{path}: holds files of games and files of positions; name those of one kind, e.g. *.pgn")
    return next(iter(kinds.values())), list(kinds)


def shortened(text: str) -> str:
    """A line as messages quote it."""
    return repr(text if len(text) <= 200 else text[:200] + "...")


def _open_text(path: Path) -> IO[str]:
    suffix = path.suffix.lower()
    packed = path.open("rb")
    raw: IO[bytes] = packed
    if suffix == ".gz":
        raw = cast(IO[bytes], gzip.GzipFile(fileobj=packed))
    elif suffix == ".zst":
        raw = io.BufferedReader(ZstandardReader(packed))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")


def open_for_writing(path: Path, *, append: bool = False) -> IO[str]:
    """A text file to write or to add to, packed where its name ends in ``.gz`` or ``.zst``.

    Appending to a packed file adds another packed file behind it, as both formats allow.
    """
    mode: Literal["at", "wt"] = "at" if append else "wt"
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return cast(IO[str], gzip.open(path, mode, encoding="utf-8"))
    if suffix == ".zst":
        return cast(IO[str], zstandard.open(path, mode, encoding="utf-8"))
    return path.open(mode, encoding="utf-8")


def read_lines(path: Path, on_damage: OnBad | None = None) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, without its end; a byte-order mark is dropped.

    Args:
        path: The file.
        on_damage: Called with the error where the file cannot be read any further; the lines end there. None raises it.

    Raises:
        DamagedFileError: it cannot be opened or unpacked, is cut short, or is not text (only without ``on_damage``).
    """
    try:
        yield from _read_lines(path)
    except DamagedFileError as error:
        if on_damage is None:
            raise
        on_damage(error)


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with _open_text(path) as text:
            while line := text.readline(MAX_LINE_CHARS):
                number += 1
                if len(line) >= MAX_LINE_CHARS:
                    raise DamagedFileError(
                        f"{path}:{number}: a line of {MAX_LINE_CHARS} characters; is this a text file?"
                    )
                yield number, _clean(line, path, number)
    except _DAMAGE as error:
        way_out = "the file is damaged or cut short; fetch or pack it again" if number or path.suffix else "check it"
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            way_out = "check the path"
        raise DamagedFileError(f"{path}:{number + 1}: cannot be read ({error}); {way_out}") from error


def _clean(line: str, path: Path, number: int) -> str:
    if not line.isascii():
        line = line.lstrip("\ufeff")
        try:
            line.encode()
        except UnicodeEncodeError:  # lone surrogates stand for bytes that are not UTF-8
            line = line.encode("utf-8", "surrogateescape").decode("latin-1")
    if "\0" in line:
        raise DamagedFileError(
            f"{path}:{number}: not a text file in UTF-8 or Latin-1; convert it (iconv -t utf-8) or unpack it"
        )
    return line.rstrip("\r\n")
