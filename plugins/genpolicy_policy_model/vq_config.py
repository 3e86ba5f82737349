"""Options of the learner ``vq``."""

from __future__ import annotations

from dataclasses import dataclass

from genpolicy.errors import ConfigError
from genpolicy_policy_model.config import MuZeroConfig

MAX_LAYERS = 1000


@dataclass
class VQConfig(MuZeroConfig):
    """Options of ``VQLearner``: those of ``MuZeroConfig``, the codes and the autoencoder that makes them."""

    latent: str = "vector"
    """As in ``MuZeroConfig``. With ``squares`` a code is marked on the squares that it changes."""
    side: str = "own"
    """``own``: a code stands for the other side's reply. ``both``, for games with chance: both players' moves are seen,
    and a code stands for what chance makes of a move."""
    span: int = 1
    """Own moves that one code spans, at least 1. 1 is VQHybrid; more is VQJumpy, whose search chooses every span-th own
    move."""
    plan: str = "hybrid"
    """``hybrid``: a search chooses among moves. ``pure``: at its root alone; below it among codes of own moves."""
    agent_codes: int = 0
    """Codes of own moves, at least 2 with ``plan: pure``; 0 without."""
    num_books: int = 1
    """Codebooks G; a transition has one code of each."""
    num_codes: int = 16
    """Codes K of a book, at least 2. More than there are different answers to a move are never used."""
    code_width: int = 16
    """Width of a code."""
    codebook: str = "ema"
    """How codes are learned: ``ema``, moving averages; ``gradient``."""
    decay: float = 0.97
    """Of the moving averages, in [0, 1)."""
    revive_below: float = 1.0
    """A code that fewer transitions of a batch choose, on average, begins anew at one of the batch; above 0."""
    commitment: float = 0.25
    """Weight beta of the squared distance between a transition and its code."""
    autoencoder: str = "vector"
    """How it reads a position: ``vector``, all tokens side by side; ``squares``, token by token, for larger boards."""
    token_width: int = 16
    """Features of each token that ``vector``, and the codes of own moves, read."""
    autoencoder_width: int = 256
    """Width of its layers, or of each token; of ``squares`` a multiple of 16."""
    autoencoder_layers: int = 2
    """Layers of its encoder, and of its decoder; blocks of attention of the decoder of ``squares``."""
    settle: float = 0.4
    """Part of the run, in [0, 1], after which the autoencoder is not trained any more, so that codes keep their
    meaning; 1 trains it to the end."""
    worth: str = "played"
    """What a move's worth is learned from: ``played``, the value after the answer that followed, which is too high
    where opponents err; ``label``, the record's value of the position before it, which takes ``side: own`` and
    records of both players' positions."""
    code_weight: float = 1.0
    """Weight of the loss of the codes' probabilities."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side == "both" and self.span != 1:
            raise ConfigError(
                f"learner.span={self.span} with side=both: a code stands for what chance makes of one move; set span=1"
            )
        if self.consistency:
            raise ConfigError(
                "learner.consistency is an option of muzero; the autoencoder ties codes to true positions"
            )
        self.check_choices(
            {
                "codebook": ("ema", "gradient"),
                "plan": ("hybrid", "pure"),
                "autoencoder": ("vector", "squares"),
                "worth": ("played", "label"),
            }
        )
        if self.worth == "label" and self.side == "both":
            raise ConfigError("learner.worth=label takes side=own; what chance makes of a move has no label before it")
        if self.plan == "pure" and (self.side == "both" or self.agent_codes < 2):
            raise ConfigError(
                f"learner.plan=pure plans in codes of own moves: set learner.agent_codes to 2 at least, and side=own; "
                f"got agent_codes={self.agent_codes} and side={self.side}"
            )
        if self.plan == "hybrid" and self.agent_codes:
            raise ConfigError(
                f"learner.agent_codes={self.agent_codes} with plan=hybrid, which chooses among moves: set "
                "learner.plan=pure, or agent_codes=0"
            )
        self.check_counts("span", "num_books", "num_codes", "code_width")
        self.check_counts("token_width", "autoencoder_width", "autoencoder_layers")
        if self.autoencoder_layers > MAX_LAYERS:
            raise ConfigError(
                f"learner.autoencoder_layers must be at most {MAX_LAYERS:,}, got {self.autoencoder_layers:,}"
            )
        if self.autoencoder == "squares" and self.autoencoder_width % 16:
            raise ConfigError(
                f"learner.autoencoder_width of autoencoder=squares is a multiple of 16, got {self.autoencoder_width}"
            )
        self.check_weights("commitment", "code_weight")
        if self.num_codes < 2:
            raise ConfigError("learner.num_codes must be at least 2: a single code says nothing; muzero with side=own")
        if self.num_codes**self.num_books >= 1 << 62:
            raise ConfigError(
                f"learner.num_codes={self.num_codes} and num_books={self.num_books} have more combinations than a "
                "search can count; take fewer books"
            )
        if not (0 <= self.decay < 1 and 0 <= self.settle <= 1 and 1e-6 <= self.revive_below < 1e6):
            raise ConfigError(
                "learner.decay lies in [0, 1), settle in [0, 1] and revive_below in [1e-6, 1e6); got "
                f"{self.decay}, {self.settle}, {self.revive_below}"
            )
