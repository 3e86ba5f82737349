"""Options of the learner ``unizero``."""

from __future__ import annotations

from dataclasses import dataclass

from genpolicy.errors import ConfigError
from genpolicy_policy_model.config import ModelConfig

GROUP = 8
"""Numbers of a latent that SimNorm's softmax takes together."""


@dataclass
class UniZeroConfig(ModelConfig):
    """Options of ``UniZeroLearner``. The published model: width 768, 8 heads, unroll 10, context 4, 101 bins."""

    width: int = 128
    """Width of latents and tokens."""
    layers: int = 2
    """Blocks of the transformer."""
    heads: int = 4
    """Heads of its attention; ``width`` is a multiple of twice their number."""
    context: int = 4
    """Plies that a token attends to, its own among them; 1 has no history. At most ``unroll``, since no longer one is
    trained."""
    fade: int = 0
    """Show of the board only what changed in the last so many plies; 0 shows all of it. An experiment in which history
    is needed: takes ``source=games`` and begins all windows where a game begins."""
    norm: str = "simnorm"
    """Normalisation of latents: ``simnorm`` (softmax of groups of 8, the loss is the KL between them) or ``layer``
    (LayerNorm, mean squared error)."""
    target_decay: float = 0.95
    """The encoder that gives target latents is a moving average: so much of it stays at each update, in [0, 1)."""
    latent_weight: float = 10.0
    value_weight: float = 0.5
    entropy: float = 0.0
    """Weight of a bonus for the entropy of the policy (published: 5e-3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_choices({"norm": ("simnorm", "layer")})
        self.check_counts("width", "layers", "heads", "context")
        self.check_weights("latent_weight", "entropy")
        if self.width % (2 * self.heads) or (self.norm == "simnorm" and self.width % GROUP):
            raise ConfigError(
                f"learner.width={self.width} must be a multiple of twice the heads ({2 * self.heads})"
                + (f" and of SimNorm's groups of {GROUP}" if self.norm == "simnorm" else "")
            )
        if self.context > self.unroll:
            raise ConfigError(
                f"learner.context={self.context} is longer than learner.unroll={self.unroll}: a window of "
                f"{self.unroll} moves trains no context beyond them; set context={self.unroll} at most, or a longer "
                "unroll"
            )
        if not 0 <= self.target_decay < 1:
            raise ConfigError(f"learner.target_decay lies in [0, 1), got {self.target_decay}")
        if self.fade < 0 or self.fade >= self.unroll:
            raise ConfigError(f"learner.fade is at least 0 and below learner.unroll={self.unroll}, got {self.fade}")
        if self.fade and (self.source != "games" or self.side != "both"):
            raise ConfigError(
                "learner.fade needs to know when each stone was played: take learner.source=games and side=both, with "
                f"games of genpolicy data selfplay; got source={self.source}, side={self.side}"
            )
