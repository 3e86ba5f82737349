"""A learner without a layout, and its policy: moves by two small matrices over the symbols of the position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from genpolicy.data.windows import Batch, WindowSource
from genpolicy.options import Option
from genpolicy.policies.base import Decision, legal_probabilities
from genpolicy.policies.learner import Learner
from genpolicy.policies.saved import WeightsPolicy


@dataclass
class LowRankConfig:
    rank: int = 16


@dataclass(frozen=True)
class Positions(Batch):
    tokens: Tensor  # [B, L] the position as its player to move sees it
    moves: Tensor  # [B] the labelled move, seen from the same side


class LabelledMoves(WindowSource):
    def __init__(self, learner: LowRankLearner, records: Any, split: str) -> None:
        game = learner.game
        labelled = [record for record in records.records(split) if record.moves]
        states = [game.parse(record.state) for record in labelled]
        moves = np.array([game.moves.index(record.moves[0]) for record in labelled])
        players = np.array([game.player(state) for state in states])
        self.all = Positions(learner.encode(states), torch.from_numpy(game.moves.seen_by(moves, players)))

    def __len__(self) -> int:
        return len(self.all)

    def batch(self, indices: Any, epoch: int) -> Positions:
        return self.all.map(lambda tensor: tensor[indices])


class LowRankLearner(Learner):
    Config = LowRankConfig

    def __init__(self, game: Any, config: LowRankConfig) -> None:
        super().__init__(game, config)
        num_symbols = len(game.tokens.symbols)
        self.register_buffer("offsets", torch.arange(game.tokens.length) * num_symbols, persistent=False)
        self.embedding = nn.EmbeddingBag(game.tokens.length * num_symbols, config.rank, mode="sum")
        self.head = nn.Linear(config.rank, len(game.moves))

    def encode(self, states: Sequence[Any]) -> Tensor:
        viewers = np.array([self.game.player(state) for state in states], np.int64)
        return torch.from_numpy(self.game.tokens.encode(states, viewers).astype(np.int64))

    def scores(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens + self.offsets))

    def windows(self, records: Any, split: str, *, seed: int) -> Any:
        return LabelledMoves(self, records, split)

    def loss(self, batch: Positions, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return nn.functional.cross_entropy(self.scores(batch.tokens), batch.moves), {}

    def policy(self) -> LowRankPolicy:
        return LowRankPolicy(self)


class LowRankPolicy(WeightsPolicy):
    kind = "low_rank"
    learner_class = LowRankLearner
    learner: LowRankLearner

    @classmethod
    def options(cls, spec: Any = None) -> tuple[Option, ...]:
        own = Option("sharpness", float, 1.0, low=0.0, high=9.0, help="multiplies the scores")
        return (*super().options(spec), own)

    def __init__(self, learner: LowRankLearner, *, sharpness: float = 1.0, **options: Any) -> None:
        super().__init__(learner, **options)
        self.sharpness = sharpness

    def own_options(self) -> dict[str, Any]:
        return {**super().own_options(), "sharpness": self.sharpness}

    def _decide_batch(self, states: Sequence[Any], legal: list[list[int]], seeds: Sequence[int]) -> list[Decision]:
        scores = self.learner.scores(self.learner.encode(states).to(self.device)).cpu().numpy() * self.sharpness
        decisions = []
        for state, row, moves in zip(states, scores, legal, strict=True):
            ids = np.array(moves)
            policy = legal_probabilities(ids, row[self.game.moves.seen_by(ids, self.game.player(state))])
            decisions.append(Decision(max(policy, key=policy.__getitem__), policy=policy))
        return decisions
