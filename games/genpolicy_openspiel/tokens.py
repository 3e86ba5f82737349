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
from typing import ClassVar

import numpy as np
import pyspiel
from numpy.typing import NDArray

from genpolicy.game import IntArray, StateTokenizer
from genpolicy_openspiel.board import face
from genpolicy_openspiel.survey import Survey, observed

MAX_TOKENS = 2048
MAX_DENOMINATOR = 512  # yacht has 305
SIDES = ("1st", "2nd", "1st, chance", "2nd, chance")
START = "start"
TOLERANCE = 1e-3  # of numbers in units of their denominator; the tensors are float32


@dataclass(frozen=True, eq=False)
class State:
    """One position; never mutated."""

    spiel: pyspiel.State
    """OpenSpiel's own state."""
    made: tuple[int, ...]
    """Ids of the moves from the start."""
    player: int
    """Player to move, 0 for who moves first in the game; after the end, who did not make the last move; where chance
    decides, who did."""
    legal: NDArray[np.int64]
    """Sorted ids of the legal moves."""
    offset: int
    """A move's id less what OpenSpiel calls it: outcomes of chance follow the players' actions."""

    @cached_property
    def names(self) -> dict[int, str]:
        """OpenSpiel's name of every legal move; its id as text where the name says less than that."""
        said = {move: self.spiel.action_to_string(move - self.offset).strip() for move in self.legal.tolist()}
        count = Counter(said.values())
        return {move: str(move) if name.isdecimal() or count[name] > 1 else name for move, name in said.items()}


def written(made: Sequence[int]) -> str:
    """A position's text: the ids of the moves from the start."""
    return " ".join(map(str, made)) or START


@dataclass(frozen=True)
class Reading:
    """How the planes of a tensor are read."""

    layers: list[list[int]]
    """Planes that share a token a cell."""
    uniform: list[int]
    """Planes of one number, a token each."""
    numbers: list[int]
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
    binary = np.isin(seen, (0, 1)).all(axis=(0, 2)) & board
    same = (seen == seen[:, :, :1]).all(axis=(0, 2)) & board
    empty = (seen == 0).all(axis=(0, 2))
    beside = np.append(~empty & same, False)
    same &= ~empty | (beside[1:] & np.roll(beside, 1)[:-1])  # planes of one kind stand together
    uniform, numbers = (np.flatnonzero(planes).tolist() for planes in (same, ~same & ~binary))
    layers = _layers(seen > 0, np.flatnonzero(~same & binary).tolist())
    length = (len(layers) + len(numbers)) * seen.shape[2] + len(uniform) + 1
    if length > MAX_TOKENS:
        raise ValueError(f"its observation makes {length:,} tokens of a position; at most {MAX_TOKENS:,} are read here")
    values = np.unique(seen[:, uniform + numbers])
    multiples = (d for d in range(1, MAX_DENOMINATOR + 1) if (_off(values * d) < TOLERANCE).all())
    denominator = next(multiples, 0)
    if not denominator or values.min(initial=0) < 0:
        raise ValueError(f"its observation holds numbers that are not read here: {values[:8].tolist()}")
    # Fractions are of a whole; of other counts random play may not have shown the largest.
    most = round(float(values.max(initial=1)) * denominator)
    return Reading(layers, uniform, numbers, denominator, 2 * most if denominator == 1 < most else most)


