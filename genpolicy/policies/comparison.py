"""Values that tell the moves of one position apart: the decision of a search in the imagination as a training target.

A value that is learned position by position is right on average; a search asks which of a few positions, a move apart,
is best. Comparison training (Tesauro 1989; MMTO: Hoki and Kaneko 2014, doi:10.1613/jair.4217) teaches it that:

    loss = -log softmax_c(log p(c | s_0) + weight * worth(c))  at the labelled move

over K moves c, the labelled one and the likeliest others. As in the search, a move's worth is the mean of the values of
the position after it and of those after the likeliest replies, ``sampler.depth`` positions in all; here the rules give
them. No gradient goes through p, so the values learn what the policy lacks.

Axes: B batch, C compared records, K moves of each, R of all together, L tokens of a state, M moves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.logits import NEGATIVE_INFINITY
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.policies.any_move import require_positions
from genpolicy.policies.imagined import Imagination, with_worth
from genpolicy.sequence import Layout

if TYPE_CHECKING:
    from genpolicy.policies.diffusion import DiffusionLearner

LOSS_WEIGHT = 0.25
"""Of a record's comparison against its other losses: at 1 its gradient is several times theirs."""


class _Root(NamedTuple):
    """The position that a window begins with."""

    row: int
    """Of the batch."""
    state: Any
    player: int
    legal: NDArray[np.int64]
    """Moves as the player to move sees them."""


class Comparison:
    """The loss of the search's decision.

    Args:
        game: The rules.
        layout: Of the windows, which are seen by the player to move.
        share: Part of the records whose moves are compared, 0 to 1.

    Raises:
        ConfigError: a game in which nature moves.
    """

    def __init__(self, game: Game[Any], layout: Layout, share: float) -> None:
        if game.has_chance:
            raise ConfigError("learner.process.compare: the game has chance, and what follows a move is compared")
        self._game, self._layout, self._share = game, layout, float(share)
        self._action = layout.first_action

    def loss(self, learner: DiffusionLearner, batch: TokenBatch) -> Tensor:
        """``LOSS_WEIGHT`` times the sum of the losses of the records that are compared, over B.

        Args:
            learner: Whose search it is; its ``sampler`` says how many candidates there are, and the weight.
            batch: B windows. The first are compared whose tokens lead back to a position of two or more moves, a legal
                one of which is their label.

        Raises:
            ConfigError: the learner does not search in its imagination or cannot, or as ``require_positions``.
        """
        sampling, device = learner.config.sampler, batch.tokens.device
        if sampling.candidates < 2:
            raise ConfigError(
                "learner.process.compare trains a search among moves: set learner.sampler.candidates to 2 or more, got "
                f"{sampling.candidates}"
            )
        require_positions(self._game, self._layout, "compare", self._share)
        model, found = Imagination(learner, "learner.process.compare=0"), self._roots(batch)
        if not found:
            return torch.zeros((), device=device)
        rows = torch.tensor([root.row for root in found], device=device)
        legal = torch.zeros((len(found), len(self._layout.moves)), dtype=torch.bool)
        for row, root in enumerate(found):
            legal[row, torch.from_numpy(root.legal)] = True
        labels = (batch.tokens[rows, self._action] - self._layout.move_offset)[:, None]
        with torch.no_grad():
            policy = model.policy(batch.tokens[rows, : self._layout.state_length])
            log_policy = policy.masked_fill(~legal.to(device), NEGATIVE_INFINITY)
            most = min(sampling.candidates, max(len(root.legal) for root in found))
            # The labelled move is the first, whatever the policy thinks of it.
            moves = log_policy.scatter(1, labels, float("inf")).topk(most, dim=1).indices
            log_prior = log_policy.gather(1, moves)
        there = legal.to(device).gather(1, moves)
        worth = torch.zeros_like(log_prior).masked_scatter(there, self._worth(model, found, moves, there))
        score = (log_prior + sampling.weight * worth).masked_fill(~there, NEGATIVE_INFINITY)
        return -LOSS_WEIGHT * score.log_softmax(-1)[:, 0].float().sum() / len(batch)

    def _roots(self, batch: TokenBatch) -> list[_Root]:
        """Of the first windows that can be compared, as many as are their share."""
        layout, most = self._layout, math.ceil(self._share * len(batch))
        known = batch.target[:, self._action].cpu().numpy()
        rows = batch.tokens[:, : self._action + 1].cpu().numpy()
        found = list[_Root]()
        for number in np.flatnonzero(known):
            if len(found) == most:
                break
            position = self._position(rows[number, : layout.state_length])
            if position is None:
                continue
            state, player = position
            legal = self._game.moves.seen_by(self._game.legal(state), player)
            if len(legal) > 1 and rows[number, self._action] - layout.move_offset in legal:
                found.append(_Root(int(number), state, player, legal))
        return found

    def _position(self, row: NDArray[np.int64]) -> tuple[Any, int] | None:
        for viewer in (0, 1):  # a window does not say who sees it; where both may, they see the same moves
            try:
                state = self._layout.tokenizer.decode(row, viewer)
            except ValueError:
                continue
            if self._game.player(state) == viewer:
                return state, viewer
        return None

    def _worth(self, model: Imagination, found: list[_Root], moves: Tensor, there: Tensor) -> Tensor:
        """[R] what the moves [C, K] that are there are worth to who makes them."""
        states, players = self._after(found, moves, there)
        judged = model.judge(self._encoded(states, players).to(moves.device))
        over = torch.zeros_like(judged.over)
        worths = with_worth([], judged.win, over)
        for _ in range(1, model.learner.config.sampler.depth):
            states, ended = self._replied(states, players, judged.log_policy.detach())
            players, over = [1 - player for player in players], over | ended.to(over.device)
            judged = model.judge(self._encoded(states, players).to(moves.device))
            worths = with_worth(worths, judged.win, over)
        return torch.stack(worths).mean(0)

    def _after(self, found: list[_Root], moves: Tensor, there: Tensor) -> tuple[list[Any], list[int]]:
        """The R positions after the moves [C, K] that are there, and who is to move in them."""
        game = self._game
        states, players = list[Any](), list[int]()
        for root, seen, known in zip(found, moves.cpu().numpy(), there.cpu().numpy(), strict=True):
            after = [game.play(root.state, int(move)) for move in game.moves.seen_by(seen[known], root.player)]
            states += after
            players += [1 - root.player] * len(after)
        return states, players

    def _replied(self, states: list[Any], players: list[int], log_policy: Tensor) -> tuple[list[Any], Tensor]:
        """The positions after the likeliest legal reply by [R, M], and which of the R were over before it."""
        game, after, ended = self._game, list[Any](), list[bool]()
        for state, player, row in zip(states, players, log_policy.cpu().numpy(), strict=True):
            ended.append(game.is_over(state))
            if ended[-1]:
                after.append(state)
                continue
            legal = game.legal(state)
            after.append(game.play(state, int(legal[row[game.moves.seen_by(legal, player)].argmax()])))
        return after, torch.tensor(ended)

    def _encoded(self, states: list[Any], players: list[int]) -> Tensor:
        """[R, L] positions as these players see them."""
        return torch.from_numpy(self._layout.tokenizer.encode(states, np.array(players)).astype(np.int64))
