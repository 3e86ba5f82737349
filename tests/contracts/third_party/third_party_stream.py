"""A learner whose training data grows: a stream that shows one more position after every update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from third_party_learner import LowRankLearner, LowRankPolicy
from torch import Tensor

from genpolicy.data.counter_rng import draw
from genpolicy.data.stream import Stream
from genpolicy.data.windows import Batch, WindowSource


class Growing(Stream):
    """Draws each update from the first ``size`` windows of a source."""

    def __init__(self, source: WindowSource, seed: int) -> None:
        self.source, self.seed, self.size = source, seed, 4

    def parts(self, update: int) -> list[Batch]:
        return [
            self.source.batch(draw(self.seed, 0, positions, 0, np.full(len(positions), self.size)), update)
            for positions in self.share.positions(update)
        ]

    def state_dict(self) -> dict[str, Any]:
        return {"size": self.size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.size = state["size"]


class GrowingLearner(LowRankLearner):
    stream_class = Growing
    stream: Growing

    def windows(self, records: Any, split: str, *, seed: int) -> Any:
        source = super().windows(records, split, seed=seed)
        if split != self.trained_split:
            return source
        self.stream = self.stream_class(source, seed)
        return self.stream

    def loss(self, batch: Any, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        loss, numbers = super().loss(batch, generator)
        return loss, {**numbers, "size": torch.tensor(float(self.stream.size))}

    def after_update(self, num_updates: int) -> None:
        self.stream.size = min(self.stream.size + 1, len(self.stream.source))

    def policy(self) -> GrowingPolicy:
        return GrowingPolicy(self)


class GrowingPolicy(LowRankPolicy):
    kind = "growing"
    learner_class = GrowingLearner
