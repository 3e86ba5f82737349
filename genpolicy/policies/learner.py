"""Learner: what the training loop trains. The loop, saving and evaluation read only what is declared here.

A learner is an ``nn.Module`` that its entry point of group ``genpolicy.learners`` makes as
``LearnerClass(game, config)``. ``config`` is an instance of the dataclass ``LearnerClass.Config``, which the
``learner:`` section of a configuration fills in (without its ``kind`` key, the entry-point name). See
``docs/your-own-learner.md`` for a complete one.

Axes: B batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from genpolicy.data.stream import Stream
from genpolicy.data.windows import WindowSource
from genpolicy.encoding import ids_fingerprint
from genpolicy.errors import CheckpointError
from genpolicy.game import Game
from genpolicy.networks import AttentionBias
from genpolicy.networks.copies import Copies
from genpolicy.networks.shared import differing_option
from genpolicy.networks.transformer import Trunk
from genpolicy.policies.base import Policy

if TYPE_CHECKING:
    from genpolicy.data.records import Dataset


@dataclass
class NoOptions:
    """The configuration of a learner that has no options."""


class Learner(nn.Module, ABC):
    """Weights, a view of the records, and a loss.

    A subclass writes ``windows``, ``loss`` and ``policy``; everything else has a default.
    """

    Config: ClassVar[type[Any]] = NoOptions
    """Dataclass of the learner's own options."""
    predicts_next: ClassVar[bool] = False
    """Whether the features of a token predict the next one, not the token itself: ``init_from`` refuses weights of the
    other kind, which may have the same shapes."""
    trained_split: str | None = "train"
    """The split that the run trains on (``data.train``), for which alone ``windows`` draws anew; None while ``source``
    makes windows that are measured."""
    game: Game[Any]
    config: Any
    """What it was made with, an instance of ``Config``; saved with the weights, and made from again."""

    def __init__(self, game: Game[Any], config: Any) -> None:
        super().__init__()
        self.game, self.config = game, config

    @property
    def network(self) -> nn.Module:
        """What a policy saves: every weight and persistent buffer of the part called ``network``, or of all parts.

        A learner that assigns ``self.network = ...`` saves that part alone, so that what only training needs (a target
        network, say) stays out of the policy's folder. Checkpoints hold the whole learner.
        """
        network = self._modules.get("network")
        return self if network is None else network

    @property
    def fingerprint(self) -> str:
        """A short text that differs where weights would read or write other symbols; a saved policy is held to it."""
        return ids_fingerprint(self.game.tokens, self.game.moves)

    @property
    def plays(self) -> bool:
        """Whether its policy chooses moves; not where a first stage trains a part that decides nothing yet."""
        return True

    def flops_per_record(self) -> float | None:
        """Floating-point operations of one record's forward and backward pass; None where they are not counted."""
        return None

    @abstractmethod
    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource | Stream:
        """A view of the records of one split.

        Args:
            records: The data set.
            split: Which of its splits.
            seed: Seed of everything drawn.

        Returns:
            A source, from which the loop draws batches in a seeded order, or for training a stream that says itself
            which batches an update has (``genpolicy.data.stream``). What is measured is a source.
        """

    def source(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """``windows`` of a split that is measured.

        Raises:
            TypeError: they are a stream.
        """
        trained, self.trained_split = self.trained_split, None
        try:
            windows = self.windows(records, split, seed=seed)
        finally:
            self.trained_split = trained
        if isinstance(windows, Stream):
            raise TypeError(
                f"{type(self).__name__}.windows gave the stream {type(windows).__name__} for split {split!r}; what is "
                "measured must be a WindowSource"
            )
        return windows

    @abstractmethod
    def loss(self, batch: Any, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The trained loss (a scalar with a gradient) and detached scalars to log.

        Args:
            batch: What ``windows`` gives, on the learner's device.
            generator: Supplies all randomness but dropout's; it lies on the same device.
        """

    def elbo(self, batch: Any, generator: torch.Generator) -> Tensor:
        """[B] bound on -log p(imagined tokens | given tokens) in nats, as reported; NaN where the method has none."""
        return torch.full((len(batch),), float("nan"))

    def metrics(self, batch: Any, generator: torch.Generator) -> dict[str, Tensor]:
        """Scalars that validation reports besides loss and ELBO, each the mean over a batch of validation windows; NaN
        where the batch has nothing to measure, which then does not count."""
        return {}

    def measure(self, records: Dataset, split: str, num: int) -> dict[str, float]:
        """Figures that validation reports besides the policy's accuracy, for what needs more than one batch.

        The main process alone calls it, without gradients.

        Args:
            records: The data set.
            split: The validation split.
            num: Most records to look at, at least 1 (``trainer.accuracy_records``; with 0 it is not called).
        """
        return {}

    @abstractmethod
    def policy(self) -> Policy:
        """A policy that plays with these weights (shared, not copied)."""

    def at(self, progress: float) -> None:
        """Called before each update, and before the last measurement.

        Args:
            progress: Part of the run's budget that is used, in [0, 1]; 1 after the last update.
        """

    def after_update(self, num_updates: int) -> None:
        """Called when the optimisers have moved the weights for the ``num_updates``-th time, in every process."""

    def meaning(self) -> dict[str, Any]:
        """Options by which tensors of the same shapes mean something else, by name: ``init_from`` refuses others."""
        return {}

    def require_same_meaning(self, source: Learner) -> None:
        """See that no option of ``meaning`` differs.

        Raises:
            CheckpointError: one does.
        """
        ours, theirs = self.meaning(), source.meaning()
        for option in ours.keys() & theirs.keys():
            if ours[option] != theirs[option]:
                raise CheckpointError(
                    f"it and this learner differ in learner.{option}, by which the same weights mean something else; "
                    f"set learner.{option}={theirs[option]}"
                )

    def take_weights(self, source: Learner) -> None:
        """Start from the weights of a policy's learner (``init_from``); a subclass may take a part of them.

        What ``source`` lacks and begins without effect stays as it is drawn: an attention bias, a part of one, copies.

        Raises:
            CheckpointError: the two do not have the same tensors otherwise, or an option gives those another meaning;
                the message names what differs.
        """
        self.require_same_meaning(source)
        mine, other = self.network, source.network  # no folder holds what only training needs
        theirs, ours = other.state_dict(), mine.state_dict()
        silent = tuple(f"{name}." for name, part in mine.named_modules() if isinstance(part, AttentionBias | Copies))
        theirs = {**{name: ours[name] for name in ours if name.startswith(silent)}, **theirs}
        differing = [name for name in ours if name not in theirs or theirs[name].shape != ours[name].shape]
        differing += [name for name in theirs if name not in ours]
        if differing:
            raise CheckpointError(
                f"it and this learner differ in {len(differing)} tensors, such as {differing[0]!r}; "
                "give the learner the same layout and network"
            )
        trunks = dict(other.named_modules())
        for name, part in mine.named_modules():
            trunk = trunks.get(name)
            if isinstance(part, Trunk) and isinstance(trunk, Trunk) and (option := differing_option(part, trunk)):
                raise CheckpointError(
                    f"it and this learner differ in the network's {option} ({name}); give the learner what it has"
                )
        mine.load_state_dict(theirs)

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Optimiser groups: weight decay on matrices only, as is usual for transformers.

        A group may say under ``muon`` which of its ``params`` Muon moves where a run sets ``optim.name=muon``: the
        matrices between hidden layers, neither embeddings nor heads. Under ``tables`` it says which are tables of an
        attention bias, which ``optim.bias_lr`` is for. The default names those of every ``AttentionBias``, and no
        matrix for Muon.
        """
        decayed = [p for p in self.parameters() if p.requires_grad and p.ndim >= 2]
        others = [p for p in self.parameters() if p.requires_grad and p.ndim < 2]
        found = {id(p) for part in self.modules() if isinstance(part, AttentionBias) for p in part.tables()}
        tables = [p for p in decayed if id(p) in found]
        return [
            {"params": decayed, "weight_decay": weight_decay, "tables": tables},
            {"params": others, "weight_decay": 0.0},
        ]
