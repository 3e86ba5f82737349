"""UniZero's learner: a transformer over latents and moves that predicts what comes next (arXiv:2406.10667).

With means over the plies of a window

    L = c_z (latent) + c_v CE(value) + c_r CE(reward) + c_e BCE(end) + CE(policy) - c_h entropy

where the latent that follows from a move is compared with what a slow copy of the encoder (a moving average) makes of
the true next position. In training all latents are those of true positions; in a search the model reads its own.

Axes: B batch, K moves, L tokens of a position, W width.
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from genpolicy.data.records import Dataset
from genpolicy.data.windows import WindowSource
from genpolicy.errors import DatasetError
from genpolicy.game import Game
from genpolicy.policies.learner import Learner
from genpolicy_policy_model.episodes import EpisodeBatch
from genpolicy_policy_model.learner import ModelLearner
from genpolicy_policy_model.unizero_config import UniZeroConfig
from genpolicy_policy_model.unizero_network import UniZeroNetwork, faded, latent_losses

if TYPE_CHECKING:
    from genpolicy_policy_model.unizero_policy import UniZeroPolicy


class UniZeroLearner(ModelLearner):
    """A learned model of a game that reads its history.

    Args:
        game: The game; its sides take turns.
        config: Options.
    """

    Config: ClassVar[type[Any]] = UniZeroConfig
    config: UniZeroConfig
    network: UniZeroNetwork

    def __init__(self, game: Game[Any], config: UniZeroConfig) -> None:
        super().__init__(game, config)
        self.network = UniZeroNetwork(self.layout, config)
        self.target = copy.deepcopy(self.network.encoder).requires_grad_(False)
        """The slow copy of the encoder; used in training only, so a policy's folder does not hold it."""

    def meaning(self) -> dict[str, Any]:
        """As of every model; how attention divides the width, and what a latent is."""
        return {**super().meaning(), "heads": self.config.heads, "norm": self.config.norm}

    @property
    def hidden_layers(self) -> tuple[nn.Module, ...]:
        """Those of the encoder's trunk and of the transformer."""
        return self.network.encoder.trunk.blocks, self.network.transformer.blocks

    @torch.no_grad()
    def after_update(self, num_updates: int) -> None:
        """Move the slow copy of the encoder."""
        del num_updates
        for slow, fast in zip(self.target.parameters(), self.network.encoder.parameters(), strict=True):
            slow.lerp_(fast, 1 - self.config.target_decay)

    def take_weights(self, source: Learner) -> None:
        """As ``Learner.take_weights``; the slow copy starts from the encoder, since no folder holds it."""
        super().take_weights(source)
        self.target.load_state_dict(self.network.encoder.state_dict())

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """Episodes of ``unroll`` moves; with ``fade`` those that begin where a game begins.

        Raises:
            ConfigError: more moves than the split's games have.
            DatasetError: records without what the options ask for, or ``fade`` and no game from its beginning.
        """
        if self.config.context > 1 and not has_history(self.game):
            warnings.warn(
                f"{self.game.spec} keeps no history: in play the model sees only the position, as with context=1",
                stacklevel=2,
            )
        windows = super().windows(records, split, seed=seed)
        if not self.config.fade:
            return windows
        start, rows, first = self.game.format(self.game.parse()), [], 0
        for batch in records.batches(["state"], split, 1 << 16):
            texts = batch.column("state").to_pylist()
            rows += [first + row for row, text in enumerate(texts) if text == start]
            first += len(texts)
        if not rows:
            raise DatasetError(
                f"{records.label}: no game of split {split!r} begins at {start!r}, as learner.fade needs; genpolicy "
                "data selfplay makes such games"
            )
        return _Some(windows, np.array(rows, np.int64))

    def loss(self, batch: EpisodeBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """A mean over plies and rows; unknown labels count 0. Metrics: its parts."""
        del generator
        c, network, num_moves = self.config, self.network, batch.moves.shape[1]
        b, plies = len(batch), torch.arange(num_moves + 1, device=batch.moves.device)
        states = faded(batch.states, c.fade, self.layout.mask) if c.fade else batch.states
        latents = network.encoder(states.flatten(0, 1)).unflatten(0, (b, -1))
        out, _ = network.transformer(*network.interleaved(latents, batch.moves, plies.expand(b, -1)))
        every, after = out[:, 0::2].flatten(0, 1), out[:, 1::2].flatten(0, 1)  # of latents, of moves
        logs = network.policy(every).log_softmax(-1)
        target = batch.policy.flatten(0, 1)
        parts = {
            # Where a game is over, or a record names no move, the target is all 0 and so is the loss.
            "policy": -(target * logs).sum(-1),
            "value": network.losses(network.value, every[:, None], batch.value.flatten()),
            "reward": network.losses(network.reward, after[:, None], batch.reward.flatten()),
        }
        known = ~batch.reward.isnan()
        if network.end is not None:
            over = (~batch.live[:, 1:]).float().masked_fill(~(known & batch.live[:, :-1]), torch.nan)
            parts["end"] = network.end.losses(network.end(after[:, None]), over.flatten())
        with torch.no_grad():
            true = self.target(states[:, 1:].flatten(0, 1))
        parts["latent"] = latent_losses(network.next_latent(after), true, c.norm) * known.flatten()
        if c.entropy:
            parts["entropy"] = (logs.exp() * logs).sum(-1) * (target.sum(-1) > 0)
        weights = {"policy": 1.0, "value": c.value_weight, "reward": c.reward_weight, "end": c.end_weight}
        weights |= {"latent": c.latent_weight, "entropy": c.entropy}
        means = {name: losses.sum() / max(1, len(losses)) for name, losses in parts.items()}
        loss = torch.stack([weights[name] * mean for name, mean in means.items()]).sum()
        return loss, {name: mean.detach() for name, mean in means.items()}

    def policy(self) -> UniZeroPolicy:
        """A policy that plays with these weights (shared, not copied)."""
        from genpolicy_policy_model.unizero_policy import UniZeroPolicy

        return UniZeroPolicy(self)


class _Some(WindowSource):
    """Some windows of a source."""

    def __init__(self, source: WindowSource, rows: NDArray[np.int64]) -> None:
        self._source, self._rows = source, rows

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: NDArray[np.int64], epoch: int) -> EpisodeBatch:
        batch = self._source.batch(self._rows[indices], epoch)
        assert isinstance(batch, EpisodeBatch)
        return batch


def has_history(game: Game[Any]) -> bool:
    """Whether the game's states remember the moves that led to them."""
    start = game.parse()
    return bool(game.past(game.play(start, int(game.legal(start)[0])))[1])
