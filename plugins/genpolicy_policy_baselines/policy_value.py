"""Policy and value in one network: the move head of S-A, and heads for win, draw and loss and for the plies left.

The trunk and the move head are those of S-A (``one_step``). Two heads read the position's tokens
(``genpolicy.networks.value_heads``), as in Leela Chess Zero. One network call gives a tree search its prior and its
value: AlphaZero's network (Silver et al. 2018) on the trunk, data and trainer of every other learner here.

Axes: B positions, N tokens of a sequence, M moves of the vocabulary, K = 3: win, draw, loss.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from genpolicy.data.windows import TokenBatch
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.networks.transformer import ACTIVATIONS, draw_weights
from genpolicy.networks.value_heads import CategoricalHead, PliesLeftHead, ReadoutConfig, finite, mean_of_known
from genpolicy.policies.base import Decision
from genpolicy.policies.dream import Recorder
from genpolicy.policies.first_action import FirstAction, Imagined
from genpolicy.policies.tokens import NetworkLearner, NetworkLearnerConfig
from genpolicy.sequence import Layout
from genpolicy.values import rank_correlation
from genpolicy_policy_baselines.harmony import Harmony
from genpolicy_policy_baselines.judged_windows import JudgedBatch, JudgedWindows, judged_windows
from genpolicy_policy_baselines.one_step import OneStepPolicy, first_time

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset

MEASURED_AT_ONCE = 64
"""Windows of one network call while figures are measured."""


@dataclass
class PolicyValueConfig(NetworkLearnerConfig):
    """Options of ``PolicyValueLearner``: those of every network learner, and its heads'."""

    network: NetworkConfig = field(default_factory=lambda: NetworkConfig(geometry="board", head="typed"))
    """The network's shape; the moves have a softmax of their own (``head: typed``)."""
    wdl: ReadoutConfig = field(default_factory=ReadoutConfig)
    """How the head of win, draw and loss reads the position."""
    plies_left: ReadoutConfig = field(default_factory=lambda: ReadoutConfig(per_token=8, inner=64))
    """How the head of the plies left reads it."""
    value_weight: float = 1.0
    """Weight of the cross-entropy of win, draw and loss; that of the move has weight 1."""
    plies_weight: float = 0.1
    """Weight of the loss of the plies left."""
    harmony: bool = False
    """Learn the losses' weights (``genpolicy_policy_baselines.harmony``), in the place of the two fixed ones above."""
    result_share: float = 0.0
    """Part of the label that is the game's result, in [0, 1], where a record has a search's value or a score, too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("value_weight", "plies_weight"):
            if not 0 <= getattr(self, key) < 1e6:
                raise ConfigError(f"{key} must be at least 0 and below 1e6, got {getattr(self, key)}")
        if not 0 <= self.result_share <= 1:
            raise ConfigError(f"result_share must lie in [0, 1], got {self.result_share}")
        if self.network.head != "typed":
            raise ConfigError(
                f"network.head: policy_value has a head for moves alone; set typed, got {self.network.head}"
            )
        if self.train_pad or self.future != "labelled":
            raise ConfigError(
                "train_pad and future: policy_value imagines nothing after the first move; leave them out"
            )


class PolicyValueNetwork(DenoisingTransformer):
    """S-A's network with a move head alone, and the heads that judge.

    Args:
        layout: ``s | a``.
        config: The learner's.
    """

    actions_only: ClassVar[bool] = True

    def __init__(self, layout: Layout, config: PolicyValueConfig) -> None:
        super().__init__(layout, config.network)
        self.num_state_tokens = layout.state_length
        num_tokens, width = layout.state_length, config.network.width
        activation = ACTIVATIONS[config.network.activation]
        self.wdl = CategoricalHead(num_tokens, width, config.wdl, activation=activation)
        self.plies_left = PliesLeftHead(num_tokens, width, config.plies_left, activation)
        with torch.no_grad():
            for head in (self.wdl, self.plies_left):
                draw_weights(head, config.network.init_std, None)

    def judged(self, tokens: Tensor, added: Tensor | None = None) -> tuple[TypedLogits, Tensor, Tensor]:
        """The moves' logits, those of win, draw and loss [B, K], and the plies left [B], in one pass of the trunk.

        Args:
            tokens: [B, N] positions with the action masked.
            added: As in ``Trunk``.
        """
        hidden = self.trunk(tokens, first_time(tokens), added=added)
        position = hidden[:, : self.num_state_tokens]
        return self.head(hidden, tokens), self.wdl(position), self.plies_left(position)


class PolicyValueLearner(NetworkLearner):
    """Cross-entropy of the move and of win, draw and loss, and a Huber loss of the plies left.

    A record's move label is its search policy where it has one, else its labelled move. Its value is a search's value,
    or the first score (the best move's, where only the moves have values), or the game's result; ``result_share`` mixes
    the result in. Plies left are counted to the last recorded move of a game whose result is known. What a record does
    not have moves no weight.

    Args:
        game: The game.
        config: Its options.
    """

    Config: ClassVar[type[Any]] = PolicyValueConfig
    config: PolicyValueConfig
    network: PolicyValueNetwork

    def __init__(self, game: Game[Any], config: PolicyValueConfig) -> None:
        super().__init__(game, config, Layout(game, "s-a", 1))
        self.balance = Harmony(("policy", "wdl", "plies")) if config.harmony else None

    def make_network(self, layout: Layout, num_input_symbols: int | None) -> PolicyValueNetwork:
        """The weights, drawn anew."""
        del num_input_symbols
        return PolicyValueNetwork(layout, self.config)

    def windows(self, records: Dataset, split: str, *, seed: int) -> JudgedWindows:
        """Positions with what the records say of them; turned by symmetries in training only, where asked for.

        Raises:
            DatasetError: no record of the split has a value; the message says which command adds them.
        """
        training = split == self.trained_split
        options = self.config.window_options(seed, training=training)
        windows = judged_windows(records, split, self.layout, self.game, options, self.config.result_share)
        if training and not windows.has_plies and not self.config.harmony and self.config.plies_weight > 0:
            warnings.warn(
                f"{records.label}: no record of split {split!r} is of a game with a result, so none teaches the plies "
                "left; where no data set does, what the policy says of them means nothing, and learner.plies_weight=0 "
                "leaves it out",
                stacklevel=2,
            )
        return windows

    def loss(self, batch: JudgedBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum of the three losses, each a mean over the rows that have its label; the parts to log."""
        del generator
        parts = self._parts(batch)
        if self.balance is not None:
            weights = {f"{name}_weight": weight for name, weight in self.balance.weights().items()}
            return self.balance(parts), {**{name: part.detach() for name, part in parts.items()}, **weights}
        total = parts["policy"] + self.config.value_weight * parts["wdl"] + self.config.plies_weight * parts["plies"]
        return total, {name: part.detach() for name, part in parts.items()}

    def _parts(self, batch: JudgedBatch) -> dict[str, Tensor]:
        network = self.network
        moves, wdl, plies = network.judged(self._masked(batch))
        nll, known = move_nll(moves, batch)
        return {
            "policy": (nll * known).sum() / known.sum().clamp(min=1),
            "wdl": mean_of_known(network.wdl.losses(wdl, batch.wdl), batch.wdl),
            "plies": mean_of_known(network.plies_left.losses(plies, batch.plies_left), batch.plies_left),
        }

    def _masked(self, batch: TokenBatch) -> Tensor:
        return torch.where(batch.frozen, batch.tokens, self.layout.mask)

    @torch.no_grad()
    def elbo(self, batch: JudgedBatch, generator: torch.Generator) -> Tensor:
        """[B] -log p(move label | position) in nats: exact, no bound; 0 where a row has no label."""
        del generator
        return move_nll(self.network.judged(self._masked(batch))[0], batch)[0].double()

    def measure(self, records: Dataset, split: str, num: int) -> dict[str, float]:
        """Figures of ``num`` positions spread over a split, each over those that have its label.

        ``policy_ce`` and ``wdl_ce``: cross-entropies in nats. ``wdl_prior``: that of the split's mean win, draw and
        loss, which a head that knows nothing of the position reaches. ``plies_error``: mean error of the plies left,
        without its sign. ``value_rank``: rank correlation (Spearman) of the value with the label's.
        """
        source = self.windows(records, split, seed=0)
        chosen = np.linspace(0, len(source) - 1, min(num, len(source))).astype(np.int64)
        columns: dict[str, list[Tensor]] = {name: [] for name in ("nll", "ce", "labels", "values", "error")}
        device = self.admitted.device
        for part in np.array_split(chosen, -(-len(chosen) // MEASURED_AT_ONCE) or 1):
            batch = source.batch(part, 0).to(device)
            with torch.no_grad():
                moves, wdl, plies = self.network.judged(self._masked(batch))
            nll, known = move_nll(moves, batch)
            judged = ~batch.wdl.isnan().any(-1)
            columns["nll"].append(nll[known])
            columns["ce"].append(self.network.wdl.losses(wdl, batch.wdl)[judged])
            columns["labels"].append(batch.wdl[judged])
            columns["values"].append(self.network.wdl.mean(wdl)[judged])
            columns["error"].append((plies - batch.plies_left).abs()[~batch.plies_left.isnan()])
        nll, ce, labels, values, error = (torch.cat(column).double().cpu() for column in columns.values())
        prior = labels.mean(0)
        return {
            "policy_ce": float(nll.mean()),
            "wdl_ce": float(ce.mean()),
            "wdl_prior": float(-torch.xlogy(prior, prior).sum()),
            "plies_error": float(error.mean()),
            "value_rank": rank_correlation(values.numpy(), (labels[:, 0] - labels[:, 2]).numpy()),
        }

    def flops_per_record(self) -> float | None:
        """As for every network learner, with the heads that judge."""
        blocks = super().flops_per_record()
        assert blocks is not None
        return blocks + self.network.wdl.flops_per_record() + self.network.plies_left.flops_per_record()

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """As for every network learner; AdamW moves the heads that judge."""
        decayed, others = super().param_groups(weight_decay)
        heads = {id(p) for head in (self.network.wdl, self.network.plies_left) for p in head.parameters()}
        return [{**decayed, "muon": [p for p in decayed["muon"] if id(p) not in heads]}, others]


def move_nll(moves: TypedLogits, batch: JudgedBatch) -> tuple[Tensor, Tensor]:
    """[B] cross-entropy of the moves in nats, and [B] whether the row has a label; 0 where it has none."""
    logits = moves.groups[0].logits[:, 0]
    known = batch.move >= 0
    nll = F.cross_entropy(logits, batch.move.clamp(min=0), reduction="none").where(known, 0.0)
    if batch.policy.shape[1]:
        total = batch.policy.sum(-1)
        searched = -(batch.policy * logits.log_softmax(-1)).sum(-1) / total.clamp(min=1e-9)
        nll, known = torch.where(total > 0, searched, nll), known | (total > 0)
    return nll, known


@dataclass(frozen=True)
class Judged(Imagined):
    """A batch of moves with what the network says of the positions."""

    wdl: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """[B, K] probabilities of win, draw and loss for the player to move."""
    plies_left: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """[B] expected plies to the end."""


class PolicyValuePolicy(OneStepPolicy):
    """Plays as S-A does; the same network call also evaluates the position.

    ``Decision.wdl`` are the probabilities of win, draw and loss for the player to move, ``value`` is win less loss;
    stats has ``plies_left``. A head whose loss had no weight in training says nothing. Options are those of
    ``OneStepPolicy``.
    """

    kind: ClassVar[str] = "policy_value"
    learner_class: ClassVar[type[NetworkLearner]] = PolicyValueLearner
    learner: PolicyValueLearner

    def _imagine(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        moves, wdl, plies = self.learner.network.judged(tokens)
        made = self._filled(moves, tokens, seeds, first_action, recorder)
        chances = finite(wdl, "win-draw-loss").double().softmax(-1).cpu().numpy()
        left = finite(plies, "plies-left").double().cpu().numpy()
        return Judged(made.tokens, made.first_call, made.latest, made.num_calls, wdl=chances, plies_left=left)

    def _completed(
        self, decisions: list[Decision], imagined: Imagined, states: Sequence[Any], viewers: NDArray[np.int64]
    ) -> list[Decision]:
        """The decisions with the value, win, draw and loss, and plies left of each position, of heads with a weight."""
        assert isinstance(imagined, Judged)
        config, said = self.learner.config, []
        for decision, (win, draw, loss), left in zip(
            decisions, imagined.wdl.tolist(), imagined.plies_left.tolist(), strict=True
        ):
            if config.harmony or config.value_weight > 0:
                decision = dataclasses.replace(decision, value=win - loss, wdl=(win, draw, loss))
            if config.harmony or config.plies_weight > 0:
                decision = dataclasses.replace(decision, stats={**decision.stats, "plies_left": left})
            said.append(decision)
        return said


PolicyValueLearner.policy_class = PolicyValuePolicy
