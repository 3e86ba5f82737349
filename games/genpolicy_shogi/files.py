"""Which files shogi reads, and their bytes and lines, streamed from plain, gzip, Zstandard and zip files.

Text is UTF-8 or Shift-JIS (cp932), as most Japanese collections are; which one is seen from the first bytes that are
not ASCII. A zip archive, like a folder, stands for the files in it.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

import zstandard

from genpolicy.errors import SourceError
from genpolicy.files import ZstandardReader, files_of

Kind = Literal["games", "positions"]

GAME_SUFFIXES = (".csa", ".kif", ".kifu", ".ki2", ".ki2u")
LIST_SUFFIXES = (".sfen", ".usi", ".txt")
BINARY_SUFFIXES = (".hcpe", ".hcpe3", ".psv")
PACKED_SUFFIXES = (".gz", ".zst")
ACCEPTED = (
    "games: .csa, .kif, .kifu, .ki2, .ki2u, and .sfen, .usi or .txt whose lines are 'startpos moves ...' or "
    "'sfen ... moves ...'; positions: .hcpe, .hcpe3, .psv (.bin), and .sfen, .usi or .txt with one SFEN a line; each "
    "also .gz or .zst; a .zip, a folder or a glob pattern of files of one of these"
)

MAX_LINE_BYTES = 1 << 22  # a text without line ends must not fill the memory
_HEAD_BYTES = 1 << 16
_DAMAGE = (OSError, EOFError, zlib.error, zstandard.ZstdError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Source:
    """One file of games or positions: in a folder, or a member of a zip archive."""

    path: Path
    member: str | None = None
    """Name in the archive; "" for an archive that cannot be listed, and so cannot be read either."""

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.member.rsplit("/", 1)[-1] if self.member else self.path.name

    @property
    def suffix(self) -> str:
        """The suffix that tells the format: ``.csa`` of ``a.csa.gz``, ``.psv`` for YaneuraOu's ``.bin``."""
        suffixes = [suffix.lower() for suffix in Path(self.name).suffixes[-2:]]
        if suffixes and suffixes[-1] in PACKED_SUFFIXES:
            suffixes.pop()
        suffix = suffixes[-1] if suffixes else ""
        return ".psv" if suffix == ".bin" else suffix

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """Its bytes, unpacked.

        Raises:
            SourceError: it cannot be opened or unpacked, or is cut short (also while it is read).
        """
        try:
            with self._packed() as packed:
                raw: IO[bytes] = packed
                suffix = Path(self.name).suffix.lower()
                if suffix == ".gz":
                    raw = cast(IO[bytes], gzip.GzipFile(fileobj=packed))
                elif suffix == ".zst":
                    raw = cast(IO[bytes], ZstandardReader(packed))
                yield io.BufferedReader(cast(io.RawIOBase, raw))
        except _DAMAGE as error:
            missing = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError)
            way_out = "check the path" if missing else "the file is damaged or cut short; fetch or pack it again"
            raise SourceError(f"{self.label}: cannot be read ({error or type(error).__name__}); {way_out}") from error

    @contextmanager
    def _packed(self) -> Iterator[IO[bytes]]:
        if self.member is None:
            with self.path.open("rb") as file:
                yield file
        else:
            with zipfile.ZipFile(self.path) as archive:
                try:
                    member = archive.open(self.member)
                except (NotImplementedError, RuntimeError) as error:  # a method zipfile lacks, or a password
                    raise SourceError(f"{self.label}: cannot be unpacked ({error}); unpack it first") from error
                with member as file:
                    yield file


def find_files(path: Path) -> tuple[Kind, list[Source]]:
    """The files that a path stands for (a file, a folder, a zip archive, a glob), in name order, and what they hold.

    A folder is searched with its subfolders, as floodgate's archives have one for each day or year.

    Raises:
        SourceError: no such file, a kind of file that shogi does not read, or files of both kinds.
    """
    path = Path(path)
    inside = files_of(path)
    if path.is_dir():
        inside = [file for file in inside if not _is_hidden(file.relative_to(path).parts)]
    elif not inside:
        raise SourceError(f"{path}: no such file or folder")
    sources = [source for file in inside for source in _members(file)]
    known = GAME_SUFFIXES + LIST_SUFFIXES + BINARY_SUFFIXES
    files = [source for source in sources if source.suffix in known or source.member == ""]
    if not files:
        what = "not a kind of file that shogi reads" if path.is_file() else "holds no file that shogi reads"
        raise SourceError(f"{path}: {what}; {ACCEPTED}")
    kinds: set[Kind] = {kind for source in files if (kind := kind_of(source)) is not None}
    if len(kinds) > 1:
        raise SourceError(f"{path}: holds files of games and files of positions; name those of one kind, e.g. *.csa")
    return kinds.pop() if kinds else "positions", files


