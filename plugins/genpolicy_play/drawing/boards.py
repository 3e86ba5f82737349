"""Boards and moves of positions and of dreams, ready to be drawn or sent: all in the absolute view, whoever dreamt.

Axes: L tokens of a state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpolicy.game import Game, StateTokenizer
from genpolicy.policies.base import likeliest_first
from genpolicy.policies.dream import Dream, DreamStep
from genpolicy.sequence import Layout
from genpolicy.values import bin_to_probability


@dataclass(frozen=True)
class Cell:
    """One token of a state."""

    place: int
    """Its index, 0..L-1."""
    row: int
    """Board row from the top; -1 where it is not a square."""
    col: int
    """Board column from the left; -1 where it is not a square."""
    hand: int
    """Hand slot; -1 where it is none."""
    symbol: str
    """State symbol; "" where it is PAD, or unknown."""
    probability: float = 1.0
    """How sure the policy is of the symbol."""
    masked: bool = False
    """The symbol is a guess, not decided yet."""
    differs: bool = False
    """The rules put something else there (decided tokens only, where the line is legal so far)."""


@dataclass(frozen=True)
class Board:
    """A position, imagined or not, as its state tokens."""

    cells: tuple[Cell, ...]
    """[L] in the order of the tokens."""
    ply: int = 0
    """After how many moves from the root."""
    text: str | None = None
    """The position's text; None where the tokens stand for none."""
    ended: bool = False
    """The policy says that the game has ended before (PAD everywhere)."""
    imagined: bool = False
    """By a policy; else reached by the rules."""
    num_differing: int | None = None
    """Squares and hands that are not what the rules make of the line; None where the rules cannot say."""

    @property
    def num_masked(self) -> int:
        """Tokens that are not decided yet."""
        return sum(cell.masked for cell in self.cells)


@dataclass(frozen=True)
class Action:
    """An imagined move."""

    ply: int
    """0 for the first one."""
    move: int
    """Absolute id; -1 for none: the game has ended."""
    text: str
    """Protocol text; "" for none."""
    probability: float
    masked: bool
    legal: bool | None
    """Whether it can be played after the moves before it; None after one that could not, or after the game's end."""
    source: int = -1
    """Place of the token that it comes from; -1 for none."""
    target: int = -1
    """Place of the token that it ends on; -1 for none."""
    player: int = 0
    """Who makes it."""


@dataclass(frozen=True)
class Value:
    """An imagined value."""

    ply: int
    win_probability: float
    """Of the player to move at the ply."""
    probability: float
    masked: bool


@dataclass(frozen=True)
class Frame:
    """What a policy imagines after one of its steps."""

    index: int
    """0, 1, ..."""
    of: int
    """Number of steps."""
    time: int
    """Counts down to 0."""
    boards: tuple[Board, ...]
    """The imagined states in order of plies."""
    actions: tuple[Action, ...]
    values: tuple[Value, ...]
    policy: dict[int, float]
    """p(a_0) of the legal moves (absolute ids), the likeliest first."""


def board_of(game: Game[Any], state: Any, ply: int = 0) -> Board:
    """A position as its cells."""
    symbols = [game.tokens.symbols[symbol] for symbol in game.tokens.encode([state])[0].tolist()]
    return dataclasses.replace(board_of_symbols(game, symbols), ply=ply, text=game.format(state))


def board_of_symbols(game: Game[Any], symbols: Sequence[str]) -> Board:
    """A board with a symbol on each place, whether the rules allow it or not."""
    return Board(tuple(_cell(game, place, symbol) for place, symbol in enumerate(symbols)))


def frames(game: Game[Any], dream: Dream) -> list[Frame]:
    """A frame for each step of a dream; one frame of the decision for a policy without steps."""
    if not dream.steps:
        return [_frame_of_decision(game, dream)]
    return [frame_of_step(game, dream.state, step) for step in dream.steps]


