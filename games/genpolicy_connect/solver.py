"""The exact solver of k-in-a-row, as an oracle: alpha-beta over bitboards with a transposition table.

A stone set is one integer. Square (row r from the top, column c) is bit ``r * (cols + 1) + c``; the bit after each row
stays empty, so that a line which leaves the board meets no stone.

A position's score counts from the end of the game: with N squares, a win by stone number n is N + 1 - n for the winner
and minus that for the loser, a draw is 0. It depends on the position alone, not on the way to it, and its sign is the
value.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from genpolicy.data.oracle import Line, Oracle
from genpolicy.game import Game
from genpolicy_connect.game import ConnectGame
from genpolicy_connect.tokens import Board

VERSION = "1"
"""Raised when the solver's labels for a seed change."""
MAX_TABLE_ENTRIES = 2_000_000  # about 250 MB; a full table is emptied
MAX_EMPTY = 400  # the search recurses once a ply, and Python stops at 1000 frames


class SolverOracle(Oracle):
    """Exact values of every move of a k-in-a-row position, and one line of optimal play.

    Where several moves are best, the line takes one of them at random; the draw depends on ``seed`` and the position
    alone, not on what was analysed before.

    Args:
        game: A ``ConnectGame``.
        seed: Seed of the draws among best moves.
        distance: False: a move is best when its value (win, draw, loss) is. True: the quickest win or the longest loss
            is best, and a score is ``1 - plies / 1000`` for a win in so many plies, minus that for a loss.
        node_limit: Positions searched for one line before it is given up (``Line.error``).

    Raises:
        ValueError: another game, or an option out of range.
    """

    def __init__(
        self, game: Game[Any], *, seed: int | str = 0, distance: bool | str = False, node_limit: int | str = 2_000_000
    ) -> None:
        if not isinstance(game, ConnectGame):
            raise ValueError(f"the solver solves k-in-a-row (connect:rows=3,cols=3,k=3,...), not {game.spec!r}")
        if str(distance).lower() not in ("true", "false"):
            raise ValueError(f"distance must be true or false, got {distance!r}")
        self.game: ConnectGame = game
        for name, value in (("seed", seed), ("node_limit", node_limit)):
            if not re.fullmatch(r"-?\d+", str(value)):
                raise ValueError(f"{name} must be a whole number, got {value!r}")
        self.seed, self.node_limit = int(seed), int(node_limit)
        if self.node_limit < 1:
            raise ValueError(f"node_limit must be at least 1, got {node_limit}")
        self.distance = str(distance).lower() == "true"
        self._search = Search(game)

    def describe(self) -> dict[str, Any]:
        """What ``dataset.yaml`` records; ``node_limit`` decides what is labelled, never how."""
        return {
            "name": "solver",
            "version": VERSION,
            "game": self.game.spec,
            "score_scale": "value",
            "seed": self.seed,
            "distance": self.distance,
            "node_limit": self.node_limit,
        }

    def analyse(self, states: Sequence[Board], horizon: int, *, move_values: bool = False) -> list[Line]:
        """One line for each position, with the value of every legal move (``move_values`` or not)."""
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        return [self._line(state, horizon) for state in states]

    def close(self) -> None:
        """Free the transposition table."""
        self._search.table.clear()

    def _line(self, state: Board, horizon: int) -> Line:
        if self.game.outcome(state) is not None:
            return Line((), error=f"{self.game.format(state)!r}: the game is over")
        self._search.nodes_left = self.node_limit
        moves: list[int] = []
        scores: list[str] = []
        root: dict[int, float] | None = None
        at = state
        try:
            while len(moves) < horizon and self.game.outcome(at) is None:
                values = self._values(at)
                root = root or values
                best = max(values.values())
                tied = [move for move, value in values.items() if value == best]
                moves.append(random.Random(f"{self.seed}|{self.game.key(at)}").choice(tied))
                scores.append(f"value:{best:g}")
                at = self.game.play(at, moves[-1])
        except NodeLimitError:
            return Line((), error=self._too_large(state))
        ended = self.game.outcome(at) is not None
        by_move = {move: f"value:{value:g}" for move, value in (root or {}).items()}
        return Line(tuple(moves), tuple(scores), ended, by_move)

    def _values(self, state: Board) -> dict[int, float]:
        """Value in [-1, 1] of every legal move, for the player who makes it."""
        scores = self._search.move_scores(state, exact=self.distance)
        if not self.distance:
            return {move: float((score > 0) - (score < 0)) for move, score in scores.items()}
        ends_at = self.game.num_squares + 1
        num_stones = (state.stones[0] | state.stones[1]).bit_count()
        values = {}
        for move, score in scores.items():
            plies = ends_at - abs(score) - num_stones
            values[move] = 0.0 if score == 0 else (1 - plies / 1000) * (1 if score > 0 else -1)
        return values

    def _too_large(self, state: Board) -> str:
        return (
            f"{self.game.format(state)!r} was not solved within node_limit={self.node_limit} positions: raise it "
            "(about 100,000 a second), label positions with more stones, or take a smaller board"
        )


