"""A learner's loss as a module, seen to be what can be trained on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from genpolicy import registry
from genpolicy.data.windows import Batch
from genpolicy.errors import RegistryError
from genpolicy.policies.learner import Learner


class Loss(nn.Module):
    """A learner's loss as a forward pass, which is what data-parallel training wraps."""

    def __init__(self, kind: str, learner: Learner) -> None:
        super().__init__()
        self.kind, self.learner = kind, learner

    def forward(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The learner's loss of one batch.

        Raises:
            RegistryError: it is not a scalar with a gradient and a dictionary of scalars.
        """
        made: object = self.learner.loss(batch, generator)
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict)):
            raise registry.wrong_thing("learners", self.kind, made, "a pair of loss and numbers, in loss()")
        loss, numbers = made
        self._require_scalar("a loss", loss)
        for name, number in numbers.items():
            self._require_scalar(f"the number {name!r}", number)
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise self._wrong("a loss without a gradient: it was detached, or no weight that is trained is in it")
        return loss, numbers

    def _require_scalar(self, what: str, value: Any) -> None:
        """By the shape alone: to look at the number would make a GPU wait."""
        if not isinstance(value, Tensor):
            raise self._wrong(f"{what} that is a {type(value).__name__}, not a tensor")
        if value.numel() != 1:
            raise self._wrong(f"{what} of shape {list(value.shape)}, not a scalar such as its mean")

    def _wrong(self, what: str) -> RegistryError:
        return RegistryError(f"{registry.named('learners', self.kind, self.learner)}: loss() gave {what}")