def frame_of_step(game: Game[Any], state: Any, step: DreamStep) -> Frame:
    """The frame of one step, as it comes (``Policy.dream``'s ``on_step``), of a position that was asked."""
    layout, viewer, shown = step.layout, step.viewer, step.shown
    known = ~step.masked | (step.confidence > 0)  # else no call was asked about the token yet
    places = [slot.start for slot in layout.slots if slot.kind == "action" and not slot.given and known[slot.start]]
    line = [_move_of(game, layout, int(shown[place]), viewer) for place in places]
    marks = [(float(step.confidence[place]), bool(step.masked[place])) for place in places]
    after = list(_replayed(game, state, line))
    boards, values = [], []
    for slot in layout.slots:
        at = slice(slot.start, slot.stop)
        if slot.given:
            continue
        if slot.kind == "state":
            true = after[slot.ply - 1] if slot.ply <= len(after) else None
            parts = shown[at], step.confidence[at], step.masked[at]
            boards.append(_imagined(game, layout.tokenizer, parts, viewer, slot.ply, true))
        elif slot.kind == "value" and known[slot.start]:
            index_of_bin = int(np.clip(shown[slot.start] - layout.value_offset, 0, layout.num_value_bins - 1))
            chance = bin_to_probability(index_of_bin, layout.num_value_bins)
            values.append(Value(slot.ply, chance, float(step.confidence[slot.start]), bool(step.masked[slot.start])))
    actions = tuple(_actions(game, state, line, marks))
    return Frame(
        step.index, step.num_steps, step.time, tuple(boards), actions, tuple(values), likeliest_first(step.policy)
    )


def played_out(game: Game[Any], state: Any, line: Sequence[int]) -> list[Board]:
    """The positions that the rules make of a line, as far as it is legal."""
    return [board_of(game, s, ply) for ply, s in enumerate(_replayed(game, state, line), 1) if s is not None]


def move_places(game: Game[Any], state: Any, move: int) -> tuple[int, int]:
    """Places of the tokens that a legal move starts from and ends on, -1 where there is none.

    A drop starts from the hand of its own player, and a stone that falls ends where it comes to rest. A move that ends
    nowhere on the board, such as sowing from a pit, has the place it starts from as its only one, the target.
    """
    source, target = _places(game, move, game.player(state))
    before, after = game.tokens.encode([state, game.play(state, move)])
    changed = np.flatnonzero((before != after) & (game.tokens.rows >= 0))
    if target >= 0 and target not in changed and len(changed) == 1:
        target = int(changed[0])
    return source, target


def _places(game: Game[Any], move: int, player: int) -> tuple[int, int]:
    """By the vocabulary alone, in the absolute view."""
    moves, tokens = game.moves, game.tokens
    turned = None if player == 0 else tokens.turned
    # As its own player sees it, a drop starts from the own hand: seen from the other side that is the right one.
    seen = move if turned is None else int(moves.mirrored[move])
    places = int(moves.source[seen]), int(moves.target[seen])
    source, target = places if turned is None else (int(turned[0][place]) if place >= 0 else -1 for place in places)
    if _is_drawn(tokens, source) and not _is_drawn(tokens, target):
        return -1, source
    return source, target


def _is_drawn(tokens: StateTokenizer[Any], place: int) -> bool:
    return place >= 0 and (tokens.rows[place] >= 0 or tokens.hands[place] >= 0)


def _cell(game: Game[Any], place: int, symbol: str) -> Cell:
    tokens = game.tokens
    return Cell(place, int(tokens.rows[place]), int(tokens.cols[place]), int(tokens.hands[place]), symbol)


def _move_of(game: Game[Any], layout: Layout, symbol: int, viewer: int) -> int:
    move = symbol - layout.move_offset
    return int(game.moves.seen_by(np.array([move]), viewer)[0]) if 0 <= move < len(game.moves) else -1


