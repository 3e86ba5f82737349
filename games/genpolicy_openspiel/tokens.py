"""The state tokenizer of OpenSpiel's games: an observation tensor as symbols.

What random games show decides how a tensor is read. Planes that hold one number everywhere are one token each. Planes
of which at most one is set in a cell share a token a cell, with a symbol for each plane and one for none; planes that
overlap have layers of their own. Any other number is a token. The last token says who is to move, or after whose move
chance decides. Both players see player 0's tensor, for OpenSpiel cannot turn a board round; and nothing leads back from
tokens to a position.

Axes: B batch, S positions, C planes, N cells of a plane, L tokens of a state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyspiel
from numpy.typing import NDArray

from genpolicy.game import IntArray, StateTokenizer
from genpolicy_openspiel.board import Face
from genpolicy_openspiel.survey import moves_made, observed

MAX_TOKENS = 2048
MAX_DENOMINATOR = 512  # yacht has 305
SIDES = ("1st", "2nd")
THROWN = ("1st, chance", "2nd, chance")
TOLERANCE = 1e-3  # of numbers in units of their denominator; the tensors are float32


@dataclass(frozen=True, eq=False)
class State:
    """One position; never mutated."""

    spiel: pyspiel.State
    """OpenSpiel's own state."""
    player: int
    """Player to move, 0 for who moves first in the game; after the end, who did not make the last move; where chance
    decides, who did."""
    legal: NDArray[np.int64]
    """Sorted ids of the legal moves."""
    offset: int = 0
    """A move's id less what OpenSpiel calls it: outcomes of chance follow the players' actions."""

    @cached_property
    def names(self) -> dict[int, str]:
        """OpenSpiel's name of every legal move; its id as text where the name says less than that."""
        spiel, moves = self.spiel, self.legal.tolist()
        said = [spiel.action_to_string(spiel.current_player(), move - self.offset).strip() for move in moves]
        count = Counter(said)
        return {
            move: name if count[name] == 1 and (name == str(move) or not name.isdecimal()) else str(move)
            for move, name in zip(moves, said, strict=True)
        }


@dataclass(frozen=True)
class Reading:
    """How the planes of a tensor are read."""

    layers: tuple[tuple[int, ...], ...]
    """Planes that share a token a cell."""
    uniform: tuple[int, ...]
    """Planes of one number, a token each."""
    numbers: tuple[int, ...]
    """Planes with a token for each of their N numbers."""
    denominator: int
    """Numbers are multiples of one over it."""
    top: int
    """The largest number, times ``denominator``."""


def reading(seen: NDArray[np.float32], board: bool) -> Reading:
    """How to read tensors like these.

    Args:
        seen: [S, C, N], the initial position first.
        board: Whether a plane's numbers are the cells of a board.

    Raises:
        ValueError: numbers that are not multiples of a fraction, or too many tokens.
    """
    num_cells = seen.shape[2]
    binary = np.isin(seen, (0, 1)).all(axis=(0, 2))
    same = (seen == seen[:, :, :1]).all(axis=(0, 2)) & board
    empty = (seen == 0).all(axis=(0, 2))
    beside = np.append(~empty & same, False)
    same &= ~empty | (beside[1:] & np.roll(beside, 1)[:-1])  # planes of one kind stand together
    uniform = tuple(np.flatnonzero(same).tolist())
    numbers = tuple(np.flatnonzero(~same & (~binary | (not board))).tolist())
    layers = _layers(seen > 0, np.flatnonzero(~same & binary & board).tolist())
    length = (len(layers) + len(numbers)) * num_cells + len(uniform) + 1
    if length > MAX_TOKENS:
        raise ValueError(f"its observation makes {length:,} tokens of a position; at most {MAX_TOKENS:,} are read here")
    plain = seen[:, list(uniform + numbers)]
    values = np.unique(plain)
    multiples = (d for d in range(1, MAX_DENOMINATOR + 1) if np.abs(values * d - np.rint(values * d)).max() < TOLERANCE)
    denominator = next(multiples, 0) if len(values) else 1
    if not denominator or (len(values) and values.min() < 0):
        raise ValueError(f"its observation holds numbers that are not read here: {values[:8].tolist()}")
    # Fractions are of a whole; of other counts random play may not have shown the largest.
    most = round(float(values.max(initial=1)) * denominator)
    top = most if denominator > 1 or most == 1 else 2 * most
    return Reading(tuple(map(tuple, layers)), uniform, numbers, denominator, max(top, denominator))


def _layers(seen: NDArray[np.bool_], planes: Sequence[int]) -> list[list[int]]:
    """Planes [S, C, N] that share a token a cell: those that never overlap, and as a whole leave no cell bare.

    Where planes overlap, some do so seldom: then only planes that cover every cell are held to exclude each other.
    """
    layers: list[list[int]] = []
    for plane in planes:
        free = (layer for layer in layers if not (seen[:, layer].any(axis=1) & seen[:, plane]).any())
        layer = next(free, None)
        if layer is None:
            layers.append([plane])
        else:
            layer.append(plane)
    if len(layers) > 1:
        covers = [bool(seen[:, layer].any(axis=1).all()) for layer in layers]
        layers = [
            part
            for layer, whole in zip(layers, covers, strict=True)
            for part in ([layer] if whole else [[p] for p in layer])
        ]
    return layers


