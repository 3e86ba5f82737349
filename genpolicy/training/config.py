"""What a training run is: its data, its learner, its optimiser, its budget.

In the keys ``max_steps``, ``eval_every``, ``checkpoint_every`` and ``log_every`` a step is one update of the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from genpolicy.errors import ConfigError, require_one_of

PRECISIONS = ("auto", "float32", "bf16")
MAX_BATCH = 1 << 20
MAX_PREFETCH = 1000
OPTIMISERS = ("adamw", "muon")
SCHEDULES = ("cosine", "constant")
MAX_RATE = 1e30
"""Leaves float32 room for products."""


@dataclass
class DataConfig:
    """Where the records are and which of them are used; how they are shown is the learner's own configuration."""

    folder: Any = ""
    """Data set: a folder that ``genpolicy data`` wrote, ``sample:GAME``, or a list of these, taken together."""
    shares: list[float] | None = None
    """Part of the trained records that each folder of the list gives, in its order; together 1. None: by size."""
    train: str = "train"
    """Split that is trained on."""
    validation: str | None = "validation"
    """Split that is measured during training; null measures nothing. One that the data set lacks is left out, with a
    note."""

    def __post_init__(self) -> None:
        if not all(isinstance(folder, str) for folder in self.folders):
            raise ValueError(f"data.folder is a folder or a list of folders, got {self.folder!r}")
        shares = [1.0] if self.shares is None else self.shares
        if not (shares and all(share > 0 for share in shares) and abs(sum(shares) - 1) <= 1e-6):
            raise ValueError(f"data.shares are above 0 and 1 together, got {self.shares}")
        if self.shares is not None and len(shares) != len(self.folders):
            raise ValueError(f"data.shares has {len(shares)} parts for {len(self.folders)} folders in data.folder")

    @property
    def folders(self) -> list[Any]:
        """The folders, also where there is one."""
        return self.folder if isinstance(self.folder, list) else [self.folder]


