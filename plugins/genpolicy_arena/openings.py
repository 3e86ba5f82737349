"""Openings of a tournament: drawn from a book without replacement, or made of random moves.

A book is a file of games (whose first plies are used), of positions (EPD, FEN, SFEN, ...) or of protocol moves, one
opening per line: ``e2e4 e7e5 g1f3``, ``startpos moves 7g7f 3c3d``, ``POSITION moves ...``; ``.gz`` is unpacked. Two
openings that reach the same position count as one. Openings that are illegal or end the game are named, counted and
left out.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genpolicy.chance import drawn
from genpolicy.errors import SourceError
from genpolicy.facets import reader
from genpolicy.game import Game

MAX_TRIES = 200
"""Attempts at a new opening of random moves before there are said to be too few."""


@dataclass(frozen=True)
class Opening:
    """The opening of two games."""

    start: str
    """Text of the first position."""
    moves: tuple[int, ...]
    """Absolute ids of the moves played from there before the players take over."""
    source: str
    """Its source, for people: ``book.pgn:12``, ``random:3``."""

    def play(self, game: Game[Any]) -> Any:
        """The state in which the players take over."""
        state = game.parse(self.start)
        for move in self.moves:
            state = game.play(state, move)
        return state


@dataclass
class Book:
    """The openings of a book that can be played."""

    openings: list[Opening] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    """Texts on openings that were left out, and why."""
    num_repeated: int = 0
    """Number of openings left out because another one reaches the same position."""


def read_book(game: Game[Any], path: Path, max_plies: int | None = None) -> Book:
    """Read a book.

    Args:
        game: The game.
        path: A file of lines of moves, or of a format that the game reads.
        max_plies: Most plies to use of each line or game; None uses 8 of a game and all of a line.

    Raises:
        SourceError: the book cannot be read, or none of its openings can be played; the message says why.
    """
    book = Book()
    seen: set[str] = set()

    def bad(error: Exception) -> None:
        book.bad.append(str(error))

    for opening in _openings_of(game, path, max_plies, bad):
        try:
            state = opening.play(game)
        except ValueError as error:
            book.bad.append(f"{opening.source}: {error}")
            continue
        if game.is_over(state):
            book.bad.append(f"{opening.source}: the opening ends the game in {game.format(state)!r}")
            continue
        key = str(game.key(state))
        if key in seen:
            book.num_repeated += 1
            continue
        seen.add(key)
        book.openings.append(opening)
    if not book.openings:
        reason = f"; the first one: {book.bad[0]}" if book.bad else ""
        raise SourceError(f"{path}: no opening of this book can be played{reason}")
    return book


def _openings_of(
    game: Game[Any], path: Path, max_plies: int | None, bad: Callable[[Exception], None]
) -> Iterator[Opening]:
    kind: str | None = None
    unknown: SourceError | None = None
    try:
        kind = reader(game, path, "games", "positions").source_kind(path)
    except SourceError as error:
        unknown = error  # it may still be a file of lines, which a game need not know
    if path.is_file() and (kind != "games" or _begins_with(path, "startpos")) and _holds_lines(game, path):
        yield from _read_lines(game, path, max_plies, bad)
    elif unknown is not None:
        raise unknown
    elif kind == "games":
        plies = 8 if max_plies is None else max_plies
        for played in reader(game, path, "games").open_games(path, bad):
            yield Opening(played.start, played.moves[:plies], played.game_id)
    else:
        for position in reader(game, path, "positions").open_positions(path, bad):
            yield Opening(position.text, (), position.where)


def _text_lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if line.strip() and not line.startswith("#"):
                    yield number, line.strip()
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: unreadable after line {number}: {error}") from error


def _begins_with(path: Path, word: str) -> bool:
    return next(_text_lines(path), (0, ""))[1].startswith(word)


def _holds_lines(game: Game[Any], path: Path) -> bool:
    """Whether the first line of a file is a line of moves."""
    if path.suffix in (".parquet", ".zst"):
        return False
    _, first = next(_text_lines(path), (0, ""))
    words = first.split()
    if not words:
        return False
    return words[0] == "startpos" or " moves " in first or all(_is_move(game, word) for word in words)


def _is_move(game: Game[Any], word: str) -> bool:
    try:
        game.moves.index(word)
    except ValueError:
        return False
    return True


def _read_lines(
    game: Game[Any], path: Path, max_plies: int | None, bad: Callable[[Exception], None]
) -> Iterator[Opening]:
    for number, line in _text_lines(path):
        where = f"{path.name}:{number}"
        head, separator, tail = line.partition(" moves ")
        if not separator:
            head, tail = ("startpos", line) if not line.startswith("startpos") else ("startpos", line[8:])
        head = head.removeprefix("position ").removeprefix("sfen ").removeprefix("fen ").strip()
        try:
            state = game.parse(None if head == "startpos" else head)
            start, moves = game.format(state), []
            for word in tail.split()[:max_plies]:
                move = game.moves.index(word)
                state = game.play(state, move)
                moves.append(move)
        except ValueError as error:
            bad(SourceError(f"{where}: {error}"))
            continue
        yield Opening(start, tuple(moves), where)


def draw_from_book(book: Book, num_openings: int, seed: int, *, reuse: bool, path: Path) -> list[Opening]:
    """Draw openings from a book; the first ones do not depend on how many are drawn.

    Raises:
        ValueError: the book has fewer, and ``reuse`` is off.
    """
    size = len(book.openings)
    if num_openings > size and not reuse:
        raise ValueError(
            f"{path}: {num_openings} rounds need as many openings, and the book has {size} different ones; use fewer "
            "--rounds, a larger book, or --reuse-openings"
        )
    drawn: list[Opening] = []
    lap = 0
    while len(drawn) < num_openings:
        order = list(range(size))
        random.Random(f"book|{seed}|{lap}").shuffle(order)
        drawn += [book.openings[i] for i in order]
        lap += 1
    return drawn[:num_openings]


def draw_random(game: Game[Any], num_openings: int, num_plies: int, seed: int, *, reuse: bool = False) -> list[Opening]:
    """Draw openings of uniformly random moves that reach different positions and do not end the game.

    Opening i depends on the seed, i and the openings before it alone.

    Raises:
        ValueError: there seem to be fewer different openings, and ``reuse`` is off.
    """
    first = game.format(game.parse())
    seen: set[str] = set()
    openings: list[Opening] = []
    for number in range(num_openings):
        draw = random.Random(f"opening|{seed}|{number}")
        fallback: Opening | None = None
        for _ in range(MAX_TRIES):
            opening = _random_line(game, first, num_plies, draw, number)
            if opening is None:
                continue
            key = str(game.key(opening.play(game)))
            if key not in seen:
                seen.add(key)
                break
            fallback = opening
        else:
            if fallback is None or not reuse:
                raise ValueError(
                    f"{MAX_TRIES} draws of {num_plies} random plies gave no opening beyond the {len(seen)} found: they "
                    "repeat or end the game. Use other --random-plies, fewer --rounds, or --reuse-openings"
                )
            opening = fallback
        assert opening is not None
        openings.append(opening)
    return openings


def _random_line(game: Game[Any], start: str, num_plies: int, draw: random.Random, number: int) -> Opening | None:
    state = game.parse(start)
    moves = []
    for _ in range(num_plies):
        if game.is_over(state):
            return None
        moves.append(drawn(game, state, draw))
        state = game.play(state, moves[-1])
    return None if game.is_over(state) else Opening(start, tuple(moves), f"random:{number + 1}")
