"""What people see of a board, read off OpenSpiel's texts and its names of moves: which letter stands for which plane,
which way up the board is, and the squares of moves.

OpenSpiel says of a move what it is called and nothing else. A guess at its squares is kept where it holds in every move
of the random games: the target changes, and so does the source.

Axes as in ``genpolicy_openspiel.survey``: T positions with their texts, S positions, N cells of a plane; M moves.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, repeat
from string import ascii_uppercase

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
_SQUARE = re.compile(r"[a-z]\d{1,2}")
_NAME = re.compile(r"[a-z]\d{1,2}[-x*]?([a-z]\d{1,2})?\*?")
MIN_PLACED = 0.5
"""Share of the moves seen that a guess has to explain."""


def plain(text: str) -> str:
    """A text without the escape sequences of colours."""
    return _COLOURS.sub("", text)


def face(seen: Survey, layer: Sequence[int]) -> tuple[tuple[str, ...], NDArray[np.int16]]:
    """The first layer of a board as people see it.

    Returns:
        A symbol for none of the layer's planes, then one for each: those of OpenSpiel's texts if they show a board,
        else A, B, ...; and [N] the row of each cell from the top.
    """
    _, num_rows, num_cols = seen.shape
    rows, cols = np.indices((num_rows, num_cols), np.int16).reshape(2, -1)
    planes = seen.before[: len(seen.texts), list(layer)]
    symbols = np.where(planes.any(axis=1), 1 + planes.argmax(axis=1), 0)
    grids = [_grid(plain(text), num_rows, num_cols) for text in seen.texts]
    if all(grids):
        for turned in (rows, rows[::-1]):
            if found := _letters(np.array(grids)[:, turned, cols], symbols):
                return _named(found, 1 + len(layer)), turned
    return _named({int(np.bincount(symbols[0]).argmax()): "."}, 1 + len(layer)), rows


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


def vocabulary(game: pyspiel.Game, seen: Survey, rows: NDArray[np.int16]) -> MoveVocabulary:
    """The moves of a game; ``rows`` is [L] the row of each token from the top, -1 where it is not a square."""
    number = game.num_distinct_actions()
    places = np.full((2, number + game.max_chance_outcomes()), -1, np.int16)  # source and target
    if rows.max() >= 0:
        changed = changes(seen.before, seen.after).sum(axis=1) > 0
        cols = np.arange(changed.shape[1]) % seen.shape[2]
        if number == seen.shape[2] and not (changed & (cols != seen.actions[:, None])).any():
            places[1, :number] = np.flatnonzero(rows == rows.max())  # moves are columns where stones fall
        guesses = (guess for guess in _guesses(game, seen) if _explains(guess[:, seen.actions], changed))
        places[:, :number] = next(guesses, places[:, :number])
    # Moves of the same squares are numbered; those without squares are all of kind 0.
    copies = defaultdict[tuple[int, int], Iterator[int]](count, {(-1, -1): repeat(0)})
    kind = np.array([next(copies[pair]) for pair in zip(*places.tolist(), strict=True)], np.int16)
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


def _guesses(game: pyspiel.Game, seen: Survey) -> Iterator[NDArray[np.int64]]:
    """[2, M] source and target of each move, -1 for none: the squares of its name, or the one of its number.

    Row 1 is the tensor's first or its last.
    """
    names, cells = _names(game, seen), np.arange(seen.before.shape[2]).reshape(seen.shape[1:])
    for grid in (cells, cells[::-1]):
        at = {f"{chr(ord('a') + col)}{row + 1}": cell for (row, col), cell in np.ndenumerate(grid)}
        named, numbered = np.full((2, 2, game.num_distinct_actions()), -1)
        for move, name in names.items():
            squares = [at.get(square, -1) for square in _squares(name)]
            if squares and min(squares) >= 0:  # OpenSpiel may number moves that leave the board
                named[:, move] = [-1, *squares][-2:]
        numbered[1, : grid.size] = grid.ravel()[: numbered.shape[1]]
        yield from (named, numbered)


def _squares(name: str) -> list[str]:
    """The squares that a name holds, one or two; none of another name."""
    return _SQUARE.findall(name) if _NAME.fullmatch(name) else []


def _names(game: pyspiel.Game, seen: Survey) -> dict[int, str]:
    """Names of all moves, as in the initial position; none where they depend on it or none looks like squares."""
    if not any(map(_squares, seen.names.values())):
        return {}
    state = game.new_initial_state()
    player = max(state.current_player(), 0)
    return {move: state.action_to_string(player, move) for move in range(game.num_distinct_actions())} | seen.names
