"""The options of a comparator."""

from __future__ import annotations

from dataclasses import dataclass, field

from genpolicy.errors import ConfigError, require_one_of
from genpolicy.networks.config import NetworkConfig

CHOICES = {
    "encoder": ("mlp", "trunk"),
    "stage": ("autoencoder", "compare"),
    "pairs": ("result", "score"),
    "split_by": ("game", "position"),
}
RESULT_GAP, SCORE_GAP = 2.0, 0.18
"""Least difference in value of two positions: a won and a lost game; a pawn around equality."""


@dataclass
class ComparatorConfig:
    """Options of ``ComparatorLearner``; the defaults are the paper's but for sizes of data."""

    stage: str = "compare"
    """``autoencoder``: the encoder learns to restore bits (the first run); ``compare``: which position is better (the
    second, with ``init_from`` the first, or from nothing)."""
    encoder: str = "mlp"
    """``mlp``: the paper's Pos2Vec over bits; ``trunk``: this library's transformer, the mean of its state tokens."""
    widths: list[int] = field(default_factory=lambda: [600, 400, 200, 100])
    """Layers of the ``mlp`` encoder; the last is the code's width, for ``trunk`` too."""
    head: list[int] = field(default_factory=lambda: [400, 200, 100])
    """Layers over two codes, before the answer."""
    dropout: float = 0.0
    """Probability in [0, 1) of dropping a feature of the ``mlp`` encoder and the head."""
    antisymmetric: bool = True
    """Whether the answer is that of both orders, so that compare(a, b) = -compare(b, a) exactly."""
    mirror: bool = True
    """Whether positions are also read with the colours exchanged, and the answer is that of both."""
    network: NetworkConfig = field(default_factory=lambda: NetworkConfig(geometry="board", num_layers=4, width=128))
    """The ``trunk``."""
    drop: list[str] = field(default_factory=list)
    """Tokens left out of the bits: those with a symbol that begins like one of these (``ep:``)."""
    pairs: str = "score"
    """``result``: a position of a won game and one of a lost game (the paper); ``score``: two positions whose scores
    differ by ``min_gap``."""
    min_gap: float | None = None
    """Least difference of two positions' values, in (0, 2]; None: a won and a lost game, or a pawn."""
    min_ply: int = 10
    """First ply of a game that is used."""
    quiet: bool = False
    """Use positions that the game calls quiet alone (the paper leaves captures out)."""
    split_by: str = "game"
    """``game``: the records' own splits. ``position``: positions of all games drawn apart, as a leaking baseline: the
    neighbours of what is measured, with the same result, are learned from."""
    teacher: str | None = None
    """A comparator's folder whose answers are learned in place of labels (the paper's distilled, smaller network)."""

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            require_one_of(f"learner.{name}", getattr(self, name), allowed)
        for name in ("widths", "head"):
            if not all(width >= 1 for width in getattr(self, name)) or not self.widths:
                raise ConfigError(f"learner.{name} must be widths of at least 1, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"learner.dropout must be in [0, 1), got {self.dropout}")
        if self.min_gap is not None and not 0 < self.min_gap <= 2:
            raise ConfigError(f"learner.min_gap must be in (0, 2], got {self.min_gap}")
        if self.stage == "autoencoder" and (self.encoder == "trunk" or self.teacher):
            raise ConfigError("learner.stage=autoencoder trains learner.encoder=mlp, without a teacher")

    @property
    def gap(self) -> float:
        """Least difference of two positions' values."""
        return self.min_gap if self.min_gap is not None else (RESULT_GAP if self.pairs == "result" else SCORE_GAP)
