"""Learner: what the one training loop trains. The loop, checkpoints and evaluation know nothing more of a method.

A learner is an ``nn.Module`` that its entry point of group ``genpolicy.learners`` makes as
``LearnerClass(game, config)``. ``config`` is an instance of the dataclass ``LearnerClass.Config``, which composes the
``learner:`` section of a configuration (its ``kind`` key, the entry-point name, is taken out before).

Axes: B batch, N tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from genpolicy.data.windows import Batch, WindowSource
from genpolicy.game import Game
from genpolicy.policies.base import Policy

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset


class Learner(nn.Module, ABC):
    """Weights, a view of the records, and a loss."""

    Config: ClassVar[type[Any]]
    """Dataclass of the learner's own options."""
    game: Game[Any]

    @abstractmethod
    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """A view of the records of one split, from which the loop draws batches (see ``genpolicy.data.windows``)."""

    @abstractmethod
    def loss(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The trained loss (a scalar with a gradient) and detached numbers to log."""

    def elbo(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """[B] bound on -log p(imagined tokens | given tokens) in nats, as reported; NaN where the method has none."""
        return torch.full((batch.tokens.shape[0],), float("nan"))

    @abstractmethod
    def policy(self) -> Policy:
        """A policy that plays with these weights (shared, not copied)."""

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Optimiser groups: weight decay on matrices only, as is usual for transformers."""
        decayed = [p for p in self.parameters() if p.requires_grad and p.ndim >= 2]
        others = [p for p in self.parameters() if p.requires_grad and p.ndim < 2]
        return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
