"""The move vocabulary: OpenSpiel's action ids, with their squares where names or numbers give them, then its outcomes
of chance.

OpenSpiel says of an action what it is called and nothing else. A guess at the squares is kept where it holds in every
move of the random games: the target changes, and so does the source.

Axes: S positions, N cells of a plane, M moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyspiel
from numpy.typing import NDArray

from genpolicy.game import MoveVocabulary
from genpolicy_openspiel.survey import Survey

_NAME = re.compile(r"([a-z])(\d{1,2})[-x*]?(?:([a-z])(\d{1,2}))?\*?")
MIN_PLACED = 0.5
"""Share of the moves seen that a guess has to explain."""


def vocabulary(game: pyspiel.Game, seen: Survey, rows: NDArray[np.int16], cols: NDArray[np.int16]) -> MoveVocabulary:
    """The moves of a game.

    Args:
        game: The game.
        seen: Random play.
        rows: [N] row of each cell from the top; none where there is no board.
        cols: [N] its column.
    """
    number = game.num_distinct_actions()
    source = target = np.full(number, -1, np.int16)
    if len(rows):
        changed = (seen.before != seen.after).any(axis=1)
        guesses = (guess for guess in _guesses(game, seen, rows, cols) if _explains(guess[:, seen.actions], changed))
        guess = next(guesses, None)
        if guess is None:
            target = _fallen(number, seen.actions, changed, rows, cols)
        else:
            source, target = guess.astype(np.int16)
    outcomes = np.full(game.max_chance_outcomes(), -1, np.int16)
    source, target = np.append(source, outcomes), np.append(target, outcomes)
    number += len(outcomes)
    kind, count = np.zeros(number, np.int16), dict[tuple[int, int], int]()
    for move, places in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        if places != (-1, -1):
            kind[move] = count[places] = count.get(places, -1) + 1
    return MoveVocabulary(
        texts=tuple(map(str, range(number))),
        source=source,
        target=target,
        kind=kind,
        num_kinds=int(kind.max()) + 1,
        mirrored=np.arange(number),
    )


def _explains(places: NDArray[np.int64], changed: NDArray[np.bool_]) -> bool:
    """Whether the squares [2, S] are among those that change [S, N] wherever there are any, and often are."""
    sources, targets = places
    moves = np.arange(len(targets))
    placed = targets >= 0
    at_target = changed[moves, np.maximum(targets, 0)] | ~placed
    at_source = changed[moves, np.maximum(sources, 0)] | (sources < 0)
    return bool(at_target.all() and at_source.all()) and placed.mean() >= MIN_PLACED


def _guesses(
    game: pyspiel.Game, seen: Survey, rows: NDArray[np.int16], cols: NDArray[np.int16]
) -> Iterator[NDArray[np.int64]]:
    """[2, M] source and target of each move, -1 for none, by one idea after another."""
    number, cells = game.num_distinct_actions(), np.arange(len(rows))
    num_rows, num_cols = int(rows.max()) + 1, int(cols.max()) + 1
    at = {(int(row), int(col)): cell for cell, (row, col) in enumerate(zip(rows, cols, strict=True))}
    names = _names(game, seen)
    for first, step in ((num_rows, -1), (-1, 1)):  # row 1 is at the bottom, or on top
        guess = np.full((2, number), -1)
        for move, name in names.items():
            squares = [at.get((first + step * int(row), ord(col) - ord("a")), -1) for col, row in _squares(name)]
            if squares and min(squares) >= 0:
                guess[:, move] = ([-1, *squares])[-2:]
        yield guess
    if number >= len(cells):
        for order in (cells, cells.reshape(num_rows, num_cols)[::-1].ravel()):
            guess = np.full((2, number), -1)
            guess[1, : len(cells)] = order
            yield guess


def _fallen(
    number: int,
    actions: NDArray[np.int64],
    changed: NDArray[np.bool_],
    rows: NDArray[np.int16],
    cols: NDArray[np.int16],
) -> NDArray[np.int16]:
    """[M] the lowest square of each column where moves are columns in which stones fall, else -1."""
    falls = number == cols.max() + 1 and all(
        (cols[row] == move).all() for row, move in zip(changed, actions, strict=True)
    )
    lowest = np.flatnonzero(rows == rows.max())
    return (lowest[np.argsort(cols[lowest])] if falls else np.full(number, -1)).astype(np.int16)


def _squares(name: str) -> list[tuple[str, str]]:
    """Column letter and row number of each square that a name holds, one or two; none of another name."""
    match = _NAME.fullmatch(name)
    pairs = [] if match is None else [(match[1], match[2]), (match[3], match[4])]
    return [(col, row) for col, row in pairs if col is not None]


def _names(game: pyspiel.Game, seen: Survey) -> dict[int, str]:
    """Names of all moves that look like squares; none where they depend on the position or few look so."""
    like = sum(bool(_squares(name)) for name in seen.names.values())
    if not seen.same_names or like < MIN_PLACED * len(seen.names):
        return {}
    state, names = game.new_initial_state(), dict(seen.names)
    for move in range(game.num_distinct_actions()):
        try:
            names.setdefault(move, state.action_to_string(max(state.current_player(), 0), move))
        except pyspiel.SpielError:
            continue
    return names
