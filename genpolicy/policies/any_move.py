"""The board after any legal move: training windows whose first move is drawn at random and played by the rules.

A labelled line holds a good player's moves. Of what such moves seldom do (a rook that leaves its corner and so loses a
right, castling, promotion to a knight) a network sees little, but a search asks for the board after every candidate.

Of long games it sees little, too: ``any_count`` begins some of these windows with other counts of moves.

Axes: B batch, N tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.data.windows import TokenBatch
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.policies.rarity import Rarity
from genpolicy.sequence import Layout

MAX_COUNT = 1000
"""Counts of moves are drawn below it, the more often the smaller: a logarithm is uniform."""


def require_positions(game: Game[Any], layout: Layout, key: str, share: float) -> None:
    """See that the rules can be asked about tokens; in training alone, since policies that were trained so still load.

    Raises:
        ConfigError: the tokens do not lead back to a position; the message names the ``key`` and its ``share``.
    """
    if not layout.tokenizer.decodes:
        raise ConfigError(
            f"learner.process.{key}={share}: the tokens of {game.spec!r} do not lead back to a position, so the rules "
            f"cannot be asked; set learner.process.{key}=0"
        )


class AnyMove:
    """Puts another first move, and the state after it, into windows.

    Args:
        game: The rules.
        layout: Of the windows, with a move and the state after it.
        share: Part of the windows that are changed, 0 to 1.
        viewer: Who sees the windows, ``mover`` or ``absolute``.
        rare: Part of these moves, 0 to 1, that are drawn the more often the rarer their kind is
            (``genpolicy.policies.rarity``), such as promotions to a bishop; the others are drawn uniformly.
        counts: Part of these windows, 0 to 1, in whose first state counters (``StateTokenizer.counters``) hold numbers
            drawn at random, where the rules admit them.

    Raises:
        ConfigError: a layout without these, counts in a game without counters, or a game in which nature moves.
    """

    def __init__(
        self,
        game: Game[Any],
        layout: Layout,
        share: float,
        viewer: str = "mover",
        *,
        rare: float = 0.0,
        counts: float = 0.0,
    ) -> None:
        if counts and not layout.tokenizer.counters:
            raise ConfigError(
                f"learner.process.any_count={counts}: the tokens of {game.spec!r} count no moves; set "
                "learner.process.any_count=0"
            )
        action, state = layout.slot("action", 0), layout.slot("state", 1)
        if action is None or state is None or game.has_chance:
            raise ConfigError(
                "learner.process.any_move needs a paradigm that imagines the state after its move (s-asa, s-avsav), "
                "and a game without chance"
            )
        self.block = int(layout.blocks[state.start])
        """The block whose windows are changed."""
        self._game, self._layout, self._share = game, layout, float(share)
        self._viewers = (0,) if viewer == "absolute" else (0, 1)  # a window does not say which player the mover is
        self._root, self._action, self._state = layout.state_length, action.start, slice(state.start, state.stop)
        self._rarity, self._rare, self._counts = Rarity(game, layout.tokenizer), float(rare), float(counts)
        self.num_draws = 1 + len(layout.tokenizer.counters) if counts else 0
        """Draws for each window beside the first: 1 + C, or 0 without ``counts``."""

    def __call__(self, batch: TokenBatch, draws: Tensor, counts: Tensor | None = None) -> TokenBatch:
        """The windows, of which some begin with another move; tokens after the next state are as they were.

        Tokens of the next state that depend on who moved are not learned where the root does not say who that is. The
        move number of chess is one: it rises only after Black's moves.

        Args:
            batch: B windows.
            draws: [B] uniform in [0, 1): which are changed, and by which move.
            counts: [1 + C, B] uniform in [0, 1): in which of these the C counters change, and to what; None: in none.

        Raises:
            ConfigError: as ``require_positions``.
        """
        require_positions(self._game, self._layout, "any_move", self._share)
        roots = batch.tokens[:, : self._root].cpu().numpy()  # all at once, because a GPU is waited for at each copy
        others = roots if counts is None else self._counted(roots, counts.cpu().numpy())
        made = []
        for i, u in enumerate(draws.tolist()):
            for root in (others[i], roots[i]) if u < self._share else ():
                if (one := self._made(root, u / self._share)) is not None:
                    made.append((i, root, *one))
                    break
        if not made:
            return batch
        tokens, target = batch.tokens.clone(), batch.target.clone()
        changed, begun, moves, states, known = (
            torch.from_numpy(np.array(each)).to(tokens.device) for each in zip(*made, strict=True)
        )
        tokens[changed, : self._root] = begun
        tokens[changed, self._action], tokens[changed, self._state] = moves, states
        target[changed, self._state] = known
        return dataclasses.replace(batch, tokens=tokens, target=target)

    def _counted(self, roots: NDArray[np.int64], draws: NDArray[np.float64]) -> NDArray[np.int64]:
        """Roots [B, L], some with other counts, by ``draws`` [1 + C, B]."""
        tokenizer, counted = self._layout.tokenizer, roots.copy()
        for digits, draw in zip(tokenizer.counters, draws[1:], strict=True):
            number = (MAX_COUNT**draw).astype(np.int64)
            for place in reversed(digits):
                held = np.flatnonzero(tokenizer.admitted[place])
                counted[:, place] = held[number % len(held)]
                number //= len(held)
        return np.where((draws[0] < self._counts)[:, None], counted, roots)

    def _made(self, root: NDArray[np.int64], draw: float) -> tuple[int, Any, Any] | None:
        """A move's token, the tokens of the state after it, and which of these are certain; None where the root is over
        or stands for no position."""
        game, tokenizer = self._game, self._layout.tokenizer
        found: list[tuple[Any, Any]] = []
        for viewer in self._viewers:
            try:
                state = tokenizer.decode(root, viewer)
                if game.outcome(state) is not None or not len(legal := game.legal(state)):
                    return None
                seen = found[0][0] if found else game.moves.seen_by(legal[self._drawn(state, legal, draw)], viewer)
                (after,) = tokenizer.encode([game.play(state, int(game.moves.seen_by(seen, viewer)))], [viewer])
            except ValueError:
                continue
            found.append((seen, after.astype(np.int64)))
        if not found:
            return None
        (seen, after), (_, other) = found[0], found[-1]
        return self._layout.move_offset + int(seen), after, after == other

    def _drawn(self, state: Any, legal: NDArray[np.int64], draw: float) -> int:
        """Which of the legal moves."""
        if draw >= self._rare:
            return int((draw - self._rare) / (1 - self._rare) * len(legal))
        ends = self._rarity.weights(state, legal).cumsum()
        return min(int(np.searchsorted(ends, draw / self._rare, side="right")), len(legal) - 1)
