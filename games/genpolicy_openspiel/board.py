"""What people see of a board, read off OpenSpiel's texts and its names of moves: which letter stands for which plane,
which way up the board is, and the squares of moves.

OpenSpiel says of a move what it is called and nothing else. A guess at its squares is kept where it holds in every move
of the random games: the target changes, and so does the source.

Axes as in ``genpolicy_openspiel.survey``: T positions with their texts, S positions, N cells of a plane; M moves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np
import pyspiel
from numpy.typing import NDArray

from genpolicy.game import MoveVocabulary
from genpolicy_openspiel.survey import Survey, changes

EMPTY = ".-+_"
"""What OpenSpiel writes for an empty square; the first of them, where a game has two: checkers has men ``+``."""
OUTSIDE = "~"
"""A cell of which no plane is set, where another symbol means an empty square."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FEN_PART = re.compile(r"\.|\+?[A-Za-z]~?")
_SQUARE = re.compile(r"([a-z])(\d{1,2})")
_NAME = re.compile(r"[a-z]\d{1,2}[-x*]?([a-z]\d{1,2})?\*?")
MIN_PLACED = 0.5
"""Share of the moves seen that a guess has to explain."""


class Face(NamedTuple):
    """The first layer of a board as people see it."""

    letters: tuple[str, ...]
    """A symbol for none of the layer's planes, then one for each plane."""
    rows: NDArray[np.int16]
    """[N] row of each cell from the top."""
    cols: NDArray[np.int16]
    """[N] column of each cell from the left."""


def plain(text: str) -> str:
    """A text without the escape sequences of colours."""
    return _COLOURS.sub("", text)


def face(seen: Survey, layer: Sequence[int]) -> Face:
    """Letters for the planes of the first layer: those of OpenSpiel's texts if they show a board, else A, B, ..."""
    _, num_rows, num_cols = seen.shape
    rows, cols = np.indices((num_rows, num_cols), np.int16).reshape(2, -1)
    planes = seen.before[: len(seen.texts), list(layer)]
    symbols = np.where(planes.any(axis=1), 1 + planes.argmax(axis=1), 0)
    grids = [grid for text in seen.texts if (grid := _grid(plain(text), num_rows, num_cols))]
    if len(grids) == len(seen.texts):
        for turned in (rows, num_rows - 1 - rows):
            if found := _letters(np.array(grids)[:, turned, cols], symbols):
                return Face(_named(found, 1 + len(layer)), turned, cols)
    return Face(_named({int(np.bincount(symbols[0]).argmax()): "."}, 1 + len(layer)), rows, cols)


def _letters(shown: NDArray[np.str_], symbols: NDArray[np.int64]) -> dict[int, str]:
    """The letter [T, N] of each symbol [T, N]; nothing where a symbol has two. Symbols of one letter get marks."""
    pairs = sorted(set(zip(symbols.ravel().tolist(), shown.ravel().tolist(), strict=True)))
    found: dict[int, str] = {}
    for symbol, letter in pairs:
        while letter in found.values():
            letter += "'"
        found[symbol] = letter
    return found if len(found) == len(pairs) else {}


def _named(found: dict[int, str], number: int) -> tuple[str, ...]:
    """All symbols: those found, ``~`` or ``.`` for none, else capital letters that are free."""
    taken = set(found.values())
    spare = [letter + copy for copy in ("", *"2345678") for letter in ascii_uppercase if copy or letter not in taken]
    spare[0] = OUTSIDE if taken & set(EMPTY) else "."
    return tuple(found.get(symbol, spare[symbol]) for symbol in range(number))


