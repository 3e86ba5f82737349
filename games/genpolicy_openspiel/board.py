"""What people see: which letter stands for which plane, and which way up a board is, read off OpenSpiel's own text.

Axes: T positions with their texts, C planes, N cells of a plane.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EMPTY = ".-+_"
"""What OpenSpiel writes for an empty square; the first of them, where a game has two: checkers has men ``+``."""
OUTSIDE = "~"
"""A cell of which no plane is set, where another symbol means an empty square."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FEN_PART = re.compile(r"\d+|\+?[A-Za-z]~?")


@dataclass(frozen=True)
class Face:
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


def face(texts: Sequence[str], tensors: NDArray[np.float32], layer: Sequence[int], num_cols: int) -> Face:
    """Letters by the texts where they show the board, else A, B, C, ...

    Args:
        texts: [T].
        tensors: [T, C, N], the initial position first.
        layer: Planes of the first layer; none where there is no board.
        num_cols: Columns of a plane.
    """
    cells = np.arange(tensors.shape[2])
    rows, cols = (cells // num_cols).astype(np.int16), (cells % num_cols).astype(np.int16)
    planes = tensors[:, list(layer)]
    symbols = np.zeros((len(tensors), len(cells)), np.int64)
    if len(layer):
        symbols = np.where(planes.any(axis=1), 1 + planes.argmax(axis=1), 0).astype(np.int64)
    num_rows = len(cells) // num_cols
    grids = [grid for text in texts if (grid := _grid(plain(text), num_rows, num_cols)) is not None]
    if len(grids) == len(texts):
        for turned in (rows, num_rows - 1 - rows):
            found = _letters(
                np.array([[grid[r][c] for r, c in zip(turned, cols, strict=True)] for grid in grids]), symbols
            )
            if found:
                return Face(_named(found, 1 + len(layer)), turned, cols)
    most = int(np.bincount(symbols[0]).argmax())
    return Face(_named({most: "."}, 1 + len(layer)), rows, cols)


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
    spare = [letter for letter in map(chr, range(ord("A"), ord("Z") + 1)) if letter not in taken]
    spare += [f"{letter}{copy}" for copy in range(2, 9) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    none = OUTSIDE if taken & set(EMPTY) else "."
    return tuple(found.get(i, none if i == 0 else spare[i]) for i in range(number))


def _grid(text: str, num_rows: int, num_cols: int) -> list[list[str]] | None:
    """The board's letters by row from the top; None where the text does not show one."""
    words = text.split()
    if words and words[0].count("/") == num_rows - 1 > 0:
        lines = [
            [each for part in _FEN_PART.findall(line) for each in (["."] * int(part) if part.isdecimal() else [part])]
            for line in words[0].split("/")
        ]
    else:
        bare = (re.sub(r"^\s*\d*\s?|\s*\d*$", "", line).replace(" ", "") for line in text.splitlines())
        lines = [list(line) for line in bare if len(line) == num_cols]
        if len(lines) > num_rows:  # the names of the columns, above and below
            lines = [line for line in lines if not (line == sorted(set(line)) and "".join(line).isalpha())]
    return lines if len(lines) == num_rows and all(len(line) == num_cols for line in lines) else None
