"""How long a run goes and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from genpolicy.errors import ConfigError
from genpolicy.training.config import TrainerConfig


@dataclass(frozen=True)
class Budget:
    """The limits of a run, the first of which ends it."""

    steps: int | None
    """Updates; None where only the clock ends the run."""
    seconds: float | None

    @staticmethod
    def of(config: TrainerConfig, num_windows: int | None) -> Budget:
        """The budget of a configuration over so many training windows; None where they have no fixed number.

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

    def progress(self, step: float, seconds: float) -> float:
        """Part of the budget that is used up after so many updates and seconds; 1 and above is the end."""
        by_step = 0.0 if self.steps is None else step / self.steps
        by_clock = 0.0 if self.seconds is None else seconds / self.seconds
        return max(by_step, by_clock)
