"""Alpha-beta: negamax over the game's own rules, deeper and deeper, with an evaluator or a comparator at the leaves.

At a fixed depth the answer is that of exhaustive minimax to that depth (its quiescence search included): tables and
move ordering change how long it takes, never what it is. What a search to the end of the game finds is exact. See
``docs/search.md`` for what holds with a comparator.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genpolicy.control import FREE
from genpolicy.facets import evaluation
from genpolicy.game import Game, Hints
from genpolicy.search.model import Comparator, Evaluator, PreparesPositions
from genpolicy_alphabeta.scores import Leaf, Score, decided, later, plies_to_end, score_text, score_value

NODES_BETWEEN_CHECKS = 16
"""Positions between two looks whether to stop: a millisecond or two of chess."""
DEFAULT_NODES = 20_000
"""Positions of one search where no limit is given; about two seconds of chess, and the end of tic-tac-toe."""
QUIESCENCE_PLIES = 8
"""Forcing moves that are followed beyond the depth."""
MAX_TABLE_ENTRIES = 500_000  # about 200 MB; a full table is emptied
MAX_PLIES_TO_END = 200  # longest line of a game without a heuristic evaluation: each is searched to its end


@dataclass(frozen=True)
class SearchResult:
    """What a search found."""

    move: int
    """Absolute id of the best move; the first of those that tie, in the order of the search."""
    score: Score
    """For the player to move."""
    line: tuple[int, ...]
    """Best moves of both sides as far as they were searched, beginning with ``move``."""
    depth: int
    """Plies of the last iteration that was finished; one more began where a limit cut it. 0: not even one ply."""
    nodes: int
    """Positions looked at, the root left out."""
    exact: bool
    """The score is that of a search to the end of the game: every line was, or the game is decided within the depth."""

    @property
    def value(self) -> float | None:
        """In [-1, 1] for the player to move; None where a comparator found an undecided line."""
        return score_value(self.score)

    @property
    def plies_to_end(self) -> int | None:
        """Plies to the end of a decided game; None where it is not decided."""
        return plies_to_end(self.score)

    @property
    def text(self) -> str | None:
        """Score text (``genpolicy.values``): ``mate:N`` in a decided game, else ``value:X``."""
        return score_text(self.score)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is known of a position; scores count plies from the position itself."""

    depth: int
    complete: bool
    lower: Score
    upper: Score
    line: tuple[int, ...]


class _LimitReached(Exception):
    """The node or time limit was reached."""


class _LeafWithoutValue(Exception):
    """A line reached the depth limit in a game without a heuristic evaluation."""


