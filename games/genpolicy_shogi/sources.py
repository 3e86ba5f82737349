"""What ``ShogiGame`` reads and writes, by the name and content of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from genpolicy.errors import SourceError
from genpolicy.files import entries_of
from genpolicy.game import Game, OnBad, PlayedGame, Position, Puzzle
from genpolicy_shogi import csa, kif, labelled, lists, tsume
from genpolicy_shogi.files import ACCEPTED, LIST_SUFFIXES, Kind, Source, append_bytes, encoding_of, find_files

WRITES = (".csa", ".kif", ".kifu", ".usi", ".sfen", ".hcpe3")
"""Suffixes of the game files that can be written; .kif is Shift-JIS, as its readers expect, where that has all of the
first game's characters."""
_T = TypeVar("_T", PlayedGame, Position)


def source_kind(path: Path) -> Kind:
    """Whether a file, folder, archive or glob holds games or positions.

    Raises:
        SourceError: it does not exist, or shogi does not read this kind of file.
    """
    return find_files(path)[0]


def open_games(game: Game[Any], path: Path, on_bad: OnBad | None = None) -> Iterator[PlayedGame]:
    """Games of CSA, KIF, KI2, USI and hcpe3 files, of one or of all in a folder, archive or glob, streamed.

    Raises:
        SourceError: an unreadable or illegal game (only without ``on_bad``), a damaged file, or no game in a file.
    """
    kind, files = find_files(path)
    if kind != "games" and not all(file.suffix == ".hcpe3" for file in files):
        raise SourceError(f"{path}: holds positions, not games; {ACCEPTED}")
    readers: dict[str, Callable[..., Iterator[PlayedGame]]] = {".csa": csa.read_games, ".hcpe3": labelled.read_games}
    readers |= dict.fromkeys(LIST_SUFFIXES, lists.read_games)

    def read(labelled_file: tuple[Source, str], on_bad: OnBad | None) -> Iterator[PlayedGame]:
        file, label = labelled_file
        reader = readers.get(file.suffix, kif.read_games)
        return _some(partial(reader, game, file, label), file, "game", on_bad)

    yield from entries_of(list(_labels(files)), read, on_bad)


def open_positions(game: Game[Any], path: Path, on_bad: OnBad | None = None) -> Iterator[Position]:
    """Positions of hcpe, hcpe3 and PSV files and of SFEN lists, of one or of all in a folder or glob, streamed.

    Raises:
        SourceError: an unreadable record or line (only without ``on_bad``), a damaged file, or no position in a file.
    """
    kind, files = find_files(path)
    if kind != "positions":
        raise SourceError(f"{path}: holds games, not positions; {ACCEPTED}")

    def read(labelled_file: tuple[Source, str], on_bad: OnBad | None) -> Iterator[Position]:
        file, label = labelled_file
        if file.suffix in LIST_SUFFIXES:
            reader = partial(lists.read_positions, game, file)
        else:
            reader = partial(labelled.read_positions, game, file, label)
        return _some(reader, file, "position", on_bad)

    yield from entries_of(list(_labels(files)), read, on_bad)


def open_puzzles(
    game: Game[Any], search: tsume.MateSearch, path: Path, on_bad: OnBad | None = None
) -> Iterator[Puzzle]:
    """Mate problems of a file or folder (see ``genpolicy_shogi.tsume``), streamed.

    Raises:
        SourceError: an unreadable or wrong problem (only without ``on_bad``), or no problem in a file.
    """
    for file in tsume.find_files(path):
        yield from tsume.read_puzzles(game, search, file, on_bad)


def _labels(files: list[Source]) -> Iterator[tuple[Source, str]]:
    """Each file with the beginning of its ids: its name, or its whole path where two files have the same name."""
    unlike = len({file.name for file in files}) == len(files)
    for file in files:
        yield file, file.name if unlike else file.label


def _some(read: Callable[[OnBad | None], Iterator[_T]], file: Source, what: str, on_bad: OnBad | None) -> Iterator[_T]:
    """The entries of a reader, good or bad; none at all is an error."""
    entries = 0

    def count(error: SourceError) -> None:
        nonlocal entries
        entries += 1
        assert on_bad is not None
        on_bad(error)

    for entry in read(None if on_bad is None else count):
        entries += 1
        yield entry
    if entries == 0:
        with file.open() as data:
            empty = "" if data.read(1) else " (it is empty)"
        raise SourceError(f"{file.label}: holds no {what}{empty}; {ACCEPTED}")


def write_game(game: Game[Any], path: Path, played: PlayedGame) -> None:
    """Append a game to a file in the format of its name.

    Raises:
        ValueError: games are not written in the format of this name.
    """
    suffix = Source(path).suffix
    if suffix == ".hcpe3":
        append_bytes(path, labelled.hcpe3_of_game(game, played).to_bytes())
        return
    if suffix == ".csa":
        going_on = path.exists() and path.stat().st_size > 0
        text = ("/\n" if going_on else "") + csa.game_text(game, played)
    elif suffix in (".kif", ".kifu"):
        text = kif.game_text(game, played) + "\n"
    elif suffix in LIST_SUFFIXES:
        text = lists.game_text(game, played)
    else:
        raise ValueError(f"{path}: games are written as {', '.join(WRITES)} (each also .gz or .zst)")
    append_bytes(path, _kif_bytes(path, text) if suffix == ".kif" else text.encode("utf-8", "replace"))


def _kif_bytes(path: Path, text: str) -> bytes:
    """In the encoding of the file; a new one is Shift-JIS, or UTF-8 with a byte-order mark for what Shift-JIS lacks."""
    encoding = encoding_of(path)
    if encoding is None:
        try:
            return text.encode("cp932")
        except UnicodeEncodeError:
            encoding = "utf-8-sig"
    return text.encode(encoding, "replace")
