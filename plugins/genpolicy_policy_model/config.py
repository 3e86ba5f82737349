"""Options of the learners of models: what all share, and those of ``muzero``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from genpolicy.errors import ConfigError, require_one_of
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.value_heads import ReadoutConfig
from genpolicy_policy_model.episodes import SIDES, SOURCES, TARGETS
from genpolicy_policy_model.transforms import scaled

CHOICES: dict[str, tuple[str, ...]] = {
    "side": SIDES,
    "source": SOURCES,
    "targets": TARGETS,
    "value": ("wdl", "categorical"),
}
MAX_WIDTH = 1 << 20


@dataclass
class ModelConfig:
    """Options that all learners of models share: what is learnt from, the representation and the heads."""

    network: NetworkConfig = field(default_factory=lambda: NetworkConfig(geometry="board", head="typed"))
    """Shape of the representation."""
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    """How the heads read the latent."""

    unroll: int = 5
    """Moves K of a window in training, at least 1."""
    side: str = "both"
    """``both``: the moves of both players. ``own``: one player's, the other's answer being a part of what the model
    predicts."""
    source: str = "games"
    """``games`` that were played, or ``walks`` over records that value all moves (see ``Episodes``)."""
    targets: str = "label"
    """What the policy learns: ``label``, ``search`` or ``played``."""
    value_target: str = "label"
    """What the value learns: ``label``, ``result``, ``search`` or ``mix:X``."""
    cache_dir: str | None = None
    """Folder of the cached episodes; None puts them beside the data set."""

    value: str = "wdl"
    """Value and reward head: ``wdl``, over win, draw and loss; ``categorical``, over the bins of ``support``."""
    support: list[float] = field(default_factory=lambda: [-1.0, 1.0, 51])
    """Lowest and highest bin of ``categorical`` and their number."""
    transform: bool = False
    """Whether the bins of ``categorical`` are in units of MuZero's h(x) (``genpolicy_policy_model.transforms``)."""
    end_head: bool = True
    """Whether the model learns to tell that the game is over; without it a search goes on beyond the end, as in the
    MuZero papers."""
    value_weight: float = 1.0
    reward_weight: float = 1.0
    end_weight: float = 1.0

    def __post_init__(self) -> None:
        self.check_choices(CHOICES)
        self.check_counts("unroll")
        self.check_weights("value_weight", "reward_weight", "end_weight")
        low, high, bins = self.support if len(self.support) == 3 else (0.0, 0.0, 0.0)
        if not (-math.inf < low < high < math.inf and 2 <= bins <= 1 << 16 and bins == int(bins)):
            raise ConfigError(f"learner.support is [lowest, highest, number of bins from 2 on], got {self.support}")
        most = float(scaled(torch.ones(()))) if self.transform else 1.0
        if self.value == "categorical" and not (low <= -most and high >= most):
            raise ConfigError(
                f"learner.support must hold all values from -{most:.4g} to {most:.4g}, got {self.support}"
            )
        if self.transform and self.value == "wdl":
            raise ConfigError("learner.transform changes the bins of learner.value=categorical; value is 'wdl'")
        if self.network.positions != "learned" or self.network.time_conditioning or self.network.dropout:
            raise ConfigError(
                "learner.network of a learned model takes positions=learned, time_conditioning=false and dropout=0"
            )
        if self.network.move_symbols:
            raise ConfigError("learner.network.move_symbols reads positions; a learned model's latents have none")

    def check_choices(self, choices: Mapping[str, tuple[str, ...]]) -> None:
        """Raises ConfigError where an option is none of those allowed."""
        for name, allowed in choices.items():
            require_one_of(f"learner.{name}", getattr(self, name), allowed)

    def check_counts(self, *names: str) -> None:
        """Raises ConfigError where a count is below 1 or absurdly large."""
        for name in names:
            if not 1 <= getattr(self, name) <= MAX_WIDTH:
                raise ConfigError(
                    f"learner.{name} must be at least 1 and at most {MAX_WIDTH:,}, got {getattr(self, name)}"
                )

    def check_weights(self, *names: str) -> None:
        """Raises ConfigError where the weight of a loss is negative or not finite."""
        for name in names:
            if not 0 <= getattr(self, name) < 1e6:
                raise ConfigError(f"learner.{name} must be at least 0 and below 1e6, got {getattr(self, name)}")


@dataclass
class MuZeroConfig(ModelConfig):
    """Options of ``MuZeroLearner``: those of all models, the latent and how it is unrolled.

    The dynamics over squares have the blocks of ``network``; ``side="own"`` is single-player MuZero.
    """

    latent: str = "squares"
    """``squares``: a vector for each token of a position, changed by attention. ``vector``: one for the position,
    changed by residual layers; cheaper, and enough for small boards."""
    latent_width: int = 128
    """Width of ``vector``; that of ``squares`` is ``network.width``."""
    dynamics_layers: int = 2
    """Blocks of the dynamics, at least 1."""
    consistency: float = 0.0
    """Weight of a loss that holds an unrolled latent to that of the true position (Ye et al. 2021, arXiv:2111.00210).
    It is taken where the viewer is to move, since the representation reads no other positions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_choices({"latent": ("squares", "vector")})
        self.check_counts("latent_width", "dynamics_layers")
        self.check_weights("consistency")