@dataclass
class OptimConfig:
    """How the weights move."""

    name: str = "adamw"
    """``adamw``, or ``muon``: Muon for the hidden matrices, AdamW for embeddings, heads, biases and norms."""
    only: list[str] = field(default_factory=list)
    """Names of the modules or parameters that learn, such as ``network.head``; all others stay as ``init_from`` gave
    them. Empty: everything learns."""
    lr: float = 3e-4
    """Peak learning rate. Muon's is scaled to the size of AdamW's updates (Liu et al. 2025), so one serves both."""
    bias_lr: float = 1.0
    """The learning rate of the attention bias's tables, in multiples of ``lr``. A table begins at zero, and AdamW moves
    it by no more than its rate an update: too little, in a short run, to direct attention. Other than 1, it also spares
    them weight decay."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.95
    """Momentum of Muon."""
    weight_decay: float = 0.01
    """Decoupled, on matrices only."""
    warmup: float = 0.02
    """Part of the budget, in [0, 1), over which the learning rate grows linearly from 0."""
    schedule: str = "cosine"
    """``cosine`` falls from the peak to ``final`` times the peak at the end of the budget; ``constant`` stays."""
    final: float = 0.0
    """Part of the peak, in [0, 1], that the cosine ends on."""
    grad_clip: float = 1.0
    """Largest norm of the whole gradient; 0 disables clipping."""
    ema: float = 0.0
    """Decay of the running average of the weights, in [0, 1); 0 disables it. The average is what is evaluated and
    saved. After n updates the decay is (1 + n) / (10 + n), if that is smaller."""

    def __post_init__(self) -> None:
        require_one_of("optim.name", self.name, OPTIMISERS)
        require_one_of("optim.schedule", self.schedule, SCHEDULES)
        for name in ("lr", "eps"):
            if not 0 < getattr(self, name) <= MAX_RATE:
                raise ValueError(f"optim.{name} must be above 0 and at most {MAX_RATE:g}, got {getattr(self, name)}")
        if not 0 < self.bias_lr * self.lr <= MAX_RATE:
            got = f"got {self.bias_lr:g} times {self.lr:g}"
            raise ValueError(f"optim.bias_lr times optim.lr must be above 0 and at most {MAX_RATE:g}, {got}")
        for name in ("warmup", "ema", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"optim.{name} lies in [0, 1), got {getattr(self, name)}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optim.betas lie in [0, 1), got {list(self.betas)}")
        if not 0 <= self.final <= 1:
            raise ValueError(f"optim.final lies in [0, 1], got {self.final}")
        for name in ("weight_decay", "grad_clip"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"optim.{name} must be at least 0, got {getattr(self, name)}")


@dataclass
class TrainerConfig:
    """How long, on which device, and what is measured and saved.

    The budget is whichever of the four ``max_`` limits comes first; at least one has to be set. A limit in minutes
    makes the learning rate follow the clock, so such a run is not repeatable to the bit; the other three are.
    """

    batch_size: int = 128
    """Records of one update, over all processes and accumulated parts."""
    accumulate: int = 1
    """Parts that a process computes one after the other for an update, to save memory."""
    max_steps: int | None = None
    """Updates of the weights, each on ``batch_size`` records."""
    max_epochs: float | None = None
    """Passes over the training windows, whose number must be fixed."""
    max_records: int | None = None
    """Windows drawn: ``batch_size`` of each update."""
    max_minutes: float | None = None
    """Minutes of training, time before a resume included."""
    eval_every: int = 500
    """Updates between measurements; 0 measures only at the end."""
    eval_records: int = 512
    """Validation windows that loss and ELBO are averaged over; 0 measures neither."""
    accuracy_records: int = 256
    """Validation positions that the policy decides; 0 measures no accuracy."""
    checkpoint_every: int = 500
    """Updates between checkpoints; 0 writes one only at the end."""
    keep: int = 2
    """How many of the newest checkpoints are kept, besides the best."""
    log_every: int = 10
    """Updates between lines of ``metrics.jsonl``."""
    tensorboard: bool = True
    """Also write the metrics for TensorBoard, where it is installed."""
    trackers: list[str] = field(default_factory=list)
    """Programs that get the metrics, too: ``wandb``, ``mlflow`` and what else Accelerate knows, installed before."""
    seed: int = 0
    device: str = "auto"
    """``auto`` is a GPU where there is one; or ``cpu``, ``cuda`` (of several GPUs ``cuda:1``), ``mps``."""
    precision: str = "auto"
    """``auto`` is bf16 on a GPU that has it and float32 elsewhere; or ``float32``, ``bf16``."""
    compile: bool = False
    """Compile the networks with ``torch.compile``."""
    prefetch: int = 4
    """Updates whose batches a thread makes ahead; 0 makes each when it is needed."""

    def __post_init__(self) -> None:
        require_one_of("trainer.precision", self.precision, PRECISIONS)
        for name in ("batch_size", "accumulate", "keep", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"trainer.{name} must be at least 1, got {getattr(self, name)}")
        if self.batch_size > MAX_BATCH:
            raise ValueError(
                f"trainer.batch_size must be at most {MAX_BATCH:,} records an update, got {self.batch_size:,}"
            )
        for name in ("eval_every", "eval_records", "accuracy_records", "checkpoint_every", "prefetch", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"trainer.{name} must not be negative, got {getattr(self, name)}")
        if self.prefetch > MAX_PREFETCH:
            raise ValueError(f"trainer.prefetch must be at most {MAX_PREFETCH:,} updates, got {self.prefetch:,}")
        if self.seed >= 1 << 64:
            raise ValueError(f"trainer.seed must be below 2^64, got {self.seed}")
        for name in ("max_steps", "max_epochs", "max_records", "max_minutes"):
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < math.inf:
                raise ValueError(f"trainer.{name} must be above 0 and finite, got {limit}; null sets no limit")
        if self.batch_size % self.accumulate:
            raise ValueError(f"trainer.accumulate={self.accumulate} must divide trainer.batch_size={self.batch_size}")


@dataclass(frozen=True)
class Budget:
    """The limits of a run; the first that is reached ends it."""

    updates: int | None
    """Updates of the weights; None where only the clock ends the run."""
    seconds: float | None
    """Seconds of training, time before a resume included; None where only the updates end the run."""

    @staticmethod
    def of(config: TrainerConfig, num_windows: int | None) -> Budget:
        """The budget of a configuration; ``num_windows`` of an epoch are None where they have no fixed number.

        Raises:
            ConfigError: no limit is set, or ``max_epochs`` without a number of windows.
        """
        limits = [] if config.max_steps is None else [config.max_steps]
        if config.max_epochs is not None:
            if num_windows is None:
                raise ConfigError(
                    f"trainer.max_epochs={config.max_epochs:g}: the learner's stream does not say how many records an "
                    "epoch has (num_records); set trainer.max_records, trainer.max_steps or trainer.max_minutes"
                )
            limits.append(math.ceil(config.max_epochs * num_windows / config.batch_size))
        if config.max_records is not None:
            limits.append(math.ceil(config.max_records / config.batch_size))
        if not limits and config.max_minutes is None:
            raise ConfigError(
                "the run has no end: set trainer.max_steps, trainer.max_epochs, trainer.max_records or "
                "trainer.max_minutes"
            )
        return Budget(min(limits) if limits else None, None if config.max_minutes is None else 60 * config.max_minutes)

    def progress(self, num_updates: float, seconds: float) -> float:
        """Part of the budget that is used up after so many updates and seconds; 1 and above is the end."""
        by_updates = 0.0 if self.updates is None else num_updates / self.updates
        by_clock = 0.0 if self.seconds is None else seconds / self.seconds
        return max(by_updates, by_clock)


@dataclass
class RunConfig:
    """Everything that ``genpolicy train`` reads."""

    game: str = ""
    """Specification of the game, e.g. ``chess``; empty takes the data set's."""
    data: DataConfig = field(default_factory=DataConfig)
    learner: dict[str, Any] = field(default_factory=dict)
    """``kind``: entry point in group ``genpolicy.learners``; the other keys are that learner's own."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    out: str = ""
    """Folder of the run: checkpoints, metrics, and the policy in ``policy/``."""
    init_from: str | None = None
    """Folder of a policy whose weights the run starts from."""