class NodeLimitError(RuntimeError):
    """The search was given up."""


class Search:
    """Alpha-beta over one board. ``nodes_left`` is set by the caller and counts down."""

    def __init__(self, game: ConnectGame) -> None:
        self.nodes_left = 0
        self.table: dict[int, int] = {}
        """Position -> its bounds, packed as ``(lower + offset) * width + upper + offset``."""
        self._game, self._k, self._gravity = game, game.k, game.gravity
        self._pitch = pitch = game.cols + 1
        self._worst = game.num_squares + 1
        self._shift = pitch * game.rows
        self._bit = [1 << (i // game.cols * pitch + i % game.cols) for i in range(game.num_squares)]
        self._board = sum(self._bit)
        self._floor = sum(1 << (game.rows * pitch + col) for col in range(game.cols))
        self._columns = [sum(self._bit[col :: game.cols]) for col in range(game.cols)]
        middle_row, middle_col = (game.rows - 1) / 2, (game.cols - 1) / 2
        from_middle = {
            bit: abs(i // game.cols - middle_row) * (not game.gravity) + abs(i % game.cols - middle_col)
            for i, bit in enumerate(self._bit)
        }
        self._order = sorted(self._bit, key=from_middle.__getitem__)
        # For each direction and each gap in k squares: by how much the stones around the gap are shifted onto it.
        self._gaps = [
            [step * (i - gap) for i in range(self._k) if i != gap]
            for step in (1, pitch, pitch + 1, pitch - 1)
            for gap in range(self._k)
        ]

    def move_scores(self, state: Board, *, exact: bool) -> dict[int, int]:
        """Score of every legal move for the player to move; only its sign counts unless ``exact``.

        Raises:
            NodeLimitError: ``nodes_left`` ran out.
        """
        mine, theirs = (
            sum(bit for i, bit in enumerate(self._bit) if stones >> i & 1)
            for stones in (state.stones[state.player], state.stones[1 - state.player])
        )
        empty = self._board & ~(mine | theirs)
        if empty.bit_count() > MAX_EMPTY:
            raise NodeLimitError
        wins, open_squares = self._completing(mine), self._playable(empty)
        alpha, beta = (-self._worst, self._worst) if exact else (-1, 1)
        scores = {}
        for move in self._game.legal(state).tolist():
            square = self._columns[move] & open_squares if self._gravity else self._bit[move]
            if square & wins:
                scores[move] = empty.bit_count()
            else:
                scores[move] = -self._negamax(theirs, mine | square, -beta, -alpha)
        return scores

    def _playable(self, empty: int) -> int:
        """Squares on which a stone can come to lie."""
        if not self._gravity:
            return empty
        return empty & ((self._board & ~empty | self._floor) >> self._pitch)

    def _completing(self, stones: int) -> int:
        """Squares, on the board or off it, that would complete k in a row of ``stones``."""
        squares = 0
        for shifts in self._gaps:
            around = -1
            for shift in shifts:
                around &= stones >> shift if shift > 0 else stones << -shift
                if not around:
                    break
            squares |= around
        return squares

    def _negamax(self, mine: int, theirs: int, alpha: int, beta: int) -> int:
        """Score for the owner of ``mine``, who is to move; a bound where it lies outside (alpha, beta), fail-soft."""
        empty = self._board & ~(mine | theirs)
        if not empty:
            return 0
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise NodeLimitError
        num_empty = empty.bit_count()
        moves = self._playable(empty)
        if self._completing(mine) & moves:
            return num_empty  # this stone wins
        threats = self._completing(theirs) & empty
        if threats & moves:
            moves &= threats
            if moves & (moves - 1):
                return 1 - num_empty  # two threats, one stone: the next stone wins
        if self._gravity:
            moves &= ~(threats << self._pitch)  # the square above would give the other side its win
            if not moves:
                return 1 - num_empty
        # No win with this stone, so the next chance is two stones on; no loss to the next one, so the same for theirs.
        lower, upper = min(0, 3 - num_empty), max(0, num_empty - 2)
        key = mine << self._shift | theirs
        width = 2 * self._worst + 1
        if packed := self.table.get(key):
            low, high = divmod(packed, width)
            lower, upper = max(lower, low - self._worst), min(upper, high - self._worst)
        if lower >= beta or lower == upper:
            return lower
        if upper <= alpha:
            return upper
        best = -self._worst
        at_least = max(alpha, lower)
        for square in self._order:
            if square & moves:
                score = -self._negamax(theirs, mine | square, -min(beta, upper), -max(at_least, best))
                if score > best:
                    best = score
                    if best >= beta or best >= upper:
                        break
        if best > alpha:
            lower = max(lower, best)
        if best < beta:
            upper = min(upper, best)
        if len(self.table) >= MAX_TABLE_ENTRIES:
            self.table.clear()
        self.table[key] = (lower + self._worst) * width + upper + self._worst
        return best
