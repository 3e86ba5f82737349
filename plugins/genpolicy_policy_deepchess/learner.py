"""Trains the encoder and the comparator."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from genpolicy.data.records import Dataset
from genpolicy.data.windows import WindowSource
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.game import Game
from genpolicy.policies.base import Policy, load_policy
from genpolicy.policies.learner import Learner
from genpolicy.sequence import Layout
from genpolicy_policy_deepchess.config import ComparatorConfig
from genpolicy_policy_deepchess.network import BitsEncoder, ComparatorNetwork, TrunkEncoder
from genpolicy_policy_deepchess.windows import PairBatch, Pairs, Positions

MEASURE_SEED = 0
ROWS_AT_ONCE = 512


class ComparatorLearner(Learner):
    """First restores bits (``stage: autoencoder``), then tells positions apart (``stage: compare``).

    Args:
        game: The game.
        config: Options.

    Raises:
        ConfigError: ``mirror`` in a game whose tokens are the same for both players, or no token becomes bits.
    """

    Config: ClassVar[type[Any]] = ComparatorConfig
    config: ComparatorConfig
    network: ComparatorNetwork

    def __init__(self, game: Game[Any], config: ComparatorConfig) -> None:
        super().__init__(game, config)
        self.layout = Layout(game, "s-a", 1)
        turned = game.tokens.turned
        if config.mirror and turned is not None and all(np.array_equal(t, np.arange(len(t))) for t in turned):
            raise ConfigError(
                f"learner.mirror=true: the tokens of {game.spec!r} are the same for both players, so every comparison "
                "would be a tie; set learner.mirror=false"
            )
        self.network = ComparatorNetwork(game, config)

    @property
    def fingerprint(self) -> str:
        """The layout's, whose state tokens are read."""
        return self.layout.fingerprint

    @property
    def plays(self) -> bool:
        """Not after the first stage, which trains the encoder alone."""
        return self.config.stage != "autoencoder"

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """As ``Learner.param_groups``; Muon gets the matrices of a trunk's blocks."""
        decayed, others = super().param_groups(weight_decay)
        encoder = self.network.encoder
        blocks = encoder.trunk.blocks.parameters() if isinstance(encoder, TrunkEncoder) else ()
        return [{**decayed, "muon": [p for p in blocks if p.ndim == 2]}, others]

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """Pairs of a split's positions.

        Raises:
            DatasetError: it has no two that differ as configured.
        """
        positions = Positions.read(records, split, self.game, self.config)
        return Pairs(positions, 0.0 if self.config.stage == "autoencoder" else self.config.gap, seed)

    def loss(self, batch: PairBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Nats a pair that the better one is not taken for it; or a bit's cross-entropy in the first stage.

        Metrics: ``ordered``, the share of pairs that are ordered rightly; ``bit_nats`` in the first stage.
        """
        if self.config.stage == "autoencoder":
            assert isinstance(self.network.encoder, BitsEncoder)
            total, first = self.network.encoder.reconstruction(batch.first.flatten(0, 1))
            return total, {"bit_nats": first.detach()}
        logit = self.network(batch.first, batch.second)
        wanted = batch.first_better
        if self.config.teacher is not None:
            with torch.no_grad():
                wanted = torch.sigmoid(self._teacher.to(wanted.device)(batch.first, batch.second))
        loss = functional.binary_cross_entropy_with_logits(logit, wanted)
        ordered = ((logit > 0) == (batch.first_better > 0.5)).float().mean()
        return loss, {"ordered": ordered.detach()}

    @cached_property  # which goes past torch's registration: the teacher is not a part of this module
    def _teacher(self) -> ComparatorNetwork:
        learner = getattr(load_policy(str(self.config.teacher), game=self.game), "learner", None)
        if not isinstance(learner, ComparatorLearner):
            raise ConfigError(f"learner.teacher={self.config.teacher}: it is not a comparator")
        learner.require_comparisons()
        return learner.network.eval()

    def require_comparisons(self) -> None:
        """See that these weights were trained to compare.

        Raises:
            ConfigError: they are of the first stage, which trains the encoder alone.
        """
        if not self.plays:
            raise ConfigError(
                "a comparator after its first stage (learner.stage=autoencoder) restores bits and compares nothing "
                "yet: train the second with learner.stage=compare and init_from, and take that policy"
            )

    @torch.no_grad()
    def measure(self, records: Dataset, split: str, num: int) -> dict[str, float]:
        """The share of held-out pairs ordered rightly, and how many of 1,000 triples of positions go in a circle."""
        if not self.plays:
            return {}
        pairs = Pairs(Positions.read(records, split, self.game, self.config), self.config.gap, MEASURE_SEED)
        first, second = pairs.pairs(np.linspace(0, len(pairs) - 1, min(num, len(pairs))).astype(np.int64), 0)
        codes = self.codes_of(pairs.positions.tokens)
        better = pairs.positions.value[first] > pairs.positions.value[second]
        answer = self.network.compare(codes[first], codes[second]).cpu().numpy()
        triples = np.random.default_rng(MEASURE_SEED).integers(len(codes), size=(3, min(num, 1000)))
        around = torch.stack([self.network.compare(codes[triples[i]], codes[triples[i - 1]]) for i in range(3)])
        cyclic = (around > 0).all(0) | (around < 0).all(0)
        ordered = float(((answer > 0) == better).mean())
        return {"pairs_ordered": ordered, "intransitive_per_1000": 1000 * float(cyclic.float().mean())}

    @torch.no_grad()
    def codes_of(self, tokens: Any) -> Tensor:
        """[R, V, C] codes of positions [R, 2, L], some hundred at a time."""
        device = next(self.network.parameters()).device
        parts = np.array_split(np.asarray(tokens), max(1, len(tokens) // ROWS_AT_ONCE))
        return torch.cat([self.network.codes(torch.from_numpy(part.astype(np.int64)).to(device)) for part in parts])

    def take_weights(self, source: Learner) -> None:
        """Start from the encoder of the first stage, or from all weights of a comparator of the same shape.

        Raises:
            CheckpointError: another encoder.
        """
        stages = (getattr(source.config, "stage", None), self.config.stage)
        if not isinstance(source, ComparatorLearner) or stages != ("autoencoder", "compare"):
            super().take_weights(source)
            return
        try:
            self.network.encoder.load_state_dict(source.network.encoder.state_dict())
        except RuntimeError as error:
            raise CheckpointError(
                "it has another encoder: give both stages the same learner.encoder, learner.widths and learner.drop"
            ) from error

    def policy(self) -> Policy:
        """A policy that plays with these weights (shared, not copied)."""
        from genpolicy_policy_deepchess.policy import ComparatorPolicy

        return ComparatorPolicy(self)