def _grid(text: str, num_rows: int, num_cols: int) -> list[list[str]]:
    """The board's letters by row from the top; [] where the text does not show one."""
    if (fen := text.partition(" ")[0]).count("/") == num_rows - 1 > 0:
        spread = re.sub(r"\d+", lambda number: "." * int(number[0]), fen)
        lines = [_FEN_PART.findall(line) for line in spread.split("/")]
    else:
        bare = (re.sub(r"^\s*\d*\s?|\s*\d*$", "", line).replace(" ", "") for line in text.splitlines())
        lines = [list(line) for line in bare if len(line) == num_cols]
        if len(lines) > num_rows:  # the names of the columns, above and below
            lines = [line for line in lines if not (line == sorted(set(line)) and "".join(line).isalpha())]
    return lines if len(lines) == num_rows and all(len(line) == num_cols for line in lines) else []


def vocabulary(game: pyspiel.Game, seen: Survey, board: Face | None) -> MoveVocabulary:
    """The moves of a game; ``board`` is None where there is none."""
    number = game.num_distinct_actions()
    places = np.full((2, number + game.max_chance_outcomes()), -1, np.int16)  # source and target
    if board is not None:
        changed = changes(seen.before, seen.after).sum(axis=1) > 0
        guesses = (guess for guess in _guesses(game, seen, board) if _explains(guess[:, seen.actions], changed))
        guess = next(guesses, None)
        if guess is not None:
            places[:, :number] = guess
        elif number == seen.shape[2] and not (changed & (board.cols != seen.actions[:, None])).any():
            places[1, :number] = np.flatnonzero(board.rows == board.rows.max())  # moves are columns where stones fall
    count, kind = Counter[tuple[int, int]](), np.zeros(places.shape[1], np.int16)
    for move, pair in enumerate(zip(*places.tolist(), strict=True)):
        if pair != (-1, -1):
            kind[move] = count[pair]
            count[pair] += 1
    return MoveVocabulary(
        texts=tuple(map(str, range(len(kind)))),
        source=places[0],
        target=places[1],
        kind=kind,
        num_kinds=int(kind.max()) + 1,
        mirrored=np.arange(len(kind)),
    )


def _explains(places: NDArray[np.int64], changed: NDArray[np.bool_]) -> bool:
    """Whether the squares [2, S] are among those that change [S, N] wherever there are any, and often are."""
    held = changed[np.arange(len(changed)), np.maximum(places, 0)] | (places < 0)
    return bool(held.all()) and (places[1] >= 0).mean() >= MIN_PLACED


def _guesses(game: pyspiel.Game, seen: Survey, board: Face) -> Iterator[NDArray[np.int64]]:
    """[2, M] source and target of each move, -1 for none, by one idea after another."""
    number, cells = game.num_distinct_actions(), np.arange(len(board.rows))
    at = {
        (row, col): cell for cell, (row, col) in enumerate(zip(board.rows.tolist(), board.cols.tolist(), strict=True))
    }
    names = _names(game, seen)
    for first, step in ((seen.shape[1], -1), (-1, 1)):  # row 1 is at the bottom, or on top
        guess = np.full((2, number), -1)
        for move, name in names.items():
            squares = [at.get((first + step * int(row), ord(col) - ord("a")), -1) for col, row in _squares(name)]
            if squares and min(squares) >= 0:
                guess[:, move] = ([-1, *squares])[-2:]
        yield guess
    if number >= len(cells):
        for order in (cells, cells.reshape(seen.shape[1:])[::-1].ravel()):
            yield np.stack([np.full(number, -1), np.append(order, np.full(number - len(cells), -1))])


def _squares(name: str) -> list[tuple[str, str]]:
    """Column letter and row number of each square that a name holds, one or two; none of another name."""
    return _SQUARE.findall(name) if _NAME.fullmatch(name) else []


def _names(game: pyspiel.Game, seen: Survey) -> dict[int, str]:
    """Names of all moves that look like squares; none where they depend on the position or few look so."""
    like = sum(bool(_squares(name)) for name in seen.names.values())
    if not seen.names or like < MIN_PLACED * len(seen.names):
        return {}
    state, names = game.new_initial_state(), dict(seen.names)
    for move in range(game.num_distinct_actions()):
        names.setdefault(move, state.action_to_string(max(state.current_player(), 0), move))
    return names