def kind_of(source: Source) -> Kind | None:
    """What a file holds: by its name, and for a list by its first line; None where that cannot be read or is missing.

    The reader of the file then says what is wrong with it.
    """
    if source.suffix in GAME_SUFFIXES:
        return "games"
    if source.suffix in BINARY_SUFFIXES:
        return "positions"
    with suppress(SourceError):
        for _, line in read_lines(source):
            words = line.split()
            if words and not words[0].startswith("#"):
                return "games" if words[0] == "startpos" or "moves" in words else "positions"
    return None


def _is_hidden(parts: Sequence[str]) -> bool:
    """Whether a file of a folder or archive is the system's own, such as what macOS puts beside each file."""
    return any(part == "__MACOSX" or (part.startswith(".") and part not in (".", "..")) for part in parts)


def _members(file: Path) -> list[Source]:
    if file.suffix.lower() != ".zip":
        return [Source(file)]
    try:
        with zipfile.ZipFile(file) as archive:
            names = sorted(name for name in archive.namelist() if not name.endswith("/"))
            return [Source(file, name) for name in names if not _is_hidden(name.split("/"))]
    except (OSError, zipfile.BadZipFile):
        return [Source(file, "")]  # whoever reads it says what is wrong, and may leave it out


def read_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, without its end (LF, CRLF or CR); a byte-order mark is dropped.

    Raises:
        SourceError: the file cannot be opened or unpacked, is cut short, or is not text.
    """
    number = 0
    encoding = None
    with source.open() as data:
        while line := data.readline(MAX_LINE_BYTES):
            number += 1
            if len(line) >= MAX_LINE_BYTES or b"\0" in line:
                raise SourceError(f"{source.label}:{number}: not a text file in UTF-8 or Shift-JIS")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if encoding is None and not line.isascii():
                encoding = _encoding(line + data.peek(_HEAD_BYTES))
            try:
                text = line.decode(encoding or "ascii")
            except UnicodeDecodeError:
                text = _other(source, number, line, encoding)
            if text.endswith("\n"):
                yield number, text.rstrip("\r\n")
            else:  # the last line, or all of a file whose lines end in CR
                parts = text.rstrip("\r").split("\r")
                yield from enumerate(parts, number)
                number += len(parts) - 1


def encoding_of(path: Path) -> str | None:
    """The encoding of a file's first text that is not ASCII; None where there is no file, or no such text."""
    if not path.exists():
        return None
    with Source(path).open() as data:
        head = data.read(_HEAD_BYTES)
    return None if head.isascii() else _encoding(head)


def _encoding(head: bytes) -> str:
    """UTF-8 where the bytes are that (their last character may be cut), else cp932."""
    for length in range(len(head), len(head) - 4, -1):
        try:
            head[:length].decode()
        except UnicodeDecodeError as error:
            if error.start < len(head) - 4:
                return "cp932"
        else:
            return "utf-8"
    return "cp932"


def _other(source: Source, number: int, line: bytes, encoding: str | None) -> str:
    """A line in the other encoding: files of several authors mix them."""
    try:
        return line.decode("cp932" if encoding == "utf-8" else "utf-8")
    except UnicodeDecodeError:
        raise SourceError(
            f"{source.label}:{number}: neither UTF-8 nor Shift-JIS; convert the file (iconv -t utf-8)"
        ) from None


def append_bytes(path: Path, data: bytes) -> None:
    """Append to a file, as a member or frame of its own where its name ends in ``.gz`` or ``.zst``."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        data = gzip.compress(data)
    elif suffix == ".zst":
        data = zstandard.ZstdCompressor().compress(data)
    with path.open("ab") as file:
        file.write(data)