class ObservationTokens(StateTokenizer[State]):
    """Tokens of an observation tensor: layers of cells, then single numbers, then the side to move.

    Args:
        shape: C, rows and columns of the tensor.
        read: How it is read.
        face: The symbols of the first layer, and where the cells are for people.
        chance: Whether the game has chance.
    """

    decodes: ClassVar[bool] = False

    def __init__(self, shape: tuple[int, int, int], read: Reading, face: Face, chance: bool) -> None:
        planes, num_rows, num_cols = shape
        self._cells, self._cols = num_rows * num_cols, num_cols
        self._shape, self._read = (planes, self._cells), read
        symbols: list[str] = []
        self._first: list[int] = []  # id of "none" of each layer
        admitted: list[tuple[int, NDArray[np.int64]]] = []  # so many tokens, and what they admit
        for number, layer in enumerate(read.layers):
            self._first.append(len(symbols))
            others = [f"{number + 1}:none", *(f"{number + 1}:{plane}" for plane in layer)]
            symbols += others if number else face.letters
            admitted.append((self._cells, np.arange(self._first[-1], len(symbols))))
        self._zero, d = len(symbols), read.denominator
        self._singles = len(read.uniform) + len(read.numbers) * self._cells
        if self._singles:
            symbols += [f"={n}" if d == 1 else f"={n}/{d}" for n in range(read.top + 1)]
            admitted.append((self._singles, np.arange(self._zero, len(symbols))))
        self._side = len(symbols)
        self.symbols = (*symbols, *SIDES, *THROWN * chance)
        admitted.append((1, np.arange(self._side, len(self.symbols))))
        length = sum(count for count, _ in admitted)
        self.admitted = np.zeros((length, len(self.symbols)), np.bool_)
        at = 0
        for count, ids in admitted:
            self.admitted[at : at + count, ids] = True
            at += count
        self.rows, self.cols, self.hands = (np.full(length, -1, np.int16) for _ in range(3))
        if read.layers:
            self.rows[: self._cells], self.cols[: self._cells] = face.rows, face.cols

    @property
    def turned(self) -> tuple[IntArray, IntArray]:
        """Nothing: both players see player 0's tensor."""
        return np.arange(self.length), np.arange(len(self.symbols))

    def encode(self, states: Sequence[State], viewers: Sequence[int] | IntArray | None = None) -> NDArray[np.int16]:
        """Token ids, shape [B, L], the same for both viewers.

        Raises:
            ValueError: a tensor of a kind that random play did not show; the message names the cell and its values.
        """
        del viewers
        tensors, columns = np.zeros((len(states), *self._shape), np.float32), list[NDArray[Any]]()
        for row, state in enumerate(states):
            tensors[row] = observed(state.spiel, self._shape)
        for first, layer in zip(self._first, self._read.layers, strict=True):
            planes = tensors[:, list(layer)]
            total = planes.sum(axis=1)
            self._hold((planes == 0) | (planes == 1), layer, states, tensors)
            self._hold(np.broadcast_to((total <= 1)[:, None], planes.shape), layer, states, tensors)
            columns.append(np.where(total > 0, first + 1 + planes.argmax(axis=1), first))
        uniform, numbers = list(self._read.uniform), list(self._read.numbers)
        self._hold(tensors[:, uniform] == tensors[:, uniform, :1], uniform, states, tensors)
        singles = np.concatenate([tensors[:, uniform, 0], tensors[:, numbers].reshape(len(states), -1)], axis=1)
        units = singles * self._read.denominator
        whole = (np.abs(units - np.rint(units)) < TOLERANCE) & (units > -TOLERANCE) & (np.rint(units) <= self._read.top)
        if not whole.all():
            row, place = np.argwhere(~whole)[0].tolist()
            raise ValueError(
                f"position {_history(states[row])!r}: number {singles[row, place]:g} of its observation is not one of "
                f"the {self._read.top + 1} that are read here, 0 to {self._read.top}/{self._read.denominator}"
            )
        sides = np.array([state.player + 2 * state.spiel.is_chance_node() for state in states], np.int64)
        columns += [self._zero + np.rint(units), self._side + sides[:, None]]
        return np.concatenate(columns, axis=1).astype(np.int16)

    def _hold(
        self, holds: NDArray[np.bool_], planes: Sequence[int], states: Sequence[State], tensors: NDArray[np.float32]
    ) -> None:
        """Raise a ValueError that names the first cell for which something does not hold, [B, planes, N]."""
        if holds.all():
            return
        row, _, cell = np.argwhere(~holds)[0].tolist()
        values = {plane: float(tensors[row, plane, cell]) for plane in planes if tensors[row, plane, cell] != 0}
        raise ValueError(
            f"position {_history(states[row])!r}: row {cell // self._cols}, column {cell % self._cols} of its "
            f"observation holds {values} (plane: number), which random play did not show and has no token"
        )


def _history(state: State) -> str:
    return " ".join(map(str, moves_made(state.spiel)))