class AlphaBeta:
    """A search for the best move; players must alternate.

    The first limit that is reached ends it; with none it goes to the end of the game, which only small games have.

    Args:
        game: The rules; what its ``hints`` give of ``forcing`` and ``transposition_key`` is used.
        depth: Plies that every line is searched, at least 1 (quiescence not counted).
        nodes: Positions looked at, at least 1.
        movetime_ms: Milliseconds; answers then depend on the machine.
        evaluator: Its values are those of leaves, where the game's ``hints`` would give them.
        comparator: Says which of two leaves is better, in place of an evaluator.
        prior: Its priors order the moves, best first; asked at positions with ``prior_depth`` plies to go or more.
        prior_depth: See ``prior``.
        quiescence: Most plies of forcing moves beyond the depth where the game says that a leaf is not quiet; 0: none,
            as for games that name no forcing moves.
        table: Remember what was searched, where the game says what may share a value.

    Raises:
        ValueError: a limit or count out of range, an evaluator and a comparator, or players that do not alternate.
    """

    def __init__(
        self,
        game: Game[Any],
        *,
        depth: int | None = None,
        nodes: int | None = None,
        movetime_ms: float | None = None,
        evaluator: Evaluator | None = None,
        comparator: Comparator | None = None,
        prior: Evaluator | None = None,
        prior_depth: int = 2,
        quiescence: int = QUIESCENCE_PLIES,
        table: bool = True,
    ) -> None:
        for name, limit in (("depth", depth), ("nodes", nodes), ("movetime_ms", movetime_ms)):
            if limit is not None and not limit >= 1:
                raise ValueError(f"{name} must be at least 1, got {limit}")
        if quiescence < 0 or prior_depth < 1:
            raise ValueError(f"quiescence is 0 or more and prior_depth 1 or more, got {quiescence} and {prior_depth}")
        if game.has_chance:
            raise ValueError(
                f"alpha-beta does not support chance, which {game.spec!r} has; search it with a policy such as "
                "mcts:rollout?simulations=400 (or mcts:FOLDER of one with a value), or use the game's own oracle"
            )
        if not game.alternates:
            raise ValueError(
                f"alpha-beta needs alternating players, which {game.spec!r} does not have; use mcts:rollout"
            )
        if evaluator is not None and comparator is not None:
            raise ValueError("give an evaluator or a comparator for the leaves, not both")
        self.game, self.depth, self.nodes, self.movetime_ms = game, depth, nodes, movetime_ms
        hints, nothing = game.hints or Hints(), Hints[Any]()
        self._value: Callable[[Any], float] | None = hints.evaluate if "evaluate" in hints.gives else None
        if evaluator is not None:
            self._value = lambda state: evaluator([state])[1][0]
        self.to_end = self._value is None and comparator is None  # a leaf has no value, so every line has to end
        self.hints = hints if "forcing" in hints.gives else nothing
        self.transposition_key = (hints if "transposition_key" in hints.gives else nothing).transposition_key
        self.comparator, self.prior, self.prior_depth, self.table = comparator, prior, prior_depth, table
        # Without forcing moves to follow, every move of every unquiet leaf would be.
        self.quiescence = quiescence if "forcing" in hints.gives else 0
        self.forget()

    def forget(self) -> None:
        """Empty all tables, so that the next search depends on its position alone."""
        self._table: dict[Hashable, _Entry] = {}
        self._best: dict[Hashable, int] = {}  # by the game's key: it only orders moves, so the past does not matter
        self._priors: dict[Hashable, Mapping[int, float]] = {}
        self._good: dict[tuple[int, int], int] = {}  # (player, move) -> how deep the searches were that it cut off
        self._killers: dict[int, tuple[int, ...]] = {}  # by ply: the last two moves that cut a search off

    def search(
        self,
        state: Any,
        *,
        only: Sequence[int] | None = None,
        fresh: bool = True,
        check: Callable[[], None] = FREE.check,
    ) -> SearchResult:
        """The best move of a position.

        Args:
            state: A position with legal moves; a draw that could be claimed there does not stop it.
            only: The legal moves to choose from; None takes all.
            fresh: Forget earlier searches first, so that the answer depends on the position alone.
            check: Called every ``NODES_BETWEEN_CHECKS`` positions; what it raises ends the search.

        Raises:
            ValueError: no legal move, or the game has no heuristic evaluation and its ends are out of reach.
        """
        if fresh:
            self.forget()
        if len(self.game.legal(state)) == 0:
            raise ValueError(f"the game is over in {self.game.format(state)!r}: the player to move has no legal move")
        self._nodes, self._horizons, self._check = 0, 0, check
        self._deadline = math.inf if self.movetime_ms is None else time.perf_counter() + self.movetime_ms / 1000
        found: SearchResult | None = None
        # A small budget should see every move once before it follows the forcing ones: that finds a win in one.
        budget = self.nodes is not None or self.movetime_ms is not None
        depth = 0 if budget and self.quiescence else 1
        most = min(self.depth or math.inf, MAX_PLIES_TO_END if self.to_end else math.inf)
        while depth <= most:
            self._partial: SearchResult | None = None
            self._plies_beyond = self.quiescence if depth else 0
            try:
                found = self._iterate(state, max(1, depth), only, None if found is None else found.move)
            except _LimitReached:
                found = None if self.to_end else self._partial or found
                break
            except _LeafWithoutValue:
                found = None  # deeper, every line may end
            if found is not None and found.exact:
                break
            depth += 1
        if found is None and self.to_end:
            evaluation(self.game)  # its ValueError says what to take instead
        if found is None:  # not one move was finished
            moves = self._ordered(state, 1, 0) if only is None else list(only)
            found = SearchResult(moves[0], self._judge(state), (moves[0],), 0, 0, False)
        return SearchResult(found.move, found.score, found.line, found.depth, self._nodes, found.exact)

    def move_scores(self, state: Any) -> dict[int, Score]:
        """Score of every legal move for the player who makes it; each is searched alone, within all the limits."""
        self.forget()
        return {move: self.search(state, only=[move], fresh=False).score for move in self.game.legal(state).tolist()}

    def _iterate(self, state: Any, depth: int, only: Sequence[int] | None, first: int | None) -> SearchResult:
        """The best of the root's moves at a depth; notes the best so far in ``_partial``.

        ``first`` is the best of the iteration before: whatever cuts this one then leaves it, or a move that beat it.
        """
        before = self._horizons
        moves = [move for move in self._ordered(state, depth, 0) if only is None or move in only]
        # Not by ``_best``: where the root has come again inside the tree, that is the best at another depth.
        moves.sort(key=lambda move: move != first)
        best: Score = -math.inf
        for move, child in self._children(state, moves, depth):
            score, tail = self._negamax(child, depth - 1, 1, -math.inf, -best)
            score = -score
            if score > best:
                best = score
                self._best[self.game.key(state)] = move
                self._partial = SearchResult(move, score, (move, *tail), depth - 1, 0, False)
        assert self._partial is not None
        found = self._partial
        plies = plies_to_end(found.score)
        # What is decided within the depth is decided in the quickest way; a later end may hide a sooner one.
        exact = self._horizons == before or (plies is not None and plies <= depth)
        return SearchResult(found.move, found.score, found.line, depth, 0, exact)

    def _negamax(self, state: Any, depth: int, ply: int, alpha: Score, beta: Score) -> tuple[Score, tuple[int, ...]]:
        """Score and best line of a position ``ply`` plies from the root; a bound outside (alpha, beta), fail-soft."""
        ended = self._visit(state, ply)
        if ended is not None:
            return ended, ()
        if depth == 0:
            return self._at_horizon(state, ply, alpha, beta, self._plies_beyond)
        key = self.transposition_key(state, depth) if self.table else None
        entry = None if key is None else self._usable(state, key, depth)
        if entry is not None:
            lower, upper = later(entry.lower, ply), later(entry.upper, ply)
            if lower >= beta or upper <= alpha or entry.lower is entry.upper:
                self._horizons += not entry.complete
                return (lower if lower >= beta else upper), entry.line
        before = self._horizons
        best: Score = -math.inf
        line: tuple[int, ...] = ()
        floor = alpha
        for move, child in self._children(state, self._ordered(state, depth, ply), depth):
            score, tail = self._negamax(child, depth - 1, ply + 1, -beta, -floor)
            score = -score
            if score > best:
                best, line = score, (move, *tail)
                if best > floor:
                    floor = best
                if floor >= beta:
                    self._note_cut(state, move, depth, ply)
                    break
        if line and best > alpha:
            self._best[self.game.key(state)] = line[0]
        if key is not None:
            self._keep(key, depth, self._horizons == before, best, alpha, beta, line, ply)
        return best, line

    def _children(self, state: Any, moves: Sequence[int], depth: int) -> Iterator[tuple[int, Any]]:
        """Moves and the positions after them; those at the depth limit are read by the comparator together."""
        if depth == 1 and isinstance(self.comparator, PreparesPositions):
            after = [self.game.play(state, move) for move in moves]
            self.comparator.prepare(after)
            yield from zip(moves, after, strict=True)
        else:
            for move in moves:
                yield move, self.game.play(state, move)

    def _visit(self, state: Any, ply: int) -> Score | None:
        """Count a position; its score where the game is over there."""
        if self._nodes == self.nodes or time.perf_counter() >= self._deadline:
            raise _LimitReached
        if self._nodes % NODES_BETWEEN_CHECKS == 0:
            self._check()
        self._nodes += 1
        result = self.game.outcome(state)
        if result is None:
            return None
        if abs(result) == 1.0:
            return decided(result > 0, ply)
        return result if self.comparator is None else Leaf(state, self.game.player(state), self.comparator)

    def _judge(self, state: Any) -> Score:
        """The heuristic score of a position."""
        if self.comparator is not None:
            return Leaf(state, self.game.player(state), self.comparator)
        if self._value is None:
            raise _LeafWithoutValue
        return max(-1.0, min(1.0, self._value(state)))

    def _at_horizon(
        self, state: Any, ply: int, alpha: Score, beta: Score, plies_left: int
    ) -> tuple[Score, tuple[int, ...]]:
        """Score of a position at the depth limit: forcing moves are followed until it is quiet."""
        self._horizons += 1
        if plies_left == 0 or self.hints.is_quiet(state):
            return self._judge(state), ()
        forcing = self.hints.forcing(state)
        best: Score = -math.inf
        if forcing is not None:
            best = self._judge(state)  # the player may leave it at that
            if best >= beta:
                return best, ()
        floor = best if best > alpha else alpha
        line: tuple[int, ...] = ()
        for move in self.game.legal(state).tolist() if forcing is None else forcing.tolist():
            child = self.game.play(state, move)
            ended = self._visit(child, ply + 1)
            tail: tuple[int, ...] = ()
            if ended is None:
                score, tail = self._at_horizon(child, ply + 1, -beta, -floor, plies_left - 1)
            else:
                score = ended
            score = -score
            if score > best:
                best, line = score, (move, *tail)
                if best > floor:
                    floor = best
                if floor >= beta:
                    break
        return best, line

    def _usable(self, state: Any, key: Hashable, depth: int) -> _Entry | None:
        """What the table says of a position, if it answers this very question."""
        entry = self._table.get(key)
        if entry is None or entry.depth == depth:
            return entry
        if not entry.complete:
            return None  # another depth has another answer
        # Searched to the end, but perhaps further than this key looks ahead.
        reaches = entry.depth <= depth or self.transposition_key(state, entry.depth) == key
        return entry if reaches else None

    def _keep(
        self,
        key: Hashable,
        depth: int,
        complete: bool,
        best: Score,
        alpha: Score,
        beta: Score,
        line: tuple[int, ...],
        ply: int,
    ) -> None:
        """Put a score (or bound) into the table."""
        if len(self._table) >= MAX_TABLE_ENTRIES:
            self._table.clear()
        known = later(best, -ply)
        lower, upper = (known if best > alpha else -math.inf), (known if not best >= beta else math.inf)
        self._table[key] = _Entry(depth, complete, lower, upper, line)

    def _ordered(self, state: Any, depth: int, ply: int) -> list[int]:
        """The legal moves, most promising first: the best so far, then by prior, or forcing moves, killers, history.

        Moves that nothing tells apart keep the order of their ids.
        """
        legal: list[int] = self.game.legal(state).tolist()
        first = self._best.get(self.game.key(state))
        rank: dict[int, float] = {}
        if self.prior is not None and depth >= self.prior_depth:
            prior = self._prior_of(state)
            rank = {move: prior.get(move, 0.0) for move in legal}
        else:
            player = self.game.player(state)
            rank = {move: self._good.get((player, move), 0) - 3e9 for move in legal}
            for place, move in enumerate(self._killers.get(ply, ())):
                if move in rank:
                    rank[move] = -1e9 - place
            forcing = self.hints.forcing(state)
            if forcing is not None:
                rank.update({move: -float(place) for place, move in enumerate(forcing.tolist())})
        return sorted(legal, key=lambda move: math.inf if move == first else rank[move], reverse=True)

    def _prior_of(self, state: Any) -> Mapping[int, float]:
        key = self.game.key(state)
        if key not in self._priors:
            assert self.prior is not None
            (prior,), _ = self.prior([state])
            if not isinstance(prior, Mapping):
                legal = self.game.legal(state).tolist()
                prior = dict(zip(legal, [0.0] * len(legal) if prior is None else prior, strict=True))
            self._priors[key] = prior
        return self._priors[key]

    def _note_cut(self, state: Any, move: int, depth: int, ply: int) -> None:
        """Remember a move that was too good to be allowed."""
        who = (self.game.player(state), move)
        self._good[who] = self._good.get(who, 0) + depth * depth
        self._killers[ply] = (move, *(other for other in self._killers.get(ply, ()) if other != move))[:2]