def _off(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far numbers are from whole ones."""
    return np.abs(numbers - np.rint(numbers))


def _layers(seen: NDArray[np.bool_], planes: Sequence[int]) -> list[list[int]]:
    """Planes [S, C, N] that share a token a cell: those that never overlap, and as a whole leave no cell bare.

    Where planes overlap, some do so seldom: then only planes that cover every cell are held to exclude each other.
    """
    layers: list[list[int]] = []
    for plane in planes:
        free = (layer for layer in layers if not (seen[:, layer].any(axis=1) & seen[:, plane]).any())
        if not (layer := next(free, [])):
            layers.append(layer)
        layer.append(plane)
    whole = [len(layers) == 1 or bool(seen[:, layer].any(axis=1).all()) for layer in layers]
    return [p for layer, one in zip(layers, whole, strict=True) for p in ([layer] if one else [[p] for p in layer])]


class ObservationTokens(StateTokenizer[State]):
    """Tokens of an observation tensor: layers of cells, then single numbers, then the side to move.

    Args:
        seen: Random play, which decides how tensors are read.
        has_chance: Whether the game has chance.

    Raises:
        ValueError: as ``reading``.
    """

    decodes: ClassVar[bool] = False

    def __init__(self, seen: Survey, has_chance: bool) -> None:
        self._shape, cells = seen.shape, seen.shape[1] * seen.shape[2]
        self.reading = read = reading(np.concatenate([seen.before, seen.after, seen.chance]), board=seen.shape[1] > 1)
        letters, rows = face(seen, read.layers[0]) if read.layers else ((), -1)
        groups: list[tuple[int, Sequence[str]]] = [(cells, letters)] if letters else []
        groups += [(cells, [f"{n}:none", *(f"{n}:{p}" for p in layer)]) for n, layer in enumerate(read.layers[1:], 2)]
        singles, unit = len(read.uniform) + len(read.numbers) * cells, f"/{read.denominator}" * (read.denominator > 1)
        numbers = [f"={n}{unit}" for n in range(read.top + 1) if singles]
        groups += [(singles, numbers), (1, SIDES[: 4 if has_chance else 2])]
        self.symbols = tuple(symbol for _, symbols in groups for symbol in symbols)
        self._first = np.cumsum([0, *(len(symbols) for _, symbols in groups)]).tolist()  # id of the first of each group
        of_token = np.repeat(np.arange(len(groups)), [count for count, _ in groups])
        of_symbol = np.repeat(np.arange(len(groups)), [len(symbols) for _, symbols in groups])
        self.admitted = of_token[:, None] == of_symbol
        self.rows, self.cols, self.hands = np.full((3, len(of_token)), -1, np.int16)
        if letters:
            self.rows[:cells], self.cols[:cells] = rows, np.arange(cells) % seen.shape[2]

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
        read, columns, checks = self.reading, [], []
        planes, rows, cols = self._shape
        tensors = np.zeros((len(states), planes, rows * cols), np.float32)
        for number, state in enumerate(states):
            tensors[number] = observed(state.spiel, planes)
        for first, layer in zip(self._first, read.layers, strict=False):
            cells = tensors[:, layer]
            total = cells.sum(axis=1)
            checks.append((layer, (cells == 0) | ((cells == 1) & (total <= 1)[:, None])))
            columns.append(np.where(total > 0, first + 1 + cells.argmax(axis=1), first))
        checks.append((read.uniform, tensors[:, read.uniform] == tensors[:, read.uniform, :1]))
        for kept, num in ((read.uniform, 1), (read.numbers, rows * cols)):
            units = tensors[:, kept, :num] * read.denominator
            checks.append((kept, (_off(units) < TOLERANCE) & (units > -TOLERANCE) & (np.rint(units) <= read.top)))
            columns.append(self._first[len(read.layers)] + np.rint(units).reshape(len(states), len(kept) * num))
        for kept, holds in checks:
            if not holds.all():
                row, _, cell = np.argwhere(~holds)[0].tolist()
                values = {plane: float(tensors[row, plane, cell]) for plane in kept if tensors[row, plane, cell] != 0}
                raise ValueError(
                    f"position {written(states[row].made)!r}: row {cell // cols}, column {cell % cols} of its "
                    f"observation holds {values} (plane: number), which random play did not show and has no token"
                )
        sides = np.array([state.player + 2 * state.spiel.is_chance_node() for state in states], np.int64)
        return np.concatenate([*columns, self._first[-2] + sides[:, None]], axis=1).astype(np.int16)