def _replayed(game: Game[Any], state: Any, line: Sequence[int]) -> Iterator[Any]:
    """The state after each move; None from the first move on that cannot be played."""
    for move in line:
        if state is not None:
            is_legal = move >= 0 and game.outcome(state) is None and move in game.legal(state)
            state = game.play(state, move) if is_legal else None
        yield state


def _actions(game: Game[Any], state: Any, line: Sequence[int], marks: Sequence[tuple[float, bool]]) -> Iterator[Action]:
    first, root = game.player(state), state
    before = [root, *_replayed(game, root, line)]
    for ply, (move, (chance, masked)) in enumerate(zip(line, marks, strict=True)):
        here = before[ply]
        player = first ^ (ply & 1) if here is None else game.player(here)
        ended = here is not None and game.outcome(here) is not None
        legal = None if here is None or ended else before[ply + 1] is not None
        places = (-1, -1)
        if move >= 0:
            places = move_places(game, here, move) if legal else _places(game, move, player)
        text = game.moves[move] if move >= 0 else ""
        yield Action(ply, move, text, chance, masked, legal, *places, player)


def _imagined(
    game: Game[Any],
    tokens: StateTokenizer[Any],
    parts: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]],
    viewer: int,
    ply: int,
    true: Any,
) -> Board:
    """An imagined state: symbols, their probabilities and where they are guesses, each [L] as the viewer sees them."""
    num = len(tokens.symbols)
    symbols, chances, masked = parts
    text, ended = None, bool((symbols >= num).all())
    if symbols.max() < num:
        try:
            decoded = tokens.decode(symbols, viewer)
            text = game.format(decoded)
        except ValueError:  # imagined tokens need not stand for a position
            text = None
    if viewer == 1 and tokens.turned is None:
        # Nothing says how to turn the row, but a position can be told anew; of single tokens nothing can be said.
        symbols = np.full(tokens.length, num) if text is None else tokens.encode([game.parse(text)])[0].astype(np.int64)
        chances, masked = np.full_like(chances, chances.mean()), np.full_like(masked, bool(masked.any()))
    elif viewer == 1 and tokens.turned is not None:
        places, swapped = tokens.turned
        symbols, chances, masked = symbols[places], chances[places], masked[places]
        symbols = np.where(symbols < num, swapped[np.minimum(symbols, num - 1)], symbols)
    expected = None if true is None else tokens.encode([true])[0]
    cells, num_differing = [], 0
    for place, symbol in enumerate(symbols.tolist()):
        cell = _cell(game, place, tokens.symbols[symbol] if symbol < num else "")
        on_board = cell.row >= 0 or cell.hand >= 0
        is_other = expected is not None and symbol != int(expected[place])
        differs = is_other and on_board and not bool(masked[place])
        num_differing += differs
        cells.append(
            dataclasses.replace(
                cell, probability=float(chances[place]), masked=bool(masked[place]), differs=differs and not ended
            )
        )
    wrong = None if expected is None or ended else num_differing
    return Board(tuple(cells), ply, text, ended, imagined=True, num_differing=wrong)


def _frame_of_decision(game: Game[Any], dream: Dream) -> Frame:
    """What a policy without steps tells: its line, the positions that it imagines, its probabilities."""
    decision, state = dream.decision, dream.state
    line = decision.line or (decision.move,)
    policy = likeliest_first(decision.policy)
    marks = [(policy.get(move, 1.0) if ply == 0 else 1.0, False) for ply, move in enumerate(line)]
    by_rules = [None if each is None else game.format(each) for each in _replayed(game, state, line)]
    boards = tuple(
        dataclasses.replace(
            board_of(game, game.parse(text), ply),
            imagined=True,
            num_differing=0 if ply <= len(by_rules) and by_rules[ply - 1] == text else None,
        )
        for ply, text in enumerate(decision.states, 1)
        if text is not None
    )
    return Frame(0, 1, 0, boards, tuple(_actions(game, state, line, marks)), (), policy)
