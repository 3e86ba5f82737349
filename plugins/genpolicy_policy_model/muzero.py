"""MuZero's learner: a model of a game, unrolled along K moves and trained to predict policies, values and rewards.

Schrittwieser et al. 2020 (arXiv:1911.08265), with an end-of-game head. With the weights w_0 = 1 and w_k = 1/K

    L = sum_k w_k (CE(policy_k) + c_v CE(value_k) + c_r CE(reward_k) + c_e BCE(end_k))

and the gradient of the latent is halved in front of every unrolled move, so that the latent k moves later reaches the
representation with 2^-k of its gradient.

Axes: B batch, K moves, L tokens of a position, M moves of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.game import Game
from genpolicy_policy_model.config import MuZeroConfig
from genpolicy_policy_model.episodes import EpisodeBatch
from genpolicy_policy_model.learner import ModelLearner
from genpolicy_policy_model.networks import ModelNetwork

if TYPE_CHECKING:
    from genpolicy_policy_model.policy import MuZeroPolicy


def halved(latent: Tensor) -> Tensor:
    """The same latent, whose gradient is half as large."""
    return 0.5 * latent + 0.5 * latent.detach()


class MuZeroLearner(ModelLearner):
    """A learned model of a game.

    Args:
        game: The game; its sides take turns.
        config: Options.
    """

    Config: ClassVar[type[Any]] = MuZeroConfig
    config: MuZeroConfig
    network: ModelNetwork

    def __init__(self, game: Game[Any], config: MuZeroConfig) -> None:
        super().__init__(game, config)
        self.network = ModelNetwork(self.layout, config)
        self.ahead: nn.Sequential | None = None
        """From an unrolled latent to that of the true position; used in training only."""
        if config.consistency:
            width = config.latent_width if config.latent == "vector" else config.network.width
            self.ahead = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    @property
    def hidden_layers(self) -> tuple[nn.Module, ...]:
        """Those of representation and dynamics."""
        return self.network.trunk.blocks, self.network.dynamics

    def loss(self, batch: EpisodeBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum over the unrolled moves, a mean over the rows; unknown labels count 0. Metrics: its parts."""
        del generator
        c, network, num_moves = self.config, self.network, batch.moves.shape[1]
        latents = [network.represent(batch.states[:, 0])]
        for k in range(num_moves):
            latents.append(network.step(halved(latents[-1]), batch.moves[:, k]))
        every, after = torch.cat(latents), torch.cat(latents[1:])  # one call of each head, move by move
        known = batch.live[:, :-1] & ~batch.reward.isnan()
        parts = {
            # Where a game is over, or a record names no move, the target is all 0 and so is the loss.
            "policy": -(by_move(batch.policy) * network.policy(every).log_softmax(-1)).sum(-1),
            "value": network.losses(network.value, every, by_move(batch.value)),
            "reward": network.losses(network.reward, after, by_move(batch.reward)),
        }
        if network.end is not None:
            over = (~batch.live[:, 1:]).float().masked_fill(~known, torch.nan)
            parts["end"] = network.end.losses(network.end(after), by_move(over))
        if self.ahead is not None:
            compared = known & batch.live[:, 1:]
            if c.side == "both":  # the representation reads positions of the player to move
                compared = compared & (torch.arange(num_moves, device=compared.device) % 2 == 1)
            parts["ahead"] = self._inconsistency(after, by_move(batch.states[:, 1:])) * by_move(compared)
        weights = {"policy": 1.0, "value": c.value_weight, "reward": c.reward_weight, "end": c.end_weight}
        weights["ahead"] = c.consistency
        loss, means = weighted(parts, weights, num_moves)
        return loss, {name: mean.detach() for name, mean in means.items()}

    def _inconsistency(self, latent: Tensor, states: Tensor) -> Tensor:
        """One minus the cosine between latents, as they look ahead, and the true ones, which get no gradient."""
        assert self.ahead is not None
        with torch.no_grad():
            true = self.network.represent(states)
        return 1 - F.cosine_similarity(self.ahead(latent), true, dim=-1).mean(-1)

    def policy(self) -> MuZeroPolicy:
        """A policy that plays with these weights (shared, not copied)."""
        from genpolicy_policy_model.policy import MuZeroPolicy

        return MuZeroPolicy(self)


def by_move(rows: Tensor) -> Tensor:
    """[K * B, ...] from [B, K, ...]: all rows of the first move, then all of the second."""
    return rows.transpose(0, 1).flatten(0, 1)


def weighted(
    parts: Mapping[str, Tensor], weights: Mapping[str, float], num_moves: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted sum of losses of an unrolled model, each a mean over the rows, and those means.

    Args:
        parts: Losses [(K + 1) * B] of the root and the moves, by move, "value" among them, or [K * B] of the moves.
        weights: Of the parts; within each the root has the weight 1, a move 1 / K.
        num_moves: K.
    """
    num_rows, device = len(parts["value"]) // (num_moves + 1), parts["value"].device
    scale = torch.full((num_moves + 1, 1), 1.0 / max(1, num_moves), device=device)
    scale[0] = 1.0
    means = {}
    for name, losses in parts.items():
        rows = losses.view(-1, num_rows)
        means[name] = (rows * scale[-len(rows) :]).sum() / num_rows
    return torch.stack([weights[name] * mean for name, mean in means.items()]).sum(), means
