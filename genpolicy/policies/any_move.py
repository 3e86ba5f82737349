"""The board after any legal move: training windows whose first move is drawn at random and played by the rules.

A labelled line holds a good player's moves. Of what such moves seldom do (a rook that leaves its corner and so loses a
right, castling, promotion to a knight) a network sees little, but a search asks for the board after every candidate.

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


class AnyMove:
    """Puts another first move, and the state after it, into windows.

    Args:
        game: The rules.
        layout: Of the windows, with a move and the state after it.
        share: Part of the windows that are changed, 0 to 1.
        viewer: Who sees the windows, ``mover`` or ``absolute``.
        rare: Part of these moves, 0 to 1, that are drawn the more often the rarer their kind is
            (``genpolicy.policies.rarity``), such as promotions to a bishop; the others are drawn uniformly.

    Raises:
        ConfigError: a share or ``rare`` out of range, a layout without these, or a game in which nature moves.
    """

    def __init__(
        self, game: Game[Any], layout: Layout, share: float, viewer: str = "mover", *, rare: float = 0.0
    ) -> None:
        if not isinstance(rare, int | float) or not 0 <= rare <= 1:
            raise ConfigError(f"key 'learner.process.rare_moves' is a part of the moves, from 0 to 1; got {rare!r}")
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(f"key 'learner.process.any_move' is a part of the boards, from 0 to 1; got {share!r}")
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
        self._action, self._state = action.start, slice(state.start, state.stop)
        self._rarity, self._rare = Rarity(game, layout.tokenizer), float(rare)

    def __call__(self, batch: TokenBatch, draws: Tensor) -> TokenBatch:
        """The windows, of which some begin with another move; tokens after the next state are as they were.

        Tokens of the next state that depend on who moved are not learned where the root does not say who that is. The
        move number of chess is one: it rises only after Black's moves.

        Args:
            batch: B windows.
            draws: [B] uniform in [0, 1): which are changed, and by which move.

        Raises:
            ConfigError: the game's tokens do not lead back to a position. (Policies that were trained so still load.)
        """
        if not self._layout.tokenizer.decodes:
            raise ConfigError(
                f"learner.process.any_move={self._share}: the tokens of {self._game.spec!r} do not lead back to a "
                "position, so the rules cannot be asked; set learner.process.any_move=0"
            )
        rows = batch.tokens.cpu().numpy()  # all at once, because a GPU is waited for at each copy
        drawn = ((i, self._made(rows[i], u / self._share)) for i, u in enumerate(draws.tolist()) if u < self._share)
        made = [(i, *one) for i, one in drawn if one is not None]
        if not made:
            return batch
        tokens, target = batch.tokens.clone(), batch.target.clone()
        changed, moves, states, known = (
            torch.from_numpy(np.array(each)).to(tokens.device) for each in zip(*made, strict=True)
        )
        tokens[changed, self._action], tokens[changed, self._state] = moves, states
        target[changed, self._state] = known
        return dataclasses.replace(batch, tokens=tokens, target=target)

    def _made(self, row: np.ndarray[Any, np.dtype[np.int64]], draw: float) -> tuple[int, Any, Any] | None:
        """A move's token, the tokens of the state after it, and which of these are certain; None where the root is over
        or stands for no position."""
        game, tokenizer = self._game, self._layout.tokenizer
        found: list[tuple[Any, Any]] = []
        for viewer in self._viewers:
            try:
                state = tokenizer.decode(row[: self._layout.state_length], viewer)
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
